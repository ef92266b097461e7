//! Backups of the memory engine: taken, restored, cut off anywhere, damaged anywhere.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cambium_api::{CheckReport, Durability, Engine, EngineKind, OptionValues, WriteBatch};
use cambium_backup::{BackupKind, Place, Stores};
use cambium_base::{Error, Result, StoreId};
use cambium_io::Environment;
use cambium_io::simulated::{CrashStyle, Generator, ProbePoints, SimulatedDisk};
use cambium_testkit::golden::contents;
use cambium_testkit::memory_engine::MemoryKind;

const STORE: StoreId = StoreId([3; 16]);

type State = BTreeMap<Vec<u8>, Vec<u8>>;

struct Opener(Environment);

impl Stores for Opener {
    fn open(&self, path: &Path) -> Result<Arc<dyn Engine>> {
        MemoryKind.open(&self.0, path, &OptionValues::default(), &())
    }
    fn open_read_only(&self, path: &Path) -> Result<Arc<dyn Engine>> {
        MemoryKind.open_read_only(&self.0, path, &OptionValues::default(), &())
    }
    fn check(&self, path: &Path) -> Result<CheckReport> {
        MemoryKind.check(&self.0, path, &OptionValues::default(), &())
    }
}

/// A store and its backups.
struct Bench {
    environment: Environment,
    store: Arc<dyn Engine>,
    state: State,
    generator: Generator,
}

impl Bench {
    fn new(disk: &SimulatedDisk, seed: u64) -> Self {
        let environment = Environment::simulated(disk, seed);
        let options = OptionValues::default();
        let store = MemoryKind.create(&environment, path("store"), &options);
        Bench {
            store: store.unwrap(),
            environment,
            state: State::new(),
            generator: Generator::new(seed),
        }
    }

    fn write(&mut self, batches: u64) {
        for _ in 0..batches {
            let mut batch = WriteBatch::new();
            for _ in 0..=self.generator.below(3) {
                let key = vec![self.generator.below(20) as u8];
                if self.generator.chance(1, 4) {
                    batch.delete(&key);
                    self.state.remove(&key);
                } else {
                    let length = self.generator.below(300) as usize;
                    let value = vec![self.generator.below(256) as u8; length];
                    batch.put(&key, &value);
                    self.state.insert(key, value);
                }
            }
            self.store.write(batch, Durability::Written).unwrap();
        }
    }

    fn place(&self) -> Place {
        Place::open_or_create(&self.environment, path("place"), STORE).unwrap()
    }
}

fn path(name: &str) -> &Path {
    Path::new(name)
}

/// What a backup restores to.
fn restored(environment: &Environment, number: Option<u32>) -> Result<State> {
    let place = Place::open(environment, path("place"))?;
    let name = format!("restored-{number:?}-{}", environment.randomness.next_u64());
    let target = Path::new(&name);
    let opener = Opener(environment.clone());
    place.restore(&opener, target, number, &())?;
    let store = opener.open(target)?;
    let state = contents(&*store).into_iter().collect();
    store.close()?;
    Ok(state)
}

fn verify(environment: &Environment) -> CheckReport {
    let place = Place::open(environment, path("place")).unwrap();
    place.verify(&Opener(environment.clone()), &()).unwrap()
}

/// Several backups, and the state that each has.
fn several(bench: &mut Bench) -> Vec<State> {
    let mut states = Vec::new();
    for number in 1..=5 {
        bench.write(30);
        let taken = bench.place().take(&*bench.store, &()).unwrap();
        assert_eq!((taken.backup.number, taken.is_new), (number, true));
        let kind = match number {
            1 => BackupKind::Full,
            _ => BackupKind::Changes,
        };
        assert_eq!(taken.backup.kind, kind);
        states.push(bench.state.clone());
    }
    states
}

#[test]
fn each_backup_restores_to_the_state_it_was_taken_of() {
    for seed in 0..10 {
        let disk = SimulatedDisk::new(seed);
        let mut bench = Bench::new(&disk, seed);
        let states = several(&mut bench);
        let again = bench.place().take(&*bench.store, &()).unwrap();
        assert!(!again.is_new && again.backup.number == 5);
        for (place, state) in states.iter().enumerate() {
            let number = Some(place as u32 + 1);
            assert_eq!(restored(&bench.environment, number).unwrap(), *state);
        }
        assert_eq!(restored(&bench.environment, None).unwrap(), states[4]);
        let missing = restored(&bench.environment, Some(9));
        assert!(matches!(missing, Err(Error::NotFound { .. })));
        let report = verify(&bench.environment);
        assert!(report.is_sound() && report.files >= 5, "{report:?}");
        // The store goes on after a close.
        bench.store.close().unwrap();
        let opener = Opener(bench.environment.clone());
        bench.store = opener.open(path("store")).unwrap();
        bench.write(5);
        let taken = bench.place().take(&*bench.store, &()).unwrap();
        assert_eq!(taken.backup.kind, BackupKind::Changes);
        assert_eq!(restored(&bench.environment, None).unwrap(), bench.state);
    }
}

#[test]
fn a_store_that_is_not_the_one_of_the_last_backup_gets_a_full_one() {
    let disk = SimulatedDisk::new(1);
    let mut bench = Bench::new(&disk, 1);
    several(&mut bench);
    // Its consumer is gone, as in a copy of the store.
    let name = bench.store.list_consumers().unwrap()[0].0.clone();
    bench.store.move_consumer(&name, None).unwrap();
    bench.write(3);
    let taken = bench.place().take(&*bench.store, &()).unwrap().backup;
    assert_eq!((taken.number, taken.kind), (6, BackupKind::Full));
    assert_eq!(restored(&bench.environment, None).unwrap(), bench.state);

    bench.write(3);
    bench.place().take(&*bench.store, &()).unwrap();
    assert!(bench.place().keep(0).is_err());
    let gone = bench.place().keep(1).unwrap();
    assert_eq!(gone.len(), 5);
    let left: Vec<u32> = bench
        .place()
        .list()
        .unwrap()
        .iter()
        .map(|it| it.number)
        .collect();
    assert_eq!(left, [6, 7]);
    assert_eq!(restored(&bench.environment, Some(7)).unwrap(), bench.state);
    assert!(bench.place().keep(1).unwrap().is_empty());
    assert!(verify(&bench.environment).is_sound());

    let other = Place::open_or_create(&bench.environment, path("place"), StoreId([4; 16]));
    assert!(matches!(other, Err(Error::AlreadyExists { .. })));
    let store = Place::open_or_create(&bench.environment, path("store"), STORE);
    assert!(matches!(store, Err(Error::AlreadyExists { .. })));
}

#[test]
fn an_older_copy_of_the_store_that_was_put_back_gets_a_full_backup() {
    for archives in 0..3 {
        let disk = SimulatedDisk::new(archives);
        let mut bench = Bench::new(&disk, archives);
        bench.write(30);
        let copied = |number: u64| number == archives;
        let mut old = None;
        for number in 0..=archives + 1 {
            let taken = bench.place().take(&*bench.store, &()).unwrap().backup;
            if copied(number) {
                bench.store.close().unwrap();
                old = Some((store_files(&disk), bench.state.clone()));
                bench.store = Opener(bench.environment.clone())
                    .open(path("store"))
                    .unwrap();
            }
            assert_eq!(u64::from(taken.number), number + 1);
            bench.write(10);
        }
        bench.store.close().unwrap();
        let (files, state) = old.unwrap();
        for (name, bytes) in &files {
            assert!(disk.replace_contents(name, bytes));
        }
        bench.store = Opener(bench.environment.clone())
            .open(path("store"))
            .unwrap();
        bench.state = state;
        // Past the numbers that the backups have.
        bench.write(60);
        let taken = bench.place().take(&*bench.store, &()).unwrap().backup;
        assert_eq!(taken.kind, BackupKind::Full, "{archives}");
        assert_eq!(restored(&bench.environment, None).unwrap(), bench.state);
    }
}

/// The store's files and what is in them.
fn store_files(disk: &SimulatedDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let files = disk.files().into_iter();
    let ours = files.filter(|file| file.starts_with("/store"));
    ours.map(|file| (file.clone(), disk.contents(&file).unwrap()))
        .collect()
}

#[test]
fn history_that_is_lost_begins_a_new_chain() {
    let disk = SimulatedDisk::new(1);
    let mut bench = Bench::new(&disk, 1);
    let options = OptionValues::from([("history_bytes", "0")]);
    bench.store.close().unwrap();
    let environment = bench.environment.clone();
    let kind = &MemoryKind;
    bench.store = kind
        .open(&environment, path("store"), &options, &())
        .unwrap();
    let mut kinds = Vec::new();
    for _ in 0..3 {
        bench.write(50);
        let compaction = cambium_api::CompactOptions::default();
        bench.store.compact(&compaction, &()).unwrap();
        kinds.push(bench.place().take(&*bench.store, &()).unwrap().backup.kind);
        assert_eq!(restored(&environment, None).unwrap(), bench.state);
    }
    assert_eq!(kinds, [BackupKind::Full; 3]);
}

#[test]
fn a_crash_anywhere_leaves_what_was_completed() {
    for seed in 0..6 {
        let disk = SimulatedDisk::new(seed);
        let mut bench = Bench::new(&disk, seed);
        let states = several(&mut bench);
        bench.write(20);
        if seed % 3 == 0 {
            let name = bench.store.list_consumers().unwrap()[0].0.clone();
            bench.store.move_consumer(&name, None).unwrap();
        }
        let points = Arc::new(Mutex::new(Vec::new()));
        let sink = points.clone();
        disk.set_crash_probe(ProbePoints::Operations, move |point| {
            sink.lock().unwrap().push(point.disk);
        });
        bench.place().take(&*bench.store, &()).unwrap();
        bench.place().keep(1).unwrap();
        disk.clear_crash_probe();
        let points = std::mem::take(&mut *points.lock().unwrap());
        for (at, point) in points.iter().enumerate() {
            let image = point.crash(CrashStyle::Mixed, seed * 1000 + at as u64);
            let environment = Environment::simulated(&image, 1);
            let context = format!("seed {seed}, operation {at} of {}", points.len());
            let listed = Place::open(&environment, path("place")).unwrap().list();
            let listed = listed.unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(!listed.is_empty(), "{context}");
            for backup in &listed {
                let state = restored(&environment, Some(backup.number));
                let state = state.unwrap_or_else(|error| panic!("{context}: {error}"));
                let expected = states.get(backup.number as usize - 1);
                assert_eq!(&state, expected.unwrap_or(&bench.state), "{context}");
            }
            assert!(verify(&environment).is_sound(), "{context}");
            // And the next backup goes on from there.
            let opener = Opener(environment.clone());
            let store = opener.open(path("store")).unwrap();
            let now: State = contents(&*store).into_iter().collect();
            let place = Place::open(&environment, path("place")).unwrap();
            let taken = place.take(&*store, &());
            taken.unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(restored(&environment, None).unwrap(), now, "{context}");
            // It removes what the crash kept from being removed.
            place.keep(1).unwrap();
            let left = environment.file_system.list(path("place")).unwrap();
            let copies = left
                .iter()
                .filter(|it| it.name.to_string_lossy().ends_with("-full"));
            assert_eq!(copies.count(), 1, "{context}");
            assert!(verify(&environment).is_sound(), "{context}");
        }
    }
}

#[test]
fn a_crash_of_a_restore_leaves_no_store_or_a_whole_one() {
    for seed in 0..4 {
        let disk = SimulatedDisk::new(seed);
        let mut bench = Bench::new(&disk, seed);
        let states = several(&mut bench);
        let points = Arc::new(Mutex::new(Vec::new()));
        let sink = points.clone();
        disk.set_crash_probe(ProbePoints::Operations, move |point| {
            sink.lock().unwrap().push(point.disk);
        });
        let restore = |environment: &Environment| {
            let place = Place::open(environment, path("place")).unwrap();
            place.restore(&Opener(environment.clone()), path("target"), Some(3), &())
        };
        restore(&bench.environment).unwrap();
        disk.clear_crash_probe();
        let points = std::mem::take(&mut *points.lock().unwrap());
        let mut whole = 0;
        for (at, point) in points.iter().enumerate() {
            let image = point.crash(CrashStyle::Mixed, seed * 1000 + at as u64);
            let environment = Environment::simulated(&image, 1);
            let context = format!("seed {seed}, operation {at} of {}", points.len());
            if environment
                .file_system
                .metadata(path("target"))
                .unwrap()
                .is_none()
            {
                restore(&environment).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(
                    !image
                        .files()
                        .iter()
                        .any(|file| file.starts_with("/target.restoring"))
                );
            } else {
                whole += 1;
            }
            let store = Opener(environment.clone()).open(path("target")).unwrap();
            let state: State = contents(&*store).into_iter().collect();
            assert_eq!(state, states[2], "{context}");
        }
        assert!(whole > 0, "seed {seed}");
    }
}

#[test]
fn any_changed_or_missing_byte_of_an_archive_is_found() {
    let disk = SimulatedDisk::new(1);
    let mut bench = Bench::new(&disk, 1);
    several(&mut bench);
    let backups = bench.place().list().unwrap();
    let archive = backups.iter().find(|backup| backup.number == 3).unwrap();
    let name = format!("place/0003-{}-{}.changes", archive.after, archive.through);
    let file = Path::new(&name);
    let whole = disk.contents(file).unwrap();
    for place in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[place] ^= 1 << (place % 8);
        let damaged = disk.fork();
        assert!(damaged.replace_contents(file, &bytes));
        let environment = Environment::simulated(&damaged, 1);
        let place_of = Place::open(&environment, path("place")).unwrap();
        let report = place_of.verify(&Opener(environment.clone()), &());
        // A newer format version is refused, whatever else is wrong.
        let found = report.map_or(true, |report| !report.is_sound());
        assert!(found, "byte {place}");
    }
    for length in (0..whole.len()).step_by(7) {
        let damaged = disk.fork();
        damaged.replace_contents(file, &whole[..length]);
        let environment = Environment::simulated(&damaged, 1);
        assert!(!verify(&environment).is_sound(), "cut to {length}");
        assert!(restored(&environment, Some(5)).is_err(), "cut to {length}");
    }
    use cambium_io::FileSystem;
    disk.remove(file).unwrap();
    assert!(!verify(&bench.environment).is_sound());
    assert!(restored(&bench.environment, Some(4)).is_err());
    assert!(restored(&bench.environment, Some(2)).is_ok());
}

#[test]
fn the_loss_of_the_file_that_names_the_place_does_no_harm() {
    let marker = Path::new("place/BACKUPS");
    let missing = |disk: &SimulatedDisk| {
        use cambium_io::FileSystem;
        disk.remove(marker).unwrap();
    };
    let damaged = |disk: &SimulatedDisk| assert!(disk.flip_bit(marker, 30, 1));
    for lose in [&missing as &dyn Fn(&SimulatedDisk), &damaged] {
        let disk = SimulatedDisk::new(1);
        let mut bench = Bench::new(&disk, 1);
        let states = several(&mut bench);
        lose(&disk);
        assert_eq!(bench.place().list().unwrap().len(), 5);
        assert_eq!(restored(&bench.environment, None).unwrap(), states[4]);
        let report = verify(&bench.environment);
        assert!(report.is_sound() && report.is_degraded(), "{report:?}");
        assert_eq!(report.findings[0].file, marker);
        let other = Place::open_or_create(&bench.environment, path("place"), StoreId([4; 16]));
        assert!(matches!(other, Err(Error::AlreadyExists { .. })));
        // The next backup writes it anew, also where nothing is new.
        assert!(!bench.place().take(&*bench.store, &()).unwrap().is_new);
        assert!(!verify(&bench.environment).is_degraded());
        bench.write(5);
        let taken = bench.place().take(&*bench.store, &()).unwrap();
        assert_eq!(taken.backup.kind, BackupKind::Changes);
        assert_eq!(restored(&bench.environment, None).unwrap(), bench.state);
        // With the description too, nothing says what the place is of.
        lose(&disk);
        assert!(disk.flip_bit(Path::new("place/0001-full.backup"), 30, 1));
        let refused = Place::open(&bench.environment, path("place")).unwrap_err();
        assert!(refused.to_string().contains("another folder"), "{refused}");
    }
}

#[test]
fn a_newest_backup_that_is_missing_is_found() {
    use cambium_io::FileSystem;
    let disk = SimulatedDisk::new(1);
    let mut bench = Bench::new(&disk, 1);
    let states = several(&mut bench);
    let newest = bench.place().list().unwrap().pop().unwrap();
    let name = format!("place/0005-{}-{}.changes", newest.after, newest.through);
    disk.remove(Path::new(&name)).unwrap();
    assert!(!verify(&bench.environment).is_sound());
    let refused = restored(&bench.environment, None).unwrap_err().to_string();
    assert!(
        refused.contains("backup 5 cannot be restored") && refused.contains("that can is 4"),
        "{refused}"
    );
    assert_eq!(restored(&bench.environment, Some(4)).unwrap(), states[3]);
    let taken = bench.place().take(&*bench.store, &()).unwrap().backup;
    assert_eq!((taken.number, taken.kind), (6, BackupKind::Full));
    assert!(verify(&bench.environment).is_sound());
    disk.remove(Path::new("place/0006-full.backup")).unwrap();
    assert!(!verify(&bench.environment).is_sound());
    assert!(restored(&bench.environment, None).is_err());
}
