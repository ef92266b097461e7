//! A compaction that begins by itself and fails is told by the statistics: else
//! nothing but the file's growth would be seen of it.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

#[allow(dead_code)] // this file uses a part
mod support;

use std::path::Path;

use cambium_api::{Durability, Engine, EngineKind, StatisticValue};
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

    let refusal = store.step(1 << 20).unwrap_err().to_string();
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
