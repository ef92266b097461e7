//! Documents by way of packed blocks ([`crate::packed_block`]).
//!
//! A block is read whole and verified once. What is cached of it is its payload: a lookup
//! finds its document there without a checksum, and a walk, which goes from neighbour to
//! neighbour, holds the block and looks it up once for all of its documents
//! ([`OpenBlock`]). Documents of a walk share the block's memory; a lookup copies a short
//! value out of it, as of any block ([`crate::blocks`]).

use std::collections::VecDeque;
use std::ops::Range;

use cambium_api::Entry;
use cambium_base::{Result, Value};
use cambium_io::cache::Block;
use cambium_io::spans::{self, Span};

use crate::blocks::{Missing, Resident};
use crate::core::Core;
use crate::database::{Database, Document, DocumentBytes, NO_DOCUMENT};
use crate::document::{DocumentAddress, PACKED_BLOCK_BYTES};
use crate::packed_block::PackedBlock;
use crate::read::{LARGEST_GAP, LARGEST_SPAN};
use crate::record_runs::RecordRun;

/// A block that was read and verified.
#[derive(Clone, Debug)]
pub(crate) struct OpenBlock {
    start: u64,
    /// The payload alone, or the bytes of blocks that were read together.
    bytes: Block,
    payload: Range<usize>,
}

impl OpenBlock {
    /// Key and value of one of its documents, which share its memory.
    #[inline]
    fn entry(&self, database: &Database, slot: usize) -> Result<Entry> {
        Ok(self.find(database, slot)?.1)
    }

    /// One of its documents where it lies, and where in the payload that ends.
    #[inline]
    fn show(&self, database: &Database, slot: usize) -> Result<(DocumentBytes<'_>, usize)> {
        let payload = &self.bytes[self.payload.clone()];
        database.document_of_block(self.start, payload, slot)
    }

    #[inline]
    fn find(&self, database: &Database, slot: usize) -> Result<(DocumentBytes<'_>, Entry)> {
        let (document, end) = self.show(database, slot)?;
        let end = self.payload.start + end;
        let value_at = end - document.value.len();
        let key_at = value_at - document.key.len();
        let entry = Entry {
            key: Value::part_of(&self.bytes, key_at..value_at),
            value: Value::part_of(&self.bytes, value_at..end),
        };
        Ok((document, entry))
    }

    /// One of its documents, which shares its memory.
    pub fn document(&self, database: &Database, slot: usize) -> Result<Document> {
        let (found, Entry { key, value }) = self.find(database, slot)?;
        Ok(Document {
            namespace: found.namespace,
            sequence: found.sequence,
            key,
            value,
        })
    }
}

/// The next step of a walk: one document, records that lie together, or neighbours in a packed
/// block. Of several, each is made when the walk comes to it.
#[derive(Debug)]
pub(crate) enum Stretch {
    Document(Option<Document>),
    Records(RecordRun),
    Neighbours {
        block: OpenBlock,
        next: usize,
        /// Documents that are left, and whether each lies after the one before it.
        left: usize,
        ascending: bool,
    },
}

impl Stretch {
    /// The next document; `None` after the last.
    pub fn next(&mut self, database: &Database) -> Result<Option<Document>> {
        match self {
            Stretch::Document(document) => return Ok(document.take()),
            Stretch::Records(run) => {
                return run.pass().map(|run| run.document(database)).transpose();
            }
            Stretch::Neighbours { .. } => {}
        }
        match self.take_slot() {
            Some((block, slot)) => block.document(database, slot).map(Some),
            None => Ok(None),
        }
    }

    /// The next entry, if it lies beside others.
    #[inline]
    pub fn next_neighbour(&mut self, database: &Database) -> Result<Option<Entry>> {
        if let Stretch::Records(run) = self {
            return run.pass().map(|run| run.entry(database)).transpose();
        }
        match self.take_slot() {
            Some((block, slot)) => block.entry(database, slot).map(Some),
            None => Ok(None),
        }
    }

    /// The same, where it lies.
    #[inline]
    pub fn neighbour(&mut self, database: &Database) -> Result<Option<DocumentBytes<'_>>> {
        if let Stretch::Records(run) = self {
            return run.pass().map(|run| run.show(database)).transpose();
        }
        match self.take_slot() {
            Some((block, slot)) => block
                .show(database, slot)
                .map(|(document, _)| Some(document)),
            None => Ok(None),
        }
    }

    /// Goes past the next document of a packed block.
    #[inline]
    fn take_slot(&mut self) -> Option<(&OpenBlock, usize)> {
        let Stretch::Neighbours {
            block,
            next,
            left: left @ 1..,
            ascending,
        } = self
        else {
            return None;
        };
        let slot = *next;
        *left -= 1;
        *next = match *ascending {
            true => slot + 1,
            false => slot.wrapping_sub(1),
        };
        Some((block, slot))
    }

    /// Goes back before the neighbour that was taken last.
    pub fn step_back(&mut self) {
        if let Stretch::Records(run) = self {
            return run.step_back();
        }
        let last = self.last_slot().map(|(_, slot)| slot);
        if let (Some(last), Stretch::Neighbours { next, left, .. }) = (last, self) {
            *next = last;
            *left += 1;
        }
    }

    /// The key of the neighbour that was taken last.
    pub fn last_neighbour(&self, database: &Database) -> Option<Value> {
        if let Stretch::Records(run) = self {
            return Some(run.entry(database).ok()?.key);
        }
        let (block, slot) = self.last_slot()?;
        Some(block.entry(database, slot).ok()?.key)
    }

    fn last_slot(&self) -> Option<(&OpenBlock, usize)> {
        match self {
            Stretch::Document(_) | Stretch::Records(_) => None,
            Stretch::Neighbours {
                block,
                next,
                ascending: true,
                ..
            } => Some((block, next.wrapping_sub(1))),
            Stretch::Neighbours { block, next, .. } => Some((block, next.wrapping_add(1))),
        }
    }

    /// Bytes of values that it holds by itself.
    #[cfg(test)]
    pub fn value_bytes(&self) -> usize {
        match self {
            Stretch::Document(document) => document.as_ref().map_or(0, |held| held.value.len()),
            Stretch::Records(run) => run.bytes(),
            Stretch::Neighbours { .. } => PACKED_BLOCK_BYTES as usize,
        }
    }
}

impl Database {
    /// Reads and verifies the packed block at a place.
    pub fn read_block(&self, start: u64) -> Result<OpenBlock> {
        let record = self.log.read(start, PACKED_BLOCK_BYTES as usize)?;
        self.require_packed(start, record.header.kind)?;
        Ok(self.own_block(start, &record.payload))
    }

    /// A verified block in memory of its own.
    fn own_block(&self, start: u64, payload: &[u8]) -> OpenBlock {
        OpenBlock {
            start,
            bytes: self.packed.block_of(payload),
            payload: 0..payload.len(),
        }
    }

    /// The block at a place, if it is in `open`, or cached: then it is there afterwards.
    fn block_at_hand<'o>(
        &self,
        start: u64,
        open: &'o mut Option<OpenBlock>,
    ) -> Option<&'o OpenBlock> {
        if open.as_ref().is_none_or(|open| open.start != start) {
            let cached = self.packed.get(start / PACKED_BLOCK_BYTES);
            *open = cached.map(|bytes| OpenBlock {
                start,
                payload: 0..bytes.len(),
                bytes,
            });
        }
        open.as_ref()
    }

    /// Caches a block that has memory of its own and lies in the file.
    fn offer_block(&self, block: &OpenBlock) {
        // The buffer goes to the file as a whole.
        if block.start < self.log.written_end() {
            let number = block.start / PACKED_BLOCK_BYTES;
            self.packed.put(number, &block.bytes);
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
        look_in(&block.bytes)
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
        let block = self.block_at_hand(address.start(), open)?;
        block.document(self, slot).ok()
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

/// A document of a walk, or several that are neighbours, before they are read.
struct Wanted {
    address: DocumentAddress,
    count: usize,
    ascending: bool,
}

impl Wanted {
    /// Takes the next document of the walk in, if it is the neighbour of the last one.
    fn takes(&mut self, address: DocumentAddress) -> bool {
        let (Some(first), Some(slot)) = (self.address.slot(), address.slot()) else {
            return false;
        };
        let ascending = slot > first;
        let is_next = self.address.start() == address.start()
            && first.abs_diff(slot) == self.count
            && (self.count == 1 || ascending == self.ascending);
        if is_next {
            self.ascending = ascending;
            self.count += 1;
        }
        is_next
    }
}

/// Joins documents that are neighbours in their packed blocks.
fn joined(addresses: &[DocumentAddress]) -> Vec<Wanted> {
    let mut all: Vec<Wanted> = Vec::new();
    for &address in addresses {
        if !all.last_mut().is_some_and(|last| last.takes(address)) {
            all.push(Wanted {
                address,
                count: 1,
                ascending: true,
            });
        }
    }
    all
}

impl Core {
    /// The steps of a walk over documents, all of them read. Blocks that were missing are kept
    /// in the cache, or only where that has room.
    pub fn stretches(
        &self,
        database: &Database,
        addresses: &[DocumentAddress],
        keep: bool,
    ) -> Result<VecDeque<Stretch>> {
        let wanted = joined(addresses);
        let mut blocks: Vec<Option<OpenBlock>> = Vec::with_capacity(wanted.len());
        let (mut missing, mut others, mut open) = (Vec::new(), Vec::new(), None);
        for Wanted { address, .. } in &wanted {
            if !address.is_packed() {
                others.push(*address);
                blocks.push(None);
                continue;
            }
            let block = database.block_at_hand(address.start(), &mut open).cloned();
            if block.is_none() {
                missing.push(address.start());
            }
            blocks.push(block);
        }
        missing.sort_unstable();
        missing.dedup();
        let read = self.read_blocks(database, &missing, keep)?;
        let mut shared = self.shared_bytes(database, &others, keep)?.into_iter();
        let alone = others.iter().zip(shared.as_slice());
        let alone: Vec<_> = alone
            .filter(|(_, shared)| shared.is_none())
            .map(|(it, _)| *it)
            .collect();
        let mut documents = self.documents_of_walk(database, &alone)?.into_iter();
        let mut stretches = VecDeque::with_capacity(wanted.len());
        for (wanted, block) in wanted.into_iter().zip(blocks) {
            let Some(slot) = wanted.address.slot() else {
                match (shared.next().flatten(), stretches.back_mut()) {
                    (None, _) => stretches.push_back(Stretch::Document(documents.next())),
                    (Some(within), Some(Stretch::Records(run))) if run.lies_in(&within) => {
                        run.push(wanted.address);
                    }
                    (Some(within), _) => {
                        let run = RecordRun::new(within, wanted.address);
                        stretches.push_back(Stretch::Records(run));
                    }
                }
                continue;
            };
            let start = wanted.address.start();
            let place = || read.binary_search_by_key(&start, |block| block.start).ok();
            let block = block.or_else(|| place().map(|place| read[place].clone()));
            stretches.push_back(Stretch::Neighbours {
                block: block.ok_or_else(|| database.damage(start, NO_DOCUMENT))?,
                next: slot,
                left: wanted.count,
                ascending: wanted.ascending,
            });
        }
        Ok(stretches)
    }

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
        let mut starts: Vec<u64> = places
            .iter()
            .map(|&place| addresses[place].start())
            .collect();
        starts.dedup();
        let blocks = self.read_blocks(database, &starts, keep)?;
        let mut blocks = blocks.into_iter().peekable();
        let mut open = None;
        for &place in places {
            let start = addresses[place].start();
            if let Some(block) = blocks.next_if(|block| block.start == start) {
                open = Some(block);
            }
            found[place] = Some(database.read_in_turn(addresses[place], &mut open)?);
        }
        Ok(())
    }

    /// Reads blocks at ascending places, those that lie together at once. They are kept in
    /// the cache, or only where that has room.
    fn read_blocks(
        &self,
        database: &Database,
        starts: &[u64],
        keep: bool,
    ) -> Result<Vec<OpenBlock>> {
        // The file does not have blocks that are buffered.
        let written_end = database.log.written_end();
        let written = starts.partition_point(|&start| start < written_end);
        let (written, buffered) = starts.split_at(written);
        let places = written.iter().map(|&start| {
            let end = start + PACKED_BLOCK_BYTES;
            ((), start..end.min(written_end))
        });
        let spans = spans::join(places, LARGEST_GAP, LARGEST_SPAN);
        let reads: Vec<(u64, usize)> = spans.iter().map(Span::place).collect();
        let mut blocks: Vec<OpenBlock> = Vec::with_capacity(starts.len());
        let read = self.read_places(database, &database.packed, &reads)?;
        for (Span { start, members, .. }, bytes) in spans.into_iter().zip(read) {
            self.open_blocks(
                database,
                &written[members],
                (start, &bytes),
                keep,
                &mut blocks,
            )?;
        }
        self.count_document_reads(reads.len());
        for &start in buffered {
            blocks.push(database.read_block(start)?);
        }
        Ok(blocks)
    }

    /// Verifies blocks in bytes that were read at an offset.
    fn open_blocks(
        &self,
        database: &Database,
        starts: &[u64],
        (offset, bytes): (u64, &Block),
        keep: bool,
        blocks: &mut Vec<OpenBlock>,
    ) -> Result<()> {
        for &start in starts {
            let at = (start - offset) as usize;
            let own = bytes.get(at..).unwrap_or_default();
            let parsed = database.log.parse_borrowed(start, own)?;
            let (header, payload) = parsed
                .ok_or_else(|| database.damage(start, "a packed block runs past its bounds"))?;
            database.require_packed(start, header.kind)?;
            let number = start / PACKED_BLOCK_BYTES;
            if keep || database.packed.has_room(number) {
                let block = database.own_block(start, payload);
                database.offer_block(&block);
                blocks.push(block);
            } else {
                let from = at + usize::from(header.header_bytes);
                blocks.push(OpenBlock {
                    start,
                    bytes: bytes.clone(),
                    payload: from..from + payload.len(),
                });
            }
        }
        Ok(())
    }
}
