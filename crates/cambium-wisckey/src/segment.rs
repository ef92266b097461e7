//! A segment of the value log: one file of records.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::{Error, FileIdentity, FileNumber, Result, StoreId, Value};
use cambium_io::sync::atomic::{AtomicU64, Ordering};
use cambium_io::{Alignment, BlockCache, File, FileSystem, OpenOptions};
use cambium_storage::file_header::{FileHeader, HEADER_BYTES};
use cambium_storage::log::LogFile;
use cambium_storage::record::RecordHeader;
use cambium_storage::scan::LogScanner;

use crate::format::{self, FORMAT_VERSION, MAGIC, SegmentKind, ValuePointer, kind};
use crate::kept::{Keeper, KeptStretches, LARGEST_KEPT, UNIT_BYTES};
use crate::open_files::{OpenFiles, SegmentFile};
use crate::options::{Shape, Tuning};

/// The header of a segment: its first copy, or the second where that is damaged.
/// `None` if the file shows that it was never synced: no copy is sound, and the place of
/// one is zeros or lies after the end of the file. A power cut leaves that, with part of
/// the other copy at most; damage of a synced header leaves a sound copy, or bytes in both
/// places.
fn read_header(file: &dyn File, block_bytes: u32) -> Result<Option<FileHeader>> {
    let mut is_blank = false;
    let mut copy_at = |offset: u64| -> Result<FileHeader> {
        let mut bytes = [0; HEADER_BYTES];
        file.read_at(&mut bytes, offset)?;
        is_blank |= bytes == [0; HEADER_BYTES];
        FileHeader::decode(&bytes, file.path(), MAGIC, FORMAT_VERSION)
    };
    let header = match copy_at(0) {
        Err(first) if first.is_corruption() => copy_at(u64::from(block_bytes)).or(Err(first)),
        header => header,
    };
    match header {
        Err(error) if error.is_corruption() && is_blank => Ok(None),
        header => header.map(Some),
    }
}

/// Where a store's files are, and whether they may be changed.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub file_system: Arc<dyn FileSystem>,
    pub folder: PathBuf,
    pub store: StoreId,
    /// False for a check, which opens nothing for writing.
    pub writable: bool,
    /// Which of the segments' files are open.
    pub files: Arc<OpenFiles>,
    /// What is kept of them in memory.
    pub keeper: Arc<Keeper>,
}

impl Home {
    /// Of a store in a folder.
    pub fn new(
        file_system: &Arc<dyn FileSystem>,
        folder: &Path,
        store: StoreId,
        tuning: &Tuning,
        cache: &Arc<BlockCache>,
        writable: bool,
    ) -> Home {
        Home {
            file_system: file_system.clone(),
            folder: folder.to_path_buf(),
            store,
            writable,
            files: OpenFiles::new(tuning.open_files),
            keeper: Keeper::new(cache.clone()),
        }
    }

    /// Numbers of the segments whose files are there, ascending.
    pub fn segment_numbers(&self) -> Result<Vec<u32>> {
        let entries = self.file_system.list(&self.folder)?;
        let numbers = entries
            .iter()
            .filter_map(|entry| format::segment_number(&entry.name.to_string_lossy()));
        let mut numbers: Vec<u32> = numbers.collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn open_segment(
        &self,
        number: u32,
        options: OpenOptions,
        tuning: &Tuning,
    ) -> Result<Arc<SegmentFile>> {
        let path = format::segment_path(&self.folder, number);
        let options = match tuning.direct {
            true => options.direct(),
            false => options,
        };
        SegmentFile::open(&self.files, &self.file_system, path, options)
    }
}

/// Segments by number. Readers hold it whole, so that a segment they are led to
/// stays open while they read.
pub(crate) type Segments = BTreeMap<u32, Arc<Segment>>;

/// An open segment.
#[derive(Debug)]
pub(crate) struct Segment {
    pub number: u32,
    pub kind: SegmentKind,
    /// Its records.
    pub log: LogFile,
    /// The file under them.
    pub file: Arc<SegmentFile>,
    /// What is kept of it in memory.
    pub kept: KeptStretches,
    /// Bytes of records that the tree points to, or has pointed to.
    pub value_bytes: AtomicU64,
    /// No write in it has a lower number, where this opening began or recovered it.
    pub first_sequence: AtomicU64,
    /// The last write in it, once it is full.
    pub last_sequence: AtomicU64,
    /// This opening made it: nothing that a crash took back of tables or notes was in it.
    pub is_new: bool,
}

/// Refuses direct I/O in units that blocks of the log do not keep to.
pub(crate) fn check_unit(path: &Path, alignment: Alignment, block_bytes: u64) -> Result<()> {
    let unit = alignment.offset as u64;
    if block_bytes % unit == 0 {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "option direct: {} takes direct I/O in units of {unit} bytes, and the store has \
         block_bytes={block_bytes}: open it with direct=off, or make it with blocks of {unit} bytes",
        path.display(),
    )))
}

impl Segment {
    /// Makes a new segment with its header, not yet synced.
    pub fn create(
        home: &Home,
        number: u32,
        salt: u64,
        kind: SegmentKind,
        shape: &Shape,
        tuning: &Tuning,
    ) -> Result<Segment> {
        let identity = FileIdentity {
            store: home.store,
            number: FileNumber(u64::from(number)),
            salt,
        };
        let mut header = FileHeader::new(MAGIC, FORMAT_VERSION, shape.block_bytes, identity);
        header.parameters = [u64::from(kind.code()), 0];
        let handle = home.open_segment(number, OpenOptions::CREATE_NEW, tuning)?;
        let block_bytes = shape.block_bytes as usize;
        let mut blocks = vec![0; 2 * block_bytes];
        for copy in blocks.chunks_mut(block_bytes) {
            copy[..HEADER_BYTES].copy_from_slice(&header.encode());
        }
        if let Err(error) = handle.write_at(&blocks, 0) {
            // Its number is spent; the name of a file without a header is not
            // needed by anyone.
            _ = home.file_system.remove(handle.path());
            return Err(error);
        }
        Self::around(home, handle, &identity, kind, (shape, tuning), None)
    }

    /// Opens a segment that is there; its records end at `end`, or at the end of
    /// the file until recovery knows better.
    ///
    /// # Errors
    /// Damage of its header, a header that was never written included.
    pub fn open(
        home: &Home,
        number: u32,
        shape: &Shape,
        tuning: &Tuning,
        end: Option<u64>,
    ) -> Result<Segment> {
        let segment = Self::open_if_written(home, number, shape, tuning, end)?;
        segment.ok_or_else(|| {
            let path = format::segment_path(&home.folder, number);
            Error::corruption(path, 0, "both copies of the segment's header are zeros")
        })
    }

    /// As [`Segment::open`]; `None` where no header was ever written, as far as the file
    /// shows.
    pub fn open_if_written(
        home: &Home,
        number: u32,
        shape: &Shape,
        tuning: &Tuning,
        end: Option<u64>,
    ) -> Result<Option<Segment>> {
        let access = if home.writable {
            OpenOptions::WRITE
        } else {
            OpenOptions::READ
        };
        let handle = home.open_segment(number, access, tuning)?;
        let path = handle.path();
        let Some(header) = read_header(&*handle, shape.block_bytes)? else {
            return Ok(None);
        };
        let identity = FileIdentity {
            store: home.store,
            number: FileNumber(u64::from(number)),
            salt: header.identity.salt,
        };
        header.check_identity(path, &identity)?;
        let kind = SegmentKind::from_code(header.parameters[0])
            .filter(|_| header.block_bytes == shape.block_bytes);
        let kind = kind.ok_or_else(|| {
            Error::corruption(
                path,
                72,
                "the file header is none of a segment of this store",
            )
        })?;
        let end = match end {
            Some(end) => end,
            None => handle.length()?,
        };
        Self::around(home, handle, &identity, kind, (shape, tuning), Some(end)).map(Some)
    }

    fn around(
        home: &Home,
        file: Arc<SegmentFile>,
        identity: &FileIdentity,
        kind: SegmentKind,
        (shape, tuning): (&Shape, &Tuning),
        end: Option<u64>,
    ) -> Result<Segment> {
        let geometry = format::geometry(shape, tuning);
        check_unit(file.path(), file.batched_alignment(), geometry.block)?;
        let is_new = end.is_none();
        let end = end.unwrap_or(0).max(geometry.first_offset);
        Ok(Segment {
            number: identity.number.0 as u32,
            kind,
            log: LogFile::new(file.clone(), identity, geometry, end)?,
            file,
            kept: KeptStretches::new(&home.keeper, identity.number.0 as u32),
            value_bytes: AtomicU64::new(0),
            first_sequence: AtomicU64::new(0),
            last_sequence: AtomicU64::new(0),
            is_new,
        })
    }

    /// The path, for messages.
    pub fn path(&self) -> &Path {
        self.log.path()
    }

    /// Counts a record that the tree points to from now on.
    pub fn add_value_bytes(&self, bytes: u64) {
        self.value_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The value that a pointer leads to: one read, verified, and the record of
    /// this key and write (section 3.3.3).
    pub fn read_value(
        &self,
        pointer: ValuePointer,
        full_key: &[u8],
        sequence: u64,
    ) -> Result<Value> {
        let bytes = pointer.record_bytes(full_key.len());
        let place = pointer.offset..pointer.offset + bytes;
        if place.end <= self.log.written_end() {
            self.file.count_read(bytes);
            if self.kept.is_worth_reading(place.clone()) {
                self.keep_unit(place);
            }
        }
        let record = self.log.read(pointer.offset, bytes as usize)?;
        self.check_record(
            pointer,
            full_key,
            sequence,
            (&record.header, &record.payload),
        )?;
        let whole = record.payload.len();
        Ok(record.payload.slice(full_key.len()..whole))
    }

    /// The value that a pointer leads to, if it is kept in memory.
    pub fn kept_value(
        &self,
        pointer: ValuePointer,
        key_bytes: usize,
        sequence: u64,
    ) -> Option<Value> {
        let end = pointer.offset + pointer.record_bytes(key_bytes);
        let mut kept = self.kept.find(&self.log, pointer.offset..end)?;
        let (memory, within) = kept.value(pointer, key_bytes, sequence)?;
        Some(Value::copy_of(&memory[within]))
    }

    /// Keeps the records of a unit from one on, if the system has them in memory.
    fn keep_unit(&self, record: Range<u64>) {
        // The last record of the unit may end in the next.
        let end = (record.start + 1).next_multiple_of(UNIT_BYTES) + LARGEST_KEPT as u64;
        let end = end.min(self.log.written_end());
        let cuts = self.log.cuts();
        let mut memory = vec![0; end.saturating_sub(record.start) as usize];
        let count = self.file.read_cached_at(&mut memory, record.start);
        self.file.count_read(count as u64);
        self.kept
            .keep_first(&self.log, record.start, &memory[..count], cuts);
    }

    /// Where the value lies in bytes that were read from the pointer's offset on.
    #[inline]
    pub fn value_within(
        &self,
        pointer: ValuePointer,
        full_key: &[u8],
        sequence: u64,
        bytes: &[u8],
    ) -> Result<Range<usize>> {
        let Some((header, payload)) = self.log.parse_borrowed(pointer.offset, bytes)? else {
            return Err(self.damage(pointer.offset, "a value runs past its bounds"));
        };
        self.check_record(pointer, full_key, sequence, (&header, payload))?;
        let start = usize::from(header.header_bytes) + full_key.len();
        Ok(start..start + pointer.value_bytes as usize)
    }

    /// The record is of the key and the write that the tree says.
    #[inline]
    fn check_record(
        &self,
        pointer: ValuePointer,
        full_key: &[u8],
        sequence: u64,
        (header, payload): (&RecordHeader, &[u8]),
    ) -> Result<()> {
        let fits = header.kind == kind::PUT
            && header.auxiliary as usize == full_key.len()
            && header.sequence.0 == sequence
            && header.header_bytes == pointer.header_bytes
            && payload.starts_with(full_key)
            && payload.len() - full_key.len() == pointer.value_bytes as usize;
        match fits {
            true => Ok(()),
            false => Err(self.of_another(pointer, sequence, header)),
        }
    }

    #[cold]
    fn of_another(&self, pointer: ValuePointer, sequence: u64, header: &RecordHeader) -> Error {
        self.damage(
            pointer.offset,
            format!(
                "the tree points here for write {sequence}, and this record is of another key or write ({})",
                header.sequence
            ),
        )
    }

    /// Reads its records in order, from one or a block's boundary up to `until`.
    pub fn scan(&self, from: u64, until: u64) -> Result<LogScanner<'_>> {
        let first = self.log.geometry().first_offset;
        self.log.scan(from.max(first), until)
    }

    /// Damage at a place of this file.
    pub fn damage(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(self.path(), offset, what)
    }
}
