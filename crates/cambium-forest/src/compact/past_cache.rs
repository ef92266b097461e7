//! Writing the new file past the operating system's page cache.
//!
//! The new file is not read soon. Written through the page cache, it would push out
//! the pages that readers use, and cost processor time. So documents
//! and nodes gather in one large buffer, and whole units of the device go from
//! there straight to it:
//!
//! ```text
//!  in the file                   held in memory         not written yet
//! ┌─────────────────────────────┬──────────────────────┬────────────────
//! │ written, by direct writes   │ buffer, part filled  │
//! └─────────────────────────────┴──────────────────────┴────────────────
//!                               ^ start: a multiple of the device's unit
//! ```
//!
//! Reads find what is held in the buffer, and the rest through the cached
//! handle, which sees what direct writes wrote: the kernel drops what it had
//! cached of a range that is written so. The log writes in
//! ascending order; a gap between two writes reads as zeros.
//!
//! When everything is copied this **ends**: the rest is handed over through the
//! page cache, and from then on every call goes to the cached handle as if this
//! were not there.

use std::path::Path;
use std::sync::Arc;

use cambium_base::Result;
use cambium_io::sync::atomic::{AtomicBool, Ordering};
use cambium_io::sync::{Mutex, MutexGuard};
use cambium_io::{Advice, Alignment, AppendWindow, File, FilePart};

use super::behind::WriteBehind;
use crate::core::lock;

/// A file whose new end is written directly.
#[derive(Debug)]
pub(super) struct PastCache {
    cached: Arc<dyn File>,
    /// The bytes that the file does not have yet.
    held: Mutex<WriteBehind>,
    ended: AtomicBool,
}

impl PastCache {
    /// The cached handle of a file, and what writes to a direct one from its end on.
    pub fn new(cached: Arc<dyn File>, writer: WriteBehind) -> Self {
        PastCache {
            cached,
            held: Mutex::new(writer),
            ended: AtomicBool::new(false),
        }
    }

    /// Hands the rest over through the page cache: from here on this is the
    /// cached handle.
    pub fn end(&self) -> Result<()> {
        let mut held = lock(&self.held);
        held.finish()?;
        if let Some(buffer) = &held.buffer {
            if held.filled > 0 {
                self.cached.write_at(&buffer[..held.filled], held.start)?;
            }
        }
        held.buffer = None;
        self.ended.store(true, Ordering::Release);
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// What is held, unless nothing is any more.
    fn held(&self) -> Option<MutexGuard<'_, WriteBehind>> {
        if self.has_ended() {
            return None;
        }
        let held = lock(&self.held);
        held.buffer.is_some().then_some(held)
    }
}

impl File for PastCache {
    fn path(&self) -> &Path {
        self.cached.path()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let end = offset.saturating_add(buffer.len() as u64);
        let Some(mut held) = self.held() else {
            return self.cached.read_at(buffer, offset);
        };
        let size = held.buffer.as_ref().map_or(0, |bytes| bytes.len());
        // The buffer before this one may be on its way.
        if end.saturating_add(size as u64) > held.start {
            held.finish()?;
        }
        if end <= held.start {
            drop(held);
            return self.cached.read_at(buffer, offset);
        }
        let before = held.start.saturating_sub(offset) as usize;
        let mut count = 0;
        if before > 0 {
            count = self.cached.read_at(&mut buffer[..before], offset)?;
            if count < before {
                return Ok(count);
            }
        }
        let from = (offset + count as u64 - held.start) as usize;
        let bytes = held.buffer.as_ref().map(|bytes| &bytes[..held.filled]);
        let there = bytes.and_then(|bytes| bytes.get(from..));
        let there = there.unwrap_or_default();
        let now = there.len().min(buffer.len() - count);
        buffer[count..count + now].copy_from_slice(&there[..now]);
        Ok(count + now)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        let Some(mut held) = self.held() else {
            return self.cached.write_at(buffer, offset);
        };
        // Bytes before the buffer are on the device: they go through the cache.
        let behind = held.start.saturating_sub(offset).min(buffer.len() as u64) as usize;
        if behind > 0 {
            held.finish()?;
            self.cached.write_at(&buffer[..behind], offset)?;
        }
        let rest = &buffer[behind..];
        let offset = offset + behind as u64;
        if rest.is_empty() {
            return Ok(());
        }
        let gap = offset.saturating_sub(held.end()) as usize;
        if gap > 0 {
            let place = held.filled;
            held.fill(place, None, gap)?;
        }
        let place = (offset - held.start) as usize;
        held.fill(place, Some(rest), rest.len())
    }

    fn sync_data(&self) -> Result<()> {
        if let Some(mut held) = self.held() {
            held.write_all()?;
        } else if !self.has_ended() {
            // A write of the task that failed is answered here.
            lock(&self.held).finish()?;
        }
        self.cached.sync_data()
    }

    fn length(&self) -> Result<u64> {
        let length = self.cached.length()?;
        Ok(self.held().map_or(length, |held| length.max(held.end())))
    }

    fn set_length(&self, length: u64) -> Result<()> {
        if let Some(mut held) = self.held() {
            held.write_all()?;
            let kept = length.saturating_sub(held.start).min(held.filled as u64);
            if length < held.start {
                // The unit in which it ends now is written again with what
                // follows; before the end of the file it was zeros or data.
                let unit = held.unit() as u64;
                let start = length / unit * unit;
                let tail = (length - start) as usize;
                if let Some(buffer) = &mut held.buffer {
                    self.cached.read_exact_at(&mut buffer[..tail], start)?;
                }
                (held.start, held.filled) = (start, tail);
            } else {
                held.filled = kept as usize;
            }
        }
        self.cached.set_length(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.cached.allocate(offset, length)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        if let Some(mut held) = self.held() {
            held.write_all()?;
        }
        self.cached.punch_hole(offset, length)
    }

    fn advise(&self, offset: u64, length: u64, advice: Advice) {
        self.cached.advise(offset, length, advice);
    }

    fn allocated_bytes(&self) -> Result<u64> {
        self.cached.allocated_bytes()
    }

    fn alignment(&self) -> Alignment {
        self.cached.alignment()
    }

    fn part_at(&self, offset: u64) -> Option<FilePart> {
        // Before, the parts do not have all of it.
        self.has_ended()
            .then(|| self.cached.part_at(offset))
            .flatten()
    }

    fn shared_until(&self, offset: u64) -> u64 {
        self.cached.shared_until(offset)
    }

    fn open_window(&self, end: u64, length: u64) -> Result<Option<Box<dyn AppendWindow>>> {
        if self.has_ended() {
            return self.cached.open_window(end, length);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cambium_io::{Environment, OpenOptions};

    use super::*;

    const PATH: &str = "new";
    const BEGIN: u64 = 4096;

    fn past_cache(environment: &Environment) -> (PastCache, Arc<dyn File>) {
        let open = |options| {
            let opened = environment.file_system.open(Path::new(PATH), options);
            opened.unwrap()
        };
        let cached = open(OpenOptions::CREATE);
        cached.write_at(&[9; BEGIN as usize], 0).unwrap();
        let direct = open(OpenOptions::WRITE.direct());
        assert!(direct.alignment().offset > 1, "a direct handle has demands");
        let writer = WriteBehind::new(environment, direct, true, (BEGIN, 8192));
        let file = PastCache::new(cached.clone(), writer);
        (file, cached)
    }

    fn content(file: &dyn File, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// Pieces of any length, gaps, and places that were written before.
    #[test]
    fn what_is_written_in_any_pieces_is_read_at_once_and_lies_in_the_file_at_the_end() {
        let environment = Environment::memory();
        let (file, cached) = past_cache(&environment);
        let mut expected = vec![9; BEGIN as usize];
        let mut random = 5u64;
        for piece in 0..400u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(piece);
            let length = (random >> 33) as usize % 3000;
            let bytes = vec![(piece % 251) as u8 + 1; length];
            let (gap, back) = match piece % 7 {
                3 => ((random >> 20) as usize % 5000, 0),
                5 => (0, (random >> 20) as usize % 3000),
                _ => (0, 0),
            };
            let offset = expected.len() + gap - back;
            if length > 0 {
                file.write_at(&bytes, offset as u64).unwrap();
                let end = (offset + length).max(expected.len());
                expected.resize(end, 0);
                expected[offset..offset + length].copy_from_slice(&bytes);
            }
            match piece % 50 {
                20 => file.sync_data().unwrap(),
                40 => {
                    let cut = expected.len() - (random >> 40) as usize % 9000;
                    expected.truncate(cut.max(BEGIN as usize));
                    file.set_length(expected.len() as u64).unwrap();
                }
                _ => {}
            }
            assert_eq!(content(&file, expected.len()), expected, "piece {piece}");
            assert!(file.length().unwrap() >= expected.len() as u64);
        }
        assert_ne!(cached.length().unwrap(), BEGIN);
        file.end().unwrap();
        assert_eq!(content(&*cached, expected.len()), expected);
        file.write_at(&[1, 2, 3], 1).unwrap();
        assert_eq!(content(&*cached, 4), [9, 1, 2, 3]);
    }

    #[test]
    fn nothing_is_written_past_the_cache_but_whole_units() {
        let environment = Environment::memory();
        let (file, cached) = past_cache(&environment);
        file.write_at(&[1; 8191], BEGIN).unwrap();
        assert_eq!(cached.length().unwrap(), BEGIN, "it is held");
        file.write_at(&[2; 2], BEGIN + 8191).unwrap();
        content(&file, BEGIN as usize + 8193);
        assert_eq!(cached.length().unwrap(), BEGIN + 8192);
        file.sync_data().unwrap();
        assert_eq!(cached.length().unwrap() % 512, 0);
        assert_eq!(
            content(&*cached, BEGIN as usize + 8193)[BEGIN as usize + 8191..],
            [2, 2]
        );
    }
}
