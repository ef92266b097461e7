//! The cache of blocks, shared between trees and stores.
//!
//! What lies at a place of a table never changes, so what is cached is never
//! wrong. A table draws a number from the cache when it is opened; (number,
//! offset) is the key, so trees need not know of each other. Compactions read
//! around the cache: what they read once is not wanted again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::block::Block;

/// What an entry costs beside its bytes.
const OVERHEAD_BYTES: u64 = 64;
/// What blocks are taken for when the cache sizes its tables.
const USUAL_BLOCK_BYTES: u64 = 4096;

type Key = (u64, u64);

#[derive(Clone, Debug)]
struct Weight;

impl Weighter<Key, Block> for Weight {
    fn weight(&self, _: &Key, block: &Block) -> u64 {
        block.memory_bytes() as u64 + OVERHEAD_BYTES
    }
}

/// A cache of blocks with a bound in bytes; clones share it.
///
/// ```
/// let cache = cambium_lsm::BlockCache::new(8 << 20);
/// assert_eq!((cache.capacity_bytes(), cache.bytes()), (8 << 20, 0));
/// ```
#[derive(Clone, Debug)]
pub struct BlockCache {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    capacity: u64,
    cache: Option<Cache<Key, Block, Weight>>,
    next_table: AtomicU64,
    /// Lookups while the cache is switched off.
    misses: AtomicU64,
}

impl BlockCache {
    /// A cache of so many bytes; 0 switches it off.
    pub fn new(capacity_bytes: u64) -> Self {
        let estimated = (capacity_bytes / USUAL_BLOCK_BYTES).clamp(16, 1 << 20) as usize;
        BlockCache {
            shared: Arc::new(Shared {
                capacity: capacity_bytes,
                cache: (capacity_bytes > 0)
                    .then(|| Cache::with_weighter(estimated, capacity_bytes, Weight)),
                next_table: AtomicU64::new(0),
                misses: AtomicU64::new(0),
            }),
        }
    }

    /// Most bytes it holds.
    pub fn capacity_bytes(&self) -> u64 {
        self.shared.capacity
    }

    /// Bytes it holds now.
    pub fn bytes(&self) -> u64 {
        self.shared.cache.as_ref().map_or(0, Cache::weight)
    }

    /// Lookups that were answered, and those that were not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        match &self.shared.cache {
            Some(cache) => (cache.hits(), cache.misses()),
            None => (0, self.shared.misses.load(Ordering::Relaxed)),
        }
    }

    /// A number for a table's blocks.
    pub(crate) fn new_table(&self) -> u64 {
        self.shared.next_table.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn get(&self, table: u64, offset: u64) -> Option<Block> {
        match &self.shared.cache {
            Some(cache) => cache.get(&(table, offset)),
            None => {
                self.shared.misses.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    pub(crate) fn insert(&self, table: u64, offset: u64, block: &Block) {
        if let Some(cache) = &self.shared.cache {
            cache.insert((table, offset), block.clone());
        }
    }
}
