//! A store that took a synced write is there after any crash, whoever made it and however
//! that ended.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cambium::{Environment, engines};
use cambium_api::{Durability, Engine, EngineKind, Error, Result};
use cambium_io::simulated::{CrashStyle, SimulatedDisk};
use cambium_io::{FileLock, FileSystem, LockMode};
use cambium_testkit::layer::{FileSystemLayer, Layered};

use super::{COPY, STORE, contents, create, ending, open, small, twenty};

/// Writes to a store, and sees whether a crash takes it.
fn survives(kind: &dyn EngineKind, disk: &SimulatedDisk, path: &str, closes: bool, at: &str) {
    let store = open(kind, disk, path).unwrap();
    store.put(b"oak", b"kept", Durability::Synced).unwrap();
    if closes {
        store.close().unwrap();
    }
    let disk = disk.crash(CrashStyle::NothingUnsynced, 1);
    let store = open(kind, &disk, path).unwrap_or_else(|error| panic!("{at}: {error}"));
    assert!(store.get(b"oak").unwrap().is_some(), "{at}");
}

#[test]
fn in_a_folder_that_somebody_else_has_made() {
    for kind in engines().iter() {
        let disk = SimulatedDisk::new(1);
        let files = Environment::simulated(&disk, 1).file_system;
        files.create_directory(Path::new(STORE)).unwrap();
        create(&**kind, &disk).unwrap().close().unwrap();
        survives(&**kind, &disk, STORE, false, kind.name());
    }
}

/// Answers so to a sync of the folder above the store's.
#[derive(Debug)]
struct Above {
    inner: Arc<dyn FileSystem>,
    kind: ErrorKind,
}

impl FileSystemLayer for Above {
    fn below(&self) -> &dyn FileSystem {
        &*self.inner
    }
    fn sync_directory(&self, path: &Path) -> Result<()> {
        match path == Path::new(STORE).parent().unwrap() {
            true => Err(Error::sync("sync folder", path, self.kind.into())),
            false => self.below().sync_directory(path),
        }
    }
}

#[test]
fn in_a_folder_of_which_the_one_above_cannot_be_synced_unless_it_fails() {
    let cases = [
        (ErrorKind::PermissionDenied, true),
        (ErrorKind::InvalidInput, true),
        (ErrorKind::ReadOnlyFilesystem, true),
        (ErrorKind::Other, false),
    ];
    for (kind, works) in cases {
        for is_there in [true, false] {
            let plain = Environment::memory();
            if is_there {
                plain
                    .file_system
                    .create_directory(Path::new(STORE))
                    .unwrap();
            }
            let inner = plain.file_system.clone();
            let environment = Environment {
                file_system: Arc::new(Layered(Above { inner, kind })),
                ..plain
            };
            let engine = engines();
            let engine = engine.iter().find(|kind| kind.name() == "forest").unwrap();
            let made = engine.create(&environment, Path::new(STORE), &small(&**engine));
            assert_eq!(made.is_ok(), works && is_there, "{kind:?}, {is_there}");
        }
    }
}

#[test]
fn where_the_creation_before_ended_anywhere() {
    for kind in engines().iter() {
        let mut made_again = 0;
        for left in 0.. {
            let disk = SimulatedDisk::new(1);
            let options = small(&**kind);
            let made = kind.create(&ending(&disk, left), Path::new(STORE), &options);
            if made.is_ok() {
                break;
            }
            let at = format!("{}, {left}", kind.name());
            match create(&**kind, &disk) {
                Ok(store) => store.close().unwrap(),
                // It came to its last rename.
                Err(error) => assert!(matches!(error, Error::AlreadyExists { .. }), "{at}"),
            }
            made_again += 1;
            for closes in [false, true] {
                survives(&**kind, &disk.fork(), STORE, closes, &at);
            }
        }
        assert!(made_again > 10, "{}: {made_again}", kind.name());
    }
}

#[test]
fn where_the_backup_ended_before_its_name_was_durable() {
    for kind in engines().iter() {
        let source = twenty(&**kind);
        let mut named = 0;
        for left in 0.. {
            let disk = source.fork();
            let world = ending(&disk, left);
            let store = open_in(&**kind, &world);
            let done = store.and_then(|store| store.backup(Path::new(COPY), &()));
            if done.is_ok() {
                break;
            }
            let files = Environment::simulated(&disk, 1).file_system;
            let marker = files.metadata(&Path::new(COPY).join("CAMBIUM")).unwrap();
            if marker.is_none() {
                continue;
            }
            named += 1;
            let at = format!("{}, {left}", kind.name());
            for closes in [false, true] {
                survives(&**kind, &disk.fork(), COPY, closes, &at);
            }
        }
        assert!(named > 0, "{}", kind.name());
    }
}

fn open_in(kind: &dyn EngineKind, environment: &Environment) -> Result<Arc<dyn Engine>> {
    kind.open(environment, Path::new(STORE), &Default::default(), &())
}

/// A file system in which somebody makes another store in the copy's folder once the copy is
/// closed, and before it is named one; and ends there after some changes.
struct Intruded {
    below: Arc<dyn FileSystem>,
    intrude: Box<dyn Fn() + Send + Sync>,
    locks: AtomicUsize,
}

impl std::fmt::Debug for Intruded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Intruded")
    }
}

impl FileSystemLayer for Intruded {
    fn below(&self) -> &dyn FileSystem {
        &*self.below
    }

    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        let is_copys = path == Path::new(COPY).join("LOCK");
        // The first one is that of whoever fills it.
        if is_copys && self.locks.fetch_add(1, Ordering::Relaxed) == 1 {
            (self.intrude)();
        }
        self.below.lock(path, mode)
    }
}

#[test]
fn a_backup_into_which_somebody_came_is_not_said_to_be_done() {
    for kind in engines().iter() {
        let source = twenty(&**kind);
        let whole = contents(&*open(&**kind, &source.fork(), STORE).unwrap());
        let mut refused = 0;
        for left in 0..12 {
            let disk = source.fork();
            let world = ending(&disk, left);
            let (intruder, options) = (kind.clone(), small(&**kind));
            let intrude = move || {
                _ = intruder.create(&world, Path::new(COPY), &options);
            };
            let environment = Environment::simulated(&disk, 2);
            let environment = Environment {
                file_system: Arc::new(Layered(Intruded {
                    below: environment.file_system.clone(),
                    intrude: Box::new(intrude),
                    locks: AtomicUsize::new(0),
                })),
                ..environment
            };
            let store = open_in(&**kind, &environment).unwrap();
            match store.backup(Path::new(COPY), &()) {
                Ok(_) => {
                    let copy = open(&**kind, &disk, COPY).unwrap();
                    assert!(contents(&*copy) == whole, "{}, {left}", kind.name());
                }
                Err(_) => refused += 1,
            }
        }
        assert!((1..12).contains(&refused), "{}: {refused}", kind.name());
    }
}
