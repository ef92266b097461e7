//! Errors of the disk and a full disk, in every job and at every operation.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cambium_base::Error;
use cambium_io::StepOutcome;
use cambium_io::simulated::{
    CrashStyle, ErrorNumber, Fault, FaultRule, Generator, OperationClass, SimulatedDisk,
};

use crate::support::{World, all_keys, key, tiny_options};
use cambium_lsm::SeededBug;

const KEYS: u64 = 30;

/// Writes, seals and steps until a step fails; answers how.
fn work_until_failure(world: &mut World, generator: &mut Generator) -> Option<Error> {
    for _ in 0..120 {
        match generator.below(10) {
            0..=4 => world.put(&key(generator, KEYS), generator),
            5 => world.delete(&key(generator, KEYS)),
            6 => {
                world.seal();
            }
            _ => {
                if let Err(error) = world.tree.step(300) {
                    return Some(error);
                }
            }
        }
    }
    None
}

/// After a crash the tree has everything that its log has.
fn survives_crashes(world: &World, seed: u64) {
    for style in [
        CrashStyle::NothingUnsynced,
        CrashStyle::Everything,
        CrashStyle::Mixed,
    ] {
        let disk = world.disk.crash(style, seed);
        let again = World::open(disk, world.options.clone(), &world.log).unwrap();
        again.check_reads(again.sequence, &all_keys(KEYS)).unwrap();
        again.seal();
        again.tree.compact(&|| false).unwrap();
        again.check_tables();
        again.check_accounts();
    }
}

/// A fault at the n-th operation of a class, in a tree with some history.
fn one_fault(seed: u64, class: OperationClass, nth: u64, fault: Fault) -> bool {
    one_fault_with(None, seed, class, nth, fault)
}

fn one_fault_with(
    bug: Option<SeededBug>,
    seed: u64,
    class: OperationClass,
    nth: u64,
    fault: Fault,
) -> bool {
    let mut generator = Generator::new(seed);
    let mut options = tiny_options(seed);
    options.seeded_bug = bug;
    let mut world = World::create(SimulatedDisk::new(seed), options);
    for _ in 0..20 {
        world.put(&key(&mut generator, KEYS), &mut generator);
    }
    world.seal();
    world.tree.flush().unwrap();
    if seed % 2 == 1 {
        // The first edit of an opening begins a new manifest.
        world.tree.close().unwrap();
        world = World::open(world.disk.clone(), world.options.clone(), &world.log).unwrap();
    }
    world.disk.inject(FaultRule {
        class,
        nth,
        forever: false,
        fault,
    });
    let Some(error) = work_until_failure(&mut world, &mut generator) else {
        return false;
    };
    world.disk.clear_faults();
    survives_crashes(&world, seed);
    // The first failure is final, and answers everyone.
    let full = error.is_no_space();
    if let Some(original) = world.tree.poisoned() {
        assert!(!full, "{error}, and the tree is poisoned");
        assert_eq!(world.tree.step(1000).unwrap(), StepOutcome::Idle);
        let refused = world.tree.commit_note(&[0; 8]).unwrap_err();
        assert!(matches!(refused, Error::Poisoned { .. }), "{refused}");
        assert!(refused.to_string().contains(&original.to_string()));
    } else {
        assert!(full, "{error} did not poison the tree");
        while world.tree.step(1000).unwrap() == StepOutcome::Again {}
    }
    // What was written can be read all the same.
    world.check_reads(world.sequence, &all_keys(KEYS)).unwrap();
    survives_crashes(&world, seed);
    true
}

#[test]
fn errors_of_the_disk_poison_and_lose_nothing() {
    use OperationClass::{Allocate, Sync, Write};
    let mut met = 0;
    for (class, fault) in [
        (Write, Fault::Error(ErrorNumber::InputOutput)),
        (Write, Fault::PartialWrite(ErrorNumber::InputOutput)),
        (Write, Fault::PartialWrite(ErrorNumber::NoSpace)),
        (Sync, Fault::Error(ErrorNumber::InputOutput)),
        (Sync, Fault::SyncDropsPages(ErrorNumber::InputOutput)),
        (Sync, Fault::SyncDropsPages(ErrorNumber::NoSpace)),
        (Allocate, Fault::Error(ErrorNumber::InputOutput)),
        (Allocate, Fault::Error(ErrorNumber::NoSpace)),
    ] {
        for nth in 1..=25 {
            for seed in 0..4 {
                met += u64::from(one_fault(seed, class, nth, fault));
            }
        }
    }
    assert!(met > 300, "{met} faults were met");
}

/// Bugs that only failing disks show; `seeded_bugs.rs` finds the others.
#[test]
fn seeded_bugs_of_failing_disks_are_found() {
    let fails = |bug: SeededBug, nth, seed, fault| {
        let run = || one_fault_with(Some(bug), seed, OperationClass::Write, nth, fault);
        catch_unwind(AssertUnwindSafe(run)).is_err()
    };
    let full = [
        Fault::Error(ErrorNumber::NoSpace),
        Fault::PartialWrite(ErrorNumber::NoSpace),
    ];
    let is_found = |bug: &SeededBug| {
        (1..=25)
            .any(|nth| (0..4).any(|seed| full.iter().any(|&fault| fails(*bug, nth, seed, fault))))
    };
    // The failures that are wanted would fill the screen.
    std::panic::set_hook(Box::new(|_| {}));
    let missed: Vec<SeededBug> = [
        SeededBug::NamedManifestRemoved,
        SeededBug::PoisonAnsweredRaw,
    ]
    .into_iter()
    .filter(|bug| !is_found(bug))
    .collect();
    _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn files_that_cannot_be_made_or_removed_lose_nothing() {
    let mut met = 0;
    for number in [
        ErrorNumber::InputOutput,
        ErrorNumber::TooManyFiles,
        ErrorNumber::NoSpace,
    ] {
        for nth in 1..=20 {
            let fault = Fault::Error(number);
            met += u64::from(one_fault(nth, OperationClass::Name, nth, fault));
        }
    }
    assert!(met > 5, "{met} faults were met");
}

#[test]
fn errors_of_reading_are_answered_and_pass() {
    for seed in 0..30 {
        let mut generator = Generator::new(seed);
        let mut world = World::create(SimulatedDisk::new(seed), tiny_options(3));
        for _ in 0..40 {
            world.put(&key(&mut generator, KEYS), &mut generator);
        }
        world.seal();
        world.tree.flush().unwrap();
        world.disk.inject(FaultRule {
            class: OperationClass::Read,
            nth: 1 + seed % 10,
            forever: false,
            fault: Fault::Error(ErrorNumber::InputOutput),
        });
        let keys = all_keys(KEYS);
        let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let failed = world.tree.multi_get(&slices, world.sequence).is_err();
        assert!(failed || seed % 10 > 5, "no read failed");
        world.disk.clear_faults();
        assert!(world.tree.poisoned().is_none(), "reading poisons nothing");
        world.check_reads(world.sequence, &keys).unwrap();
    }
}

/// A disk that is full in the middle of flushes, compactions and edits: every
/// job gives up, nothing is lost, and all of it is done when there is room.
#[test]
fn a_full_disk_stops_jobs_and_room_lets_them_go_on() {
    let (mut full, mut steps_done) = (0, 0);
    for seed in 0..40 {
        let mut generator = Generator::new(seed);
        let mut world = World::create(SimulatedDisk::new(seed), tiny_options(seed));
        for round in 0..seed * 3 {
            world.put(&key(&mut generator, KEYS), &mut generator);
            if round % 8 == 7 {
                world.seal();
                world.tree.flush().unwrap();
                world.tree.step(1 << 20).unwrap();
            }
        }
        let room = seed % 10 * 4096;
        world
            .disk
            .set_capacity(Some(world.disk.used_bytes() + room));
        for _ in 0..60 {
            world.put(&key(&mut generator, KEYS), &mut generator);
            world.seal();
            match world.tree.step(500) {
                Ok(_) => steps_done += 1,
                Err(error) => {
                    assert!(error.is_no_space(), "{error}");
                    full += 1;
                }
            }
            assert!(world.tree.poisoned().is_none());
        }
        world.check_reads(world.sequence, &all_keys(KEYS)).unwrap();
        // A full disk is no reason not to open.
        let disk = world.disk.process_crash();
        let again = World::open(disk.clone(), world.options.clone(), &world.log).unwrap();
        again.check_reads(again.sequence, &all_keys(KEYS)).unwrap();
        disk.set_capacity(None);
        for world in [&world, &again] {
            world.disk.set_capacity(None);
            world.seal();
            while world.tree.step(1 << 20).unwrap() == StepOutcome::Again {}
            assert_eq!(world.tree.statistics().sealed_memtables, 0);
            world.check_reads(world.sequence, &all_keys(KEYS)).unwrap();
            world.check_tables();
            world.check_accounts();
        }
    }
    assert!(
        full > 200 && steps_done > 200,
        "{full} full, {steps_done} done"
    );
}

/// Every flush asks its owner before it commits; one that is refused leaves no
/// table behind, however often it is tried again.
#[test]
fn a_flush_that_its_owner_refuses_leaves_nothing() {
    let mut generator = Generator::new(5);
    let mut world = World::create(SimulatedDisk::new(5), tiny_options(0));
    for _ in 0..10 {
        world.put(&key(&mut generator, KEYS), &mut generator);
    }
    world.seal();
    let files = world.disk.files();
    world.owner.state.lock().unwrap().refuses_flushes = true;
    for _ in 0..5 {
        let error = world.tree.flush().unwrap_err();
        assert!(error.is_no_space(), "{error}");
        assert_eq!(world.disk.files(), files);
    }
    assert!(world.tree.poisoned().is_none());
    world.owner.state.lock().unwrap().refuses_flushes = false;
    world.tree.flush().unwrap();
    assert_eq!(world.owner.state.lock().unwrap().announced, 1);
    world.check_reads(world.sequence, &all_keys(KEYS)).unwrap();
}
