//! Golden traces and fixtures: what a store does to its files, operation by
//! operation, and a store of each format version that must stay readable.
//!
//! `UPDATE_GOLDEN=1 cargo test -p cambium-zdb --test golden` writes the traces
//! anew, and fixtures that are missing: a lost sync is then a visible
//! difference to review, and a changed format is refused by the old fixture.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::{
    CompactOptions, Durability, Engine, EngineKind, IterationOrder, OptionValues, WriteBatch,
};
use cambium_io::recording::{Recorder, RecordingFileSystem};
use cambium_io::simulated::SimulatedDisk;
use cambium_io::{Environment, OpenOptions};
use cambium_zdb::Zdb;

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name)
}

fn updating() -> bool {
    std::env::var_os("UPDATE_GOLDEN").is_some()
}

fn small(keys: &str) -> OptionValues {
    let mut options = OptionValues::default();
    for (name, value) in [
        ("keys", keys),
        ("keys_per_table", "64"),
        ("data_files", "2"),
        ("piece_bytes", "512"),
        ("block_bytes", "512"),
        ("commit_log_bytes", "8192"),
        ("buckets", "4"),
        ("compaction_threshold", "100"),
    ] {
        options.set(name, value);
    }
    options
}

fn compare(name: &str, found: &str) {
    let path = testdata(name);
    if updating() {
        std::fs::write(&path, found).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        golden,
        found,
        "the trace differs from {}; if it should, update it with UPDATE_GOLDEN=1",
        path.display()
    );
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

#[test]
fn each_call_does_these_operations_in_this_order() {
    let disk = SimulatedDisk::new(1);
    let plain = Environment::simulated(&disk, 1);
    let folder = Path::new("/store");
    let (file_system, recorder) = RecordingFileSystem::new(Arc::new(disk), folder);
    let environment = Environment {
        file_system: Arc::new(file_system),
        ..plain
    };
    let mut trace = String::new();
    let mut note = |recorder: &Recorder, what: &str| {
        trace += &format!("# {what}\n{}\n", recorder.take());
    };
    let store = Zdb.create(&environment, folder, &small("integer")).unwrap();
    note(&recorder, "create");
    store.put(&key(1), b"oak", Durability::Synced).unwrap();
    note(
        &recorder,
        "the first put: a session and a table, then one synced frame",
    );
    store.put(&key(1), b"elm", Durability::Written).unwrap();
    note(&recorder, "put, written");
    let mut batch = WriteBatch::new();
    batch.put(&key(1), b"ash").put(&key(2), b"fir");
    store.write(batch, Durability::Synced).unwrap();
    note(
        &recorder,
        "a synced batch over two files, after bytes that no frame covers",
    );
    assert_eq!(store.get(&key(2)).unwrap().unwrap(), b"fir");
    note(&recorder, "get");
    store.compact(&CompactOptions::default(), &()).unwrap();
    note(&recorder, "compact");
    store.close().unwrap();
    drop(store);
    note(&recorder, "close");
    let options = OptionValues::default();
    let store = Zdb.open(&environment, folder, &options, &()).unwrap();
    note(&recorder, "open after a clean close");
    store.put(&key(3), b"yew", Durability::Written).unwrap();
    drop(store);
    recorder.take();
    let _recovered = Zdb.open(&environment, folder, &options, &()).unwrap();
    note(&recorder, "open after a crash of the process");
    compare("operations.txt", &trace);
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
    _ = std::fs::remove_dir_all(folder);
    let environment = Environment::real();
    let store = Zdb.create(&environment, folder, &small(keys)).unwrap();
    for (name, value) in fixture_entries(keys) {
        store.put(&name, b"older", Durability::Synced).unwrap();
        store.put(&name, &value, Durability::Written).unwrap();
    }
    store.close().unwrap();
}

fn contents(store: &dyn Engine) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = store.iterate(IterationOrder::Any, None).unwrap();
    let mut entries = Vec::new();
    while let Some(entry) = cursor.next().unwrap() {
        entries.push((entry.key.to_vec(), entry.value.to_vec()));
    }
    entries.sort();
    entries
}

/// Copies a fixture into memory, so that opening it changes nothing.
fn in_memory(fixture: &Path) -> Environment {
    let environment = Environment::memory();
    let folder = Path::new("/fixture");
    environment.file_system.create_directory(folder).unwrap();
    for entry in std::fs::read_dir(fixture).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        let file = environment
            .file_system
            .open(&path, OpenOptions::CREATE)
            .unwrap();
        file.write_at(&std::fs::read(entry.path()).unwrap(), 0)
            .unwrap();
    }
    environment
}

#[test]
fn stores_of_every_format_version_stay_readable() {
    for keys in ["integer", "string"] {
        let fixture = testdata(&format!("format-1-{keys}"));
        // A fixture that is there was written by an earlier version: it stays.
        if updating() && !fixture.exists() {
            write_fixture(keys, &fixture);
        }
        let environment = in_memory(&fixture);
        let folder = Path::new("/fixture");
        let report = Zdb.check(&environment, folder, &()).unwrap();
        assert!(report.is_sound(), "{report:?}");
        let options = OptionValues::default();
        let store = Zdb.open(&environment, folder, &options, &()).unwrap();
        let mut expected = fixture_entries(keys);
        expected.sort();
        assert_eq!(contents(&*store), expected, "{keys} keys");
    }
}

#[test]
fn a_newer_format_is_refused_with_both_versions_named() {
    let environment = in_memory(&testdata("format-1-integer"));
    let folder = Path::new("/fixture");
    let marker_path = folder.join("CAMBIUM");
    let mut marker =
        cambium_storage::marker::read_marker(&*environment.file_system, folder).unwrap();
    environment.file_system.remove(&marker_path).unwrap();
    marker.format_version = 7;
    cambium_storage::marker::write_marker(&*environment.file_system, folder, &marker).unwrap();
    let opened = Zdb.open(&environment, folder, &OptionValues::default(), &());
    let text = opened
        .err()
        .expect("a newer version is refused")
        .to_string();
    assert!(
        text.contains("version 7") && text.contains("up to 1"),
        "{text}"
    );
}
