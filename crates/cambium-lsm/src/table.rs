//! Tables: immutable files of sorted entries.
//!
//! ```text
//! ┌ file header, 96 ┬ data block │ data block │ … │ index block │ data block │ …
//! ├─────────────────┴──────────────────────────────────────────────────────────
//! │ filter │ range tombstones │ properties │ top index block ┬ footer, 72 bytes ┐
//! └──────────────────────────────────────────────────────────┴──────────────────┘
//! ```
//!
//! The index has two levels: the top block names the index blocks, which name
//! the data blocks; it and the filter stay in memory while the table is open,
//! index and data blocks go through the block cache. A lookup asks the filter,
//! then searches three blocks, of which at most two are read.
//!
//! Every block has a checksum seeded by store, file and offset, and is written
//! once. The file's length stands in the manifest; the footer is at its end.

use std::path::Path;
use std::sync::Arc;

use cambium_base::checksum::ChecksumSeed;
use cambium_base::coding::Decoder;
use cambium_base::varint::{put_varint, put_varint_prefixed};
use cambium_base::{Error, Result};
use cambium_index::BlockedBloom;
use cambium_io::cache::CachedFile;
use cambium_io::sync::atomic::Ordering;
use cambium_io::{Advice, File, OpenOptions};
use cambium_storage::file_header::FileHeader;

use crate::block::{BadBlock, Block, BlockCursor};
use crate::entry::{EntryRef, Moment};
use crate::format::{
    BLOCK_TRAILER_BYTES, BlockHandle, FOOTER_BYTES, FORMAT_VERSION, Footer, TABLE_MAGIC, table_name,
};
use crate::options::{known_comparator, known_filter};
use crate::properties::Properties;
use crate::stats::Counters;
use crate::stored_block::check_stored;
use crate::tombstones::RangeTombstones;
use crate::tree::Context;
use crate::version::TableMetadata;

/// Range tombstones as the entries of a block.
pub(crate) fn encode_tombstone(to: Option<&[u8]>, sequences: &[u64]) -> Vec<u8> {
    let mut bytes = vec![u8::from(to.is_some())];
    if let Some(to) = to {
        put_varint_prefixed(&mut bytes, to);
    }
    put_varint(&mut bytes, sequences.len() as u64);
    for &sequence in sequences {
        put_varint(&mut bytes, sequence);
    }
    bytes
}

fn decode_tombstones(block: Block) -> Result<RangeTombstones, BadBlock> {
    let mut all = RangeTombstones::default();
    let mut cursor = BlockCursor::new(block);
    cursor.seek_first()?;
    while let Some(entry) = cursor.entry() {
        add_fragment(&mut all, &entry).ok_or(BadBlock(0))?;
        cursor.next()?;
    }
    Ok(all)
}

fn add_fragment(all: &mut RangeTombstones, entry: &EntryRef<'_>) -> Option<()> {
    let mut decoder = Decoder::new(entry.value);
    let to = match decoder.u8()? {
        0 => None,
        1 => Some(decoder.varint_prefixed()?),
        _ => return None,
    };
    for _ in 0..decoder.varint()? {
        all.add(entry.key, to, decoder.varint()?);
    }
    (decoder.remaining() == 0).then_some(())
}

/// Where blocks come from. A provider may answer `None`: the block is not at
/// hand, and was noted down to be fetched with others.
pub(crate) trait BlockProvider {
    /// The block of a table at a handle.
    fn block(&mut self, table: &Arc<Table>, handle: BlockHandle) -> Result<Option<Block>>;

    /// A cursor over the data block in which the first entry at or after the place is, if
    /// that is known without asking the index.
    fn near(
        &mut self,
        table: &Table,
        key: &[u8],
        moment: Moment,
    ) -> Option<(BlockHandle, &mut BlockCursor)> {
        _ = (table, key, moment);
        None
    }

    /// The data block that the index names for everything up to the place of `entry`,
    /// from the place that was just asked for on.
    fn came_to(&mut self, table: &Table, entry: &EntryRef<'_>, found: (BlockHandle, &Block)) {
        _ = (table, entry, found);
    }
}

/// What a lookup in one table came to.
#[derive(Debug)]
pub(crate) enum Probe<T> {
    /// Nothing of the key at that moment.
    Absent,
    /// What was taken of the entry.
    Found(T),
    /// A block has to be fetched first.
    Waits,
}

/// An open table.
#[derive(Debug)]
pub(crate) struct Table {
    /// The file's number in the store.
    pub number: u64,
    file: Arc<dyn File>,
    seed: ChecksumSeed,
    bytes: u64,
    /// Its blocks in the cache, by their offsets. What lies at a place of a table
    /// never changes, so what is cached is never wrong. Jobs read around the
    /// cache: what they read once is not wanted again.
    cached: CachedFile,
    counters: Arc<Counters>,
    filter: Vec<u8>,
    top: Block,
    pub tombstones: RangeTombstones,
    pub properties: Properties,
    pub footer: Footer,
}

impl Table {
    /// Opens the table that the manifest describes so.
    pub fn open(context: &Context, metadata: &TableMetadata) -> Result<Self> {
        let path = context.folder.join(table_name(metadata.number));
        let file_system = &context.environment.file_system;
        if file_system.metadata(&path)?.is_none() {
            let what = "the table is missing; the manifest names it";
            return Err(Error::corruption(path, 0, what));
        }
        let file = file_system.open(&path, OpenOptions::READ)?;
        let identity = metadata.identity(context.store);
        let header = FileHeader::read(file.as_ref(), TABLE_MAGIC, FORMAT_VERSION)?;
        header.check_identity(&path, &identity)?;
        let length = file.length()?;
        if length != metadata.bytes {
            let what = format!("{length} bytes; the manifest says {}", metadata.bytes);
            return Err(Error::corruption(path, length.min(metadata.bytes), what));
        }
        file.advise(0, length, Advice::Random);
        let seed = ChecksumSeed::new(&identity);
        let Some(footer_offset) = length.checked_sub(FOOTER_BYTES as u64) else {
            return Err(Error::corruption(path, 0, "too short for a table"));
        };
        let mut bytes = [0; FOOTER_BYTES];
        file.read_exact_at(&mut bytes, footer_offset)?;
        let footer = Footer::decode(&bytes, &seed, &path, footer_offset)?;
        let reader = RawReader {
            file: file.as_ref(),
            seed: &seed,
            bytes: length,
        };
        let properties = Properties::decode(&reader.read(footer.properties)?)
            .ok_or_else(|| bad_block(&path, footer.properties, 0))?;
        known_comparator(&properties.comparator)?;
        known_filter(&properties.filter)?;
        let filter = match footer.filter.bytes {
            0 => Vec::new(),
            _ => reader.read(footer.filter)?.to_vec(),
        };
        if !filter.is_empty() && BlockedBloom::new(&filter).is_none() {
            return Err(bad_block(&path, footer.filter, 0));
        }
        let tombstones = match footer.tombstones.bytes {
            0 => RangeTombstones::default(),
            _ => Block::new(reader.read(footer.tombstones)?)
                .and_then(decode_tombstones)
                .map_err(|bad| bad_block(&path, footer.tombstones, bad.0))?,
        };
        let top = Block::new(reader.read(footer.index)?)
            .map_err(|bad| bad_block(&path, footer.index, bad.0))?;
        Ok(Table {
            number: metadata.number,
            file,
            seed,
            bytes: length,
            cached: context.options.block_cache.file(),
            counters: context.counters.clone(),
            filter,
            top,
            tombstones,
            properties,
            footer,
        })
    }

    /// Memory the open table holds, about.
    pub fn memory_bytes(&self) -> u64 {
        let resident = self.filter.len() + self.top.memory_bytes();
        resident as u64 + self.tombstones.memory_bytes() + 512
    }

    /// The file, for reads of several blocks at once.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The top block of the index.
    pub fn top(&self) -> &Block {
        &self.top
    }

    /// False if the key is surely not in the table.
    pub fn may_contain(&self, hash: u64) -> bool {
        BlockedBloom::new(&self.filter).is_none_or(|filter| filter.may_contain(hash))
    }

    /// True if the table has a filter.
    pub fn has_filter(&self) -> bool {
        !self.filter.is_empty()
    }

    /// Bytes of a block with its trailer, if the handle makes sense.
    pub fn stored_bytes(&self, handle: BlockHandle) -> Result<usize> {
        handle
            .stored_bytes(self.bytes)
            .ok_or_else(|| bad_block(self.file.path(), handle, 0))
    }

    /// Checks a block that was read with its trailer, and copies it.
    pub fn unpack(&self, handle: BlockHandle, stored: &[u8]) -> Result<Block> {
        self.block_in(handle, &stored.into(), 0)
    }

    /// Checks a block that lies with its trailer in bytes that were read; shares them, but
    /// for a compressed one.
    pub fn block_in(&self, handle: BlockHandle, bytes: &Arc<[u8]>, start: usize) -> Result<Block> {
        let path = self.file.path();
        let stored = self.stored_bytes(handle)?;
        let end = start + stored;
        let stored = bytes.get(start..end);
        let stored = stored.ok_or_else(|| self.ends_early(handle))?;
        let block = match check_stored(&self.seed, path, handle.offset, stored)? {
            None => Block::within(bytes.clone(), start..end - BLOCK_TRAILER_BYTES),
            Some(mut unpacked) => {
                // Blocks in the cache have a trailer, whichever they are.
                unpacked.extend_from_slice(&[0; BLOCK_TRAILER_BYTES]);
                whole_block(unpacked.into())
            }
        };
        block.map_err(|bad| bad_block(path, handle, bad.0))
    }

    /// Reads a block past the cache.
    pub fn read_block(&self, handle: BlockHandle) -> Result<Block> {
        let mut bytes = self.cached.block_to_fill(self.stored_bytes(handle)?);
        if let Some(room) = Arc::get_mut(&mut bytes) {
            self.file.read_exact_at(room, handle.offset)?;
        }
        self.block_in(handle, &bytes, 0)
    }

    /// The block if the cache has it.
    pub fn cached_block(&self, handle: BlockHandle) -> Option<Block> {
        let bytes = self.cached.get(handle.offset)?;
        // What was cached was a block before.
        whole_block(bytes).ok()
    }

    /// Offers a block that was read to the cache.
    pub fn cache_block(&self, handle: BlockHandle, block: &Block) {
        self.count_read(self.stored_bytes(handle).unwrap_or_default());
        self.cached.put(handle.offset, block.bytes());
    }

    /// Counts bytes of blocks that a reader read.
    pub fn count_read(&self, bytes: usize) {
        self.counters
            .read
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Lookups of blocks that the cache has answered, and those that it has not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        self.cached.hits_and_misses()
    }

    /// A block through the cache.
    pub fn block(&self, handle: BlockHandle) -> Result<Block> {
        match self.cached_block(handle) {
            Some(block) => Ok(block),
            None => self.read_uncached(handle),
        }
    }

    /// A block that the cache has not.
    pub fn read_uncached(&self, handle: BlockHandle) -> Result<Block> {
        let block = self.read_block(handle)?;
        self.cache_block(handle, &block);
        Ok(block)
    }

    /// The error of a file that ends before the end of a block.
    pub fn ends_early(&self, handle: BlockHandle) -> Error {
        let what = "the file ends within a block";
        Error::corruption(self.file.path(), handle.offset, what)
    }

    /// An error that names the file, the block and the place in it.
    pub fn bad_block(&self, handle: BlockHandle, bad: BadBlock) -> Error {
        bad_block(self.file.path(), handle, bad.0)
    }

    /// The handle that an index entry holds.
    pub fn handle_in(&self, index: BlockHandle, entry: &EntryRef<'_>) -> Result<BlockHandle> {
        BlockHandle::decode(entry.value).ok_or_else(|| bad_block(self.file.path(), index, 0))
    }

    /// The newest entry of a key at a moment, handed to `take`. The filter was
    /// asked before.
    pub fn find<T>(
        self: &Arc<Self>,
        key: &[u8],
        moment: Moment,
        blocks: &mut dyn BlockProvider,
        take: impl FnOnce(EntryRef<'_>) -> T,
    ) -> Result<Probe<T>> {
        let probe = |cursor: &BlockCursor| match cursor.entry() {
            Some(entry) if entry.key == key => Probe::Found(take(entry)),
            _ => Probe::Absent,
        };
        if let Some((handle, cursor)) = blocks.near(self, key, moment) {
            let sought = cursor.seek_on(key, moment);
            sought.map_err(|bad| self.bad_block(handle, bad))?;
            return Ok(probe(cursor));
        }
        let (handle, block) = match self.descend(key, moment, blocks)? {
            Descent::Came(handle, block) => (handle, block),
            Descent::Absent => return Ok(Probe::Absent),
            Descent::Waits => return Ok(Probe::Waits),
        };
        let mut cursor = BlockCursor::new(block);
        cursor
            .seek(key, moment)
            .map_err(|bad| self.bad_block(handle, bad))?;
        Ok(probe(&cursor))
    }

    /// The bytes of the file before the first entry at or after a key.
    pub fn offset_of(self: &Arc<Self>, key: &[u8], blocks: &mut dyn BlockProvider) -> Result<u64> {
        let Descent::Came(handle, block) = self.descend(key, Moment::MAX, blocks)? else {
            return Ok(self.bytes);
        };
        let mut cursor = BlockCursor::new(block);
        cursor
            .seek(key, Moment::MAX)
            .map_err(|bad| self.bad_block(handle, bad))?;
        let before = handle.bytes as f64 * cursor.share_before();
        Ok(handle.offset + before as u64)
    }

    /// From the top of the index to the data block that may have the key.
    fn descend(
        self: &Arc<Self>,
        key: &[u8],
        moment: Moment,
        blocks: &mut dyn BlockProvider,
    ) -> Result<Descent> {
        let mut block = self.top.clone();
        let mut handle = self.footer.index;
        // Two levels of index, then the data.
        for is_last in [false, true] {
            let mut cursor = BlockCursor::new(block);
            cursor
                .seek(key, moment)
                .map_err(|bad| self.bad_block(handle, bad))?;
            let Some(entry) = cursor.entry() else {
                return Ok(Descent::Absent);
            };
            handle = self.handle_in(handle, &entry)?;
            block = match blocks.block(self, handle)? {
                Some(block) => block,
                None => return Ok(Descent::Waits),
            };
            if is_last {
                blocks.came_to(self, &entry, (handle, &block));
            }
        }
        Ok(Descent::Came(handle, block))
    }
}

/// Where the index of a table leads.
enum Descent {
    Came(BlockHandle, Block),
    Absent,
    Waits,
}

impl Drop for Table {
    fn drop(&mut self) {
        let (hits, misses) = self.hits_and_misses();
        self.counters.hits.fetch_add(hits, Ordering::Relaxed);
        self.counters.misses.fetch_add(misses, Ordering::Relaxed);
    }
}

fn bad_block(path: &Path, handle: BlockHandle, at: usize) -> Error {
    let what = format!(
        "a block of {} bytes makes no sense at its byte {at}, though its checksum is right",
        handle.bytes
    );
    Error::corruption(path, handle.offset, what)
}

/// A block that lies in bytes of its own, before its trailer.
fn whole_block(bytes: Arc<[u8]>) -> Result<Block, BadBlock> {
    let end = bytes.len().saturating_sub(BLOCK_TRAILER_BYTES);
    Block::within(bytes, 0..end)
}

/// Reads and checks blocks of a file.
struct RawReader<'a> {
    file: &'a dyn File,
    seed: &'a ChecksumSeed,
    bytes: u64,
}

impl RawReader<'_> {
    fn read(&self, handle: BlockHandle) -> Result<Arc<[u8]>> {
        let path = self.file.path();
        let stored = handle
            .stored_bytes(self.bytes)
            .ok_or_else(|| bad_block(path, handle, 0))?;
        let mut bytes = vec![0; stored];
        self.file.read_exact_at(&mut bytes, handle.offset)?;
        let unpacked = check_stored(self.seed, path, handle.offset, &bytes)?;
        bytes.truncate(stored - BLOCK_TRAILER_BYTES);
        Ok(unpacked.unwrap_or(bytes).into())
    }
}
