//! File systems that break their contract on purpose.
//!
//! A suite that passes over a disk whose syncs do nothing has tested nothing.
//! Each [`Breakage`] takes one promise of [`cambium_io::file_system`] away, and
//! the suites must notice every one.

use cambium_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::path::Path;
use std::sync::{Arc, PoisonError};

use cambium_io::sync::Mutex;

use cambium_api::Result;
use cambium_io::{File, FileLock, FileSystem, LockMode, OpenOptions};

use crate::layer::{FileLayer, FileSystemLayer, Layered};

cambium_base::named! {
    /// A promise that is not kept.
    pub enum Breakage {
        /// Syncing a file does nothing.
        SyncDoesNothing = "sync_does_nothing",
        /// Syncing a folder does nothing.
        FolderSyncDoesNothing = "folder_sync_does_nothing",
        /// Every second sync of a file does nothing.
        EverySecondSync = "every_second_sync",
        /// The sync of a file that is renamed next is lost.
        SyncBeforeRenameLost = "sync_before_rename_lost",
        /// Every seventh write stops half way and reports success.
        ShortWriteIgnored = "short_write_ignored",
        /// A read after a write sees the bytes from before it.
        StaleReads = "stale_reads",
        /// Errors of syncs are swallowed.
        SyncErrorSwallowed = "sync_error_swallowed",
        /// Errors of writes are swallowed.
        WriteErrorSwallowed = "write_error_swallowed",
        /// Writes are kept back and done after the next sync.
        WritesPassSyncs = "writes_pass_syncs",
        /// Locks are always granted.
        LockIgnored = "lock_ignored",
        /// Removed files stay.
        RemoveIgnored = "remove_ignored",
        /// A file is never cut.
        TruncateIgnored = "truncate_ignored",
    }
}

/// Every how many writes one is short.
const SHORT_EVERY: u64 = 7;

/// A file system with one promise less.
#[derive(Debug)]
pub struct BrokenFileSystem {
    below: Arc<dyn FileSystem>,
    breakage: Breakage,
    writes: Arc<AtomicU64>,
}

impl BrokenFileSystem {
    /// Breaks one promise of `below`.
    pub fn above(below: Arc<dyn FileSystem>, breakage: Breakage) -> Arc<dyn FileSystem> {
        Arc::new(Layered(BrokenFileSystem {
            below,
            breakage,
            writes: Arc::default(),
        }))
    }
}

#[derive(Debug)]
struct FreeLock;

impl FileLock for FreeLock {}

impl FileSystemLayer for BrokenFileSystem {
    fn below(&self) -> &dyn FileSystem {
        &*self.below
    }

    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        let mut options = options;
        if self.breakage == Breakage::TruncateIgnored {
            options.truncate = false;
        }
        Ok(Arc::new(Layered(BrokenFile {
            below: self.below.open(path, options)?,
            breakage: self.breakage,
            writes: self.writes.clone(),
            kept_back: Mutex::default(),
            stale: Mutex::default(),
            skip: AtomicBool::new(true),
        })))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        if self.breakage == Breakage::RemoveIgnored {
            return Ok(());
        }
        self.below.remove(path)
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        match self.breakage {
            Breakage::FolderSyncDoesNothing => Ok(()),
            Breakage::SyncErrorSwallowed => {
                _ = self.below.sync_directory(path);
                Ok(())
            }
            _ => self.below.sync_directory(path),
        }
    }

    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        if self.breakage == Breakage::LockIgnored {
            return Ok(Box::new(FreeLock));
        }
        self.below.lock(path, mode)
    }
}

#[derive(Debug)]
struct BrokenFile {
    below: Arc<dyn File>,
    breakage: Breakage,
    writes: Arc<AtomicU64>,
    /// Writes that come after the next sync.
    kept_back: Mutex<Vec<(u64, Vec<u8>)>>,
    /// Bytes from before the last write, once.
    stale: Mutex<Option<(u64, Vec<u8>)>>,
    /// Whether the next of every two syncs is left out.
    skip: AtomicBool,
}

impl BrokenFile {
    fn is_to_be_renamed(&self) -> bool {
        let name = self.below.path().to_string_lossy();
        [".new", ".draft", ".tmp", ".next", "-new", "-tmp"]
            .iter()
            .any(|ending| name.ends_with(ending))
    }

    fn remember_before(&self, buffer: &[u8], offset: u64) -> Result<()> {
        let mut before = vec![0; buffer.len()];
        let count = self.below.read_at(&mut before, offset)?;
        before.truncate(count);
        let mut stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        *stale = Some((offset, before));
        Ok(())
    }
}

impl FileLayer for BrokenFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let count = self.below.read_at(buffer, offset)?;
        let mut stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((start, before)) = stale.take() {
            for (place, byte) in before.into_iter().enumerate() {
                let position = start + place as u64;
                if let Some(at) = position.checked_sub(offset) {
                    if at < count as u64 {
                        buffer[at as usize] = byte;
                    }
                }
            }
        }
        Ok(count)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        match self.breakage {
            Breakage::ShortWriteIgnored if number % SHORT_EVERY == 0 => {
                self.below.write_at(&buffer[..buffer.len() / 2], offset)
            }
            Breakage::StaleReads => {
                self.remember_before(buffer, offset)?;
                self.below.write_at(buffer, offset)
            }
            Breakage::WriteErrorSwallowed => {
                _ = self.below.write_at(buffer, offset);
                Ok(())
            }
            Breakage::WritesPassSyncs => {
                // Readers see the bytes; the device gets them a sync too late.
                self.below.write_at(buffer, offset)?;
                let mut kept = self
                    .kept_back
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                kept.push((offset, buffer.to_vec()));
                Ok(())
            }
            _ => self.below.write_at(buffer, offset),
        }
    }

    fn sync_data(&self) -> Result<()> {
        match self.breakage {
            Breakage::SyncDoesNothing => Ok(()),
            Breakage::EverySecondSync if self.skip.fetch_xor(true, Ordering::Relaxed) => Ok(()),
            Breakage::SyncBeforeRenameLost if self.is_to_be_renamed() => Ok(()),
            Breakage::SyncErrorSwallowed => {
                _ = self.below.sync_data();
                Ok(())
            }
            Breakage::WritesPassSyncs => {
                let mut kept = self
                    .kept_back
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                let late = std::mem::take(&mut *kept);
                let mut zeros = Vec::new();
                for (offset, bytes) in &late {
                    zeros.clear();
                    zeros.resize(bytes.len(), 0);
                    self.below.write_at(&zeros, *offset)?;
                }
                self.below.sync_data()?;
                for (offset, bytes) in &late {
                    self.below.write_at(bytes, *offset)?;
                }
                Ok(())
            }
            _ => self.below.sync_data(),
        }
    }

    fn set_length(&self, length: u64) -> Result<()> {
        if self.breakage == Breakage::TruncateIgnored && length < self.below.length()? {
            return Ok(());
        }
        self.below.set_length(length)
    }
}
