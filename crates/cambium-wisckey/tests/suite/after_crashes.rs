//! What an opening after a crash promises beside the state that it finds: numbers
//! that are never given twice, a store that a full disk does not lock up, and segments
//! that the manifest names although nobody writes before the close.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{Durability, Engine, EngineKind, OptionValues};
use cambium_io::simulated::{CrashStyle, SimulatedDisk};
use cambium_io::{Environment, StepOutcome};
use cambium_testkit::golden::contents;
use cambium_wisckey::Wisckey;
use cambium_wisckey::seeded_bug::SeededBug;

const FOLDER: &str = "/store";

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn small() -> OptionValues {
    OptionValues::from([
        ("segment_bytes", "16KiB"),
        ("replay_bytes", "64KiB"),
        ("preallocate_bytes", "4096"),
        ("inline_bytes", "8"),
        ("table_bytes", "4096"),
        ("level_base_bytes", "8192"),
        // What is done without one; `tests/reserve.rs` has one.
        ("reserve_bytes", "0"),
    ])
}

fn open(disk: &SimulatedDisk, seed: u64, options: &OptionValues) -> Arc<dyn Engine> {
    let environment = Environment::simulated(disk, seed);
    let folder = Path::new(FOLDER);
    Wisckey.open(&environment, folder, options, &()).unwrap()
}

/// The number of a write that a power cut lost, and of the first one after it.
fn numbers_around_a_crash(bug: Option<&str>) -> (u64, u64) {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let folder = Path::new(FOLDER);
    let store = Wisckey.create(&environment, folder, &small()).unwrap();
    store.put(b"a", b"kept", Durability::Synced).unwrap();
    let lost = store.put(b"a", b"lost", Durability::Written).unwrap();
    let disk = disk.crash(CrashStyle::NothingUnsynced, 1);
    let mut options = small();
    if let Some(bug) = bug {
        options.set("seeded_bug", bug);
    }
    let store = open(&disk, 2, &options);
    assert_eq!(store.get(b"a").unwrap().unwrap(), b"kept");
    let given = store.put(b"b", b"new", Durability::Written).unwrap();
    (lost.0, given.0)
}

#[test]
fn numbers_are_not_given_twice_after_a_crash() {
    let (lost, given) = numbers_around_a_crash(None);
    assert!(given > lost, "{given} after {lost}");
    let named = |(bug, _): &&(SeededBug, &str)| *bug == SeededBug::EpochReused;
    let (_, name) = SeededBug::ALL.iter().find(named).unwrap();
    let (lost, given) = numbers_around_a_crash(Some(name));
    assert!(given <= lost, "the seeded bug would not be found");
}

/// A store that was not closed, and what must be in it: tables and a log behind
/// them, synced to a point and written beyond.
fn crashed(style: Option<CrashStyle>) -> (SimulatedDisk, State) {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let folder = Path::new(FOLDER);
    let store = Wisckey.create(&environment, folder, &small()).unwrap();
    let mut state = State::new();
    for number in 0..900u32 {
        let key = (number % 700).to_be_bytes().to_vec();
        let value = vec![number as u8; 100 + number as usize % 50];
        store.put(&key, &value, Durability::Written).unwrap();
        state.insert(key, value);
        while number % 100 == 0 && store.step(1 << 20).unwrap() == StepOutcome::Again {}
    }
    let disk = match style {
        None => disk.process_crash(),
        Some(style) => {
            store.sync().unwrap();
            store.put(b"x", &[1; 500], Durability::Written).unwrap();
            disk.crash(style, 7)
        }
    };
    (disk, state)
}

fn is_there(store: &dyn Engine, state: &State) {
    let found = contents(store);
    let expected = state
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()));
    assert!(found.into_iter().eq(expected), "entries differ");
    let keys: Vec<&[u8]> = state.keys().map(Vec::as_slice).collect();
    let values = store.multi_get(&keys).unwrap();
    assert!(values.iter().all(Option::is_some));
    assert_eq!(store.get(keys[0]).unwrap().unwrap(), state[keys[0]]);
}

#[test]
fn a_crashed_store_on_a_full_disk_opens_for_reading_and_for_writing_once_there_is_room() {
    let mut refused = 0;
    for style in [None, Some(CrashStyle::NothingUnsynced)] {
        let (crashed, state) = crashed(style);
        // From no room at all up to where recovery finds what it needs.
        for room in (0..20).map(|chunks| chunks * 4096) {
            let mut disk = crashed.fork();
            disk.set_capacity(Some(disk.used_bytes() + room));
            // Opened, killed and opened again: every recovery is whole.
            for seed in 2..5 {
                let store = open(&disk, seed, &small());
                is_there(&*store, &state);
                drop(store);
                disk = disk.process_crash();
            }
            let store = open(&disk, 5, &small());
            let mut expected = state.clone();
            match store.put(b"new", &[7; 9000], Durability::Synced) {
                Ok(_) => _ = expected.insert(b"new".to_vec(), vec![7; 9000]),
                Err(error) => {
                    assert!(error.is_no_space(), "{error}");
                    refused += 1;
                }
            }
            is_there(&*store, &expected);
            disk.set_capacity(None);
            store.put(b"new", &[8; 9000], Durability::Synced).unwrap();
            expected.insert(b"new".to_vec(), vec![8; 9000]);
            while store.step(1 << 20).unwrap() == StepOutcome::Again {}
            is_there(&*store, &expected);
            store.close().unwrap();
            drop(store);
            let environment = Environment::simulated(&disk, 6);
            let report = Wisckey
                .check(&environment, Path::new(FOLDER), &Default::default(), &())
                .unwrap();
            assert!(report.is_sound(), "{report:?}");
            is_there(&*open(&disk, 7, &small()), &expected);
        }
    }
    assert!(refused > 4, "the disk was hardly ever full: {refused}");
}

#[test]
fn a_store_that_a_full_disk_left_read_only_closes_and_opens_again() {
    let (disk, state) = crashed(None);
    disk.set_capacity(Some(disk.used_bytes()));
    for seed in 2..5 {
        let store = open(&disk, seed, &small());
        is_there(&*store, &state);
        store.close().unwrap();
    }
    disk.set_capacity(None);
    let store = open(&disk, 5, &small());
    store.put(b"new", b"value", Durability::Synced).unwrap();
    store.close().unwrap();
    assert_eq!(contents(&*open(&disk, 6, &small())).len(), state.len() + 1);
}

/// Opens a store that is half garbage, has its values moved, writes nothing and closes it.
/// Answers what a check says then. `closes`: how often the store was opened and closed before
/// that, which leaves a clean store with a log that has no segment yet.
fn check_after_moves_and_a_close(closes: u64, bug: Option<&str>) -> (SimulatedDisk, State, bool) {
    let mut still = small();
    still.set("collection", "off");
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let folder = Path::new(FOLDER);
    let store = Wisckey.create(&environment, folder, &still).unwrap();
    let mut state = State::new();
    for number in 0..3000u32 {
        // Every other key again and again: each segment keeps a part that is live.
        let key = if number % 2 == 0 { number } else { number % 64 };
        let (key, value) = (key.to_be_bytes().to_vec(), vec![number as u8; 120]);
        store.put(&key, &value, Durability::Written).unwrap();
        state.insert(key, value);
        while number % 100 == 0 && store.step(1 << 20).unwrap() == StepOutcome::Again {}
    }
    let disk = disk.process_crash();
    for seed in 0..closes {
        open(&disk, 2 + seed, &still).close().unwrap();
    }
    let mut live = small();
    if let Some(bug) = bug {
        live.set("seeded_bug", bug);
    }
    let store = open(&disk, 8, &live);
    let moved = || store.stats().unwrap().number("collection_bytes_written");
    let before = moved();
    // Up to the first moved values: later steps seal the write buffer, and begin a segment
    // of the log.
    while moved() == before && store.step(1 << 20).unwrap() == StepOutcome::Again {}
    assert!(moved() > before, "nothing was moved");
    store.close().unwrap();
    let environment = Environment::simulated(&disk, 9);
    let report = Wisckey
        .check(&environment, folder, &Default::default(), &())
        .unwrap();
    (disk, state, report.is_sound())
}

#[test]
fn a_close_without_a_write_notes_where_values_were_moved() {
    for closes in 0..3 {
        let (disk, state, sound) = check_after_moves_and_a_close(closes, None);
        assert!(sound, "after {closes} closes");
        for seed in 10..12 {
            let store = open(&disk, seed, &small());
            is_there(&*store, &state);
            while store.step(1 << 20).unwrap() == StepOutcome::Again {}
            is_there(&*store, &state);
            store.close().unwrap();
        }
        let (_, _, sound) = check_after_moves_and_a_close(closes, Some("close_unnoted"));
        assert!(
            !sound,
            "after {closes} closes: the seeded bug would not be found"
        );
    }
}
