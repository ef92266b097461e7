//! A cache of values of up to 8 bytes, of integer keys: counters, references,
//! flags. A hit costs one cache line and no lock.
//!
//! The cache is a direct-mapped array of lines. A key's line is its low bits,
//! so dense keys never push each other out while the array is as large as
//! their range:
//!
//! ```text
//!  line = key mod lines
//!  ┌─────────────┬─────────────┐
//!  │ control     │ value       │   16 bytes
//!  └─────────────┴─────────────┘
//!  control: version (24 bits, odd while the line changes) |
//!           tag: key / lines (32) | length + 1 (8)
//! ```
//!
//! Invariants:
//!
//! 1. A line that names a key holds the value that the key's slot points at, so
//!    a reader need not look at the slot. A writer that changes a slot changes the
//!    line under the same exclusive lock of the slot's piece
//!    ([`SmallValues::update`], [`SmallValues::remove`]); a reader inserts the
//!    value that it has read under the shared lock, after another look at the slot.
//! 2. Only values that every reader may see are in lines: a batch on its way
//!    takes keys out, and what it wrote comes in by later reads.
//! 3. A reader that meets a change of the line takes it for a miss (a sequence
//!    lock: the version is read before and after).
//! 4. Two threads that change one line speak of different pieces, so of
//!    different keys. The second leaves the line to the first, who writes
//!    another key into it or takes it out: either way the second one's key is
//!    not in it.
//!
//! The value is one word, so no reader sees half of one; the version is there for
//! the pair of key and value. It would have to go round, 8 million changes, between
//! two loads of one reader to be taken for unchanged.
//!
//! A control word whose length is 0 is a line without a key; keys beyond 2^32
//! times the lines have no place. The array comes in
//! chunks of 4,096 lines, allocated when a *read* first fills one of them: opening
//! a store costs nothing, and neither do writes of keys that are never read. Where
//! readers have been, writes keep the lines true.

use cambium_base::Value;
use cambium_io::sync::OnceLock;
use cambium_io::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// Longer values are not kept here.
pub(crate) const LONGEST_BYTES: usize = 8;
const LINE_BYTES: u64 = 16;
const LINES_PER_CHUNK: usize = 4096;
const CHUNK_BYTES: u64 = LINE_BYTES * LINES_PER_CHUNK as u64;

const LENGTH_MASK: u64 = 0xff;
const TAG_SHIFT: u32 = 8;
const LARGEST_TAG: u64 = u32::MAX as u64;
const VERSION_SHIFT: u32 = 40;
/// The lowest bit of the version.
const CHANGING: u64 = 1 << VERSION_SHIFT;
/// Everything but the version.
const CONTENT_MASK: u64 = CHANGING - 1;

type Line = [AtomicU64; 2];

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

    /// How many lines there are.
    pub fn lines(&self) -> u64 {
        self.chunks.len() as u64 * LINES_PER_CHUNK as u64
    }

    /// Bytes allocated so far.
    pub fn bytes(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed) as u64 * CHUNK_BYTES
    }

    fn place(&self, key: u64) -> (usize, usize) {
        let line = (key & self.mask) as usize;
        (line / LINES_PER_CHUNK, line % LINES_PER_CHUNK)
    }

    /// The key's part of the control word.
    fn tag(&self, key: u64) -> Option<u64> {
        let tag = key >> self.bits;
        (tag <= LARGEST_TAG).then_some(tag << TAG_SHIFT)
    }

    /// The value of a key, if it is here.
    #[inline]
    pub fn get(&self, key: u64) -> Option<Value> {
        let (chunk, line) = self.place(key);
        let line = &self.chunks.get(chunk)?.get()?[line];
        let control = line[0].load(Ordering::Acquire);
        let value = line[1].load(Ordering::Relaxed).to_le_bytes();
        fence(Ordering::Acquire);
        let unchanged = line[0].load(Ordering::Relaxed) == control;
        let same = control & CONTENT_MASK & !LENGTH_MASK == self.tag(key)?;
        if !unchanged || control & CHANGING != 0 || !same {
            return None;
        }
        let length = ((control & LENGTH_MASK) as usize).checked_sub(1)?;
        value.get(..length).map(Value::copy_of)
    }

    /// Gives a key the value that was read, if it is short enough. The caller
    /// holds the lock of the key's piece: see the invariants. Answers true if
    /// memory was allocated.
    pub fn fill(&self, key: u64, value: &[u8]) -> bool {
        let (chunk, line) = self.place(key);
        let (Some(cell), Some(tag)) = (self.chunks.get(chunk), self.tag(key)) else {
            return false;
        };
        if value.len() > LONGEST_BYTES {
            return false;
        }
        let mut allocated = false;
        let chunk = cell.get_or_init(|| {
            allocated = true;
            self.allocated.fetch_add(1, Ordering::Relaxed);
            (0..LINES_PER_CHUNK).map(|_| Line::default()).collect()
        });
        store(&chunk[line], tag, value);
        allocated
    }

    /// Gives a key its new value where readers have been, or takes it out if
    /// the value is longer than lines hold. The caller holds the exclusive lock
    /// of the key's piece, or is the writer after the key became visible.
    pub fn update(&self, key: u64, value: &[u8]) {
        if value.len() > LONGEST_BYTES {
            return self.remove(key);
        }
        let (chunk, line) = self.place(key);
        let chunk = self.chunks.get(chunk).and_then(OnceLock::get);
        if let (Some(chunk), Some(tag)) = (chunk, self.tag(key)) {
            store(&chunk[line], tag, value);
        }
    }

    /// Takes a key out. The caller holds the exclusive lock of its piece.
    pub fn remove(&self, key: u64) {
        self.remove_in_line(key, |found| found == key);
    }

    /// Takes the keys of a range out. The caller holds the exclusive locks of their pieces.
    pub fn remove_range(&self, first: u64, last: u64) {
        let (mut offset, lines) = (0, self.lines().min((last - first).saturating_add(1)));
        while offset < lines {
            let key = first.wrapping_add(offset);
            let (chunk, line) = self.place(key);
            let is_empty = self.chunks[chunk].get().is_none();
            offset += match is_empty {
                true => LINES_PER_CHUNK - line,
                false => 1,
            } as u64;
            self.remove_in_line(key, |found| (first..=last).contains(&found));
        }
    }

    /// Takes the key out that is in the line of `key`, if `goes` says so.
    fn remove_in_line(&self, key: u64, goes: impl Fn(u64) -> bool) {
        let (chunk, line) = self.place(key);
        let Some(chunk) = self.chunks.get(chunk).and_then(OnceLock::get) else {
            return;
        };
        // No other thread can put the key in now, so it is enough to look.
        let found = chunk[line][0].load(Ordering::Relaxed) & CONTENT_MASK;
        let tag = found >> TAG_SHIFT;
        if found & LENGTH_MASK != 0 && goes(tag << self.bits | key & self.mask) {
            change(&chunk[line], |_| 0);
        }
    }
}

fn store(line: &Line, tag: u64, value: &[u8]) {
    let mut bytes = [0; LONGEST_BYTES];
    bytes[..value.len()].copy_from_slice(value);
    change(line, |line| {
        line[1].store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        tag | (value.len() as u64 + 1)
    });
}

/// Changes a line, unless another thread is about to; `work` answers the new
/// control word but for its version.
fn change(line: &Line, work: impl FnOnce(&Line) -> u64) {
    let before = line[0].load(Ordering::Relaxed);
    let taken = before & CHANGING == 0
        && line[0]
            .compare_exchange(
                before,
                before | CHANGING,
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok();
    if taken {
        // A reader that sees the store of the value sees the odd version too.
        fence(Ordering::Release);
        let content = work(line);
        let next = (before & !CONTENT_MASK).wrapping_add(2 * CHANGING);
        line[0].store(next | content, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_answers_for_its_key_alone() {
        let cache = SmallValues::new(1 << 20);
        assert_eq!(cache.get(5), None);
        assert!(cache.fill(5, b"five"));
        assert!(!cache.fill(6, b""));
        assert_eq!(cache.get(5).as_deref(), Some(&b"five"[..]));
        assert_eq!(cache.get(6).as_deref(), Some(&b""[..]));
        // Another key of the same line.
        let lines = (1 << 20) / LINE_BYTES;
        assert_eq!(cache.get(5 + lines), None);
        cache.remove(5 + lines);
        assert_eq!(cache.get(5).as_deref(), Some(&b"five"[..]));
        cache.update(5 + lines, &[9; 8]);
        assert_eq!(cache.get(5), None);
        assert_eq!(cache.get(5 + lines).as_deref(), Some(&[9; 8][..]));
        cache.remove(5 + lines);
        assert_eq!(cache.get(5 + lines), None);
        // Ranges that hold one of the keys of a line, or neither.
        cache.fill(5, b"five");
        cache.remove_range(6, 4 + lines);
        assert!(cache.get(5).is_some());
        cache.remove_range(0, 2 * lines);
        assert_eq!(cache.get(5), None);
        // A key that has no place.
        assert!(!cache.fill(u64::MAX, b"last"));
        cache.update(u64::MAX, b"last");
        cache.remove(u64::MAX);
        assert_eq!(cache.get(u64::MAX), None);
    }

    #[test]
    fn a_long_value_takes_the_short_one_out() {
        let cache = SmallValues::new(1 << 20);
        cache.update(1, b"unread");
        assert_eq!((cache.get(1), cache.bytes()), (None, 0));
        cache.fill(1, b"short");
        cache.update(1, b"new");
        assert_eq!(cache.get(1).as_deref(), Some(&b"new"[..]));
        cache.update(1, &[0; 9]);
        assert_eq!(cache.get(1), None);
        cache.fill(1, &[0; 9]);
        assert_eq!(cache.get(1), None);
        let none = SmallValues::new(100);
        assert!(none.is_off() && !none.fill(1, b"x"));
        none.remove(1);
        assert_eq!((none.get(1), none.bytes()), (None, 0));
    }

    #[test]
    fn readers_meet_whole_values_while_a_line_changes() {
        let cache = SmallValues::new(CHUNK_BYTES);
        let lines = LINES_PER_CHUNK as u64;
        std::thread::scope(|scope| {
            for writer in 0..2u64 {
                let cache = &cache;
                scope.spawn(move || {
                    let key = 7 + writer * lines;
                    for round in 0..20_000u64 {
                        let byte = (round as u8) & 0x7f | (writer as u8) << 7;
                        cache.fill(key, &[byte; 8]);
                    }
                });
            }
            for round in 0..20_000u64 {
                let writer = round % 2;
                if let Some(value) = cache.get(7 + writer * lines) {
                    assert_eq!(u64::from(value[0] >> 7), writer);
                    assert!(value.iter().all(|byte| *byte == value[0]));
                }
            }
        });
    }
}
