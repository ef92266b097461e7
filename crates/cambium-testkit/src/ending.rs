//! Worlds that end: after so many operations, on any file or on one, each fails with an I/O
//! error. What was done before stays for whoever looks at what is below.
//!
//! ```
//! use cambium_io::{Environment, OpenOptions};
//! let world = Environment::memory();
//! let ending = cambium_testkit::ending::after_changes(&world, 2);
//! let file = ending.file_system.open("/file".as_ref(), OpenOptions::CREATE).unwrap();
//! file.write_at(b"oak", 0).unwrap();
//! assert!(file.sync_data().is_err(), "the third change");
//! assert_eq!(file.read_at(&mut [0; 3], 0).unwrap(), 3, "reading goes on");
//! ```

use cambium_io::sync::atomic::{AtomicU64, Ordering};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::{Error, Result};
use cambium_io::{Environment, File, FileSystem, Metadata, OpenOptions};

use crate::layer::{FileLayer, FileSystemLayer, Layered};

/// Operations that are left, and which ones count.
#[derive(Debug)]
struct Left {
    operations: AtomicU64,
    /// Of one path alone, and then reading counts as well; otherwise changes and syncs of
    /// everything do.
    path: Option<PathBuf>,
    /// A path whose operations are used up is not there any more.
    goes_away: bool,
}

/// A world in which nothing is changed or synced any more after so many changes, as after a
/// kill.
pub fn after_changes(environment: &Environment, operations: u64) -> Environment {
    ending(environment, operations, None, false)
}

/// A world in which one file fails after so many operations on it; at once is not there.
pub fn without(environment: &Environment, path: &Path, operations: u64) -> Environment {
    ending(environment, operations, Some(path), true)
}

/// A world in which one file is there, and each operation on it fails.
pub fn with_failing(environment: &Environment, path: &Path) -> Environment {
    ending(environment, 0, Some(path), false)
}

fn ending(
    environment: &Environment,
    operations: u64,
    path: Option<&Path>,
    goes_away: bool,
) -> Environment {
    let left = Arc::new(Left {
        operations: AtomicU64::new(operations),
        path: path.map(Path::to_path_buf),
        goes_away,
    });
    let below = environment.file_system.clone();
    Environment {
        file_system: Arc::new(Layered(Ending { below, left })),
        ..environment.clone()
    }
}

impl Left {
    fn is_about(&self, path: &Path) -> bool {
        self.path.as_deref().is_none_or(|own| own == path)
    }

    /// Counts an operation; fails when none is left.
    fn spend(&self, path: &Path, is_change: bool) -> Result<()> {
        let counts = self.is_about(path) && (is_change || self.path.is_some());
        let spent = self
            .operations
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(u64::from(counts))
            });
        // EIO.
        let ended = |_| Error::io("use", path, std::io::Error::from_raw_os_error(5));
        spent.map(|_| ()).map_err(ended)
    }
}

#[derive(Debug)]
struct Ending {
    below: Arc<dyn FileSystem>,
    left: Arc<Left>,
}

impl Ending {
    fn change(&self, path: &Path) -> Result<&dyn FileSystem> {
        self.left.spend(path, true).map(|()| &*self.below)
    }
}

impl FileSystemLayer for Ending {
    fn below(&self) -> &dyn FileSystem {
        &*self.below
    }

    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        let is_change = options.create || options.create_new || options.truncate;
        self.left.spend(path, is_change)?;
        let below = self.below.open(path, options)?;
        if !self.left.is_about(path) {
            return Ok(below);
        }
        let left = self.left.clone();
        Ok(Arc::new(Layered(EndingFile { below, left })))
    }

    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        let left = &self.left;
        if left.goes_away && left.is_about(path) && left.operations.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        self.below.metadata(path)
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.change(path)?.create_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.change(path)?.remove_directory(path)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.change(path)?.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.change(from)?.rename(from, to)
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.change(path)?.sync_directory(path)
    }
}

#[derive(Debug)]
struct EndingFile {
    below: Arc<dyn File>,
    left: Arc<Left>,
}

impl EndingFile {
    fn spend(&self, is_change: bool) -> Result<&dyn File> {
        self.left.spend(self.below.path(), is_change)?;
        Ok(&*self.below)
    }
}

impl FileLayer for EndingFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.spend(false)?.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.spend(true)?.write_at(buffer, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.spend(true)?.sync_data()
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.spend(true)?.set_length(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.spend(true)?.allocate(offset, length)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        self.spend(true)?.punch_hole(offset, length)
    }
}
