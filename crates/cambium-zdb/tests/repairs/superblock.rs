//! Copies of the superblock that are lost, or cannot be read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::{Durability, EngineKind, Error, Result};
use cambium_io::simulated::SimulatedDisk;
use cambium_io::{Environment, File, FileSystem, OpenOptions};
use cambium_testkit::layer::{FileLayer, FileSystemLayer, Layered};
use cambium_zdb::Zdb;

use super::{Entries, PATH, all, contents, killed_everywhere, named, open, opening, repair};
use super::{repaired_anywhere, small, store};

/// A store of a few synced keys in three tables, whose process died before the first
/// checkpoint.
fn first_session(disk: &SimulatedDisk, keys: &str, more: &[(&str, &str)]) -> Entries {
    let environment = Environment::simulated(disk, 1);
    let mut options = small(keys);
    options.set("buckets", "256");
    for (name, value) in more {
        options.set(name, value);
    }
    let store = Zdb.create(&environment, Path::new(PATH), &options).unwrap();
    for number in [1u64, 70, 140] {
        let key = number.to_be_bytes();
        store.put(&key, b"synced", Durability::Synced).unwrap();
    }
    all(&*store).unwrap()
}

/// Loses either copy of the superblock of a first session that was killed; answers
/// whether everything is there for an opening, and after a repair.
fn one_copy_is_enough(bug: Option<&str>) -> bool {
    let mut held = true;
    for keys in ["integer", "string"] {
        for copy in 0..2 {
            let disk = SimulatedDisk::new(1);
            let more: Vec<_> = bug.iter().map(|name| ("seeded_bug", *name)).collect();
            let expected = first_session(&disk, keys, &more);
            let environment = Environment::simulated(&disk, 2);
            let path = PathBuf::from(format!("{PATH}/superblock-{copy}"));
            environment.file_system.remove(&path).unwrap();
            let findings = Zdb
                .check(&environment, Path::new(PATH), &())
                .unwrap()
                .findings;
            assert!(
                findings.iter().any(|finding| finding.file == path),
                "{findings:?}"
            );
            held &= contents(&disk).is_ok_and(|found| found == expected);
            let repaired = repair(&environment);
            held &= repaired.is_ok() && contents(&disk).is_ok_and(|found| found == expected);
        }
    }
    held
}

#[test]
fn either_copy_of_the_superblock_is_enough() {
    assert!(one_copy_is_enough(None));
    assert!(!one_copy_is_enough(Some("table_in_one_copy")));
}

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
            let check = || Zdb.check(&environment, Path::new(PATH), &()).unwrap();
            let report = check();
            let named = report.findings.iter().any(|finding| finding.file == path);
            assert!(named && report.is_sound(), "{report:?}");
            let what = format!("{keys}, closed: {closed}, {path:?}");
            repaired_anywhere(&disk, &expected, &what);
            let found = all(&*open(&environment, &opening(&[])).unwrap()).unwrap();
            assert!(found == expected, "{what}");
            let left = disk.process_crash();
            let environment = Environment::simulated(&left, 2);
            let report = Zdb.check(&environment, Path::new(PATH), &()).unwrap();
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
