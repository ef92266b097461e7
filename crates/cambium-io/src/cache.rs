//! One cache of verified or raw blocks for all stores of an environment.
//!
//! What is cached never changes: files that are written once and then only
//! read. So a block is never wrong, only pushed out. The cache is sharded, bounded
//! in bytes and scan-resistant (`quick_cache`: what is asked for twice is not
//! pushed out by what is asked for once).
//!
//! A file that takes part has an identity of its own ([`CachedFile`]), given out
//! anew at each opening, so what an earlier file of the same name left behind is
//! never found. It counts its own hits and misses.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use foldhash::fast::FixedState;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::counter::StripedCounter;

/// Bytes of the cache of an environment, unless one of another size is put in
/// its place.
pub const DEFAULT_CACHE_BYTES: u64 = 64 << 20;

/// What an entry costs beside its bytes: its key, its place in the tables, and
/// what the allocator adds.
const OVERHEAD_BYTES: u64 = 112;
/// A block of common size: what the tables are laid out for.
const COMMON_BLOCK_BYTES: u64 = 4096;

/// Cached bytes, shared with whoever was answered with them.
pub type Block = Arc<[u8]>;

/// The file's identity, and a place of the file's owner's choosing.
type Key = (u64, u64);

#[derive(Clone, Debug)]
struct Weight;

impl quick_cache::Weighter<Key, Block> for Weight {
    fn weight(&self, _: &Key, block: &Block) -> u64 {
        block.len() as u64 + OVERHEAD_BYTES
    }
}

type Blocks = Cache<Key, Block, Weight, FixedState, DefaultLifecycle<Key, Block>>;

/// A cache of blocks, bounded in bytes.
///
/// ```
/// use cambium_io::cache::BlockCache;
/// let cache = BlockCache::new(1 << 20);
/// let file = cache.file();
/// file.put(7, &[1, 2, 3].into());
/// assert_eq!(file.get(7).as_deref(), Some(&[1, 2, 3][..]));
/// assert!(cache.file().get(7).is_none(), "another file");
/// ```
pub struct BlockCache {
    capacity: u64,
    /// Made at first use.
    blocks: OnceLock<Blocks>,
    next_file: AtomicU64,
}

impl BlockCache {
    /// An empty cache of so many bytes; 0 keeps nothing.
    pub fn new(capacity: u64) -> Arc<Self> {
        Arc::new(BlockCache {
            capacity,
            blocks: OnceLock::new(),
            next_file: AtomicU64::new(0),
        })
    }

    /// Bytes that it holds at most.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> u64 {
        self.blocks.get().map_or(0, Cache::weight)
    }

    /// An identity for a file that was opened.
    pub fn file(self: &Arc<Self>) -> CachedFile {
        CachedFile {
            cache: self.clone(),
            file: self.next_file.fetch_add(1, Ordering::Relaxed),
            hits: StripedCounter::default(),
            misses: StripedCounter::default(),
        }
    }

    fn blocks(&self) -> &Blocks {
        self.blocks.get_or_init(|| {
            let expected = (self.capacity / COMMON_BLOCK_BYTES).clamp(16, 1 << 20);
            let hasher = FixedState::with_seed(0); // its keys are numbers of ours
            let lifecycle = DefaultLifecycle::default();
            Cache::with(expected as usize, self.capacity, Weight, hasher, lifecycle)
        })
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache")
            .field("capacity", &self.capacity)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// A file's part of a cache. Dropping it takes its blocks out.
#[derive(Debug)]
pub struct CachedFile {
    cache: Arc<BlockCache>,
    file: u64,
    hits: StripedCounter,
    misses: StripedCounter,
}

impl CachedFile {
    /// True if nothing is kept at all.
    pub fn is_off(&self) -> bool {
        self.cache.capacity == 0
    }

    /// The block at a place, if it is cached. Counted as a hit or a miss.
    pub fn get(&self, place: u64) -> Option<Block> {
        if self.is_off() {
            return None;
        }
        let found = self.cache.blocks().get(&(self.file, place));
        match found {
            Some(_) => self.hits.add(1),
            None => self.misses.add(1),
        }
        found
    }

    /// Offers a block.
    pub fn put(&self, place: u64, block: &Block) {
        if !self.is_off() {
            self.cache
                .blocks()
                .insert((self.file, place), block.clone());
        }
    }

    /// Takes a block out that nobody will ask for again.
    pub fn remove(&self, place: u64) {
        if !self.is_off() {
            self.cache.blocks().remove(&(self.file, place));
        }
    }

    /// How often [`CachedFile::get`] has found a block, and how often not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits.sum(), self.misses.sum())
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        // Nobody else's cache goes away with its last file by itself.
        if let Some(blocks) = self.cache.blocks.get() {
            if Arc::strong_count(&self.cache) > 1 {
                blocks.retain(|(file, _), _| *file != self.file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8) -> Block {
        vec![byte; 4096].into()
    }

    #[test]
    fn files_share_one_bound() {
        let cache = BlockCache::new(1 << 20);
        let files = [cache.file(), cache.file()];
        for place in 0..1_000 {
            for (file, byte) in files.iter().zip([1, 2]) {
                file.put(place, &block(byte));
                assert!(cache.bytes() <= 1 << 20, "{}", cache.bytes());
            }
        }
        assert!(cache.bytes() > 1 << 19, "{}", cache.bytes());
        for (file, byte) in files.iter().zip([1, 2]) {
            let mut found = 0;
            for place in 0..1_000 {
                if let Some(block) = file.get(place) {
                    assert_eq!(block[0], byte);
                    found += 1;
                }
            }
            assert_eq!(file.hits_and_misses(), (found, 1_000 - found));
        }
    }

    #[test]
    fn a_file_that_is_dropped_leaves_nothing() {
        let cache = BlockCache::new(1 << 20);
        let (one, other) = (cache.file(), cache.file());
        one.put(1, &block(1));
        other.put(1, &block(2));
        let both = cache.bytes();
        drop(one);
        assert_eq!(cache.bytes(), both / 2);
        assert!(other.get(1).is_some());
        other.remove(1);
        assert_eq!((other.get(1), cache.bytes()), (None, 0));
    }

    #[test]
    fn blocks_asked_for_again_outlast_a_scan() {
        let cache = BlockCache::new(1 << 20);
        let file = cache.file();
        for place in 0..50 {
            file.put(place, &block(0));
        }
        for _ in 0..3 {
            for place in 0..50 {
                _ = file.get(place);
            }
        }
        for place in 1_000..11_000 {
            file.put(place, &block(1));
        }
        let left = (0..50).filter(|&place| file.get(place).is_some()).count();
        assert!(left > 40, "{left} of 50 are left");
    }

    #[test]
    fn nothing_is_kept_by_a_cache_of_nothing() {
        let file = BlockCache::new(0).file();
        file.put(1, &block(1));
        assert_eq!(file.get(1), None);
        assert!(file.is_off());
    }
}
