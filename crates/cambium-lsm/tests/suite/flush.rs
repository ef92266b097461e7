//! A flush on demand ends, whatever others seal meanwhile; what flushes leave in level 0 is
//! merged while nobody writes.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use cambium_base::{Result, StoreId};
use cambium_io::simulated::{Generator, SimulatedDisk};
use cambium_io::{Environment, StepOutcome};
use cambium_lsm::{DropObserver, EntryRef, JobKind, Lookup, Options, Owner, Tree};

use crate::support::World;

/// Seals another memtable at each flush, as somebody else might.
#[derive(Debug, Default)]
struct Busy {
    tree: OnceLock<Weak<Tree>>,
    flushes: AtomicU64,
}

#[derive(Debug)]
struct Nothing;

impl DropObserver for Nothing {
    fn dropped(&mut self, _: EntryRef<'_>) {}

    fn into_note(self: Box<Self>, _: &[Vec<u8>]) -> Vec<u8> {
        Vec::new()
    }
}

/// After so many flushes it seals no more, so that a test that fails ends.
const MOST_FLUSHES: u64 = 20;

impl Owner for Busy {
    fn protected_moments(&self) -> Vec<u64> {
        vec![u64::MAX]
    }

    fn begin_job(&self, _: JobKind) -> Box<dyn DropObserver> {
        Box::new(Nothing)
    }

    fn before_flush(&self, _: &[Vec<u8>]) -> Result<()> {
        let flushes = self.flushes.fetch_add(1, Ordering::Relaxed) + 1;
        if flushes < MOST_FLUSHES {
            let tree = self.tree.get().and_then(Weak::upgrade).unwrap();
            tree.writer().put(flushes + 1, b"key", b"later");
            tree.seal(Vec::new());
        }
        Ok(())
    }

    fn committed(&self, _: &[u8], _: bool) -> Result<()> {
        Ok(())
    }

    fn full_note(&self) -> Vec<u8> {
        Vec::new()
    }
}

#[test]
fn a_flush_leaves_what_is_sealed_meanwhile() {
    let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
    let owner = Arc::new(Busy::default());
    let folder = Path::new("/tree");
    let options = Options::default();
    let tree = Tree::create(
        &environment,
        folder,
        StoreId([7; 16]),
        &options,
        owner.clone(),
    );
    let tree = tree.unwrap();
    owner.tree.set(Arc::downgrade(&tree)).unwrap();
    tree.writer().put(1, b"key", b"first");
    tree.seal(Vec::new());
    tree.flush().unwrap();
    assert_eq!(owner.flushes.load(Ordering::Relaxed), 1);
    assert!(tree.has_sealed(), "what came meanwhile is there still");
    let found = tree.get(b"key", u64::MAX).unwrap();
    assert!(
        matches!(found, Lookup::Found { sequence: 2, .. }),
        "{found:?}"
    );
}

#[test]
fn tables_of_level_0_are_merged_while_nobody_writes() {
    let mut generator = Generator::new(3);
    let mut world = World::create(SimulatedDisk::new(3), Options::default());
    let keys = [b"elm".to_vec(), b"oak".to_vec(), b"yew".to_vec()];
    for _ in 0..2 {
        for key in &keys {
            world.put(key, &mut generator);
        }
        world.seal();
        world.tree.flush().unwrap();
    }
    let tables = |world: &World, level: usize| world.tree.statistics().levels[level].tables;
    assert_eq!(world.tree.step(1 << 20).unwrap(), StepOutcome::Idle);
    assert_eq!(
        tables(&world, 0),
        2,
        "too few to merge while writes may come"
    );
    world.tree.set_resting(true, false);
    assert!(world.tree.step_due());
    while world.tree.step(1 << 20).unwrap() == StepOutcome::Again {}
    assert_eq!((tables(&world, 0), tables(&world, 1)), (0, 1));
    world.check_reads(u64::MAX, &keys).unwrap();
    world.check_scan(None, None, u64::MAX).unwrap();
}

#[test]
fn a_walk_seeks_past_a_deleted_range() {
    let mut generator = Generator::new(5);
    let options = Options {
        table_bytes: 16 << 10,
        ..Options::default()
    };
    let mut world = World::create(SimulatedDisk::new(5), options);
    let key = |number: u32| format!("{number:06}").into_bytes();
    for number in 0..4000 {
        world.put(&key(number), &mut generator);
    }
    world.seal();
    world.tree.flush().unwrap();
    world.tree.compact(&|| false).unwrap();
    let tables = |world: &World| {
        world
            .tree
            .statistics()
            .levels
            .iter()
            .map(|at| at.tables)
            .sum()
    };
    assert!((5..100u64).contains(&tables(&world)), "{}", tables(&world));
    world.delete_range(&key(2), Some(&key(3990)));
    world.put(&key(2000), &mut generator);
    world.seal();
    world.tree.flush().unwrap();
    let blocks = |world: &World| {
        let statistics = world.tree.statistics();
        statistics.cache_hits + statistics.cache_misses
    };
    let before = blocks(&world);
    // Forward and backward, each of 13 entries.
    world.check_scan(None, None, u64::MAX).unwrap();
    let looked_into = blocks(&world) - before;
    assert!(looked_into < 40, "{looked_into} blocks");
}
