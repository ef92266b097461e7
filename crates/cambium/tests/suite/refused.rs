//! What is refused leaves nothing behind, and damages nothing: creating on a disk that is
//! full, opening without handles or locks. With every engine.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cambium::{Environment, Options, engines};
use cambium_api::{Durability, EngineKind, Error, OptionValues, Result};
use cambium_io::simulated::SimulatedDisk;
use cambium_io::{File, FileLock, FileSystem, LockMode, OpenOptions};
use cambium_testkit::layer::{FileSystemLayer, Layered};

const PATH: &str = "/store";

/// Options of a store that is small.
fn small(kind: &dyn EngineKind) -> OptionValues {
    match kind.name() {
        "alphard" => OptionValues::from([("size", "65536"), ("mirror", "mirror")]),
        "zdb" => OptionValues::from([("max_keys", "1000")]),
        _ => OptionValues::default(),
    }
}

/// Options that the engine has; others are left out.
fn known(kind: &dyn EngineKind) -> OptionValues {
    let all = small(kind);
    let mut known = OptionValues::default();
    for (name, value) in all.iter() {
        if kind.options().iter().any(|option| option.name == name) {
            known.set(name, value);
        }
    }
    known
}

#[test]
fn a_store_that_is_refused_for_lack_of_room_leaves_no_folder() {
    for kind in engines().iter() {
        let mut refused = 0;
        for capacity in (0..1 << 16).step_by(1_777) {
            let disk = SimulatedDisk::new(1);
            disk.set_capacity(Some(capacity));
            let environment = Environment::simulated(&disk, 1);
            let made = kind.create(&environment, Path::new(PATH), &known(&**kind));
            let Err(error) = made.map(|_| ()) else {
                break;
            };
            refused += 1;
            let name = kind.name();
            assert!(error.is_no_space(), "{name}: {error}");
            let files = &environment.file_system;
            let folder = files.metadata(Path::new(PATH)).unwrap();
            assert!(folder.is_none(), "{name}, {capacity}: the folder is there");
            // What was somebody's stays.
            files.create_directory(Path::new(PATH)).unwrap();
            let again = kind.create(&environment, Path::new(PATH), &known(&**kind));
            assert!(again.is_err(), "{name}");
            let folder = files.metadata(Path::new(PATH)).unwrap();
            assert!(folder.is_some(), "{name}, {capacity}: the folder is gone");
        }
        assert!(refused > 0, "{}", kind.name());
    }
}

/// A file system of which one opening or lock fails.
#[derive(Debug)]
struct Exhausted {
    below: Arc<dyn FileSystem>,
    left: Arc<AtomicU64>,
    code: i32,
    /// A copy of a superblock was what could not be opened.
    superblock: Arc<AtomicBool>,
}

impl Exhausted {
    fn spend(&self, path: &Path) -> Result<&dyn FileSystem> {
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            0 => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let is_superblock = name.starts_with("superblock");
                self.superblock.store(is_superblock, Ordering::Relaxed);
                let error = std::io::Error::from_raw_os_error(self.code);
                Err(Error::io("open", path, error))
            }
            _ => Ok(&*self.below),
        }
    }
}

impl FileSystemLayer for Exhausted {
    fn below(&self) -> &dyn FileSystem {
        &*self.below
    }

    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        self.spend(path)?.open(path, options)
    }

    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        self.spend(path)?.lock(path, mode)
    }
}

#[test]
fn an_opening_without_handles_or_locks_is_told_so_and_damages_nothing() {
    // EMFILE and ENOLCK.
    for code in [24, 37] {
        for kind in engines().iter() {
            let name = kind.name();
            let disk = SimulatedDisk::new(1);
            let environment = Environment::simulated(&disk, 1);
            let path = Path::new(PATH);
            let store = kind.create(&environment, path, &known(&**kind)).unwrap();
            for round in 0..3 {
                let value = format!("kept {round}");
                let opened = kind.open(&environment, path, &OptionValues::default(), &());
                let store = match round {
                    0 => store.clone(),
                    _ => opened.unwrap(),
                };
                store
                    .put(b"oak", value.as_bytes(), Durability::Synced)
                    .unwrap();
                store.close().unwrap();
            }
            drop(store);
            let mut told = 0;
            for left in 0.. {
                let left_over = Arc::new(AtomicU64::new(left));
                let superblock = Arc::new(AtomicBool::new(false));
                let exhausted = Environment {
                    file_system: Arc::new(Layered(Exhausted {
                        below: environment.file_system.clone(),
                        left: left_over.clone(),
                        code,
                        superblock: superblock.clone(),
                    })),
                    ..environment.clone()
                };
                let opened = kind.open(&exhausted, path, &OptionValues::default(), &());
                // The other copy may be older.
                let needed = superblock.load(Ordering::Relaxed);
                assert!(!needed || opened.is_err(), "{name}, {left}");
                match opened {
                    // An engine may do without some files.
                    Ok(store) => match store.get(b"oak") {
                        Ok(found) => assert_eq!(found.unwrap(), b"kept 2", "{name}, {left}"),
                        Err(Error::Io { .. }) => {}
                        Err(other) => panic!("{name}, {left}: {other}"),
                    },
                    Err(Error::Io { source, .. }) => {
                        assert_eq!(source.raw_os_error(), Some(code), "{name}, {left}");
                        told += 1;
                    }
                    Err(other) => panic!("{name}, {left}: {other}"),
                }
                let options = Options::new().environment(environment.clone());
                let report = options.check(path).unwrap();
                assert!(report.is_sound(), "{name}, {left}: {report:?}");
                assert!(!report.is_degraded(), "{name}, {left}: {report:?}");
                let store = kind.open(&environment, path, &OptionValues::default(), &());
                let store = store.unwrap();
                assert_eq!(store.get(b"oak").unwrap().unwrap(), b"kept 2", "{name}");
                // Below zero once it has failed.
                if left_over.load(Ordering::Relaxed) <= left {
                    break;
                }
            }
            assert!(told > 2, "{name}: {told}");
        }
    }
}
