//! A cache of values of integer keys, found by key alone.
//!
//! A lookup in a hash table of entries costs three or four cache misses, each
//! with a walk of the page table; a value that is copied costs one. So values
//! hang on a direct-mapped array of lines, found by the low bits of the key
//! (dense keys do not push each other out while the array is as large as their
//! range), and a hit costs the line and the value:
//!
//! ```text
//!  line = key mod lines          64 bytes
//!  ┌────────┬────────┬──────────────────┬────────────────────────┐
//!  │ lock   │ key    │ sequence number  │ value, counted, or none│
//!  └────────┴────────┴──────────────────┴────────────────────────┘
//! ```
//!
//! Invariants 1, 2 and 4 of [`crate::small_values`] hold here too: a line that
//! names a key holds the value that the key's slot points at, and every reader
//! may see it. The sequence number lets snapshots use it: it is theirs if it is
//! not younger than they are.
//!
//! Bytes are bounded: past the bound a hand goes round the lines (CLOCK, Corbató
//! 1968) and lets go what was not asked for since it last came by. What is read
//! once, by a scan, is let go in the hand's next round; what is read twice stays.

use cambium_base::Value;
use cambium_io::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use cambium_io::sync::{Mutex, OnceLock, lock};

/// Lines of a chunk; chunks are allocated when a read first fills a line.
const LINES_PER_CHUNK: usize = 512;
const LINE_BYTES: u64 = 64;
const CHUNK_BYTES: u64 = LINE_BYTES * LINES_PER_CHUNK as u64;
/// Bytes of the bound for each line: values larger than this on average fill
/// the cache before they fill the lines.
const BYTES_PER_LINE: u64 = 256;
/// What a value costs beside its bytes: its count, and the allocator's part.
const OVERHEAD_BYTES: u64 = 32;
/// Values larger than this share of the bound are not kept: one of them must
/// not push out everything else.
const LARGEST_SHARE: u64 = 64;
/// Lines that one fill lets the hand pass, at most.
const MOST_STEPS: usize = 4096;

#[derive(Debug, Default)]
struct Line {
    key: u64,
    /// Twice the sequence number; odd if asked for since the hand came by.
    stamp: u64,
    value: Option<Value>,
}

type Chunk = Box<[Mutex<Line>]>;

/// The cache; see the module.
#[derive(Debug)]
pub(crate) struct KeyCache {
    chunks: Box<[OnceLock<Chunk>]>,
    /// Lines less one; lines are a power of two.
    mask: u64,
    /// The bound.
    bytes: u64,
    used: AtomicU64,
    hand: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
}

fn weight(value: &Value) -> u64 {
    value.len() as u64 + OVERHEAD_BYTES
}

impl KeyCache {
    /// A cache of at most `bytes`; none if that is less than some chunks.
    pub fn new(bytes: u64) -> Self {
        let chunks = match bytes / BYTES_PER_LINE / LINES_PER_CHUNK as u64 {
            0 => 0,
            count => 1 << count.ilog2(),
        };
        let lines = chunks as u64 * LINES_PER_CHUNK as u64;
        KeyCache {
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            mask: lines.wrapping_sub(1),
            bytes,
            used: AtomicU64::new(0),
            hand: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    fn line(&self, key: u64) -> Option<&Mutex<Line>> {
        let line = (key & self.mask) as usize;
        let chunk = self.chunks.get(line / LINES_PER_CHUNK)?.get()?;
        chunk.get(line % LINES_PER_CHUNK)
    }

    /// True if no line was ever filled.
    pub fn is_untouched(&self) -> bool {
        self.used.load(Ordering::Relaxed) == 0
    }

    /// Bytes in use, the lines counted.
    pub fn bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Hits and misses so far.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (
            self.hits.load(Ordering::Relaxed),
            self.misses.load(Ordering::Relaxed),
        )
    }

    /// The sequence number and value of a key, if it is here and no younger
    /// than `at`.
    pub fn get(&self, key: u64, at: u64) -> Option<(u64, Value)> {
        let found = self.line(key).and_then(|line| {
            let mut line = lock(line);
            let sequence = line.stamp >> 1;
            if line.key != key || sequence > at {
                return None;
            }
            line.stamp |= 1;
            Some((sequence, line.value.clone()?))
        });
        let counter = match found {
            Some(_) => &self.hits,
            None => &self.misses,
        };
        // Shared counters are written by all readers: only now and then.
        if key % 16 == 0 {
            counter.fetch_add(16, Ordering::Relaxed);
        }
        found
    }

    /// Keeps a value that was read. The caller holds the lock of the key's
    /// piece, every reader may see the value, and the slot points at it.
    /// `bound` is how many bytes may be in use now.
    pub fn fill(&self, key: u64, sequence: u64, value: &Value, bound: u64) {
        if value.len() as u64 > self.bytes / LARGEST_SHARE || self.chunks.is_empty() {
            return;
        }
        let place = (key & self.mask) as usize;
        let chunk = self.chunks[place / LINES_PER_CHUNK].get_or_init(|| {
            self.used.fetch_add(CHUNK_BYTES, Ordering::Relaxed);
            (0..LINES_PER_CHUNK).map(|_| Mutex::default()).collect()
        });
        self.used.fetch_add(weight(value), Ordering::Relaxed);
        let before = {
            let mut line = lock(&chunk[place % LINES_PER_CHUNK]);
            (line.key, line.stamp) = (key, sequence << 1);
            line.value.replace(value.clone())
        };
        self.let_go(before);
        self.make_room(bound);
    }

    /// Takes a key out: its slot changes. The caller holds the exclusive lock
    /// of its piece.
    pub fn remove(&self, key: u64) {
        self.remove_in_line(key, |found| found == key);
    }

    /// Takes the keys of a range out, under the same condition.
    pub fn remove_range(&self, first: u64, last: u64) {
        let lines = (self.chunks.len() * LINES_PER_CHUNK) as u64;
        let (mut offset, lines) = (0, lines.min((last - first).saturating_add(1)));
        while offset < lines {
            let key = first.wrapping_add(offset);
            let line = (key & self.mask) as usize;
            let is_empty = self.chunks[line / LINES_PER_CHUNK].get().is_none();
            offset += match is_empty {
                true => LINES_PER_CHUNK - line % LINES_PER_CHUNK,
                false => 1,
            } as u64;
            self.remove_in_line(key, |found| (first..=last).contains(&found));
        }
    }

    /// Takes the key out that is in the line of `key`, if `goes` says so.
    fn remove_in_line(&self, key: u64, goes: impl Fn(u64) -> bool) {
        let Some(line) = self.line(key) else { return };
        let before = {
            let mut line = lock(line);
            if !goes(line.key) {
                return;
            }
            line.value.take()
        };
        self.let_go(before);
    }

    fn let_go(&self, value: Option<Value>) {
        if let Some(value) = value {
            self.used.fetch_sub(weight(&value), Ordering::Relaxed);
        }
    }

    /// Lets values go until no more than `bound` bytes are in use, or the hand
    /// has gone far enough for one call.
    fn make_room(&self, bound: u64) {
        let lines = self.chunks.len() * LINES_PER_CHUNK;
        let mut steps = 0;
        while self.used.load(Ordering::Relaxed) > bound && steps < MOST_STEPS {
            steps += 1;
            let at = self.hand.fetch_add(1, Ordering::Relaxed) % lines;
            let Some(chunk) = self.chunks[at / LINES_PER_CHUNK].get() else {
                // On to the next chunk.
                let rest = LINES_PER_CHUNK - at % LINES_PER_CHUNK;
                self.hand.fetch_add(rest - 1, Ordering::Relaxed);
                continue;
            };
            let before = {
                let mut line = lock(&chunk[at % LINES_PER_CHUNK]);
                if line.stamp & 1 == 1 {
                    line.stamp &= !1;
                    None
                } else {
                    line.value.take()
                }
            };
            self.let_go(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: u64 = 1 << 20;

    fn value(byte: u8, length: usize) -> Value {
        Value::from(vec![byte; length])
    }

    #[test]
    fn a_line_has_the_size_that_it_is_counted_with() {
        assert_eq!(size_of::<Mutex<Line>>() as u64, LINE_BYTES);
    }

    #[test]
    fn a_line_answers_for_its_key_and_for_whoever_is_old_enough() {
        let cache = KeyCache::new(BOUND);
        assert!(cache.is_untouched());
        assert_eq!(cache.get(5, u64::MAX), None);
        cache.fill(5, 70, &value(1, 100), BOUND);
        assert_eq!(cache.get(5, 70), Some((70, value(1, 100))));
        assert_eq!(cache.get(5, 69), None, "a snapshot before it");
        let lines = cache.mask + 1;
        assert_eq!(cache.get(5 + lines, u64::MAX), None);
        cache.remove(5 + lines);
        assert!(cache.get(5, u64::MAX).is_some());
        cache.fill(5 + lines, 71, &value(2, 100), BOUND);
        assert_eq!(cache.get(5, u64::MAX), None);
        cache.remove_range(5, 4 + lines);
        assert!(cache.get(5 + lines, u64::MAX).is_some());
        cache.remove_range(6, 2 * lines);
        assert_eq!(cache.get(5 + lines, u64::MAX), None);
        assert_eq!(cache.bytes(), CHUNK_BYTES);
    }

    #[test]
    fn bytes_are_bounded_and_what_is_asked_for_stays() {
        let cache = KeyCache::new(BOUND);
        let others = |key: &u64| *key == 7 || *key % (cache.mask + 1) != 7;
        for key in (0..100_000).filter(others) {
            cache.fill(key, 1, &value(3, 1000), BOUND);
            assert!(cache.get(7, 1).is_some() || key < 7, "key 7 after {key}");
            assert!(cache.bytes() <= BOUND, "{} bytes", cache.bytes());
        }
        assert!(cache.bytes() > BOUND / 2);
        cache.fill(7, 1, &value(4, BOUND as usize / 32), BOUND);
        assert_eq!(cache.get(7, 1), Some((1, value(3, 1000))), "too large");
    }

    #[test]
    fn a_cache_of_nothing_keeps_nothing() {
        let cache = KeyCache::new(100);
        cache.fill(1, 1, &value(1, 1), 100);
        cache.remove(1);
        assert_eq!((cache.get(1, 1), cache.bytes()), (None, 0));
    }
}
