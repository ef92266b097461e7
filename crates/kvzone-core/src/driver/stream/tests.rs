//! What a stream of operations holds to, drawn many times.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::job::tests::load;
use crate::workload::{self, FillOrder};

fn keys() -> KeySpace {
    KeySpace::new(&load("ycsb-d"), FillOrder::Random, Some(10_000)).unwrap()
}

fn plan<'a>(keys: &'a KeySpace, name: &str, threads: u64, seed: u64) -> StreamPlan<'a> {
    let workload = workload::find(name).unwrap();
    StreamPlan {
        keys,
        mix: &workload.mix,
        popularity: workload.popularity,
        seed,
        threads,
        operations: Some(if workload.mix.is_empty() {
            1_000
        } else {
            5_000
        }),
        span: SCAN_ENTRIES,
        scans: SCAN_SIZES,
        missing: if name == "read-missing" { 1_000 } else { 0 },
        lifetime: None,
    }
}

fn all(mut stream: Stream<'_>, most: usize) -> Vec<(OperationKind, u64, u32, Vec<u8>)> {
    let mut found = Vec::new();
    let mut block = Block::default();
    loop {
        stream.draw(&mut block, most).unwrap();
        if block.operations.is_empty() {
            return found;
        }
        found.extend(block.operations.iter().map(|operation| {
            let key = block.key(operation).to_vec();
            (operation.kind, operation.number, operation.span, key)
        }));
    }
}

#[test]
fn a_seed_gives_one_stream_whatever_the_blocks() {
    let keys = keys();
    for workload in workload::all() {
        let stream = |seed| Stream::new(plan(&keys, &workload.name, 2, seed), 1, 1);
        let first = all(stream(5), 256);
        assert_eq!(first, all(stream(5), 7), "{}", workload.name);
        let walks = workload.mix.iter().any(|(kind, _)| kind.walks());
        let is_ordered = matches!(workload.popularity, Popularity::Sequential) || walks;
        if !is_ordered && !workload.mix.is_empty() {
            assert_ne!(first, all(stream(6), 256), "{}", workload.name);
        }
    }
}

#[test]
fn threads_differ_and_share_the_operations_out() {
    let keys = keys();
    for name in ["overwrite", "read-random", "ycsb-a"] {
        let of = |thread| all(Stream::new(plan(&keys, name, 3, 5), 1, thread), 256);
        assert_eq!(
            [0, 1, 2].map(|thread| of(thread).len()),
            [1_667, 1_667, 1_666]
        );
        assert_ne!(of(0)[..1_000], of(1)[..1_000]);
    }
}

#[test]
fn a_load_puts_every_key_once() {
    let keys = keys();
    for threads in [1, 3] {
        let mut numbers = Vec::new();
        for thread in 0..threads {
            let stream = Stream::new(plan(&keys, "fill-random", threads, 5), 0, thread);
            numbers.extend(all(stream, 64).into_iter().map(|operation| operation.1));
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..1_000).collect::<Vec<u64>>());
    }
}

#[test]
fn a_key_has_one_writer() {
    let keys = keys();
    for popularity in [
        Popularity::Uniform,
        Popularity::Zipfian(0.99),
        Popularity::YcsbZipfian,
        Popularity::Latest,
        Popularity::Sequential,
        Popularity::Groups {
            exponent: 1.0,
            groups: 10,
        },
        Popularity::HotSet {
            keys: 0.1,
            choices: 0.9,
        },
    ] {
        let mixes = [
            "overwrite",
            "ycsb-f",
            "delete-random",
            "ycsb-d",
            "churn",
            "twitter-14",
        ];
        for name in mixes {
            let mut writers = BTreeSet::new();
            for thread in 0..3 {
                let plan = StreamPlan {
                    popularity,
                    ..plan(&keys, name, 3, 5)
                };
                let written: BTreeSet<u64> = all(Stream::new(plan, 1, thread), 64)
                    .into_iter()
                    .filter(|operation| operation.0.writes())
                    .map(|operation| operation.1)
                    .collect();
                assert!(!written.is_empty());
                for number in written {
                    assert!(writers.insert(number), "{name}, {popularity:?}: {number}");
                }
            }
        }
    }
}

#[test]
fn weights_of_a_mix_are_kept() {
    let keys = keys();
    let operations = all(Stream::new(plan(&keys, "ycsb-d", 1, 5), 1, 0), 256);
    let inserts = operations
        .iter()
        .filter(|operation| operation.0 == OperationKind::Insert)
        .count();
    assert!((200..300).contains(&inserts), "{inserts} of 5000");
}

#[test]
fn deletions_meet_every_key_once_before_any_twice() {
    let keys = keys();
    let plan = StreamPlan {
        operations: Some(1_000),
        ..plan(&keys, "delete-random", 3, 5)
    };
    let deleted: BTreeSet<u64> = (0..3)
        .flat_map(|thread| all(Stream::new(plan.clone(), 1, thread), 64))
        .map(|operation| operation.1)
        .collect();
    assert_eq!(deleted.len(), 1_000);
}

#[test]
fn a_churn_deletes_and_reads_what_is_there_and_inserts_what_is_not() {
    let keys = keys();
    for (thread, name) in [(0, "churn"), (2, "churn-read")] {
        let plan = StreamPlan {
            operations: Some(15_000),
            ..plan(&keys, name, 3, 5)
        };
        let mut there: BTreeSet<u64> = (thread..1_000).step_by(3).collect();
        let mut later_deleted = 0;
        for (kind, number, ..) in all(Stream::new(plan, 1, thread), 64) {
            match kind {
                OperationKind::Insert => assert!(there.insert(number), "{number}"),
                OperationKind::Delete => {
                    assert!(there.remove(&number), "{number}");
                    later_deleted += u32::from(number >= 1_000);
                }
                _ => assert!(there.contains(&number), "{number}"),
            }
        }
        assert!(later_deleted > 100, "{later_deleted}");
    }
}

#[test]
fn keys_live_as_long_as_they_should() {
    let keys = keys();
    for lifetime in [SizeChoice::Fixed(50), SizeChoice::Uniform(20, 80)] {
        let plan = StreamPlan {
            operations: Some(9_000),
            lifetime: Some(lifetime),
            ..plan(&keys, "churn-read", 1, 5)
        };
        let mut there: BTreeSet<u64> = (0..1_000).collect();
        let (mut inserts, mut ages, mut born) = (0_u64, Vec::new(), BTreeMap::new());
        for (kind, number, ..) in all(Stream::new(plan, 1, 0), 64) {
            match kind {
                OperationKind::Insert => {
                    assert!(there.insert(number), "{number}");
                    born.insert(number, inserts);
                    inserts += 1;
                }
                OperationKind::Delete => {
                    assert!(there.remove(&number), "{number}");
                    ages.extend(born.get(&number).map(|born| inserts - born));
                }
                _ => assert!(there.contains(&number), "{number}"),
            }
        }
        assert!(ages.len() > 500, "{}", ages.len());
        let mean = ages.iter().sum::<u64>() as f64 / ages.len() as f64;
        // Deletes keep step with inserts only in the mean, so a key may have
        // to wait for its turn; none goes early while loaded keys are there.
        assert!(ages.iter().all(|&age| age >= lifetime.smallest()));
        assert!((50.0..150.0).contains(&mean), "{lifetime:?}: {mean}");
    }
}

#[test]
fn the_latest_are_read_once_they_are_there_and_not_before() {
    let keys = keys();
    let mut newest = 999;
    let mut young = 0;
    let operations = all(Stream::new(plan(&keys, "ycsb-d", 1, 5), 1, 0), 256);
    for (kind, number, ..) in &operations {
        if *kind == OperationKind::Insert {
            assert_eq!(*number, newest + 1);
            newest += 1;
        } else {
            assert!(*number <= newest);
            young += u32::from(newest - number < 10);
        }
    }
    assert!(young > 1_500, "{young} reads of the ten latest");
}

#[test]
fn reading_in_order_visits_every_place_once_in_order() {
    let keys = keys();
    for (threads, span) in [(1, SCAN_ENTRIES), (3, SCAN_ENTRIES), (2, 1)] {
        let plan = StreamPlan {
            operations: Some(1_000),
            span,
            ..plan(&keys, "read-sequential", threads, 5)
        };
        let mut places = Vec::new();
        for thread in 0..threads {
            for (_, number, span, _) in all(Stream::new(plan.clone(), 1, thread), 64) {
                let place = keys.place_of(number);
                places.extend(place..place + u64::from(span));
            }
        }
        places.sort_unstable();
        places.dedup();
        assert!(places.len() >= 990, "{} of 1000 places", places.len());
    }
}

#[test]
fn used_up_keys_are_an_error() {
    let keys = KeySpace::new(&load("ycsb-d"), FillOrder::Random, Some(10)).unwrap();
    let mut stream = Stream::new(plan(&keys, "ycsb-d", 1, 5), 1, 0);
    let mut block = Block::default();
    assert!(stream.draw(&mut block, 5_000).is_err());
}
