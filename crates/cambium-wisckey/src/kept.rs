//! Stretches of the value log that stay in memory, verified.
//!
//! Reading from the operating system's cache costs a call, a copy, and the checksums
//! of what was copied. What is read again and again is therefore kept in the cache of
//! blocks that the tree has too:
//!
//! ```text
//!   segment   ├──────── unit 0 ────────┼──────── unit 1 ────────┼──── …
//!   records   │ a  │ b  │ c   │ d │ e     │ f     │ g   │ h
//!   kept      directory of b to e │ b │ c │ d │ e │   all records that begin in the
//!                                                     unit, or the last of them
//! ```
//!
//! What is kept of a unit are whole records, each verified, with a directory of what
//! their headers say: handing one out touches nothing of the record itself, which
//! mostly would have to come from memory that no cache of the processor holds. A read that comes to an earlier record of the unit
//! makes it longer.
//!
//! A unit is kept when it is asked for a second time, or where the cache is full, more
//! often: what is asked for no oftener than what is there already would push that out
//! for nothing. A scan of everything pushes nothing out, and costs a mark for each unit.
//! Marks share their places; one that is asked for rarely gives way to others, and a
//! wrong one keeps a unit too early.
//!
//! Segments do not change below [`LogFile::written_end`], but for an append that
//! failed and was cut back: what was kept before a cut is not taken for the log's.

use std::ops::Range;
use std::sync::Arc;

use cambium_base::coding::{u32_at, u64_at};
use cambium_io::BlockCache;
use cambium_io::cache::{Block, CachedFile, Marks};
use cambium_io::sync::atomic::{AtomicBool, Ordering};
use cambium_storage::log::LogFile;
use cambium_storage::record::RecordHeader;

use crate::format::{ALIGNMENT, ValuePointer, kind};

/// Bytes of a unit. With its directory, and the end of its last record, it takes 16 KiB
/// of an allocator.
pub(crate) const UNIT_BYTES: u64 = 14 << 10;
/// Records of more bytes are not kept: a copy is little beside their checksum.
pub(crate) const LARGEST_KEPT: usize = 4 << 10;
/// Times that a unit is asked for until it is kept, while there is room, and where
/// another has to go.
const ASKED: u32 = 2;
const ASKED_WHERE_FULL: u32 = 6;
/// Places of marks for each unit that finds room.
const MARKS_A_UNIT: u64 = 4;

/// In front: where the first record lies, how often the log had been cut back, and how
/// many records there are.
const HEADER_BYTES: usize = 24;
/// One record in the directory after the header: where it begins, bytes of its key and of
/// key and value, and its sequence number. What is asked of many records lies together.
const ENTRY_BYTES: usize = 24;

/// Which units were asked for lately, for all segments of a store.
#[derive(Debug)]
pub(crate) struct Keeper {
    cache: Arc<BlockCache>,
    marks: Marks,
    /// The cache has room for all of the log.
    has_room: AtomicBool,
}

impl Keeper {
    /// Keeps units in a cache.
    pub fn new(cache: Arc<BlockCache>) -> Arc<Self> {
        let marks = Marks::new(cache.capacity() / UNIT_BYTES * MARKS_A_UNIT);
        Arc::new(Keeper {
            cache,
            marks,
            has_room: AtomicBool::new(false),
        })
    }

    /// Takes note of how long the log is.
    pub fn log_has(&self, bytes: u64) {
        let has_room = bytes < self.cache.capacity() / 4 * 3;
        self.has_room.store(has_room, Ordering::Relaxed);
    }

    /// Counts that a unit was asked for; true if that is often enough.
    fn mark(&self, segment: u32, unit: u64) -> bool {
        let is_full = self.cache.bytes() + 2 * UNIT_BYTES > self.cache.capacity();
        let enough = if is_full { ASKED_WHERE_FULL } else { ASKED };
        // Once it is pushed out, it begins again.
        self.marks.count(u64::from(segment) << 32 | unit, enough)
    }
}

/// What is kept of one segment.
#[derive(Debug)]
pub(crate) struct KeptStretches {
    keeper: Arc<Keeper>,
    segment: u32,
    cached: CachedFile,
}

/// Records of a segment that were verified.
#[derive(Clone, Debug)]
pub(crate) struct KeptStretch {
    block: Block,
    segment: u32,
    /// Where they lie in the segment.
    range: Range<u64>,
    records: usize,
    /// The record that is looked for next, most likely.
    next: usize,
}

impl KeptStretch {
    fn of(block: &Block, segment: u32, cuts: u64) -> Option<Self> {
        if u64_at(block, 8) != cuts {
            return None;
        }
        let records = u64_at(block, 16) as usize;
        let from = u64_at(block, 0);
        let bytes = block.len() - HEADER_BYTES - records * ENTRY_BYTES;
        Some(KeptStretch {
            block: block.clone(),
            segment,
            range: from..from + bytes as u64,
            records,
            next: 0,
        })
    }

    /// What stands in the directory of the record at a place, and where that begins.
    #[inline]
    fn entry(&self, record: usize) -> (u32, &[u8]) {
        let at = HEADER_BYTES + record * ENTRY_BYTES;
        let entry = &self.block[at..at + ENTRY_BYTES];
        (u32_at(entry, 0), entry)
    }

    /// The record that begins so many bytes after the first.
    fn search(&self, place: u32) -> usize {
        let (mut low, mut high) = (0, self.records);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(middle).0 < place {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// The value of the record that a pointer leads to, if it is one of these, and of
    /// this write: the memory that it lies in, and where.
    #[inline]
    pub fn value(
        &mut self,
        pointer: ValuePointer,
        key_bytes: usize,
        sequence: u64,
    ) -> Option<(&Arc<[u8]>, Range<usize>)> {
        if self.segment != pointer.segment || !self.range.contains(&pointer.offset) {
            return None;
        }
        let place = (pointer.offset - self.range.start) as u32;
        let mut record = self.next;
        if record >= self.records || self.entry(record).0 != place {
            record = self.search(place);
        }
        if record >= self.records {
            return None;
        }
        let (begin, entry) = self.entry(record);
        let key = u64::from(u32_at(entry, 4));
        let fits = begin == place
            && key == key_bytes as u64
            && u64::from(u32_at(entry, 8)) == key + u64::from(pointer.value_bytes)
            && u32_at(entry, 12) == u32::from(pointer.header_bytes)
            && u64_at(entry, 16) == sequence;
        if !fits {
            return None;
        }
        self.next = record + 1;
        let start = HEADER_BYTES
            + self.records * ENTRY_BYTES
            + place as usize
            + usize::from(pointer.header_bytes)
            + key_bytes;
        Some((&self.block, start..start + pointer.value_bytes as usize))
    }
}

impl KeptStretches {
    /// Of a segment of which nothing is kept yet.
    pub fn new(keeper: &Arc<Keeper>, segment: u32) -> Self {
        KeptStretches {
            keeper: keeper.clone(),
            segment,
            cached: keeper.cache.file(),
        }
    }

    /// The kept stretch that a record lies in.
    pub fn find(&self, log: &LogFile, record: Range<u64>) -> Option<KeptStretch> {
        if (record.end - record.start) as usize > LARGEST_KEPT {
            return None;
        }
        let unit = record.start / UNIT_BYTES;
        let block = self.cached.get(unit)?;
        KeptStretch::of(&block, self.segment, log.cuts())
            .filter(|kept| kept.range.start <= record.start && record.end <= kept.range.end)
    }

    /// Keeps what is asked for a second time of `bytes`, which were read from `start`
    /// on, where a record begins. `cuts`: what the log answered before that.
    pub fn offer(&self, log: &LogFile, start: u64, bytes: &[u8], cuts: u64) {
        let is_wanted = |unit| self.keeper.mark(self.segment, unit);
        self.keep_wanted(log, start, bytes, cuts, is_wanted);
    }

    /// Keeps the unit that `start` lies in, which was asked for often enough; otherwise as
    /// [`KeptStretches::offer`].
    pub fn keep_first(&self, log: &LogFile, start: u64, bytes: &[u8], cuts: u64) {
        let first = start / UNIT_BYTES;
        self.keep_wanted(log, start, bytes, cuts, |unit| unit == first);
    }

    fn keep_wanted(
        &self,
        log: &LogFile,
        start: u64,
        bytes: &[u8],
        cuts: u64,
        is_wanted: impl Fn(u64) -> bool,
    ) {
        if self.cached.is_off() {
            return;
        }
        let end = start + bytes.len() as u64;
        let mut position = start;
        for unit in start / UNIT_BYTES..end.div_ceil(UNIT_BYTES) {
            let (begin, unit_end) = (unit * UNIT_BYTES, (unit + 1) * UNIT_BYTES);
            if end < unit_end && end < log.written_end() {
                // Only begun: its turn comes with the next read.
                return;
            }
            if !is_wanted(unit) {
                continue;
            }
            let rest = |position: u64| &bytes[(position - start) as usize..];
            while position < begin.min(end) {
                let Some(header) = record_at(log, position, rest(position), false) else {
                    return;
                };
                position += header.total_bytes(ALIGNMENT);
            }
            let from = position;
            let mut directory = Vec::new();
            while position < unit_end && position < end {
                let Some(header) = record_at(log, position, rest(position), true) else {
                    return;
                };
                put_entry(&mut directory, (position - from) as u32, &header);
                position += header.total_bytes(ALIGNMENT);
            }
            if from < position && log.cuts() == cuts {
                let records = &bytes[(from - start) as usize..(position - start) as usize];
                self.keep(unit, (from, cuts), &directory, records);
            }
        }
    }

    fn keep(&self, unit: u64, (from, cuts): (u64, u64), directory: &[u8], records: &[u8]) {
        let behind = HEADER_BYTES + directory.len();
        let mut block = self.cached.block_to_fill(behind + records.len());
        if let Some(content) = Arc::get_mut(&mut block) {
            let count = (directory.len() / ENTRY_BYTES) as u64;
            content[..8].copy_from_slice(&from.to_le_bytes());
            content[8..16].copy_from_slice(&cuts.to_le_bytes());
            content[16..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
            content[HEADER_BYTES..behind].copy_from_slice(directory);
            content[behind..].copy_from_slice(records);
            self.cached.put(unit, &block);
        }
    }

    /// True if the whole unit of a record is worth reading, beside the record itself:
    /// it is asked for again, and others of the unit will be as likely as not, since
    /// all of the log finds room.
    pub fn is_worth_reading(&self, record: Range<u64>) -> bool {
        self.keeper.has_room.load(Ordering::Relaxed)
            && (record.end - record.start) as usize <= LARGEST_KEPT
            && self.keeper.mark(self.segment, record.start / UNIT_BYTES)
    }
}

fn put_entry(directory: &mut Vec<u8>, begin: u32, header: &RecordHeader) {
    // What is no value has no key of any length.
    let key_bytes = match header.kind {
        kind::PUT => header.auxiliary,
        _ => u32::MAX,
    };
    directory.extend_from_slice(&begin.to_le_bytes());
    directory.extend_from_slice(&key_bytes.to_le_bytes());
    directory.extend_from_slice(&header.payload_bytes.to_le_bytes());
    directory.extend_from_slice(&u32::from(header.header_bytes).to_le_bytes());
    directory.extend_from_slice(&header.sequence.0.to_le_bytes());
}

/// The header of the record at the start of `bytes`, if it is whole, and sound where
/// that is to be `verified`.
fn record_at(log: &LogFile, offset: u64, bytes: &[u8], verified: bool) -> Option<RecordHeader> {
    let header = match verified {
        true => RecordHeader::decode(bytes, log.seed(), offset).ok()?,
        false => RecordHeader::verified_before(bytes)?,
    };
    let payload = header.payload_in(bytes)?;
    if verified {
        header.check_payload(payload).ok()?;
    }
    (bytes.len() as u64 >= header.total_bytes(ALIGNMENT)).then_some(header)
}
