//! A cache of values of up to 16 bytes, of integer keys: counters, references,
//! flags. A hit costs one cache line and no lock.
//!
//! The cache is a direct-mapped array of lines. A key's line is its low bits,
//! so dense keys never push each other out while the array is as large as
//! their range:
//!
//! ```text
//!  line = key mod lines
//!  ┌─────────────┬─────────────┬─────────────┬─────────────┐
//!  │ control     │ place       │ value 0..8  │ value 8..16 │   32 bytes
//!  └─────────────┴─────────────┴─────────────┴─────────────┘
//!  control: version (32 bits, odd while it changes) | generation of the data
//!           file (24) | length + 1 (8)
//!  place:   tag: key / lines (16) | position of the entry (48)
//! ```
//!
//! Invariants:
//!
//! 1. A line speaks of the entry at (key, generation of the data file,
//!    position). What lies there never changes, so a line is never wrong, only
//!    useless once the slot points elsewhere; nobody has to take it out.
//! 2. Only entries that every reader may see are offered.
//! 3. A reader that meets a change of the line takes it for a miss (a sequence
//!    lock: the version is read before and after).
//!
//! A control word that is 0 is a line that was never filled. The array comes in
//! chunks, allocated when first written, so that opening a store costs nothing.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use cambium_base::Value;

/// Longer values are not kept here.
pub(crate) const LONGEST_BYTES: usize = 16;
const LINE_BYTES: u64 = 32;
const LINES_PER_CHUNK: usize = 2048;
const CHUNK_BYTES: u64 = LINE_BYTES * LINES_PER_CHUNK as u64;

const VERSION_SHIFT: u32 = 32;
const VERSION_MASK: u64 = u32::MAX as u64;
const GENERATION_SHIFT: u32 = 8;
const LARGEST_GENERATION: u32 = (1 << 24) - 1;
const POSITION_BITS: u32 = 48;
const LARGEST_TAG: u64 = u16::MAX as u64;
/// Everything of the control word but the version.
const CONTENT_MASK: u64 = VERSION_MASK;

type Line = [AtomicU64; 4];

/// The cache; see the module.
#[derive(Debug)]
pub(crate) struct SmallValues {
    chunks: Box<[OnceLock<Box<[Line]>>]>,
    /// Lines less one; lines are a power of two.
    mask: u64,
    bits: u32,
    allocated: AtomicUsize,
}

impl SmallValues {
    /// A cache of at most `bytes`, rounded down to a power of two; none below
    /// one chunk.
    pub fn new(bytes: u64) -> Self {
        let chunks = match bytes / CHUNK_BYTES {
            0 => 0,
            count => 1 << count.ilog2(),
        };
        let lines = chunks as u64 * LINES_PER_CHUNK as u64;
        SmallValues {
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            mask: lines.wrapping_sub(1),
            bits: lines.checked_ilog2().unwrap_or(0),
            allocated: AtomicUsize::new(0),
        }
    }

    /// True if there is no line at all.
    pub fn is_off(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes allocated so far.
    pub fn bytes(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed) as u64 * CHUNK_BYTES
    }

    fn place(&self, key: u64) -> (usize, usize) {
        let line = (key & self.mask) as usize;
        (line / LINES_PER_CHUNK, line % LINES_PER_CHUNK)
    }

    /// The word that names an entry; `None` if its key is so far from the
    /// others, or its position so large, that it has no place in it.
    fn place_word(&self, key: u64, position: u64) -> Option<u64> {
        let tag = key >> self.bits;
        (tag <= LARGEST_TAG && position >> POSITION_BITS == 0)
            .then_some(tag << POSITION_BITS | position)
    }

    /// The value of a key whose slot says `generation` and `position`.
    pub fn get(&self, key: u64, generation: u32, position: u64) -> Option<Value> {
        let (chunk, line) = self.place(key);
        let line = &self.chunks.get(chunk)?.get()?[line];
        let control = line[0].load(Ordering::Acquire);
        let sought = self.place_word(key, position)?;
        let found = line[1].load(Ordering::Relaxed);
        let low = line[2].load(Ordering::Relaxed).to_le_bytes();
        let high = line[3].load(Ordering::Relaxed).to_le_bytes();
        fence(Ordering::Acquire);
        let unchanged = line[0].load(Ordering::Relaxed) == control;
        let changing = control >> VERSION_SHIFT & 1 == 1;
        let same = (control & CONTENT_MASK) >> GENERATION_SHIFT == u64::from(generation);
        if !unchanged || changing || !same || found != sought {
            return None;
        }
        let length = ((control & 0xff) as usize).checked_sub(1)?;
        let mut bytes = [0; LONGEST_BYTES];
        bytes[..8].copy_from_slice(&low);
        bytes[8..].copy_from_slice(&high);
        bytes.get(..length).map(Value::copy_of)
    }

    /// Offers the value at a position; a line that another thread is changing
    /// is left to it. Answers true if memory was allocated.
    pub fn put(&self, key: u64, generation: u32, position: u64, value: &[u8]) -> bool {
        if value.len() > LONGEST_BYTES || generation > LARGEST_GENERATION {
            return false;
        }
        let Some(place) = self.place_word(key, position) else {
            return false;
        };
        let content = u64::from(generation) << GENERATION_SHIFT | (value.len() as u64 + 1);
        let (chunk, line) = self.place(key);
        let Some(cell) = self.chunks.get(chunk) else {
            return false;
        };
        let mut allocated = false;
        let chunk = cell.get_or_init(|| {
            allocated = true;
            self.allocated.fetch_add(1, Ordering::Relaxed);
            (0..LINES_PER_CHUNK).map(|_| Line::default()).collect()
        });
        let line = &chunk[line];
        let before = line[0].load(Ordering::Relaxed);
        let version = before >> VERSION_SHIFT;
        let changing = (before & CONTENT_MASK) | (version | 1) << VERSION_SHIFT;
        let taken = version & 1 == 0
            && line[0]
                .compare_exchange(before, changing, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !taken {
            return allocated;
        }
        let mut bytes = [0; LONGEST_BYTES];
        bytes[..value.len()].copy_from_slice(value);
        let (low, high) = bytes.split_at(8);
        // A reader that sees one of these sees the odd version too.
        fence(Ordering::Release);
        line[1].store(place, Ordering::Relaxed);
        line[2].store(cambium_base::coding::u64_at(low, 0), Ordering::Relaxed);
        line[3].store(cambium_base::coding::u64_at(high, 0), Ordering::Relaxed);
        let next = version.wrapping_add(2) & VERSION_MASK;
        line[0].store(content | next << VERSION_SHIFT, Ordering::Release);
        allocated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_answers_for_its_entry_alone() {
        let cache = SmallValues::new(1 << 20);
        assert_eq!(cache.get(5, 0, 64), None);
        assert!(cache.put(5, 0, 64, b"five"));
        assert!(!cache.put(6, 0, 64, b""));
        assert_eq!(cache.get(5, 0, 64).as_deref(), Some(&b"five"[..]));
        assert_eq!(cache.get(6, 0, 64).as_deref(), Some(&b""[..]));
        // Another position, another generation, another key of the same line.
        assert_eq!(cache.get(5, 0, 128), None);
        assert_eq!(cache.get(5, 1, 64), None);
        let lines = (1 << 20) / LINE_BYTES;
        assert_eq!(cache.get(5 + lines, 0, 64), None);
        cache.put(5 + lines, 0, 64, &[9; 16]);
        assert_eq!(cache.get(5, 0, 64), None);
        assert_eq!(cache.get(5 + lines, 0, 64).as_deref(), Some(&[9; 16][..]));
    }

    #[test]
    fn what_has_no_place_is_not_kept() {
        let cache = SmallValues::new(1 << 20);
        cache.put(u64::MAX, 0, 64, b"far");
        assert_eq!(cache.get(u64::MAX, 0, 64), None);
        cache.put(1, u32::MAX, 64, b"late");
        assert_eq!(cache.get(1, u32::MAX, 64), None);
        cache.put(1, 0, 64, &[0; 17]);
        assert_eq!(cache.get(1, 0, 64), None);
        let none = SmallValues::new(100);
        assert!(!none.put(1, 0, 64, b"x"));
        assert_eq!((none.get(1, 0, 64), none.bytes()), (None, 0));
    }

    #[test]
    fn readers_meet_whole_values_while_a_line_changes() {
        let cache = SmallValues::new(CHUNK_BYTES);
        std::thread::scope(|scope| {
            for writer in 1..3u8 {
                let cache = &cache;
                scope.spawn(move || {
                    for round in 0..20_000u64 {
                        let byte = writer.wrapping_mul(round as u8);
                        cache.put(7, 0, u64::from(byte), &[byte; 16]);
                    }
                });
            }
            for round in 0..20_000u64 {
                let position = round % 256;
                if let Some(value) = cache.get(7, 0, position) {
                    assert_eq!(&*value, &[position as u8; 16]);
                }
            }
        });
    }
}
