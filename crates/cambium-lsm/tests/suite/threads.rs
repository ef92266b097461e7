//! Writers, readers, relocations and steps on real threads at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cambium_io::StepOutcome;
use cambium_io::simulated::{Generator, SimulatedDisk};
use cambium_lsm::{Lookup, Relocation};

use crate::support::{World, relocate, tiny_options};

const KEYS: u64 = 8;
const WRITES: u64 = 5_000;

fn key(number: u64) -> Vec<u8> {
    format!("key{number}").into_bytes()
}

/// A value has a number of its own, and says which write it is of.
fn value(numbers: &AtomicU64, sequence: u64) -> Vec<u8> {
    let number = numbers.fetch_add(1, Ordering::Relaxed);
    [number.to_le_bytes(), sequence.to_le_bytes()].concat()
}

fn sequence_in(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[8..].try_into().unwrap())
}

/// Ends the other threads, also when this one fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Deletes are every seventh write.
fn is_delete(sequence: u64) -> bool {
    sequence % 7 == 0
}

/// Everybody at once: a writer that numbers and seals, relocators that race
/// with it, readers of what is visible, and threads that take steps. A reader
/// never sees a write that is older than one it saw before, and never a value
/// under another number than its own.
#[test]
fn relocations_race_with_writes_and_never_bring_an_older_one_back() {
    let world = World::create(SimulatedDisk::new(1), tiny_options(0));
    let (tree, owner) = (&world.tree, &world.owner);
    let (numbers, visible) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    let (relocated, superseded) = (AtomicU64::new(0), AtomicU64::new(0));
    let newest = |number: u64| {
        let found = tree.get_current(&key(number), || visible.load(Ordering::Acquire));
        found.unwrap()
    };
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (done, relocated, superseded) = (&done, &relocated, &superseded);
            let numbers = &numbers;
            scope.spawn(move || {
                let mut generator = Generator::new(seed);
                while !done.load(Ordering::Acquire) {
                    // What is relocated takes memory until a seal.
                    if tree.seal_due() {
                        std::thread::yield_now();
                        continue;
                    }
                    let key = key(generator.below(KEYS));
                    let Lookup::Found {
                        sequence,
                        value: old,
                    } = tree.get(&key, u64::MAX).unwrap()
                    else {
                        continue;
                    };
                    let new = value(numbers, sequence);
                    match relocate(tree, &key, sequence, &old, &new).unwrap() {
                        Relocation::Done => relocated.fetch_add(1, Ordering::Relaxed),
                        _ => superseded.fetch_add(1, Ordering::Relaxed),
                    };
                }
            });
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    if tree.step(500).unwrap() != StepOutcome::Again {
                        std::thread::yield_now();
                    }
                }
            });
        }
        for seed in 10..12 {
            let (done, newest) = (&done, &newest);
            scope.spawn(move || {
                let mut generator = Generator::new(seed);
                let mut seen = vec![0; KEYS as usize];
                while !done.load(Ordering::Acquire) {
                    let number = generator.below(KEYS);
                    let (sequence, deleted) = match newest(number) {
                        Lookup::Absent => continue,
                        Lookup::Deleted { sequence } => (sequence, true),
                        Lookup::Found { sequence, value } => {
                            assert_eq!(sequence_in(&value), sequence);
                            (sequence, false)
                        }
                    };
                    assert_eq!(deleted, is_delete(sequence));
                    let before = &mut seen[number as usize];
                    assert!(
                        *before <= sequence,
                        "{sequence} after {before} of key {number}"
                    );
                    *before = sequence;
                }
            });
        }
        let _done = Done(&done);
        let mut generator = Generator::new(99);
        for sequence in 1..=WRITES {
            let key = key(generator.below(KEYS));
            match is_delete(sequence) {
                true => tree.writer().delete(sequence, &key),
                false => tree
                    .writer()
                    .put(sequence, &key, &value(&numbers, sequence)),
            }
            owner.state.lock().unwrap().visible = sequence;
            visible.store(sequence, Ordering::Release);
            if tree.seal_due() {
                tree.seal(0u64.to_le_bytes().to_vec());
            }
            while tree.statistics().sealed_memtables > 3 {
                std::thread::yield_now();
            }
        }
        done.store(true, Ordering::Release);
    });
    assert!(
        relocated.load(Ordering::Relaxed) > 100,
        "{relocated:?} relocated"
    );
    // What is left at the end is the last write of each key.
    let mut generator = Generator::new(99);
    let mut last = vec![0; KEYS as usize];
    for sequence in 1..=WRITES {
        last[generator.below(KEYS) as usize] = sequence;
    }
    for number in 0..KEYS {
        let expected = last[number as usize];
        match newest(number) {
            Lookup::Found { sequence, .. } => assert_eq!(sequence, expected),
            Lookup::Deleted { sequence } => assert_eq!(sequence, expected),
            Lookup::Absent => assert!(is_delete(expected)),
        }
    }
    world.check_tables();
}

/// Many writers into one memtable: every write is there, under its number.
#[test]
fn writers_of_one_memtable_do_not_lose_writes() {
    let mut options = tiny_options(0);
    options.memtable_bytes = 4 << 20;
    let world = World::create(SimulatedDisk::new(2), options);
    let (tree, next, numbers) = (&world.tree, AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (next, numbers) = (&next, &numbers);
            scope.spawn(move || {
                loop {
                    let sequence = next.fetch_add(1, Ordering::Relaxed) + 1;
                    if sequence > WRITES {
                        return;
                    }
                    let key = key(sequence % 1000);
                    tree.writer().put(sequence, &key, &value(numbers, sequence));
                    // Sorting beside writers must neither miss nor mix entries.
                    if sequence % 500 == 0 {
                        let mut cursor = tree.cursor(None, None, u64::MAX).unwrap();
                        cursor.seek_first().unwrap();
                        while let Some(entry) = cursor.entry() {
                            assert_eq!(sequence_in(entry.value), entry.sequence);
                            cursor.next().unwrap();
                        }
                    }
                }
            });
        }
    });
    for sequence in 1..=WRITES {
        let key = key(sequence % 1000);
        let found = tree.get(&key, sequence).unwrap();
        assert!(matches!(found, Lookup::Found { sequence: found, .. } if found == sequence));
    }
}
