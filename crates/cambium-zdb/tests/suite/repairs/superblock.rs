//! Copies of the superblock that cannot be read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::{Durability, EngineKind, Error, Result};
use cambium_io::simulated::SimulatedDisk;
use cambium_io::{Environment, File, FileSystem, OpenOptions};
use cambium_testkit::layer::{FileLayer, FileSystemLayer, Layered};
use cambium_zdb::Zdb;

use super::{PATH, all, contents, killed_everywhere, named, open, opening, repair};
use super::{repaired_anywhere, store};

/// Makes each sector of either copy of the superblock one that cannot be read.
fn with_unreadable_superblocks(whole: &SimulatedDisk, look: impl Fn(SimulatedDisk, &Path)) {
    for path in named(whole, "superblock-") {
        let length = whole.contents(&path).unwrap_or_default().len() as u64;
        for offset in (0..length).step_by(512) {
            let disk = whole.fork();
            assert!(disk.make_unreadable(&path, offset));
            look(disk, &path);
        }
    }
}

#[test]
fn a_copy_of_the_superblock_that_cannot_be_read_is_written_anew() {
    for (keys, closed) in [("integer", true), ("integer", false), ("string", false)] {
        let whole = SimulatedDisk::new(1);
        let expected = store(&whole, keys, closed, &[]);
        with_unreadable_superblocks(&whole, |disk, path| {
            let environment = Environment::simulated(&disk, 2);
            let check = || {
                Zdb.check(&environment, Path::new(PATH), &Default::default(), &())
                    .unwrap()
            };
            let report = check();
            let named = report.findings.iter().any(|finding| finding.file == path);
            assert!(named && report.is_sound(), "{report:?}");
            let what = format!("{keys}, closed: {closed}, {path:?}");
            repaired_anywhere(&disk, &expected, &what);
            let found = all(&*open(&environment, &opening(&[])).unwrap()).unwrap();
            assert!(found == expected, "{what}");
            let left = disk.process_crash();
            let environment = Environment::simulated(&left, 2);
            let report = Zdb
                .check(&environment, Path::new(PATH), &Default::default(), &())
                .unwrap();
            let named = report.findings.iter().any(|finding| finding.file == path);
            assert!(!named, "the opening mends it: {report:?}");
            repair(&environment).unwrap();
            assert!(contents(&left).unwrap() == expected, "after a repair");
        });
    }
}

/// A file system on which reads of one file fail.
#[derive(Debug)]
struct Unread(Arc<dyn FileSystem>, PathBuf);

impl FileSystemLayer for Unread {
    fn below(&self) -> &dyn FileSystem {
        &*self.0
    }
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        let file = self.below().open(path, options)?;
        match path == self.1 {
            true => Ok(Arc::new(Layered(UnreadFile(file)))),
            false => Ok(file),
        }
    }
}

#[derive(Debug)]
struct UnreadFile(Arc<dyn File>);

impl FileLayer for UnreadFile {
    fn below(&self) -> &dyn File {
        &*self.0
    }
    fn read_at(&self, _: &mut [u8], _: u64) -> Result<usize> {
        Err(Error::io(
            "read",
            self.0.path(),
            std::io::Error::other("no answer"),
        ))
    }
}

#[test]
fn a_copy_of_the_superblock_that_can_be_read_again_takes_nothing_back() {
    for closed in [true, false] {
        let disk = SimulatedDisk::new(1);
        let expected = store(&disk, "integer", closed, &[]);
        for path in named(&disk, "superblock-") {
            let step = |world: &Environment| {
                let below = world.file_system.clone();
                let unread = Environment {
                    file_system: Arc::new(Layered(Unread(below, path.clone()))),
                    ..world.clone()
                };
                let store = open(&unread, &opening(&[]))?;
                store.put(&1u64.to_be_bytes(), &[1; 1], Durability::Synced)?;
                store.close()
            };
            killed_everywhere(&disk.fork(), step, |copy, changes| {
                let found = contents(copy).unwrap();
                assert!(
                    found == expected,
                    "{path:?}, killed after {changes} changes"
                );
            });
        }
    }
}
