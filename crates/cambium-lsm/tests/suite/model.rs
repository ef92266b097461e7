//! Random operations on trees with tiny constants, held against a model: every
//! way of reading at every pinned moment, through seals, flushes, compactions,
//! relocations, reopenings and crashes.

use cambium_io::StepOutcome;
use cambium_io::simulated::{CrashStyle, Generator, SimulatedDisk};
use cambium_lsm::Cursor;
use std::collections::BTreeMap;

use crate::support::{World, all_keys, key, model, tiny_options};

const KEYS: u64 = 40;

/// A cursor that was made a while ago, and what it must show.
struct OldCursor {
    cursor: Cursor,
    moment: u64,
    expected: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
}

impl OldCursor {
    fn check(mut self, world: &World) {
        let mut found = BTreeMap::new();
        self.cursor.seek_first().unwrap();
        while let Some(entry) = self.cursor.entry() {
            found.insert(entry.key.to_vec(), (entry.sequence, entry.value.to_vec()));
            self.cursor.next().unwrap();
        }
        assert_eq!(found, self.expected);
        world.unpin(self.moment);
    }
}

/// Walks a cursor to and fro.
fn check_walk(world: &World, moment: u64, generator: &mut Generator) {
    let expected: Vec<_> = model(&world.log, moment).into_iter().collect();
    let mut cursor = world.tree.cursor(None, None, moment).unwrap();
    let target = key(generator, KEYS);
    let first = expected.partition_point(|(key, _)| *key < target);
    let mut at = if generator.chance(1, 2) {
        cursor.seek(&target).unwrap();
        Some(first)
    } else {
        cursor.seek_before(&target).unwrap();
        first.checked_sub(1)
    };
    for _ in 0..20 {
        let wanted = at.and_then(|at| expected.get(at));
        let found = cursor
            .entry()
            .map(|entry| (entry.key.to_vec(), (entry.sequence, entry.value.to_vec())));
        assert_eq!(found.as_ref(), wanted);
        if wanted.is_none() {
            return;
        }
        if generator.chance(1, 2) {
            cursor.next().unwrap();
            at = at.map(|at| at + 1);
        } else {
            cursor.previous().unwrap();
            at = at.and_then(|at| at.checked_sub(1));
        }
    }
}

fn run(seed: u64, steps: u64) {
    let mut generator = Generator::new(seed);
    let generator = &mut generator;
    let shape = generator.below(60);
    let mut world = World::create(SimulatedDisk::new(seed), tiny_options(shape));
    let mut pins: Vec<u64> = Vec::new();
    let mut old: Vec<OldCursor> = Vec::new();
    for _ in 0..steps {
        match generator.below(100) {
            0..=39 => world.put(&key(generator, KEYS), generator),
            40..=49 => world.delete(&key(generator, KEYS)),
            50..=52 => {
                let (from, to) = (key(generator, KEYS), key(generator, KEYS));
                let to = generator.chance(5, 6).then_some(to.as_slice());
                world.delete_range(&from, to);
            }
            53..=60 => world.relocate(&key(generator, KEYS), generator).unwrap(),
            61..=66 => {
                world.seal();
            }
            67..=80 => {
                world.tree.step(1 + generator.below(600)).unwrap();
            }
            81 => {
                while world.tree.step(500).unwrap() == StepOutcome::Again {}
                assert!(!world.tree.step_due());
            }
            82 => world.tree.compact(&|| false).unwrap(),
            83..=84 => pins.push(world.pin()),
            85 if !pins.is_empty() => {
                let at = generator.below(pins.len() as u64) as usize;
                world.unpin(pins.swap_remove(at));
            }
            86..=87 => {
                let moment = world.pin();
                old.push(OldCursor {
                    cursor: world.tree.cursor(None, None, moment).unwrap(),
                    moment,
                    expected: model(&world.log, moment),
                });
            }
            88 if !old.is_empty() => {
                let at = generator.below(old.len() as u64) as usize;
                old.swap_remove(at).check(&world);
            }
            89..=90 => {
                let (from, to) = (key(generator, KEYS), key(generator, KEYS));
                let moment = pins.last().copied().unwrap_or(world.sequence);
                world.check_scan(Some(&from), Some(&to), moment).unwrap();
                world.check_scan(None, Some(&to), moment).unwrap();
                world.check_scan(Some(&from), None, moment).unwrap();
            }
            91..=92 => check_walk(&world, world.sequence, generator),
            93..=95 => {
                for &moment in pins.iter().chain([&world.sequence]) {
                    world.check_reads(moment, &all_keys(KEYS)).unwrap();
                }
            }
            96 => {
                world.check_tables();
                world.check_accounts();
            }
            97 => {
                world.tree.remove_unknown_files().unwrap();
            }
            98 => world = reopened(world, &mut pins, &mut old, None),
            99 => {
                let style = *generator.pick(&CrashStyle::ALL);
                let crash = Some((style, generator.next_u64()));
                world = reopened(world, &mut pins, &mut old, crash);
            }
            _ => {}
        }
        if world.tree.seal_due() {
            world.seal();
        }
    }
    for cursor in old {
        cursor.check(&world);
    }
    for &moment in pins.iter().chain([&world.sequence]) {
        world.check_reads(moment, &all_keys(KEYS)).unwrap();
    }
    check_end(&world, &pins);
}

/// Without pins, a compaction leaves exactly what is there.
fn check_end(world: &World, pins: &[u64]) {
    for &moment in pins {
        world.unpin(moment);
    }
    world.seal();
    world.tree.compact(&|| false).unwrap();
    world.check_tables();
    world.check_accounts();
    let statistics = world.tree.statistics();
    assert_eq!(statistics.sealed_memtables, 0);
    assert_eq!(statistics.levels[0].tables, 0);
}

fn reopened(
    world: World,
    pins: &mut Vec<u64>,
    old: &mut Vec<OldCursor>,
    crash: Option<(CrashStyle, u64)>,
) -> World {
    for cursor in old.drain(..) {
        cursor.check(&world);
    }
    pins.clear();
    let disk = match crash {
        None => {
            world.tree.close().unwrap();
            assert!(matches!(
                world.tree.get(b"", 1),
                Err(cambium_base::Error::Closed)
            ));
            world.disk.clone()
        }
        Some((style, seed)) => world.disk.crash(style, seed),
    };
    let again = World::open(disk, world.options.clone(), &world.log).unwrap();
    again.check_reads(again.sequence, &all_keys(KEYS)).unwrap();
    again
}

#[test]
fn random_operations_leave_what_the_model_says() {
    for seed in 0..400 {
        run(seed, 300);
    }
}

#[test]
fn long_histories_leave_what_the_model_says() {
    for seed in 1000..1012 {
        run(seed, 4000);
    }
}
