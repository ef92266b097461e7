//! Flushes that fail: one that met damage stops writes at once and for good, one that may
//! succeed later takes no new space with each attempt. And calls of `compact` that are
//! cancelled.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cambium_api::{
    CompactOptions, Durability, Engine, EngineKind, Error, OptionValues, Progress, ProgressSink,
};
use cambium_forest::Forest;
use cambium_io::Environment;
use cambium_io::simulated::{
    CrashStyle, ErrorNumber, Fault, FaultRule, OperationClass, SimulatedDisk,
};
use cambium_io::sync::schedule::Schedule;
use cambium_io::sync::scheduler;
use cambium_io::sync::thread::{self, JoinHandle};
use cambium_testkit::stores::{self, number};

const PATH: &str = "/store";
/// Interleavings of a program.
const SEEDS: u64 = 1_000;
/// A window of the log holds few bytes, so that writes often open a new one.
const SMALL: [(&str, &str); 3] = [
    ("node_bytes", "512"),
    ("block_bytes", "512"),
    ("preallocate_bytes", "4096"),
];

fn file() -> PathBuf {
    Path::new(PATH).join("000001.forest")
}

/// A store whose index has hundreds of nodes, none of them in memory.
fn store(disk: &SimulatedDisk, bug: Option<&str>) -> Arc<dyn Engine> {
    let environment = Environment::simulated(disk, 3);
    let mut options = OptionValues::from([
        ("node_bytes", "512"),
        ("block_bytes", "512"),
        ("write_buffer_entries", "20000"),
        ("flush_bytes", "65536"),
        ("preallocate_bytes", "4096"),
        ("compaction_threshold", "100"),
        ("cache_bytes", "0"),
    ]);
    if let Some(bug) = bug {
        options.set("seeded_bug", bug);
    }
    let store = stores::create(&Forest, &environment, &options);
    write(&*store, 1).unwrap();
    store
}

fn write(store: &dyn Engine, version: u8) -> Result<(), Error> {
    for number in 0..2_000u32 {
        store.put(&number.to_be_bytes(), &[version; 20], Durability::Written)?;
    }
    Ok(())
}

/// Flips a bit in every third block of a range.
fn damage(disk: &SimulatedDisk, blocks: std::ops::Range<u64>) {
    for place in (blocks.start / 512 + 1..blocks.end / 512).step_by(3) {
        disk.flip_bit(&file(), place * 512 + 100, 2);
    }
}

/// How often writes are answered `Ok` after a flush that met damage, and by how much the
/// file grows while the store is idle.
fn after_damage(bug: Option<&str>) -> (u32, u64) {
    let disk = SimulatedDisk::new(3);
    let store = store(&disk, bug);
    let nodes_begin = number(&*store, "file_bytes");
    store.create_named_snapshot("flushed").unwrap();
    // Headers and all.
    let nodes_end = number(&*store, "file_bytes");
    write(&*store, 2).unwrap();
    damage(&disk, nodes_begin..nodes_end);
    let refused = store.create_named_snapshot("another").unwrap_err();
    assert!(matches!(refused, Error::Corruption { .. }), "{refused}");
    let length = disk.contents(&file()).unwrap().len() as u64;
    let accepted = (0..50u8).filter(|&version| {
        _ = store.step(1 << 20);
        store.put(b"later", &[version], Durability::Synced).is_ok()
    });
    let accepted = accepted.count() as u32;
    for number in 0..2_000u32 {
        let value = store.get(&number.to_be_bytes()).unwrap();
        assert_eq!(value.as_deref(), Some(&[2; 20][..]), "reads go on");
    }
    let grown = disk.contents(&file()).unwrap().len() as u64 - length;
    (accepted, grown)
}

#[test]
fn a_flush_that_meets_damage_stops_writes_for_good() {
    assert_eq!(after_damage(None), (0, 0));
    let (accepted, grown) = after_damage(Some("flush_retries_damage"));
    assert!(accepted > 0 && grown > 0, "{accepted} {grown}");
}

/// Bytes by which the file grows in many attempts of a flush of which the first reads
/// succeed and later ones fail.
fn grown_by_attempts(bug: Option<&str>) -> u64 {
    let disk = SimulatedDisk::new(3);
    let store = store(&disk, bug);
    store.create_named_snapshot("flushed").unwrap();
    write(&*store, 2).unwrap();
    let attempt = |name: &str, fails: bool| {
        if fails {
            disk.inject(FaultRule {
                class: OperationClass::Read,
                nth: 30,
                forever: true,
                fault: Fault::Error(ErrorNumber::InputOutput),
            });
        }
        let made = store.create_named_snapshot(name);
        disk.clear_faults();
        made
    };
    let length = || number(&*store, "file_bytes");
    attempt("first", true).unwrap_err();
    let first = length();
    for _ in 0..20 {
        attempt("again", true).unwrap_err();
    }
    let grown = length() - first;
    assert!(number(&*store, "failed_flushes") > 20);
    attempt("last", false).unwrap();
    assert!(store.check(&()).unwrap().is_sound());
    store.close().unwrap();
    drop(store);
    let environment = Environment::simulated(&disk, 4);
    let report = Forest
        .check(&environment, Path::new(PATH), &Default::default(), &())
        .unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.entries, 2_000);
    let none = OptionValues::default();
    let store = stores::open(&Forest, &environment, &none);
    for number in 0..2_000u32 {
        let value = store.get(&number.to_be_bytes()).unwrap();
        assert_eq!(value.as_deref(), Some(&[2; 20][..]));
    }
    grown
}

#[test]
fn attempts_of_a_flush_that_fails_take_the_space_of_one() {
    assert_eq!(grown_by_attempts(None), 0);
    assert!(grown_by_attempts(Some("flush_leaves_runs")) > 0);
}

/// Whether a synced write is gone after a crash, where a flush beside it could not take
/// space for its nodes; the seed decides the interleaving.
fn a_synced_write_is_lost(seed: u64, bug: Option<&'static str>) -> bool {
    let program = move || {
        let disk = SimulatedDisk::new(seed);
        let environment = Environment::simulated(&disk, seed);
        let mut options = OptionValues::from(SMALL);
        bug.into_iter()
            .for_each(|bug| _ = options.set("seeded_bug", bug));
        let path = Path::new(PATH);
        let store = Forest.create(&environment, path, &options).unwrap();
        let put = |number: u8, durability| store.put(&[number], &[number; 300], durability);
        (0..6).for_each(|number| _ = put(number, Durability::Written).unwrap());
        disk.inject(FaultRule {
            class: OperationClass::Write,
            nth: 2,
            forever: false,
            fault: Fault::Error(ErrorNumber::InputOutput),
        });
        let other = store.clone();
        let flush = thread::spawn(move || other.create_named_snapshot("flushed").map(|_| ()));
        let synced = |number: &u8| put(*number, Durability::Synced).is_ok();
        let synced: Vec<u8> = (6..12).filter(synced).collect();
        _ = flush.join().unwrap();
        disk.clear_faults();
        let crashed = disk.crash(CrashStyle::Mixed, seed);
        let environment = Environment::simulated(&crashed, seed);
        let store = Forest.open(&environment, path, &OptionValues::default(), &());
        let store = match store {
            Ok(store) => store,
            // A mark of a sync says that the write was there.
            Err(error) if error.is_corruption() => return true,
            Err(error) => panic!("{error}"),
        };
        let is_lost = |number: &u8| store.get(&[*number]).unwrap().is_none();
        synced.iter().any(is_lost)
    };
    let run = scheduler::run(Schedule::random(seed), program);
    run.outcome
        .unwrap_or_else(|failure| panic!("seed {seed} {bug:?}: {failure}"))
}

#[test]
fn no_write_goes_behind_a_run_that_a_flush_could_not_take() {
    let lost = |seed| a_synced_write_is_lost(seed, None);
    assert_eq!((0..SEEDS).find(|&seed| lost(seed)), None);
    let lost = |seed| a_synced_write_is_lost(seed, Some("writes_behind_lost_run"));
    assert!((0..SEEDS).any(lost));
}

/// Cancels at the first report, and lets another call begin.
struct Cancels {
    store: Arc<dyn Engine>,
    other: Mutex<Option<JoinHandle<()>>>,
}

impl ProgressSink for Cancels {
    fn report(&self, _: Progress) {
        let mut other = self.other.lock().unwrap();
        if other.is_none() {
            self.store.cancel();
            let store = self.store.clone();
            *other = Some(thread::spawn(move || {
                _ = store.compact(&CompactOptions::default(), &());
            }));
        }
    }
}

/// True if a call that was cancelled before another one began answers so.
fn is_cancelled(seed: u64, bug: Option<&'static str>) -> bool {
    let program = move || {
        let environment = Environment::simulated(&SimulatedDisk::new(seed), seed);
        let mut options = OptionValues::from(SMALL);
        bug.into_iter()
            .for_each(|bug| _ = options.set("seeded_bug", bug));
        let path = Path::new(PATH);
        let store = Forest.create(&environment, path, &options).unwrap();
        for number in 0..50u8 {
            let value = [number; 100];
            store.put(&[number], &value, Durability::Written).unwrap();
        }
        let sink = Cancels {
            store: store.clone(),
            other: Mutex::new(None),
        };
        let outcome = store.compact(&CompactOptions::default(), &sink);
        let other = sink.other.lock().unwrap().take();
        other.unwrap().join().unwrap();
        matches!(outcome, Err(Error::Cancelled))
    };
    let run = scheduler::run(Schedule::random(seed), program);
    run.outcome
        .unwrap_or_else(|failure| panic!("seed {seed} {bug:?}: {failure}"))
}

#[test]
fn a_call_of_compact_takes_back_no_cancellation() {
    assert!((0..100).all(|seed| is_cancelled(seed, None)));
    assert!(!(0..100).all(|seed| is_cancelled(seed, Some("cancellation_cleared"))));
}
