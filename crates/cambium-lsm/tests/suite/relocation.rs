//! Relocating what was looked up a moment ago: what came since is never overlooked,
//! wherever it is by now.

use cambium_io::simulated::{Generator, SimulatedDisk};
use cambium_lsm::{Lookup, Relocation, Replaced, Seen};

use crate::support::{World, tiny_options};

const OTHER: &[u8] = b"another";
const KEY: &[u8] = b"key";
const MOVED: &[u8] = b"12345678, moved";

/// What somebody does between lookup and relocation.
type Meanwhile = fn(&mut World, &mut Generator);

/// Sequence number and value of a key.
type Found = Option<(u64, Vec<u8>)>;

/// What the tree answers for a key.
fn found(world: &World, key: &[u8]) -> Found {
    match world.tree.get(key, u64::MAX).unwrap() {
        Lookup::Found { sequence, value } => Some((sequence, value.to_vec())),
        _ => None,
    }
}

/// What there is of keys, in ascending order, with what relocating them need not look at
/// again.
fn looked_up(world: &World, keys: &[&[u8]]) -> (Vec<Lookup>, Seen) {
    world.tree.look_up_newest(keys, || u64::MAX).unwrap()
}

/// Relocates [`OTHER`] and [`KEY`], which something happened to since they were looked
/// up; answers what came of [`KEY`] and what the tree has of it before and after.
fn relocated(in_table: bool, meanwhile: Meanwhile) -> (Relocation, [Found; 2]) {
    let mut generator = Generator::new(1);
    let mut world = World::create(SimulatedDisk::new(1), tiny_options(0));
    world.put(OTHER, &mut generator);
    world.put(KEY, &mut generator);
    if in_table {
        world.seal();
        world.tree.flush().unwrap();
    }
    let keys = [OTHER, KEY];
    let (lookups, seen) = looked_up(&world, &keys);
    meanwhile(&mut world, &mut generator);
    let before = found(&world, KEY);
    let entries: Vec<Replaced<'_>> = keys
        .iter()
        .zip(&lookups)
        .map(|(key, lookup)| match lookup {
            Lookup::Found { sequence, value } => Replaced {
                key,
                sequence: *sequence,
                old_value: value,
                new_value: MOVED,
            },
            other => panic!("{other:?} of what was put"),
        })
        .collect();
    let answers = world.tree.relocate_all(&entries, Some(&seen)).unwrap();
    assert_eq!(answers[0], Relocation::Done);
    assert_eq!(found(&world, OTHER).unwrap().1, MOVED);
    (answers[1], [before, found(&world, KEY)])
}

fn seal(world: &mut World) {
    // Something to seal, of neither key.
    let mut generator = Generator::new(2);
    world.put(b"filler", &mut generator);
    world.seal();
}

#[test]
fn what_nobody_touched_is_relocated_wherever_it_is() {
    let quiet: [Meanwhile; 3] = [
        |_, _| (),
        |world, _| seal(world),
        |world, _| {
            seal(world);
            world.tree.flush().unwrap();
        },
    ];
    for meanwhile in quiet {
        for in_table in [false, true] {
            let (answer, [before, after]) = relocated(in_table, meanwhile);
            assert_eq!(answer, Relocation::Done);
            assert_eq!(after, Some((before.unwrap().0, MOVED.to_vec())));
        }
    }
}

#[test]
fn what_came_meanwhile_wins_wherever_it_is_by_now() {
    let writes: [Meanwhile; 3] = [
        |world, generator| world.put(KEY, generator),
        |world, _| world.delete(KEY),
        |world, _| world.delete_range(b"k", None),
    ];
    // In the memtable of the lookup, in the next one, in one between, in a table.
    let places: [(Meanwhile, Meanwhile); 5] = [
        (|_, _| (), |_, _| ()),
        (|world, _| seal(world), |_, _| ()),
        (|_, _| (), |world, _| seal(world)),
        (|world, _| seal(world), |world, _| seal(world)),
        (
            |_, _| (),
            |world, _| {
                seal(world);
                world.tree.flush().unwrap();
            },
        ),
    ];
    for write in writes {
        for (ahead, behind) in places {
            for in_table in [false, true] {
                let mut generator = Generator::new(1);
                let mut world = World::create(SimulatedDisk::new(1), tiny_options(0));
                world.put(KEY, &mut generator);
                if in_table {
                    world.seal();
                    world.tree.flush().unwrap();
                }
                let (lookups, seen) = looked_up(&world, &[KEY]);
                ahead(&mut world, &mut generator);
                write(&mut world, &mut generator);
                behind(&mut world, &mut generator);
                let before = found(&world, KEY);
                let Lookup::Found { sequence, value } = &lookups[0] else {
                    panic!("it was put");
                };
                let entry = Replaced {
                    key: KEY,
                    sequence: *sequence,
                    old_value: value,
                    new_value: MOVED,
                };
                let answers = world.tree.relocate_all(&[entry], Some(&seen)).unwrap();
                assert_eq!(answers, [Relocation::Superseded]);
                assert_eq!(found(&world, KEY), before);
            }
        }
    }
}

#[test]
fn what_was_relocated_meanwhile_is_left_alone() {
    let relocations: [Meanwhile; 2] = [
        |world, generator| world.relocate(KEY, generator).unwrap(),
        |world, generator| {
            world.relocate(KEY, generator).unwrap();
            seal(world);
        },
    ];
    for meanwhile in relocations {
        for in_table in [false, true] {
            let (answer, [before, after]) = relocated(in_table, meanwhile);
            assert_eq!(answer, Relocation::Changed);
            assert_eq!(after, before);
        }
    }
}
