//! A direct handle that is read and written at any place.
//!
//! Direct I/O moves whole units of the device between it and aligned memory. A
//! log is read and written at any place. [`DirectFile`] stands between the two:
//!
//! - A read of a part of a unit brings the whole unit into memory that the
//!   thread keeps for this, and copies the part.
//! - A write that begins or ends within a unit writes the whole unit. The unit
//!   that the last such write ended in is kept, so appending reads nothing of
//!   what it wrote before.
//!
//! So a unit whose bytes were synced is written again, unchanged, where a write
//! goes on within it: an owner to whom that matters goes on at a new unit after
//! a sync. The file's length is a multiple of the unit after a write at its end.
//!
//! Any number of threads read. Writes of whole units go side by side; those of
//! parts of units wait for one another.

use std::cell::RefCell;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use cambium_base::Result;

use crate::buffer::AlignedBuffer;
use crate::file_system::{Advice, Alignment, File};
use crate::sync::{Mutex, MutexGuard};

/// Bytes that are moved at once.
const SCRATCH_BYTES: usize = 256 << 10;

thread_local! {
    static SCRATCH: RefCell<Option<AlignedBuffer>> = const { RefCell::new(None) };
}

/// See the module.
///
/// ```
/// use cambium_io::{DirectFile, Environment, File, OpenOptions};
/// # fn main() -> cambium_base::Result<()> {
/// let files = Environment::memory().file_system;
/// let direct = files.open("log".as_ref(), OpenOptions::CREATE.direct())?;
/// assert!(direct.write_at(b"three", 1).is_err(), "it has demands");
/// let file = DirectFile::new(direct);
/// file.write_at(b"three", 1)?;
/// let mut found = [0; 3];
/// file.read_exact_at(&mut found, 2)?;
/// assert_eq!(&found, b"hre");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DirectFile {
    inner: Arc<dyn File>,
    unit: u64,
    last: Mutex<LastUnit>,
}

/// The unit in which the last write ended.
#[derive(Debug, Default)]
struct LastUnit {
    /// Its offset and bytes, as they are in the file.
    content: Option<(u64, Vec<u8>)>,
}

impl DirectFile {
    /// Puts itself before a direct handle.
    pub fn new(inner: Arc<dyn File>) -> Self {
        DirectFile {
            unit: inner.alignment().offset.max(1) as u64,
            last: Mutex::default(),
            inner,
        }
    }

    /// The direct handle, for who keeps to what it demands.
    pub fn direct(&self) -> &Arc<dyn File> {
        &self.inner
    }

    fn last(&self) -> MutexGuard<'_, LastUnit> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the memory of a transfer is aligned to.
    fn memory(&self) -> usize {
        self.inner.alignment().memory.max(1)
    }

    /// Works with memory that direct I/O takes.
    fn with_scratch<R>(&self, work: impl FnOnce(&mut AlignedBuffer) -> R) -> R {
        let memory = self.memory();
        let size = SCRATCH_BYTES.max(self.unit as usize);
        let kept = SCRATCH.with_borrow_mut(Option::take);
        let mut scratch = kept
            .filter(|kept| kept.alignment() >= memory)
            .unwrap_or_else(|| AlignedBuffer::new(size, memory));
        scratch.resize(size);
        let result = work(&mut scratch);
        SCRATCH.with_borrow_mut(|place| *place = Some(scratch));
        result
    }

    /// Reads a unit whole; what lies behind the file's end is zeros.
    fn read_unit(&self, start: u64, scratch: &mut AlignedBuffer, unit: &mut [u8]) -> Result<()> {
        scratch.resize(unit.len());
        let count = self.inner.read_at(scratch, start)?;
        unit[..count].copy_from_slice(&scratch[..count]);
        unit[count..].fill(0);
        Ok(())
    }

    /// Writes within one unit, which is read first, unless it is known.
    fn write_part(
        &self,
        last: &mut LastUnit,
        scratch: &mut AlignedBuffer,
        part: &[u8],
        offset: u64,
    ) -> Result<()> {
        let start = offset / self.unit * self.unit;
        let from = (offset - start) as usize;
        let mut unit = match last.content.take() {
            Some((known, unit)) if known == start => unit,
            _ => {
                let mut unit = vec![0; self.unit as usize];
                self.read_unit(start, scratch, &mut unit)?;
                unit
            }
        };
        unit[from..from + part.len()].copy_from_slice(part);
        scratch.resize(unit.len());
        scratch.copy_from_slice(&unit);
        self.inner.write_at(scratch, start)?;
        last.content = Some((start, unit));
        Ok(())
    }

    /// Writes whole units.
    fn write_units(&self, scratch: &mut AlignedBuffer, bytes: &[u8], offset: u64) -> Result<()> {
        let size = SCRATCH_BYTES.max(self.unit as usize);
        let mut position = offset;
        for piece in bytes.chunks(size) {
            scratch.resize(piece.len());
            scratch.copy_from_slice(piece);
            self.inner.write_at(scratch, position)?;
            position += piece.len() as u64;
        }
        Ok(())
    }
}

impl File for DirectFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let end = offset + buffer.len() as u64;
        let (start, whole) = self.inner.alignment().around(offset, end);
        let skipped = (offset - start) as usize;
        let mut read = |units: &mut AlignedBuffer| {
            let count = self.inner.read_at(units, start)?;
            let found = units[..count].get(skipped..).unwrap_or_default();
            let now = found.len().min(buffer.len());
            buffer[..now].copy_from_slice(&found[..now]);
            Ok(now)
        };
        if whole > SCRATCH_BYTES {
            return read(&mut AlignedBuffer::new(whole, self.memory()));
        }
        self.with_scratch(|scratch| {
            scratch.resize(whole);
            read(scratch)
        })
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        let end = offset + buffer.len() as u64;
        let inner_start = offset.next_multiple_of(self.unit);
        let inner_end = end / self.unit * self.unit;
        let mut last = self.last();
        self.with_scratch(|scratch| {
            if inner_start > inner_end {
                return self.write_part(&mut last, scratch, buffer, offset);
            }
            let (head, rest) = buffer.split_at((inner_start - offset) as usize);
            let (whole, tail) = rest.split_at((inner_end - inner_start) as usize);
            if !head.is_empty() {
                self.write_part(&mut last, scratch, head, offset)?;
            }
            if !whole.is_empty() {
                let covered = inner_start..inner_end;
                last.content.take_if(|(start, _)| covered.contains(start));
            }
            if head.is_empty() && tail.is_empty() {
                // Nobody else's unit is touched: others need not wait.
                drop(last);
                return self.write_units(scratch, whole, inner_start);
            }
            self.write_units(scratch, whole, inner_start)?;
            if !tail.is_empty() {
                self.write_part(&mut last, scratch, tail, inner_end)?;
            }
            Ok(())
        })
    }

    fn sync_data(&self) -> Result<()> {
        self.inner.sync_data()
    }

    fn length(&self) -> Result<u64> {
        self.inner.length()
    }

    fn set_length(&self, length: u64) -> Result<()> {
        let mut last = self.last();
        last.content = None;
        self.inner.set_length(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.inner.allocate(offset, length)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        let mut last = self.last();
        last.content = None;
        self.inner.punch_hole(offset, length)
    }

    fn shared_until(&self, offset: u64) -> u64 {
        self.inner.shared_until(offset)
    }

    fn advise(&self, offset: u64, length: u64, advice: Advice) {
        self.inner.advise(offset, length, advice);
    }

    fn allocated_bytes(&self) -> Result<u64> {
        self.inner.allocated_bytes()
    }

    fn alignment(&self) -> Alignment {
        Alignment::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::file_system::{FileSystem, OpenOptions};
    use crate::recording::RecordingFileSystem;

    fn pair() -> (DirectFile, Arc<dyn File>) {
        let files = Environment::memory().file_system;
        let path = Path::new("file");
        let plain = files.open(path, OpenOptions::CREATE).unwrap();
        let direct = files.open(path, OpenOptions::WRITE.direct()).unwrap();
        (DirectFile::new(direct), plain)
    }

    #[test]
    fn whatever_is_written_anywhere_is_there_and_nothing_else_changes() {
        let (file, plain) = pair();
        let mut expected = vec![0; 1 << 20];
        let mut random = 3u64;
        let mut next = |below: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) as usize % below
        };
        let mut end = 0;
        for round in 0..600 {
            // Mostly behind the last, as a log; some anywhere; few very long.
            let length = match round % 50 {
                49 => next(600_000),
                _ => next(3_000),
            };
            let offset = match round % 5 {
                4 => next(1 << 19),
                _ => end,
            };
            let offset = offset.min((1 << 20) - length);
            end = if offset + length > 900_000 {
                0
            } else {
                offset + length
            };
            let bytes = vec![round as u8; length];
            expected[offset..offset + length].copy_from_slice(&bytes);
            file.write_at(&bytes, offset as u64).unwrap();
            let (from, count) = (next(1 << 19), next(5_000));
            let mut found = vec![0; count];
            let there = file.read_at(&mut found, from as u64).unwrap();
            assert_eq!(found[..there], expected[from..from + there]);
            let length = plain.length().unwrap() as usize;
            assert_eq!(there, count.min(length.saturating_sub(from)));
        }
        let mut found = vec![0; plain.length().unwrap() as usize];
        plain.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found[..], expected[..found.len()]);
    }

    #[test]
    fn what_another_handle_cut_off_does_not_come_back() {
        let (file, _) = pair();
        file.write_at(&[7; 100], 0).unwrap();
        file.set_length(50).unwrap();
        file.write_at(&[8; 10], 60).unwrap();
        let mut found = [1; 70];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found[..50], [7; 50]);
        assert_eq!(found[50..60], [0; 10]);
        assert_eq!(found[60..], [8; 10]);
    }

    #[test]
    fn appending_reads_only_the_unit_it_begins_in() {
        let environment = Environment::memory();
        let (files, recorder) =
            RecordingFileSystem::new(environment.file_system.clone(), Path::new(""));
        let open = files.open(Path::new("log"), OpenOptions::CREATE.direct());
        let file = DirectFile::new(open.unwrap());
        for place in 0..100 {
            file.write_at(&[1; 10], place * 10).unwrap();
        }
        let reads = recorder.counters().reads;
        assert!(reads <= 2, "{reads} reads of two units");
    }
}
