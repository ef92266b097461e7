//! Memtables: the newest entries, in memory.
//!
//! ```text
//!  shard by hash ─┬─ slots: (tag, place of the key's newest entry) ─┐
//!                 └─ arena: │ entry │ entry │ entry │ … ◀───────────┘
//!  entry: previous (place of the next older one of the key) · sequence · lengths · kind · key · value
//! ```
//!
//! An insert appends to an arena and points a slot of a hash table at it: one or
//! two cache misses, where a search tree or a skip list of a million keys takes
//! twenty. Lookups ask the hash table. Order is made when somebody asks for it:
//! an iterator or a flush sorts what came since the last one into a
//! [`crate::run::Run`], and runs are merged as they grow, so an entry is sorted
//! once and merged a few times, however many iterators there are.
//!
//! Keys have any number of versions, chained from new to old. A shard's lock is
//! held for one insert, one lookup, or the copy of one chunk; nobody holds it
//! while sorting. Writers of different shards do not meet.

use std::sync::Arc;

use cambium_base::coding::{u32_at, u64_at};
use cambium_io::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use cambium_io::sync::{Mutex, RwLock, RwLockReadGuard, lock, read, write};

use crate::entry::{EntryKind, EntryRef, Moment};
use crate::relocate::Relocation;
use crate::run::Run;
use crate::tombstones::RangeTombstones;

/// Entries begin at multiples of this in an arena.
pub(crate) const ENTRY_ALIGNMENT: usize = 8;
/// previous 4 · key length 4 · sequence 8 · value length 4 · kind 1.
const ENTRY_HEADER_BYTES: usize = 21;
const CHUNK_BYTES: usize = 256 << 10;
/// Of the first chunk of a shard, to begin with.
const FIRST_CHUNK_BYTES: usize = 1 << 10;
/// Entry places in a chunk.
const CHUNK_PLACES: u32 = (CHUNK_BYTES / ENTRY_ALIGNMENT) as u32;
/// What an entry takes of the hash table, about.
const SLOT_BYTES: u64 = 12;
/// Shards of a memtable that is not tiny.
const SHARDS: usize = 16;
/// Slots that a shard begins with.
const FIRST_SLOTS: usize = 64;

/// Reads the entry at `offset` of a piece of an arena. The arena is ours and
/// never leaves memory, so it is not doubted.
pub(crate) fn parse_entry(piece: &[u8], offset: usize) -> EntryRef<'_> {
    let header = &piece[offset..];
    let key_end = ENTRY_HEADER_BYTES + u32_at(header, 4) as usize;
    EntryRef {
        key: &header[ENTRY_HEADER_BYTES..key_end],
        sequence: u64_at(header, 8),
        kind: match header[20] {
            1 => EntryKind::Value,
            _ => EntryKind::Delete,
        },
        value: &header[key_end..key_end + u32_at(header, 16) as usize],
    }
}

/// Bytes from the entry at `offset` to the next.
pub(crate) fn entry_bytes_at(piece: &[u8], offset: usize) -> usize {
    let header = &piece[offset..];
    let bytes = ENTRY_HEADER_BYTES + u32_at(header, 4) as usize + u32_at(header, 16) as usize;
    bytes.next_multiple_of(ENTRY_ALIGNMENT)
}

#[derive(Debug)]
struct Shard {
    chunks: Vec<Vec<u8>>,
    /// Upper half: the hash's tag; lower half: a place, or 0 for none.
    slots: Vec<u64>,
    /// Slots that it is expected to need: it has as many once it grows.
    expected_slots: usize,
    keys: usize,
}

/// Chunk and offset of a place.
fn split(place: u32) -> (usize, usize) {
    let offset = (place % CHUNK_PLACES) as usize * ENTRY_ALIGNMENT;
    ((place / CHUNK_PLACES) as usize, offset)
}

impl Shard {
    fn new(expected_slots: usize) -> Self {
        Shard {
            // A place of 0 means none, so the first stays unused.
            chunks: vec![vec![0; ENTRY_ALIGNMENT]],
            slots: vec![0; expected_slots.min(FIRST_SLOTS)],
            expected_slots,
            keys: 0,
        }
    }

    fn entry(&self, place: u32) -> EntryRef<'_> {
        let (chunk, offset) = split(place);
        parse_entry(&self.chunks[chunk], offset)
    }

    fn previous(&self, place: u32) -> u32 {
        let (chunk, offset) = split(place);
        u32_at(&self.chunks[chunk], offset)
    }

    fn set_previous(&mut self, place: u32, previous: u32) {
        let (chunk, offset) = split(place);
        self.chunks[chunk][offset..offset + 4].copy_from_slice(&previous.to_le_bytes());
    }

    /// The slot of a key: where it is, or where it would go.
    fn slot_of(&self, tag: u32, key: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = tag as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 || (slot >> 32) as u32 == tag && self.entry(slot as u32).key == key {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    /// The newest entry of a key, or 0.
    fn newest(&self, tag: u32, key: &[u8]) -> u32 {
        self.slots[self.slot_of(tag, key)] as u32
    }

    fn append(&mut self, entry: &EntryRef<'_>, previous: u32) -> u32 {
        let bytes = ENTRY_HEADER_BYTES + entry.key.len() + entry.value.len();
        let padded = bytes.next_multiple_of(ENTRY_ALIGNMENT);
        let last = self.chunks.last().map_or(CHUNK_BYTES, Vec::len);
        if last + padded > CHUNK_BYTES {
            self.chunks
                .push(Vec::with_capacity(CHUNK_BYTES.max(padded)));
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        let offset = chunk.len();
        if offset + padded > chunk.capacity() {
            // In few steps: others give memory back meanwhile, and are waited for.
            let larger = (chunk.capacity() * 8).clamp(FIRST_CHUNK_BYTES, CHUNK_BYTES);
            chunk.reserve_exact(larger.saturating_sub(offset).max(padded));
        }
        chunk.extend_from_slice(&previous.to_le_bytes());
        chunk.extend_from_slice(&(entry.key.len() as u32).to_le_bytes());
        chunk.extend_from_slice(&entry.sequence.to_le_bytes());
        chunk.extend_from_slice(&(entry.value.len() as u32).to_le_bytes());
        chunk.push(entry.kind as u8);
        chunk.extend_from_slice(entry.key);
        chunk.extend_from_slice(entry.value);
        chunk.resize(offset + padded, 0);
        number as u32 * CHUNK_PLACES + (offset / ENTRY_ALIGNMENT) as u32
    }

    fn insert(&mut self, tag: u32, entry: &EntryRef<'_>) {
        let slot = self.slot_of(tag, entry.key);
        let head = self.slots[slot] as u32;
        if head == 0 || self.entry(head).sequence <= entry.sequence {
            let place = self.append(entry, head);
            self.slots[slot] = u64::from(tag) << 32 | u64::from(place);
            if head == 0 {
                self.keys += 1;
                self.grow_if_full();
            }
            return;
        }
        // Numbered before what is there already: further down the chain.
        let mut above = head;
        loop {
            let below = self.previous(above);
            if below == 0 || self.entry(below).sequence <= entry.sequence {
                let place = self.append(entry, below);
                self.set_previous(above, place);
                return;
            }
            above = below;
        }
    }

    /// Tags hold enough of the hash to move slots without looking at keys. What
    /// is expected comes with the first growth, so that a memtable which gets few
    /// keys, as in a store that is opened to be read, costs little.
    fn grow_if_full(&mut self) {
        if self.keys * 4 < self.slots.len() * 3 {
            return;
        }
        let larger = vec![0; self.expected_slots.max(self.slots.len() * 2)];
        let before = std::mem::replace(&mut self.slots, larger);
        let mask = self.slots.len() - 1;
        for slot in before.into_iter().filter(|&slot| slot != 0) {
            let mut at = (slot >> 32) as usize & mask;
            while self.slots[at] != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = slot;
        }
    }
}

/// What was sorted so far.
#[derive(Debug, Default)]
struct Sorted {
    /// Oldest, and largest, first.
    runs: Vec<Arc<Run>>,
    /// Chunk and offset up to which each shard is in runs.
    through: Vec<(usize, usize)>,
    /// Of the memtable, when that was found.
    bytes: u64,
}

/// Entries in memory; any number of writers and readers.
#[derive(Debug)]
pub(crate) struct Memtable {
    shards: Box<[RwLock<Shard>]>,
    bytes: AtomicU64,
    largest_sequence: AtomicU64,
    ranges: RwLock<RangeTombstones>,
    range_count: AtomicUsize,
    sorted: Mutex<Sorted>,
}

impl Memtable {
    /// An empty memtable that takes so many bytes.
    pub fn new(bytes: u64) -> Self {
        Self::expecting(bytes, bytes)
    }

    /// An empty memtable that takes `most_bytes`, and will be sealed at about
    /// `expected_bytes`: a hash table no larger than that stays in the processor's
    /// caches.
    pub fn expecting(most_bytes: u64, expected_bytes: u64) -> Self {
        let shards = if most_bytes < 1 << 20 { 1 } else { SHARDS };
        let slots = (expected_bytes / shards as u64 / 64).clamp(8, 1 << 22);
        let slots = (slots as usize).next_power_of_two();
        let sorted = Sorted {
            runs: Vec::new(),
            through: vec![(0, ENTRY_ALIGNMENT); shards],
            bytes: 0,
        };
        Memtable {
            shards: (0..shards)
                .map(|_| RwLock::new(Shard::new(slots)))
                .collect(),
            bytes: AtomicU64::new(0),
            largest_sequence: AtomicU64::new(0),
            ranges: RwLock::default(),
            range_count: AtomicUsize::new(0),
            sorted: Mutex::new(sorted),
        }
    }

    /// Memory in use, about: nothing if nothing was written.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// True if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Highest sequence number written, or 0.
    pub fn largest_sequence(&self) -> u64 {
        self.largest_sequence.load(Ordering::Acquire)
    }

    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        &self.shards[(hash >> 32) as usize % self.shards.len()]
    }

    fn shared(&self, hash: u64) -> RwLockReadGuard<'_, Shard> {
        read(self.shard(hash))
    }

    fn count(&self, bytes: u64, sequence: u64) {
        self.bytes.fetch_add(bytes, Ordering::Release);
        self.largest_sequence.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Adds an entry.
    pub fn insert(&self, hash: u64, entry: &EntryRef<'_>) {
        let bytes = ENTRY_HEADER_BYTES + entry.key.len() + entry.value.len();
        write(self.shard(hash)).insert(hash as u32, entry);
        self.count(bytes as u64 + SLOT_BYTES, entry.sequence);
    }

    /// Adds a range tombstone.
    pub fn insert_range(&self, sequence: u64, from: &[u8], to: Option<&[u8]>) {
        let mut ranges = write(&self.ranges);
        ranges.add(from, to, sequence);
        self.range_count.store(ranges.len(), Ordering::Release);
        drop(ranges);
        let bytes = from.len() + to.map_or(0, <[u8]>::len) + 128;
        self.count(bytes as u64, sequence);
    }

    /// Gives the entry (key, sequence) a new value if no newer one of the key
    /// is here and, should the entry itself be here, its value is `old_value`.
    pub fn relocate(
        &self,
        hash: u64,
        key: &[u8],
        sequence: u64,
        old_value: &[u8],
        new_value: &[u8],
    ) -> Relocation {
        let entry = EntryRef {
            key,
            sequence,
            kind: EntryKind::Value,
            value: new_value,
        };
        let mut shard = write(self.shard(hash));
        // Under the shard's lock: a range delete numbered later wins wherever
        // it stands, since it is compared by its number.
        if let Some(hidden) = self.hides(&shard, hash, key, sequence, old_value) {
            return hidden;
        }
        shard.insert(hash as u32, &entry);
        drop(shard);
        let bytes = ENTRY_HEADER_BYTES + key.len() + new_value.len();
        self.count(bytes as u64 + SLOT_BYTES, sequence);
        Relocation::Done
    }

    /// What is here that keeps the entry (key, sequence) with `old_value` from being
    /// relocated, if anything is.
    pub fn since(
        &self,
        hash: u64,
        key: &[u8],
        sequence: u64,
        old_value: &[u8],
    ) -> Option<Relocation> {
        self.hides(&self.shared(hash), hash, key, sequence, old_value)
    }

    fn hides(
        &self,
        shard: &Shard,
        hash: u64,
        key: &[u8],
        sequence: u64,
        old_value: &[u8],
    ) -> Option<Relocation> {
        if self.newest_range_over(key, Moment::MAX) > sequence {
            return Some(Relocation::Superseded);
        }
        let newest = shard.newest(hash as u32, key);
        if newest == 0 {
            return None;
        }
        let found = shard.entry(newest);
        if found.sequence > sequence {
            return Some(Relocation::Superseded);
        }
        let is_other = found.kind != EntryKind::Value || found.value != old_value;
        (found.sequence == sequence && is_other).then_some(Relocation::Changed)
    }

    /// The newest entry of a key at a moment, handed to `take`.
    pub fn get<T>(
        &self,
        hash: u64,
        key: &[u8],
        moment: Moment,
        take: impl FnOnce(EntryRef<'_>) -> T,
    ) -> Option<T> {
        let shard = self.shared(hash);
        let mut place = shard.newest(hash as u32, key);
        while place != 0 {
            let entry = shard.entry(place);
            if entry.sequence <= moment {
                return Some(take(entry));
            }
            place = shard.previous(place);
        }
        None
    }

    /// The newest range tombstone over a key at a moment, or 0.
    pub fn newest_range_over(&self, key: &[u8], moment: Moment) -> u64 {
        if self.range_count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        read(&self.ranges).newest_over(key, moment)
    }

    /// All range tombstones, as they are now.
    pub fn ranges(&self) -> RangeTombstones {
        if self.range_count.load(Ordering::Acquire) == 0 {
            return RangeTombstones::default();
        }
        read(&self.ranges).clone()
    }

    /// Everything that was inserted before the call, sorted, newest run first.
    /// Costs a sort of what came since the last call.
    pub fn runs(&self) -> Vec<Arc<Run>> {
        let mut sorted = lock(&self.sorted);
        // An insertion is counted before it is answered.
        let bytes = self.bytes.load(Ordering::Acquire);
        if bytes == sorted.bytes {
            return sorted.runs.iter().rev().cloned().collect();
        }
        sorted.bytes = bytes;
        let pieces = self.new_pieces(&mut sorted.through);
        if !pieces.is_empty() {
            sorted.runs.push(Arc::new(Run::sorted(pieces)));
            merge_while(&mut sorted.runs, |older, newer| newer * 4 >= older);
        }
        sorted.runs.iter().rev().cloned().collect()
    }

    /// Counts the entries in `[from, to)`, and all. Costs what [`Memtable::runs`]
    /// does, and two searches a run.
    pub fn count_between(&self, from: &[u8], to: &[u8]) -> (u64, u64) {
        let runs = self.runs();
        let inside: usize = runs.iter().map(|run| run.count_between(from, to)).sum();
        let all: usize = runs.iter().map(|run| run.len()).sum();
        (inside as u64, all as u64)
    }

    /// Everything as one run; for a memtable that is not written to any more.
    pub fn one_run(&self) -> Arc<Run> {
        self.runs();
        let mut sorted = lock(&self.sorted);
        merge_while(&mut sorted.runs, |_, _| true);
        sorted.runs.first().cloned().unwrap_or_default()
    }

    /// Copies what was appended to the arenas since `through`.
    fn new_pieces(&self, through: &mut [(usize, usize)]) -> Vec<Arc<[u8]>> {
        let mut pieces = Vec::new();
        for (shard, (chunk, offset)) in self.shards.iter().zip(through) {
            loop {
                // Let go after each chunk: writers wait for one copy at most.
                let shard = read(shard);
                let bytes = &shard.chunks[*chunk][*offset..];
                if !bytes.is_empty() {
                    pieces.push(bytes.into());
                    *offset += bytes.len();
                }
                if *chunk + 1 == shard.chunks.len() {
                    break;
                }
                (*chunk, *offset) = (*chunk + 1, 0);
            }
        }
        pieces
    }
}

/// Merges the last two runs while `wanted(entries of the older, of the newer)`.
fn merge_while(runs: &mut Vec<Arc<Run>>, wanted: impl Fn(usize, usize) -> bool) {
    while let [.., older, newer] = runs.as_slice() {
        if !wanted(older.len(), newer.len()) {
            return;
        }
        let merged = Arc::new(Run::merged(older, newer));
        runs.truncate(runs.len() - 2);
        runs.push(merged);
    }
}
