//! Feeds before and after crashes.

use std::path::Path;

use cambium_api::{ChangeBatch, EngineKind, SequenceNumber};
use cambium_io::Environment;
use cambium_io::simulated::{CrashStyle, Generator, SimulatedDisk};
use cambium_zdb::Zdb;

use super::support::*;

/// Crashes everywhere: what a feed of synced batches showed stays, and the feed of the
/// recovered store shows what is in it and nothing else.
pub(super) fn crashed(setting: Setting, seed: u64) -> Outcome {
    let mut random = Generator::new(seed);
    let mut disk = SimulatedDisk::new(seed);
    let mut store = setting.create(&Environment::simulated(&disk, seed));
    text(store.move_consumer("test", Some(SequenceNumber::ZERO)))?;
    let mut shown: Vec<ChangeBatch> = Vec::new();
    for round in 0..6 {
        let at = shown.last().map_or(0, |batch| batch.last.0);
        let mut feed = text(store.changes(SequenceNumber(at), SYNCED))?;
        // Of entries that are synced in a commit log alone, a crash may leave any in the
        // data files. The fewer there are, the more of the entries each holds.
        let durabilities = &DURABILITIES[random.below(2) as usize * 2..];
        let drawn = (*random.pick(&[12, 300]), durabilities);
        for _ in 0..random.below(25) {
            write_random(&setting, &*store, &mut random, drawn)?;
            match random.below(12) {
                0 => compact(&*store)?,
                1 => _ = text(store.step(1 << 20))?,
                _ => shown.extend(drain(&mut *feed)?),
            }
        }
        disk = match random.chance(1, 4) {
            true => disk.process_crash(),
            false => disk.crash(CrashStyle::Mixed, random.next_u64()),
        };
        store = setting.open(&Environment::simulated(&disk, seed + round))?;
        let recovered = changes(&*store, 0)?;
        let known = recovered.get(..shown.len()).unwrap_or_default();
        if unmarked(known) != unmarked(&shown) {
            return Err("a crash took back what was shown as synced".to_string());
        }
        if recovered.iter().any(|batch| !batch.synced) {
            return Err("a recovered batch is not synced".to_string());
        }
        if !lead_to(&recovered, &*store) {
            return Err("the changes make other contents than recovery".to_string());
        }
        shown = recovered;
    }
    Ok(())
}

#[test]
fn a_feed_shows_nothing_that_recovery_drops() {
    for keys in KINDS {
        for seed in 1..=150 {
            let outcome = crashed(Setting::new(keys, true), seed);
            assert_eq!(outcome, Ok(()), "{keys} keys, seed {seed}");
        }
    }
}

#[test]
fn a_store_opened_for_reading_after_a_crash_shows_the_same_changes() {
    for keys in KINDS {
        let setting = Setting::new(keys, true);
        for seed in 1..=40 {
            let mut random = Generator::new(seed);
            let disk = SimulatedDisk::new(seed);
            let store = setting.create(&Environment::simulated(&disk, seed));
            store
                .move_consumer("test", Some(SequenceNumber::ZERO))
                .unwrap();
            for _ in 0..30 {
                write_random(&setting, &*store, &mut random, (300, &DURABILITIES)).unwrap();
            }
            let crashed = disk.crash(CrashStyle::Mixed, seed);
            let (folder, options) = (Path::new(PATH), setting.options());
            let environment = Environment::simulated(&crashed, seed);
            let reader = Zdb
                .open_read_only(&environment, folder, &options, &())
                .unwrap();
            let seen = changes(&*reader, 0).unwrap();
            reader.close().unwrap();
            let recovered = setting.open(&environment).unwrap();
            let recovered = changes(&*recovered, 0).unwrap();
            assert_eq!(
                unmarked(&seen),
                unmarked(&recovered),
                "{keys} keys, seed {seed}"
            );
        }
    }
}
