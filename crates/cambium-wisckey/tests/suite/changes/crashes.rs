//! Crash images: what a feed showed as synced is there afterwards.

use std::path::Path;

use cambium_api::{ChangeBatch, ChangeOptions, EngineKind};
use cambium_io::Environment;
use cambium_io::simulated::{CrashStyle, SimulatedDisk};
use cambium_wisckey::Wisckey;

use super::support::*;

/// Follows a store through power cuts; what a feed of synced batches showed and a recovery
/// took back, or another feed misses.
pub fn taken_back_by_crashes(seed: u64, bug: &[(&str, &str)]) -> Option<String> {
    const SYNCED: ChangeOptions = ChangeOptions { synced_only: true };
    let options = tiny(bug);
    let mut disk = SimulatedDisk::new(seed);
    let mut store = create(&Environment::simulated(&disk, seed), &options);
    store.move_consumer("all", Some(FROM_THE_START)).unwrap();
    let mut writing = Writing::new(seed);
    let mut shown: Vec<ChangeBatch> = Vec::new();
    for opening in 0..6 {
        let position = shown.last().map_or(FROM_THE_START, |batch| batch.last);
        let mut synced = store.changes(position, SYNCED).unwrap();
        let mut followed = changes_after(&*store, FROM_THE_START);
        let mut following = feed(&*store, followed.last().map_or(FROM_THE_START, |b| b.last));
        for _ in 0..writing.random.below(60) {
            writing.write(&*store);
            if writing.random.chance(1, 3) {
                _ = store.step(1 << 20).unwrap();
            }
            if writing.random.chance(1, 3) {
                shown.extend(drain(&mut *synced));
                followed.extend(drain(&mut *following));
            }
        }
        followed.extend(drain(&mut *following));
        is_in_order(&followed);
        // Batches that were synced when they were shown are the start of all.
        let promised = followed.iter().take_while(|batch| batch.synced).count();
        let style = *writing.random.pick(&[
            CrashStyle::NothingUnsynced,
            CrashStyle::Prefix,
            CrashStyle::Sectors,
            CrashStyle::Mixed,
        ]);
        disk = match writing.random.chance(1, 5) {
            true => disk.process_crash(),
            false => disk.crash(style, seed * 10 + opening),
        };
        let environment = Environment::simulated(&disk, seed + opening);
        let read_only = Wisckey.open_read_only(&environment, Path::new(FOLDER), &options, &());
        let read_only = changes_after(&*read_only.unwrap(), FROM_THE_START);
        store = open(&environment, &options);
        let all = changes_after(&*store, FROM_THE_START);
        is_in_order(&all);
        assert!(lead_to(&all, &*store));
        let same = |one: &ChangeBatch, other: &ChangeBatch| {
            (one.first, one.last) == (other.first, other.last) && one.changes == other.changes
        };
        for (what, batches) in [("synced", &shown[..]), ("marked", &followed[..promised])] {
            let found = all.iter().zip(batches).filter(|(a, b)| same(a, b)).count();
            if found < batches.len() {
                return Some(format!(
                    "opening {opening}: {found} of {} {what} batches are left",
                    batches.len()
                ));
            }
        }
        assert!(all.len() <= followed.len() && all.iter().all(|batch| batch.synced));
        assert_eq!(read_only.len(), all.len());
        assert!(all.iter().zip(&read_only).all(|(a, b)| same(a, b)));
    }
    None
}

#[test]
fn no_crash_takes_back_what_a_feed_of_synced_batches_showed() {
    for seed in 0..150 {
        assert_eq!(taken_back_by_crashes(seed, &[]), None, "seed {seed}");
    }
    for seed in 0..50 {
        let holes = [("hole_bytes", "1"), ("segment_bytes", "16KiB")];
        assert_eq!(taken_back_by_crashes(seed, &holes), None, "seed {seed}");
    }
}
