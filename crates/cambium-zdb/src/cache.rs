//! The cache of entries: hot buckets of string keys, and values.
//!
//! Values of integer keys that fit in a word or two have a cheaper place of
//! their own ([`crate::small_values`]); both share one bound in bytes, of which
//! small values take up to half, and leave it to the others until they do.
//!
//! What lies at a position of a file never changes, so a cached entry is never
//! wrong and never needs to be taken out; it is only pushed out. Keys are
//! (file number, position). The cache is sharded and scan-resistant
//! (`quick_cache`), and bounded in bytes.

use cambium_base::Value;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::data_file::{DataFile, ReadEntry};
use crate::options::Keys;
use crate::small_values::{LONGEST_BYTES, SmallValues};

/// Entries larger than this share of the cache are not kept: one of them must
/// not push out everything else.
const LARGEST_SHARE: u64 = 64;
/// What an entry costs beside its value.
const OVERHEAD_BYTES: u64 = 96;

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
    cache: Option<Cache<Key, ReadEntry, Weight>>,
    small: SmallValues,
    bytes: u64,
}

impl EntryCache {
    /// A cache of `bytes`; none for 0.
    pub fn new(bytes: u64, keys: Keys) -> Self {
        let estimated = (bytes / 256).clamp(16, 1 << 20) as usize;
        let for_small = match keys {
            Keys::Integer => bytes / 2,
            Keys::String => 0,
        };
        EntryCache {
            cache: (bytes > 0).then(|| Cache::with_weighter(estimated, bytes, Weight)),
            small: SmallValues::new(for_small),
            bytes,
        }
    }

    /// The entry at a position of a file, if it is cached.
    pub fn get(&self, file_number: u64, position: u64) -> Option<ReadEntry> {
        self.cache.as_ref()?.get(&(file_number, position))
    }

    /// Offers an entry.
    pub fn put(&self, file: &DataFile, position: u64, entry: &ReadEntry) {
        if let Some(cache) = &self.cache {
            if (entry.value.len() as u64) <= self.bytes / LARGEST_SHARE {
                cache.insert((file.file.number.0, position), entry.clone());
            }
        }
    }

    /// The newest value of a key, if it is a small one and cached.
    pub fn get_small(&self, key: u64) -> Option<Value> {
        self.small.get(key)
    }

    /// True if any small value may be cached.
    pub fn has_small(&self) -> bool {
        self.small.bytes() > 0
    }

    /// True if a value belongs to the small ones.
    pub fn takes_small(&self, value: &[u8]) -> bool {
        !self.small.is_off() && value.len() <= LONGEST_BYTES
    }

    /// Keeps a small value that was read. The caller holds the lock of the
    /// key's piece, every reader may see the value, and the slot points at it.
    pub fn fill_small(&self, key: u64, value: &[u8]) {
        if self.small.fill(key, value) {
            if let Some(cache) = &self.cache {
                cache.set_capacity(self.bytes.saturating_sub(self.small.bytes()));
            }
        }
    }

    /// Keeps the value that was written true where it is cached; see
    /// [`SmallValues::update`].
    pub fn update_small(&self, key: u64, value: &[u8]) {
        self.small.update(key, value);
    }

    /// Forgets a key: its slot changes. The caller holds the exclusive lock of
    /// the key's piece.
    pub fn remove_small(&self, key: u64) {
        self.small.remove(key);
    }

    /// Bytes in use.
    pub fn bytes(&self) -> u64 {
        self.small.bytes() + self.cache.as_ref().map_or(0, |cache| cache.weight())
    }

    /// Hits and misses so far, small values not counted.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        self.cache
            .as_ref()
            .map_or((0, 0), |cache| (cache.hits(), cache.misses()))
    }
}
