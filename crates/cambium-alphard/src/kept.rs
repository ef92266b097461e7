//! Values that stay in memory, so that a lookup of one costs no access to the device.
//!
//! What is kept lies in the environment's cache of blocks, or the store's own: an entry
//! under its place, verified, key and value side by side.
//!
//! ```text
//!   bits of the place: 4 bytes │ bytes of the key: 4 bytes │ key │ value
//! ```
//!
//! An extent that became free is given to other entries, often of the same key. What is
//! kept must therefore be what was encoded there last:
//!
//! - The writer of an entry removes what is kept under its place when it has the extent,
//!   and before the index shows it ([`Core::forget_kept`]). No reader finds the extent in the
//!   index in between: for snapshots it would not have become free.
//! - A reader looks what is kept under the lock under which he finds the extent, and takes
//!   note of the moment if that is nothing. What he then reads is refused if anything was
//!   removed there since. If he looked before the removal, he may have read what was there
//!   before. If he looked afterwards, the index had the new entry, so he finds that: among
//!   those on their way to the device or, when it is there no more, on the device.
//!
//! Lookups alone look here. Cursors, checks, repairs, and whatever compares members or
//! makes one like the other, read the device: they are asked what is there. Nor does a walk
//! over everything push out what lookups ask for.
//!
//! *What is kept*: while there is room, what lookups have read, and what is written to a
//! store that is looked up in; where there is none, what is asked for a second time, and what
//! replaces a value that was kept. So what is asked for once pushes nothing out, and costs a
//! mark in place of a copy.
//!
//! [`Core::forget_kept`]: crate::core::Core

use std::sync::Arc;

use cambium_base::Value;
use cambium_base::coding::u32_at;
use cambium_io::BlockCache;
use cambium_io::cache::{Block, CachedFile, Marks, Moment};
use cambium_io::sync::atomic::{AtomicU32, Ordering};

use crate::place::Place;

/// Lengths in front of what is kept.
const HEADER_BYTES: usize = 8;
/// What a store's own cache is laid out for: of smaller entries fewer find a place.
const COMMON_BYTES: u64 = 1024;
/// An entry takes so large a part of the cache at most.
const LARGEST_PART: u64 = 16;
/// Bytes of the cache for each mark, of 4 bytes.
const BYTES_A_MARK: u64 = 512;
/// After so many writes without a lookup that read the device, written values are taken
/// for ones that are not read soon.
const MOST_UNASKED: u32 = 10_000;
/// Times that an entry is asked for until it is kept where there is no room.
const ASKED_WHERE_FULL: u32 = 2;

/// Entries in memory.
#[derive(Debug)]
pub(crate) struct Kept {
    cache: Arc<BlockCache>,
    entries: CachedFile,
    /// What was asked for lately and is not kept.
    marks: Marks,
    /// Writes since a lookup read the device, up to [`MOST_UNASKED`].
    unasked: AtomicU32,
}

/// What is known of an extent.
pub(crate) enum Known {
    /// The key's value.
    Value(Value),
    /// The device has to be asked; what it answers may be kept.
    Nothing(Option<Moment>),
}

/// A cache for one store alone; 0 bytes keep nothing.
pub(crate) fn own_cache(bytes: u64) -> Arc<BlockCache> {
    BlockCache::of_blocks(bytes, COMMON_BYTES)
}

impl Kept {
    /// Keeps entries in a cache.
    pub fn new(cache: Arc<BlockCache>) -> Self {
        Kept {
            entries: cache.file(),
            marks: Marks::new(cache.capacity() / BYTES_A_MARK),
            unasked: AtomicU32::new(MOST_UNASKED),
            cache,
        }
    }

    /// Looks for a key's entry at an extent.
    pub fn find(&self, place: Place, key: &[u8]) -> Known {
        let block = match self.entries.look(place.id()) {
            None => return Known::Nothing(None),
            Some(Err(moment)) => return Known::Nothing(Some(moment)),
            Some(Ok(block)) => block,
        };
        let value = HEADER_BYTES + key.len();
        let is_it = u32_at(&block, 0) == place.slot().blocks
            && u32_at(&block, 4) as usize == key.len()
            && block.get(HEADER_BYTES..value) == Some(key);
        match is_it {
            true => Known::Value(Value::part_of(&block, value..block.len())),
            false => Known::Nothing(None),
        }
    }

    /// The moment now, for an extent of which nothing is kept.
    pub fn moment(&self, place: Place) -> Option<Moment> {
        self.entries.look(place.id())?.err()
    }

    /// Offers an entry that was read at an extent after a moment.
    pub fn take_read(&self, place: Place, key: &[u8], value: &[u8], since: Option<Moment>) {
        let Some(since) = since else {
            return;
        };
        if self.unasked.load(Ordering::Relaxed) > 0 {
            self.unasked.store(0, Ordering::Relaxed);
        }
        let id = place.id();
        let has_room = self.entries.has_room(id);
        if !has_room && !self.marks.count(id, ASKED_WHERE_FULL) {
            return;
        }
        if let Some(block) = self.block_of(place, key, value) {
            match has_room {
                true => self.entries.offer(id, &block, since),
                false => self.entries.offer_again(id, &block, since),
            };
        }
    }

    /// Offers an entry that is being written, by the only writer of its extent; the entry
    /// that it replaces may have been kept.
    pub fn take_written(&self, place: Place, key: &[u8], value: &[u8], replaced: bool) {
        let id = place.id();
        let unasked = self.unasked.load(Ordering::Relaxed);
        if unasked >= MOST_UNASKED {
            return;
        }
        self.unasked.store(unasked + 1, Ordering::Relaxed);
        if !replaced && !self.entries.has_room(id) {
            return;
        }
        if let Some(block) = self.block_of(place, key, value) {
            self.entries.put(id, &block);
        }
    }

    /// An entry as it is kept; `None` for a large one.
    fn block_of(&self, place: Place, key: &[u8], value: &[u8]) -> Option<Block> {
        let bytes = HEADER_BYTES + key.len() + value.len();
        if bytes as u64 > self.cache.capacity() / LARGEST_PART {
            return None;
        }
        let mut block = self.entries.block_to_fill(bytes);
        let (header, rest) = Arc::get_mut(&mut block)?.split_at_mut(HEADER_BYTES);
        header[..4].copy_from_slice(&place.slot().blocks.to_le_bytes());
        header[4..].copy_from_slice(&(key.len() as u32).to_le_bytes());
        let (key_at, value_at) = rest.split_at_mut(key.len());
        key_at.copy_from_slice(key);
        value_at.copy_from_slice(value);
        Some(block)
    }

    /// A place has another entry now, or none; true if one was kept.
    pub fn remove(&self, place: Place) -> bool {
        self.entries.remove(place.id())
    }

    /// Lookups that were answered from here, and those that were not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        self.entries.hits_and_misses()
    }

    /// Memory of the cache, with that of other stores which share it.
    pub fn bytes(&self) -> u64 {
        self.cache.bytes()
    }
}
