//! A backup is a store of its own that holds everything: every namespace, and
//! every named snapshot.

use std::path::Path;
use std::sync::Arc;

use cambium_api::{CompactOptions, Durability, Engine, EngineKind, KeyRange, OptionValues};
use cambium_forest::Forest;
use cambium_io::Environment;
use cambium_testkit::golden::contents;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn create(environment: &Environment) -> Arc<dyn Engine> {
    let options = OptionValues::from([
        ("write_buffer_entries", "16"),
        ("preallocate_bytes", "4096"),
        ("segment_bytes", "16KiB"),
        ("compaction_threshold", "100"),
        ("node_bytes", "512"),
    ]);
    Forest
        .create(environment, Path::new("/s"), &options)
        .unwrap()
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
fn a_store_that_is_opened_for_reading_alone_is_read_and_not_changed() {
    let environment = Environment::memory();
    let store = create(&environment);
    for number in 0..40 {
        put(&*store, number, "value");
    }
    let wanted = contents(&*store);
    store.sync().unwrap();
    // Not closed: what the index does not hold yet is found in the log.
    drop(store);
    let list = || {
        let file_system = &environment.file_system;
        let names = file_system.list(Path::new("/s")).unwrap();
        let content = |name: &Path| {
            let path = Path::new("/s").join(name);
            let file = file_system.open(&path, cambium_io::OpenOptions::READ);
            let file = file.unwrap();
            let mut bytes = vec![0; file.length().unwrap() as usize];
            let count = file.read_at(&mut bytes, 0).unwrap();
            assert_eq!(count, bytes.len());
            bytes
        };
        let files = names
            .iter()
            .map(|entry| (entry.name.clone(), content(&entry.name)));
        files.collect::<Vec<_>>()
    };
    let before = list();
    let options = OptionValues::default();
    let reading = Forest
        .open_read_only(&environment, Path::new("/s"), &options, &())
        .unwrap();
    assert_eq!(contents(&*reading), wanted);
    let statistics = reading.stats().unwrap();
    assert_eq!(statistics.number("entries"), Some(40));
    assert!(statistics.number("writes_replayed") > Some(0));
    let refused = [
        reading.put(b"a", b"b", Durability::Buffered).map(|_| ()),
        reading.sync(),
        reading.create_named_snapshot("now"),
        reading.compact(&CompactOptions::default(), &()).map(|_| ()),
        reading.namespace("people").map(|_| ()),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(error.to_string().contains("reading alone"), "{error}");
    }
    // Others read beside it; a writer changes nothing that they see.
    let beside = Forest
        .open_read_only(&environment, Path::new("/s"), &options, &())
        .unwrap();
    assert_eq!(list(), before);
    let writing = Forest.open(&environment, Path::new("/s"), &options, &());
    assert_eq!(contents(&*writing.unwrap()), wanted);
    assert_eq!(contents(&*reading), wanted);
    reading.close().unwrap();
    beside.close().unwrap();
    let store = Forest
        .open(&environment, Path::new("/s"), &options, &())
        .unwrap();
    assert_eq!(contents(&*store), wanted);
}
