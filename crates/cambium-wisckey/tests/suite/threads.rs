//! A synced write beside a flush whose sync fails, interleaved by a scheduler at every lock,
//! ordered atomic and file operation. The interleaving follows from the seed.

use std::path::Path;
use std::sync::Arc;

use cambium_api::{Durability, Engine, EngineKind, OptionValues};
use cambium_io::Environment;
use cambium_io::simulated::{
    CrashStyle, ErrorNumber, Fault, FaultRule, OperationClass, SimulatedDisk,
};
use cambium_io::sync::schedule::Schedule;
use cambium_io::sync::scheduler::run;
use cambium_io::sync::thread;
use cambium_testkit::stores;
use cambium_wisckey::Wisckey;

use crate::support::options_of;

const FOLDER: &str = "/store";

const SMALL: [(&str, &str); 9] = [
    ("block_bytes", "512"),
    ("segment_bytes", "4096"),
    ("replay_bytes", "2048"),
    ("preallocate_bytes", "4096"),
    ("inline_bytes", "0"),
    ("table_bytes", "2048"),
    ("table_block_bytes", "512"),
    ("level_base_bytes", "4096"),
    ("space_limit", "120"),
];

fn options(changes: &[(&str, &str)]) -> OptionValues {
    options_of(&SMALL, changes)
}

fn create(disk: &SimulatedDisk, seed: u64, changes: &[(&str, &str)]) -> Arc<dyn Engine> {
    let environment = Environment::simulated(disk, seed);
    stores::create(&Wisckey, &environment, &options(changes))
}

fn open(disk: &SimulatedDisk) -> cambium_api::Result<Arc<dyn Engine>> {
    let environment = Environment::simulated(disk, 99);
    Wisckey.open(&environment, Path::new(FOLDER), &options(&[]), &())
}

/// Runs a program under the interleaving of a seed.
fn scheduled<T: Send + 'static>(seed: u64, program: impl FnOnce() -> T + Send + 'static) -> T {
    run(Schedule::random(seed), program).outcome.unwrap()
}

/// The first complaint that some seed brings.
fn first_complaint(seeds: u64, one: impl Fn(u64) -> Option<String>) -> Option<String> {
    let mut complaints = (0..seeds)
        .filter_map(|seed| one(seed).map(|complaint| format!("seed {seed}: {complaint}")));
    complaints.next()
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:04}").into_bytes()
}

fn value(number: u64, version: u32) -> Vec<u8> {
    let mut value = format!("{number:04} {version:06}").into_bytes();
    value.resize(60 + number as usize % 32, b'v');
    value
}

fn put(store: &dyn Engine, number: u64, version: u32) -> cambium_api::Result<()> {
    let value = value(number, version);
    store
        .put(&key(number), &value, Durability::Written)
        .map(drop)
}

/// A flush and a synced write sync the same segments, and one of the syncs fails.
fn lost_after_a_failed_sync(changes: &[(&str, &str)], seed: u64) -> Option<String> {
    let disk = SimulatedDisk::new(seed);
    let store = create(&disk, seed, changes);
    for number in 0..60 {
        put(&*store, number, 0).unwrap();
    }
    let fault = match seed % 2 {
        0 => Fault::SyncDropsPages(ErrorNumber::InputOutput),
        _ => Fault::SyncKeepsPages(ErrorNumber::InputOutput),
    };
    disk.inject(FaultRule {
        class: OperationClass::Sync,
        nth: 1 + seed / 2 % 3,
        forever: false,
        fault,
    });
    let acknowledged = scheduled(seed, move || {
        let stepped = store.clone();
        let steps = thread::spawn(move || {
            for _ in 0..8 {
                _ = stepped.step(1 << 20);
            }
        });
        let put = store.put(b"synced", b"value", Durability::Synced);
        steps.join().unwrap();
        put.is_ok()
    });
    if !acknowledged {
        return None;
    }
    let found = open(&disk.crash(CrashStyle::NothingUnsynced, seed)).and_then(|store| {
        let last = store.get(&key(59))?;
        Ok((store.get(b"synced")?.is_some(), last.is_some()))
    });
    let is_there = found.as_ref().is_ok_and(|found| *found == (true, true));
    (!is_there).then(|| format!("a synced write was acknowledged, and reads {found:?}"))
}

#[test]
fn a_synced_write_is_refused_after_a_failed_sync_of_a_flush() {
    let complaint = first_complaint(600, |seed| lost_after_a_failed_sync(&[], seed));
    assert_eq!(complaint, None);
}

#[test]
fn a_synced_write_that_misses_the_failed_sync_is_found() {
    let bug = [("seeded_bug", "failed_sync_missed")];
    let complaint = first_complaint(600, |seed| lost_after_a_failed_sync(&bug, seed));
    assert!(complaint.is_some(), "not found");
}
