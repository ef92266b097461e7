//! A cuckoo hash table from keys to extents, in memory: the index of engine
//! `alphard` (*KVZone and Alphard*, section 3.2.2).
//!
//! A slot takes 16 bytes: 8 for the key, 4 for the block an extent begins at, 4
//! for its length in blocks. Keys of up to 7 bytes lie in the slot whole; of a
//! longer one it holds 56 bits of its hash, and the caller compares the key with
//! what lies at the extent. So one longer key may answer several extents.
//!
//! ```text
//!  hash, 56 bits: │ segment: top bits │ … │ first bucket: 20 bits │ second bucket: 20 bits │
//!  directory ──▶ segment: 1 to some 300 buckets ──▶ bucket: 32 keys, then 32 extents
//! ```
//!
//! **Growth.** The published table doubles at once. This one is cut into
//! *segments* by the top bits of the hash (extendible hashing; Fagin, Nievergelt,
//! Pippenger, Strong, 1979). Each is a cuckoo table of its own, of as many buckets
//! as it needs: it grows by a fifth when it is full, and is cut in two when it has
//! [`MAX_SEGMENT_ENTRIES`]. So one insertion moves a few thousand entries at most,
//! however large the table is, and a table of some thousand entries takes 16 to 21
//! bytes for each, the most just after it grew.
//!
//! **Order.** Segments lie in the order of their hashes, so a walk by hash
//! ([`CuckooIndex::page`]) can go on after any changes.
//!
//! The hash is SipHash-1-3 under a secret: nobody who does not know it can choose
//! keys that collide.

mod builder;
mod segment;

pub use builder::{Builder, Part, Parts};
pub use cambium_base::Extent;
use cambium_base::hash::sip13;
use segment::Segment;

/// Slots of a bucket.
pub const BUCKET_SLOTS: usize = 32;
/// A segment of so many entries is cut in two.
pub const MAX_SEGMENT_ENTRIES: usize = 8192;
/// Longest key that lies in its slot.
pub const INLINE_KEY_BYTES: usize = 7;
/// Bits of a hash that are used.
pub const HASH_BITS: u32 = 56;
const HASH_MASK: u64 = (1 << HASH_BITS) - 1;
/// What stands in the top byte for a key that is not inline; inline ones have
/// their length and 1 there, so that no key is 0.
const LONG_TAG: u64 = 0xff;
/// Bits that can tell segments apart; the others choose buckets.
const MAX_DEPTH: u32 = HASH_BITS - 2 * segment::BUCKET_BITS;

/// A key as a slot holds it: whole up to 7 bytes, else by its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotKey(u64);

impl SlotKey {
    /// The slot key of the key without bytes.
    pub const EMPTY: SlotKey = SlotKey(1 << HASH_BITS);

    /// The bits, for an image of the table; never 0.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The key of an image's bits, if they can be one.
    pub fn from_bits(bits: u64) -> Option<Self> {
        let tag = bits >> HASH_BITS;
        if tag == LONG_TAG {
            return Some(SlotKey(bits));
        }
        let length = tag.checked_sub(1)?;
        let fits = length <= INLINE_KEY_BYTES as u64 && (bits & HASH_MASK) >> (8 * length) == 0;
        fits.then_some(SlotKey(bits))
    }

    /// True if two keys that look like this are the same key.
    pub fn is_exact(self) -> bool {
        self.0 >> HASH_BITS != LONG_TAG
    }
}

/// The table.
///
/// ```
/// use cambium_index::cuckoo::{CuckooIndex, Extent};
/// let mut index = CuckooIndex::new([1, 2]);
/// let oak = index.key(b"oak");
/// index.insert(oak, Extent { block: 9, blocks: 1 });
/// assert_eq!(index.find(oak).next(), Some(Extent { block: 9, blocks: 1 }));
/// assert!(index.remove(oak, Extent { block: 9, blocks: 1 }));
/// assert!(index.is_empty());
/// ```
#[derive(Debug)]
pub struct CuckooIndex {
    secret: [u64; 2],
    segments: Vec<Segment>,
    /// Which segment a hash's top `depth` bits lead to.
    directory: Vec<u32>,
    depth: u32,
    entries: usize,
    /// Entries moved by growth since the table was made.
    moved: u64,
}

impl CuckooIndex {
    /// An empty table. The secret should be random, and stays the same for as
    /// long as places in a walk have to.
    pub fn new(secret: [u64; 2]) -> Self {
        CuckooIndex {
            secret,
            segments: vec![Segment::with_room_for(0, 0)],
            directory: vec![0],
            depth: 0,
            entries: 0,
            moved: 0,
        }
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Slots, used or not.
    pub fn slots(&self) -> usize {
        self.segments.iter().map(Segment::slots).sum()
    }

    /// Bytes of memory: slots, segments, directory.
    pub fn memory_bytes(&self) -> usize {
        self.segments
            .iter()
            .map(Segment::memory_bytes)
            .sum::<usize>()
            + self.segments.capacity() * size_of::<Segment>()
            + self.directory.capacity() * size_of::<u32>()
    }

    /// Entries that growth has moved since the table was made: how much longer
    /// the longest insertion took than the others.
    pub fn moved_entries(&self) -> u64 {
        self.moved
    }

    /// The key as a slot holds it.
    pub fn key(&self, key: &[u8]) -> SlotKey {
        if key.len() > INLINE_KEY_BYTES {
            return SlotKey(LONG_TAG << HASH_BITS | sip13(key, self.secret) & HASH_MASK);
        }
        let mut bytes = [0; 8];
        bytes[..key.len()].copy_from_slice(key);
        bytes[7] = key.len() as u8 + 1;
        SlotKey(u64::from_le_bytes(bytes))
    }

    /// The hash that decides where a key lies: 56 bits.
    pub fn hash(&self, key: SlotKey) -> u64 {
        hash_of(self.secret, key)
    }

    fn segment_of(&self, hash: u64) -> usize {
        // A shift by all bits would overflow, and all lead to one segment.
        let top = if self.depth == 0 {
            0
        } else {
            hash >> (HASH_BITS - self.depth)
        };
        self.directory[top as usize] as usize
    }

    /// The extents under a key: one at most if it is exact. No more than two
    /// buckets are looked at.
    pub fn find(&self, key: SlotKey) -> impl Iterator<Item = Extent> + '_ {
        let hash = self.hash(key);
        self.segments[self.segment_of(hash)].find(key, hash)
    }

    /// Adds an extent under a key, beside what is there.
    ///
    /// # Panics
    /// If the extent has no blocks.
    pub fn insert(&mut self, key: SlotKey, place: Extent) {
        assert!(place.blocks > 0, "an extent has blocks");
        let hash = self.hash(key);
        let mut at = self.segment_of(hash);
        let full = self.segments[at].len() >= MAX_SEGMENT_ENTRIES;
        if full && self.segments[at].depth < MAX_DEPTH {
            self.split(at);
            at = self.segment_of(hash);
        }
        let secret = self.secret;
        self.moved += self.segments[at].insert(key, hash, place, |key| hash_of(secret, key));
        self.entries += 1;
    }

    /// Puts another extent in the place of one; false if that is not there.
    pub fn replace(&mut self, key: SlotKey, old: Extent, new: Extent) -> bool {
        let hash = self.hash(key);
        let at = self.segment_of(hash);
        self.segments[at].replace(key, hash, old, new)
    }

    /// Takes an extent away; false if it is not there.
    pub fn remove(&mut self, key: SlotKey, place: Extent) -> bool {
        let hash = self.hash(key);
        let at = self.segment_of(hash);
        let removed = self.segments[at].remove(key, hash, place);
        self.entries -= usize::from(removed);
        removed
    }

    /// Appends all entries whose hashes lie in the segment of hash `from`, at or
    /// above it, in the order of their hashes, and answers the hash to go on
    /// from; `None` at the end.
    pub fn page(&self, from: u64, into: &mut Vec<(u64, SlotKey, Extent)>) -> Option<u64> {
        let start = into.len();
        let segment = &self.segments[self.segment_of(from & HASH_MASK)];
        for (key, place) in segment.iter() {
            let hash = self.hash(key);
            if hash >= from {
                into.push((hash, key, place));
            }
        }
        into[start..].sort_unstable();
        let width = 1u64 << (HASH_BITS - segment.depth);
        let end = (from / width + 1) * width;
        (end < 1 << HASH_BITS).then_some(end)
    }

    /// Cuts a segment in two by the next bit of the hash.
    fn split(&mut self, at: usize) {
        let depth = self.segments[at].depth;
        if depth == self.depth {
            // Each segment is now led to by twice as many places.
            self.directory = self.directory.iter().flat_map(|&to| [to, to]).collect();
            self.depth += 1;
        }
        let bit = HASH_BITS - depth - 1;
        let secret = self.secret;
        let hash_of = |key| hash_of(secret, key);
        let room = self.segments[at].len() / 2 + BUCKET_SLOTS;
        let mut halves = [0, 1].map(|_| Vec::with_capacity(room));
        for (key, place) in self.segments[at].iter() {
            let hash = hash_of(key);
            halves[(hash >> bit & 1) as usize].push((hash, key, place));
        }
        self.moved += self.segments[at].len() as u64;
        let new = self.segments.len() as u32;
        let [lower, higher] = halves.map(|half| Segment::of(&half, depth + 1, hash_of));
        self.segments[at] = lower;
        self.segments.push(higher);
        let step = self.depth - depth;
        for (place, to) in self.directory.iter_mut().enumerate() {
            if *to as usize == at && place >> (step - 1) & 1 == 1 {
                *to = new;
            }
        }
    }
}

fn hash_of(secret: [u64; 2], key: SlotKey) -> u64 {
    if key.is_exact() {
        return sip13(&key.0.to_le_bytes(), secret) & HASH_MASK;
    }
    key.0 & HASH_MASK
}

#[cfg(test)]
mod tests;
