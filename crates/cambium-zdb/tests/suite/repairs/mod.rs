//! Repairs of `zdb`: killed anywhere and run again, after each kind of damage, and with a
//! copy of the superblock that cannot be read.

mod superblock;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::{
    Durability, Engine, EngineKind, FindingKind, IterationOrder, OptionValues, Result,
};
use cambium_io::simulated::SimulatedDisk;
use cambium_io::{Environment, OpenOptions};
use cambium_testkit::ending::after_changes;
use cambium_testkit::stores;
use cambium_zdb::Zdb;

const PATH: &str = "/store";

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

fn small(keys: &str) -> OptionValues {
    OptionValues::from([
        ("keys", keys),
        ("keys_per_table", "64"),
        ("data_files", "2"),
        ("piece_bytes", "256"),
        ("block_bytes", "512"),
        ("commit_log_bytes", "4096"),
        ("buckets", "4"),
        ("sparse_tables", "1000"),
    ])
}

fn opening(pairs: &[(&str, &str)]) -> OptionValues {
    let mut options = OptionValues::from(pairs);
    options.set("sparse_tables", "1000");
    options
}

fn open(environment: &Environment, options: &OptionValues) -> Result<Arc<dyn Engine>> {
    Zdb.open(environment, Path::new(PATH), options, &())
}

fn all(store: &dyn Engine) -> Result<Entries> {
    let mut cursor = store.iterate(IterationOrder::Any, None)?;
    let mut entries = Entries::new();
    while let Some(entry) = cursor.next()? {
        entries.insert(entry.key.to_vec(), entry.value.to_vec());
    }
    for (key, value) in &entries {
        let read = store.get(key)?;
        assert_eq!(read.as_deref(), Some(&value[..]), "get and iterate agree");
    }
    Ok(entries)
}

/// Reads the entries of a disk's store on a copy of the disk.
fn contents(disk: &SimulatedDisk) -> Result<Entries> {
    let copy = Environment::simulated(&disk.fork(), 9);
    let store = open(&copy, &opening(&[]))?;
    all(&*store)
}

/// A store of 100 keys, each overwritten or removed at some time, synced; closed, or
/// the process died.
fn store(disk: &SimulatedDisk, keys: &str, closed: bool, more: &[(&str, &str)]) -> Entries {
    let environment = Environment::simulated(disk, 1);
    let mut options = small(keys);
    for (name, value) in more {
        options.set(name, value);
    }
    let store = stores::create(&Zdb, &environment, &options);
    for round in 0..2u8 {
        for number in 0..100u64 {
            let (key, value) = (number.to_be_bytes(), vec![round; number as usize]);
            match (round, number % 7) {
                (1, 3) => store.delete(&key, Durability::Synced).unwrap(),
                (1, 5) => continue,
                _ => store.put(&key, &value, Durability::Synced).unwrap(),
            };
        }
    }
    let entries = all(&*store).unwrap();
    if closed {
        store.close().unwrap();
    }
    entries
}

fn repair(environment: &Environment) -> Result<cambium_api::CheckReport> {
    Zdb.repair(environment, Path::new(PATH), &Default::default(), &())
}

/// Runs a step over and over on copies of a disk, killed after 0, 1, 2, ... changes,
/// until it is through; shows each disk that a kill left.
fn killed_everywhere(
    disk: &SimulatedDisk,
    step: impl Fn(&Environment) -> Result<()>,
    look: impl Fn(&SimulatedDisk, u64),
) {
    for changes in 0.. {
        let copy = disk.fork();
        let world = Environment::simulated(&copy, 3);
        let done = step(&after_changes(&world, changes)).is_ok();
        look(&copy, changes);
        if done {
            assert!(changes > 10, "it makes changes");
            return;
        }
    }
}

/// A repair that is killed anywhere, and another one, keep every entry.
fn repaired_anywhere(disk: &SimulatedDisk, expected: &Entries, what: &str) {
    let look = |copy: &SimulatedDisk, changes| {
        let found = contents(copy).unwrap();
        assert!(found == *expected, "{what}, killed after {changes} changes");
        let (environment, path) = (Environment::simulated(&copy.fork(), 5), Path::new(PATH));
        let checked = Zdb.check(&environment, path, &Default::default(), &());
        let is_sound = checked.as_ref().is_ok_and(|report| report.is_sound());
        assert!(is_sound, "{what}, after {changes}: {checked:?}");
        let reader = Zdb.open_read_only(&environment, path, &opening(&[]), &());
        let reader = reader.unwrap();
        let read = all(&*reader).unwrap();
        assert!(read == *expected, "{what}, read after {changes} changes");
        let counted = reader.stats().unwrap().number("entries");
        assert_eq!(counted, Some(expected.len() as u64), "after {changes}");
        let report = repair(&Environment::simulated(copy, 4)).unwrap();
        assert!(report.is_sound(), "{what}, after {changes}: {report:?}");
        assert_eq!(report.entries, expected.len() as u64);
        let found = contents(copy).unwrap();
        assert!(found == *expected, "{what}, repaired after {changes}");
    };
    killed_everywhere(disk, |world| repair(world).map(|_| ()), look);
}

#[test]
fn a_repair_can_be_killed_anywhere_and_run_again() {
    for (keys, closed) in [("integer", true), ("integer", false), ("string", false)] {
        let disk = SimulatedDisk::new(1);
        let expected = store(&disk, keys, closed, &[]);
        repaired_anywhere(&disk, &expected, keys);
    }
}

#[test]
fn a_repair_of_damage_can_be_killed_anywhere_and_run_again() {
    for closed in [true, false] {
        let disk = SimulatedDisk::new(1);
        let expected = store(&disk, "integer", closed, &[("data_files", "1")]);
        let path = data_files(&disk).remove(0);
        assert!(disk.damage(&path, 2_000, |byte| byte ^ 1));
        let look = |copy: &SimulatedDisk, changes| {
            let environment = Environment::simulated(copy, 4);
            // A repair that was killed after its switch may not have reported the loss.
            repair(&environment).unwrap();
            let found = contents(copy).unwrap();
            let lost = expected.len() - found.len();
            let right = found
                .iter()
                .all(|(key, value)| expected.get(key) == Some(value));
            assert!(
                lost <= 1 && right,
                "{lost} lost, killed after {changes} changes"
            );
            let again = repair(&environment).unwrap();
            assert!(again.is_sound(), "{again:?}");
        };
        killed_everywhere(&disk, |world| repair(world).map(|_| ()), look);
    }
}

fn data_files(disk: &SimulatedDisk) -> Vec<PathBuf> {
    named(disk, "data-")
}

fn named(disk: &SimulatedDisk, prefix: &str) -> Vec<PathBuf> {
    let mut files = disk.files();
    files.retain(|path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with(prefix)
    });
    files.sort();
    files
}

/// A store whose process died after a synced entry, which the commit log holds too, and
/// entries that a sync of the data file made durable: one bit of the first has flipped.
fn recovery_of_a_hole_survives_kills(bug: Option<&str>) -> bool {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let mut options = small("integer");
    options.set("data_files", "1");
    let store = stores::create(&Zdb, &environment, &options);
    let put = |key: u64, durability| {
        let key = key.to_be_bytes();
        store.put(&key, &[key[7]; 100], durability).unwrap();
    };
    put(0, Durability::Synced);
    (1..8).for_each(|key| put(key, Durability::Written));
    store.sync().unwrap();
    let expected = all(&*store).unwrap();
    let disk = disk.process_crash();
    let path = data_files(&disk).remove(0);
    assert!(disk.damage(&path, 600, |byte| byte ^ 1), "within entry 1");
    let mut options = opening(&[]);
    if let Some(name) = bug {
        options.set("seeded_bug", name);
    }
    let held = std::cell::Cell::new(true);
    let step = |world: &Environment| open(world, &options).map(|_| ());
    killed_everywhere(&disk, step, |copy, changes| {
        let found = contents(copy);
        assert!(bug.is_some() || found.is_ok(), "{changes}: {found:?}");
        held.set(held.get() && found.is_ok_and(|found| found == expected));
    });
    let environment = Environment::simulated(&disk, 4);
    open(&environment, &options).unwrap().close().unwrap();
    let report = Zdb
        .check(&environment, Path::new(PATH), &Default::default(), &())
        .unwrap();
    assert!(report.is_sound(), "{report:?}");
    for index in named(&disk, "index-") {
        environment.file_system.remove(&index).unwrap();
    }
    assert!(contents(&disk).unwrap() == expected, "after a rebuild");
    held.get()
}

#[test]
fn a_recovery_of_entries_behind_a_hole_can_be_killed_anywhere() {
    assert!(recovery_of_a_hole_survives_kills(None));
    assert!(!recovery_of_a_hole_survives_kills(Some("hole_overwritten")));
}

#[test]
fn what_a_repair_does_not_name_is_there() {
    for (keys, closed) in [
        ("integer", true),
        ("integer", false),
        ("string", true),
        ("string", false),
    ] {
        let whole = SimulatedDisk::new(1);
        let expected = store(&whole, keys, closed, &[]);
        for path in whole.files() {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if name == "LOCK" || name == "CAMBIUM" {
                continue;
            }
            let length = whole.contents(&path).map_or(0, |bytes| bytes.len() as u64);
            let harms = (0..length).step_by(97).map(|at| (at, 1));
            let zeroed = (0..length).step_by(512).map(|at| (at, 512));
            for (at, bytes) in harms.chain(zeroed) {
                let disk = whole.fork();
                for offset in at..(at + bytes).min(length) {
                    disk.damage(&path, offset, |byte| if bytes == 1 { byte ^ 4 } else { 0 });
                }
                let what = format!("{keys}, closed: {closed}, {name} at {at}, {bytes} bytes");
                damaged(&disk, &expected, &what);
            }
        }
    }
}

/// After any damage either a repair names a loss, or nothing is lost; what is left is
/// right, and sound.
fn damaged(disk: &SimulatedDisk, expected: &Entries, what: &str) {
    let environment = Environment::simulated(disk, 5);
    let found_before = Zdb
        .check(&environment, Path::new(PATH), &Default::default(), &())
        .unwrap();
    let report = repair(&environment).unwrap_or_else(|error| panic!("{what}: {error}"));
    let named = report
        .findings
        .iter()
        .any(|finding| finding.kind == FindingKind::Damage);
    let found = contents(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    let older: Vec<_> = found
        .iter()
        .filter(|(key, value)| expected.get(*key) != Some(*value))
        .collect();
    assert!(named || found == *expected, "{what}: lost without a word");
    assert!(
        !found_before.is_sound() || found == *expected,
        "{what}: check found nothing, and {} of {} are left",
        found.len(),
        expected.len()
    );
    assert!(
        older.is_empty(),
        "{what}: {} keys are older: {report:?}",
        older.len()
    );
    let again = Zdb
        .check(&environment, Path::new(PATH), &Default::default(), &())
        .unwrap();
    assert!(again.is_sound(), "{what}: {again:?}");
}

#[test]
fn a_file_that_is_gone_is_named_and_the_rest_stays() {
    let disk = SimulatedDisk::new(1);
    let expected = store(&disk, "integer", true, &[]);
    let environment = Environment::simulated(&disk, 2);
    let path = data_files(&disk).remove(0);
    environment
        .file_system
        .open(&path, OpenOptions::READ)
        .unwrap();
    environment.file_system.remove(&path).unwrap();
    let report = repair(&environment).unwrap();
    assert!(!report.is_sound(), "{report:?}");
    let found = contents(&disk).unwrap();
    assert!(found.len() >= expected.len() / 3 && found.len() < expected.len());
    assert!(
        found
            .iter()
            .all(|(key, value)| expected.get(key) == Some(value))
    );
}
