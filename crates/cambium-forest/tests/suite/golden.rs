//! Golden traces and fixtures: what a store does to its files, operation by
//! operation, what is shown of it, and a store of each format version that must
//! stay readable.
//!
//! `UPDATE_GOLDEN=1 cargo test -p cambium-forest --test suite golden::` writes the traces
//! anew, and fixtures that are missing: a lost sync is then a visible
//! difference to review, and a changed format is refused by the old fixture.

use std::path::Path;

use cambium_api::{CompactOptions, Durability, EngineKind, OptionValues, WriteBatch};
use cambium_forest::Forest;
use cambium_io::Environment;
use cambium_io::simulated::SimulatedDisk;
use cambium_testkit::golden::{
    FIXTURE, Golden, Trace, contents, fixture_entries, open_fixture, refuses_a_newer_format,
};
use cambium_testkit::stores;

fn small() -> OptionValues {
    OptionValues::from([
        ("node_bytes", "512"),
        ("block_bytes", "512"),
        ("write_buffer_entries", "16"),
        ("preallocate_bytes", "4096"),
        ("segment_bytes", "16KiB"),
        ("compaction_threshold", "100"),
    ])
}

fn golden() -> Golden {
    Golden::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn each_call_does_these_operations_in_this_order() {
    let (environment, mut trace) = Trace::new();
    let store = stores::create(&Forest, &environment, &small());
    trace.note("create");
    store.put(b"oak", b"tree", Durability::Synced).unwrap();
    trace.note("the first put: a session, then one synced document");
    store.put(b"oak", b"Quercus", Durability::Written).unwrap();
    trace.note("put, written");
    let mut batch = WriteBatch::new();
    batch.put(b"elm", b"Ulmus").delete(b"fir");
    store.write(batch, Durability::Synced).unwrap();
    trace.note("a synced batch");
    for number in 0..12 {
        let key = format!("key {number:02}");
        store
            .put(key.as_bytes(), b"x", Durability::Buffered)
            .unwrap();
    }
    trace.note("the sixteenth write: a flush");
    assert_eq!(store.get(b"oak").unwrap().unwrap(), b"Quercus");
    trace.note("get");
    store.create_named_snapshot("now").unwrap();
    trace.note("a named snapshot");
    store.rollback("now").unwrap();
    trace.note("rollback");
    store.drop_named_snapshot("now").unwrap();
    store.compact(&CompactOptions::default(), &()).unwrap();
    trace.note("drop the snapshot, compact");
    store.put(b"ash", b"Fraxinus", Durability::Written).unwrap();
    store.close().unwrap();
    drop(store);
    trace.note("put, close");
    trace.note_openings(&Forest, &environment, (b"yew", b"Taxus"));
    golden().compare("operations.txt", trace.text());
}

#[test]
fn people_see_this_inside() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let store = stores::create(&Forest, &environment, &small());
    for number in 0..20 {
        let key = format!("a key that is longer than a chunk {number:02}");
        store
            .put(key.as_bytes(), b"value", Durability::Written)
            .unwrap();
    }
    let people = store.namespace("people").unwrap();
    people.put(b"ada", b"lovelace", Durability::Synced).unwrap();
    people.delete(b"bob", Durability::Written).unwrap();
    store.create_named_snapshot("now").unwrap();
    let mut text = Vec::new();
    store.dump(&mut text).unwrap();
    store.close().unwrap();
    golden().compare_inside(&Forest, &environment, text);
}

fn write_fixture(folder: &Path) {
    let environment = Environment::real();
    let mut options = small();
    options.set("preallocate_bytes", "0");
    let store = Forest.create(&environment, folder, &options).unwrap();
    let people = store.namespace("people").unwrap();
    for (name, value) in fixture_entries() {
        store.put(&name, b"older", Durability::Synced).unwrap();
        store.put(&name, &value, Durability::Written).unwrap();
        people.put(&name, b"person", Durability::Written).unwrap();
    }
    let many = store.namespace("many").unwrap();
    for (name, value) in packed_entries() {
        many.put(&name, &value, Durability::Written).unwrap();
    }
    store.create_named_snapshot("kept").unwrap();
    people
        .delete_range(cambium_api::KeyRange::all(), Durability::Written)
        .unwrap();
    // Small documents are in packed blocks then.
    store.compact(&CompactOptions::default(), &()).unwrap();
    store
        .put(
            &fixture_entries()[0].0,
            &fixture_entries()[0].1,
            Durability::Written,
        )
        .unwrap();
    store.close().unwrap();
}

/// Enough for several packed blocks.
fn packed_entries() -> Vec<(Vec<u8>, Vec<u8>)> {
    let entry = |number: u8| (vec![b'm', number], vec![number; 40 + usize::from(number)]);
    (0..100).map(entry).collect()
}

#[test]
fn a_store_of_this_format_stays_readable() {
    let fixture = golden().fixture("format-6", write_fixture);
    let (environment, store) = open_fixture(&Forest, &fixture);
    assert_eq!(contents(&*store), fixture_entries());
    let people = store.namespace("people").unwrap();
    assert_eq!(contents(&*people), []);
    let many = store.namespace("many").unwrap();
    assert_eq!(contents(&*many), packed_entries());
    store.rollback("kept").unwrap();
    assert_eq!(contents(&*people).len(), fixture_entries().len());
    assert_eq!(contents(&*store), fixture_entries());
    store.close().unwrap();
    // Written by this program now, whatever it was.
    let (folder, options) = (Path::new(FIXTURE), OptionValues::default());
    let store = Forest.open(&environment, folder, &options, &()).unwrap();
    assert_eq!(contents(&*store), fixture_entries());
}

#[test]
fn a_newer_format_is_refused_with_both_versions_named() {
    let fixture = golden().fixture("format-6", |_| ());
    refuses_a_newer_format(&Forest, &fixture);
}
