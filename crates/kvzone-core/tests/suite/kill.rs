//! What was acknowledged held against what is there after a kill, with stores that
//! keep all, and with stores that do not.

use kvzone_core::adapter::DurabilityName;
use kvzone_core::driver::{PhaseResult, run_job};
use kvzone_core::error::Error;
use kvzone_core::job::{After, Job, Load, SizeChoice, Until};
use kvzone_core::record::Phase;

use crate::lying::{Lie, Lying};

/// Both halves of a job with a kill between them, in this process: its writes end, and
/// the store is opened a second time.
fn after_kill(lie: Lie, change: impl Fn(&mut Job)) -> PhaseResult {
    let folder = tempfile::tempdir().unwrap();
    let load = Load {
        workload: "overwrite".to_string(),
        keys: 500,
        value_bytes: SizeChoice::Uniform(30, 90),
        until: Until::Operations(2_000),
        ..Load::default()
    };
    let mut job = Job {
        durability: DurabilityName::Synced,
        reopen: Some(After::Kill),
        ..Job::new("lying", folder.path(), load)
    };
    change(&mut job);
    let store = Lying::new(lie);
    let before = run_job(&store, &job, &()).unwrap();
    assert!(before.iter().all(|phase| phase.failure.is_none()));
    assert!(before.iter().all(|phase| phase.phase != Phase::Reopen));
    job.after_kill = true;
    let mut after = run_job(&store, &job, &()).unwrap();
    assert_eq!(after.len(), 1);
    after.remove(0)
}

fn number(result: &PhaseResult, name: &str) -> u64 {
    result.extra["after_kill"][name].as_u64().unwrap()
}

fn words(result: &PhaseResult) -> String {
    match &result.failure {
        Some(Error::WrongData { what, .. }) => what.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_store_that_keeps_what_it_acknowledged_is_in_order() {
    for (workload, threads, batch) in [
        ("overwrite", 1, 1),
        ("fill-random", 2, 1),
        ("overwrite", 3, 20),
        ("churn-read", 2, 1),
    ] {
        let result = after_kill(Lie::None, |job| {
            job.load.workload = workload.to_string();
            (job.load.threads, job.load.batch) = (threads, batch);
        });
        assert!(result.failure.is_none(), "{workload}: {:?}", result.failure);
        assert_eq!((result.phase, result.operations), (Phase::Reopen, 1));
        assert!(number(&result, "acknowledged") >= 500, "{workload}");
        assert_eq!(number(&result, "survived"), number(&result, "acknowledged"));
        assert_eq!(number(&result, "lost") + number(&result, "damaged"), 0);
    }
    let inserted = after_kill(Lie::None, |job| {
        job.load.workload = "ycsb-d".to_string();
    });
    assert!(number(&inserted, "acknowledged") > 550, "inserts count");
}

#[test]
fn keys_inserted_and_deleted_again_must_stay_away() {
    let result = after_kill(Lie::BringsBack, |job| {
        job.load.workload = "churn".to_string();
        job.load.lifetime = Some(SizeChoice::Uniform(5, 50));
    });
    assert!(words(&result).contains("as it was deleted"), "{result:?}");
}

#[test]
fn what_was_acknowledged_and_is_not_there_is_a_loss() {
    for lie in [Lie::Loses, Lie::KeepsOlder] {
        let result = after_kill(lie, |_| {});
        let lost = number(&result, "lost");
        assert!((20..=50).contains(&lost), "{lie:?}: {lost} of 500");
        assert_eq!(number(&result, "damaged"), 0);
        let words = words(&result);
        assert!(
            words.contains("acknowledged as synced were lost"),
            "{words}"
        );
        let came = match lie {
            Lie::Loses => "came nothing",
            _ => "whole, of key number",
        };
        assert!(words.contains(came), "{words}");
    }
}

#[test]
fn what_was_only_buffered_may_be_lost_and_is_counted() {
    let buffered = |job: &mut Job| job.durability = DurabilityName::Buffered;
    for lie in [Lie::Loses, Lie::KeepsOlder] {
        let result = after_kill(lie, buffered);
        assert!(result.failure.is_none(), "{:?}", result.failure);
        assert!(number(&result, "lost") > 0);
    }
    let damaged = after_kill(Lie::Damages, buffered);
    assert_eq!(number(&damaged, "damaged"), 1);
    assert!(words(&damaged).contains("1 keys held what nobody wrote"));
}
