//! When a folder is a store: not before it is whole, however making it or copying into it
//! ends, and still after it has lost its marker. With every engine.

mod durable;
mod members;
mod others;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cambium::{Environment, Options, comparator, engines};
use cambium_api::{
    Durability, Engine, EngineKind, Error, OptionValues, Progress, ProgressSink, Result,
};
use cambium_io::simulated::{
    CrashStyle, ErrorNumber, Fault, FaultRule, OperationClass, Sharing, SimulatedDisk,
};
use cambium_testkit::ending::after_changes;
use cambium_testkit::golden::contents;

const STORE: &str = "/store";
const COPY: &str = "/copy";
/// What a crash may leave, at either end.
const STYLES: [CrashStyle; 2] = [CrashStyle::NothingUnsynced, CrashStyle::Everything];

/// Options of a store that is small.
fn small(kind: &dyn EngineKind) -> OptionValues {
    match kind.name() {
        "alphard" => OptionValues::from([("size", "262144"), ("mirror", "second")]),
        _ => OptionValues::default(),
    }
}

fn create(kind: &dyn EngineKind, disk: &SimulatedDisk) -> Result<Arc<dyn Engine>> {
    let environment = Environment::simulated(disk, 2);
    kind.create(&environment, Path::new(STORE), &small(kind))
}

fn open(kind: &dyn EngineKind, disk: &SimulatedDisk, path: &str) -> Result<Arc<dyn Engine>> {
    let environment = Environment::simulated(disk, 3);
    kind.open(&environment, Path::new(path), &OptionValues::default(), &())
}

fn repair(disk: &SimulatedDisk, path: &str) -> Result<cambium_api::CheckReport> {
    let environment = Environment::simulated(disk, 4);
    Options::new().environment(environment).repair(path)
}

/// A store of twenty entries, closed.
fn twenty(kind: &dyn EngineKind) -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    let store = create(kind, &disk).unwrap();
    for key in 0..20u8 {
        store.put(&[key], &[key; 700], Durability::Synced).unwrap();
    }
    store.close().unwrap();
    disk
}

/// The same disk, seen through a file system that ends after so many changes.
fn ending(disk: &SimulatedDisk, left: u64) -> Environment {
    after_changes(&Environment::simulated(disk, 5), left)
}

#[test]
fn a_store_that_has_lost_its_marker_is_repaired_and_not_made_anew() {
    let all = engines();
    for kind in all.iter() {
        let name = kind.name();
        for closed in [true, false] {
            let mut disk = twenty(&**kind);
            if !closed {
                let store = open(&**kind, &disk, STORE).unwrap();
                store.put(b"oak", b"kept", Durability::Synced).unwrap();
                disk = disk.crash(CrashStyle::NothingUnsynced, 1);
            }
            let whole = contents(&*open(&**kind, &disk.fork(), STORE).unwrap());
            let files = Environment::simulated(&disk, 1).file_system;
            files.remove(&Path::new(STORE).join("CAMBIUM")).unwrap();
            files.sync_directory(Path::new(STORE)).unwrap();
            let before = disk.files();
            for other in all.iter() {
                let refused = create(&**other, &disk).err().unwrap();
                assert!(
                    matches!(refused, Error::AlreadyExists { .. }),
                    "{name}, {}: {refused}",
                    other.name()
                );
            }
            assert_eq!(disk.files(), before, "{name}");
            let told = open(&**kind, &disk, STORE).err().unwrap();
            assert!(
                told.to_string().contains("cambium repair"),
                "{name}: {told}"
            );
            let report = repair(&disk, STORE).unwrap();
            let is_told = |what: &str| what.contains("marker is missing");
            let told = report.findings.iter().any(|found| is_told(&found.what));
            assert!(report.is_sound() && told, "{name}: {report:?}");
            let store = open(&**kind, &disk, STORE).unwrap();
            assert!(contents(&*store) == whole, "{name}");
        }
    }
}

#[test]
fn a_creation_that_ends_half_way_is_no_store_and_can_be_made_again() {
    for kind in engines().iter() {
        let mut interrupted = 0;
        for left in 0.. {
            let source = SimulatedDisk::new(1);
            let made = kind.create(&ending(&source, left), Path::new(STORE), &small(&**kind));
            let made = made.map(|_| ());
            for style in STYLES {
                let disk = source.crash(style, left);
                let at = format!("{}, {left}, {style:?}", kind.name());
                let files = Environment::simulated(&disk, 1).file_system;
                let marker = files.metadata(&Path::new(STORE).join("CAMBIUM")).unwrap();
                if marker.is_some() {
                    let store = open(&**kind, &disk, STORE).unwrap();
                    assert!(contents(&*store).is_empty(), "{at}");
                    continue;
                }
                assert!(made.is_err(), "{at}: a store that was made is lost");
                interrupted += 1;
                assert!(repair(&disk, STORE).is_err(), "{at}: made a store");
                let store = create(&**kind, &disk).unwrap();
                store.put(b"oak", b"kept", Durability::Synced).unwrap();
            }
            if made.is_ok() {
                break;
            }
        }
        assert!(interrupted > 20, "{}: {interrupted}", kind.name());
    }
}

#[test]
fn a_creation_of_which_one_step_fails_leaves_nothing() {
    for kind in engines().iter() {
        let mut refused = 0;
        for nth in 1.. {
            let disk = SimulatedDisk::new(1);
            disk.inject(FaultRule {
                class: OperationClass::Any,
                nth,
                forever: false,
                fault: Fault::Error(ErrorNumber::InputOutput),
            });
            let at = format!("{}, {nth}", kind.name());
            match create(&**kind, &disk) {
                Ok(store) => {
                    disk.clear_faults();
                    store.put(b"oak", b"kept", Durability::Synced).unwrap();
                    drop(store);
                    assert!(open(&**kind, &disk, STORE).is_ok(), "{at}");
                    if nth > 200 {
                        break;
                    }
                }
                Err(_) => {
                    refused += 1;
                    assert!(disk.files().is_empty(), "{at}: {:?}", disk.files());
                    let files = Environment::simulated(&disk, 1).file_system;
                    let folder = files.metadata(Path::new(STORE)).unwrap();
                    assert!(folder.is_none(), "{at}: the folder is there");
                }
            }
        }
        assert!(refused > 10, "{}: {refused}", kind.name());
    }
}

#[test]
fn a_backup_that_ends_half_way_is_no_store_and_can_be_made_again() {
    let ways = [Sharing::Blocks, Sharing::Names, Sharing::Nothing];
    for (kind, sharing) in engines()
        .iter()
        .flat_map(|kind| ways.map(|sharing| (kind, sharing)))
    {
        let source = twenty(&**kind);
        source.set_sharing(sharing);
        let files = Environment::simulated(&source, 1).file_system;
        comparator::store_name(&*files, Path::new(STORE), "by age").unwrap();
        let whole = contents(&*open(&**kind, &source.fork(), STORE).unwrap());
        let mut interrupted = 0;
        // Sharing files takes fewer operations.
        let step = if sharing == Sharing::Nothing { 3 } else { 1 };
        for left in (0..).step_by(step) {
            let disk = source.fork();
            let environment = ending(&disk, left);
            let ended = kind
                .open(
                    &environment,
                    Path::new(STORE),
                    &OptionValues::default(),
                    &(),
                )
                .and_then(|store| store.backup(Path::new(COPY), &()));
            for style in STYLES {
                let disk = disk.crash(style, left);
                let at = format!("{}, {left}, {style:?}", kind.name());
                let found = || -> cambium_api::Result<_> {
                    let store = open(&**kind, &disk, COPY)?;
                    let files = Environment::simulated(&disk, 2).file_system;
                    let name = comparator::stored_name(&*files, Path::new(COPY))?;
                    assert_eq!(name.as_deref(), Some("by age"), "{at}");
                    Ok(contents(&*store))
                };
                if let Ok(found) = found() {
                    assert!(found == whole, "{at}");
                    continue;
                }
                assert!(ended.is_err(), "{at}: a backup that was done is lost");
                interrupted += 1;
                assert!(repair(&disk, COPY).is_err(), "{at}: made a store");
                let store = open(&**kind, &disk, STORE).unwrap();
                store.backup(Path::new(COPY), &()).unwrap();
                assert!(found().unwrap() == whole, "{at}");
            }
            if ended.is_ok() {
                break;
            }
        }
        let name = kind.name();
        assert!(interrupted > 20, "{name}, {sharing:?}: {interrupted}");
    }
}

/// Looks, whenever it is told of progress, whether the copy is a store already.
struct Looks(Environment, AtomicUsize);

impl ProgressSink for Looks {
    fn report(&self, _progress: Progress) {
        let marker = self.0.file_system.metadata(Path::new("/copy/CAMBIUM"));
        assert!(marker.unwrap().is_none(), "a store before it is whole");
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_backup_is_a_store_once_it_is_whole() {
    for kind in engines().iter() {
        let disk = SimulatedDisk::new(1);
        // Copying entries takes long enough to tell of progress.
        disk.set_sharing(Sharing::Nothing);
        let environment = Environment::simulated(&disk, 1);
        let mut options = small(&**kind);
        if kind.name() == "alphard" {
            options.set("size", "16MiB");
        }
        let store = kind.create(&environment, Path::new(STORE), &options);
        let store = store.unwrap();
        for key in 0..50u8 {
            let value = [key; 200_000];
            store.put(&[key], &value, Durability::Written).unwrap();
        }
        let looks = Looks(environment, AtomicUsize::new(0));
        store.backup(Path::new(COPY), &looks).unwrap();
        assert!(looks.1.into_inner() > 0, "{}", kind.name());
        let copy = open(&**kind, &disk, COPY).unwrap();
        assert!(contents(&*copy) == contents(&*store), "{}", kind.name());
    }
}
