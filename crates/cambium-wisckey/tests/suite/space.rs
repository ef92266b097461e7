//! The space of deleted entries comes back without further writes.

use std::path::Path;
use std::sync::Arc;

use cambium_api::{Durability, Engine, EngineKind, KeyRange, OptionValues};
use cambium_io::Environment;
use cambium_io::simulated::SimulatedDisk;
use cambium_wisckey::Wisckey;

const FOLDER: &str = "/store";
const KEYS: u64 = 2000;

fn options() -> OptionValues {
    OptionValues::from([
        ("segment_bytes", "128KiB"),
        ("replay_bytes", "128KiB"),
        ("preallocate_bytes", "4096"),
        ("table_bytes", "4096"),
        ("level_base_bytes", "16384"),
    ])
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn filled(environment: &Environment) -> Arc<dyn Engine> {
    filled_with(environment, &options())
}

fn filled_with(environment: &Environment, options: &OptionValues) -> Arc<dyn Engine> {
    let store = Wisckey
        .create(environment, Path::new(FOLDER), options)
        .unwrap();
    for number in 0..KEYS {
        store
            .put(&key(number), &[number as u8; 500], Durability::Written)
            .unwrap();
    }
    idle(&*store);
    store
}

/// Takes steps as a background thread does of a store that is left alone.
fn idle(store: &dyn Engine) {
    for _ in 0..5_000 {
        store.step(1 << 20).unwrap();
    }
}

fn log_bytes(store: &dyn Engine) -> u64 {
    store.stats().unwrap().number("value_log_bytes").unwrap()
}

#[test]
fn a_deleted_range_gives_its_space_back_while_nobody_writes() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let store = filled(&environment);
    assert!(log_bytes(&*store) > KEYS * 500);
    store
        .delete_range(KeyRange::all(), Durability::Written)
        .unwrap();
    idle(&*store);
    let left = log_bytes(&*store);
    assert!(left < 256 << 10, "{left} bytes of log are left");
}

#[test]
fn single_deletes_give_their_space_back_while_nobody_writes() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let store = filled(&environment);
    for number in 0..KEYS {
        store.delete(&key(number), Durability::Written).unwrap();
    }
    idle(&*store);
    let left = log_bytes(&*store);
    assert!(left < 256 << 10, "{left} bytes of log are left");
}

#[test]
fn deletes_of_an_earlier_opening_give_their_space_back() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let store = filled(&environment);
    for number in 0..KEYS {
        store.delete(&key(number), Durability::Written).unwrap();
    }
    store.close().unwrap();
    let mut opening = options();
    opening.take("block_bytes");
    let store = Wisckey
        .open(&environment, Path::new(FOLDER), &opening, &())
        .unwrap();
    idle(&*store);
    let left = log_bytes(&*store);
    assert!(left < 256 << 10, "{left} bytes of log are left");
}

#[test]
fn deletes_that_keep_their_space_are_found() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let mut armed = options();
    armed.set("seeded_bug", "deletes_rest");
    let store = filled_with(&environment, &armed);
    store
        .delete_range(KeyRange::all(), Durability::Written)
        .unwrap();
    idle(&*store);
    assert!(log_bytes(&*store) > 256 << 10, "not found");
}

fn store_bytes(store: &dyn Engine) -> u64 {
    log_bytes(store) + store.stats().unwrap().number("tree_bytes").unwrap()
}

/// Puts values that lie in the tree, and deletes all; answers the bytes that are left, with
/// a reopening before background work has its turn or without.
fn left_of_inline_values(is_reopened: bool, by_range: bool, changes: &[(&str, &str)]) -> u64 {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let mut creation = options();
    changes
        .iter()
        .for_each(|(name, value)| _ = creation.set(name, value));
    let mut store = Wisckey
        .create(&environment, Path::new(FOLDER), &creation)
        .unwrap();
    for number in 0..KEYS {
        store
            .put(&key(number), &[number as u8; 100], Durability::Written)
            .unwrap();
    }
    idle(&*store);
    let filled = store_bytes(&*store);
    assert!(filled > KEYS * 100 && filled < KEYS * 180, "{filled}");
    if by_range {
        store
            .delete_range(KeyRange::all(), Durability::Written)
            .unwrap();
    } else {
        for number in 0..KEYS {
            store.delete(&key(number), Durability::Written).unwrap();
        }
    }
    if is_reopened {
        store.close().unwrap();
        store = Wisckey
            .open(&environment, Path::new(FOLDER), &creation, &())
            .unwrap();
    }
    idle(&*store);
    store_bytes(&*store)
}

#[test]
fn a_store_of_small_values_that_were_deleted_gives_everything_back() {
    for by_range in [false, true] {
        for is_reopened in [false, true] {
            let left = left_of_inline_values(is_reopened, by_range, &[]);
            assert!(
                left < 32 << 10,
                "{left} bytes left, {by_range} {is_reopened}"
            );
        }
    }
    let bug = ("seeded_bug", "deletes_rest");
    assert!(left_of_inline_values(false, true, &[bug]) > 32 << 10);
}

/// What a snapshot sees keeps its space, and idle steps do not rewrite it again and again.
#[test]
fn a_snapshot_keeps_what_was_deleted_and_costs_no_work() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let store = filled(&environment);
    let snapshot = store.snapshot().unwrap();
    store
        .delete_range(KeyRange::all(), Durability::Written)
        .unwrap();
    idle(&*store);
    let written = |store: &dyn Engine| store.stats().unwrap().number("tree_bytes_written");
    let before = written(&*store);
    idle(&*store);
    assert_eq!(written(&*store), before);
    assert!(snapshot.get(&key(5)).unwrap().is_some());
    drop(snapshot);
    idle(&*store);
    let left = log_bytes(&*store);
    assert!(left < 256 << 10, "{left} bytes of log are left");
}
