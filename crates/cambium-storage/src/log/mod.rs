//! An append-only file of records.
//!
//! ```text
//! ┌ first block ┬───────────┬───────────┬──────┬┬─────────┬─── … ───┐
//! │ file header │ record    │ record    │ zeros││ record  │ zeros   │
//! └─────────────┴───────────┴───────────┴──────┴┴─────────┴─── … ───┘
//!               ^ first_offset           ^ padding to the block after a sync
//! ```
//!
//! Invariants:
//!
//! 1. Records follow one another at multiples of `alignment`; between them
//!    there are only zeros up to the next multiple of `block`.
//! 2. After a sync the log goes on at a block of its own, so a block that was
//!    synced is never written again, and the first record after a sync can be
//!    found by looking at block boundaries alone.
//! 3. Space is allocated ahead of the end, so a write into it cannot fail for
//!    lack of space and a sync needs no new blocks; in a run of small syncs zeros
//!    are written ahead too. The end of the log is never taken from the file's
//!    length.
//!
//! Appending goes to a buffer first. Readers find records there until they
//! are flushed, and never wait for the device because of a writer.

mod read;
mod tail;

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use cambium_base::checksum::ChecksumSeed;
use cambium_base::coding::round_up;
use cambium_base::{Error, FileIdentity, Result};
use cambium_io::File;
use cambium_io::sync::atomic::{AtomicU64, Ordering};
use cambium_io::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::record::{RecordHeader, aligned};

use tail::Tail;

pub use read::{Parsed, Record};

/// The units of a log, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogGeometry {
    /// Records begin at multiples of this.
    pub alignment: u64,
    /// Padding after a sync goes to a multiple of this.
    pub block: u64,
    /// Where the first record begins: a multiple of `block` past the header.
    pub first_offset: u64,
    /// Least space allocated ahead.
    pub least_growth: u64,
    /// Most space allocated ahead.
    pub most_growth: u64,
    /// Bytes of the window that a run of small writes is stored through; 0 for
    /// none. See [`LogFile::flush`].
    pub window: u64,
}

/// An open log: one writer at a time (the engine sees to that), any number of
/// readers.
#[derive(Debug)]
pub struct LogFile {
    file: Arc<dyn File>,
    seed: ChecksumSeed,
    geometry: LogGeometry,
    tail: RwLock<Tail>,
    /// Everything below lies in the file; what is above is in the tail.
    written_end: AtomicU64,
    /// How often what lay below `written_end` was given up.
    cuts: AtomicU64,
    /// Everything below was given back.
    begin: AtomicU64,
}

/// Larger writes are cheaper by system calls than through a window, bytes.
const SMALL_WRITE: u64 = 16 << 10;
/// After so many blocks of small flushes without a sync a window is opened.
const SMALL_BLOCKS: u64 = 2;

/// Appends to a log whose lock is held; see [`LogFile::append_several`].
#[derive(Debug)]
pub struct Appender<'a> {
    log: &'a LogFile,
    start: u64,
    bytes: &'a mut Vec<u8>,
}

impl Appender<'_> {
    /// Appends a record to the buffer; answers where it lies.
    pub fn append(&mut self, header: &RecordHeader, payload: &[&[u8]]) -> Range<u64> {
        let offset = self.start + self.bytes.len() as u64;
        let alignment = self.log.geometry.alignment;
        offset..offset + header.encode(&self.log.seed, offset, payload, alignment, self.bytes)
    }
}

impl LogFile {
    /// Uses `file` as a log whose records end at `end`.
    pub fn new(
        file: Arc<dyn File>,
        identity: &FileIdentity,
        geometry: LogGeometry,
        end: u64,
    ) -> Result<Self> {
        let length = file.length()?;
        Ok(LogFile {
            seed: ChecksumSeed::new(identity),
            geometry,
            tail: RwLock::new(Tail {
                start: end,
                bytes: Vec::new(),
                allocated: length,
                small_bytes: 0,
                window: None,
                padded: false,
                small_syncs: 0,
                zeroed: 0,
            }),
            written_end: AtomicU64::new(end),
            cuts: AtomicU64::new(0),
            begin: AtomicU64::new(geometry.first_offset),
            file,
        })
    }

    /// Where the log begins: its first record's place, until a part of it is given back.
    pub fn begin(&self) -> u64 {
        self.begin.load(Ordering::Acquire)
    }

    /// The log begins at an offset from now on; what lies before it is given back. Nothing
    /// happens where it begins there or later already.
    pub fn begin_at(&self, offset: u64) {
        self.begin.fetch_max(offset, Ordering::AcqRel);
    }

    /// Bytes from where it begins to its end.
    pub fn used_bytes(&self) -> u64 {
        self.end().saturating_sub(self.begin())
    }

    /// The file under the log.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The path, for messages.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The units.
    pub fn geometry(&self) -> &LogGeometry {
        &self.geometry
    }

    /// The seed of the records' checksums.
    pub fn seed(&self) -> &ChecksumSeed {
        &self.seed
    }

    /// Where the next record begins.
    pub fn end(&self) -> u64 {
        self.tail_shared().end()
    }

    /// Bytes appended and not yet handed to the file.
    pub fn buffered_bytes(&self) -> usize {
        self.tail_shared().bytes.len()
    }

    fn tail_shared(&self) -> RwLockReadGuard<'_, Tail> {
        self.tail.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn tail_exclusive(&self) -> RwLockWriteGuard<'_, Tail> {
        self.tail.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that `bytes` more can be appended and padded. `NoSpace`
    /// changes nothing.
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        // A block more than asked for: a recovery on a full disk needs one.
        self.reserve_with(bytes, self.geometry.block, None, &|_| Ok(u64::MAX))
    }

    /// As [`LogFile::reserve`], where the log has to leave room on the device: `room` is asked
    /// before space is taken, with how many bytes are needed, and answers how many may be
    /// taken, or refuses.
    pub fn reserve_in(&self, bytes: u64, room: &dyn Fn(u64) -> Result<u64>) -> Result<()> {
        self.reserve_with(bytes, self.geometry.block, None, room)
    }

    /// Bytes that were taken ahead of the end.
    pub fn bytes_ahead(&self) -> u64 {
        let tail = self.tail_shared();
        tail.allocated.saturating_sub(tail.end())
    }

    /// As [`LogFile::reserve`], in a log that ends at `most` bytes: no more space is taken
    /// ahead than up to there, and in fewer steps.
    pub fn reserve_within(&self, bytes: u64, most: u64) -> Result<()> {
        self.reserve_with(bytes, self.geometry.block, Some(most), &|_| Ok(u64::MAX))
    }

    /// As [`LogFile::reserve`], but down to the last block: for recovery.
    pub fn reserve_last(&self, bytes: u64) -> Result<()> {
        self.reserve_with(bytes, 0, None, &|_| Ok(u64::MAX))
    }

    fn reserve_with(
        &self,
        bytes: u64,
        spare: u64,
        most: Option<u64>,
        room: &dyn Fn(u64) -> Result<u64>,
    ) -> Result<()> {
        let (end, allocated) = {
            let tail = self.tail_shared();
            (tail.end(), tail.allocated)
        };
        let needed = end
            .checked_add(bytes)
            .and_then(|sum| sum.checked_add(spare))
            .and_then(|sum| round_up(sum, self.geometry.block))
            .ok_or_else(|| Error::LimitExceeded(format!("{bytes} bytes more in a log")))?;
        if needed <= allocated {
            return Ok(());
        }
        let ahead = needed.saturating_add(self.growth(end, most));
        let ahead = most.map_or(ahead, |most| ahead.min(most.max(needed)));
        let room = room(needed - allocated)?;
        let ahead = ahead.min(allocated.saturating_add(room)).max(needed);
        let generous = round_up(ahead, self.geometry.block);
        let target = match generous {
            Some(target) if self.file.allocate(allocated, target - allocated).is_ok() => target,
            _ => {
                self.file.allocate(allocated, needed - allocated)?;
                needed
            }
        };
        self.tail_exclusive().allocated = target;
        Ok(())
    }

    /// Space to take ahead of the end, in a log that ends at `most` bytes, if that is
    /// known: then an eighth of it soon.
    fn growth(&self, end: u64, most: Option<u64>) -> u64 {
        let (least, largest) = (self.geometry.least_growth, self.geometry.most_growth);
        let growth = match most {
            Some(most) => (end / 2).min(most / 8),
            None => end.saturating_sub(self.begin()) / 32,
        };
        growth.clamp(least, largest)
    }

    /// Gives back most of the space that was taken ahead, of a log that will grow more
    /// slowly from now on.
    pub fn give_back_ahead(&self) -> Result<()> {
        let mut tail = self.tail_exclusive();
        let end = tail.end().next_multiple_of(self.geometry.block);
        let wanted = end.saturating_add(self.geometry.least_growth);
        if tail.allocated > wanted {
            tail.close_window();
            self.file.set_length(wanted)?;
            tail.allocated = wanted;
            tail.zeroed = tail.zeroed.min(wanted);
        }
        Ok(())
    }

    /// Appends a record to the buffer; answers where it lies. Call
    /// [`LogFile::reserve`] before.
    pub fn append(&self, header: &RecordHeader, payload: &[&[u8]]) -> Range<u64> {
        let mut tail = self.tail_exclusive();
        let appender = &mut Appender {
            start: tail.start,
            log: self,
            bytes: &mut tail.bytes,
        };
        appender.append(header, payload)
    }

    /// Appends several records to the buffer under one lock; answers where the
    /// log ended before. Call [`LogFile::reserve`] before.
    pub fn append_several(&self, work: impl FnOnce(&mut Appender<'_>)) -> u64 {
        let mut tail = self.tail_exclusive();
        let before = tail.end();
        work(&mut Appender {
            start: tail.start,
            log: self,
            bytes: &mut tail.bytes,
        });
        before
    }

    /// Appends zeros up to the next block; to be done before a sync, so that
    /// what follows begins in a block of its own. Answers how many.
    pub fn pad_to_block(&self) -> u64 {
        let mut tail = self.tail_exclusive();
        tail.padded = true;
        tail.pad_to(self.geometry.block)
    }

    /// Appends zeros up to the next multiple of a unit; answers how many.
    pub fn pad_to(&self, unit: u64) -> u64 {
        self.tail_exclusive().pad_to(unit)
    }

    /// Appends a record straight into the window, if there is one with room
    /// below `limit` and nothing is buffered; answers where it lies. `None`:
    /// nothing was done.
    pub fn append_to_window(
        &self,
        header: &RecordHeader,
        payload: &[&[u8]; 2],
        limit: u64,
    ) -> Option<Range<u64>> {
        let mut tail = self.tail_exclusive();
        if !tail.bytes.is_empty() {
            return None;
        }
        let offset = tail.start;
        let room = tail.window.as_ref()?.end().min(limit);
        let header = header.encode_header(&self.seed, offset, payload);
        let length = header.len() + payload[0].len() + payload[1].len();
        let end = offset + aligned(length as u64, self.geometry.alignment);
        let window = tail.window.as_mut().filter(|_| end <= room)?;
        // The padding is there: the window was filled with zeros.
        if !window.store(&[&header, payload[0], payload[1]], offset) {
            tail.close_window();
            return None;
        }
        tail.small_bytes += end - offset;
        tail.start = end;
        self.written_end.store(end, Ordering::Release);
        Some(offset..end)
    }

    /// Hands the buffer to the file in one write. After an error the buffer is
    /// kept, and any part of it may be in the file: cut back, or stop writing.
    ///
    /// A run of small flushes without a sync between them goes through a window
    /// of the file, where there can be one (`cambium_io::File::open_window`): a
    /// copy in place of a system call each. The part of the window that is not
    /// used yet reads as zeros, like space allocated ahead.
    pub fn flush(&self) -> Result<()> {
        let (small, wanted) = {
            let mut tail = self.tail_exclusive();
            if tail.bytes.is_empty() {
                return Ok(());
            }
            if tail.store() {
                self.written_end.store(tail.start, Ordering::Release);
                return Ok(());
            }
            let small = (tail.bytes.len() as u64) < SMALL_WRITE.min(self.geometry.window);
            tail.window = None;
            tail.small_bytes = if small {
                tail.small_bytes + tail.bytes.len() as u64
            } else {
                0
            };
            // Twice what has come: most of a window is used, however long the
            // run of small writes will be.
            let wanted = match tail.small_bytes < SMALL_BLOCKS * self.geometry.block {
                true => 0,
                false => (tail.small_bytes * 2)
                    .next_multiple_of(self.geometry.block)
                    .min(self.geometry.window),
            };
            (small, wanted)
        };
        let zeros = {
            // Shared: readers go on finding the records in the buffer.
            let tail = self.tail_shared();
            let zeros = tail.zeros_behind(self.geometry.block);
            if zeros == 0 {
                self.file.write_at(&tail.bytes, tail.start)?;
            } else {
                let mut bytes = tail.bytes.clone();
                bytes.resize(bytes.len() + zeros as usize, 0);
                self.file.write_at(&bytes, tail.start)?;
            }
            zeros
        };
        let mut tail = self.tail_exclusive();
        tail.written(small, zeros);
        self.written_end.store(tail.start, Ordering::Release);
        let end = tail.start;
        // Within what is allocated: a window takes no new space.
        let room = tail.allocated.saturating_sub(end).min(wanted);
        drop(tail);
        if room > 0 && room >= wanted / 4 {
            let window = match self.file.open_window(end, room) {
                Err(error) if !error.is_no_space() => return Err(error),
                opened => opened.unwrap_or_default(),
            };
            self.tail_exclusive().window = window;
        }
        Ok(())
    }

    /// Leaves out `bytes` that begin at the next multiple of `alignment`, for
    /// the caller to write by itself, and answers where they begin. Zeros go up
    /// to there, and everything buffered is handed to the file. Call
    /// [`LogFile::reserve`] before; after an error as for [`LogFile::flush`].
    pub fn leave_out(&self, alignment: u64, bytes: u64) -> Result<u64> {
        self.pad_to(alignment);
        self.flush()?;
        let mut tail = self.tail_exclusive();
        tail.close_window();
        let start = tail.start;
        tail.start += bytes;
        self.written_end.store(tail.start, Ordering::Release);
        Ok(start)
    }

    /// Makes everything flushed so far durable.
    pub fn sync(&self) -> Result<()> {
        self.prepare_sync();
        self.file.sync_data()
    }

    /// To be called before somebody else syncs the file, together with others: that
    /// makes everything durable that was flushed before this call.
    pub fn prepare_sync(&self) {
        // A page that is stored to after it was written back is given again,
        // which costs more than a write.
        self.tail_exclusive().close_window();
    }

    /// Ends the file where the log ends, at a whole block, without what was taken ahead:
    /// nothing before its end is written again.
    pub fn end_file(&self) -> Result<()> {
        self.pad_to_block();
        self.flush()?;
        let end = self.end();
        self.cut_back(end)
    }

    /// Forgets what was appended from `end` on, after a write that failed for
    /// lack of space: readers were never told of it.
    pub fn cut_back(&self, end: u64) -> Result<()> {
        let mut tail = self.tail_exclusive();
        tail.close_window();
        if end >= tail.start {
            let kept = (end - tail.start) as usize;
            tail.bytes.truncate(kept);
        } else {
            tail.bytes.clear();
            tail.start = end;
            self.written_end.store(end, Ordering::Release);
            self.cuts.fetch_add(1, Ordering::AcqRel);
        }
        // What the failed write may have left in the file beyond must go.
        self.file.set_length(tail.start)?;
        tail.allocated = tail.start;
        tail.zeroed = tail.zeroed.min(tail.start);
        Ok(())
    }

    /// Everything below lies in the file; records above are still buffered.
    pub fn written_end(&self) -> u64 {
        self.written_end.load(Ordering::Acquire)
    }

    /// How often what lay in the file was given up, to be written again: bytes
    /// that were read before are no longer those of the log.
    pub fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Acquire)
    }

    /// Goes on at the block behind `end`, where recovery found the last
    /// record that counts. Nothing may be buffered.
    pub fn resume_at(&self, end: u64) {
        let mut tail = self.tail_exclusive();
        debug_assert!(tail.bytes.is_empty(), "recovery appends only after this");
        tail.close_window();
        tail.start = end.next_multiple_of(self.geometry.block);
        tail.allocated = tail.allocated.max(tail.start);
        self.written_end.store(tail.start, Ordering::Release);
        self.cuts.fetch_add(1, Ordering::AcqRel);
    }

    /// Moves the end of a log that another process appends to: a reader has met records up
    /// to `end`. Blocks that reach past the end may still change.
    pub fn follow_to(&self, end: u64) {
        let mut tail = self.tail_exclusive();
        tail.start = end;
        self.written_end.store(end, Ordering::Release);
    }

    /// Begins again at the first record's place: everything in the log is
    /// obsolete. What lies there is overwritten as the log grows.
    pub fn rewind(&self) {
        let mut tail = self.tail_exclusive();
        tail.close_window();
        tail.bytes.clear();
        tail.start = self.geometry.first_offset;
        self.written_end.store(tail.start, Ordering::Release);
        self.cuts.fetch_add(1, Ordering::AcqRel);
    }
}
