//! One segment: a cuckoo table of as many buckets as it needs.
//!
//! An entry lies in one of two buckets, which different bits of its hash choose.
//! Where both are full, one of the entries there is kicked out into its other
//! bucket, and so on. With 32 slots a bucket, tables fill beyond 95 % before a
//! chain of [`MOST_KICKS`] fails (Dietzfelbinger and Weidling, 2007).

use super::{BUCKET_SLOTS, Extent, SlotKey};

/// Bits of a hash that choose each of the two buckets.
pub(super) const BUCKET_BITS: u32 = 20;
/// Kicks before a segment grows.
const MOST_KICKS: u32 = 200;
/// Of a hundred slots, how many are used after a segment was made or grew.
const FILL_AFTER_GROWTH: usize = 80;

/// Keys apart from extents: a look at a bucket reads 256 bytes and one extent.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// 0 where a slot is free.
    keys: [u64; BUCKET_SLOTS],
    places: [Extent; BUCKET_SLOTS],
}

const EMPTY: Bucket = Bucket {
    keys: [0; BUCKET_SLOTS],
    places: [Extent {
        block: 0,
        blocks: 0,
    }; BUCKET_SLOTS],
};

impl Bucket {
    fn free_slots(&self) -> usize {
        self.keys.iter().filter(|&&key| key == 0).count()
    }

    fn slot_of(&self, key: u64, place: Extent) -> Option<usize> {
        (0..BUCKET_SLOTS).find(|&slot| self.keys[slot] == key && self.places[slot] == place)
    }
}

#[derive(Debug)]
pub(super) struct Segment {
    buckets: Vec<Bucket>,
    /// Entries that no growth finds room for: more than 64 under one key, which
    /// takes as many keys of one hash.
    overflow: Vec<(SlotKey, Extent)>,
    entries: usize,
    /// How many top bits of the hash all entries here share.
    pub(super) depth: u32,
    /// Chooses who is kicked out next.
    turn: u32,
}

impl Segment {
    pub(super) fn with_room_for(entries: usize, depth: u32) -> Self {
        let slots = (entries * 100).div_ceil(FILL_AFTER_GROWTH);
        let buckets = slots.div_ceil(BUCKET_SLOTS).max(1);
        Segment {
            buckets: vec![EMPTY; buckets],
            overflow: Vec::new(),
            entries: 0,
            depth,
            turn: 0,
        }
    }

    /// One of entries with their hashes, made at once: while nothing is taken out, the
    /// slots of a bucket fill in order, and a count says where the next entry goes.
    pub(super) fn of(
        entries: &[(u64, SlotKey, Extent)],
        depth: u32,
        hash_of: impl Fn(SlotKey) -> u64 + Copy,
    ) -> Self {
        let mut segment = Segment::with_room_for(entries.len(), depth);
        let mut used = vec![0; segment.buckets.len()];
        let mut homeless = Vec::new();
        for &(hash, key, place) in entries {
            let [first, second] = segment.buckets_of(hash);
            let at = if used[first] <= used[second] {
                first
            } else {
                second
            };
            if used[at] == BUCKET_SLOTS {
                homeless.push((hash, key, place));
                continue;
            }
            segment.buckets[at].keys[used[at]] = key.0;
            segment.buckets[at].places[used[at]] = place;
            used[at] += 1;
        }
        segment.entries = entries.len();
        for (hash, key, place) in homeless {
            let left = segment.place(key, hash, place, hash_of);
            segment.overflow.extend(left);
        }
        segment
    }

    pub(super) fn len(&self) -> usize {
        self.entries
    }

    pub(super) fn slots(&self) -> usize {
        self.buckets.len() * BUCKET_SLOTS
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<Bucket>()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotKey, Extent)> + '_ {
        let slots = self.buckets.iter().flat_map(|bucket| {
            let slots = bucket.keys.iter().zip(&bucket.places);
            slots
                .filter(|(key, _)| **key != 0)
                .map(|(&key, &place)| (SlotKey(key), place))
        });
        slots.chain(self.overflow.iter().copied())
    }

    /// The two buckets of a hash; the same twice in a table of one.
    fn buckets_of(&self, hash: u64) -> [usize; 2] {
        let count = self.buckets.len() as u64;
        let mask = (1 << BUCKET_BITS) - 1;
        let first = ((hash & mask) * count) >> BUCKET_BITS;
        let mut second = (((hash >> BUCKET_BITS) & mask) * count) >> BUCKET_BITS;
        if second == first {
            second = (first + 1) % count;
        }
        [first as usize, second as usize]
    }

    pub(super) fn find(&self, key: SlotKey, hash: u64) -> impl Iterator<Item = Extent> + '_ {
        let [first, second] = self.buckets_of(hash);
        let both = if first == second { 1 } else { 2 };
        let slots = [first, second].into_iter().take(both).flat_map(move |at| {
            let bucket = &self.buckets[at];
            let slots = bucket.keys.iter().zip(&bucket.places);
            slots
                .filter(move |(found, _)| **found == key.0)
                .map(|(_, &place)| place)
        });
        let beyond = self.overflow.iter().filter(move |(found, _)| *found == key);
        slots.chain(beyond.map(|(_, place)| *place))
    }

    pub(super) fn replace(&mut self, key: SlotKey, hash: u64, old: Extent, new: Extent) -> bool {
        for at in self.buckets_of(hash) {
            if let Some(slot) = self.buckets[at].slot_of(key.0, old) {
                self.buckets[at].places[slot] = new;
                return true;
            }
        }
        let beyond = self.overflow.iter_mut().find(|entry| **entry == (key, old));
        beyond.map(|entry| entry.1 = new).is_some()
    }

    pub(super) fn remove(&mut self, key: SlotKey, hash: u64, place: Extent) -> bool {
        for at in self.buckets_of(hash) {
            if let Some(slot) = self.buckets[at].slot_of(key.0, place) {
                self.buckets[at].keys[slot] = 0;
                self.buckets[at].places[slot] = Extent::default();
                self.entries -= 1;
                return true;
            }
        }
        let beyond = self
            .overflow
            .iter()
            .position(|entry| *entry == (key, place));
        if let Some(beyond) = beyond {
            self.overflow.swap_remove(beyond);
            self.entries -= 1;
        }
        beyond.is_some()
    }

    /// Adds an entry, growing where there is no room; answers how many entries
    /// growth moved.
    pub(super) fn insert(
        &mut self,
        key: SlotKey,
        hash: u64,
        place: Extent,
        hash_of: impl Fn(SlotKey) -> u64 + Copy,
    ) -> u64 {
        self.entries += 1;
        match self.place(key, hash, place, hash_of) {
            None => 0,
            Some(homeless) => self.grow(homeless, hash_of),
        }
    }

    /// Finds a slot, kicking others out; answers who is left without one.
    fn place(
        &mut self,
        key: SlotKey,
        hash: u64,
        place: Extent,
        hash_of: impl Fn(SlotKey) -> u64,
    ) -> Option<(SlotKey, Extent)> {
        let (mut key, mut hash, mut place) = (key, hash, place);
        // Where the entry in hand was kicked out of.
        let mut from = usize::MAX;
        for _ in 0..MOST_KICKS {
            let [first, second] = self.buckets_of(hash);
            let [one, other] = [first, second].map(|at| self.buckets[at].free_slots());
            if one > 0 || other > 0 {
                // The emptier of the two, so that both fill alike.
                let at = if one >= other { first } else { second };
                self.put(at, key, place);
                return None;
            }
            if first == second {
                return Some((key, place));
            }
            let at = if first == from { second } else { first };
            self.turn = self.turn.wrapping_mul(747_796_405).wrapping_add(1);
            let slot = (self.turn >> 16) as usize % BUCKET_SLOTS;
            let bucket = &mut self.buckets[at];
            let kicked = (SlotKey(bucket.keys[slot]), bucket.places[slot]);
            bucket.keys[slot] = key.0;
            bucket.places[slot] = place;
            (key, place) = kicked;
            hash = hash_of(key);
            from = at;
        }
        Some((key, place))
    }

    fn put(&mut self, at: usize, key: SlotKey, place: Extent) {
        let bucket = &mut self.buckets[at];
        if let Some(slot) = bucket.keys.iter().position(|&key| key == 0) {
            bucket.keys[slot] = key.0;
            bucket.places[slot] = place;
        }
    }

    /// Makes room for a quarter more, and for one who found none; answers how
    /// many entries were moved.
    fn grow(
        &mut self,
        homeless: (SlotKey, Extent),
        hash_of: impl Fn(SlotKey) -> u64 + Copy,
    ) -> u64 {
        let all = self.iter().chain([homeless]);
        let entries: Vec<(u64, SlotKey, Extent)> =
            all.map(|(key, place)| (hash_of(key), key, place)).collect();
        *self = Segment::of(&entries, self.depth, hash_of);
        entries.len() as u64
    }
}
