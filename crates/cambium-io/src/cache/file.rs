//! What a file sees of a cache: its own blocks, by their places in it.

use std::sync::Arc;

use super::{Block, BlockCache, Moment, PLACE_BITS};
use crate::counter::StripedCounter;

/// A file's part of a cache. Dropping it takes its blocks out.
#[derive(Debug)]
pub struct CachedFile {
    cache: Arc<BlockCache>,
    file: u64,
    hits: StripedCounter,
    misses: StripedCounter,
}

impl CachedFile {
    pub(super) fn new(cache: Arc<BlockCache>, file: u64) -> Self {
        CachedFile {
            cache,
            file,
            hits: StripedCounter::default(),
            misses: StripedCounter::default(),
        }
    }

    /// True if nothing is kept at all.
    pub fn is_off(&self) -> bool {
        self.cache.capacity == 0
    }

    /// Places of 2^44 and more have no key: they are never kept.
    fn key(&self, place: u64) -> Option<u64> {
        let is_small = place >> PLACE_BITS == 0 && self.file >> (64 - PLACE_BITS) == 0;
        let has_one = is_small && !self.is_off();
        has_one.then_some(self.file << PLACE_BITS | place)
    }

    /// The block at a place, if it is cached. Counted as a hit or a miss.
    pub fn get(&self, place: u64) -> Option<Block> {
        self.with(place, Block::clone)
    }

    /// Looks into the block at a place where it lies, if it is cached. Counted
    /// as a hit or a miss. `look` must be short, and ask nothing of the cache:
    /// whoever puts a block beside this one waits for it.
    pub fn with<R>(&self, place: u64, look: impl FnOnce(&Block) -> R) -> Option<R> {
        if self.is_off() {
            return None;
        }
        let found = self.key(place).map(|key| self.cache.with(key, look));
        let found = found.and_then(Result::ok);
        match found {
            Some(_) => self.hits.add(1),
            None => self.misses.add(1),
        }
        found
    }

    /// As [`CachedFile::get`] for a place whose bytes may change; without a block, the
    /// moment of the look, to be had before the bytes are read. `None` where nothing is
    /// kept.
    ///
    /// ```
    /// let file = cambium_io::cache::BlockCache::new(1 << 20).file();
    /// let before = file.look(7).unwrap().unwrap_err();
    /// file.remove(7); // the place has other bytes now
    /// assert!(!file.offer(7, &b"old"[..].into(), before));
    /// let moment = file.look(7).unwrap().unwrap_err();
    /// assert!(file.offer(7, &b"new"[..].into(), moment));
    /// assert_eq!(file.look(7).unwrap().unwrap()[..], *b"new");
    /// ```
    pub fn look(&self, place: u64) -> Option<Result<Block, Moment>> {
        if self.is_off() {
            return None;
        }
        let found = self.cache.with(self.key(place)?, Block::clone);
        match found {
            Ok(_) => self.hits.add(1),
            Err(_) => self.misses.add(1),
        }
        Some(found)
    }

    /// Offers a block of bytes that were read after a moment. False, and not put in, if
    /// [`CachedFile::remove`] was called for the place since, or, rarely, for another.
    pub fn offer(&self, place: u64, block: &Block, since: Moment) -> bool {
        let key = self.key(place);
        key.is_some_and(|key| self.cache.put(key, block, Some(since), 0))
    }

    /// As [`CachedFile::offer`] of what was asked for before: it is not the next to go.
    pub fn offer_again(&self, place: u64, block: &Block, since: Moment) -> bool {
        let key = self.key(place);
        key.is_some_and(|key| self.cache.put(key, block, Some(since), 1))
    }

    /// True if a block at this place would push no other out.
    pub fn has_room(&self, place: u64) -> bool {
        self.key(place).is_some_and(|key| self.cache.has_room(key))
    }

    /// A block with these bytes, not in the cache yet. It takes the memory of one
    /// that was pushed out where it can.
    ///
    /// ```
    /// let file = cambium_io::cache::BlockCache::new(1 << 20).file();
    /// assert_eq!(file.block_of(b"bytes")[..], *b"bytes");
    /// ```
    pub fn block_of(&self, bytes: &[u8]) -> Block {
        let mut spare = self.cache.spare(bytes.len());
        if let Some(content) = spare.as_mut().and_then(Arc::get_mut) {
            content.copy_from_slice(bytes);
        }
        spare.unwrap_or_else(|| bytes.into())
    }

    /// A block of so many bytes that are to be filled: what they are before is
    /// anything that was in the cache. Nobody else has it, so `Arc::get_mut`
    /// gives its bytes.
    pub fn block_to_fill(&self, length: usize) -> Block {
        let spare = self.cache.spare(length);
        spare.unwrap_or_else(|| std::iter::repeat_n(0, length).collect())
    }

    /// Offers a block.
    pub fn put(&self, place: u64, block: &Block) {
        if let Some(key) = self.key(place) {
            self.cache.put(key, block, None, 0);
        }
    }

    /// Takes a block out that nobody will ask for again, or whose place has other bytes
    /// now; true if there was one.
    pub fn remove(&self, place: u64) -> bool {
        let key = self.key(place);
        key.is_some_and(|key| self.cache.remove(key))
    }

    /// How often [`CachedFile::get`] has found a block, and how often not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits.sum(), self.misses.sum())
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        // Nobody else's cache goes away with its last file by itself.
        if Arc::strong_count(&self.cache) > 1 {
            self.cache.forget(self.file);
            self.cache.identities().1.push(self.file);
        }
    }
}
