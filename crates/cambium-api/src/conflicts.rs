//! Conflicts between transactions and other writers.
//!
//! A transaction keeps what it read ([`ReadSet`]). An engine keeps what was written
//! lately ([`RecentWrites`]). When the transaction commits, the engine compares the two
//! in its own order of writes: if a key or range that was read was written after the
//! transaction's snapshot, the commit fails. This is optimistic concurrency control with
//! backward validation (Kung and Robinson, "On Optimistic Methods for Concurrency
//! Control", 1981); a key that was not there and a range count as read too, so there are
//! no phantoms.
//!
//! Both name a key by its namespace's number, two bytes, big-endian, and the key's bytes
//! behind them. In that order each namespace is one range.
//!
//! An engine remembers nothing until the first transaction begins, and from then on at
//! most [`MOST_BYTES`]. A transaction that began before the oldest write that is
//! remembered gets [`Conflict::TooMuchWritten`] here; [`Transaction`] then compares its
//! reads with a new snapshot instead.
//!
//! [`Transaction`]: crate::Transaction

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, PoisonError};

use cambium_base::error::Conflict;
use cambium_base::{Error, Result, SequenceNumber};
use cambium_io::sync::atomic::{AtomicBool, Ordering};
use cambium_io::sync::{Mutex, MutexGuard};

use crate::expiry::UnixMillis;

/// Bytes of keys that an engine remembers of recent writes.
pub const MOST_BYTES: usize = 4 << 20;
/// Recent writes are remembered, and forgotten, in pieces of so many bytes.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes that each write counts beside its key.
const OVERHEAD: usize = 16;

/// A key as conflicts name it: the namespace's number, big-endian, then the key.
pub fn full_key(namespace: u16, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(2 + key.len());
    full.extend_from_slice(&namespace.to_be_bytes());
    full.extend_from_slice(key);
    full
}

/// The first full key behind all keys of a namespace, or `None` behind the last one.
pub fn namespace_end(namespace: u16) -> Option<Vec<u8>> {
    Some(namespace.checked_add(1)?.to_be_bytes().to_vec())
}

/// Keys and ranges that a transaction read, and since when they must not have changed.
#[derive(Clone, Debug, Default)]
pub struct ReadSet {
    /// The snapshot's sequence number: later writes conflict.
    pub since: SequenceNumber,
    keys: BTreeSet<Vec<u8>>,
    ranges: Vec<Range>,
    names: BTreeMap<u16, String>,
    /// The entry that expires first of those that were read.
    first_expiry: Option<FirstExpiry>,
}

/// The wall clock by which entries of a store expire.
pub trait WallClock: std::fmt::Debug + Send + Sync {
    /// The moment now; never before an earlier answer.
    fn now(&self) -> UnixMillis;
}

/// An entry that was read, of several the first that expires.
#[derive(Clone, Debug)]
pub struct FirstExpiry {
    /// The moment from which on it is not there.
    pub moment: UnixMillis,
    /// Its full key.
    pub key: Vec<u8>,
    /// The store's clock.
    pub clock: Arc<dyn WallClock>,
}

/// From the first full key to the second, exclusive; `None` is open.
pub(crate) type Range = (Vec<u8>, Option<Vec<u8>>);

impl ReadSet {
    /// Nothing read yet, of a snapshot with that sequence number.
    pub fn new(since: SequenceNumber) -> Self {
        ReadSet {
            since,
            ..ReadSet::default()
        }
    }

    /// Gives a namespace's number the name that errors use.
    pub fn name(&mut self, namespace: u16, name: &str) {
        self.names.insert(namespace, name.to_string());
    }

    /// An entry that was read expires, of several the first.
    pub fn expires(&mut self, first: Option<FirstExpiry>) {
        self.first_expiry = first;
    }

    /// An entry that was there when it was read must be there still.
    fn check_expiry(&self) -> Result<()> {
        match &self.first_expiry {
            Some(first) if first.moment <= first.clock.now() => {
                let conflict = self.key_conflict(&first.key);
                Err(Error::Conflict { conflict })
            }
            _ => Ok(()),
        }
    }

    /// Adds a key, by its full name.
    pub fn add_key(&mut self, full_key: Vec<u8>) {
        self.keys.insert(full_key);
    }

    /// Adds a range of full keys, which may be empty. Answers its place, by which
    /// [`ReadSet::range_mut`] finds it again.
    pub fn add_range(&mut self, from: Vec<u8>, to: Option<Vec<u8>>) -> usize {
        self.ranges.push((from, to));
        self.ranges.len() - 1
    }

    /// A range that was added, to be extended as a scan goes on.
    pub fn range_mut(&mut self, place: usize) -> &mut (Vec<u8>, Option<Vec<u8>>) {
        &mut self.ranges[place]
    }

    /// The keys, by their full names, in order.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(Vec::as_slice)
    }

    /// The ranges of full keys.
    pub fn ranges(&self) -> &[(Vec<u8>, Option<Vec<u8>>)] {
        &self.ranges
    }

    /// Sorts the ranges and joins those that touch, so that a write is compared with few.
    pub fn settle(&mut self) {
        self.ranges
            .retain(|(from, to)| to.as_ref().is_none_or(|to| from < to));
        self.ranges.sort();
        let mut joined: Vec<Range> = Vec::with_capacity(self.ranges.len());
        for (from, to) in std::mem::take(&mut self.ranges) {
            match joined.last_mut() {
                Some((_, end)) if end.as_ref().is_none_or(|end| from <= *end) => {
                    if end.is_some() && to.as_ref().is_none_or(|to| Some(to) > end.as_ref()) {
                        *end = to;
                    }
                }
                _ => joined.push((from, to)),
            }
        }
        self.ranges = joined;
    }

    /// The conflict with a write of one key. The ranges are settled.
    fn conflict_with_key(&self, key: &[u8]) -> Option<Conflict> {
        if self.keys.contains(key) {
            return Some(self.key_conflict(key));
        }
        let behind = self.ranges.partition_point(|(from, _)| &from[..] <= key);
        let (from, to) = self.ranges.get(behind.checked_sub(1)?)?;
        let within = to.as_ref().is_none_or(|to| key < &to[..]);
        within.then(|| self.range_conflict(from, to.as_deref()))
    }

    /// The conflict with the deletion of a range.
    fn conflict_with_range(&self, from: &[u8], to: Option<&[u8]>) -> Option<Conflict> {
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        if to.is_none_or(|to| from < to) {
            let mut keys = self.keys.range::<[u8], _>((Bound::Included(from), end));
            if let Some(key) = keys.next() {
                return Some(self.key_conflict(key));
            }
        }
        let mut ranges = self.ranges.iter();
        let (from, to) = ranges.find(|(start, stop)| {
            to.is_none_or(|to| &start[..] < to) && stop.as_ref().is_none_or(|stop| from < &stop[..])
        })?;
        Some(self.range_conflict(from, to.as_deref()))
    }

    /// The name and the key in a full key.
    fn parts<'a>(&self, full: &'a [u8]) -> (String, &'a [u8]) {
        let (number, key) = full.split_at(2.min(full.len()));
        let number = number.try_into().map_or(0, u16::from_be_bytes);
        let name = self.names.get(&number).cloned().unwrap_or_default();
        (name, key)
    }

    /// The error that names a key of this set.
    pub fn key_conflict(&self, full: &[u8]) -> Conflict {
        let (namespace, key) = self.parts(full);
        let key = key.to_vec();
        Conflict::Key { namespace, key }
    }

    /// The error that names a range of this set.
    pub fn range_conflict(&self, from: &[u8], to: Option<&[u8]>) -> Conflict {
        let (namespace, start) = self.parts(from);
        let same = |to: &&[u8]| to.get(..2) == from.get(..2) && to.len() > 2;
        Conflict::Range {
            from: start.to_vec(),
            to: to.filter(same).map(|to| self.parts(to).1.to_vec()),
            namespace,
        }
    }
}

/// Keys and ranges that were written lately, with their sequence numbers.
///
/// The engine calls [`RecentWrites::note`] under the lock that orders its writes, and
/// [`RecentWrites::check`] under the same lock, right before it accepts a transaction's
/// writes.
#[derive(Debug, Default)]
pub struct RecentWrites {
    is_tracking: AtomicBool,
    /// All writers see that flag.
    is_complete: AtomicBool,
    remembered: Mutex<Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    /// Full pieces, the oldest first. A check reads them without the lock.
    full: VecDeque<Arc<Piece>>,
    /// Bytes of the full pieces.
    bytes: usize,
    /// The piece that grows.
    open: Piece,
    /// The newest write that was forgotten.
    forgotten: u64,
}

/// Some writes; their keys lie one behind the other in `bytes`.
#[derive(Debug, Default)]
struct Piece {
    bytes: Vec<u8>,
    writes: Vec<Write>,
    newest: u64,
    /// A write was added behind a newer one.
    is_unsorted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    sequence: u64,
    /// Where its key, or its range's first key, ends in the bytes.
    end: u32,
    /// Where its range's end ends; equal to `end` for an open one.
    range_end: u32,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Key,
    Range,
    OpenRange,
    Everything,
}

/// A write, as an engine notes it.
#[derive(Clone, Copy, Debug)]
pub enum Written<'a> {
    /// A put or a delete, by its namespace and key.
    Key(u16, &'a [u8]),
    /// The same, by the full key.
    FullKey(&'a [u8]),
    /// The same, of an integer key in the default namespace.
    IntegerKey(u64),
    /// The end of a namespace.
    Namespace(u16),
    /// The deletion of a range in a namespace; `None` is open.
    RangeOf(u16, &'a [u8], Option<&'a [u8]>),
    /// The deletion of a range of full keys; `None` is open.
    Range(&'a [u8], Option<&'a [u8]>),
    /// A rollback.
    Everything,
}

impl RecentWrites {
    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers writes from now on. A writer that is under way may have missed the flag, so
    /// `wait_for_writers` takes the engine's locks of writers once. Every transaction that
    /// begins before that has ended waits too: its snapshot must come after those writers.
    pub fn start(&self, wait_for_writers: impl FnOnce()) {
        if !self.is_complete.load(Ordering::Acquire) {
            self.is_tracking.store(true, Ordering::Release);
            wait_for_writers();
            self.is_complete.store(true, Ordering::Release);
        }
    }

    /// True once a transaction has begun.
    #[inline]
    pub fn is_tracking(&self) -> bool {
        self.is_tracking.load(Ordering::Acquire)
    }

    /// Remembers writes, if a transaction has begun. One atomic load otherwise.
    #[inline]
    pub fn note<'a>(&self, writes: impl IntoIterator<Item = (u64, Written<'a>)>) {
        if self.is_tracking() {
            self.remember(writes);
        }
    }

    fn remember<'a>(&self, writes: impl IntoIterator<Item = (u64, Written<'a>)>) {
        let mut remembered = self.remembered();
        for (sequence, write) in writes {
            remembered.add(sequence, write);
        }
    }

    /// Compares reads with the writes that came after their snapshot. The set must be
    /// [settled](ReadSet::settle). Answers the newest write that was compared.
    ///
    /// # Errors
    /// [`Error::Conflict`] with a key or range that was written since, or an entry that has
    /// expired.
    pub fn check(&self, reads: &ReadSet) -> Result<SequenceNumber> {
        reads.check_expiry()?;
        let (full, newest) = {
            let remembered = self.remembered();
            if remembered.forgotten > reads.since.0 {
                let conflict = Conflict::TooMuchWritten;
                return Err(Error::Conflict { conflict });
            }
            remembered.open.check(reads)?;
            let full = remembered.full.iter().rev();
            let full = full.filter(|piece| piece.newest > reads.since.0).cloned();
            (full.collect::<Vec<_>>(), remembered.open.newest)
        };
        full.iter().try_for_each(|piece| piece.check(reads))?;
        let newest = full.iter().map(|piece| piece.newest).fold(newest, u64::max);
        Ok(reads.since.max(SequenceNumber(newest)))
    }
}

impl Remembered {
    fn add(&mut self, sequence: u64, write: Written<'_>) {
        self.open.add(sequence, write);
        if self.open.size() >= PIECE_BYTES {
            let mut next = Piece::default();
            if self.bytes >= MOST_BYTES {
                if let Some(oldest) = self.full.pop_front() {
                    self.bytes -= oldest.size();
                    self.forgotten = self.forgotten.max(oldest.newest);
                    next = Arc::into_inner(oldest).unwrap_or_default();
                    next.clear();
                }
            }
            self.bytes += self.open.size();
            let full = std::mem::replace(&mut self.open, next);
            self.full.push_back(Arc::new(full));
        }
    }
}

impl Piece {
    fn size(&self) -> usize {
        self.bytes.len() + OVERHEAD * self.writes.len()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.writes.clear();
        self.newest = 0;
        self.is_unsorted = false;
    }

    fn add(&mut self, sequence: u64, write: Written<'_>) {
        let bound: Vec<u8>;
        let mut range_end: Option<&[u8]> = None;
        let kind = match write {
            Written::Key(namespace, key) => {
                self.bytes.extend_from_slice(&namespace.to_be_bytes());
                self.bytes.extend_from_slice(key);
                Kind::Key
            }
            Written::FullKey(key) => {
                self.bytes.extend_from_slice(key);
                Kind::Key
            }
            Written::IntegerKey(key) => {
                self.bytes.extend_from_slice(&[0; 2]);
                self.bytes.extend_from_slice(&key.to_be_bytes());
                Kind::Key
            }
            Written::Namespace(number) => {
                return self.add(sequence, Written::RangeOf(number, b"", None));
            }
            Written::RangeOf(namespace, from, to) => {
                self.bytes.extend_from_slice(&namespace.to_be_bytes());
                self.bytes.extend_from_slice(from);
                bound = match to {
                    Some(to) => [&namespace.to_be_bytes(), to].concat(),
                    None => (u32::from(namespace) + 1).to_be_bytes()[2..].to_vec(),
                };
                match to.is_none() && namespace == u16::MAX {
                    true => Kind::OpenRange,
                    false => {
                        range_end = Some(&bound);
                        Kind::Range
                    }
                }
            }
            Written::Range(from, to) => {
                self.bytes.extend_from_slice(from);
                range_end = to;
                to.map_or(Kind::OpenRange, |_| Kind::Range)
            }
            Written::Everything => Kind::Everything,
        };
        let end = self.bytes.len() as u32;
        self.bytes.extend_from_slice(range_end.unwrap_or_default());
        self.is_unsorted |= sequence < self.newest;
        self.newest = self.newest.max(sequence);
        self.writes.push(Write {
            sequence,
            end,
            range_end: self.bytes.len() as u32,
            kind,
        });
    }

    fn check(&self, reads: &ReadSet) -> Result<()> {
        for (place, write) in self.writes.iter().enumerate().rev() {
            if write.sequence <= reads.since.0 {
                if self.is_unsorted {
                    continue;
                }
                return Ok(());
            }
            let start = match place {
                0 => 0,
                _ => self.writes[place - 1].range_end as usize,
            };
            let first = &self.bytes[start..write.end as usize];
            let second = &self.bytes[write.end as usize..write.range_end as usize];
            let conflict = match write.kind {
                Kind::Key => reads.conflict_with_key(first),
                Kind::Range => reads.conflict_with_range(first, Some(second)),
                Kind::OpenRange => reads.conflict_with_range(first, None),
                Kind::Everything => Some(Conflict::Everything),
            };
            if let Some(conflict) = conflict {
                return Err(Error::Conflict { conflict });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict(reads: &ReadSet, writes: &[(u64, Written<'_>)]) -> Option<Conflict> {
        let recent = RecentWrites::default();
        recent.start(|| {});
        recent.note(writes.iter().copied());
        let mut reads = reads.clone();
        reads.settle();
        match recent.check(&reads) {
            Ok(_) => None,
            Err(Error::Conflict { conflict }) => Some(conflict),
            Err(other) => panic!("{other}"),
        }
    }

    fn reads() -> ReadSet {
        let mut reads = ReadSet::new(SequenceNumber(10));
        reads.name(3, "trees");
        reads.add_key(full_key(0, b"oak"));
        reads.add_range(full_key(3, b"c"), Some(full_key(3, b"e")));
        reads.add_range(full_key(3, b"d"), Some(full_key(3, b"g")));
        reads.add_range(full_key(3, b"x"), Some(full_key(3, b"x")));
        reads
    }

    #[test]
    fn later_writes_of_what_was_read_conflict_and_no_others() {
        let reads = reads();
        let on = |sequence, namespace, key| {
            conflict(&reads, &[(sequence, Written::Key(namespace, key))])
        };
        assert_eq!(on(10, 0, b"oak"), None);
        let namespace = String::new();
        let key = b"oak".to_vec();
        assert_eq!(on(11, 0, b"oak"), Some(Conflict::Key { namespace, key }));
        assert_eq!(on(11, 1, b"oak"), None);
        assert_eq!(on(11, 0, b"elm"), None);
        let range = Some(Conflict::Range {
            namespace: "trees".to_string(),
            from: b"c".to_vec(),
            to: Some(b"g".to_vec()),
        });
        assert_eq!(on(11, 3, b"c"), range);
        assert_eq!(on(11, 3, b"ezz"), range);
        assert_eq!(on(11, 3, b"g"), None);
        assert_eq!(on(11, 3, b"x"), None);
        assert_eq!(on(11, 3, b""), None);
    }

    #[test]
    fn deleted_ranges_conflict_where_they_meet_what_was_read() {
        let reads = reads();
        let on = |from: &[u8], to: Option<&[u8]>| {
            conflict(&reads, &[(11, Written::Range(from, to))]).is_some()
        };
        assert!(on(&full_key(0, b""), Some(&full_key(0, b"p"))));
        assert!(!on(&full_key(0, b"p"), Some(&full_key(3, b"c"))));
        assert!(on(&full_key(0, b"p"), Some(&full_key(3, b"c\0"))));
        assert!(on(&full_key(3, b"f"), None) && !on(&full_key(3, b"g"), None));
        assert!(!on(&full_key(0, b"z"), Some(&full_key(0, b"a"))));
        assert_eq!(
            conflict(&reads, &[(11, Written::Everything)]),
            Some(Conflict::Everything)
        );
    }

    #[test]
    fn a_range_of_a_namespace_ends_with_it() {
        let last = u16::MAX;
        let mut reads = ReadSet::new(SequenceNumber(10));
        for namespace in [3, last] {
            reads.add_key(full_key(namespace, b"oak"));
        }
        let on = |write| conflict(&reads, &[(11, write)]).is_some();
        assert!(on(Written::RangeOf(3, b"o", Some(b"p"))));
        assert!(!on(Written::RangeOf(3, b"", Some(b"oak"))));
        assert!(on(Written::RangeOf(3, b"", None)) && !on(Written::RangeOf(3, b"p", None)));
        assert!(!on(Written::RangeOf(2, b"", None)) && !on(Written::RangeOf(4, b"", None)));
        assert!(on(Written::RangeOf(last, b"a", None)) && on(Written::Namespace(last)));
        assert!(!on(Written::Namespace(2)) && !on(Written::Namespace(last - 1)));
    }

    #[test]
    fn memory_is_bounded_and_what_was_forgotten_is_known() {
        let recent = RecentWrites::default();
        let old = ReadSet::new(SequenceNumber(0));
        recent.note([(1, Written::Key(0, b"nobody has begun"))]);
        recent.start(|| {});
        recent.start(|| panic!("nobody waits twice"));
        recent.check(&old).unwrap();
        let key = [7; 1_000];
        for sequence in 2..20_000 {
            recent.note([(sequence, Written::Key(0, &key))]);
        }
        let bytes = recent.remembered().bytes;
        assert!(bytes <= MOST_BYTES + PIECE_BYTES, "{bytes}");
        assert!(recent.check(&old).is_err());
        let newest = recent.check(&ReadSet::new(SequenceNumber(19_000)));
        assert_eq!(newest.unwrap(), SequenceNumber(19_999));
    }
}
