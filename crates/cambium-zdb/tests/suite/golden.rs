//! Golden traces and fixtures: what a store does to its files, operation by
//! operation, and a store of each format version that must stay readable.
//!
//! `UPDATE_GOLDEN=1 cargo test -p cambium-zdb --test suite golden::` writes the traces
//! anew, and fixtures that are missing: a lost sync is then a visible
//! difference to review, and a changed format is refused by the old fixture.

use std::path::Path;

use cambium_api::{CompactOptions, Durability, EngineKind, KeyRange, OptionValues, WriteBatch};
use cambium_io::Environment;
use cambium_testkit::golden::{Golden, Trace, contents, open_fixture, refuses_a_newer_format};
use cambium_testkit::stores;
use cambium_zdb::Zdb;

fn small(keys: &str) -> OptionValues {
    OptionValues::from([
        ("keys", keys),
        ("keys_per_table", "64"),
        ("data_files", "2"),
        ("piece_bytes", "512"),
        ("block_bytes", "512"),
        ("commit_log_bytes", "8192"),
        ("buckets", "4"),
        ("compaction_threshold", "100"),
    ])
}

fn golden() -> Golden {
    Golden::new(env!("CARGO_MANIFEST_DIR"))
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

#[test]
fn each_call_does_these_operations_in_this_order() {
    let (environment, mut trace) = Trace::new();
    let store = stores::create(&Zdb, &environment, &small("integer"));
    trace.note("create");
    store.put(&key(1), b"oak", Durability::Synced).unwrap();
    trace.note("the first put: a session and a table, then one synced frame");
    store.put(&key(1), b"elm", Durability::Written).unwrap();
    trace.note("put, written");
    let mut batch = WriteBatch::new();
    batch.put(&key(1), b"ash").put(&key(2), b"fir");
    store.write(batch, Durability::Synced).unwrap();
    trace.note("a synced batch over two files, after bytes that no frame covers");
    assert_eq!(store.get(&key(2)).unwrap().unwrap(), b"fir");
    trace.note("get");
    store.compact(&CompactOptions::default(), &()).unwrap();
    trace.note("compact");
    store.close().unwrap();
    drop(store);
    trace.note("close");
    trace.note_openings(&Zdb, &environment, (&key(3), b"yew"));
    golden().compare("operations.txt", trace.text());
}

/// What the fixtures hold.
fn fixture_entries(keys: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let entries = (0..40u64).filter(|n| n % 7 != 3).map(|number| {
        let name = match keys {
            "integer" => key(number).to_vec(),
            _ => format!("key {number}").into_bytes(),
        };
        (name, vec![number as u8; number as usize * 3])
    });
    entries.collect()
}

fn write_fixture(keys: &str, folder: &Path) {
    let environment = Environment::real();
    let store = Zdb.create(&environment, folder, &small(keys)).unwrap();
    for (name, value) in fixture_entries(keys) {
        store.put(&name, b"older", Durability::Synced).unwrap();
        store.put(&name, &value, Durability::Written).unwrap();
    }
    if keys == "integer" {
        for number in 40..50 {
            store
                .put(&key(number), b"gone", Durability::Written)
                .unwrap();
        }
        let range = KeyRange::between(&key(40), &key(60));
        store.delete_range(range, Durability::Written).unwrap();
    }
    store.close().unwrap();
}

#[test]
fn stores_of_every_format_version_stay_readable() {
    for keys in ["integer", "string"] {
        let name = format!("format-3-{keys}");
        let fixture = golden().fixture(&name, |folder| write_fixture(keys, folder));
        let (_, store) = open_fixture(&Zdb, &fixture);
        let mut expected = fixture_entries(keys);
        expected.sort();
        assert_eq!(contents(&*store), expected, "{keys} keys");
    }
}

#[test]
fn a_newer_format_is_refused_with_both_versions_named() {
    let fixture = golden().fixture("format-3-integer", |_| ());
    refuses_a_newer_format(&Zdb, &fixture);
}
