//! Truncation and a flip of every byte of a small store: nothing damaged is
//! returned as data, nothing panics, `check` finds it or the state is one that
//! was.

use std::path::Path;

use cambium_api::{CompactOptions, Durability, EngineKind, OptionValues};
use cambium_forest::Forest;
use cambium_io::simulated::SimulatedDisk;
use cambium_io::{Environment, FileSystem};
use cambium_testkit::DamageSuite;

use crate::support::{contents, options};

fn suite() -> DamageSuite {
    DamageSuite::new(&Forest)
        .creation("node_bytes", "512")
        .creation("block_bytes", "512")
        .opening("write_buffer_entries", "4")
        .opening("preallocate_bytes", "4096")
        .opening("segment_bytes", "16KiB")
        .opening("cache_bytes", "0")
}

#[test]
fn damage_is_never_taken_for_data() {
    let report = suite().run();
    assert!(report.cases > 10_000 && report.detected > 0, "{report:?}");
}

#[test]
fn damage_behind_a_large_buffer_is_never_taken_for_data() {
    let report = suite()
        .opening("write_buffer_entries", "64")
        .stride(2)
        .run();
    assert!(report.cases > 5_000 && report.detected > 0, "{report:?}");
}

#[test]
fn reading_without_checksums_is_found() {
    let failure = suite().opening("seeded_bug", "no_checksum").find_failure();
    assert!(failure.is_some());
}

#[test]
fn nothing_synced_is_gone_without_a_finding() {
    let report = suite().strict().stride(97).run();
    assert!(report.cases > 500 && report.detected > 0, "{report:?}");
    assert!(report.mended > 0 && report.interrupted > 0, "{report:?}");
}

#[test]
fn a_repair_that_loses_an_entry_without_a_word_is_found() {
    assert!(suite().stride(97).lossy_repairs().find_failure().is_some());
}

/// A place of the log that became zeros looks like one that nothing was written to; the numbers
/// of the writes around it tell.
#[test]
fn a_rotted_tombstone_brings_nothing_back() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let path = Path::new("/store");
    let none = OptionValues::default();
    let store = Forest.create(&environment, path, &none).unwrap();
    let durability = Durability::Synced;
    store.put(b"oak", b"Quercus", durability).unwrap();
    store.delete(b"oak", durability).unwrap();
    store.put(b"ash", b"Fraxinus", durability).unwrap();
    store.put(b"elm", b"Ulmus", durability).unwrap();
    store.delete(b"elm", durability).unwrap();
    store.close().unwrap();
    drop(store);
    let file = path.join("000001.forest");
    let mut contents = disk.contents(&file).unwrap();
    let end = 4096
        + contents[4096..]
            .iter()
            .rposition(|&byte| byte != 0)
            .unwrap();
    let mut repaired = 0;
    for place in (4096..end).step_by(16) {
        let damaged = disk.fork();
        let bytes = contents[place..].len().min(512);
        let before = contents[place..place + bytes].to_vec();
        contents[place..place + bytes].fill(0);
        assert!(damaged.replace_contents(&file, &contents));
        contents[place..place + bytes].copy_from_slice(&before);
        let environment = Environment::simulated(&damaged, 1);
        let report = Forest.check(&environment, path, &none, &()).unwrap();
        if report.is_sound() {
            continue;
        }
        Forest.repair(&environment, path, &none, &()).unwrap();
        let store = Forest.open(&environment, path, &none, &()).unwrap();
        for key in [b"oak", b"elm"] {
            assert_eq!(store.get(key).unwrap(), None, "{place}: {report:?}");
        }
        repaired += 1;
    }
    assert!(repaired > 10, "{repaired}");
}

/// A compaction leaves tombstones out, and keeps for a named snapshot what they removed.
/// Whatever is damaged afterwards, a repair brings none of it back.
#[test]
fn what_a_named_snapshot_alone_has_does_not_come_back() {
    for rolls_back in [false, true] {
        snapshot_keeps_what_was_removed(rolls_back);
    }
}

fn snapshot_keeps_what_was_removed(rolls_back: bool) {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let path = Path::new("/store");
    let shape = options(&[("node_bytes", "512"), ("block_bytes", "512")]);
    let store = Forest.create(&environment, path, &shape).unwrap();
    let key = |number: u32| format!("key {number:04}").into_bytes();
    for number in 0..200 {
        store
            .put(&key(number), &[7; 20], Durability::Written)
            .unwrap();
    }
    store.create_named_snapshot("monday").unwrap();
    for number in (0..200).step_by(10) {
        store.delete(&key(number), Durability::Written).unwrap();
    }
    store.create_named_snapshot("tuesday").unwrap();
    store.compact(&CompactOptions::default(), &()).unwrap();
    if rolls_back {
        store.rollback("tuesday").unwrap();
        for number in [1, 151] {
            store
                .put(&key(number), b"new", Durability::Written)
                .unwrap();
        }
    }
    store.close().unwrap();
    let file = path.join("000002.forest");
    let length = disk.contents(&file).unwrap().len() as u64;
    let mut repaired = 0;
    for place in (1024 + 100..length).step_by(512) {
        let damaged = disk.fork();
        assert!(damaged.flip_bit(&file, place, 0));
        let environment = Environment::simulated(&damaged, 1);
        let none = OptionValues::default();
        if Forest
            .check(&environment, path, &none, &())
            .unwrap()
            .is_sound()
        {
            continue;
        }
        Forest.repair(&environment, path, &none, &()).unwrap();
        let store = Forest.open(&environment, path, &none, &()).unwrap();
        for number in (0..200).step_by(10) {
            let found = store.get(&key(number)).unwrap();
            assert_eq!(found, None, "key {number}, where {place} was damaged");
        }
        repaired += 1;
    }
    assert!(repaired > 10, "{repaired}");
}

#[test]
fn a_segment_that_is_damaged_is_named_and_one_that_is_gone_costs_what_it_had() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let path = Path::new("/store");
    let shape = options(&[("segment_bytes", "16KiB")]);
    let store = Forest.create(&environment, path, &shape).unwrap();
    for number in 0..100_u32 {
        let value = [number as u8; 1000];
        store
            .put(&number.to_be_bytes(), &value, Durability::Written)
            .unwrap();
    }
    store.close().unwrap();
    let without_first = disk.fork();
    without_first.remove(&path.join("000001.forest")).unwrap();
    let environment = Environment::simulated(&without_first, 1);
    let none = OptionValues::default();
    let report = Forest.repair(&environment, path, &none, &()).unwrap();
    assert!(!report.is_sound(), "{report:?}");
    let store = Forest.open(&environment, path, &none, &()).unwrap();
    let left = contents(&*store);
    assert!(left.len() > 50, "{}", left.len());
    // Without what else says which store it is, nothing can be brought back.
    for lost in [&["CAMBIUM"][..], &["superblock-0", "superblock-1"]] {
        let unknown = disk.fork();
        for name in lost.iter().chain(&["000001.forest"]) {
            unknown.remove(&path.join(name)).unwrap();
        }
        let environment = Environment::simulated(&unknown, 1);
        let refused = Forest.repair(&environment, path, &none, &()).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("back"), "{refused}");
    }
    let mut named = 0;
    for file in disk.files() {
        if !file.to_string_lossy().contains(".forest.") {
            continue;
        }
        let damaged = disk.fork();
        assert!(damaged.flip_bit(&file, 1500, 0));
        let environment = Environment::simulated(&damaged, 1);
        let none = OptionValues::default();
        let report = Forest.check(&environment, path, &none, &()).unwrap();
        let place = format!("of {})", file.display());
        let mut findings = report.findings.iter();
        named += usize::from(findings.any(|finding| finding.what.ends_with(&place)));
    }
    assert!(named > 3, "{named}");
}

/// Where nodes and documents are damaged together, older trees tell of some keys. They do not
/// tell that nothing is missing.
#[test]
fn a_repair_that_takes_older_trees_names_each_loss() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let path = Path::new("/store");
    let shape = options(&[("node_bytes", "512"), ("block_bytes", "512")]);
    let none = OptionValues::default();
    let key = |number: u32| format!("key {number:04}").into_bytes();
    let store = Forest.create(&environment, path, &shape).unwrap();
    let durability = Durability::Written;
    for number in 0..200 {
        store.put(&key(number), &[7; 20], durability).unwrap();
    }
    store.close().unwrap();
    let store = Forest.open(&environment, path, &none, &()).unwrap();
    for number in 0..20 {
        store.delete(&key(10 * number), durability).unwrap();
        store.put(&key(200 + number), &[8; 20], durability).unwrap();
    }
    let model = contents(&*store);
    store.close().unwrap();
    let file = path.join("000001.forest");
    let whole = disk.contents(&file).unwrap();
    let (mut sound, mut lost) = (0, 0);
    let used = whole.iter().rposition(|&byte| byte != 0).unwrap();
    for first in (1024..used).step_by(512) {
        for second in (first..used).step_by(512) {
            let damaged = disk.fork();
            let mut harmed = whole.clone();
            harmed[first..first + 20].fill(0);
            harmed[second..second + 20].fill(0);
            assert!(damaged.replace_contents(&file, &harmed));
            let environment = Environment::simulated(&damaged, 1);
            let report = Forest.repair(&environment, path, &none, &()).unwrap();
            let store = Forest.open(&environment, path, &none, &()).unwrap();
            let is_whole = contents(&*store) == model;
            assert!(
                is_whole || !report.is_sound(),
                "{first} {second}: {report:?}"
            );
            sound += u32::from(is_whole);
            lost += u32::from(!is_whole);
        }
    }
    assert!(sound > 10 && lost > 10, "{sound} {lost}");
}
