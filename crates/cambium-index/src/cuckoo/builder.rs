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

/// A table that is being made. Entries may come in any order; it is quick where
/// those of one segment come together, as [`CuckooIndex::page`] gives them.
#[derive(Debug)]
pub struct Builder {
    secret: [u64; 2],
    segments: Vec<Segment>,
    depth: u32,
    entries: usize,
    /// Entries of one segment, with their hashes.
    together: Vec<(u64, SlotKey, Extent)>,
    /// Which one.
    segment: usize,
}

impl Builder {
    /// For a table of so many entries; more or fewer may come.
    pub fn new(secret: [u64; 2], expected: usize) -> Self {
        let segments = (expected / SEGMENT_ENTRIES).max(1).next_power_of_two();
        let depth = segments.trailing_zeros().min(MAX_DEPTH);
        let empty = || Segment::with_room_for(0, depth);
        Builder {
            secret,
            segments: std::iter::repeat_with(empty).take(1 << depth).collect(),
            depth,
            entries: 0,
            together: Vec::new(),
            segment: 0,
        }
    }

    /// Adds an extent under a key, beside what is there.
    ///
    /// # Panics
    /// If the extent has no blocks.
    pub fn push(&mut self, key: SlotKey, place: Extent) {
        assert!(place.blocks > 0, "an extent has blocks");
        let hash = hash_of(self.secret, key);
        let segment = self.segment_of(hash);
        if segment != self.segment {
            self.place_together();
            self.segment = segment;
        }
        self.together.push((hash, key, place));
    }

    fn segment_of(&self, hash: u64) -> usize {
        (hash >> (HASH_BITS - self.depth)) as usize
    }

    /// Puts the entries that came together into their segment.
    fn place_together(&mut self) {
        let segment = &mut self.segments[self.segment];
        let secret = self.secret;
        if segment.len() == 0 {
            *segment = Segment::with_room_for(self.together.len(), self.depth);
        }
        for &(hash, key, place) in &self.together {
            segment.insert(key, hash, place, |key| hash_of(secret, key));
        }
        self.entries += self.together.len();
        self.together.clear();
    }

    /// The table.
    pub fn finish(mut self) -> CuckooIndex {
        self.place_together();
        CuckooIndex {
            secret: self.secret,
            directory: (0..self.segments.len() as u32).collect(),
            segments: self.segments,
            depth: self.depth,
            entries: self.entries,
            moved: 0,
        }
    }

    /// A table of entries in any order: they are brought together first, which
    /// takes 8 bytes for each meanwhile.
    pub fn from_entries(secret: [u64; 2], entries: &[(SlotKey, Extent)]) -> CuckooIndex {
        let mut builder = Builder::new(secret, entries.len());
        let segments: Vec<u32> = entries
            .iter()
            .map(|(key, _)| builder.segment_of(hash_of(secret, *key)) as u32)
            .collect();
        let mut next = vec![0; builder.segments.len() + 1];
        for &segment in &segments {
            next[segment as usize + 1] += 1;
        }
        for at in 1..next.len() {
            next[at] += next[at - 1];
        }
        let mut order = vec![0u32; entries.len()];
        for (entry, &segment) in (0u32..).zip(&segments) {
            let place = &mut next[segment as usize];
            order[*place] = entry;
            *place += 1;
        }
        for entry in order {
            let (key, place) = entries[entry as usize];
            builder.push(key, place);
        }
        builder.finish()
    }
}
