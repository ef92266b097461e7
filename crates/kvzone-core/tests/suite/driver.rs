//! The driver against the calibration stores and against stores that lie: what
//! is counted, what is hashed, what is seen, in which order it calls back.

use std::sync::{Arc, Mutex};

use crate::load;
use crate::lying::{Lie, Lying};
use kvzone_core::adapter::{Adapter, DurabilityName, OpenStore};
use kvzone_core::calibration::{Memory, Null};
use kvzone_core::driver::{Observer, PhaseResult, check, run_job};
use kvzone_core::error::{Error, Result};
use kvzone_core::job::{Act, After, Beside, Job, Load, Replayed, SizeChoice, Step, Until};
use kvzone_core::record::Phase;
use kvzone_core::trace::Recorded;
use kvzone_core::trace::summary::summarize;
use kvzone_core::workload::{self, OperationKind};
use serde_json::json;
use tempfile::TempDir;

fn job(folder: &TempDir, workload: &str) -> Job {
    Job::new("memory", folder.path(), load(workload))
}

fn run(adapter: &dyn Adapter, workload: &str, change: impl Fn(&mut Job)) -> Vec<PhaseResult> {
    let folder = tempfile::tempdir().unwrap();
    let mut job = job(&folder, workload);
    change(&mut job);
    let phases = run_job(adapter, &job, &()).unwrap();
    for phase in &phases {
        assert!(phase.failure.is_none(), "{workload}: {:?}", phase.failure);
    }
    phases
}

fn last(adapter: &dyn Adapter, workload: &str, change: impl Fn(&mut Job)) -> PhaseResult {
    run(adapter, workload, change).pop().unwrap()
}

#[test]
fn every_workload_runs_on_null_and_on_memory_with_every_size() {
    for workload in workload::all() {
        for (key, value) in [
            (SizeChoice::Fixed(4), SizeChoice::Fixed(4)),
            (SizeChoice::Fixed(8), SizeChoice::Fixed(0)),
            (SizeChoice::Fixed(16), SizeChoice::Fixed(100)),
            (SizeChoice::Uniform(9, 40), SizeChoice::Uniform(1, 3_000)),
        ] {
            for threads in [1, 3] {
                for adapter in [&Null as &dyn Adapter, &Memory] {
                    let phases = run(adapter, &workload.name, |job| {
                        job.load.key_bytes = key;
                        job.load.value_bytes = value;
                        job.load.threads = threads;
                    });
                    assert_eq!(phases[0].phase, Phase::Load);
                    assert_eq!(phases[0].operations, 2_000);
                    assert_eq!(phases[0].live_keys, 2_000);
                    let fills = workload.measured_phase() == Phase::Load;
                    assert_eq!(phases.len(), if fills { 1 } else { 2 });
                    let walks = workload.mix.iter().any(|(kind, _)| kind.walks());
                    if walks {
                        // Whole ones alone; null does not know of how many entries.
                        let entries = if adapter.keeps_data() { 2_000 } else { 0 };
                        let whole = entries * if threads == 1 { 2 } else { 3 };
                        assert_eq!(phases[1].operations, whole, "{}", workload.name);
                    } else if !fills {
                        assert_eq!(phases[1].operations, 4_000, "{}", workload.name);
                        assert!(phases[1].latency.is_some());
                    }
                }
            }
        }
    }
}

#[test]
fn bytes_are_counted_as_they_were_moved() {
    let phases = run(&Memory, "overwrite", |_| {});
    assert_eq!(phases[0].user_bytes_written, 2_000 * 116);
    assert_eq!(phases[1].user_bytes_written, 4_000 * 116);
    assert_eq!(phases[1].live_user_bytes, 2_000 * 116);
    let read = last(&Memory, "read-random", |_| {});
    assert_eq!(
        (read.user_bytes_read, read.user_bytes_written),
        (4_000 * 116, 0)
    );
    let deleted = last(&Memory, "delete-random", |job| {
        job.load.until = Until::Operations(500);
    });
    assert_eq!(deleted.user_bytes_written, 500 * 16);
    assert_eq!(deleted.live_keys, 1_500);
    let inserted = last(&Memory, "ycsb-d", |_| {});
    let inserts = inserted.extra["calls_insert"].as_u64().unwrap();
    assert!(inserts > 100);
    assert_eq!(inserted.live_keys, 2_000 + inserts);
    assert_eq!(inserted.live_user_bytes, (2_000 + inserts) * 116);
}

#[test]
fn a_batch_counts_its_entries_and_is_one_call() {
    for workload in ["fill-random", "overwrite", "delete-random"] {
        let phase = last(&Memory, workload, |job| {
            job.load.batch = 300;
            job.load.until = Until::Operations(2_000);
        });
        assert_eq!(phase.operations, 2_000);
        assert_eq!(phase.extra["batch"], 300);
        let calls: u64 = phase
            .extra
            .iter()
            .filter(|(name, _)| name.starts_with("calls_"))
            .map(|(_, calls)| calls.as_u64().unwrap())
            .sum();
        assert_eq!(calls, 7);
    }
}

#[test]
fn a_seed_gives_one_hash_and_another_seed_another() {
    for workload in [
        "read-random",
        "read-sequential",
        "ycsb-a",
        "ycsb-e",
        "ycsb-f",
    ] {
        let hash = |seed| last(&Memory, workload, |job| job.load.seed = seed).result_hash;
        let first = hash(1).unwrap();
        assert_eq!(first.len(), 16);
        assert_eq!(Some(&first), hash(1).as_ref(), "{workload}");
        assert_ne!(Some(&first), hash(2).as_ref(), "{workload}");
    }
}

#[test]
fn there_is_a_hash_only_where_timing_does_not_decide_it() {
    let hash =
        |workload: &str, change: &dyn Fn(&mut Job)| last(&Memory, workload, change).result_hash;
    assert!(hash("read-random", &|job| job.load.threads = 3).is_some());
    assert!(hash("read-sequential", &|job| job.load.threads = 3).is_some());
    assert!(hash("ycsb-a", &|_| ()).is_some());
    assert!(hash("ycsb-a", &|job| job.load.threads = 2).is_none());
    assert!(hash("read-random", &|job| job.load.until = Until::Seconds(0.05)).is_none());
    assert!(hash("overwrite", &|_| ()).is_none());
    assert!(hash("fill-random", &|_| ()).is_none());
    assert!(last(&Null, "read-random", |_| ()).result_hash.is_none());
}

#[test]
fn reading_in_order_by_scans_and_by_gets_agrees() {
    for threads in [1, 2] {
        let scans = last(&Memory, "read-sequential", |job| job.load.threads = threads);
        let gets = last(&Lying::new(Lie::None), "read-sequential", |job| {
            job.load.threads = threads;
        });
        assert_eq!(scans.extra["access"], "scan");
        assert_eq!(gets.extra["access"], "get");
        assert_eq!(scans.result_hash, gets.result_hash);
        assert!(scans.result_hash.is_some());
    }
}

#[test]
fn time_ends_a_phase_and_a_rate_is_kept() {
    let phase = last(&Memory, "ycsb-b", |job| {
        job.load.until = Until::Seconds(0.5);
        job.load.rate = Some(2_000.0);
        job.load.threads = 2;
    });
    // Not more than were due; how many fewer depends on the machine.
    assert!(phase.operations > 0 && phase.operations <= 1_000);
    assert!(phase.extra.contains_key("operations_overdue"));
    assert_eq!(phase.timeline.len(), 1);
    assert_eq!(phase.timeline[0].operations, phase.operations);
    let fill = last(&Memory, "fill-random", |job| {
        job.load.keys = 100_000_000;
        job.load.until = Until::Seconds(0.1);
        job.load.value_bytes = SizeChoice::Fixed(10);
    });
    assert!(fill.operations > 0 && fill.operations < 100_000_000);
    assert_eq!(fill.live_keys, fill.operations);
}

#[test]
fn an_open_loop_shows_a_stall_that_a_closed_loop_hides() {
    let measure = |rate| {
        last(&Lying::new(Lie::Stalls), "read-random", |job| {
            job.load.until = Until::Seconds(2.5);
            job.load.rate = rate;
        })
    };
    let open = measure(Some(2_000.0));
    let (seen, native) = (open.latency.unwrap(), open.native_latency.unwrap());
    // A tenth of the operations are due while nothing moves, and wait from 0 to
    // 100 ms: the hundredth that waits longest waits 90 ms and more.
    assert!(seen.p99 >= 85_000_000, "{seen:?}");
    assert!(native.p90 < seen.p99 / 2, "{native:?}");
    let closed = measure(None).latency.unwrap();
    assert!(closed.p99 < 50_000_000, "{closed:?}");
    assert!(closed.max >= 50_000_000, "{closed:?}");
}

#[test]
fn arrivals_by_poisson_are_of_a_rate_and_keep_it() {
    let load = |rate| Load {
        poisson: true,
        rate,
        ..job(&tempfile::tempdir().unwrap(), "read-random").load
    };
    let refused = check(&load(None), &[], None);
    assert!(refused.unwrap_err().to_string().contains("--rate"));
    let phase = last(&Memory, "read-random", |job| {
        job.load = load(Some(20_000.0));
    });
    // 4,000 operations, whose distances add up to 0.2 s but for a few percent.
    assert!(phase.seconds > 0.18, "{}", phase.seconds);
    assert!(phase.extra.contains_key("queueing_latency_ns"));
}

#[derive(Default)]
struct Diary {
    lines: Mutex<Vec<String>>,
}

impl Diary {
    fn write(&self, line: String) -> Result<()> {
        self.lines.lock().unwrap().push(line);
        Ok(())
    }
}

impl Observer for Diary {
    fn phase_starts(&self, phase: Phase) -> Result<()> {
        self.write(format!("starts {phase:?}"))
    }

    fn progress(&self, _phase: Phase, operations: u64) {
        let mut lines = self.lines.lock().unwrap();
        if lines
            .last()
            .is_some_and(|line| line.starts_with("progress"))
        {
            lines.pop();
        }
        lines.push(format!("progress {operations}"));
    }

    fn work_ended(&self, phase: Phase) -> Result<()> {
        self.write(format!("ended {phase:?}"))
    }

    fn phase_ended(&self, result: &PhaseResult) -> Result<()> {
        self.write(format!("settled {:?}", result.phase))
    }

    fn store_closed(&self) -> Result<()> {
        self.write("closed".to_string())
    }
}

#[test]
fn the_observer_is_called_in_the_order_that_it_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = job(&folder, "read-random");
    (job.cold, job.reopen) = (true, Some(After::Close));
    let diary = Diary::default();
    let phases = run_job(&Lying::new(Lie::None), &job, &diary).unwrap();
    assert_eq!(phases.len(), 3);
    assert_eq!((phases[2].phase, phases[2].operations), (Phase::Reopen, 1));
    assert!(phases[1].extra.contains_key("open_seconds"));
    let expected = [
        "starts Load",
        "progress 2000",
        "ended Load",
        "settled Load",
        "closed",
        "starts Run",
        "progress 4000",
        "ended Run",
        "settled Run",
        "closed",
        "starts Reopen",
        "ended Reopen",
        "settled Reopen",
    ];
    assert_eq!(*diary.lines.lock().unwrap(), expected);
}

#[test]
fn what_a_store_cannot_do_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    for (change, words) in [
        (
            (|job| job.load.workload = "ycsb-e".to_string()) as fn(&mut Job),
            "no key order",
        ),
        (
            |job| job.durability = DurabilityName::Synced,
            "synced writes",
        ),
    ] {
        let mut job = job(&folder, "read-random");
        change(&mut job);
        let error = run_job(&Lying::new(Lie::LosesAKey), &job, &()).unwrap_err();
        assert!(matches!(&error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let mut job = job(&folder, "read-random");
    job.cold = true;
    assert!(run_job(&Memory, &job, &()).is_err());
}

#[test]
fn lies_are_found_and_failures_end_the_job() {
    for (lie, workload, words) in [
        (Lie::LosesAKey, "read-random", "came nothing"),
        (Lie::OlderVersion, "ycsb-f", "expected version"),
        (Lie::OtherKeysValue, "read-random", "of key number"),
        (Lie::DamagedByte, "read-random", "damaged"),
        (Lie::ScanLeavesOut, "read-sequential", "left out"),
        (Lie::ScanEndsEarly, "read-sequential", "left out"),
        (Lie::ScanBackwards, "ycsb-e", "out of order"),
        (Lie::ScanMiscounts, "ycsb-e", "and answered"),
        (Lie::ScanOtherValues, "ycsb-e", "of key number"),
        (Lie::ScanStrangeKey, "ycsb-e", "never written"),
        (Lie::FailsAfter(3_000), "overwrite", "no space"),
        (Lie::PanicsAfter(3_000), "overwrite", "panicked"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut job = job(&folder, workload);
        job.load.threads = 2;
        let phases = run_job(&Lying::new(lie), &job, &()).unwrap();
        let last = phases.last().unwrap();
        let failure = last.failure.as_ref().unwrap().to_string();
        assert!(failure.contains(words), "{lie:?}: {failure}");
        assert!(failure.contains("lying"), "{failure}");
        assert!(last.result_hash.is_none());
        assert!(last.operations < 4_000);
    }
}

/// Tells what is recorded whether it is the load.
struct Loading<'a>(&'a Recorded);

impl Observer for Loading<'_> {
    fn phase_starts(&self, phase: Phase) -> Result<()> {
        self.0.set_loading(phase == Phase::Load);
        Ok(())
    }

    fn opened(&self, store: Arc<dyn OpenStore>) -> Arc<dyn OpenStore> {
        self.0.around(store)
    }
}

#[test]
fn a_replay_sees_what_a_store_gets_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let recorded = Recorded::new(&path).unwrap();
    let made = run_job(&Memory, &job(&folder, "ycsb-a"), &Loading(&recorded)).unwrap();
    assert!(made.iter().all(|phase| phase.failure.is_none()));
    assert_eq!(recorded.finish().unwrap(), 6_000);
    let replayed = Replayed {
        path: path.clone(),
        missing: None,
        speed: None,
        summary: summarize(&path, u64::MAX, None).unwrap(),
    };
    let lies = [
        (Lie::None, None),
        (Lie::LosesAKey, Some("came nothing")),
        (Lie::OlderVersion, Some("version")),
        (Lie::OtherKeysValue, Some("version")),
        (Lie::DamagedByte, Some("version")),
        (Lie::FailsAfter(2_500), Some("lying")),
        (Lie::PanicsAfter(2_500), Some("panicked")),
    ];
    for threads in [1, 3] {
        for (lie, words) in &lies {
            let folder = tempfile::tempdir().unwrap();
            let mut job = job(&folder, "trace:trace");
            job.load.threads = threads;
            job.load.trace = Some(Box::new(replayed.clone()));
            let phases = run_job(&Lying::new(*lie), &job, &()).unwrap();
            let failure = phases.iter().find_map(|phase| phase.failure.as_ref());
            match (failure.map(ToString::to_string), words) {
                (None, None) => {}
                (Some(told), Some(words)) => assert!(told.contains(words), "{lie:?}: {told}"),
                (told, _) => panic!("{lie:?}, {threads} threads: {told:?}"),
            }
        }
    }
}

#[test]
fn threads_of_one_kind_issue_that_kind_and_its_share() {
    let phases = run(&Memory, "mixed", |job| {
        job.load.mix = Some(vec![
            (OperationKind::Read, 60),
            (OperationKind::Insert, 10),
            (OperationKind::Update, 30),
        ]);
        job.load.threads = 5;
        job.load.kind_threads = Some(vec![
            (OperationKind::Update, 1),
            (OperationKind::Read, 3),
            (OperationKind::Insert, 1),
        ]);
    });
    let run = &phases[1];
    assert_eq!(run.operations, 4_000);
    for (kind, calls) in [("read", 2_400), ("update", 1_200), ("insert", 400)] {
        assert_eq!(run.extra[&format!("calls_{kind}")], calls, "{kind}");
    }
    assert_eq!(run.live_keys, 2_400);
}

#[test]
fn a_rate_that_cannot_be_reached_is_given_up() {
    let phases = run(&Memory, "read-random", |job| {
        job.load.rate = Some(1e12);
        job.load.give_up = Some(0.001);
        job.load.until = Until::Operations(1_000_000_000);
    });
    let run = &phases[1];
    assert_eq!(run.extra["rate_given_up"], true);
    assert!(run.operations < 1_000_000_000);
    // Nearly all of the latency is waiting in line.
    let waited = run.extra["queueing_latency_ns"]["mean"].as_f64().unwrap();
    let whole = run.latency.unwrap().mean;
    assert!(waited <= whole && waited > 0.0, "{waited}, {whole}");
}

/// The steps of a job, in their order, on one open store.
#[test]
fn steps_go_on_with_what_the_load_and_the_steps_before_left() {
    let step = |name: &str, act: Act| Step {
        name: name.to_string(),
        act,
    };
    let folder = tempfile::tempdir().unwrap();
    let base = job(&folder, "fill-random");
    let work = |workload: &str, until: Until, change: &dyn Fn(&mut Load)| {
        let mut load = Load {
            workload: workload.to_string(),
            seed: 7,
            until,
            ..base.load.clone()
        };
        change(&mut load);
        Act::Work(Box::new(load))
    };
    let job = Job {
        steps: vec![
            step(
                "quarter",
                work("overwrite", Until::Operations(500), &|_| {}),
            ),
            step(
                "read",
                work("read-random", Until::Operations(3_000), &|_| {}),
            ),
            step(
                "missing",
                work("read-missing", Until::Operations(1_000), &|_| {}),
            ),
            step("walk", work("walk", Until::Operations(2_000), &|_| {})),
            step(
                "beside",
                work("overwrite", Until::Seconds(0.2), &|load| {
                    load.beside = Some(Beside {
                        kind: OperationKind::Read,
                        threads: 1,
                        rate: None,
                    });
                }),
            ),
            step(
                "delete",
                work("delete-random", Until::Operations(2_000), &|_| {}),
            ),
            step("idle", Act::Idle(0.1)),
        ],
        ..base.clone()
    };
    let phases = run_job(&Memory, &job, &()).unwrap();
    let told = |name: &str| {
        phases
            .iter()
            .find(|phase| phase.extra.get("step") == Some(&json!(name)))
    };
    assert_eq!(phases.len(), 8, "the load, and each step");
    for phase in &phases {
        assert!(phase.failure.is_none(), "{:?}", phase.failure);
    }
    for name in ["read", "missing"] {
        let step = told(name).unwrap();
        assert_eq!(
            step.extra["reads_verified"],
            json!(step.operations),
            "{name}"
        );
    }
    assert_eq!(told("walk").unwrap().operations, 2_000);
    let beside = told("beside").unwrap();
    assert!(beside.extra["readers_operations"].as_u64().unwrap() > 0);
    assert_eq!(told("delete").unwrap().live_keys, 0);
    assert!(told("idle").unwrap().seconds >= 0.1);

    // A lie in a step is found there, and no step follows.
    let lying = run_job(&Lying::new(Lie::LosesAKey), &job, &()).unwrap();
    let last = lying.last().unwrap();
    assert!(
        matches!(last.failure, Some(Error::WrongData { .. })),
        "{:?}",
        last.failure
    );
    assert!(lying.len() < 8);
}

#[test]
fn the_last_step_alone_may_insert() {
    let folder = tempfile::tempdir().unwrap();
    let base = job(&folder, "fill-random");
    let step = |name: &str, mix: Option<(OperationKind, u32)>, workload: &str| Step {
        name: name.to_string(),
        act: Act::Work(Box::new(Load {
            workload: workload.to_string(),
            mix: mix.map(|kind| vec![kind]),
            until: Until::Operations(300),
            ..base.load.clone()
        })),
    };
    let delete = step("delete", None, "delete-random");
    let insert = step("insert", Some((OperationKind::Insert, 100)), "mixed");
    let job = Job {
        steps: vec![delete.clone(), insert.clone()],
        ..base.clone()
    };
    let phases = run_job(&Memory, &job, &()).unwrap();
    assert!(phases.iter().all(|phase| phase.failure.is_none()));
    assert_eq!(phases[2].live_keys, phases[0].live_keys, "as many new ones");
    let error = check(&base.load, &[insert, delete], None).unwrap_err();
    assert!(error.to_string().contains("the last step alone"), "{error}");
}
