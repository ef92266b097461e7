//! What the ForestDB paper's experiments need of the driver: updates gathered in
//! batches, writers beside readers, scans of one length, key patterns, groups,
//! a compaction before the run.

use crate::load;
use kvzone_core::adapter::Adapter;
use kvzone_core::calibration::{Memory, Null};
use kvzone_core::driver::{PhaseResult, run_job};
use kvzone_core::error::Error;
use kvzone_core::job::{Beside, Job, KeySource, Load, Popularity, SizeChoice, Until};
use kvzone_core::key_patterns::{DataSet, KeyPattern};
use kvzone_core::workload::updates;

fn run(adapter: &dyn Adapter, load: Load) -> PhaseResult {
    let folder = tempfile::tempdir().unwrap();
    let job = Job::new("memory", folder.path(), load);
    let phases = run_job(adapter, &job, &()).unwrap();
    for phase in &phases {
        assert!(phase.failure.is_none(), "{:?}", phase.failure);
    }
    phases.into_iter().next_back().unwrap()
}

fn count(result: &PhaseResult, name: &str) -> u64 {
    result.extra[name].as_u64().unwrap()
}

#[test]
fn updates_between_reads_are_gathered_into_batches() {
    let mixed = |percent, least, most| Load {
        mix: Some(updates(percent)),
        batch: most,
        batch_least: Some(least),
        ..load("mixed")
    };
    let result = run(&Memory, mixed(20, 10, 100));
    assert_eq!(result.operations, 4_000, "reads and updates");
    let (reads, batches) = (count(&result, "calls_read"), count(&result, "calls_update"));
    assert!((3_000..3_400).contains(&reads), "{reads}");
    let updates = 4_000 - reads;
    let mean = updates as f64 / batches as f64;
    assert!((35.0..75.0).contains(&mean), "{mean} updates a batch");
    assert_eq!(result.user_bytes_written, updates * 116);
    assert_eq!(count(&result, "reads_verified"), reads);
    assert_eq!(result.extra["batch"], "10-100");
    // What reads return does not depend on the store, but on the batches.
    let hash = |load| run(&Memory, load).result_hash.unwrap();
    assert_eq!(hash(mixed(20, 10, 100)), result.result_hash.unwrap());
    assert_ne!(hash(mixed(20, 10, 100)), hash(mixed(50, 10, 100)));
    let only = |percent| run(&Memory, mixed(percent, 10, 100));
    assert_eq!(count(&only(0), "calls_read"), 4_000);
    assert!(!only(100).extra.contains_key("calls_read"));
}

#[test]
fn writers_write_beside_readers_and_count_apart() {
    let beside = |rate, threads| Load {
        threads,
        batch: 5,
        beside: Some(Beside {
            kind: kvzone_core::workload::OperationKind::Update,
            threads: 2,
            rate,
        }),
        until: Until::Operations(200_000),
        ..load("read-random")
    };
    for threads in [1, 3] {
        let result = run(&Memory, beside(None, threads));
        assert_eq!(result.operations, 200_000, "those of the readers");
        assert_eq!(count(&result, "calls_read"), 200_000);
        let written = count(&result, "writers_operations");
        assert!(written > 0);
        assert_eq!(result.user_bytes_written, written * 116);
        assert!(result.extra["writers_latency_ns"]["p50"].is_number());
        assert!(result.result_hash.is_none(), "who came first decides");
        assert_eq!(count(&result, "reads_verified"), 200_000);
    }
    // One update a second, the first at once: a run this short sees one batch.
    let slow = run(&Memory, beside(Some(1e-3), 1));
    let calls = count(&slow, "writers_calls");
    assert!(calls <= 2, "{calls}: the rate is kept");
    assert_eq!(slow.extra["writers_target_rate"], 1e-3);
}

#[test]
fn scans_have_the_length_that_is_asked_for() {
    let result = run(
        &Memory,
        Load {
            scan_entries: Some(SizeChoice::Fixed(70)),
            until: Until::Operations(300),
            ..load("scan-random")
        },
    );
    assert_eq!(result.operations, 300);
    let scanned = count(&result, "entries_scanned");
    assert!(
        (20_000..=21_000).contains(&scanned),
        "{scanned}: few meet the end"
    );
    assert!(result.result_hash.is_some());
}

#[test]
fn every_key_source_and_every_popularity_is_verified_in_reads_and_scans() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let lines: String = (0..2_000).map(|line| format!("/a/path/{line}\n")).collect();
    std::fs::write(&path, lines).unwrap();
    let pattern = |pattern: KeyPattern| (KeySource::Pattern(pattern), pattern.sizes());
    let mut sources = vec![
        pattern(KeyPattern::Random(20)),
        pattern(KeyPattern::Worst),
        pattern(KeyPattern::Small),
        pattern(KeyPattern::TwoLevel),
        (
            KeySource::Pattern(KeyPattern::TwoLevel),
            SizeChoice::Fixed(32),
        ),
        (KeySource::File(path), SizeChoice::Uniform(8, 13)),
    ];
    sources.extend(DataSet::ALL.map(|data| pattern(KeyPattern::Published(data))));
    let groups = Popularity::Groups {
        exponent: 1.0,
        groups: 50,
    };
    for (source, key_bytes) in sources {
        for workload in ["mixed", "scan-random", "ycsb-a", "delete-random"] {
            let load = Load {
                key_source: source.clone(),
                key_bytes,
                popularity: Some(groups),
                ..load(workload)
            };
            let result = run(&Memory, load);
            assert_eq!(result.operations, 4_000, "{source:?} {workload}");
        }
    }
}

#[test]
fn a_compaction_is_refused_where_a_store_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job {
        compact: true,
        ..Job::new("memory", folder.path(), load("read-random"))
    };
    for adapter in [&Memory as &dyn Adapter, &Null] {
        let outcome = run_job(adapter, &job, &());
        assert!(matches!(outcome, Err(Error::Unsupported { .. })));
    }
}
