//! Namespaces that are dropped: quickly, for good, and with all their space.

use std::sync::Arc;

use cambium_api::{CompactOptions, Durability, Engine, OptionValues};
use cambium_io::Environment;
use cambium_io::simulated::{CrashStyle, SimulatedDisk};
use cambium_testkit::stores;
use cambium_wisckey::Wisckey;

use crate::support::options_of;

const SMALL: [(&str, &str); 7] = [
    ("block_bytes", "512"),
    ("segment_bytes", "8192"),
    ("replay_bytes", "8192"),
    ("preallocate_bytes", "4096"),
    ("inline_bytes", "4"),
    ("table_bytes", "2048"),
    ("level_base_bytes", "8192"),
];

fn options(changes: &[(&str, &str)]) -> OptionValues {
    options_of(&SMALL, changes)
}

fn create(disk: &SimulatedDisk, changes: &[(&str, &str)]) -> Arc<dyn Engine> {
    let environment = Environment::simulated(disk, 1);
    stores::create(&Wisckey, &environment, &options(changes))
}

fn open(disk: &SimulatedDisk, changes: &[(&str, &str)]) -> Arc<dyn Engine> {
    let environment = Environment::simulated(disk, 2);
    stores::open(&Wisckey, &environment, &options(changes))
}

fn fill(space: &dyn Engine, keys: u32) {
    for number in 0..keys {
        let key = format!("key {number:05}").into_bytes();
        space
            .put(&key, &[number as u8; 100], Durability::Written)
            .unwrap();
        if number % 16 == 0 {
            space.step(1 << 20).unwrap();
        }
    }
}

fn idle(store: &dyn Engine) {
    for _ in 0..1_000 {
        store.step(1 << 20).unwrap();
    }
}

fn bytes(disk: &SimulatedDisk) -> usize {
    let files = disk.files().into_iter();
    let kept = files.filter(|path| !path.ends_with("reserve"));
    kept.map(|path| disk.contents(&path).unwrap_or_default().len())
        .sum()
}

#[test]
fn a_drop_takes_no_longer_where_there_is_more() {
    let operations = |keys: u32| {
        let disk = SimulatedDisk::new(1);
        let store = create(&disk, &[]);
        fill(&*store.namespace("people").unwrap(), keys);
        store.sync().unwrap();
        let before = disk.operation_count();
        store.drop_namespace("people").unwrap();
        disk.operation_count() - before
    };
    let (few, many) = (operations(20), operations(5_000));
    assert!(many <= few + 8, "{many} operations, and {few} for few keys");
}

#[test]
fn namespaces_that_come_and_go_leave_nothing() {
    let disk = SimulatedDisk::new(1);
    let mut store = create(&disk, &[]);
    store.put(b"oak", &[1; 200], Durability::Written).unwrap();
    let mut after = Vec::new();
    for round in 0..24 {
        let people = store.namespace("people").unwrap();
        fill(&*people, 400);
        drop(people);
        store.drop_namespace("people").unwrap();
        idle(&*store);
        if round % 4 == 3 {
            store.close().unwrap();
            store = open(&disk, &[]);
            idle(&*store);
            assert_eq!(store.list_namespaces().unwrap(), [""]);
        }
        after.push((bytes(&disk), disk.files().len()));
    }
    let (first, last) = (after[3], after[23]);
    assert!(
        last.0 < first.0 + 16_384 && last.1 <= first.1 + 4,
        "bytes and files after each round: {after:?}"
    );
    assert_eq!(store.get(b"oak").unwrap().unwrap(), [1; 200]);
}

/// Numbers of namespaces are not given twice, so that nothing old is found in a new one.
#[test]
fn a_new_namespace_has_nothing_of_one_that_was_dropped_before_a_reopening() {
    let disk = SimulatedDisk::new(1);
    let store = create(&disk, &[]);
    let old = store.namespace("old").unwrap();
    fill(&*old, 50);
    store.create_named_snapshot("with old").unwrap();
    store.drop_namespace("old").unwrap();
    store.compact(&CompactOptions::default(), &()).unwrap();
    drop(old);
    store.close().unwrap();
    let store = open(&disk, &[]);
    let new = store.namespace("new").unwrap();
    assert!(new.get(b"key 00001").unwrap().is_none());
    new.put(b"ada", b"lovelace", Durability::Written).unwrap();
    store.rollback("with old").unwrap();
    assert!(new.get(b"ada").unwrap().is_none());
    assert!(new.get(b"key 00001").unwrap().is_none());
    let old = store.namespace("old").unwrap();
    assert_eq!(old.get(b"key 00001").unwrap().unwrap(), [1; 100]);
}

/// Whether a namespace is there again that was dropped, flushed, and met a power cut.
fn comes_back(changes: &[(&str, &str)]) -> bool {
    let disk = SimulatedDisk::new(1);
    let store = create(&disk, changes);
    fill(&*store.namespace("people").unwrap(), 20);
    store.drop_namespace("people").unwrap();
    // The log with the drop is behind the head.
    store.compact(&CompactOptions::default(), &()).unwrap();
    let disk = disk.crash(CrashStyle::NothingUnsynced, 1);
    let store = open(&disk, changes);
    store.list_namespaces().unwrap().len() > 1
}

#[test]
fn a_dropped_namespace_stays_away_after_a_crash() {
    assert!(!comes_back(&[]));
    let bug = ("seeded_bug", "namespace_drop_unnoted");
    assert!(comes_back(&[bug]), "not found");
}
