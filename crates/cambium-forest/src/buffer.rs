//! The write-buffer index (section 3.3): where the documents lie that are in
//! the log and not yet in the trie.
//!
//! It is ordered and multi-versioned: a key has its versions by sequence
//! number, newest first, and a reader takes the newest that is no younger than
//! its moment. Old versions are dropped when nobody can ask for them: no reader
//! has pinned a moment between an old version and the next, and what is visible
//! now is always kept.
//!
//! A buffer is **active** while writers insert into it, then **sealed** while a
//! flush carries it into the trie, and then forgotten, once no reader holds it.
//!
//! The structure is a sorted map a namespace under one lock. Nobody holds the
//! lock across I/O: writers insert a whole group under it, readers look up one
//! key or copy a bounded run of entries. It stands behind few functions, so
//! that a lock-free skip list can take its place where that pays (measured: an
//! insert into the map costs about half of one into an arena skip list).

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use cambium_api::Direction;

use crate::document::DocumentAddress;

/// What a write did to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// Its sequence number.
    pub sequence: u64,
    /// The document, or `None` for a removal.
    pub document: Option<DocumentAddress>,
}

/// A key's versions, newest first. Most keys have one.
#[derive(Debug)]
struct Versions {
    newest: Version,
    older: Vec<Version>,
}

impl Versions {
    fn at(&self, sequence: u64) -> Option<Version> {
        std::iter::once(&self.newest)
            .chain(&self.older)
            .find(|version| version.sequence <= sequence)
            .copied()
    }

    /// Adds a version; answers how many old ones were dropped.
    fn push(&mut self, version: Version, kept: &KeptMoments) -> usize {
        let before = std::mem::replace(&mut self.newest, version);
        self.older.insert(0, before);
        let mut younger = version.sequence;
        let count = self.older.len();
        self.older.retain(|old| {
            let needed = kept.any_within(old.sequence, younger);
            if needed {
                younger = old.sequence;
            }
            needed
        });
        count - self.older.len()
    }
}

/// Moments that readers may ask for: those pinned, and what is visible now.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptMoments {
    /// Ascending.
    moments: Vec<u64>,
}

impl KeptMoments {
    /// Pinned moments, ascending, and the newest visible one.
    pub fn new(pinned: impl Iterator<Item = u64>, visible: u64) -> Self {
        let mut moments: Vec<u64> = pinned.collect();
        moments.push(visible);
        KeptMoments { moments }
    }

    /// True if a moment is at or after `from` and before `to`.
    fn any_within(&self, from: u64, to: u64) -> bool {
        let next = self.moments.partition_point(|&moment| moment < from);
        self.moments.get(next).is_some_and(|&moment| moment < to)
    }
}

/// An answer of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// The key has no version here.
    Unknown,
    /// The version that counts at the moment asked for.
    Found(Version),
    /// All of its versions are younger. For a reader that has pinned its
    /// moment this means the same as [`Lookup::Unknown`]; for one that has
    /// not, what it looked for may just have been dropped.
    Younger,
}

/// A key with its first eight bytes beside it, as a number that sorts as they
/// do: most comparisons on the way through the map end there, and touch no
/// memory but the map's own.
#[derive(Debug)]
struct BufferKey {
    prefix: u64,
    key: Box<[u8]>,
}

/// What a key is compared by; lets a lookup go without a key of its own.
trait Compared {
    fn prefix(&self) -> u64;
    fn bytes(&self) -> &[u8];
}

fn prefix_of(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    let count = key.len().min(8);
    first[..count].copy_from_slice(&key[..count]);
    u64::from_be_bytes(first)
}

impl Compared for BufferKey {
    fn prefix(&self) -> u64 {
        self.prefix
    }

    fn bytes(&self) -> &[u8] {
        &self.key
    }
}

/// A key that is looked for.
struct Sought<'a>(u64, &'a [u8]);

impl<'a> Sought<'a> {
    fn new(key: &'a [u8]) -> Self {
        Sought(prefix_of(key), key)
    }
}

impl Compared for Sought<'_> {
    fn prefix(&self) -> u64 {
        self.0
    }

    fn bytes(&self) -> &[u8] {
        self.1
    }
}

impl Ord for dyn Compared + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        let prefixes = self.prefix().cmp(&other.prefix());
        prefixes.then_with(|| self.bytes().cmp(other.bytes()))
    }
}

impl PartialOrd for dyn Compared + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Compared + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for dyn Compared + '_ {}

impl Ord for BufferKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let prefixes = self.prefix.cmp(&other.prefix);
        prefixes.then_with(|| self.key.cmp(&other.key))
    }
}

impl PartialOrd for BufferKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for BufferKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for BufferKey {}

impl<'a> Borrow<dyn Compared + 'a> for BufferKey {
    fn borrow(&self) -> &(dyn Compared + 'a) {
        self
    }
}

type Entries = BTreeMap<BufferKey, Versions>;

/// A write-buffer index.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    namespaces: RwLock<BTreeMap<u16, Entries>>,
    versions: AtomicU64,
    bytes: AtomicU64,
    /// Writes so far, those included whose versions were dropped.
    writes: AtomicU64,
    /// Bytes of their records in the log.
    logged: AtomicU64,
}

/// What an entry takes beside its key: the map's share, two versions.
const ENTRY_BYTES: u64 = 88;
const VERSION_BYTES: u64 = 16;
/// About what a change takes beside its key while a trie is changed: its place
/// in the batch, in the plan, and among the entries of its tree.
const CHANGE_BYTES: u64 = 512;

/// A change on its way into a buffer.
#[derive(Debug)]
pub(crate) struct Insert {
    pub namespace: u16,
    pub key: Vec<u8>,
    pub version: Version,
}

impl Buffer {
    fn shared(&self) -> RwLockReadGuard<'_, BTreeMap<u16, Entries>> {
        self.namespaces
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Versions held.
    pub fn len(&self) -> u64 {
        self.versions.load(Relaxed)
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
    pub fn insert(&self, changes: impl Iterator<Item = Insert>, kept: &KeptMoments) {
        let (mut added, mut dropped, mut bytes) = (0u64, 0u64, 0u64);
        let mut namespaces = self
            .namespaces
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            let entries = namespaces.entry(change.namespace).or_default();
            added += 1;
            bytes += VERSION_BYTES;
            let key_bytes = change.key.len() as u64;
            let key = BufferKey {
                prefix: prefix_of(&change.key),
                key: change.key.into_boxed_slice(),
            };
            match entries.entry(key) {
                std::collections::btree_map::Entry::Vacant(place) => {
                    bytes += key_bytes + ENTRY_BYTES;
                    place.insert(Versions {
                        newest: change.version,
                        older: Vec::new(),
                    });
                }
                std::collections::btree_map::Entry::Occupied(mut place) => {
                    dropped += place.get_mut().push(change.version, kept) as u64;
                }
            }
        }
        drop(namespaces);
        self.writes.fetch_add(added, Relaxed);
        self.versions.fetch_add(added - dropped.min(added), Relaxed);
        let freed = dropped * VERSION_BYTES;
        self.bytes.fetch_add(bytes - freed.min(bytes), Relaxed);
    }

    /// What a key was at a moment.
    pub fn get(&self, namespace: u16, key: &[u8], sequence: u64) -> Lookup {
        if self.is_empty() {
            return Lookup::Unknown;
        }
        let sought = Sought::new(key);
        let namespaces = self.shared();
        let versions = namespaces
            .get(&namespace)
            .and_then(|entries| entries.get(&sought as &dyn Compared));
        match versions {
            None => Lookup::Unknown,
            Some(versions) => versions.at(sequence).map_or(Lookup::Younger, Lookup::Found),
        }
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
        let namespaces = self.shared();
        let Some(entries) = namespaces.get(&namespace) else {
            return Vec::new();
        };
        let at = |key: &BufferKey, versions: &Versions| {
            let version = versions.at(sequence)?;
            Some((key.key.clone(), version))
        };
        let sought = match from {
            Bound::Included(key) | Bound::Excluded(key) => Sought::new(key),
            Bound::Unbounded => Sought::new(b""),
        };
        let sought = &sought as &dyn Compared;
        let bound: Bound<&dyn Compared> = match from {
            Bound::Included(_) => Bound::Included(sought),
            Bound::Excluded(_) => Bound::Excluded(sought),
            Bound::Unbounded => Bound::Unbounded,
        };
        match direction {
            Direction::Forward => entries
                .range::<dyn Compared, _>((bound, Bound::Unbounded))
                .filter_map(|(key, versions)| at(key, versions))
                .take(limit)
                .collect(),
            Direction::Reverse => entries
                .range::<dyn Compared, _>((Bound::Unbounded, bound))
                .rev()
                .filter_map(|(key, versions)| at(key, versions))
                .take(limit)
                .collect(),
        }
    }

    /// Numbers of the namespaces that have entries.
    pub fn namespaces(&self) -> Vec<u16> {
        self.shared().keys().copied().collect()
    }

    /// The next keys of a namespace behind `after`, in key order, each with its
    /// newest version: up to `most_bytes` of memory, at least one. What a flush
    /// carries into the trie.
    pub fn newest_behind(
        &self,
        namespace: u16,
        after: Option<&[u8]>,
        most_bytes: u64,
    ) -> Vec<(Vec<u8>, Version)> {
        let namespaces = self.shared();
        let Some(entries) = namespaces.get(&namespace) else {
            return Vec::new();
        };
        let sought = Sought::new(after.unwrap_or_default());
        let from: Bound<&dyn Compared> = match after {
            Some(_) => Bound::Excluded(&sought as &dyn Compared),
            None => Bound::Unbounded,
        };
        let mut bytes = 0;
        entries
            .range::<dyn Compared, _>((from, Bound::Unbounded))
            .take_while(|(key, _)| {
                let first = bytes == 0;
                bytes += key.key.len() as u64 + CHANGE_BYTES;
                first || bytes <= most_bytes
            })
            .map(|(key, versions)| (key.key.to_vec(), versions.newest))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(buffer: &Buffer, key: &[u8], sequence: u64, pinned: &[u64]) {
        let change = Insert {
            namespace: 0,
            key: key.to_vec(),
            version: Version {
                sequence,
                document: Some(DocumentAddress(sequence << 20)),
            },
        };
        let kept = KeptMoments::new(pinned.iter().copied(), sequence - 1);
        buffer.insert(std::iter::once(change), &kept);
    }

    fn seen(buffer: &Buffer, key: &[u8], at: u64) -> Option<u64> {
        match buffer.get(0, key, at) {
            Lookup::Found(version) => Some(version.sequence),
            _ => None,
        }
    }

    #[test]
    fn versions_stay_while_someone_can_ask_for_them() {
        let buffer = Buffer::default();
        for sequence in 1..=9 {
            put(
                &buffer,
                b"oak",
                sequence,
                if sequence > 4 { &[4] } else { &[] },
            );
        }
        assert_eq!(seen(&buffer, b"oak", 4), Some(4), "pinned");
        assert_eq!(seen(&buffer, b"oak", 8), Some(8), "visible before the last");
        assert_eq!(seen(&buffer, b"oak", 9), Some(9));
        assert_eq!(buffer.len(), 3, "all others are gone");
        assert_eq!(buffer.get(0, b"oak", 3), Lookup::Younger);
        assert_eq!(buffer.get(0, b"elm", 9), Lookup::Unknown);
    }

    #[test]
    fn keys_sort_by_their_bytes_whatever_their_prefixes() {
        let buffer = Buffer::default();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for length in 0..11 {
            for last in [0, 1, 255] {
                let mut key = vec![7; length];
                key.push(last);
                keys.push(key);
                keys.push(vec![last; length]);
            }
        }
        keys.sort();
        keys.dedup();
        for (number, key) in keys.iter().rev().enumerate() {
            put(&buffer, key, number as u64 + 1, &[]);
        }
        let run = buffer.run(0, Bound::Unbounded, Direction::Forward, 999, 999);
        let found: Vec<Vec<u8>> = run.into_iter().map(|(key, _)| key.into_vec()).collect();
        assert_eq!(found, keys);
        for key in &keys {
            assert!(seen(&buffer, key, 999).is_some(), "{key:?}");
            let behind = buffer.run(0, Bound::Excluded(key), Direction::Forward, 999, 1);
            let expected = keys.iter().find(|other| *other > key);
            assert_eq!(
                behind.first().map(|(key, _)| key.to_vec()).as_ref(),
                expected
            );
        }
    }

    #[test]
    fn runs_go_both_ways_and_keep_to_their_bound() {
        let buffer = Buffer::default();
        for (number, key) in [b"a", b"b", b"c", b"d"].iter().enumerate() {
            put(&buffer, *key, number as u64 + 1, &[]);
        }
        let keys = |from, direction, limit| -> Vec<u8> {
            let run = buffer.run(0, from, direction, 9, limit);
            run.iter().map(|(key, _)| key[0]).collect()
        };
        let open = Bound::Unbounded;
        assert_eq!(keys(open, Direction::Forward, 9), b"abcd");
        assert_eq!(keys(Bound::Excluded(b"b"), Direction::Forward, 1), b"c");
        assert_eq!(keys(Bound::Included(b"c"), Direction::Reverse, 9), b"cba");
        assert_eq!(buffer.run(0, open, Direction::Forward, 2, 9).len(), 2);
        assert_eq!(buffer.run(1, open, Direction::Forward, 9, 9).len(), 0);
    }
}
