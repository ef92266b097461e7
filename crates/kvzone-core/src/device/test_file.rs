//! The file that is measured.
//!
//! It is filled with bytes that do not compress and are not zeros (virtual
//! disks short-cut both). Each block of [`BLOCK_BYTES`] begins with its own
//! offset, 8 bytes little-endian, which every read checks: a number got by
//! reading wrong places would be worse than none.
//!
//! The name is removed as soon as the file is open, so that whatever ends the
//! measurement, the space comes back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::{Error, Result};
use cambium_io::{Advice, AlignedBuffer, File, FileKind, FileSystem, OpenOptions};

/// Bytes of a block: the unit of random reads.
pub const BLOCK_BYTES: usize = 4096;

/// Bytes of a sequential read or write.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Room asked for beside the test file.
const SPARE_BYTES: u64 = 64 << 20;

/// The open test file; no name leads to it any more.
#[derive(Clone, Debug)]
pub struct TestFile {
    /// Through the operating system's cache.
    pub buffered: Arc<dyn File>,
    /// Past it, where the file system can.
    pub direct: Result<Arc<dyn File>>,
    /// Length, a multiple of [`CHUNK_BYTES`].
    pub bytes: u64,
    /// Bytes of a sequential read or write; [`CHUNK_BYTES`], or a power of two below.
    pub chunk: usize,
    /// Bytes of a random read, a multiple of [`BLOCK_BYTES`].
    pub block: usize,
}

impl TestFile {
    /// Makes an empty file for `bytes` (rounded up to [`CHUNK_BYTES`]) in a
    /// folder that must be there and have room.
    /// Requests are of `request` bytes where that is chosen, as far as they can be.
    pub fn create(
        files: &dyn FileSystem,
        directory: &Path,
        bytes: u64,
        request: Option<usize>,
    ) -> Result<Self> {
        check_directory(files, directory)?;
        let bytes = bytes.max(1).next_multiple_of(CHUNK_BYTES as u64);
        check_room(files, directory, bytes)?;
        let path = unused_path(directory);
        let buffered = files.open(&path, OpenOptions::CREATE_NEW)?;
        let direct = files.open(&path, OpenOptions::WRITE.direct());
        files.remove(&path)?;
        buffered.allocate(0, bytes)?;
        Ok(TestFile {
            buffered,
            direct,
            bytes,
            chunk: request.unwrap_or(CHUNK_BYTES),
            block: request.unwrap_or(BLOCK_BYTES).max(BLOCK_BYTES),
        })
    }

    pub fn handle(&self, direct: bool) -> Result<&Arc<dyn File>> {
        if direct {
            self.direct.as_ref().map_err(Clone::clone)
        } else {
            Ok(&self.buffered)
        }
    }

    /// Writes what is cached, then empties the cache of this file.
    pub fn drop_cache(&self) -> Result<()> {
        self.buffered.sync_data()?;
        self.buffered.advise(0, self.bytes, Advice::DontNeed);
        Ok(())
    }
}

fn check_directory(files: &dyn FileSystem, directory: &Path) -> Result<()> {
    let found = files.metadata(directory)?;
    let what = match found.map(|found| found.kind) {
        Some(FileKind::Directory) => return Ok(()),
        Some(_) => "not a folder",
        None => "no such folder; make it first, on the disk to be measured",
    };
    let kind = std::io::ErrorKind::NotFound;
    Err(Error::io(
        "measure in",
        directory,
        std::io::Error::new(kind, what),
    ))
}

fn check_room(files: &dyn FileSystem, directory: &Path, bytes: u64) -> Result<()> {
    let available = files.space(directory)?.available;
    if bytes.saturating_add(SPARE_BYTES) <= available {
        return Ok(());
    }
    Err(Error::NoSpace {
        path: directory.to_path_buf(),
        what: format!(
            "the test file takes {bytes} bytes and {SPARE_BYTES} beside it, {available} are free; choose a smaller --size"
        ),
    })
}

fn unused_path(directory: &Path) -> PathBuf {
    directory.join(format!("kvzone-device-{}.tmp", std::process::id()))
}

/// A chunk of bytes that do not compress.
pub fn new_chunk(alignment: usize) -> AlignedBuffer {
    let mut chunk = AlignedBuffer::new(CHUNK_BYTES, alignment.max(BLOCK_BYTES));
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for word in chunk.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    chunk
}

/// Stamps each block of a buffer that will lie at `offset`.
pub fn stamp(buffer: &mut [u8], offset: u64) {
    for (number, block) in buffer.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        let place = offset + (number * BLOCK_BYTES) as u64;
        block[..8].copy_from_slice(&place.to_le_bytes());
    }
}

pub fn check_stamp(path: &Path, block: &[u8], offset: u64) -> Result<()> {
    let found = block
        .first_chunk()
        .map(|bytes: &[u8; 8]| u64::from_le_bytes(*bytes));
    if found == Some(offset) {
        return Ok(());
    }
    let what = format!("a test block that should begin with its own offset begins with {found:?}");
    Err(Error::corruption(path, offset, what))
}
