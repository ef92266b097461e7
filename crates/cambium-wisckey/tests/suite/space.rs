//! The space of deleted entries comes back without further writes.

use std::path::Path;
use std::sync::Arc;

use cambium_api::{Durability, Engine, EngineKind, KeyRange, OptionValues};
use cambium_io::simulated::SimulatedDisk;
use cambium_io::{Environment, FileKind, FileSystem};
use cambium_testkit::stores;
use cambium_wisckey::Wisckey;

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
    let store = stores::create(&Wisckey, environment, options);
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
    let store = stores::open(&Wisckey, &environment, &options());
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

/// Large values that small ones replace, with a reopening before background work has its turn or
/// without; answers the bytes of log that are left.
fn left_of_large_values(is_reopened: bool, changes: &[(&str, &str)]) -> u64 {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let mut options = options();
    options.set("segment_bytes", "1MiB");
    changes
        .iter()
        .for_each(|(name, value)| _ = options.set(name, value));
    let mut store = stores::create(&Wisckey, &environment, &options);
    for bytes in [5_000, 100] {
        for number in 0..KEYS {
            let value = vec![number as u8; bytes];
            store
                .put(&key(number), &value, Durability::Written)
                .unwrap();
        }
        if bytes > 100 {
            idle(&*store);
            assert!(log_bytes(&*store) > KEYS * 5_000);
        }
    }
    if is_reopened {
        store.close().unwrap();
        store = stores::open(&Wisckey, &environment, &options);
    }
    idle(&*store);
    for number in 0..KEYS {
        let found = store.get(&key(number)).unwrap();
        assert_eq!(found.unwrap(), vec![number as u8; 100]);
    }
    log_bytes(&*store)
}

#[test]
fn large_values_that_small_ones_replaced_give_their_space_back_while_nobody_writes() {
    for is_reopened in [false, true] {
        let left = left_of_large_values(is_reopened, &[]);
        assert!(
            left < 2 << 20,
            "{left} bytes of log are left, {is_reopened}"
        );
    }
    let bug = ("seeded_bug", "deletes_rest");
    assert!(left_of_large_values(false, &[bug]) > 8 << 20, "not found");
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
    let mut store = stores::create(&Wisckey, &environment, &creation);
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
        store = stores::open(&Wisckey, &environment, &creation);
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

/// How the entries of a store are deleted.
#[derive(Clone, Copy, Debug)]
enum Deletes {
    OneByOne,
    AsOneRange,
    /// The upper half of the keys.
    HalfOfTheKeys,
}

/// Bytes that the file system has given to a store, but for those that it holds back.
fn disk_bytes(folder: &Path) -> u64 {
    let files = cambium_io::RealFileSystem;
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        // A file may go while this looks.
        let Some(metadata) = files.metadata(&entry.path()).unwrap() else {
            continue;
        };
        bytes += match metadata.kind {
            FileKind::Directory => disk_bytes(&entry.path()),
            _ if entry.file_name() == "reserve" => 0,
            _ => metadata.allocated,
        };
    }
    bytes
}

/// Fills a store of default options, with background threads, and deletes; answers bytes of
/// the disk before, and when a minute has passed or no more than `enough` are left.
fn left_on_the_disk(
    deletes: Deletes,
    (keys, value_bytes): (u64, usize),
    (is_reopened, is_written): (bool, bool),
    enough: u64,
) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let environment = Environment::real();
    let options = OptionValues::default();
    let mut store = Wisckey.create(&environment, &path, &options).unwrap();
    for number in 0..keys {
        let value = vec![number as u8; value_bytes];
        let key = key(number * 7919 % keys);
        store.put(&key, &value, Durability::Written).unwrap();
    }
    let filled = disk_bytes(&path);
    let half = KeyRange {
        from: Some(key(keys / 2)),
        to: None,
    };
    match deletes {
        Deletes::OneByOne => {
            for number in 0..keys {
                store.delete(&key(number), Durability::Written).unwrap();
            }
        }
        Deletes::AsOneRange => {
            _ = store
                .delete_range(KeyRange::all(), Durability::Written)
                .unwrap()
        }
        Deletes::HalfOfTheKeys => _ = store.delete_range(half, Durability::Written).unwrap(),
    }
    if is_reopened {
        store.close().unwrap();
        store = Wisckey.open(&environment, &path, &options, &()).unwrap();
    }
    let begun = std::time::Instant::now();
    while disk_bytes(&path) > enough && begun.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        if is_written {
            store.put(&key(0), &[7; 50], Durability::Written).unwrap();
        }
    }
    let left = disk_bytes(&path);
    store.close().unwrap();
    (filled, left)
}

type Shape = (u64, usize);
const SMALL_VALUES: Shape = (120_000, 100);
const VALUES_OF_THE_LOG: Shape = (20_000, 1000);
const LARGE_VALUES: Shape = (12, 2 << 20);

/// A store gives back what was deleted, but for little.
fn check_what_is_left(deletes: Deletes, shape: Shape, conditions: (bool, bool)) {
    let data = shape.0 * shape.1 as u64;
    let live = match deletes {
        Deletes::HalfOfTheKeys => data / 2,
        _ => 0,
    };
    // Garbage of less than a segment stays beside live values.
    let enough = match live {
        0 => 2 << 20,
        _ => live + (5 << 20),
    };
    let (filled, left) = left_on_the_disk(deletes, shape, conditions, enough);
    assert!(filled > data, "{filled}");
    assert!(left <= enough, "{deletes:?} {shape:?}: {left} of {filled}");
}

fn check_each_way(conditions: (bool, bool)) {
    for shape in [SMALL_VALUES, VALUES_OF_THE_LOG, LARGE_VALUES] {
        for deletes in [
            Deletes::OneByOne,
            Deletes::AsOneRange,
            Deletes::HalfOfTheKeys,
        ] {
            check_what_is_left(deletes, shape, conditions);
        }
    }
}

#[test]
fn a_store_left_alone_with_its_threads_gives_back_what_was_deleted_within_a_minute() {
    check_each_way((false, false));
}

#[test]
fn a_store_that_is_reopened_gives_back_what_was_deleted_within_a_minute() {
    check_each_way((true, false));
}

#[test]
fn a_store_that_is_written_a_little_gives_back_what_was_deleted_within_a_minute() {
    check_what_is_left(Deletes::HalfOfTheKeys, SMALL_VALUES, (false, true));
    check_what_is_left(Deletes::AsOneRange, VALUES_OF_THE_LOG, (false, true));
}
