//! Documents by way of cached blocks of the database file.
//!
//! A document is found in the blocks of the file that it lies in. Blocks are
//! read and cached whole, so one read brings its neighbours along: those that
//! were written about then, or, after a compaction, those of neighbouring keys.
//! A value that is answered shares its block's bytes.
//!
//! Only blocks that are wholly behind the log's write end are cached: what is
//! below it never changes, unless the log is cut back after a write that failed
//! ([`LogFile::cuts`](cambium_storage::log::LogFile::cuts)), which makes all
//! places new. A record is verified each time it is looked at, and one that is
//! unsound in the cache is read again from the file.

use std::sync::Arc;

use cambium_base::Result;
use cambium_io::cache::Block;
use cambium_storage::log::Parsed;

use crate::database::{Database, Document};
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

impl Database {
    /// The document at an address, if its blocks may be cached and hold it.
    /// `None`: it has to be read by itself, which also tells what is wrong.
    pub fn document_in_blocks(
        &self,
        address: DocumentAddress,
        missing: Missing,
    ) -> Option<Document> {
        let (offset, most) = (address.offset(), self.most_to_read(address));
        if self.documents.is_off() || most == 0 || most > LARGEST_DOCUMENT_BYTES {
            return None;
        }
        let first = offset / BLOCK_BYTES;
        let last = (offset + most - 1) / BLOCK_BYTES;
        if (last + 1) * BLOCK_BYTES > self.log.written_end() {
            return None;
        }
        let start = (offset % BLOCK_BYTES) as usize;
        let bytes = match first == last {
            true => self.block(first, missing)?,
            false => self.joined(first, last, missing)?,
        };
        match self.log.parse_shared(offset, &bytes, start).ok()? {
            Parsed::Complete(record) => self.document_of(offset, record).ok(),
            Parsed::NeedsBytes(..) => None,
        }
    }

    fn place(&self, number: u64) -> u64 {
        self.log.cuts() << NUMBER_BITS | number
    }

    fn block(&self, number: u64, missing: Missing) -> Option<Block> {
        let place = self.place(number);
        if let Some(block) = self.documents.get(place) {
            return Some(block);
        }
        if missing == Missing::GiveUp {
            return None;
        }
        let block = self.read_blocks(number, 1).ok()?;
        self.documents.put(place, &block);
        Some(block)
    }

    /// The bytes of neighbouring blocks.
    fn joined(&self, first: u64, last: u64, missing: Missing) -> Option<Block> {
        let cached: Vec<Option<Block>> = (first..=last)
            .map(|number| self.documents.get(self.place(number)))
            .collect();
        if cached.iter().all(Option::is_some) {
            let blocks: Vec<u8> = cached
                .iter()
                .flatten()
                .flat_map(|block| &**block)
                .copied()
                .collect();
            return Some(blocks.into());
        }
        if missing == Missing::GiveUp {
            return None;
        }
        // One read, also where one of them was there.
        let bytes = self.read_blocks(first, last + 1 - first).ok()?;
        self.offer_blocks(first * BLOCK_BYTES, &bytes, u64::MAX);
        Some(bytes)
    }

    fn read_blocks(&self, number: u64, count: u64) -> Result<Block> {
        let length = (count * BLOCK_BYTES) as usize;
        let mut block: Block = std::iter::repeat_n(0, length).collect();
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
                self.documents.put(self.place(number), &block.into());
            }
        }
    }
}
