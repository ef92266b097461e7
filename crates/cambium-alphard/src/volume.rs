//! The blocks of a store: a device, or a preallocated file.
//!
//! Everything here goes by blocks and aligned buffers, so that the operating
//! system's cache can be left out of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::{Error, Extent, Result};
use cambium_io::{AlignedBuffer, File, FileSystem, OpenOptions};

use crate::format::{SUPERBLOCK_BYTES, Superblock};

/// Alignment of every buffer in memory: enough for any device.
const MEMORY_ALIGNMENT: usize = 4096;

/// A device or file, open.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    file: Arc<dyn File>,
    pub block_bytes: u32,
}

/// Whether the operating system's cache is bypassed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Direct,
    Buffered,
    /// Direct where the file system can.
    Either,
}

/// Zeroed memory for direct transfers.
pub(crate) fn buffer(bytes: usize) -> AlignedBuffer {
    AlignedBuffer::new(bytes, MEMORY_ALIGNMENT)
}

/// Opens a device or file as asked.
pub(crate) fn open_file(
    file_system: &dyn FileSystem,
    path: &Path,
    options: OpenOptions,
    access: Access,
) -> Result<Arc<dyn File>> {
    match access {
        Access::Direct => file_system.open(path, options.direct()),
        Access::Buffered => file_system.open(path, options),
        Access::Either => match file_system.open(path, options.direct()) {
            Err(Error::Io { operation, .. }) if operation.starts_with("open for direct") => {
                file_system.open(path, options)
            }
            other => other,
        },
    }
}

impl Volume {
    /// Around an open file; its alignment must fit.
    pub fn new(file: Arc<dyn File>, block_bytes: u32) -> Result<Self> {
        let needed = file.alignment().offset;
        if needed > block_bytes as usize {
            return Err(Error::InvalidArgument(format!(
                "{} takes transfers of {needed} bytes, the store has blocks of {block_bytes}: set direct=off, or block_bytes={needed} when creating",
                file.path().display()
            )));
        }
        Ok(Volume { file, block_bytes })
    }

    /// The device or file, for batched reads.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// For messages.
    pub fn path(&self) -> PathBuf {
        self.file.path().to_path_buf()
    }

    /// The first byte of a block.
    pub fn offset(&self, block: u32) -> u64 {
        u64::from(block) * u64::from(self.block_bytes)
    }

    /// Damage at a block.
    pub fn damage(&self, block: u32, what: impl Into<String>) -> Error {
        Error::corruption(self.file.path(), self.offset(block), what)
    }

    /// Reads an extent.
    pub fn read(&self, extent: Extent) -> Result<AlignedBuffer> {
        let mut bytes = buffer(extent.blocks as usize * self.block_bytes as usize);
        self.file
            .read_exact_at(&mut bytes, self.offset(extent.block))?;
        Ok(bytes)
    }

    /// Writes whole blocks.
    pub fn write(&self, block: u32, bytes: &[u8]) -> Result<()> {
        self.file.write_at(bytes, self.offset(block))
    }

    /// Makes a file longer, with the space; a device must be long enough. Durable
    /// with the next sync.
    pub fn extend(&self, length: u64) -> Result<()> {
        let now = self.file.length()?;
        if now >= length {
            return Ok(());
        }
        self.file.allocate(now, length - now)?;
        if self.file.length()? < length {
            self.file.set_length(length)?;
        }
        Ok(())
    }

    /// Makes everything durable.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data()
    }

    /// Writes both copies of a superblock, one after the other, each synced: a
    /// crash while one is written leaves the other. Generation `n` goes to copy
    /// `(n + 1) % 2`, and counts when it is durable: after a failure the copy that
    /// may be torn is the next one written.
    pub fn write_superblock(&self, superblock: &mut Superblock) -> Result<()> {
        for _ in 0..2 {
            let copy = superblock.generation % 2;
            let next = Superblock {
                generation: superblock.generation + 1,
                ..*superblock
            };
            let mut bytes = buffer(SUPERBLOCK_BYTES as usize);
            bytes.copy_from_slice(&next.encode());
            self.file.write_at(&bytes, copy * SUPERBLOCK_BYTES)?;
            self.file.sync_data()?;
            *superblock = next;
        }
        Ok(())
    }
}

/// The newest sound superblock, and where copies are not sound.
pub(crate) fn read_superblock(file: &dyn File) -> Result<(Option<Superblock>, Vec<u64>)> {
    let mut best: Option<Superblock> = None;
    let mut unsound = Vec::new();
    for copy in 0..2 {
        let mut bytes = buffer(SUPERBLOCK_BYTES as usize);
        let offset = copy * SUPERBLOCK_BYTES;
        let count = file.read_at(&mut bytes, offset)?;
        match Superblock::decode(&bytes[..count], file.path())? {
            Some(found) => {
                if best.is_none_or(|best| found.generation > best.generation) {
                    best = Some(found);
                }
            }
            None => unsound.push(offset),
        }
    }
    Ok((best, unsound))
}
