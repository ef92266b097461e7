//! The caches of a store, under one bound in bytes.
//!
//! | keys | what is cached | where |
//! |---|---|---|
//! | integers | values of up to 8 bytes | [`crate::small_values`], up to half of the bound |
//! | integers | larger values | [`crate::key_cache`], what the small ones leave |
//! | strings | hot buckets (ZDB, section II.E) | here, by position |
//!
//! What lies at a position of a file never changes, so a bucket cached by its
//! position is never wrong and never needs to be taken out; it is only pushed
//! out. Its keys are (file number, position); it is sharded and scan-resistant
//! (`quick_cache`).

use cambium_base::{SequenceNumber, Value};
use cambium_io::sync::atomic::{AtomicU64, Ordering};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::data_file::{DataFile, ReadEntry};
use crate::key_cache::KeyCache;
use crate::options::Keys;
use crate::small_values::{LONGEST_BYTES, SmallValues};

/// Buckets larger than this share of the cache are not kept: one of them must
/// not push out everything else.
const LARGEST_SHARE: u64 = 64;
/// What an entry costs beside its value.
const OVERHEAD_BYTES: u64 = 96;

/// Bits for blocks that small values were read from, 8 KiB.
const MET_BLOCKS: u64 = 1 << 16;
/// Spreads the blocks of several files over them.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

type Key = (u64, u64);

#[derive(Clone, Debug)]
struct Weight;

impl Weighter<Key, ReadEntry> for Weight {
    fn weight(&self, _: &Key, entry: &ReadEntry) -> u64 {
        entry.value.len() as u64 + OVERHEAD_BYTES
    }
}

/// The cache of one store.
#[derive(Debug)]
pub(crate) struct EntryCache {
    /// Of string keys.
    buckets: Option<Cache<Key, ReadEntry, Weight>>,
    small: SmallValues,
    values: KeyCache,
    /// A bit for each block of the files, by its number: a small value was read there.
    met_blocks: Box<[AtomicU64]>,
    bytes: u64,
}

impl EntryCache {
    /// A cache of `bytes`; none for 0.
    pub fn new(bytes: u64, keys: Keys) -> Self {
        let estimated = (bytes / 256).clamp(16, 1 << 20) as usize;
        let (for_buckets, for_values) = match keys {
            Keys::Integer => (0, bytes),
            Keys::String => (bytes, 0),
        };
        EntryCache {
            buckets: (for_buckets > 0).then(|| Cache::with_weighter(estimated, bytes, Weight)),
            small: SmallValues::new(for_values / 2),
            values: KeyCache::new(for_values),
            met_blocks: (0..MET_BLOCKS / 64).map(|_| AtomicU64::new(0)).collect(),
            bytes,
        }
    }

    /// The bucket at a position of a file, if it is cached.
    pub fn get(&self, file: &DataFile, position: u64) -> Option<ReadEntry> {
        self.buckets.as_ref()?.get(&(file.file.number.0, position))
    }

    /// Offers a bucket.
    pub fn put(&self, file: &DataFile, position: u64, entry: &ReadEntry) {
        if let Some(cache) = &self.buckets {
            if (entry.value.len() as u64) <= self.bytes / LARGEST_SHARE {
                cache.insert((file.file.number.0, position), entry.clone());
            }
        }
    }

    /// The newest value of an integer key, if it is cached.
    pub fn newest(&self, key: u64) -> Option<Value> {
        if let Some(value) = self.small.get(key) {
            return Some(value);
        }
        Some(self.values.get(key, u64::MAX)?.1)
    }

    /// The entry of an integer key as of a sequence number, if it is cached;
    /// small values are not, their lines hold no number.
    pub fn version(&self, key: u64, at: u64) -> Option<ReadEntry> {
        let (sequence, value) = self.values.get(key, at)?;
        Some(ReadEntry {
            sequence: SequenceNumber(sequence),
            value,
        })
    }

    /// Keeps the value of an integer key that was read. The caller holds the
    /// lock of the key's piece, every reader may see the value, and the slot
    /// points at it.
    pub fn fill(&self, key: u64, entry: &ReadEntry) {
        if entry.value.len() <= LONGEST_BYTES && !self.small.is_off() {
            self.fill_small(key, &entry.value);
        } else {
            let bound = self.bytes.saturating_sub(self.small.bytes());
            self.values.fill(key, entry.sequence.0, &entry.value, bound);
        }
    }

    /// The same for a value of at most [`LONGEST_BYTES`].
    pub fn fill_small(&self, key: u64, value: &[u8]) {
        self.small.fill(key, value);
    }

    /// Notes that a small value was read in a block of a file; true at every second call of a
    /// block. Blocks may share a bit.
    pub fn meets_again(&self, file: &DataFile, block: u64) -> bool {
        let number = file.file.number.0.wrapping_mul(SPREAD).wrapping_add(block);
        let (word, bit) = (number % MET_BLOCKS / 64, 1 << (number % 64));
        self.met_blocks[word as usize].fetch_xor(bit, Ordering::Relaxed) & bit != 0
    }

    /// True if each of the first so many keys has a line of its own for a small value.
    pub fn has_lines_for(&self, keys: u64) -> bool {
        keys <= self.small.lines()
    }

    /// True if any value of an integer key may be cached.
    pub fn has_values(&self) -> bool {
        self.small.bytes() > 0 || !self.values.is_untouched()
    }

    /// Keeps what was written true where it is cached; the caller is the writer,
    /// as [`SmallValues::update`] and [`KeyCache::remove`] ask for.
    pub fn update(&self, key: u64, value: &[u8]) {
        self.small.update(key, value);
        self.values.remove(key);
    }

    /// Forgets a key: its slot changes. The caller holds the exclusive lock of
    /// the key's piece.
    pub fn remove(&self, key: u64) {
        self.small.remove(key);
        self.values.remove(key);
    }

    /// Forgets the keys of a range, under the same condition. Takes time for each key or each
    /// line, whichever are fewer.
    pub fn remove_range(&self, first: u64, last: u64) {
        self.small.remove_range(first, last);
        self.values.remove_range(first, last);
    }

    /// Bytes in use.
    pub fn bytes(&self) -> u64 {
        let buckets = self.buckets.as_ref().map_or(0, |cache| cache.weight());
        self.small.bytes() + self.values.bytes() + buckets
    }

    /// Hits and misses so far, small values not counted; of values of integer
    /// keys about, by one key in sixteen.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        match &self.buckets {
            Some(cache) => (cache.hits(), cache.misses()),
            None => self.values.hits_and_misses(),
        }
    }
}
