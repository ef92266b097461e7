//! The write-buffer index (section 3.3): where the documents lie that are in
//! the log and not yet in the trie.
//!
//! It is multi-versioned: a key has its versions by sequence number, newest
//! first, and a reader takes the newest that is no younger than its moment. Old
//! versions are dropped when no reader can ask for them: none has pinned a
//! moment between an old version and the next, and what is visible now is
//! always kept.
//!
//! A buffer is **active** while writers insert into it, then **sealed** while a
//! flush carries it into the trie, and then forgotten, once no reader holds it.
//!
//! ```text
//! write ──▶ table  hash table, versions, keys in the order of arrival
//! get ────▶   │
//! scan ───▶ order  sorted lists of the table's keys, caught up when asked for
//! flush ──▶   │
//! ```
//!
//! Most keys are written, looked up by themselves or not at all, and sorted
//! once, by the flush. So an insertion pays for a hash table alone
//! ([`table`]), and a reader that needs an order makes the missing part of
//! it ([`order`]).
//!
//! No thread holds a lock across I/O: `order` is taken before `table`; writers
//! take the table's alone, for a group of changes. Sorting many keys lets go of the
//! table's again and again, so that writers wait for no scan.

mod order;
mod ranges;
mod segments;
mod table;
#[cfg(test)]
mod tests;
mod version;

use std::ops::Bound;
use std::sync::PoisonError;

use cambium_api::Direction;
use cambium_io::sync::atomic::AtomicU64;
use cambium_io::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use cambium_io::sync::{RwLock, RwLockReadGuard};

use crate::ranges::RangeSet;
use order::{Order, Turns};
pub(crate) use ranges::DeletedRange;
use ranges::DeletedRanges;
use table::Table;
pub(crate) use version::{KeptMoments, Lookup, Version};

/// A write-buffer index.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// Made by [`Buffer::default`]: its hashes can be known.
    is_plain: bool,
    /// A seeded bug: writers wait until all keys are sorted.
    pub sorts_at_once: bool,
    order: RwLock<Order>,
    table: RwLock<Table>,
    ranges: DeletedRanges,
    versions: AtomicU64,
    bytes: AtomicU64,
    /// Writes so far, those included whose versions were dropped.
    writes: AtomicU64,
    /// Bytes of their records in the log.
    logged: AtomicU64,
}

/// What a key takes beside its bytes: an entry of 40, slots of about 16, and 16
/// in the order.
const KEY_BYTES: u64 = 72;
/// Memory of a deleted range beside its bounds, which are held twice.
const RANGE_BYTES: u64 = 256;
/// What an old version takes.
const VERSION_BYTES: u64 = 24;
/// About what a change takes beside its key while a trie is changed: its place
/// in the batch, in the plan, and among the entries of its tree.
pub(crate) const CHANGE_BYTES: u64 = 512;

/// A change on its way into a buffer.
#[derive(Debug)]
pub(crate) struct Insert<'k> {
    pub namespace: u16,
    pub key: &'k [u8],
    pub version: Version,
}

/// For a view that is being made; what is put in place has a seed of its own.
impl Default for Buffer {
    fn default() -> Self {
        Buffer {
            is_plain: true,
            ..Buffer::new(0, 0)
        }
    }
}

impl Buffer {
    /// An empty one with room for some keys. Because of the seed a user who chooses
    /// keys cannot predict their hashes.
    pub fn new(seed: u64, expected: usize) -> Self {
        Buffer {
            is_plain: false,
            sorts_at_once: false,
            order: RwLock::default(),
            table: RwLock::new(Table::new(seed, expected)),
            ranges: DeletedRanges::default(),
            versions: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            logged: AtomicU64::new(0),
        }
    }

    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the work done with the order of all keys that the table has now.
    fn in_order<T>(&self, work: impl FnOnce(&Order, &Table) -> T) -> T {
        let count = self.keys();
        {
            let order = self.order.read().unwrap_or_else(PoisonError::into_inner);
            if order.knows(count) {
                return work(&order, &self.table());
            }
        }
        let mut order = self.order.write().unwrap_or_else(PoisonError::into_inner);
        let mut turns = Turns::new(&self.table);
        if self.sorts_at_once {
            turns = turns.without_end();
        }
        order.catch_up(&mut turns, count);
        drop(turns);
        work(&order, &self.table())
    }

    /// Versions and deleted ranges held.
    pub fn len(&self) -> u64 {
        self.versions.load(Acquire)
    }

    /// True for one that [`Buffer::default`] made and nothing was written into.
    pub fn is_placeholder(&self) -> bool {
        self.is_plain && self.is_empty()
    }

    /// How many keys it holds.
    pub fn keys(&self) -> usize {
        self.table().len()
    }

    /// True if nothing was written into it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes of memory it takes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Writes so far, those included that later ones have replaced.
    pub fn writes(&self) -> u64 {
        self.writes.load(Relaxed)
    }

    /// Bytes that they take in the log.
    pub fn logged(&self) -> u64 {
        self.logged.load(Relaxed)
    }

    /// Notes how many bytes the log has grown by.
    pub fn note_logged(&self, bytes: u64) {
        self.logged.fetch_add(bytes, Relaxed);
    }

    /// Adds changes in the order of their sequence numbers.
    pub fn insert<'k>(&self, changes: impl Iterator<Item = Insert<'k>>, kept: &KeptMoments) {
        let (mut added, mut dropped, mut bytes) = (0u64, 0u64, 0u64);
        {
            let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
            for change in changes {
                let done = table.insert(change.namespace, change.key, change.version, kept);
                added += 1;
                dropped += done.dropped;
                bytes += match done.is_new_key {
                    true => change.key.len() as u64 + KEY_BYTES,
                    false => VERSION_BYTES,
                };
            }
        }
        self.writes.fetch_add(added, Relaxed);
        let freed = dropped * VERSION_BYTES;
        self.bytes.fetch_add(bytes.saturating_sub(freed), Relaxed);
        self.versions.fetch_add(added - dropped.min(added), Release);
    }

    /// Adds a deleted range; it is younger than all changes before.
    pub fn delete_range(&self, range: DeletedRange) {
        let bound = |key: &Option<Vec<u8>>| key.as_ref().map_or(0, Vec::len) as u64;
        let bytes = bound(&range.range.from) + bound(&range.range.to) + RANGE_BYTES;
        self.ranges.push(range);
        self.writes.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.versions.fetch_add(1, Release);
    }

    /// How many deleted ranges it holds.
    pub fn deleted_ranges(&self) -> u64 {
        self.ranges.count()
    }

    /// True if a range that was deleted up to a moment hides what older layers have of a key.
    pub fn hides(&self, namespace: u16, key: &[u8], moment: u64) -> bool {
        self.ranges.newest_over(namespace, key, moment).is_some()
    }

    /// Adds the ranges of a namespace that were deleted up to a moment to a set.
    pub fn add_deleted(&self, set: &mut RangeSet, namespace: u16, moment: u64) {
        self.ranges.add_to(set, namespace, moment);
    }

    /// The version of a key at a moment: its own, unless a range was deleted after it.
    fn unless_deleted(
        &self,
        (namespace, key): (u16, &[u8]),
        moment: u64,
        version: Option<Version>,
    ) -> Option<Version> {
        let Some(sequence) = self.ranges.newest_over(namespace, key, moment) else {
            return version;
        };
        let removed = Version {
            sequence,
            document: None,
        };
        version
            .filter(|own| own.sequence > sequence)
            .or(Some(removed))
    }

    /// Looks up a key at a sequence number in the key's newest version only.
    pub fn get(&self, namespace: u16, key: &[u8], sequence: u64) -> Lookup {
        if self.is_empty() {
            return Lookup::Unknown;
        }
        let table = self.table();
        let newest = table.number_of(namespace, key).map(|key| table.newest(key));
        if newest.is_some_and(|newest| newest.sequence > sequence) {
            return Lookup::Younger;
        }
        let version = self.unless_deleted((namespace, key), sequence, newest);
        version.map_or(Lookup::Unknown, Lookup::Found)
    }

    /// The version of a key at a sequence number from which on the buffer drops no version.
    pub fn get_at(&self, namespace: u16, key: &[u8], sequence: u64) -> Option<Version> {
        if self.is_empty() {
            return None;
        }
        let table = self.table();
        let number = table.number_of(namespace, key);
        let version = number.and_then(|number| table.at(number, sequence));
        self.unless_deleted((namespace, key), sequence, version)
    }

    /// Up to `limit` keys with what they were at a moment, from a bound on in
    /// a direction.
    pub fn run(
        &self,
        namespace: u16,
        from: Bound<&[u8]>,
        direction: Direction,
        sequence: u64,
        limit: usize,
    ) -> Vec<(Box<[u8]>, Version)> {
        if self.is_empty() {
            return Vec::new();
        }
        self.in_order(|order, table| {
            let mut position = start(order, table, namespace, from, direction);
            let mut run = Vec::new();
            while run.len() < limit {
                let step = match direction {
                    Direction::Forward => order.forward(position),
                    Direction::Reverse => order.backward(position),
                };
                let Some((number, next)) = step else { break };
                let (of, key) = table.key(number);
                if of != namespace {
                    break;
                }
                if let Some(version) = table.at(number, sequence) {
                    let version = self.unless_deleted((of, key), sequence, Some(version));
                    run.extend(version.map(|version| (key.into(), version)));
                }
                position = next;
            }
            run
        })
    }

    /// Numbers of the namespaces that have entries or deleted ranges, ascending.
    pub fn namespaces(&self) -> Vec<u16> {
        let mut namespaces = self.in_order(|order, _| order.namespaces());
        if self.deleted_ranges() > 0 {
            namespaces.extend(self.ranges.namespaces());
            namespaces.sort_unstable();
            namespaces.dedup();
        }
        namespaces
    }

    /// The next keys of a namespace after `after`, in key order, each with its
    /// newest version: up to `most_bytes` of memory, at least one. What a flush
    /// carries into the trie.
    pub fn newest_behind(
        &self,
        namespace: u16,
        after: Option<&[u8]>,
        most_bytes: u64,
    ) -> Vec<(Vec<u8>, Version)> {
        self.in_order(|order, table| {
            let key = after.unwrap_or_default();
            let mut position = order.seek(table, namespace, key, after.is_some());
            let mut newest = Vec::new();
            let mut bytes = 0;
            while let Some((number, next)) = order.forward(position) {
                let (of, key) = table.key(number);
                bytes += key.len() as u64 + CHANGE_BYTES;
                if of != namespace || (bytes > most_bytes && !newest.is_empty()) {
                    break;
                }
                let version = Some(table.newest(number));
                let version = self.unless_deleted((of, key), u64::MAX, version);
                newest.extend(version.map(|version| (key.to_vec(), version)));
                position = next;
            }
            newest
        })
    }
}

/// Where a run begins.
fn start(
    order: &Order,
    table: &Table,
    namespace: u16,
    from: Bound<&[u8]>,
    direction: Direction,
) -> order::Position {
    let is_forward = direction == Direction::Forward;
    match from {
        Bound::Included(key) => order.seek(table, namespace, key, !is_forward),
        Bound::Excluded(key) => order.seek(table, namespace, key, is_forward),
        Bound::Unbounded if is_forward => order.seek(table, namespace, b"", false),
        Bound::Unbounded => order.end_of(table, namespace),
    }
}
