//! A file system that cannot be written, and that keeps a list of the attempts.
//!
//! An opening for reading alone must not come to one: [`Attempts::expect_none`]. It stands
//! above the file system that the store lies in, and refuses what would change it, as
//! read-only media do. A lock that is not there cannot be made either; that alone is no
//! attempt, since readers lock only what is there.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use cambium_api::{Error, Result};
use cambium_io::sync::Mutex;
use cambium_io::{Environment, File, FileLock, FileSystem, LockMode, OpenOptions};

use crate::layer::{FileLayer, FileSystemLayer, Layered};

/// The changes that were tried.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempts(Arc<Mutex<Vec<String>>>);

impl Attempts {
    fn refuse<T>(&self, what: &'static str, path: &Path) -> Result<T> {
        let mut attempts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.push(format!("{what} {}", path.display()));
        Err(read_only(what, path))
    }

    /// Fails if a change was tried.
    pub(crate) fn expect_none(&self) -> std::result::Result<(), String> {
        let attempts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match attempts.first() {
            None => Ok(()),
            Some(first) => Err(format!(
                "{} attempts to change something, the first one: {first}",
                attempts.len()
            )),
        }
    }
}

fn read_only(what: &'static str, path: &Path) -> Error {
    Error::io(what, path, std::io::ErrorKind::ReadOnlyFilesystem.into())
}

/// The same world, in which nothing can be changed.
pub(crate) fn unwritable(environment: &Environment) -> (Environment, Attempts) {
    let attempts = Attempts::default();
    let mut environment = environment.clone();
    environment.file_system = Arc::new(Layered(Unwritable {
        below: environment.file_system,
        attempts: attempts.clone(),
    }));
    (environment, attempts)
}

#[derive(Debug)]
struct Unwritable {
    below: Arc<dyn FileSystem>,
    attempts: Attempts,
}

impl FileSystemLayer for Unwritable {
    fn below(&self) -> &dyn FileSystem {
        &*self.below
    }

    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        if options.write || options.create || options.create_new || options.truncate {
            return self.attempts.refuse("open for writing", path);
        }
        Ok(Arc::new(Layered(UnwritableFile {
            below: self.below.open(path, options)?,
            attempts: self.attempts.clone(),
        })))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.attempts.refuse("create folder", path)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.attempts.refuse("remove folder", path)
    }

    fn rename(&self, from: &Path, _to: &Path) -> Result<()> {
        self.attempts.refuse("rename", from)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.attempts.refuse("remove", path)
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.attempts.refuse("sync folder", path)
    }

    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        if !matches!(mode, LockMode::Shared | LockMode::SharedData) {
            return self.attempts.refuse("lock for writing", path);
        }
        match self.below.metadata(path)? {
            Some(_) => self.below.lock(path, mode),
            None => Err(read_only("lock", path)),
        }
    }
}

#[derive(Debug)]
struct UnwritableFile {
    below: Arc<dyn File>,
    attempts: Attempts,
}

impl FileLayer for UnwritableFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn write_at(&self, _buffer: &[u8], _offset: u64) -> Result<()> {
        self.attempts.refuse("write", self.below.path())
    }

    fn sync_data(&self) -> Result<()> {
        self.attempts.refuse("sync", self.below.path())
    }

    fn set_length(&self, _length: u64) -> Result<()> {
        self.attempts.refuse("set length", self.below.path())
    }

    fn allocate(&self, _offset: u64, _length: u64) -> Result<()> {
        self.attempts.refuse("allocate", self.below.path())
    }

    fn punch_hole(&self, _offset: u64, _length: u64) -> Result<()> {
        self.attempts.refuse("punch hole", self.below.path())
    }
}
