//! What memory alone tells of entries: never otherwise than a lookup, wherever entries,
//! tombstones and what only a pinned moment sees have come to.

use cambium_io::simulated::{Generator, SimulatedDisk};

use crate::support::{Operation, World, key, model, number_of, tiny_options};

const KEYS: u64 = 40;

/// Key, sequence number and value of every entry that no job has dropped, by keys.
fn there(world: &World) -> Vec<(&[u8], u64, &[u8])> {
    let state = world.owner.state.lock().unwrap();
    let mut entries: Vec<(&[u8], u64, &[u8])> = Vec::new();
    for operation in &world.log {
        let (key, sequence, value) = match operation {
            Operation::Put(sequence, key, value) => (key, sequence, value),
            Operation::Relocate(key, sequence, _, value) => (key, sequence, value),
            _ => continue,
        };
        let dropped = &state.accounts.dropped;
        if dropped.binary_search(&number_of(value)).is_err() {
            entries.push((key, *sequence, value));
        }
    }
    entries.sort();
    entries
}

/// Asks about all entries at once; answers how many were asked about, and how many of
/// them took a search.
fn check(world: &World, all_there: bool) -> [u64; 2] {
    let entries = there(world);
    let newest = model(&world.log, u64::MAX);
    let keys: Vec<&[u8]> = entries.iter().map(|entry| entry.0).collect();
    let before = world.tree.statistics().gets;
    let passes = |place: usize, sequence: u64, value: &[u8]| {
        let (_, expected, bytes) = entries[place];
        sequence == expected && value == bytes
    };
    let visible = || world.sequence;
    let (answers, _) = world
        .tree
        .newest_pass(&keys, all_there, visible, passes)
        .unwrap();
    for (answer, &(key, sequence, value)) in answers.into_iter().zip(&entries) {
        let expected = newest.get(key);
        let is_newest = expected.is_some_and(|found| found.0 == sequence && found.1 == value);
        assert_eq!(answer, is_newest, "write {sequence} of {key:?}");
    }
    let searched = world.tree.statistics().gets - before;
    [entries.len() as u64, searched]
}

/// Answers how many entries were asked about, and how many of them took a search.
fn run(seed: u64, with_ranges: bool) -> [u64; 2] {
    let mut generator = Generator::new(seed);
    let generator = &mut generator;
    let shape = generator.below(60);
    let mut world = World::create(SimulatedDisk::new(seed), tiny_options(shape));
    let mut pins: Vec<u64> = Vec::new();
    let mut sums = [0; 2];
    for _ in 0..300 {
        match generator.below(100) {
            0..=39 => world.put(&key(generator, KEYS), generator),
            40..=46 => world.delete(&key(generator, KEYS)),
            47 if with_ranges => {
                let (from, to) = (key(generator, KEYS), key(generator, KEYS));
                world.delete_range(&from, Some(&to));
            }
            48..=56 => world.relocate(&key(generator, KEYS), generator).unwrap(),
            57..=62 => {
                world.seal();
            }
            63..=82 => {
                world.tree.step(1 + generator.below(600)).unwrap();
            }
            83 => world.tree.compact(&|| false).unwrap(),
            84..=85 => pins.push(world.pin()),
            86..=87 if !pins.is_empty() => {
                let at = generator.below(pins.len() as u64) as usize;
                world.unpin(pins.swap_remove(at));
            }
            88 if generator.chance(1, 3) => {
                pins.clear();
                world.tree.close().unwrap();
                world = World::open(world.disk.clone(), world.options, &world.log).unwrap();
            }
            89..=99 => {
                let asked = check(&world, true);
                check(&world, false);
                sums = [sums[0] + asked[0], sums[1] + asked[1]];
            }
            _ => {}
        }
        if world.tree.seal_due() {
            world.seal();
        }
    }
    sums
}

#[test]
fn what_memory_tells_is_what_lookups_find() {
    let mut sums = [[0; 2]; 2];
    for seed in 0..400 {
        let sum = &mut sums[seed as usize % 2];
        let [asked, searched] = run(seed, seed % 2 == 1);
        *sum = [sum[0] + asked, sum[1] + searched];
    }
    for [asked, searched] in sums {
        // Memory alone told of many, and not of all.
        assert!(searched > 0 && searched < asked * 9 / 10, "{sums:?}");
    }
}
