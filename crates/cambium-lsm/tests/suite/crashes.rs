//! A crash at every sync point, and before every operation, of creation, flush,
//! compaction and manifest: what is recovered, with the owner's log written
//! again from the note's position, is exactly what was there. Then the recovered
//! tree is worked with, crashed, and recovered once more.

use std::sync::{Arc, Mutex};

use cambium_io::StepOutcome;
use cambium_io::simulated::{CrashStyle, Generator, ProbePoints, SimulatedDisk};

use crate::support::{World, all_keys, key, tiny_options};

const KEYS: u64 = 30;

/// Opens what a crash left, twice, with work in between.
fn check_recovery(disk: SimulatedDisk, world: &World, length: usize, seed: u64) {
    let log = &world.log[..length];
    let mut first = World::open(disk, world.options.clone(), log).unwrap();
    first.check_reads(first.sequence, &all_keys(KEYS)).unwrap();
    first.check_tables();
    first.tree.remove_unknown_files().unwrap();
    let mut generator = Generator::new(seed);
    for _ in 0..6 {
        first.put(&key(&mut generator, KEYS), &mut generator);
    }
    first.seal();
    for _ in 0..generator.below(6) {
        first.tree.step(400).unwrap();
    }
    first.check_accounts();
    let again = first.disk.crash(CrashStyle::Mixed, seed);
    let second = World::open(again, first.options.clone(), &first.log).unwrap();
    second
        .check_reads(second.sequence, &all_keys(KEYS))
        .unwrap();
    second.seal();
    second.tree.compact(&|| false).unwrap();
    second
        .check_reads(second.sequence, &all_keys(KEYS))
        .unwrap();
    second.check_tables();
    second.check_accounts();
}

/// Works with a tree, and crashes it at each point; answers how many there were.
fn crash_everywhere(seed: u64, points: ProbePoints, operations: u64) -> usize {
    let mut generator = Generator::new(seed);
    let generator = &mut generator;
    let shape = generator.below(60);
    let mut world = World::create(SimulatedDisk::new(seed), tiny_options(shape));
    let forks: Arc<Mutex<Vec<SimulatedDisk>>> = Arc::default();
    let taken = forks.clone();
    world.disk.set_crash_probe(points, move |point| {
        taken.lock().unwrap().push(point.disk);
    });
    let mut count = 0;
    for _ in 0..operations {
        match generator.below(20) {
            0..=7 => world.put(&key(generator, KEYS), generator),
            8..=9 => world.delete(&key(generator, KEYS)),
            10 => world.delete_range(&key(generator, KEYS), Some(&key(generator, KEYS))),
            11..=12 => world.relocate(&key(generator, KEYS), generator).unwrap(),
            13 => {
                world.seal();
            }
            14..=17 => {
                world.tree.step(1 + generator.below(800)).unwrap();
            }
            18 => while world.tree.step(4000).unwrap() == StepOutcome::Again {},
            _ => {
                world.seal();
                world.tree.flush().unwrap();
            }
        }
        let forks = std::mem::take(&mut *forks.lock().unwrap());
        for fork in forks {
            count += 1;
            let styles = [
                CrashStyle::NothingUnsynced,
                CrashStyle::Everything,
                CrashStyle::Mixed,
            ];
            let style = *generator.pick(&styles);
            let seed = generator.next_u64();
            check_recovery(fork.crash(style, seed), &world, world.log.len(), seed);
        }
    }
    count
}

#[test]
fn a_crash_at_any_sync_point_loses_nothing() {
    let points: usize = (0..16)
        .map(|seed| crash_everywhere(seed, ProbePoints::Syncs, 150))
        .sum();
    assert!(points > 1000, "{points} crash points");
}

#[test]
fn a_crash_before_any_operation_loses_nothing() {
    let points: usize = (100..120)
        .map(|seed| crash_everywhere(seed, ProbePoints::Operations, 100))
        .sum();
    assert!(points > 1000, "{points} crash points");
}

#[test]
fn a_kill_leaves_what_the_manifest_names() {
    for seed in 200..240 {
        let mut generator = Generator::new(seed);
        let mut world = World::create(SimulatedDisk::new(seed), tiny_options(seed));
        for round in 0..60 {
            world.put(&key(&mut generator, KEYS), &mut generator);
            if round % 5 == 0 {
                world.seal();
            }
            world.tree.step(200).unwrap();
        }
        check_recovery(world.disk.process_crash(), &world, world.log.len(), seed);
    }
}

/// What is created is there, or there is nothing to open: never a half tree
/// that opens as an empty one of another store.
#[test]
fn a_crash_during_creation_leaves_a_tree_or_none() {
    let disk = SimulatedDisk::new(3);
    let forks: Arc<Mutex<Vec<SimulatedDisk>>> = Arc::default();
    let taken = forks.clone();
    disk.set_crash_probe(ProbePoints::Operations, move |point| {
        taken.lock().unwrap().push(point.disk);
    });
    let world = World::create(disk.clone(), tiny_options(0));
    disk.clear_crash_probe();
    let (mut opened, mut refused) = (0, 0);
    for (seed, fork) in forks.lock().unwrap().iter().enumerate() {
        for style in CrashStyle::ALL {
            let crashed = fork.crash(style, seed as u64);
            match World::open(crashed, world.options.clone(), &[]) {
                Ok(world) => {
                    opened += 1;
                    world.check_reads(0, &all_keys(KEYS)).unwrap();
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(
        opened > 0 && refused > 0,
        "{opened} opened, {refused} refused"
    );
    let crashed = disk.crash(CrashStyle::NothingUnsynced, 1);
    World::open(crashed, world.options.clone(), &[]).unwrap();
}
