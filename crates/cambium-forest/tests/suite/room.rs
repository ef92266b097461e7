//! Room on the disk: a compaction takes no more than the statistics said beforehand, and a
//! store that has filled its disk opens, deletes, and gives space back.

use std::path::Path;
use std::sync::Arc;

use crate::support::{Model, contents, options};
use cambium_api::{CompactOptions, Durability, Engine, EngineKind};
use cambium_forest::Forest;
use cambium_io::simulated::{CrashStyle, SimulatedDisk};
use cambium_io::{Environment, StepOutcome};

const KEYS: u64 = 3_000;

/// A store whose keys were written in no order, a third of them twice.
fn fill(store: &dyn Engine) {
    for number in 0..KEYS * 4 / 3 {
        let key = (number * 7_919 % KEYS).to_be_bytes();
        let value = vec![number as u8; 1000];
        store.put(&key, &value, Durability::Written).unwrap();
    }
}

/// The less memory, the more often the right edge of the index is written again.
#[test]
fn what_is_said_is_enough_however_little_memory_there_is() {
    for memory in ["4KiB", "16KiB", "256KiB", "64MiB"] {
        let environment = Environment::memory();
        let tuning = [
            ("compaction_threshold", "100"),
            ("preallocate_bytes", "4096"),
            ("segment_bytes", "16KiB"),
            ("compaction_memory_bytes", memory),
        ];
        let store = Forest
            .create(&environment, Path::new("/store"), &options(&tuning))
            .unwrap();
        fill(&*store);
        // So that what is buffered is not counted beside what is live.
        store.create_named_snapshot("flushes").unwrap();
        store.drop_named_snapshot("flushes").unwrap();
        let said = store.stats().unwrap().number("compaction_needs_bytes");
        let said = said.unwrap();
        let report = store.compact(&CompactOptions::default(), &()).unwrap();
        let taken = report.bytes_written;
        assert!(taken <= said, "{memory}: {taken} taken, {said} said");
        assert!(
            said <= 4 * taken,
            "{memory}: {said} said, and {taken} taken"
        );
    }
}

const CAPACITY: u64 = 8 << 20;
const SMALL: [(&str, &str); 2] = [
    ("compaction_least_bytes", "256KiB"),
    ("segment_bytes", "512KiB"),
];

fn open(environment: &Environment) -> Arc<dyn Engine> {
    Forest
        .open(environment, Path::new("/store"), &options(&SMALL), &())
        .unwrap()
}

/// Puts values of 1,000 bytes until the disk is full.
fn fill_disk(store: &dyn Engine, model: &mut Model, from: u64) {
    for number in from.. {
        let (key, value) = (number.to_be_bytes(), vec![number as u8; 1000]);
        match store.put(&key, &value, Durability::Written) {
            Ok(_) => _ = model.insert(key.to_vec(), value),
            Err(error) => {
                assert!(error.is_no_space(), "{error}");
                return;
            }
        }
    }
}

fn rest(store: &dyn Engine) {
    for _ in 0..2 {
        while store.step(1 << 20).unwrap() == StepOutcome::Again {}
    }
}

/// Everything is deleted but each tenth entry, while the background or calls of `compact` give
/// the space back, and the disk is filled again.
fn delete_and_fill_again(store: &dyn Engine, model: &mut Model, compacts: bool) {
    let all: Vec<Vec<u8>> = model.keys().cloned().collect();
    for (number, key) in all.iter().enumerate() {
        if number % 10 != 0 {
            if let Err(full) = store.delete(key, Durability::Written) {
                assert!(full.is_no_space(), "{full}");
                match compacts {
                    true => _ = store.compact(&CompactOptions::default(), &()).unwrap(),
                    false => rest(store),
                }
                store.delete(key, Durability::Written).unwrap();
            }
            model.remove(key);
        }
    }
    let before = model.len();
    // A put that is refused wakes the background.
    fill_disk(store, model, 1_000_000);
    rest(store);
    fill_disk(store, model, 2_000_000);
    assert!(
        model.len() - before > all.len() / 2,
        "{before} of {} entries were left, and {} came",
        all.len(),
        model.len() - before
    );
}

#[test]
fn a_store_that_has_filled_its_disk_opens_deletes_and_gives_space_back() {
    for (closes, compacts) in [(true, false), (false, false), (true, true), (false, true)] {
        let disk = SimulatedDisk::new(1);
        disk.set_capacity(Some(CAPACITY));
        let mut environment = Environment::simulated(&disk, 1);
        let store = Forest
            .create(&environment, Path::new("/store"), &options(&SMALL))
            .unwrap();
        let mut model = Model::new();
        fill_disk(&*store, &mut model, 0);
        if closes {
            store.close().unwrap();
        } else {
            // The process dies, and the operating system lives on.
            let image = disk.crash(CrashStyle::Everything, 7);
            image.set_capacity(Some(CAPACITY));
            environment = Environment::simulated(&image, 1);
        }
        drop(store);
        let store = open(&environment);
        assert_eq!(contents(&*store), model, "{closes} {compacts}");
        delete_and_fill_again(&*store, &mut model, compacts);
        assert_eq!(contents(&*store), model, "{closes} {compacts}");
        store.close().unwrap();
        let store = open(&environment);
        assert_eq!(contents(&*store), model, "{closes} {compacts}");
    }
}
