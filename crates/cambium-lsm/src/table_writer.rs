//! Writing a table: entries in order in, a synced file out.
//!
//! The table is not believed before an edit names it, so nothing here is
//! synced until the end, and a failure leaves a file that nobody knows.

use std::path::PathBuf;
use std::sync::Arc;

use cambium_base::checksum::ChecksumSeed;
use cambium_base::coding::common_prefix;
use cambium_base::{FileIdentity, FileNumber, Result};
use cambium_index::BloomBuilder;
use cambium_io::sync::atomic::Ordering;
use cambium_io::{File, OpenOptions};
use cambium_storage::file_header::FileHeader;

use crate::block::BlockBuilder;
use crate::entry::{EntryKind, EntryRef};
use crate::format::{BlockHandle, FORMAT_VERSION, Footer, TABLE_MAGIC, table_name};
use crate::properties::Properties;
use crate::seeded_bug::SeededBug;
use crate::stored_block::block_trailer;
use crate::table::encode_tombstone;
use crate::tombstones::RangeTombstones;
use crate::tree::Context;
use crate::version::{KeyRange, TableMetadata, UpperBound};
use cambium_storage::compression::Compression;

/// The level of zstd.
const ZSTD_LEVEL: i32 = 1;
/// Bytes handed to the file at once.
const WRITE_BYTES: usize = 1 << 20;

/// A table that is being written.
#[derive(Debug)]
pub(crate) struct TableWriter {
    context: Arc<Context>,
    file: Arc<dyn File>,
    path: PathBuf,
    identity: FileIdentity,
    seed: ChecksumSeed,
    buffer: Vec<u8>,
    /// Where the buffer begins in the file.
    written: u64,
    data: BlockBuilder,
    index: BlockBuilder,
    top: BlockBuilder,
    /// The last data block, whose place in the index waits for the next key.
    pending: Option<BlockHandle>,
    /// The last place in the index block.
    index_end: (Vec<u8>, u64),
    last_key: Vec<u8>,
    last_sequence: u64,
    /// A key came twice.
    has_versions: bool,
    filter: Option<BloomBuilder>,
    properties: Properties,
}

impl TableWriter {
    /// Begins a table with a new number.
    pub fn create(context: &Arc<Context>) -> Result<Self> {
        let number = context.new_file_number();
        let path = context.folder.join(table_name(number));
        let file_system = &context.environment.file_system;
        let file = file_system.open(&path, OpenOptions::CREATE_NEW)?;
        let identity = FileIdentity {
            store: context.store,
            number: FileNumber(number),
            salt: context.environment.randomness.next_u64(),
        };
        let options = &context.options;
        let interval = u32::from(options.restart_interval);
        let header = FileHeader::new(TABLE_MAGIC, FORMAT_VERSION, options.block_bytes, identity);
        let bits = options.filter_bits_per_key;
        Ok(TableWriter {
            context: context.clone(),
            file,
            path,
            identity,
            seed: ChecksumSeed::new(&identity),
            buffer: header.encode().to_vec(),
            written: 0,
            data: BlockBuilder::new(interval),
            // An index is searched more than it is large.
            index: BlockBuilder::new(1),
            top: BlockBuilder::new(1),
            pending: None,
            index_end: (Vec::new(), 0),
            last_key: Vec::new(),
            last_sequence: 0,
            has_versions: false,
            filter: (bits > 0).then(|| BloomBuilder::new(bits)),
            properties: Properties {
                comparator: options.comparator.clone(),
                filter: options.filter_name().to_owned(),
                ..Properties::default()
            },
        })
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.identity.number.0
    }

    /// Bytes it would have if it were finished now, about.
    pub fn bytes(&self) -> u64 {
        self.written + (self.buffer.len() + self.data.bytes()) as u64
    }

    /// True if no entry was added.
    pub fn is_empty(&self) -> bool {
        self.properties.entries == 0
    }

    /// The last entry's key.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Adds an entry, which lies after the last.
    pub fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        let first = self.properties.entries == 0;
        let other_key = first || self.last_key != entry.key;
        self.has_versions |= !other_key;
        self.place_pending(Some(entry.key))?;
        if other_key {
            if let Some(filter) = &mut self.filter {
                let forgets = self.context.options.has_bug(SeededBug::FilterForgetsKeys);
                if !forgets || self.properties.entries % 5 != 3 {
                    filter.add(self.context.hash(entry.key));
                }
            }
            self.last_key.clear();
            self.last_key.extend_from_slice(entry.key);
        }
        if first {
            self.properties.first_key = entry.key.to_vec();
            self.properties.smallest_sequence = entry.sequence;
        }
        self.last_sequence = entry.sequence;
        let properties = &mut self.properties;
        properties.entries += 1;
        properties.deletes += u64::from(entry.kind == EntryKind::Delete);
        properties.key_bytes += entry.key.len() as u64;
        properties.value_bytes += entry.value.len() as u64;
        properties.smallest_sequence = properties.smallest_sequence.min(entry.sequence);
        properties.largest_sequence = properties.largest_sequence.max(entry.sequence);
        self.data.add(entry);
        if self.data.bytes() >= self.context.options.block_bytes as usize {
            self.finish_data()?;
        }
        Ok(())
    }

    fn finish_data(&mut self) -> Result<()> {
        if self.data.is_empty() {
            return Ok(());
        }
        let bytes = self.data.finish();
        let before = self.end();
        let handle = self.put_block(&bytes, self.context.options.compression)?;
        self.properties.data_blocks += 1;
        self.properties.data_bytes += self.end() - before;
        self.pending = Some(handle);
        Ok(())
    }

    /// Puts the last data block into the index, under a key that is no shorter
    /// than it must be: at or after the block's last entry, before `next`.
    fn place_pending(&mut self, next: Option<&[u8]>) -> Result<()> {
        let Some(handle) = self.pending.take() else {
            return Ok(());
        };
        let shared = next.map_or(0, |next| common_prefix(&self.last_key, next));
        let shorter = next.and_then(|next| next.get(..=shared));
        let (key, sequence) = match shorter {
            // Behind the last key, at or before the next: with number 0 it
            // stands behind every entry of a key, so the whole next key must
            // not be taken.
            Some(shorter) if shorter.len() < self.last_key.len() && Some(shorter) < next => {
                (shorter, 0)
            }
            _ => (self.last_key.as_slice(), self.last_sequence),
        };
        self.index.add(EntryRef {
            key,
            sequence,
            kind: EntryKind::Value,
            value: &handle.encode(),
        });
        self.index_end = (key.to_vec(), sequence);
        if self.index.bytes() >= self.context.options.block_bytes as usize {
            self.finish_index()?;
        }
        Ok(())
    }

    /// Writes the index block and names it in the top one.
    fn finish_index(&mut self) -> Result<()> {
        if self.index.is_empty() {
            return Ok(());
        }
        let bytes = self.index.finish();
        let handle = self.put_block(&bytes, self.context.options.compression)?;
        self.properties.index_blocks += 1;
        let (key, sequence) = &self.index_end;
        self.top.add(EntryRef {
            key,
            sequence: *sequence,
            kind: EntryKind::Value,
            value: &handle.encode(),
        });
        Ok(())
    }

    fn end(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn put_block(&mut self, bytes: &[u8], compression: Compression) -> Result<BlockHandle> {
        let packed = compression.compress(ZSTD_LEVEL, bytes);
        let (stored, byte) = match &packed {
            Some(packed) => (packed.as_slice(), compression.number()),
            None => (bytes, 0),
        };
        let offset = self.end();
        let trailer = block_trailer(&self.seed, offset, stored, byte);
        self.buffer.extend_from_slice(stored);
        self.buffer.extend_from_slice(&trailer);
        if self.buffer.len() >= WRITE_BYTES {
            self.write_buffer()?;
        }
        Ok(BlockHandle {
            offset,
            bytes: stored.len() as u64,
        })
    }

    fn write_buffer(&mut self) -> Result<()> {
        self.file.write_at(&self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes what is left, with these range tombstones, and syncs the file.
    /// Its name becomes durable when the folder is synced.
    pub fn finish(mut self, tombstones: &RangeTombstones) -> Result<TableMetadata> {
        self.finish_data()?;
        self.place_pending(None)?;
        self.finish_index()?;
        let filter = match self.filter.take() {
            Some(filter) if self.properties.entries > 0 => {
                self.put_block(&filter.finish(), Compression::None)?
            }
            _ => BlockHandle::default(),
        };
        let tombstones_handle = self.put_tombstones(tombstones)?;
        let properties = self.properties.encode();
        let properties_handle = self.put_block(&properties, Compression::None)?;
        let top = self.top.finish();
        let footer = Footer {
            filter,
            tombstones: tombstones_handle,
            properties: properties_handle,
            index: self.put_block(&top, Compression::None)?,
            restart_interval: u32::from(self.context.options.restart_interval),
        };
        let encoded = footer.encode(&self.seed, self.end());
        self.buffer.extend_from_slice(&encoded);
        self.write_buffer()?;
        if !self.context.options.has_bug(SeededBug::TableUnsynced) {
            self.file.sync_data()?;
        }
        let written = &self.context.counters.written;
        written.fetch_add(self.written, Ordering::Relaxed);
        Ok(TableMetadata {
            number: self.number(),
            salt: self.identity.salt,
            bytes: self.written,
            entries: self.properties.entries,
            deletes: self.properties.deletes,
            range_tombstones: self.properties.range_tombstones,
            smallest_sequence: self.properties.smallest_sequence,
            largest_sequence: self.properties.largest_sequence,
            range: self.range(tombstones),
            has_versions: self.has_versions,
        })
    }

    fn put_tombstones(&mut self, tombstones: &RangeTombstones) -> Result<BlockHandle> {
        if tombstones.is_empty() {
            return Ok(BlockHandle::default());
        }
        let mut builder = BlockBuilder::new(16);
        for (from, fragment) in tombstones.iter() {
            let value = encode_tombstone(fragment.to.as_deref(), &fragment.sequences);
            builder.add(EntryRef {
                key: from,
                sequence: 0,
                kind: EntryKind::Delete,
                value: &value,
            });
            for &sequence in &fragment.sequences {
                let properties = &mut self.properties;
                if properties.smallest_sequence == 0 {
                    properties.smallest_sequence = sequence;
                }
                properties.smallest_sequence = properties.smallest_sequence.min(sequence);
                properties.largest_sequence = properties.largest_sequence.max(sequence);
            }
        }
        self.properties.range_tombstones = tombstones.len() as u64;
        let bytes = builder.finish();
        self.put_block(&bytes, Compression::None)
    }

    /// From the first entry or tombstone to the last.
    fn range(&self, tombstones: &RangeTombstones) -> KeyRange {
        let entries = (!self.is_empty()).then(|| KeyRange {
            smallest: self.properties.first_key.clone(),
            upper: UpperBound::Inclusive(self.last_key.clone()),
        });
        let first = tombstones.iter().next();
        let last = tombstones.iter().next_back();
        let ranges = first.zip(last).map(|((from, _), (_, last))| KeyRange {
            smallest: from.to_vec(),
            upper: last
                .to
                .clone()
                .map_or(UpperBound::None, UpperBound::Exclusive),
        });
        match (entries, ranges) {
            (Some(entries), Some(ranges)) => entries.and(&ranges),
            (Some(range), None) | (None, Some(range)) => range,
            (None, None) => KeyRange {
                smallest: Vec::new(),
                upper: UpperBound::Exclusive(Vec::new()),
            },
        }
    }

    /// Gives the table up. Its file is removed as far as that can be done.
    pub fn abandon(self) {
        drop(self.file);
        // What cannot be removed now is unknown to the manifest, and removed
        // with other such files.
        _ = self.context.environment.file_system.remove(&self.path);
    }
}
