//! A backup is a store of its own that holds everything: every namespace, and
//! every named snapshot.

use std::path::Path;
use std::sync::Arc;

use cambium_api::{CompactOptions, Durability, Engine, EngineKind, KeyRange, OptionValues};
use cambium_forest::Forest;
use cambium_io::Environment;
use cambium_testkit::golden::contents;
use cambium_testkit::stores;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn create(environment: &Environment) -> Arc<dyn Engine> {
    let options = OptionValues::from([
        ("write_buffer_entries", "16"),
        ("preallocate_bytes", "4096"),
        ("segment_bytes", "16KiB"),
        ("compaction_threshold", "100"),
        ("node_bytes", "512"),
    ]);
    stores::create(&Forest, environment, &options)
}

fn put(store: &dyn Engine, number: u32, value: &str) {
    let key = format!("key {number:03}");
    store
        .put(key.as_bytes(), value.as_bytes(), Durability::Written)
        .unwrap();
}

/// What all namespaces hold.
fn state(store: &dyn Engine) -> Vec<(String, Entries)> {
    let names = store.list_namespaces().unwrap();
    let of = |name: String| {
        let entries = contents(&*store.namespace(&name).unwrap());
        (name, entries)
    };
    names.into_iter().map(of).collect()
}

#[test]
fn a_backup_keeps_named_snapshots_and_namespaces() {
    let environment = Environment::memory();
    let store = create(&environment);
    let people = store.namespace("people").unwrap();
    for number in 0..60 {
        put(&*store, number, "first");
    }
    put(&*people, 1, "ada");
    store.create_named_snapshot("one").unwrap();
    let one = state(&*store);
    for number in 20..80 {
        put(&*store, number, "second");
    }
    let range = KeyRange::between(b"key 005", b"key 012");
    store.delete_range(range, Durability::Written).unwrap();
    people.delete(b"key 001", Durability::Written).unwrap();
    put(&*people, 2, "bob");
    store.create_named_snapshot("two").unwrap();
    let two = state(&*store);
    // A compaction moves what the snapshots keep.
    store.compact(&CompactOptions::default(), &()).unwrap();
    put(&*store, 5, "third");
    put(&*store.namespace("later").unwrap(), 1, "new");
    store.backup(Path::new("/copy"), &()).unwrap();
    let newest = state(&*store);
    put(&*store, 6, "not in the backup");
    let report = Forest
        .check(&environment, Path::new("/copy"), &Default::default(), &())
        .unwrap();
    assert!(report.is_sound(), "{report:?}");
    let options = OptionValues::default();
    let copy = Forest
        .open(&environment, Path::new("/copy"), &options, &())
        .unwrap();
    assert_eq!(state(&*copy), newest);
    let names = copy.list_named_snapshots().unwrap();
    let names: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["one", "two"]);
    for (name, kept) in [("two", two), ("one", one)] {
        copy.rollback(name).unwrap();
        let mut found = state(&*copy);
        // Made after the snapshots: it stays, empty.
        found.retain(|(name, entries)| name != "later" || !entries.is_empty());
        assert_eq!(found, kept, "{name}");
    }
    // Of a store that went back, and on from there.
    store.rollback("one").unwrap();
    put(&*store, 7, "fourth");
    store.backup(Path::new("/again"), &()).unwrap();
    let again = Forest
        .open(&environment, Path::new("/again"), &options, &())
        .unwrap();
    assert_eq!(state(&*again), state(&*store));
    store.rollback("two").unwrap();
    again.rollback("two").unwrap();
    assert_eq!(state(&*again), state(&*store));
}

#[test]
fn a_store_that_is_opened_for_reading_alone_replays_its_log() {
    let environment = Environment::memory();
    let store = create(&environment);
    (0..40).for_each(|number| put(&*store, number, "value"));
    store.sync().unwrap();
    // Not closed: the index lacks entries that are in the log.
    drop(store);
    let options = OptionValues::default();
    let reading = Forest.open_read_only(&environment, Path::new("/store"), &options, &());
    let statistics = reading.unwrap().stats().unwrap();
    assert_eq!(statistics.number("entries"), Some(40));
    assert!(statistics.number("writes_replayed") > Some(0));
}
