//! A data file: one of the append-only files of a flat table (ZDB, section
//! II.B), with what the writer and the statistics know of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::Seeded;
use cambium_base::{Error, FileIdentity, Result, SequenceNumber, StoreId, Value};
use cambium_index::Slot;
use cambium_io::sync::Mutex;
use cambium_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use cambium_io::{FileSystem, OpenOptions};
use cambium_storage::file_header::FileHeader;
use cambium_storage::log::{LogFile, Record};
use cambium_storage::record::{MOST_RECORD_HEADER_BYTES, RecordHeader};

use crate::catalog::DataEntry;
use crate::core::lock;
use crate::format::{self, DATA_MAGIC, ENTRY_PREFIX_BYTES, FORMAT_VERSION, FileRef, kind};
use crate::options::Shape;
use crate::seeded_bug::SeededBug;

/// Where a store's files are, and whether they may be changed.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub file_system: Arc<dyn FileSystem>,
    pub folder: PathBuf,
    pub store: StoreId,
    pub shape: Shape,
    /// False for a check, which opens nothing for writing.
    pub writable: bool,
    /// Only in tests.
    pub seeded_bug: Seeded<SeededBug>,
}

impl Home {
    /// How files that are there are opened.
    pub fn access(&self) -> OpenOptions {
        if self.writable {
            OpenOptions::WRITE
        } else {
            OpenOptions::READ
        }
    }

    /// A file's identity in this store.
    pub fn identity(&self, file: FileRef) -> FileIdentity {
        FileIdentity {
            store: self.store,
            number: file.number,
            salt: file.salt,
        }
    }
}

/// An open data file.
#[derive(Debug)]
pub(crate) struct DataFile {
    /// Its records.
    pub log: LogFile,
    /// Its number and salt.
    pub file: FileRef,
    /// Its table.
    pub table: u64,
    /// Its place in the table: keys equal to it modulo the number of files.
    pub place: u32,
    /// Entries in it, stale ones included.
    pub entries: AtomicU64,
    /// Keys whose entry lies in it.
    pub live: AtomicU64,
    /// Its entries up to this sequence number are copies that a compaction made.
    copies_through: AtomicU64,
    /// An offset, and a sequence number that no entry before it passes.
    settled: Mutex<(u64, u64)>,
    /// Holds bytes that are not synced; it is then in the writer's list.
    pub dirty: AtomicBool,
    /// Holds bytes that are neither synced nor in the commit log.
    pub unlogged: AtomicBool,
    /// Held by the thread that syncs the file.
    pub syncing: Mutex<()>,
}

/// An entry that was read and verified.
#[derive(Clone, Debug)]
pub(crate) struct ReadEntry {
    pub sequence: SequenceNumber,
    pub value: Value,
}

impl DataFile {
    fn header(home: &Home, file: FileRef, (table, place): (u64, u32)) -> FileHeader {
        let identity = home.identity(file);
        let block = home.shape.block_bytes;
        let mut header = FileHeader::new(DATA_MAGIC, FORMAT_VERSION, block, identity);
        header.parameters = [table, u64::from(place)];
        header
    }

    /// Writes the header of a file anew where it is damaged: the catalog says all
    /// that is in it.
    pub fn mend_header(home: &Home, file: FileRef, (table, place): (u64, u32)) -> Result<()> {
        let path = format::data_path(&home.folder, table, place, file.number);
        let handle = home.file_system.open(&path, OpenOptions::WRITE)?;
        handle.write_at(&Self::header(home, file, (table, place)).encode(), 0)?;
        handle.sync_data()
    }

    /// Makes a new file with its header, not yet synced.
    pub fn create(home: &Home, file: FileRef, (table, place): (u64, u32)) -> Result<DataFile> {
        let shape = &home.shape;
        let identity = home.identity(file);
        let header = Self::header(home, file, (table, place));
        let path = format::data_path(&home.folder, table, place, file.number);
        let first = format::first_offset(shape);
        let handle = create_with_header(&*home.file_system, &path, &header, first)?;
        let log = LogFile::new(handle, &identity, format::data_geometry(shape), first)?;
        let entry = DataEntry::of_new(file, first);
        Ok(Self::around(log, &entry, (table, place)))
    }

    /// Opens a file of the catalog; its end is where replay begins.
    pub fn open(home: &Home, entry: &DataEntry, (table, place): (u64, u32)) -> Result<DataFile> {
        let path = format::data_path(&home.folder, table, place, entry.file.number);
        let handle = home.file_system.open(&path, home.access())?;
        let identity = home.identity(entry.file);
        FileHeader::read(&*handle, DATA_MAGIC, FORMAT_VERSION)?.check_identity(&path, &identity)?;
        let geometry = format::data_geometry(&home.shape);
        let log = LogFile::new(handle, &identity, geometry, entry.replay_from)?;
        let length = log.file().length()?;
        // The last block's padding may be missing; nothing lies in it.
        if length.next_multiple_of(geometry.block) < entry.replay_from {
            return Err(Error::corruption(
                path,
                length,
                format!(
                    "the data file ends here; expected at least {} bytes",
                    entry.replay_from
                ),
            ));
        }
        Ok(Self::around(log, entry, (table, place)))
    }

    fn around(log: LogFile, entry: &DataEntry, (table, place): (u64, u32)) -> Self {
        DataFile {
            log,
            file: entry.file,
            table,
            place,
            entries: AtomicU64::new(entry.entries),
            live: AtomicU64::new(entry.live),
            copies_through: AtomicU64::new(entry.copies_through),
            settled: Mutex::new((entry.replay_from, entry.last_sequence)),
            dirty: AtomicBool::new(false),
            unlogged: AtomicBool::new(false),
            syncing: Mutex::new(()),
        }
    }

    /// Its entries up to this sequence number are copies.
    pub fn copies_through(&self) -> u64 {
        self.copies_through.load(Ordering::Acquire)
    }

    /// A compaction has copied everything up to a sequence number, and other entries follow.
    pub fn begin_after_copies(&self, through: u64) {
        self.copies_through.store(through, Ordering::Release);
        self.settle(through);
    }

    /// An offset, and a sequence number that no entry before it passes.
    pub fn settled(&self) -> (u64, u64) {
        *lock(&self.settled)
    }

    /// Notes that no entry up to here passes `sequence`; the caller holds the writer lock.
    pub fn settle(&self, sequence: u64) {
        let mut settled = lock(&self.settled);
        let end = self.log.end();
        if end > settled.0 {
            *settled = (end, sequence);
        }
    }

    /// Reads the entry of `key` at `position` and verifies all of it.
    pub fn read_entry(&self, position: u64, key: u64, guess: usize) -> Result<ReadEntry> {
        let record = self.log.read(position, guess)?;
        self.entry_of(record, position, key)
    }

    /// Reads an entry and believes every byte of it: a seeded bug.
    pub fn read_unverified(&self, position: u64) -> Result<ReadEntry> {
        let mut bytes = [0; MOST_RECORD_HEADER_BYTES];
        let file = self.log.file();
        let count = file.read_at(&mut bytes, position)?;
        let header = RecordHeader::verified_before(&bytes[..count]).unwrap_or_default();
        let mut payload = vec![0; (header.payload_bytes as usize).min(1 << 20)];
        file.read_at(&mut payload, position + u64::from(header.header_bytes))?;
        Ok(ReadEntry {
            sequence: header.sequence,
            value: Value::from(payload.split_off(ENTRY_PREFIX_BYTES.min(payload.len()))),
        })
    }

    /// Checks that a record is the entry of `key`.
    pub fn entry_of(&self, record: Record, position: u64, key: u64) -> Result<ReadEntry> {
        let found = format::entry_key(&record.payload);
        if record.header.kind != kind::PUT || found != Some(key) {
            return Err(Error::corruption(
                self.log.path(),
                position,
                format!(
                    "the index points key {key} at a record of kind {} and key {found:?}; `cambium repair` rebuilds the index",
                    record.header.kind
                ),
            ));
        }
        let length = record.payload.len();
        Ok(ReadEntry {
            sequence: record.header.sequence,
            value: record.payload.slice(ENTRY_PREFIX_BYTES..length),
        })
    }

    /// Counts an entry whose key's slot has changed. The caller holds the writer lock, under
    /// which alone the counts change.
    pub fn count_entry(&self, before: Slot, after: Slot) {
        let is_live = |slot| u64::from(matches!(slot, Slot::Position(_)));
        let entries = self.entries.load(Ordering::Relaxed);
        self.entries.store(entries + 1, Ordering::Relaxed);
        if is_live(before) != is_live(after) {
            let live = self.live.load(Ordering::Relaxed);
            let changed = live
                .wrapping_add(is_live(after))
                .wrapping_sub(is_live(before));
            self.live.store(changed, Ordering::Relaxed);
        }
    }

    /// Counts an entry that removes the live entries of a range. The caller holds the writer
    /// lock.
    pub fn count_range(&self, deleted: u64) {
        let entries = self.entries.load(Ordering::Relaxed);
        self.entries.store(entries + 1, Ordering::Relaxed);
        let live = self.live.load(Ordering::Relaxed);
        self.live
            .store(live.wrapping_sub(deleted), Ordering::Relaxed);
    }

    /// Percent of the entries that are stale.
    pub fn stale_percent(&self) -> u64 {
        let entries = self.entries.load(Ordering::Relaxed);
        let live = self.live.load(Ordering::Relaxed).min(entries);
        ((entries - live) * 100).checked_div(entries).unwrap_or(0)
    }
}

/// Makes a file that begins with a header, padded with zeros to its first
/// record. What a crash left there under the same name is cut away.
pub(crate) fn create_with_header(
    file_system: &dyn FileSystem,
    path: &Path,
    header: &FileHeader,
    first_offset: u64,
) -> Result<Arc<dyn cambium_io::File>> {
    let options = OpenOptions {
        truncate: true,
        ..OpenOptions::CREATE
    };
    let file = file_system.open(path, options)?;
    let mut block = vec![0; first_offset as usize];
    let bytes = header.encode();
    block[..bytes.len()].copy_from_slice(&bytes);
    file.write_at(&block, 0)?;
    Ok(file)
}
