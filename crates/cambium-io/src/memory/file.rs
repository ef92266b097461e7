//! Open files and locks of the in-memory file system.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use crate::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use cambium_base::{Error, Result};

use super::image::{Image, MAX_LENGTH};
use super::tree::refuse;
use super::{locked, read_image};
use crate::file_system::{Advice, Alignment, AppendWindow, File, FileLock, LockMode, OpenOptions};

/// What direct handles of files in memory demand, as many disks do.
pub(crate) const DIRECT_ALIGNMENT: Alignment = Alignment {
    memory: 512,
    offset: 512,
};

/// See [`File::read_cached_at`].
const AT_HAND_BLOCK: u64 = 4 << 10;

/// A file apart from its names.
#[derive(Debug, Default)]
pub(super) struct Node {
    image: RwLock<Image>,
    holders: Mutex<Holders>,
}

impl Node {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Image> {
        read_image(&self.image)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Image> {
        self.image.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who holds a lock on a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holders {
    exclusive: bool,
    shared: u32,
}

impl Holders {
    /// Takes the lock, or answers false.
    pub(crate) fn take(&mut self, mode: LockMode) -> bool {
        match mode {
            LockMode::Shared | LockMode::SharedData if self.exclusive => return false,
            LockMode::Shared | LockMode::SharedData => self.shared += 1,
            _ if self.exclusive || self.shared > 0 => return false,
            LockMode::Exclusive | LockMode::Alone => self.exclusive = true,
        }
        true
    }

    /// Gives the lock back.
    pub(crate) fn release(&mut self, mode: LockMode) {
        match mode {
            LockMode::Exclusive | LockMode::Alone => self.exclusive = false,
            LockMode::Shared | LockMode::SharedData => {
                self.shared = self.shared.saturating_sub(1);
            }
        }
    }
}

/// Refuses what a direct handle cannot do: places and memory off the grid.
pub(crate) fn check_direct(
    path: &Path,
    bytes: &[u8],
    offset: u64,
    alignment: Alignment,
) -> Result<()> {
    let grid = alignment.offset as u64;
    let off_grid = offset % grid != 0
        || bytes.len() as u64 % grid != 0
        || bytes.as_ptr() as usize % alignment.memory != 0;
    if off_grid {
        return Err(refuse("direct transfer", path, ErrorKind::InvalidInput));
    }
    Ok(())
}

/// Refuses a range that ends behind the longest file.
pub(crate) fn check_range(
    operation: &'static str,
    path: &Path,
    offset: u64,
    length: u64,
) -> Result<()> {
    if offset
        .checked_add(length)
        .is_some_and(|end| end <= MAX_LENGTH)
    {
        return Ok(());
    }
    let too_large = std::io::Error::from_raw_os_error(27);
    Err(Error::io(operation, path, too_large))
}

/// A handle.
#[derive(Debug)]
pub(super) struct MemoryFile {
    path: PathBuf,
    node: Arc<Node>,
    options: OpenOptions,
}

impl MemoryFile {
    pub(super) fn new(path: &Path, node: Arc<Node>, options: OpenOptions) -> Self {
        MemoryFile {
            path: path.to_path_buf(),
            node,
            options,
        }
    }

    fn writable(&self, operation: &'static str) -> Result<()> {
        if self.options.write {
            return Ok(());
        }
        Err(refuse(operation, &self.path, ErrorKind::PermissionDenied))
    }
}

impl File for MemoryFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if self.options.direct {
            check_direct(&self.path, buffer, offset, DIRECT_ALIGNMENT)?;
        }
        Ok(self.node.read().read(buffer, offset))
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        if self.options.direct {
            return 0;
        }
        // One block in four is said not to be at hand, so that whoever asks has to do
        // without as well.
        let away = ((offset / AT_HAND_BLOCK) | 3) * AT_HAND_BLOCK;
        let count = away.saturating_sub(offset).min(buffer.len() as u64);
        self.node.read().read(&mut buffer[..count as usize], offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.writable("write")?;
        if self.options.direct {
            check_direct(&self.path, buffer, offset, DIRECT_ALIGNMENT)?;
        }
        check_range("write", &self.path, offset, buffer.len() as u64)?;
        self.node.write().write(buffer, offset);
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        Ok(())
    }

    fn length(&self) -> Result<u64> {
        Ok(self.node.read().length())
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.writable("set length")?;
        check_range("set length", &self.path, 0, length)?;
        self.node.write().set_length(length);
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.writable("allocate")?;
        check_range("allocate", &self.path, offset, length)?;
        self.node.write().allocate(offset, length);
        Ok(())
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        self.writable("punch hole")?;
        check_range("punch hole", &self.path, offset, length)?;
        self.node.write().punch(offset, length);
        Ok(())
    }

    fn advise(&self, _offset: u64, _length: u64, _advice: Advice) {}

    fn allocated_bytes(&self) -> Result<u64> {
        Ok(self.node.read().allocated_bytes())
    }

    fn alignment(&self) -> Alignment {
        if self.options.direct {
            DIRECT_ALIGNMENT
        } else {
            Alignment::NONE
        }
    }

    fn open_window(&self, end: u64, length: u64) -> Result<Option<Box<dyn AppendWindow>>> {
        if self.options.direct {
            return Ok(None);
        }
        self.writable("open window")?;
        check_range("open window", &self.path, end, length)?;
        self.node.write().write(&vec![0; length as usize], end);
        Ok(Some(Box::new(MemoryWindow {
            node: self.node.clone(),
            end: end + length,
        })))
    }
}

#[derive(Debug)]
struct MemoryWindow {
    node: Arc<Node>,
    end: u64,
}

impl AppendWindow for MemoryWindow {
    fn end(&self) -> u64 {
        self.end
    }

    fn store(&mut self, parts: &[&[u8]], offset: u64) -> bool {
        let bytes = parts.concat();
        let fits = offset + bytes.len() as u64 <= self.end;
        if fits {
            self.node.write().write(&bytes, offset);
        }
        fits
    }
}

#[derive(Debug)]
struct MemoryLock {
    node: Arc<Node>,
    mode: LockMode,
}

impl FileLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut holders = self
            .node
            .holders
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        holders.release(self.mode);
    }
}

/// Locks a file; an exclusive owner writes its process id into it.
pub(super) fn lock(path: &Path, node: Arc<Node>, mode: LockMode) -> Result<Box<dyn FileLock>> {
    let taken = {
        let mut holders = node.holders.lock().unwrap_or_else(PoisonError::into_inner);
        holders.take(mode)
    };
    if !taken {
        return Err(locked(path, owner_in(&node.read())));
    }
    if mode == LockMode::Exclusive {
        let mut image = Image::default();
        image.write(std::process::id().to_string().as_bytes(), 0);
        *node.write() = image;
    }
    Ok(Box::new(MemoryLock { node, mode }))
}

/// The process id a lock file holds.
pub(crate) fn owner_in(image: &Image) -> Option<u32> {
    String::from_utf8(image.to_vec()).ok()?.trim().parse().ok()
}
