//! File systems that stand above another one and hand every call on, but for those that a
//! test wants to see or to spoil.
//!
//! [`FileSystemLayer`] and [`FileLayer`] have a default for each call; a test overrides what
//! it is about. [`Layered`] makes a file system, or a file, of either.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicUsize, Ordering};
//!
//! use cambium_io::{Environment, FileSystem};
//! use cambium_testkit::layer::{FileSystemLayer, Layered};
//!
//! #[derive(Debug)]
//! struct CountsRemovals(Arc<dyn FileSystem>, AtomicUsize);
//!
//! impl FileSystemLayer for CountsRemovals {
//!     fn below(&self) -> &dyn FileSystem {
//!         &*self.0
//!     }
//!     fn remove(&self, path: &std::path::Path) -> cambium_api::Result<()> {
//!         self.1.fetch_add(1, Ordering::Relaxed);
//!         self.below().remove(path)
//!     }
//! }
//!
//! let memory = Environment::memory().file_system;
//! let counts = Layered(CountsRemovals(memory, AtomicUsize::new(0)));
//! assert!(counts.remove("/nothing".as_ref()).is_err());
//! assert_eq!(counts.0.1.into_inner(), 1);
//! ```
//!
//! What the traits of `cambium-io` make of other calls (writes of several buffers, syncs of
//! ranges, discards, queues of reads and writes by default) comes through the layer's own
//! calls, so that nothing goes around them; a file of a layer has no descriptor.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use cambium_api::Result;
use cambium_io::batch::ReadQueue;
use cambium_io::{
    Advice, Alignment, BatchOptions, DirectoryEntry, File, FileLock, FileSystem, LockMode,
    Metadata, OpenOptions, Space, SyncWriteQueue, WriteQueue,
};

/// What stands above a file system: each call goes to [`FileSystemLayer::below`], unless it
/// is overridden. The calls are those of [`FileSystem`].
#[allow(missing_docs)] // the same calls, with the same meaning
pub trait FileSystemLayer: Send + Sync + fmt::Debug {
    /// The file system that calls are handed to.
    fn below(&self) -> &dyn FileSystem;

    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        self.below().open(path, options)
    }
    fn create_directory(&self, path: &Path) -> Result<()> {
        self.below().create_directory(path)
    }
    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.below().remove_directory(path)
    }
    fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        self.below().list(path)
    }
    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        self.below().metadata(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.below().rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.below().remove(path)
    }
    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        self.below().link(from, to)
    }
    fn clone_file(&self, from: &Path, to: &Path, length: u64) -> Result<bool> {
        self.below().clone_file(from, to, length)
    }
    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.below().sync_directory(path)
    }
    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        self.below().lock(path, mode)
    }
    fn space(&self, path: &Path) -> Result<Space> {
        self.below().space(path)
    }
    fn read_queue(&self, options: BatchOptions) -> Result<Box<dyn ReadQueue>> {
        self.below().read_queue(options)
    }
    /// One write after the other, through the files that this layer opened.
    fn write_queue(&self, options: BatchOptions) -> Result<Box<dyn WriteQueue>> {
        _ = options;
        Ok(Box::new(SyncWriteQueue::default()))
    }
}

/// What stands above a file: as [`FileSystemLayer`], with the calls of [`File`].
#[allow(missing_docs)] // the same calls, with the same meaning
pub trait FileLayer: Send + Sync + fmt::Debug {
    /// The file that calls are handed to.
    fn below(&self) -> &dyn File;

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.below().read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.below().write_at(buffer, offset)
    }
    fn sync_data(&self) -> Result<()> {
        self.below().sync_data()
    }
    fn length(&self) -> Result<u64> {
        self.below().length()
    }
    fn set_length(&self, length: u64) -> Result<()> {
        self.below().set_length(length)
    }
    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.below().allocate(offset, length)
    }
    fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        self.below().punch_hole(offset, length)
    }
    fn alignment(&self) -> Alignment {
        self.below().alignment()
    }
}

/// A layer as the file system, or the file, that it is.
#[derive(Debug)]
pub struct Layered<L>(pub L);

impl<L: FileSystemLayer> FileSystem for Layered<L> {
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        self.0.open(path, options)
    }
    fn create_directory(&self, path: &Path) -> Result<()> {
        self.0.create_directory(path)
    }
    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.0.remove_directory(path)
    }
    fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        self.0.list(path)
    }
    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        self.0.metadata(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.0.remove(path)
    }
    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        self.0.link(from, to)
    }
    fn clone_file(&self, from: &Path, to: &Path, length: u64) -> Result<bool> {
        self.0.clone_file(from, to, length)
    }
    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.0.sync_directory(path)
    }
    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        self.0.lock(path, mode)
    }
    fn space(&self, path: &Path) -> Result<Space> {
        self.0.space(path)
    }
    fn read_queue(&self, options: BatchOptions) -> Result<Box<dyn ReadQueue>> {
        self.0.read_queue(options)
    }
    fn write_queue(&self, options: BatchOptions) -> Result<Box<dyn WriteQueue>> {
        self.0.write_queue(options)
    }
}

impl<L: FileLayer> File for Layered<L> {
    fn path(&self) -> &Path {
        self.0.below().path()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.0.write_at(buffer, offset)
    }
    fn sync_data(&self) -> Result<()> {
        self.0.sync_data()
    }
    fn length(&self) -> Result<u64> {
        self.0.length()
    }
    fn set_length(&self, length: u64) -> Result<()> {
        self.0.set_length(length)
    }
    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.0.allocate(offset, length)
    }
    fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        self.0.punch_hole(offset, length)
    }
    fn advise(&self, offset: u64, length: u64, advice: Advice) {
        self.0.below().advise(offset, length, advice);
    }
    fn allocated_bytes(&self) -> Result<u64> {
        self.0.below().allocated_bytes()
    }
    fn alignment(&self) -> Alignment {
        self.0.alignment()
    }
}
