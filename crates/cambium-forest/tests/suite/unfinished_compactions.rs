//! Compactions that do not end: one that began by itself and fails is told by the
//! statistics, else nothing but the file's growth would be seen of it; one that was
//! called gives way to a rollback.

use std::path::Path;
use std::time::Duration;

use crate::support::options;
use cambium_api::{CompactOptions, Durability, Engine, EngineKind, Error, StatisticValue};
use cambium_forest::Forest;
use cambium_io::Environment;
use cambium_io::simulated::SimulatedDisk;
use cambium_io::sync::schedule::Schedule;
use cambium_io::sync::scheduler;
use cambium_io::sync::thread;
use cambium_testkit::stores;

fn overwrite(store: &dyn Engine) {
    for round in 0..40u8 {
        let value = vec![round; 1000];
        store.put(b"key", &value, Durability::Written).unwrap();
    }
}

#[test]
fn what_the_background_cannot_compact_is_told() {
    let environment = Environment::memory();
    let tuning = [
        ("compaction_threshold", "30"),
        ("compaction_least_bytes", "1000"),
        ("compaction_snapshots", "refuse"),
        ("preallocate_bytes", "4096"),
        ("segment_bytes", "16KiB"),
    ];
    let store = stores::create(&Forest, &environment, &options(&tuning));
    overwrite(&*store);
    store.create_named_snapshot("monday").unwrap();
    assert_eq!(store.stats().unwrap().number("failed_compactions"), Some(0));

    // It looks first what the snapshot keeps.
    let refusal = (0..100).find_map(|_| store.step(1 << 20).err());
    let refusal = refusal.unwrap().to_string();
    assert!(refusal.contains("monday"), "{refusal}");
    let stats = store.stats().unwrap();
    assert_eq!(stats.number("failed_compactions"), Some(1));
    let mut entries = stats.entries.iter();
    let why = entries.find(|entry| entry.name == "last_failed_compaction");
    assert_eq!(
        why.map(|entry| &entry.value),
        Some(&StatisticValue::Text(refusal))
    );

    // With the cause gone the next attempt counts nothing more.
    store.drop_named_snapshot("monday").unwrap();
    store.compact(&Default::default(), &()).unwrap();
    let stats = store.stats().unwrap();
    assert_eq!(stats.number("failed_compactions"), Some(1));
    assert_eq!(stats.number("compactions"), Some(1));
}

/// A rollback while a compaction runs whose rate makes it last hours. The seed decides
/// which thread goes on; the clock of the simulation advances while all of them sleep.
fn roll_back_beside_a_compaction(seed: u64) {
    let disk = SimulatedDisk::new(seed);
    let environment = Environment::simulated(&disk, seed);
    let path = Path::new("/store");
    let tuning = [("compaction_threshold", "100"), ("preallocate_bytes", "0")];
    let store = Forest
        .create(&environment, path, &options(&tuning))
        .unwrap();
    for key in 0..200u64 {
        let value = vec![1; 1000];
        store
            .put(&key.to_be_bytes(), &value, Durability::Written)
            .unwrap();
    }
    store.create_named_snapshot("monday").unwrap();
    store.put(b"later", b"gone", Durability::Written).unwrap();

    let slow = CompactOptions {
        settings: options(&[("compaction_rate_bytes", "16")]),
        ..CompactOptions::default()
    };
    let files = || environment.file_system.list(path).unwrap().len();
    let before = files();
    let compacted = store.clone();
    let compaction = thread::spawn(move || compacted.compact(&slow, &()));
    while files() == before {
        thread::yield_now();
    }
    let began = environment.clock.monotonic();
    store.rollback("monday").unwrap();
    let waited = environment.clock.monotonic() - began;
    assert!(waited < Duration::from_secs(60), "{waited:?}");
    let outcome = compaction.join().unwrap();
    assert!(matches!(outcome, Err(Error::Cancelled)), "{outcome:?}");
    assert_eq!(store.get(b"later").unwrap(), None);
    assert_eq!(files(), before, "nothing of the new file stays");
    // A name that is not there cancels nothing, and the next compaction goes on.
    assert!(store.rollback("tuesday").is_err());
    store.compact(&CompactOptions::default(), &()).unwrap();
}

#[test]
fn a_rollback_does_not_wait_for_a_compaction_that_was_called() {
    for seed in 0..40 {
        let run = scheduler::run(Schedule::random(seed), move || {
            roll_back_beside_a_compaction(seed);
        });
        run.outcome
            .unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}
