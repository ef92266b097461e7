//! When a folder is a store: not before it is whole, however making it or copying into it
//! ends, and still after it has lost its marker. With every engine.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cambium::{Environment, Options, engines};
use cambium_api::{
    Durability, Engine, EngineKind, Error, IterationOrder, OptionValues, Progress, ProgressSink,
    Result,
};
use cambium_io::OpenOptions;
use cambium_io::simulated::{
    CrashStyle, ErrorNumber, Fault, FaultRule, OperationClass, SimulatedDisk,
};
use cambium_testkit::ending::after_changes;

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

fn contents(store: &dyn Engine) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = store.iterate(IterationOrder::Any, None).unwrap();
    let mut entries = Vec::new();
    while let Some(entry) = cursor.next().unwrap() {
        entries.push((entry.key.to_vec(), entry.value.to_vec()));
    }
    entries.sort();
    entries
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
fn a_creation_with_a_mirror_elsewhere_can_be_made_again() {
    let engines = engines();
    let alphard = engines.iter().find(|kind| kind.name() == "alphard");
    let alphard = alphard.unwrap();
    let elsewhere = OptionValues::from([("size", "262144"), ("mirror", "/elsewhere/second")]);
    let mut was_made = 0;
    for left in 0.. {
        let source = SimulatedDisk::new(1);
        let files = Environment::simulated(&source, 1).file_system;
        files.create_directory(Path::new("/elsewhere")).unwrap();
        files.sync_directory(Path::new("/")).unwrap();
        let made = alphard.create(&ending(&source, left), Path::new(STORE), &elsewhere);
        let is_made = made.map(|_| ()).is_ok();
        for style in STYLES {
            let disk = source.crash(style, left);
            let environment = Environment::simulated(&disk, 2);
            let files = &environment.file_system;
            let marker = files.metadata(&Path::new(STORE).join("CAMBIUM")).unwrap();
            if marker.is_some() {
                continue;
            }
            let second = files.metadata(Path::new("/elsewhere/second")).unwrap();
            was_made += usize::from(second.is_some());
            let store = alphard.create(&environment, Path::new(STORE), &elsewhere);
            let store = store.unwrap_or_else(|error| panic!("{left}, {style:?}: {error}"));
            store.put(b"oak", b"kept", Durability::Synced).unwrap();
        }
        if is_made {
            break;
        }
    }
    assert!(was_made > 5, "{was_made}");
}

#[test]
fn a_member_of_a_store_is_not_taken_for_what_a_creation_left() {
    let engines = engines();
    let alphard = engines.iter().find(|kind| kind.name() == "alphard");
    let alphard = alphard.unwrap();
    let elsewhere = OptionValues::from([("size", "262144"), ("mirror", "/elsewhere")]);
    for left in 0..40 {
        let disk = SimulatedDisk::new(1);
        let environment = Environment::simulated(&disk, 1);
        let other = alphard.create(&environment, Path::new("/other"), &elsewhere);
        let other = other.unwrap();
        other.put(b"oak", b"kept", Durability::Synced).unwrap();
        other.close().unwrap();
        for environment in [ending(&disk, left), Environment::simulated(&disk, 2)] {
            let refused = alphard.create(&environment, Path::new(STORE), &elsewhere);
            assert!(refused.is_err(), "{left}: taken from another store");
        }
        let other = open(&**alphard, &disk, "/other").unwrap();
        assert_eq!(contents(&*other), [(b"oak".to_vec(), b"kept".to_vec())]);
    }
}

#[test]
fn a_store_that_is_written_over_in_vain_is_none() {
    let engines = engines();
    let alphard = engines.iter().find(|kind| kind.name() == "alphard");
    let alphard = alphard.unwrap();
    let mut options = small(&**alphard);
    options.set("force", "on");
    let (mut refused, mut spared) = (0, 0);
    // Some steps may fail; a creation has fewer than these.
    for nth in 1..80 {
        let disk = twenty(&**alphard);
        let whole = contents(&*open(&**alphard, &disk.fork(), STORE).unwrap());
        let environment = Environment::simulated(&disk, 2);
        let files = &environment.file_system;
        files.remove(&Path::new(STORE).join("CAMBIUM")).unwrap();
        disk.inject(FaultRule {
            class: OperationClass::Any,
            nth,
            forever: false,
            fault: Fault::Error(ErrorNumber::InputOutput),
        });
        let made = alphard.create(&environment, Path::new(STORE), &options);
        disk.clear_faults();
        let Err(_) = made.map(|store| store.close().unwrap()) else {
            assert!(contents(&*open(&**alphard, &disk, STORE).unwrap()).is_empty());
            continue;
        };
        refused += 1;
        match repair(&disk, STORE) {
            // Untouched, so it has all that it had.
            Ok(_) => {
                let store = open(&**alphard, &disk, STORE).unwrap();
                assert!(contents(&*store) == whole, "{nth}");
                spared += 1;
            }
            Err(error) => {
                let is_told = matches!(error, Error::NotAStore { .. });
                assert!(is_told, "{nth}: {error}");
                create(&**alphard, &disk).unwrap().close().unwrap();
            }
        }
    }
    assert!(
        refused < 79 && refused > spared + 5 && spared > 0,
        "{refused}, {spared}"
    );
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
    for kind in engines().iter() {
        let source = twenty(&**kind);
        let whole = contents(&*open(&**kind, &source.fork(), STORE).unwrap());
        let mut interrupted = 0;
        for left in (0..).step_by(3) {
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
                let found = || open(&**kind, &disk, COPY).map(|store| contents(&*store));
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
        assert!(interrupted > 20, "{}: {interrupted}", kind.name());
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

/// Names of which each engine has some, with somebody's bytes.
const STRAYS: [&str; 5] = [
    "keys",
    "members-old",
    "data-backup",
    "00000007.values",
    "000007.forest",
];

#[test]
fn strays_of_another_engines_names_decide_nothing() {
    for kind in engines().iter() {
        for stray in STRAYS.into_iter().chain(["keys/"]) {
            if kind.owns_file(stray) {
                // Its own to remove.
                continue;
            }
            let disk = twenty(&**kind);
            let whole = contents(&*open(&**kind, &disk.fork(), STORE).unwrap());
            let files = Environment::simulated(&disk, 1).file_system;
            let folder = Path::new(STORE);
            files.remove(&folder.join("CAMBIUM")).unwrap();
            let mine = match stray.strip_suffix('/') {
                Some(stray) => {
                    let made = files.create_directory(&folder.join(stray));
                    // A store of this engine has one.
                    assert!(made.is_ok() || kind.name() == "wisckey");
                    folder.join(stray).join("mine")
                }
                None if files.metadata(&folder.join(stray)).unwrap().is_some() => continue,
                None => folder.join(stray),
            };
            let file = files.open(&mine, OpenOptions::CREATE).unwrap();
            file.write_at(b"mine", 0).unwrap();
            let at = format!("{}, {stray}", kind.name());
            // An engine may refuse what it cannot tell apart; it must not write.
            match repair(&disk, STORE) {
                Ok(_) => {
                    let store = open(&**kind, &disk, STORE).unwrap();
                    assert!(contents(&*store) == whole, "{at}");
                }
                Err(error) => {
                    files.remove(&mine).unwrap();
                    repair(&disk, STORE).unwrap();
                    let store = open(&**kind, &disk, STORE).unwrap();
                    assert!(contents(&*store) == whole, "{at}: {error}");
                    continue;
                }
            }
            let bytes = disk.contents(&mine);
            assert_eq!(bytes.as_deref(), Some(&b"mine"[..]), "{at}");
        }
    }
}

#[test]
fn what_is_somebody_elses_in_the_folder_of_an_unfinished_creation_stays() {
    let somebodys = [
        "keys/mine",
        "keys/sub/mine",
        "data-2024.csv",
        "index-of-photos",
        "second",
        "superblock-old",
    ];
    for kind in engines().iter() {
        for name in somebodys {
            // Ended when it had said that it makes a store.
            for left in [4, 8, 1_000] {
                let disk = SimulatedDisk::new(1);
                let files = Environment::simulated(&disk, 1).file_system;
                _ = kind.create(&ending(&disk, left), Path::new(STORE), &small(&**kind));
                let folder = Path::new(STORE);
                let marker = files.metadata(&folder.join("CAMBIUM")).unwrap();
                let mine = folder.join(name);
                if marker.is_some() || files.metadata(&mine).unwrap().is_some() {
                    continue;
                }
                for parent in [
                    mine.parent().unwrap().parent().unwrap(),
                    mine.parent().unwrap(),
                ] {
                    _ = files.create_directory(parent);
                }
                let file = files.open(&mine, OpenOptions::CREATE).unwrap();
                file.write_at(b"mine", 0).unwrap();
                let made = create(&**kind, &disk);
                let at = format!("{}, {name}, {left}", kind.name());
                assert!(made.is_err(), "{at}");
                assert_eq!(disk.contents(&mine).as_deref(), Some(&b"mine"[..]), "{at}");
            }
        }
    }
}
