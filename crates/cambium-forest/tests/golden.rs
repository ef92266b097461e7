//! Golden traces and fixtures: what a store does to its files, operation by
//! operation, what is shown of it, and a store of each format version that must
//! stay readable.
//!
//! `UPDATE_GOLDEN=1 cargo test -p cambium-forest --test golden` writes the traces
//! anew, and fixtures that are missing: a lost sync is then a visible
//! difference to review, and a changed format is refused by the old fixture.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::{
    CompactOptions, Durability, Engine, EngineKind, IterationOrder, OptionValues, WriteBatch,
};
use cambium_forest::Forest;
use cambium_io::recording::{Recorder, RecordingFileSystem};
use cambium_io::simulated::SimulatedDisk;
use cambium_io::{Environment, OpenOptions};

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name)
}

fn updating() -> bool {
    std::env::var_os("UPDATE_GOLDEN").is_some()
}

fn small() -> OptionValues {
    let mut options = OptionValues::default();
    for (name, value) in [
        ("node_bytes", "512"),
        ("block_bytes", "512"),
        ("write_buffer_entries", "16"),
        ("preallocate_bytes", "4096"),
        ("compaction_threshold", "100"),
    ] {
        options.set(name, value);
    }
    options
}

fn compare(name: &str, found: &str) {
    let path = testdata(name);
    if updating() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, found).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        golden,
        found,
        "this differs from {}; if it should, update it with UPDATE_GOLDEN=1",
        path.display()
    );
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
    let store = Forest.create(&environment, folder, &small()).unwrap();
    note(&recorder, "create");
    store.put(b"oak", b"tree", Durability::Synced).unwrap();
    note(
        &recorder,
        "the first put: a session, then one synced document",
    );
    store.put(b"oak", b"Quercus", Durability::Written).unwrap();
    note(&recorder, "put, written");
    let mut batch = WriteBatch::new();
    batch.put(b"elm", b"Ulmus").delete(b"fir");
    store.write(batch, Durability::Synced).unwrap();
    note(&recorder, "a synced batch");
    for number in 0..12 {
        let key = format!("key {number:02}");
        store
            .put(key.as_bytes(), b"x", Durability::Buffered)
            .unwrap();
    }
    note(&recorder, "the sixteenth write: a flush");
    assert_eq!(store.get(b"oak").unwrap().unwrap(), b"Quercus");
    note(&recorder, "get");
    store.create_named_snapshot("now").unwrap();
    note(&recorder, "a named snapshot");
    store.rollback("now").unwrap();
    note(&recorder, "rollback");
    store.drop_named_snapshot("now").unwrap();
    store.compact(&CompactOptions::default(), &()).unwrap();
    note(&recorder, "drop the snapshot, compact");
    store.put(b"ash", b"Fraxinus", Durability::Written).unwrap();
    store.close().unwrap();
    drop(store);
    note(&recorder, "put, close");
    let options = OptionValues::default();
    let store = Forest.open(&environment, folder, &options, &()).unwrap();
    note(&recorder, "open after a clean close");
    store.put(b"yew", b"Taxus", Durability::Written).unwrap();
    drop(store);
    recorder.take();
    let _recovered = Forest.open(&environment, folder, &options, &()).unwrap();
    note(&recorder, "open after a crash of the process");
    compare("operations.txt", &trace);
}

#[test]
fn people_see_this_inside() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let folder = Path::new("/store");
    let store = Forest.create(&environment, folder, &small()).unwrap();
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
    Forest.inspect(&environment, folder, &mut text).unwrap();
    compare("inside.txt", &String::from_utf8(text).unwrap());
}

/// What the fixture holds.
fn fixture_entries() -> Vec<(Vec<u8>, Vec<u8>)> {
    let entries = (0..30u64).filter(|n| n % 7 != 3).map(|number| {
        let mut name = format!("key {:02}", number / 3).into_bytes();
        name.extend_from_slice(&[b'-'; 20][..(number % 3) as usize * 10]);
        name.push(number as u8);
        (name, vec![number as u8; number as usize * 3])
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort();
    entries
}

fn write_fixture(folder: &Path) {
    _ = std::fs::remove_dir_all(folder);
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
    store.create_named_snapshot("kept").unwrap();
    people
        .delete_range(cambium_api::KeyRange::all(), Durability::Written)
        .unwrap();
    store.close().unwrap();
}

fn contents(store: &dyn Engine) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = store.iterate(IterationOrder::Any, None).unwrap();
    let mut entries = Vec::new();
    while let Some(entry) = cursor.next().unwrap() {
        entries.push((entry.key.to_vec(), entry.value.to_vec()));
    }
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
    let fixture = testdata("format-1");
    // A fixture that is there was written by an earlier version: it stays.
    if updating() && !fixture.exists() {
        write_fixture(&fixture);
    }
    let environment = in_memory(&fixture);
    let folder = Path::new("/fixture");
    let report = Forest.check(&environment, folder, &()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    let options = OptionValues::default();
    let store = Forest.open(&environment, folder, &options, &()).unwrap();
    assert_eq!(contents(&*store), fixture_entries());
    let people = store.namespace("people").unwrap();
    assert_eq!(contents(&*people), []);
    store.rollback("kept").unwrap();
    assert_eq!(contents(&*people).len(), fixture_entries().len());
    assert_eq!(contents(&*store), fixture_entries());
}

#[test]
fn a_newer_format_is_refused_with_both_versions_named() {
    let environment = in_memory(&testdata("format-1"));
    let folder = Path::new("/fixture");
    let marker_path = folder.join("CAMBIUM");
    let mut marker =
        cambium_storage::marker::read_marker(&*environment.file_system, folder).unwrap();
    environment.file_system.remove(&marker_path).unwrap();
    marker.format_version = 7;
    cambium_storage::marker::write_marker(&*environment.file_system, folder, &marker).unwrap();
    let opened = Forest.open(&environment, folder, &OptionValues::default(), &());
    let text = opened
        .err()
        .expect("a newer version is refused")
        .to_string();
    assert!(
        text.contains("version 7") && text.contains("up to 1"),
        "{text}"
    );
}
