//! Compaction of `forest`, held against a model: every combination of options,
//! cancelled, failed and crashed everywhere, with writers and snapshots active.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cambium_api::{
    CompactOptions, CompactReport, Durability, Engine, EngineKind, Error, Progress, ProgressSink,
};
use cambium_forest::Forest;
use cambium_io::simulated::{
    CrashStyle, ErrorNumber, Fault, FaultRule, Moment, OperationClass, ProbePoints, SimulatedDisk,
};
use cambium_io::{BackgroundLimits, Environment, ReadBackend, StepOutcome};
use support::{Model, contents, options};

const PATH: &str = "/store";

/// So small that a store of some kilobytes is many windows and many nodes.
const TUNING: [(&str, &str); 5] = [
    ("write_buffer_entries", "50"),
    ("preallocate_bytes", "4096"),
    ("compaction_threshold", "100"),
    ("compaction_memory_bytes", "8192"),
    ("cache_bytes", "8192"),
];

fn create(environment: &Environment) -> Arc<dyn Engine> {
    let mut all = TUNING.to_vec();
    all.extend([("node_bytes", "512"), ("block_bytes", "512")]);
    let path = Path::new(PATH);
    Forest.create(environment, path, &options(&all)).unwrap()
}

fn open(environment: &Environment) -> Arc<dyn Engine> {
    let path = Path::new(PATH);
    Forest
        .open(environment, path, &options(&TUNING), &())
        .unwrap()
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
fn a_compaction_can_be_cancelled_at_every_step() {
    let mut cancelled = 0;
    for overlap in ["on", "off"] {
        for number in 0.. {
            let disk = SimulatedDisk::new(1);
            let environment = Environment::simulated(&disk, 1);
            let (store, model) = filled(&environment);
            let call = CompactOptions {
                settings: options(&[("overlap", overlap)]),
                ..CompactOptions::default()
            };
            let canceller = store.clone();
            let sink = At {
                number,
                seen: AtomicU64::new(0),
                act: move || canceller.cancel(),
            };
            let outcome = store.compact(&call, &sink);
            let ended = sink.seen.load(Ordering::Relaxed) <= number;
            assert_eq!(contents(&*store), model);
            assert_eq!(database_files(&environment), 1);
            if ended {
                outcome.unwrap();
                break;
            }
            // A step later it looks; a compaction that was done by then is done.
            if let Err(error) = outcome {
                assert!(matches!(error, Error::Cancelled), "{error}");
                cancelled += 1;
            }
            compact(&*store, &[]).unwrap();
            assert_eq!(contents(&*store), model);
        }
    }
    assert!(cancelled > 20, "only {cancelled} steps were cancelled");
}

#[test]
fn a_disk_with_too_little_room_is_refused_or_left_as_it_was() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let (store, model) = filled(&environment);
    store.close().unwrap();
    drop(store);
    let needs = {
        let fork = disk.fork();
        let store = open(&Environment::simulated(&fork, 1));
        store
            .stats()
            .unwrap()
            .number("compaction_needs_bytes")
            .unwrap()
    };
    let (mut refused, mut full, mut done) = (0, 0, 0);
    for room in (0..needs * 3 / 2).step_by(1024) {
        let disk = disk.fork();
        let environment = Environment::simulated(&disk, 1);
        let store = open(&environment);
        disk.set_capacity(Some(disk.used_bytes() + room));
        match compact(&*store, &[]) {
            Ok(_) => done += 1,
            Err(error) => {
                assert!(error.is_no_space(), "{room}: {error}");
                assert!(room < needs * 5 / 4, "{room} of {needs}: {error}");
                if error.to_string().contains("are free") {
                    refused += 1;
                } else {
                    full += 1;
                }
            }
        }
        assert_eq!(contents(&*store), model);
        disk.set_capacity(None);
        store.put(b"new", b"value", Durability::Synced).unwrap();
        compact(&*store, &[]).unwrap();
        assert_eq!(contents(&*store).len(), model.len() + 1);
        assert_eq!(database_files(&environment), 1);
    }
    println!("{refused} refused, {full} found the disk full, {done} done");
    assert!(refused > 5 && done > 5, "{refused} {done}");
}

/// The room that was there at the beginning is taken by others at some moment.
#[test]
fn a_disk_that_is_filled_by_others_meanwhile_loses_nothing() {
    let mut failed = 0;
    for number in 0..60 {
        let disk = SimulatedDisk::new(1);
        let environment = Environment::simulated(&disk, 1);
        let (store, model) = filled(&environment);
        let full = disk.clone();
        let sink = At {
            number,
            seen: AtomicU64::new(0),
            act: move || full.set_capacity(Some(full.used_bytes())),
        };
        match store.compact(&CompactOptions::default(), &sink) {
            Ok(_) => {}
            Err(error) => {
                assert!(error.is_no_space(), "{error}");
                failed += 1;
            }
        }
        assert_eq!(contents(&*store), model);
        disk.set_capacity(None);
        compact(&*store, &[]).unwrap();
        assert_eq!(contents(&*store), model);
        assert_eq!(database_files(&environment), 1);
    }
    assert!(failed > 5, "{failed}");
}

#[test]
fn an_error_of_any_operation_stops_it_and_loses_nothing() {
    for class in [
        OperationClass::Read,
        OperationClass::Write,
        OperationClass::Sync,
        OperationClass::Allocate,
        OperationClass::Name,
    ] {
        let (mut failures, mut poisoned) = (0, 0);
        for nth in 1.. {
            let disk = SimulatedDisk::new(1);
            let environment = Environment::simulated(&disk, 1);
            let (store, mut model) = filled(&environment);
            store.sync().unwrap();
            disk.inject(FaultRule {
                class,
                nth,
                // Space that cannot be taken ahead is taken as it is needed.
                forever: class == OperationClass::Allocate,
                fault: Fault::Error(ErrorNumber::InputOutput),
            });
            let outcome = compact(&*store, &[]);
            disk.clear_faults();
            // Reads go on whatever happened; writes unless the store is poisoned.
            assert_eq!(contents(&*store), model, "{class:?} {nth}");
            match store.put(b"after", b"value", Durability::Written) {
                Ok(_) => _ = model.insert(b"after".to_vec(), b"value".to_vec()),
                Err(_) => poisoned += 1,
            }
            drop(store);
            let store = open(&environment);
            assert_eq!(contents(&*store), model, "{class:?} {nth}");
            assert_eq!(database_files(&environment), 1, "{class:?} {nth}");
            match outcome {
                Ok(_) if nth > 200 || failures > 0 && nth > 2 * failures + 20 => break,
                Ok(_) => {}
                Err(_) => failures += 1,
            }
        }
        println!("{class:?}: {failures} stopped it, {poisoned} stopped writes");
        assert!(failures > 0, "{class:?}");
        if class == OperationClass::Read {
            assert_eq!(poisoned, 0, "a read that fails stops no writes");
        }
    }
}

/// Writers and a snapshot between all steps; a crash image before and after
/// every sync and before every change of names.
#[test]
fn a_crash_at_any_sync_with_writers_and_snapshots_leaves_either_file() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let mut all = TUNING.to_vec();
    all[2] = ("compaction_threshold", "1");
    all.extend([("node_bytes", "512"), ("block_bytes", "512")]);
    all.push(("compaction_least_bytes", "20000"));
    let store = Forest
        .create(&environment, Path::new(PATH), &options(&all))
        .unwrap();
    let mut model = Model::new();
    let points = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = points.clone();
    disk.set_crash_probe(ProbePoints::Operations, move |point| {
        if point.moment != Moment::BeforeOperation || point.operation % 3 == 0 {
            seen.lock().unwrap().push(point.disk);
        }
    });
    let mut snapshots = Vec::new();
    let mut images = 0;
    let mut states: Vec<Model> = vec![model.clone()];
    for round in 0..6 {
        change(&*store, &mut model, round);
        store.sync().unwrap();
        states = vec![model.clone()];
        points.lock().unwrap().clear();
        snapshots.push((store.snapshot().unwrap(), model.clone()));
        for step in 0..400u32 {
            if store.step(2000).unwrap() != StepOutcome::Again {
                break;
            }
            if step % 5 == 0 {
                let key = format!("key {:03}", step % 90).into_bytes();
                let value = format!("step {round} {step}").into_bytes();
                let durability = [Durability::Written, Durability::Synced][step as usize / 5 % 2];
                store.put(&key, &value, durability).unwrap();
                model.insert(key, value);
                states.push(model.clone());
            }
            for image in points.lock().unwrap().drain(..) {
                images += 1;
                let style = CrashStyle::ALL[images % CrashStyle::ALL.len()];
                let image = image.crash(style, images as u64);
                let environment = Environment::simulated(&image, 7);
                let again = open(&environment);
                let found = contents(&*again);
                assert!(
                    states.contains(&found),
                    "round {round}, step {step}, {style:?}: {} entries are no state",
                    found.len()
                );
                assert_eq!(database_files(&environment), 1);
            }
        }
        for (snapshot, state) in &snapshots {
            assert_eq!(contents(&**snapshot), *state, "round {round}");
        }
        assert_eq!(contents(&*store), model);
    }
    let compactions = store.stats().unwrap().number("compactions").unwrap();
    assert!(compactions >= 3 && images > 250, "{compactions} {images}");
}

#[test]
fn two_at_once_and_writers_beside_them_lose_nothing() {
    let environment = Environment {
        executor: Environment::real().executor,
        ..Environment::memory()
    };
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

#[test]
fn a_store_keeps_the_threshold_it_was_made_with() {
    let environment = Environment::memory();
    let compacts = |tuning: &[(&str, &str)]| {
        let store = Forest
            .open(&environment, Path::new(PATH), &options(tuning), &())
            .unwrap();
        for _ in 0..40 {
            store.put(b"key", &[7; 1000], Durability::Written).unwrap();
        }
        // What is in the buffer counts as live.
        store.create_named_snapshot("flushes").unwrap();
        store.drop_named_snapshot("flushes").unwrap();
        while store.step(1 << 20).unwrap() == StepOutcome::Again {}
        let compactions = store.stats().unwrap().number("compactions").unwrap();
        store.close().unwrap();
        compactions
    };
    drop(create(&environment));
    let least = ("compaction_least_bytes", "1000");
    assert_eq!(compacts(&[least]), 0, "made with 100: never by itself");
    assert!(compacts(&[least, ("compaction_threshold", "30")]) > 0);
    assert_eq!(compacts(&[least]), 0);
}

#[test]
fn stores_of_one_environment_take_turns() {
    let environment = Environment {
        background: BackgroundLimits::new(1, 0),
        ..Environment::memory()
    };
    let mut tuning = TUNING.to_vec();
    tuning[2] = ("compaction_threshold", "10");
    tuning.push(("compaction_least_bytes", "1000"));
    let stores: Vec<Arc<dyn Engine>> = ["/one", "/two"]
        .map(|path| {
            let made = Forest.create(&environment, Path::new(path), &options(&tuning));
            let store = made.unwrap();
            let mut model = Model::new();
            for round in 0..4 {
                change(&*store, &mut model, round);
            }
            store
        })
        .into();
    let compacting = |store: &dyn Engine| store.stats().unwrap().number("compactions").unwrap();
    // The first begins and is not done; the second finds no turn.
    while stores[0].step(100).unwrap() == StepOutcome::Again
        && environment.background.begin().is_some()
    {}
    assert_eq!(compacting(&*stores[0]), 0);
    while stores[1].step(100).unwrap() == StepOutcome::Again {}
    assert_eq!(compacting(&*stores[1]), 0);
    while stores[0].step(100).unwrap() == StepOutcome::Again {}
    assert_eq!(compacting(&*stores[0]), 1);
    while stores[1].step(100).unwrap() == StepOutcome::Again {}
    assert_eq!(compacting(&*stores[1]), 1);
}

/// Overwriting for ten times the size of the data, a step of the background for
/// each few writes: both files together stay bounded, and do not grow.
#[test]
fn steady_overwriting_takes_bounded_space() {
    const KEYS: u64 = 8_000;
    let environment = Environment::memory();
    let tuning = [
        ("write_buffer_entries", "2000"),
        ("preallocate_bytes", "256KiB"),
        ("compaction_least_bytes", "1MiB"),
    ];
    let path = Path::new(PATH);
    let store = Forest
        .create(&environment, path, &options(&tuning))
        .unwrap();
    let value = |number: u64| vec![number as u8; 4000];
    for key in 0..KEYS {
        let bytes = value(key);
        store
            .put(&key.to_be_bytes(), &bytes, Durability::Written)
            .unwrap();
    }
    let live = store.stats().unwrap().number("file_bytes").unwrap() as f64;
    let space = || -> (usize, f64) {
        let files = environment.file_system.list(path).unwrap();
        let bytes: u64 = files
            .iter()
            .filter_map(|entry| {
                environment
                    .file_system
                    .metadata(&path.join(&entry.name))
                    .unwrap()
            })
            .map(|metadata| metadata.length)
            .sum();
        (database_files(&environment), bytes as f64 / live)
    };
    let mut peaks = Vec::new();
    let mut number = 0u64;
    for _ in 0..10 {
        let (mut between, mut peak) = (0f64, 0f64);
        for write in 0..KEYS {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let key = (number >> 33) % KEYS;
            let bytes = value(number);
            store
                .put(&key.to_be_bytes(), &bytes, Durability::Written)
                .unwrap();
            if write % 8 == 0 {
                // 32 KB were written: as fast a device as that of the writers,
                // eight times over.
                store.step(256 << 10).unwrap();
                let (files, amplification) = space();
                peak = peak.max(amplification);
                if files == 1 {
                    between = between.max(amplification);
                }
            }
        }
        peaks.push((between, peak));
    }
    let compactions = store.stats().unwrap().number("compactions").unwrap();
    println!("{compactions} compactions, between and peak: {peaks:.2?}");
    assert!(compactions >= 10, "{compactions}");
    for (between, peak) in &peaks {
        assert!(*between <= 1.6 && *peak <= 2.8, "{peaks:.2?}");
    }
    let first = peaks[1].1.max(peaks[2].1);
    assert!(peaks[9].1 <= first + 0.15, "it grows: {peaks:.2?}");
}
