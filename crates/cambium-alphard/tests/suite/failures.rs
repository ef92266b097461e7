//! Disks that are full or fail, at chosen moments: what is answered, what stays, and what a
//! later opening may believe.

use std::path::Path;
use std::sync::Arc;

use cambium_alphard::Alphard;
use cambium_api::{CompactOptions, Durability, Engine, EngineKind, Error, OptionValues, Result};
use cambium_io::simulated::{
    CrashStyle, ErrorNumber, Fault, FaultRule, OperationClass, SimulatedDisk,
};
use cambium_io::{Environment, OpenOptions};
use cambium_testkit::stores::{self, entries as contents};

const PATH: &str = "/store";
const BY_HAND: [(&str, &str); 2] = [("io", "sync"), ("zero_ahead", "off")];

fn create(disk: &SimulatedDisk, pairs: &[(&str, &str)]) -> Arc<dyn Engine> {
    let environment = Environment::simulated(disk, 1);
    let options = stores::options(&[&[("size", "1MiB")], &BY_HAND, pairs]);
    stores::create(&Alphard, &environment, &options)
}

fn open(disk: &SimulatedDisk, pairs: &[(&str, &str)]) -> Result<Arc<dyn Engine>> {
    let environment = Environment::simulated(disk, 2);
    let options = stores::options(&[&BY_HAND, pairs]);
    Alphard.open(&environment, Path::new(PATH), &options, &())
}

fn fail_next(disk: &SimulatedDisk, class: OperationClass, fault: Fault) {
    disk.inject(FaultRule {
        class,
        nth: 1,
        forever: false,
        fault,
    });
}

/// A put on a disk whose free space is as large as what the store holds: all entries were
/// discarded, and what was free on the disk is taken.
fn put_to_full_disk_with_holes(bug: &[(&str, &str)]) -> (SimulatedDisk, Arc<dyn Engine>, Error) {
    let disk = SimulatedDisk::new(1);
    let discarding = [("discard_bytes", "4096"), ("block_bytes", "4096")];
    let store = create(&disk, &[&discarding[..], bug].concat());
    for key in 0..110u8 {
        store.put(&[key], &[key; 8000], Durability::Synced).unwrap();
    }
    for key in 0..109u8 {
        store.delete(&[key], Durability::Synced).unwrap();
    }
    for _ in 0..4 {
        store.compact(&CompactOptions::default(), &()).unwrap();
    }
    disk.set_capacity(Some(disk.used_bytes()));
    let mut puts = (0..109u8).map(|key| store.put(&[key], &[9; 8000], Durability::Synced));
    let refused = puts.find_map(Result::err);
    (disk, store, refused.unwrap())
}

#[test]
fn a_write_that_finds_no_space_for_a_hole_changes_nothing() {
    let (disk, store, refused) = put_to_full_disk_with_holes(&[]);
    assert!(refused.is_no_space(), "{refused}");
    let refused = store.put(&[109], &[9; 8000], Durability::Synced);
    assert!(refused.unwrap_err().is_no_space());
    let before = store.get(&[109]).unwrap().unwrap();
    assert_eq!(before[..], [109; 8000]);
    disk.set_capacity(None);
    store.put(&[109], &[9; 8000], Durability::Synced).unwrap();
    store.close().unwrap();
    let store = open(&disk, &[]).unwrap();
    assert_eq!(store.get(&[109]).unwrap().unwrap()[..], [9; 8000]);
}

#[test]
fn holes_whose_space_nobody_takes_are_found() {
    let (_, _, refused) = put_to_full_disk_with_holes(&[("seeded_bug", "holes_unreserved")]);
    assert!(!refused.is_no_space(), "{refused}");
}

/// A sync fails, the pages of its writes stay in the cache as if they were on the device, the
/// store is opened again and written to, and then the power is cut. `left` is what the failed
/// sync was to make durable.
fn failed_sync_believed(
    bug: &[(&str, &str)],
    left: impl Fn(&dyn Engine),
) -> Result<(Arc<dyn Engine>, SimulatedDisk)> {
    let options = [&[("direct", "off")][..], bug].concat();
    let disk = SimulatedDisk::new(1);
    let store = create(&disk, &options);
    for key in 0..8u8 {
        store.put(&[key], &[key; 100], Durability::Synced).unwrap();
    }
    left(&*store);
    let keeps = Fault::SyncKeepsPages(ErrorNumber::InputOutput);
    fail_next(&disk, OperationClass::Sync, keeps);
    let failed = store.put(b"a", b"lost", Durability::Synced).unwrap_err();
    assert!(matches!(failed, Error::SyncFailed { .. }), "{failed}");
    assert!(store.close().is_err(), "it does not hold what it took");
    drop(store);
    let store = open(&disk, &options)?;
    store.put(b"b", b"there", Durability::Synced)?;
    let disk = disk.crash(CrashStyle::NothingUnsynced, 1);
    Ok((open(&disk, &options)?, disk))
}

fn nothing(_: &dyn Engine) {}

/// The same with a tombstone whose older entry was erased in the cache alone.
fn headers_erased_in_the_cache(store: &dyn Engine) {
    store.delete(&[3], Durability::Synced).unwrap();
}

#[test]
fn what_only_the_cache_holds_after_a_failed_sync_is_written_again() {
    for left in [nothing, headers_erased_in_the_cache] {
        let (store, _) = failed_sync_believed(&[], left).unwrap();
        assert_eq!(store.get(b"b").unwrap().unwrap()[..], b"there"[..]);
        for key in [0, 1, 2, 4, 5, 6, 7] {
            assert_eq!(store.get(&[key]).unwrap().unwrap()[..], [key; 100]);
        }
    }
}

#[test]
fn a_cache_that_is_believed_is_found() {
    let bug = [("seeded_bug", "cache_believed")];
    let opened = failed_sync_believed(&bug, nothing).map(|(store, _)| store.get(b"b"));
    assert!(!matches!(opened, Ok(Ok(Some(_)))), "{opened:?}");
}

/// A store of which two entries are damaged, and the last writes were not synced.
fn damaged() -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    let store = create(&disk, &[("block_bytes", "512"), ("size", "128KiB")]);
    for number in 0..40u8 {
        let key = [number % 30];
        store.put(&key, &[number; 9], Durability::Synced).unwrap();
    }
    for number in 40..46u8 {
        let key = [number % 3];
        store.put(&key, &[number; 9], Durability::Written).unwrap();
    }
    drop(store);
    let disk = disk.crash(CrashStyle::Everything, 1);
    let data = Path::new("/store/data");
    let image = disk.contents(data).unwrap();
    for value in [[20; 9], [25; 9]] {
        let found = image.windows(9).position(|bytes| bytes == value);
        assert!(disk.flip_bit(data, found.unwrap() as u64, 1));
    }
    disk
}

fn repair(disk: &SimulatedDisk, bug: &[(&str, &str)]) -> Result<usize> {
    let options = OptionValues::from(&[&[("io", "sync")][..], bug].concat()[..]);
    let environment = Environment::simulated(disk, 3);
    let report = Alphard.repair(&environment, Path::new(PATH), &options, &())?;
    Ok(report.findings.len())
}

/// Repairs that are killed at each of their operations, and done once more; what differs
/// from a repair that was not.
fn killed_repairs(bug: &[(&str, &str)]) -> Option<String> {
    let whole = damaged();
    assert!(repair(&whole, bug).unwrap() > 0);
    let expected = contents(&*open(&whole, &[]).unwrap());
    assert_eq!(expected.len(), 28);
    for nth in 1.. {
        let disk = damaged();
        let fault = Fault::Error(ErrorNumber::InputOutput);
        disk.inject(FaultRule {
            class: OperationClass::Any,
            nth,
            forever: true,
            fault,
        });
        let is_killed = repair(&disk, bug).is_err();
        for (style, seed) in [
            (CrashStyle::NothingUnsynced, 1),
            (CrashStyle::Everything, 1),
            (CrashStyle::Sectors, nth),
            (CrashStyle::Prefix, nth),
        ] {
            let left = disk.crash(style, seed);
            left.clear_faults();
            let found = repair(&left, &[])
                .and_then(|_| open(&left, &[]))
                .map(|store| contents(&*store));
            match found {
                Ok(found) if found == expected => {}
                other => return Some(format!("operation {nth}, {style:?}: {other:?}")),
            }
        }
        if !is_killed {
            assert!(nth > 10, "a repair has {nth} operations");
            break;
        }
    }
    None
}

#[test]
fn a_repair_can_be_killed_anywhere_and_done_again() {
    assert_eq!(killed_repairs(&[]), None);
}

#[test]
fn a_repair_that_erases_before_it_says_what_it_keeps_is_found() {
    assert!(killed_repairs(&[("seeded_bug", "repair_erases_first")]).is_some());
}

/// A store that was killed, and whose file was cut off among its entries: what is left is
/// whole for itself, so that only the file's length says that something is missing.
fn cut_off() -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    let store = create(&disk, &[("block_bytes", "512"), ("size", "128KiB")]);
    for number in 0..40u8 {
        store
            .put(&[number], &[number; 9], Durability::Synced)
            .unwrap();
    }
    drop(store);
    let disk = disk.crash(CrashStyle::Everything, 1);
    let files = Environment::simulated(&disk, 1).file_system;
    let data = files.open(Path::new("/store/data"), OpenOptions::WRITE);
    let data = data.unwrap();
    data.set_length(40 * 512).unwrap();
    data.sync_data().unwrap();
    disk
}

/// A repair makes the file as long as before. If the repair is killed then, an opening refuses
/// the store, and the next repair names the loss.
#[test]
fn a_repair_that_is_killed_does_not_hide_that_the_file_was_cut_off() {
    let styles = [
        CrashStyle::NothingUnsynced,
        CrashStyle::Everything,
        CrashStyle::Sectors,
        CrashStyle::Prefix,
    ];
    let mut silent = Vec::new();
    let mut nth = 1;
    loop {
        let disk = cut_off();
        disk.inject(FaultRule {
            class: OperationClass::Any,
            nth,
            forever: true,
            fault: Fault::Error(ErrorNumber::InputOutput),
        });
        if repair(&disk, &[]).is_ok() {
            break;
        }
        for style in styles {
            let left = disk.crash(style, nth);
            left.clear_faults();
            let is_opened = open(&left.fork(), &[]).is_ok();
            if repair(&left, &[]).unwrap() == 0 || is_opened {
                silent.push(nth);
            }
            assert_eq!(contents(&*open(&left, &[]).unwrap()).len(), 24);
        }
        nth += 1;
    }
    assert!(nth > 10, "a repair has {nth} operations");
    // The last operations take the note of the cut back: a write and a sync for each copy of
    // the superblock.
    silent.retain(|&killed| killed + 4 < nth);
    assert_eq!(silent, []);
}

/// Checks and repairs open the members as an opening does, also with `direct=off`, and refuse
/// unknown options.
#[test]
fn checks_and_repairs_take_the_options_of_an_opening() {
    let disk = cut_off();
    let environment = Environment::simulated(&disk, 4);
    let path = Path::new(PATH);
    let unknown = OptionValues::from([("dirct", "off")]);
    let checked = Alphard.check(&environment, path, &unknown, &());
    let repaired = Alphard.repair(&environment, path, &unknown, &());
    for error in [checked.unwrap_err(), repaired.unwrap_err()] {
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
    let buffered = OptionValues::from([("direct", "off"), ("io", "sync")]);
    let checked = Alphard.check(&environment, path, &buffered, &()).unwrap();
    assert!(!checked.is_sound());
    Alphard.repair(&environment, path, &buffered, &()).unwrap();
    let checked = Alphard.check(&environment, path, &buffered, &()).unwrap();
    assert!(checked.is_sound(), "{checked:?}");
}
