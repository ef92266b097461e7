//! Golden traces and fixtures: what a store does to its files, operation by
//! operation, what is shown of it, and a store of each format version that must
//! stay readable.
//!
//! `UPDATE_GOLDEN=1 cargo test -p cambium-wisckey --test suite golden::` writes the traces
//! anew, and fixtures that are missing: a lost sync is then a visible
//! difference to review, and a changed format is refused by the old fixture.

use std::path::Path;

use cambium_api::{CompactOptions, Durability, EngineKind, KeyRange, OptionValues, WriteBatch};
use cambium_io::Environment;
use cambium_io::simulated::SimulatedDisk;
use cambium_testkit::golden::{
    Golden, Trace, contents, fixture_entries, open_fixture, refuses_a_newer_format,
};
use cambium_testkit::stores;
use cambium_wisckey::Wisckey;

use crate::support::work_until_idle;

fn small() -> OptionValues {
    OptionValues::from([
        ("block_bytes", "512"),
        ("segment_bytes", "2048"),
        ("replay_bytes", "1024"),
        ("inline_bytes", "8"),
        ("preallocate_bytes", "0"),
        ("table_bytes", "2048"),
        ("table_block_bytes", "512"),
        ("collection", "off"),
    ])
}

fn golden() -> Golden {
    Golden::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn each_call_does_these_operations_in_this_order() {
    let (environment, mut trace) = Trace::new();
    let store = stores::create(&Wisckey, &environment, &small());
    trace.note("create");
    let value = [b'q'; 100];
    store.put(b"oak", &value, Durability::Synced).unwrap();
    trace.note("the first put: a session, a segment, then one synced record");
    store.put(b"oak", b"small", Durability::Written).unwrap();
    trace.note("put, written");
    let mut batch = WriteBatch::new();
    batch.put(b"elm", &value).delete(b"fir");
    store.write(batch, Durability::Synced).unwrap();
    trace.note("a synced batch");
    assert_eq!(store.get(b"elm").unwrap().unwrap(), value);
    trace.note("get");
    store
        .put(b"fig", &[b'f'; 700], Durability::Written)
        .unwrap();
    trace.note("a put that ends the segment: it is sealed with the write buffer");
    work_until_idle(&*store);
    trace.note("the flush: the log first, then the table, then the edit");
    store.put(b"oak", b"", Durability::Written).unwrap();
    store.compact(&CompactOptions::default(), &()).unwrap();
    trace.note("overwrite, compact: the value that is left is moved and pointed to, and synced before a table says so; then its segment goes");
    store.put(b"ash", b"Fraxinus", Durability::Written).unwrap();
    store.close().unwrap();
    drop(store);
    trace.note("put, close");
    trace.note_openings(&Wisckey, &environment, (b"yew", b"Taxus"));
    golden().compare("operations.txt", trace.text());
}

#[test]
fn people_see_this_inside() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let store = stores::create(&Wisckey, &environment, &small());
    for number in 0..8 {
        let key = format!("key {number:02}");
        let value = vec![b'v'; number * 20];
        store
            .put(key.as_bytes(), &value, Durability::Written)
            .unwrap();
    }
    let people = store.namespace("people").unwrap();
    people.put(b"ada", b"lovelace", Durability::Synced).unwrap();
    people.delete(b"bob", Durability::Written).unwrap();
    let range = KeyRange::prefix(b"c");
    people.delete_range(range, Durability::Written).unwrap();
    work_until_idle(&*store);
    let mut text = Vec::new();
    store.dump(&mut text).unwrap();
    store.close().unwrap();
    golden().compare_inside(&Wisckey, &environment, text);
}

fn write_fixture(folder: &Path) {
    let environment = Environment::real();
    let store = Wisckey.create(&environment, folder, &small()).unwrap();
    let people = store.namespace("people").unwrap();
    for (name, value) in fixture_entries() {
        store.put(&name, b"older", Durability::Synced).unwrap();
        store.put(&name, &value, Durability::Written).unwrap();
        people.put(&name, b"person", Durability::Written).unwrap();
    }
    people
        .delete_range(KeyRange::all(), Durability::Written)
        .unwrap();
    people
        .put(b"ada", b"lovelace", Durability::Written)
        .unwrap();
    store.compact(&CompactOptions::default(), &()).unwrap();
    store.put(b"last", &[7; 300], Durability::Written).unwrap();
    store.delete(b"last", Durability::Written).unwrap();
    store.close().unwrap();
}

#[test]
fn stores_of_every_format_version_stay_readable() {
    let fixture = golden().fixture("format-2", write_fixture);
    let (_, store) = open_fixture(&Wisckey, &fixture);
    assert_eq!(contents(&*store), fixture_entries());
    let people = store.namespace("people").unwrap();
    assert_eq!(
        contents(&*people),
        [(b"ada".to_vec(), b"lovelace".to_vec())]
    );
}

#[test]
fn a_newer_format_is_refused_with_both_versions_named() {
    let fixture = golden().fixture("format-2", |_| ());
    refuses_a_newer_format(&Wisckey, &fixture);
}
