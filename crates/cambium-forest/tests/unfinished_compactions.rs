//! Compactions that do not end: one that began by itself and fails is told by the
//! statistics, else nothing but the file's growth would be seen of it; one that was
//! called gives way to a rollback.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

#[allow(dead_code)] // this file uses a part
mod support;

use std::path::Path;

use cambium_api::{CompactOptions, Durability, Engine, EngineKind, Error, StatisticValue};
use cambium_forest::Forest;
use cambium_io::Environment;
use support::options;

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
    ];
    let store = Forest
        .create(&environment, Path::new("/store"), &options(&tuning))
        .unwrap();
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

#[test]
fn a_rollback_does_not_wait_for_a_compaction_that_was_called() {
    let environment = Environment::memory();
    let path = Path::new("/store");
    let tuning = [("compaction_threshold", "100")];
    let store = Forest
        .create(&environment, path, &options(&tuning))
        .unwrap();
    for key in 0..2_000u64 {
        let value = vec![1; 1000];
        store
            .put(&key.to_be_bytes(), &value, Durability::Written)
            .unwrap();
    }
    store.create_named_snapshot("monday").unwrap();
    store.put(b"later", b"gone", Durability::Written).unwrap();

    // It would take tens of seconds.
    let slow = CompactOptions {
        settings: options(&[("compaction_rate_bytes", "131072")]),
        ..CompactOptions::default()
    };
    let files = || environment.file_system.list(path).unwrap().len();
    let before = files();
    std::thread::scope(|scope| {
        let compaction = scope.spawn(|| store.compact(&slow, &()));
        while files() == before && !compaction.is_finished() {
            std::thread::yield_now();
        }
        store.rollback("monday").unwrap();
        let outcome = compaction.join().unwrap();
        assert!(matches!(outcome, Err(Error::Cancelled)), "{outcome:?}");
    });
    assert_eq!(store.get(b"later").unwrap(), None);
    assert_eq!(files(), before, "nothing of the new file stays");
    // A name that is not there cancels nothing, and the next compaction goes on.
    assert!(store.rollback("tuesday").is_err());
    store.compact(&CompactOptions::default(), &()).unwrap();
}
