//! Values that move while their keys are written again: a get answers the last put, at any
//! point of a collection.
//!
//! Writes come between any two small steps of background work, so jobs of the tree drop
//! entries while a collection holds their records in its window.

use std::path::Path;

use cambium_api::{Durability, Engine, EngineKind, OptionValues};
use cambium_io::Environment;
use cambium_io::simulated::{Generator, SimulatedDisk};
use cambium_testkit::stores;
use cambium_wisckey::Wisckey;

use crate::support::options_of;

const FOLDER: &str = "/store";
const KEYS: u64 = 300;

const SMALL: [(&str, &str); 9] = [
    ("block_bytes", "512"),
    ("segment_bytes", "16KiB"),
    ("replay_bytes", "4096"),
    ("preallocate_bytes", "4096"),
    ("inline_bytes", "0"),
    ("table_bytes", "4096"),
    ("table_block_bytes", "512"),
    ("level_base_bytes", "8192"),
    ("space_limit", "300"),
];

fn options(changes: &[(&str, &str)]) -> OptionValues {
    options_of(&SMALL, changes)
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn value(number: u64, version: u32) -> Vec<u8> {
    let mut value = format!("{number:06} {version:010}").into_bytes();
    value.resize(40 + number as usize % 32, b'v');
    value
}

/// The first key whose get does not answer its last version.
fn stale(store: &dyn Engine, versions: &[u32]) -> Option<String> {
    for (number, &version) in (0..).zip(versions) {
        let expected = value(number, version);
        let answer = store.get(&key(number));
        if !answer
            .as_ref()
            .is_ok_and(|found| found.as_deref() == Some(&expected))
        {
            return Some(format!("key {number}, last put {version}: {answer:?}"));
        }
    }
    None
}

/// Overwrites skewed keys, a small step of background work after each few.
fn first_stale(changes: &[(&str, &str)], seed: u64) -> Option<String> {
    let environment = Environment::simulated(&SimulatedDisk::new(seed), seed);
    let store = stores::create(&Wisckey, &environment, &options(changes));
    let mut random = Generator::new(seed);
    let mut versions = vec![0; KEYS as usize];
    for number in 0..KEYS {
        store
            .put(&key(number), &value(number, 0), Durability::Written)
            .unwrap();
    }
    for _ in 0..300 {
        for _ in 0..random.below(40) {
            let uniform = random.below(1 << 20) as f64 / (1 << 20) as f64;
            let number = (uniform.powi(4) * KEYS as f64) as usize;
            versions[number] += 1;
            let value = value(number as u64, versions[number]);
            store
                .put(&key(number as u64), &value, Durability::Written)
                .unwrap();
        }
        // Steps of one entry or record each, mostly: the tree compacts while a collection
        // reads. Now and then background work catches up, so that writers need not collect.
        let (steps, budget) = match random.below(16) {
            0 => (2000, 4096),
            _ => (random.below(170), 1),
        };
        for _ in 0..steps {
            store.step(budget).unwrap();
        }
        if let Some(found) = stale(&*store, &versions) {
            store.close().unwrap();
            let report = Wisckey
                .check(&environment, Path::new(FOLDER), &Default::default(), &())
                .unwrap();
            return Some(format!("{found}; sound by a check: {}", report.is_sound()));
        }
    }
    None
}

#[test]
fn gets_answer_the_last_put_while_values_move() {
    for seed in 0..3 {
        for policy in ["live", "tail"] {
            let found = first_stale(&[("collection", policy)], seed);
            assert_eq!(found, None, "seed {seed}, collection={policy}");
        }
    }
}

/// A collection that takes every value for live brings older ones back.
#[test]
fn stale_values_are_found() {
    let bug = ("seeded_bug", "collection_reinserts");
    assert!((0..30).any(|seed| first_stale(&[bug], seed).is_some()));
}
