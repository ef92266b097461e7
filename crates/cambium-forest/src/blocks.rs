//! Documents by way of cached blocks of the database file.
//!
//! A document is found in the blocks of the file that it lies in. Blocks are
//! read and cached whole, so one read brings its neighbours along: those that
//! were written about then, or, after a compaction, those of neighbouring keys.
//! A short value is copied out of its block, a long one shares its bytes.
//!
//! Only blocks that end before the log's write end are cached: what is
//! below it never changes, unless the log is cut back after a write that failed
//! ([`LogFile::cuts`](cambium_storage::log::LogFile::cuts)), which leaves
//! all blocks uncached from then on. A record is verified each time it is looked
//! at, and one that is unsound in the cache is read again from the file.

use std::sync::Arc;

use cambium_base::{Result, Value};
use cambium_io::cache::Block;

use crate::database::{Database, Document, DocumentBytes};
use crate::document::DocumentAddress;

/// Bytes of a cached block of documents: what the operating system reads of a
/// device at least.
pub(crate) const BLOCK_BYTES: u64 = 4 << 10;
/// Documents that may be longer are read by themselves, past the cache.
const LARGEST_DOCUMENT_BYTES: u64 = 16 << 10;
/// Bits of a place that number its block; the rest tells cuts of the log apart.
const NUMBER_BITS: u32 = 44;

/// Whether blocks that are missing are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Read,
    GiveUp,
}

/// Values up to this are copied out of their block: a copy costs less than a
/// count of the block's references, and does not keep the block in memory.
const LARGEST_COPY_BYTES: usize = 1 << 10;

/// A verified document where it lies.
pub(crate) struct Resident<'b> {
    pub document: DocumentBytes<'b>,
    block: &'b Block,
    value_at: usize,
}

impl<'b> Resident<'b> {
    /// A document of a block whose value begins at `value_at`.
    pub fn new(document: DocumentBytes<'b>, block: &'b Block, value_at: usize) -> Self {
        Resident {
            document,
            block,
            value_at,
        }
    }

    /// The value, to be kept.
    pub fn value(&self) -> Value {
        let value = self.document.value;
        if value.len() <= LARGEST_COPY_BYTES {
            return Value::copy_of(value);
        }
        Value::part_of(self.block, self.value_at..self.value_at + value.len())
    }

    fn to_document(&self) -> Document {
        Document {
            namespace: self.document.namespace,
            sequence: self.document.sequence,
            key: Value::copy_of(self.document.key),
            value: self.value(),
        }
    }
}

impl Database {
    /// The document at an address, if its blocks may be cached and hold it.
    /// `None`: it has to be read by itself, which also tells what is wrong.
    pub fn document_in_blocks(
        &self,
        address: DocumentAddress,
        missing: Missing,
    ) -> Option<Document> {
        self.with_document(address, missing, |found| found.to_document())
    }

    /// Looks at the document at an address where it lies; `None` as of
    /// [`Database::document_in_blocks`].
    pub fn with_document<R>(
        &self,
        address: DocumentAddress,
        missing: Missing,
        look: impl FnOnce(&Resident<'_>) -> R,
    ) -> Option<R> {
        if let Some(slot) = address.slot() {
            return self.with_packed((address.start(), slot), missing, look);
        }
        let (offset, most) = (address.offset(), self.most_to_read(address));
        if self.documents.is_off() || most == 0 || most > LARGEST_DOCUMENT_BYTES {
            return None;
        }
        let first = offset / BLOCK_BYTES;
        let last = (offset + most - 1) / BLOCK_BYTES;
        if (last + 1) * BLOCK_BYTES > self.log.written_end() {
            return None;
        }
        if first != last {
            let bytes = self.joined(offset, most, missing)?;
            return self.look_at(address, &bytes, 0, look);
        }
        let start = (offset % BLOCK_BYTES) as usize;
        let place = self.place(first);
        if missing == Missing::GiveUp {
            let look_in = |block: &Block| self.look_at(address, block, start, look);
            return self.cached_block(first, look_in).flatten();
        }
        let block = self.read_blocks(first, 1).ok()?;
        self.documents.put(place, &block);
        self.look_at(address, &block, start, look)
    }

    fn look_at<R>(
        &self,
        address: DocumentAddress,
        block: &Block,
        start: usize,
        look: impl FnOnce(&Resident<'_>) -> R,
    ) -> Option<R> {
        let document = self.document_in(address, &block[start..]).ok()?;
        let value_at = document.value.as_ptr().addr() - block.as_ptr().addr();
        Some(look(&Resident::new(document, block, value_at)))
    }

    /// Looks into the block of a number, if it is cached.
    fn cached_block<R>(&self, number: u64, look: impl FnOnce(&Block) -> R) -> Option<R> {
        self.documents.with(self.place(number), look)
    }

    fn place(&self, number: u64) -> u64 {
        self.log.cuts() << NUMBER_BITS | number
    }

    /// The bytes of a document that lies in several blocks.
    fn joined(&self, offset: u64, most: u64, missing: Missing) -> Option<Block> {
        if missing == Missing::GiveUp {
            return self.gathered(offset, most as usize);
        }
        let (first, last) = (offset / BLOCK_BYTES, (offset + most - 1) / BLOCK_BYTES);
        let start = (offset % BLOCK_BYTES) as usize;
        // One read, also where one of them was there.
        let bytes = self.read_blocks(first, last + 1 - first).ok()?;
        self.offer_blocks(first * BLOCK_BYTES, &bytes, u64::MAX);
        Some(bytes[start..start + most as usize].into())
    }

    /// Bytes of the file, if all blocks that they lie in are cached.
    pub fn gathered(&self, offset: u64, length: usize) -> Option<Block> {
        let mut bytes = Vec::new();
        let mut from = (offset % BLOCK_BYTES) as usize;
        for number in offset / BLOCK_BYTES.. {
            let left = length - bytes.len();
            self.cached_block(number, |block| {
                bytes.reserve(left);
                let until = block.len().min(from + left);
                bytes.extend_from_slice(&block[from..until]);
            })?;
            if bytes.len() == length {
                break;
            }
            from = 0;
        }
        Some(bytes.into())
    }

    fn read_blocks(&self, number: u64, count: u64) -> Result<Block> {
        let length = (count * BLOCK_BYTES) as usize;
        let mut block = self.documents.block_to_fill(length);
        if let Some(bytes) = Arc::get_mut(&mut block) {
            self.log.file().read_exact_at(bytes, number * BLOCK_BYTES)?;
        }
        Ok(block)
    }

    /// Offers the whole blocks among bytes that were read from `start` on, a
    /// multiple of a block's bytes, and lie below `end`.
    pub fn offer_blocks(&self, start: u64, bytes: &[u8], end: u64) {
        let numbers = start / BLOCK_BYTES..;
        for (number, block) in numbers.zip(bytes.chunks_exact(BLOCK_BYTES as usize)) {
            if (number + 1) * BLOCK_BYTES <= end {
                let block = self.documents.block_of(block);
                self.documents.put(self.place(number), &block);
            }
        }
    }
}
