//! Versions of a key that a snapshot held go once it is gone, though nobody writes the key
//! again.

use cambium_base::Error;
use cambium_io::StepOutcome;
use cambium_io::simulated::{Generator, SimulatedDisk};

use crate::support::{World, tiny_options};

const KEYS: u8 = 5;
const ROUNDS: u64 = 6;

fn entries(world: &World) -> u64 {
    let levels = world.tree.statistics().levels;
    levels.iter().map(|level| level.entries).sum()
}

/// A tree in whose lowest level each key has a version for each round, held by moments.
fn with_versions() -> (World, Vec<u64>) {
    let mut generator = Generator::new(1);
    let mut world = World::create(SimulatedDisk::new(1), tiny_options(0));
    let mut moments = Vec::new();
    for _ in 0..ROUNDS {
        for key in 0..KEYS {
            world.put(&[b'k', key], &mut generator);
        }
        moments.push(world.pin());
        world.seal();
        world.tree.flush().unwrap();
    }
    world.tree.compact(&|| false).unwrap();
    assert_eq!(entries(&world), u64::from(KEYS) * ROUNDS);
    (world, moments)
}

fn keys() -> Vec<Vec<u8>> {
    (0..KEYS).map(|key| vec![b'k', key]).collect()
}

#[test]
fn a_compaction_drops_what_only_closed_snapshots_saw() {
    let (world, moments) = with_versions();
    let (last, others) = moments.split_last().unwrap();
    // All but one in the middle.
    for moment in others.iter().filter(|&&moment| moment != others[2]) {
        world.unpin(*moment);
    }
    world.tree.compact(&|| false).unwrap();
    assert_eq!(entries(&world), u64::from(KEYS) * 2);
    world.check_reads(others[2], &keys()).unwrap();
    world.unpin(others[2]);
    world.unpin(*last);
    world.tree.compact(&|| false).unwrap();
    assert_eq!(entries(&world), u64::from(KEYS));
    world.check_reads(u64::MAX, &keys()).unwrap();
}

#[test]
fn a_compaction_after_an_opening_drops_them_too() {
    let (world, _) = with_versions();
    let (disk, options, log) = (world.disk.clone(), world.options.clone(), world.log.clone());
    world.tree.close().unwrap();
    drop(world);
    let world = World::open(disk, options, &log).unwrap();
    world.tree.compact(&|| false).unwrap();
    assert_eq!(entries(&world), u64::from(KEYS));
    world.check_reads(u64::MAX, &keys()).unwrap();
}

fn work_until_idle(world: &World) {
    for _ in 0..1000 {
        if world.tree.step(1 << 20).unwrap() != StepOutcome::Again {
            return;
        }
    }
    panic!("background work does not end");
}

#[test]
fn background_work_after_an_opening_drops_them_too() {
    let (world, _) = with_versions();
    let (disk, options, log) = (world.disk.clone(), world.options.clone(), world.log.clone());
    world.tree.close().unwrap();
    drop(world);
    let world = World::open(disk, options, &log).unwrap();
    work_until_idle(&world);
    assert_eq!(entries(&world), u64::from(KEYS));
    world.check_reads(u64::MAX, &keys()).unwrap();
}

#[test]
fn a_check_finds_an_older_entry_above_a_newer_one() {
    let mut generator = Generator::new(1);
    let mut world = World::create(SimulatedDisk::new(1), tiny_options(0));
    let findings = |world: &World| {
        world.seal();
        world.tree.flush().unwrap();
        let mut found = Vec::new();
        let all = &mut |finding: Error| found.push(finding.to_string());
        world.tree.check(all).unwrap();
        found
    };
    world.put(b"other", &mut generator);
    world.put(b"key", &mut generator);
    assert_eq!(findings(&world), [""; 0]);
    // As a value log would that takes an overwritten value for live.
    world.tree.writer().put(1, b"key", b"older");
    let found = findings(&world);
    assert!(
        found.len() == 1 && found[0].contains("older entry"),
        "{found:?}"
    );
}

#[test]
fn background_work_drops_them_and_ends() {
    let (world, moments) = with_versions();
    let work = || work_until_idle(&world);
    work();
    assert_eq!(entries(&world), u64::from(KEYS) * ROUNDS, "all are held");
    for &moment in &moments {
        world.check_reads(moment, &keys()).unwrap();
        world.unpin(moment);
    }
    work();
    assert_eq!(entries(&world), u64::from(KEYS));
    world.check_reads(u64::MAX, &keys()).unwrap();
}
