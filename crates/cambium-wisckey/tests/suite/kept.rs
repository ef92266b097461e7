//! Stretches of the value log that are kept in memory: that reads are answered from
//! them, and only with what is there to be read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    CompactOptions, Direction, Durability, Engine, EngineKind, KeyRange, OptionValues, Reader,
};
use cambium_io::Environment;
use cambium_wisckey::Wisckey;

const KEYS: u64 = 3_000;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(number: u64) -> Vec<u8> {
    // Multiplied by an odd number: each key once, in no order.
    let spread = number.wrapping_mul(0x9e37_79b1) % (1 << 32);
    spread.to_be_bytes().to_vec()
}

/// A value that tells its writes apart, of any length up to some records in a unit.
fn value(number: u64, write: u64) -> Vec<u8> {
    let mut value = format!("{number} written {write} times ").into_bytes();
    value.resize(100 + (number * 37 % 1500) as usize, write as u8);
    value
}

fn put(store: &dyn Engine, state: &mut State, number: u64, write: u64) {
    let (key, value) = (key(number), value(number, write));
    store.put(&key, &value, Durability::Written).unwrap();
    state.insert(key, value);
}

/// On a real file system: one in memory never has two blocks side by side at hand.
fn filled(folder: &Path, cache: &str) -> (Arc<dyn Engine>, State) {
    let options = OptionValues::from([
        ("segment_bytes", "256KiB"),
        ("cache_bytes", cache),
        ("inline_bytes", "64"),
    ]);
    let environment = Environment::real();
    let store = Wisckey.create(&environment, folder, &options).unwrap();
    let mut state = State::new();
    for number in 0..KEYS {
        put(&*store, &mut state, number, 0);
    }
    (store, state)
}

fn compact(store: &dyn Engine) {
    store.compact(&CompactOptions::default(), &()).unwrap();
}

fn value_reads(store: &dyn Engine) -> u64 {
    store.stats().unwrap().number("value_reads").unwrap()
}

/// Everything, and from several keys on, forward and backward, is as expected.
fn check(reader: &dyn Reader, state: &State) {
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut cursor = reader.scan(&KeyRange::all(), direction).unwrap();
        let mut expected: Vec<_> = state.iter().collect();
        if direction == Direction::Reverse {
            expected.reverse();
        }
        for (key, value) in expected {
            let entry = cursor.next().unwrap().unwrap();
            assert_eq!((&*entry.key, &*entry.value), (&key[..], &value[..]));
        }
        assert!(cursor.next().unwrap().is_none());
    }
    for from in state.keys().step_by(97) {
        let range = KeyRange {
            from: Some(from.clone()),
            to: None,
        };
        let mut cursor = reader.scan(&range, Direction::Forward).unwrap();
        for (key, value) in state.range(from.clone()..).take(20) {
            let entry = cursor.next().unwrap().unwrap();
            assert_eq!((&*entry.key, &*entry.value), (&key[..], &value[..]));
        }
    }
    for (key, value) in state.iter().step_by(7) {
        assert_eq!(reader.get(key).unwrap().unwrap(), value[..]);
    }
}

#[test]
fn what_is_asked_for_again_and_again_is_read_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let (store, state) = filled(&folder.path().join("store"), "32MiB");
    compact(&*store);
    let mut reads = Vec::new();
    for _ in 0..6 {
        let before = value_reads(&*store);
        check(&*store, &state);
        reads.push(value_reads(&*store) - before);
    }
    // What begins before the first whole record of a unit is read.
    assert!(reads[5] * 20 < reads[0], "{reads:?}");
    store.close().unwrap();
}

#[test]
fn what_lookups_ask_for_again_is_read_no_more_where_there_is_room_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let (store, state) = filled(&folder.path().join("store"), "32MiB");
    // Out of the log's buffer, and its window.
    store.sync().unwrap();
    let look_up_all = || {
        let before = value_reads(&*store);
        for (key, value) in &state {
            assert_eq!(&store.get(key).unwrap().unwrap(), value);
        }
        value_reads(&*store) - before
    };
    let first = look_up_all();
    assert!(first > KEYS / 4, "{first}");
    // A read that comes to an earlier record of a unit makes what is kept of it longer.
    (0..30).for_each(|_| _ = look_up_all());
    let last = look_up_all();
    assert!(last < KEYS / 100, "{last} of {first}");
}

#[test]
fn a_check_reads_the_log_whatever_is_kept_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let (store, state) = filled(&path, "32MiB");
    compact(&*store);
    for _ in 0..4 {
        check(&*store, &state);
    }
    assert!(store.check(&()).unwrap().is_sound());
    // A bit in the middle of each segment is another.
    for entry in std::fs::read_dir(&path).unwrap() {
        let segment = entry.unwrap().path();
        if segment.extension().is_some_and(|name| name == "values") {
            let mut bytes = std::fs::read(&segment).unwrap();
            let middle = bytes.len() / 4;
            bytes[middle] ^= 1;
            std::fs::write(&segment, bytes).unwrap();
        }
    }
    assert!(!store.check(&()).unwrap().is_sound());
    store.close().unwrap();
}

#[test]
fn nothing_is_kept_where_the_cache_is_off() {
    let folder = tempfile::tempdir().unwrap();
    let (store, state) = filled(&folder.path().join("store"), "0");
    compact(&*store);
    let mut reads = Vec::new();
    for _ in 0..4 {
        let before = value_reads(&*store);
        check(&*store, &state);
        reads.push(value_reads(&*store) - before);
    }
    assert_eq!(reads[3], reads[1], "{reads:?}");
    store.close().unwrap();
}

#[test]
fn kept_values_give_way_to_later_writes_and_stay_for_snapshots() {
    for cache in ["32MiB", "256KiB"] {
        let folder = tempfile::tempdir().unwrap();
        let (store, mut state) = filled(&folder.path().join("store"), cache);
        compact(&*store);
        for write in 1..6 {
            check(&*store, &state);
            check(&*store, &state);
            let snapshot = store.snapshot().unwrap();
            let seen = state.clone();
            for number in 0..KEYS {
                let chosen = number.wrapping_mul(write * 2 + 1) % KEYS;
                match number % 11 {
                    0 => {
                        store.delete(&key(chosen), Durability::Written).unwrap();
                        state.remove(&key(chosen));
                    }
                    1..=4 => put(&*store, &mut state, chosen, write),
                    _ => {}
                }
            }
            check(&*store, &state);
            // Segments are collected and dropped, and values move.
            compact(&*store);
            check(&*store, &state);
            check(&*snapshot, &seen);
        }
        store.close().unwrap();
    }
}
