//! Sorting on request: what a compaction brings into the order of keys, what it
//! leaves alone, and what it must not touch.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    CompactOptions, CompactReport, Direction, Durability, Engine, EngineKind, Error, KeyRange,
    OptionValues, Progress, ProgressSink,
};
use cambium_io::Environment;
use cambium_io::simulated::SimulatedDisk;
use cambium_testkit::golden::contents;
use cambium_testkit::stores;
use cambium_wisckey::Wisckey;

use crate::support::number;

const KEYS: u64 = 2_000;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store of unique keys, written in no order.
fn scattered(environment: &Environment) -> (Arc<dyn Engine>, State) {
    let options = OptionValues::from([("segment_bytes", "64KiB"), ("inline_bytes", "8")]);
    let store = stores::create(&Wisckey, environment, &options);
    let mut state = State::new();
    for number in 0..KEYS {
        // Multiplied by an odd number: each key once.
        let key = (number.wrapping_mul(0x9e37_79b1) % (1 << 32)).to_be_bytes();
        let value = vec![number as u8; 300 + number as usize % 50];
        store.put(&key, &value, Durability::Written).unwrap();
        state.insert(key.to_vec(), value);
    }
    (store, state)
}

fn compact(store: &dyn Engine) -> CompactReport {
    store.compact(&CompactOptions::default(), &()).unwrap()
}

/// Reads of scans of 64 entries each, which must find what is expected.
fn reads_of_short_scans(store: &dyn Engine, state: &State) -> u64 {
    let before = number(store, "value_reads");
    let entries: Vec<_> = state.iter().collect();
    for expected in entries.chunks(64) {
        let range = KeyRange {
            from: Some(expected[0].0.clone()),
            to: None,
        };
        let mut cursor = store.scan(&range, Direction::Forward).unwrap();
        for (key, value) in expected {
            let entry = cursor.next().unwrap().unwrap();
            assert_eq!((&*entry.key, &*entry.value), (&key[..], &value[..]));
        }
    }
    number(store, "value_reads") - before
}

#[test]
fn a_compaction_sorts_what_was_written_in_no_order() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let (store, state) = scattered(&environment);
    let before = reads_of_short_scans(&*store, &state);
    assert!(before > KEYS / 2, "{before} reads");
    let space = number(&*store, "value_log_bytes");
    let report = compact(&*store);
    assert_eq!(report.documents, KEYS);
    let reads = reads_of_short_scans(&*store, &state);
    assert!(reads < KEYS / 12, "{reads} reads");
    // What the values came from is gone.
    let now = number(&*store, "value_log_bytes");
    assert!(now <= space + space / 4, "{now} bytes after {space}");
    assert_eq!(compact(&*store).documents, 0, "sorted values were moved");
    store.close().unwrap();
    drop(store);
    let folder = Path::new("/store");
    let report = Wisckey
        .check(&environment, folder, &Default::default(), &())
        .unwrap();
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn a_snapshot_and_a_cursor_outlive_the_sorting_of_their_values() {
    let environment = Environment::simulated(&SimulatedDisk::new(2), 2);
    let (store, state) = scattered(&environment);
    let snapshot = store.snapshot().unwrap();
    let (key, value) = state.iter().nth(7).unwrap();
    let all = KeyRange::all();
    let mut cursor = store.scan(&all, Direction::Forward).unwrap();
    assert_eq!(
        cursor.next().unwrap().unwrap().value,
        *state.values().next().unwrap()
    );
    store
        .put(key, b"another value, and a longer one", Durability::Written)
        .unwrap();
    compact(&*store);
    assert_eq!(snapshot.get(key).unwrap().unwrap(), *value);
    for (key, value) in state.iter().skip(1) {
        let entry = cursor.next().unwrap().unwrap();
        assert_eq!((&*entry.key, &*entry.value), (&key[..], &value[..]));
    }
    drop(cursor);
    drop(snapshot);
    compact(&*store);
    assert_eq!(contents(&*store).len(), state.len());
}

/// Cancels a compaction that has sorted.
struct CancelBehind<'a>(&'a dyn Engine);

impl ProgressSink for CancelBehind<'_> {
    fn report(&self, progress: Progress) {
        if progress.phase == "collect" {
            self.0.cancel();
        }
    }
}

/// A cursor at its first entry, while the values behind it move and what they leave
/// becomes holes; answers what stopped it.
fn walk_over_holes(bug: Option<&str>) -> Result<(), Error> {
    let environment = Environment::simulated(&SimulatedDisk::new(4), 4);
    let mut options = OptionValues::from([
        ("block_bytes", "512"),
        ("segment_bytes", "64KiB"),
        ("hole_bytes", "512"),
    ]);
    if let Some(bug) = bug {
        options.set("seeded_bug", bug);
    }
    let folder = Path::new("/store");
    let store = Wisckey.create(&environment, folder, &options).unwrap();
    let (mut state, value) = (State::new(), vec![7; 3_000]);
    for number in 0..500u64 {
        let key = (number.wrapping_mul(0x9e37_79b1) % (1 << 32)).to_be_bytes();
        store.put(&key, &value, Durability::Written).unwrap();
        state.insert(key.to_vec(), value.clone());
    }
    let all = KeyRange::all();
    let mut cursor = store.scan(&all, Direction::Forward).unwrap();
    cursor.next().unwrap().unwrap();
    // What the cursor alone sees keeps its segment, and holes are made around it.
    for key in state.keys().step_by(5) {
        store
            .put(key, b"written again", Durability::Written)
            .unwrap();
    }
    // Sorted, and cancelled before the segments that values left are collected.
    let cancelled = store.compact(&CompactOptions::default(), &CancelBehind(&*store));
    assert!(matches!(cancelled, Err(Error::Cancelled)), "{cancelled:?}");
    for _ in 0..4 {
        store.step(1).unwrap();
    }
    for (key, value) in state.iter().skip(1) {
        let entry = cursor.next()?.unwrap();
        assert_eq!((&*entry.key, &*entry.value), (&key[..], &value[..]));
    }
    drop(cursor);
    compact(&*store);
    assert!(contents(&*store).len() == state.len());
    Ok(())
}

#[test]
fn holes_wait_for_the_cursors_that_may_be_led_there() {
    walk_over_holes(None).unwrap();
    let error = walk_over_holes(Some("hole_under_pin")).unwrap_err();
    assert!(error.is_corruption(), "{error}");
}

#[test]
fn values_stay_where_they_are_without_room_for_all_of_them_twice() {
    let disk = SimulatedDisk::new(3);
    let environment = Environment::simulated(&disk, 3);
    let (store, state) = scattered(&environment);
    // Nothing else writes more than its tables take.
    disk.set_capacity(Some(disk.used_bytes() + (600 << 10)));
    assert_eq!(compact(&*store).documents, 0);
    disk.set_capacity(None);
    assert_eq!(compact(&*store).documents, KEYS);
    reads_of_short_scans(&*store, &state);
}
