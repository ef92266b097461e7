//! A cache of entries: hot buckets of string keys, and small values.
//!
//! What lies at a position of a file never changes, so a cached entry is never
//! wrong and never needs to be taken out; it is only pushed out. Keys are
//! (file number, position). The cache is sharded and scan-resistant
//! (`quick_cache`), and bounded in bytes.

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::data_file::{DataFile, ReadEntry};

/// Entries larger than this are not cached: reading them costs the device,
/// not the processor.
const LARGEST_BYTES: usize = 16 << 10;
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
}

impl EntryCache {
    /// A cache of `bytes`; none for 0.
    pub fn new(bytes: u64) -> Self {
        let estimated = (bytes / 256).clamp(16, 1 << 20) as usize;
        EntryCache {
            cache: (bytes > 0).then(|| Cache::with_weighter(estimated, bytes, Weight)),
        }
    }

    /// The entry at a position, if it is cached.
    pub fn get(&self, file: &DataFile, position: u64) -> Option<ReadEntry> {
        self.cache.as_ref()?.get(&(file.file.number.0, position))
    }

    /// Offers an entry.
    pub fn put(&self, file: &DataFile, position: u64, entry: &ReadEntry) {
        if let Some(cache) = &self.cache {
            if entry.value.len() <= LARGEST_BYTES {
                cache.insert((file.file.number.0, position), entry.clone());
            }
        }
    }

    /// Bytes in use.
    pub fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, |cache| cache.weight())
    }

    /// Hits and misses so far.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        self.cache
            .as_ref()
            .map_or((0, 0), |cache| (cache.hits(), cache.misses()))
    }
}
