//! Documents by way of packed blocks ([`crate::packed_block`]).
//!
//! A block is read whole and verified once. What is cached of it is its payload: a lookup
//! finds its document there without a checksum, and a walk, which goes from neighbour to
//! neighbour, holds the block and looks it up once for all of its documents
//! ([`OpenBlock`]). Documents of a walk share the block's memory; a lookup copies a short
//! value out of it, as of any block ([`crate::blocks`]).

use cambium_base::{Result, Value};
use cambium_io::cache::Block;
use cambium_storage::record::record_bytes;

use crate::blocks::{Missing, Resident};
use crate::core::Core;
use crate::database::{Database, Document, NO_DOCUMENT};
use crate::document::{DOCUMENT_ALIGNMENT, DocumentAddress, PACKED_BLOCK_BYTES};
use crate::format::kind;
use crate::packed_block::PackedBlock;

/// Blocks that are read together lie side by side, or closer than this.
const LARGEST_GAP: u64 = PACKED_BLOCK_BYTES;
/// Most bytes of a read of several blocks.
const LARGEST_READ: u64 = 256 << 10;

/// A block that was read and verified.
#[derive(Clone, Debug)]
pub(crate) struct OpenBlock {
    start: u64,
    payload: Block,
}

impl OpenBlock {
    /// One of its documents, which shares its memory.
    pub fn document(&self, database: &Database, slot: usize) -> Result<Document> {
        let found = PackedBlock::of(&self.payload).and_then(|block| block.document(slot));
        let (document, end) = found.ok_or_else(|| database.damage(self.start, NO_DOCUMENT))?;
        let value_at = end - document.value.len();
        let key_at = value_at - document.key.len();
        Ok(Document {
            namespace: document.namespace,
            sequence: document.sequence,
            key: Value::part_of(&self.payload, key_at..value_at),
            value: Value::part_of(&self.payload, value_at..end),
        })
    }
}

impl Database {
    /// Reads and verifies the packed block at a place.
    pub fn read_block(&self, start: u64) -> Result<OpenBlock> {
        let record = self.log.read(start, PACKED_BLOCK_BYTES as usize)?;
        if record.header.kind != kind::PACKED {
            return Err(self.damage(start, NO_DOCUMENT));
        }
        let payload = self.packed.block_of(&record.payload);
        Ok(OpenBlock { start, payload })
    }

    /// The block at a place, if it is cached.
    fn cached_block(&self, start: u64) -> Option<OpenBlock> {
        let payload = self.packed.get(start / PACKED_BLOCK_BYTES)?;
        Some(OpenBlock { start, payload })
    }

    /// Caches a block that lies in the file.
    fn offer_block(&self, block: &OpenBlock) {
        let bytes = record_bytes(block.payload.len() as u64, DOCUMENT_ALIGNMENT);
        if block.start + bytes <= self.log.written_end() {
            self.packed
                .put(block.start / PACKED_BLOCK_BYTES, &block.payload);
        }
    }

    /// Looks at a document of the packed block at `start` where it lies, as
    /// [`Database::with_document`].
    pub fn with_packed<R>(
        &self,
        (start, slot): (u64, usize),
        missing: Missing,
        look: impl FnOnce(&Resident<'_>) -> R,
    ) -> Option<R> {
        let look_in = |payload: &Block| {
            let (document, end) = PackedBlock::of(payload)?.document(slot)?;
            let value_at = end - document.value.len();
            Some(look(&Resident::new(document, payload, value_at)))
        };
        if missing == Missing::GiveUp {
            let number = start / PACKED_BLOCK_BYTES;
            return self.packed.with(number, look_in).flatten();
        }
        let block = self.read_block(start).ok()?;
        self.offer_block(&block);
        look_in(&block.payload)
    }

    /// The document at an address, if what it lies in is cached. Documents of one packed
    /// block that follow one another are found in `open`, which holds it.
    pub fn document_at_hand(
        &self,
        address: DocumentAddress,
        open: &mut Option<OpenBlock>,
    ) -> Option<Document> {
        let Some(slot) = address.slot() else {
            return self.document_in_blocks(address, Missing::GiveUp);
        };
        let start = address.start();
        if open.as_ref().is_none_or(|open| open.start != start) {
            *open = self.cached_block(start);
        }
        open.as_ref()?.document(self, slot).ok()
    }

    /// The document at an address, read unless its packed block is in `open`.
    pub fn read_in_turn(
        &self,
        address: DocumentAddress,
        open: &mut Option<OpenBlock>,
    ) -> Result<Document> {
        let Some(slot) = address.slot() else {
            return self.read_document(address);
        };
        let start = address.start();
        let block = match open.take().filter(|open| open.start == start) {
            Some(block) => block,
            None => self.read_block(start)?,
        };
        open.insert(block).document(self, slot)
    }
}

impl Core {
    /// Reads the packed documents of some places, which are in the order of the file, into
    /// `found`; their blocks are kept, or not.
    pub(super) fn read_packed(
        &self,
        database: &Database,
        addresses: &[DocumentAddress],
        places: &[usize],
        found: &mut [Option<Document>],
        keep: bool,
    ) -> Result<()> {
        let written_end = database.log.written_end();
        let starts = places.iter().map(|&place| addresses[place].start());
        // Those that are buffered are not to be had from the file.
        let mut starts: Vec<u64> = starts.filter(|&start| start < written_end).collect();
        starts.dedup();
        let reads = reads_of(&starts, database.log.end());
        let mut blocks: Vec<Option<OpenBlock>> = vec![None; starts.len()];
        self.read_together(database, &reads, |number, bytes| {
            let (read_start, length) = reads[number];
            let first = starts.partition_point(|&start| start < read_start);
            let in_read = |start: &u64| *start < read_start + length as u64;
            let wanted = starts.iter().enumerate().skip(first);
            for (place, &start) in wanted.take_while(|(_, start)| in_read(start)) {
                let bytes = bytes.get((start - read_start) as usize..);
                let parsed = database
                    .log
                    .parse_borrowed(start, bytes.unwrap_or_default())?;
                let Some((header, payload)) = parsed else {
                    return Err(database.damage(start, "a packed block runs past its bounds"));
                };
                if header.kind != kind::PACKED {
                    return Err(database.damage(start, NO_DOCUMENT));
                }
                let payload = database.packed.block_of(payload);
                let block = OpenBlock { start, payload };
                if keep {
                    database.offer_block(&block);
                }
                blocks[place] = Some(block);
            }
            Ok(())
        })?;
        let mut blocks = blocks.into_iter().flatten().peekable();
        let mut open = None;
        for &place in places {
            let start = addresses[place].start();
            if let Some(block) = blocks.next_if(|block| block.start <= start) {
                open = Some(block);
            }
            found[place] = Some(database.read_in_turn(addresses[place], &mut open)?);
        }
        self.count_document_reads(reads.len());
        Ok(())
    }
}

/// Offset and length of the reads that bring blocks at ascending places.
fn reads_of(starts: &[u64], file_end: u64) -> Vec<(u64, usize)> {
    let mut reads: Vec<(u64, usize)> = Vec::new();
    for &start in starts {
        let end = (start + PACKED_BLOCK_BYTES).min(file_end.max(start));
        match reads.last_mut() {
            Some((first, length))
                if start <= *first + *length as u64 + LARGEST_GAP
                    && end - *first <= LARGEST_READ =>
            {
                *length = (end - *first) as usize;
            }
            _ => reads.push((start, (end - start) as usize)),
        }
    }
    reads
}
