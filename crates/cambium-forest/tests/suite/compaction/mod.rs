//! Compaction of `forest`, held against a model: every combination of options,
//! cancelled, failed and crashed everywhere, with writers and snapshots active.

mod by_itself;
mod stopped;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{Model, SMALL_NODES, contents, options};
use cambium_api::{
    CompactOptions, CompactReport, Durability, Engine, EngineKind, Error, Progress, ProgressSink,
};
use cambium_forest::Forest;
use cambium_io::simulated::{
    CrashStyle, ErrorNumber, Fault, FaultRule, Moment, OperationClass, ProbePoints, SimulatedDisk,
};
use cambium_io::{BackgroundLimits, Environment, ReadBackend, StepOutcome};
use cambium_testkit::stores::{self, threaded};

const PATH: &str = "/store";

/// So small that a store of some kilobytes is many windows and many nodes.
const TUNING: [(&str, &str); 6] = [
    ("write_buffer_entries", "50"),
    ("preallocate_bytes", "4096"),
    ("compaction_threshold", "100"),
    ("compaction_memory_bytes", "8192"),
    ("cache_bytes", "8192"),
    ("segment_bytes", "16KiB"),
];

fn create(environment: &Environment) -> Arc<dyn Engine> {
    let options = stores::options(&[&TUNING, &SMALL_NODES]);
    stores::create(&Forest, environment, &options)
}

fn open(environment: &Environment) -> Arc<dyn Engine> {
    stores::open(&Forest, environment, &options(&TUNING))
}

/// Puts some of the keys of a numbered round, deletes others.
fn change(store: &dyn Engine, model: &mut Model, round: u32) {
    for number in 0..60u32 {
        let at = (number * 7 + round * 13) % 90;
        let key = format!("key {at:03}").into_bytes();
        if (number + round) % 9 == 0 {
            store.delete(&key, Durability::Buffered).unwrap();
            model.remove(&key);
        } else {
            let bytes = [0, 10, 100, 700, 2000][(at as usize + round as usize) % 5];
            let mut value = vec![round as u8; bytes];
            value.extend_from_slice(&at.to_be_bytes());
            store.put(&key, &value, Durability::Buffered).unwrap();
            model.insert(key, value);
        }
    }
}

/// A store of which much is stale, and what is in it.
fn filled(environment: &Environment) -> (Arc<dyn Engine>, Model) {
    let store = create(environment);
    let mut model = Model::new();
    for round in 0..4 {
        change(&*store, &mut model, round);
    }
    (store, model)
}

fn compact(store: &dyn Engine, pairs: &[(&str, &str)]) -> Result<CompactReport, Error> {
    let call = CompactOptions {
        settings: options(pairs),
        ..CompactOptions::default()
    };
    store.compact(&call, &())
}

fn database_files(environment: &Environment) -> usize {
    let names = environment.file_system.list(Path::new(PATH)).unwrap();
    let ours = names.iter().filter(|entry| {
        let name = entry.name.to_string_lossy();
        name.ends_with(".forest")
    });
    ours.count()
}

#[test]
fn every_combination_of_options_carries_over_the_same() {
    for sort in ["auto", "deal", "none", "window", "global"] {
        for overlap in ["on", "off"] {
            for coalesce in ["0", "1000", "256KiB"] {
                for (backend, batch, direct) in [
                    (ReadBackend::Sync, 1, false),
                    (ReadBackend::Aio, 1024, true),
                    (ReadBackend::IoUring, 7, true),
                    (ReadBackend::IoUring, 128, false),
                ] {
                    let disk = SimulatedDisk::new(1);
                    let environment = Environment::simulated(&disk, 1);
                    let (store, model) = filled(&environment);
                    let call = CompactOptions {
                        backend: Some(backend),
                        batch: Some(batch),
                        direct,
                        settings: options(&[
                            ("sort", sort),
                            ("overlap", overlap),
                            ("coalesce_bytes", coalesce),
                        ]),
                    };
                    let what = format!("{sort} {overlap} {coalesce} {call:?}");
                    let report = store
                        .compact(&call, &())
                        .unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert_eq!(report.documents, model.len() as u64, "{what}");
                    assert_eq!(report.batch, batch, "{what}");
                    assert_eq!(report.direct, direct, "{what}");
                    assert!(report.read_operations > 0 && report.bytes_read > 0);
                    if coalesce == "0" && sort != "deal" {
                        assert_eq!(report.read_operations, report.documents, "{what}");
                    }
                    assert_eq!(contents(&*store), model, "{what}");
                    assert!(store.check(&()).unwrap().is_sound(), "{what}");
                    assert_eq!(database_files(&environment), 1, "{what}");
                    drop(store);
                    assert_eq!(contents(&*open(&environment)), model, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_store_on_a_real_disk_is_compacted_by_every_back_end() {
    let folder = tempfile::tempdir().unwrap();
    for (number, backend) in [ReadBackend::Sync, ReadBackend::Aio, ReadBackend::IoUring]
        .into_iter()
        .enumerate()
    {
        for direct in [false, true] {
            let path = folder.path().join(format!("{number}{direct}"));
            let store = Forest
                .create(&Environment::real(), &path, &options(&TUNING))
                .unwrap();
            let mut model = Model::new();
            for round in 0..4 {
                change(&*store, &mut model, round);
            }
            let call = CompactOptions {
                backend: Some(backend),
                direct,
                settings: options(&[("compaction_memory_bytes", "64KiB")]),
                ..CompactOptions::default()
            };
            match store.compact(&call, &()) {
                // A file system in memory has no direct I/O.
                Err(Error::Io { operation, .. }) if direct && operation.contains("direct") => {
                    println!("skipped: {operation}");
                }
                done => assert_eq!(done.unwrap().documents, model.len() as u64),
            }
            assert_eq!(contents(&*store), model, "{backend} direct {direct}");
            store.close().unwrap();
        }
    }
}

#[test]
fn documents_lie_in_key_order_afterwards() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let (store, _) = filled(&environment);
    compact(&*store, &[]).unwrap();
    let key_order = [
        ("sort", "none"),
        ("coalesce_bytes", "64KiB"),
        ("compaction_memory_bytes", "1MiB"),
    ];
    let report = compact(&*store, &key_order).unwrap();
    // In key order every window is one run of documents and of the nodes between.
    assert!(
        report.read_operations * 3 < report.documents,
        "{} reads of {} documents",
        report.read_operations,
        report.documents
    );
}

#[test]
fn what_makes_no_sense_to_a_compaction_is_refused() {
    let (store, model) = filled(&Environment::memory());
    for (name, value) in [
        ("sort", "sideways"),
        ("compaction_snapshots", "lose"),
        ("overlap", "maybe"),
        ("compaction_memory_bytes", "1"),
        ("node_bytes", "4096"),
        ("cache_bytes", "0"),
        ("unheard_of", "1"),
    ] {
        let refused = compact(&*store, &[(name, value)]);
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(name), "{message}");
    }
    let call = CompactOptions {
        batch: Some(1025),
        ..CompactOptions::default()
    };
    assert!(store.compact(&call, &()).is_err());
    let refused = compact(
        &*store,
        &[("sort", "global"), ("compaction_memory_bytes", "4096")],
    );
    assert!(refused.is_ok(), "90 documents are 720 bytes");
    assert_eq!(contents(&*store), model);
}

#[test]
fn named_snapshots_are_carried_over_or_refused() {
    let (store, mut model) = filled(&Environment::memory());
    store.create_named_snapshot("kept").unwrap();
    let kept = model.clone();
    change(&*store, &mut model, 9);
    let refused = compact(&*store, &[("compaction_snapshots", "refuse")]);
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("kept"), "{message}");
    let report = compact(&*store, &[]).unwrap();
    let both = model
        .iter()
        .filter(|entry| kept.get(entry.0) == Some(entry.1));
    let distinct = model.len() + kept.len() - both.count();
    assert!(report.documents >= distinct as u64);
    assert_eq!(contents(&*store), model);
    store.rollback("kept").unwrap();
    assert_eq!(contents(&*store), kept);
}

/// Counts reports, and at one of them does something.
struct At<F: Fn() + Send + Sync> {
    number: u64,
    seen: AtomicU64,
    act: F,
}

impl<F: Fn() + Send + Sync> ProgressSink for At<F> {
    fn report(&self, _: Progress) {
        if self.seen.fetch_add(1, Ordering::Relaxed) == self.number {
            (self.act)();
        }
    }
}

#[test]
fn named_snapshots_may_come_and_go_while_it_compacts() {
    for number in 0.. {
        let (store, mut model) = filled(&Environment::memory());
        store.create_named_snapshot("before").unwrap();
        let before = model.clone();
        change(&*store, &mut model, 3);
        let keeper = store.clone();
        let sink = At {
            number,
            seen: AtomicU64::new(0),
            act: move || {
                keeper.create_named_snapshot("meanwhile").unwrap();
                if number % 2 == 0 {
                    keeper.drop_named_snapshot("before").unwrap();
                }
            },
        };
        store.compact(&CompactOptions::default(), &sink).unwrap();
        if sink.seen.load(Ordering::Relaxed) <= number {
            break;
        }
        let kept = model.clone();
        change(&*store, &mut model, 9);
        store.rollback("meanwhile").unwrap();
        assert_eq!(contents(&*store), kept);
        if number % 2 == 1 {
            store.rollback("before").unwrap();
            assert_eq!(contents(&*store), before);
        }
        assert!(store.check(&()).unwrap().is_sound());
    }
}

#[test]
fn two_at_once_and_writers_beside_them_lose_nothing() {
    let environment = threaded();
    let (store, mut model) = filled(&environment);
    let snapshot = store.snapshot().unwrap();
    let before = model.clone();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let report = compact(&*store, &[]).unwrap();
                    assert!(report.documents > 0);
                }
            });
        }
        for round in 10..40 {
            change(&*store, &mut model, round);
        }
    });
    assert_eq!(contents(&*store), model);
    assert_eq!(contents(&*snapshot), before);
    assert!(store.check(&()).unwrap().is_sound());
    assert_eq!(store.stats().unwrap().number("compactions"), Some(10));
    store.close().unwrap();
}
