//! Building a table of many entries at once.
//!
//! Inserted one by one, entries meet buckets all over memory, and are moved five
//! times each while segments grow. Here the number of segments is chosen for all of
//! them beforehand; entries of one segment are placed together, while it lies in the
//! processor's cache, into as many buckets as they need.

use super::segment::Segment;
use super::{CuckooIndex, Extent, HASH_BITS, MAX_DEPTH, SlotKey, hash_of};

/// Entries that segments are made for, on the average: far enough from the most
/// that few are cut in two soon.
const SEGMENT_ENTRIES: usize = 5_000;

/// A table, or a part of one, that is being made. Entries may come in any order; it is
/// quick where those of one segment come together, as [`CuckooIndex::page`] gives them.
#[derive(Debug)]
pub struct Builder {
    secret: [u64; 2],
    segments: Vec<Segment>,
    depth: u32,
    /// The first segment's number in the whole table.
    first: usize,
    entries: usize,
    /// Entries of one segment, with their hashes.
    together: Vec<(u64, SlotKey, Extent)>,
    /// Which one.
    segment: usize,
}

impl Builder {
    /// For a table of so many entries; more or fewer may come.
    pub fn new(secret: [u64; 2], expected: usize) -> Self {
        Parts::new(secret, 0, expected).builder(0)
    }

    /// Adds an extent under a key, beside what is there.
    ///
    /// # Panics
    /// If the extent has no blocks, or the key belongs to another part.
    pub fn push(&mut self, key: SlotKey, place: Extent) {
        self.push_hashed(hash_of(self.secret, key), key, place);
    }

    fn push_hashed(&mut self, hash: u64, key: SlotKey, place: Extent) {
        assert!(place.blocks > 0, "an extent has blocks");
        let segment = self.segment_of(hash);
        if segment != self.segment {
            self.place_together();
            self.segment = segment;
        }
        self.together.push((hash, key, place));
    }

    fn segment_of(&self, hash: u64) -> usize {
        (hash >> (HASH_BITS - self.depth)) as usize - self.first
    }

    /// Puts the entries that came together into their segment.
    fn place_together(&mut self) {
        let segment = &mut self.segments[self.segment];
        let secret = self.secret;
        let hash_of = |key| hash_of(secret, key);
        if segment.len() == 0 {
            *segment = Segment::of(&self.together, self.depth, hash_of);
        } else {
            for &(hash, key, place) in &self.together {
                segment.insert(key, hash, place, hash_of);
            }
        }
        self.entries += self.together.len();
        self.together.clear();
    }

    /// Adds entries in any order: they are brought together first, which takes 12 bytes
    /// for each meanwhile.
    fn push_all(&mut self, entries: &[(SlotKey, Extent)]) {
        let hashed = entries.iter().map(|(key, _)| hash_of(self.secret, *key));
        let hashes: Vec<u64> = hashed.collect();
        let mut next = vec![0; self.segments.len() + 1];
        for &hash in &hashes {
            next[self.segment_of(hash) + 1] += 1;
        }
        for at in 1..next.len() {
            next[at] += next[at - 1];
        }
        let mut order = vec![0u32; entries.len()];
        for (entry, &hash) in (0u32..).zip(&hashes) {
            let place = &mut next[self.segment_of(hash)];
            order[*place] = entry;
            *place += 1;
        }
        for entry in order {
            let (key, place) = entries[entry as usize];
            self.push_hashed(hashes[entry as usize], key, place);
        }
    }

    fn finish_part(mut self) -> Part {
        self.place_together();
        Part {
            first: self.first,
            segments: self.segments,
            entries: self.entries,
        }
    }

    /// The table.
    pub fn finish(self) -> CuckooIndex {
        let (secret, depth) = (self.secret, self.depth);
        joined(secret, depth, vec![self.finish_part()])
    }

    /// A table of entries in any order.
    pub fn from_entries(secret: [u64; 2], entries: &[(SlotKey, Extent)]) -> CuckooIndex {
        let parts = Parts::new(secret, 0, entries.len());
        parts.join(vec![parts.build(0, entries)])
    }
}

/// A table that several threads make, each a part: that of the keys whose hashes begin
/// with the same bits.
///
/// ```
/// use cambium_index::cuckoo::{CuckooIndex, Extent, Parts};
/// let oak = CuckooIndex::new([1, 2]).key(b"oak");
/// let parts = Parts::new([1, 2], 3, 1);
/// let place = Extent { block: 9, blocks: 1 };
/// let made = (0..parts.count()).map(|part| match parts.part_of(oak) == part {
///     true => parts.build(part, &[(oak, place)]),
///     false => parts.build(part, &[]),
/// });
/// let index = parts.join(made.collect());
/// assert_eq!(index.find(oak).next(), Some(place));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    secret: [u64; 2],
    bits: u32,
    depth: u32,
}

/// A part of a table.
#[derive(Debug)]
pub struct Part {
    first: usize,
    segments: Vec<Segment>,
    entries: usize,
}

impl Parts {
    /// 2^`bits` parts of a table of so many entries; more or fewer may come.
    ///
    /// # Panics
    /// With more than 16 bits.
    pub fn new(secret: [u64; 2], bits: u32, expected: usize) -> Self {
        assert!(bits <= MAX_DEPTH, "hashes tell so many parts apart");
        let segments = (expected / SEGMENT_ENTRIES).max(1).next_power_of_two();
        Parts {
            secret,
            bits,
            depth: segments.trailing_zeros().min(MAX_DEPTH).max(bits),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        1 << self.bits
    }

    /// Which part a key belongs to, whatever number of entries is expected.
    pub fn part_of(&self, key: SlotKey) -> usize {
        (hash_of(self.secret, key) >> (HASH_BITS - self.bits)) as usize
    }

    fn builder(&self, part: usize) -> Builder {
        let segments = 1usize << (self.depth - self.bits);
        let empty = || Segment::with_room_for(0, self.depth);
        Builder {
            secret: self.secret,
            segments: std::iter::repeat_with(empty).take(segments).collect(),
            depth: self.depth,
            first: part * segments,
            entries: 0,
            together: Vec::new(),
            segment: 0,
        }
    }

    /// Makes a part of its entries, in any order.
    ///
    /// # Panics
    /// If a key belongs to another part, or an extent has no blocks.
    pub fn build(&self, part: usize, entries: &[(SlotKey, Extent)]) -> Part {
        let mut builder = self.builder(part);
        builder.push_all(entries);
        builder.finish_part()
    }

    /// The table of all parts, in any order.
    ///
    /// # Panics
    /// If one is missing.
    pub fn join(&self, parts: Vec<Part>) -> CuckooIndex {
        assert_eq!(parts.len(), self.count(), "every part is there");
        joined(self.secret, self.depth, parts)
    }
}

fn joined(secret: [u64; 2], depth: u32, mut parts: Vec<Part>) -> CuckooIndex {
    parts.sort_unstable_by_key(|part| part.first);
    let entries = parts.iter().map(|part| part.entries).sum();
    let segments: Vec<Segment> = parts.into_iter().flat_map(|part| part.segments).collect();
    CuckooIndex {
        secret,
        directory: (0..segments.len() as u32).collect(),
        segments,
        depth,
        entries,
        moved: 0,
    }
}
