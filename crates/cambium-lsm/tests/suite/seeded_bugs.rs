//! Every seeded bug of the tree is found: by reads against the model at every
//! pinned moment, by the tree's own checks, or after a crash at a sync point.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use cambium_io::StepOutcome;
use cambium_io::simulated::{CrashStyle, Generator, ProbePoints, SimulatedDisk};
use cambium_lsm::{Lookup, SeededBug};

use crate::support::{World, all_keys, key, tiny_options};

const KEYS: u64 = 30;
const SEEDS: u64 = 60;

/// One run with pins and crashes; panics where something does not hold.
fn run(bug: Option<SeededBug>, seed: u64) {
    let mut generator = Generator::new(seed);
    let generator = &mut generator;
    let mut options = tiny_options(generator.below(60));
    options.seeded_bug = bug;
    let mut world = World::create(SimulatedDisk::new(seed), options);
    let forks: Arc<Mutex<Vec<SimulatedDisk>>> = Arc::default();
    let taken = forks.clone();
    world
        .disk
        .set_crash_probe(ProbePoints::Syncs, move |point| {
            taken.lock().unwrap().push(point.disk);
        });
    let mut pins = Vec::new();
    for _ in 0..120 {
        match generator.below(20) {
            0..=7 => world.put(&key(generator, KEYS), generator),
            8..=9 => world.delete(&key(generator, KEYS)),
            10 => world.delete_range(&key(generator, KEYS), Some(&key(generator, KEYS))),
            11 => pins.push(world.pin()),
            12..=13 => {
                world.seal();
            }
            14..=17 => {
                world.tree.step(1 + generator.below(800)).unwrap();
            }
            _ => while world.tree.step(4000).unwrap() == StepOutcome::Again {},
        }
        let forks = std::mem::take(&mut *forks.lock().unwrap());
        for fork in forks {
            let style = *generator.pick(&[CrashStyle::NothingUnsynced, CrashStyle::Mixed]);
            let crashed = fork.crash(style, generator.next_u64());
            let again = World::open(crashed, world.options.clone(), &world.log).unwrap();
            again.check_reads(again.sequence, &all_keys(KEYS)).unwrap();
            again.check_tables();
        }
    }
    world.seal();
    world.tree.compact(&|| false).unwrap();
    for moment in pins.into_iter().chain([world.sequence]) {
        world.check_reads(moment, &all_keys(KEYS)).unwrap();
    }
    world.check_tables();
    world.tree.close().unwrap();
    // No moment is pinned after an opening: one entry of each key is enough.
    let world = World::open(world.disk.clone(), world.options.clone(), &world.log).unwrap();
    world.tree.compact(&|| false).unwrap();
    let levels = world.tree.statistics().levels;
    let entries: u64 = levels.iter().map(|level| level.entries).sum();
    let is_there = |key: &Vec<u8>| {
        let found = world.tree.get(key, world.sequence).unwrap();
        matches!(found, Lookup::Found { .. })
    };
    let live = all_keys(KEYS).iter().filter(|key| is_there(key)).count() as u64;
    assert!(entries <= live, "{entries} entries of {live} keys");
}

/// Only disks that fail show these: `faults.rs` finds them.
const FOUND_ELSEWHERE: [SeededBug; 2] = [
    SeededBug::NamedManifestRemoved,
    SeededBug::PoisonAnsweredRaw,
];

#[test]
fn every_seeded_bug_is_found() {
    for seed in 0..5 {
        run(None, seed);
    }
    // What is to fail would fill the screen.
    std::panic::set_hook(Box::new(|_| {}));
    let is_found = |bug: &SeededBug| {
        (0..SEEDS).any(|seed| catch_unwind(AssertUnwindSafe(|| run(Some(*bug), seed))).is_err())
    };
    let missed: Vec<SeededBug> = SeededBug::ALL
        .map(|(bug, _)| bug)
        .into_iter()
        .filter(|bug| !FOUND_ELSEWHERE.contains(bug) && !is_found(bug))
        .collect();
    _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
