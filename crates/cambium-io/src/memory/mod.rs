//! A file system in memory: fast, thread-safe, gone when it is dropped.
//!
//! It keeps the contract of [`FileSystem`] except that nothing is ever lost:
//! there is no device below the cache, so a sync has nothing to do. Crashes,
//! errors and full disks are what [`crate::simulated`] is for.
//!
//! Each file is a copy-on-write image behind a lock of its own, so that readers
//! of one file never wait for another's writer. A handle keeps its file when
//! the name goes away.

pub(crate) mod file;
pub(crate) mod image;
#[cfg(test)]
mod tests;
pub(crate) mod tree;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use crate::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard};

use cambium_base::{Error, Result};

use crate::batch::{BatchOptions, ReadQueue};
use crate::cache::{BlockCache, DEFAULT_CACHE_BYTES};
use crate::environment::{Environment, MemoryBudget};
use crate::file_system::{
    DirectoryEntry, File, FileKind, FileLock, FileSystem, LockMode, Metadata, OpenOptions, Space,
};
use crate::inline_queue::InlineReadQueue;
use crate::simulated::{IdleExecutor, SeededRandomness, SteppedClock};
use file::{MemoryFile, Node};
use image::Image;
use tree::{Entry, Tree, normalize, refuse};

/// Files and folders in memory. Clones share them.
///
/// ```
/// use cambium_io::{FileSystem, OpenOptions, memory::MemoryFileSystem};
/// # fn main() -> cambium_base::Result<()> {
/// let files = MemoryFileSystem::new();
/// let file = files.open("/a".as_ref(), OpenOptions::CREATE)?;
/// file.write_at(b"oak", 2)?;
/// assert_eq!(file.length()?, 5);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryFileSystem {
    names: Arc<Mutex<Tree<Arc<Node>>>>,
}

impl MemoryFileSystem {
    /// An empty one; only the root is there.
    pub fn new() -> Self {
        Self::default()
    }

    fn names(&self) -> MutexGuard<'_, Tree<Arc<Node>>> {
        // A panic elsewhere leaves whole names behind: each change is one call.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self, path: &Path, options: OpenOptions) -> Result<Arc<Node>> {
        let mut names = self.names();
        match names.get(path) {
            Some(Entry::Directory) => Err(refuse("open", path, ErrorKind::IsADirectory)),
            Some(Entry::File(_)) if options.create_new => {
                Err(refuse("open", path, ErrorKind::AlreadyExists))
            }
            Some(Entry::File(node)) => Ok(node),
            None if options.create || options.create_new => {
                names.check_parent("open", path)?;
                let node = Arc::new(Node::default());
                names.set(path, Entry::File(node.clone()));
                Ok(node)
            }
            None => Err(refuse("open", path, ErrorKind::NotFound)),
        }
    }
}

impl FileSystem for MemoryFileSystem {
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        let node = self.node(&normalize(path), options)?;
        if options.truncate {
            *node.write() = Image::default();
        }
        Ok(Arc::new(MemoryFile::new(path, node, options)))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        let path = normalize(path);
        let mut names = self.names();
        names.check_create_directory(&path)?;
        names.set(&path, Entry::Directory);
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        let path = normalize(path);
        let mut names = self.names();
        names.check_remove_directory(&path)?;
        names.clear(&path);
        Ok(())
    }

    fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        self.names().list("list", &normalize(path))
    }

    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        let names = self.names();
        Ok(names.get(&normalize(path)).map(|entry| match entry {
            Entry::Directory => Metadata {
                kind: FileKind::Directory,
                length: 0,
                allocated: 0,
                links: 1,
            },
            Entry::File(node) => {
                let links = names.count(|other| Arc::ptr_eq(other, &node));
                // One guard: a second would wait for a writer that waits for the first.
                let image = node.read();
                Metadata {
                    kind: FileKind::File,
                    length: image.length(),
                    allocated: image.allocated_bytes(),
                    links,
                }
            }
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (from, to) = (normalize(from), normalize(to));
        let mut names = self.names();
        names.check_rename(&from, &to)?;
        names.rename(&from, &to);
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let path = normalize(path);
        let mut names = self.names();
        names.file("remove", &path)?;
        names.clear(&path);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        let (from, to) = (normalize(from), normalize(to));
        let mut names = self.names();
        let node = names.file("link", &from)?;
        names.check_new("link", &to)?;
        names.set(&to, Entry::File(node));
        Ok(true)
    }

    fn clone_file(&self, from: &Path, to: &Path, length: u64) -> Result<bool> {
        let (from, to) = (normalize(from), normalize(to));
        let mut names = self.names();
        let source = names.file("clone", &from)?;
        names.check_new("clone", &to)?;
        let copy = Node::default();
        *copy.write() = source.read().clone();
        copy.write().set_length(length);
        names.set(&to, Entry::File(Arc::new(copy)));
        Ok(true)
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        if self.names().is_directory(&normalize(path)) {
            return Ok(());
        }
        Err(refuse("sync folder", path, ErrorKind::NotFound))
    }

    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        let node = self.node(&normalize(path), opened_for_lock(mode))?;
        file::lock(path, node, mode)
    }

    fn space(&self, _path: &Path) -> Result<Space> {
        Ok(Space {
            available: 1 << 40,
            total: 1 << 40,
        })
    }

    fn read_queue(&self, options: BatchOptions) -> Result<Box<dyn ReadQueue>> {
        Ok(Box::new(InlineReadQueue::new(options, None)?))
    }
}

impl Environment {
    /// A new in-memory file system, a clock that only sleeping advances,
    /// random numbers from a fixed seed, and no background threads (stores do
    /// their own steps): what examples and quick tests want.
    pub fn memory() -> Environment {
        Environment {
            file_system: Arc::new(MemoryFileSystem::new()),
            clock: Arc::new(SteppedClock::default()),
            randomness: Arc::new(SeededRandomness::new(0)),
            executor: Arc::new(IdleExecutor),
            memory: MemoryBudget::unlimited(),
            background: Arc::default(),
            cache: BlockCache::new(DEFAULT_CACHE_BYTES),
        }
    }
}

/// Takes a lock although an earlier holder panicked: images stay whole.
fn read_image(image: &RwLock<Image>) -> RwLockReadGuard<'_, Image> {
    image.read().unwrap_or_else(PoisonError::into_inner)
}

/// How the lock of a file opens it: a file that holds data is not made.
pub(crate) fn opened_for_lock(mode: LockMode) -> OpenOptions {
    match mode {
        LockMode::Alone | LockMode::SharedData => OpenOptions::READ,
        _ => OpenOptions::CREATE,
    }
}

/// The refusal of a lock that another handle holds.
pub(crate) fn locked(path: &Path, owner: Option<u32>) -> Error {
    Error::Locked {
        path: path.to_path_buf(),
        owner,
    }
}
