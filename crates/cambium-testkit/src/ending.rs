//! A file system that ends: after so many changes, nothing is changed any more, as after a
//! kill. What was changed before stays for whoever looks at what is below.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::layer::{FileLayer, FileSystemLayer, Layered};
use cambium_api::{Error, Result};
use cambium_io::{Environment, File, FileSystem, OpenOptions};

/// The file system; changes and syncs count.
#[derive(Debug)]
pub struct EndsAfter {
    below: Arc<dyn FileSystem>,
    left: Arc<AtomicU64>,
}

impl EndsAfter {
    /// Ends after so many changes.
    pub fn operations(environment: &Environment, left: u64) -> Self {
        EndsAfter {
            below: environment.file_system.clone(),
            left: Arc::new(AtomicU64::new(left)),
        }
    }

    fn spend(&self, path: &Path) -> Result<&dyn FileSystem> {
        spend(&self.left, path).map(|()| &*self.below)
    }
}

fn spend(left: &AtomicU64, path: &Path) -> Result<()> {
    let spent = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
        left.checked_sub(1)
    });
    let ended = |_| Error::io("use", path, std::io::Error::from_raw_os_error(5));
    spent.map(|_| ()).map_err(ended)
}

impl FileSystemLayer for EndsAfter {
    fn below(&self) -> &dyn FileSystem {
        &*self.below
    }

    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        let below = match options.create || options.truncate {
            true => self.spend(path)?.open(path, options)?,
            false => self.below.open(path, options)?,
        };
        Ok(Arc::new(Layered(EndingFile {
            below,
            left: self.left.clone(),
        })))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.spend(path)?.create_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.spend(path)?.remove_directory(path)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.spend(path)?.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.spend(from)?.rename(from, to)
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.spend(path)?.sync_directory(path)
    }
}

#[derive(Debug)]
struct EndingFile {
    below: Arc<dyn File>,
    left: Arc<AtomicU64>,
}

impl EndingFile {
    fn spend(&self) -> Result<&dyn File> {
        spend(&self.left, self.below.path()).map(|()| &*self.below)
    }
}

impl FileLayer for EndingFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.spend()?.write_at(buffer, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.spend()?.sync_data()
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.spend()?.set_length(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.spend()?.allocate(offset, length)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        self.spend()?.punch_hole(offset, length)
    }
}
