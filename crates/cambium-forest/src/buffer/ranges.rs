//! The ranges that writes into a buffer have deleted.
//!
//! They are few: a buffer with many is full. A lookup asks the union of all first, and those
//! one by one only for a key in it.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use cambium_api::KeyRange;
use cambium_io::sync::atomic::{AtomicU64, Ordering};
use cambium_io::sync::{RwLock, RwLockReadGuard};

use crate::planned::range_of;
use crate::ranges::RangeSet;

/// A range that a write has deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeletedRange {
    pub namespace: u16,
    pub sequence: u64,
    pub range: KeyRange,
}

impl DeletedRange {
    /// That of a record of kind `RANGE_DELETED`, whose payload is the range's first key and the
    /// key after its last, or nothing behind the first where the range has no end.
    pub fn of(namespace: u16, sequence: u64, from: &[u8], to: &[u8]) -> Self {
        DeletedRange {
            namespace,
            sequence,
            range: range_of(from, to),
        }
    }
}

/// Deleted ranges in the order of their sequence numbers.
#[derive(Debug, Default)]
pub(super) struct DeletedRanges {
    count: AtomicU64,
    held: RwLock<Held>,
}

#[derive(Debug, Default)]
struct Held {
    all: Vec<DeletedRange>,
    /// All of a namespace.
    unions: BTreeMap<u16, RangeSet>,
}

impl DeletedRanges {
    fn held(&self) -> RwLockReadGuard<'_, Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Adds one, younger than all others.
    pub fn push(&self, range: DeletedRange) {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        let union = held.unions.entry(range.namespace).or_default();
        union.insert(&range.range);
        held.all.push(range);
        self.count.store(held.all.len() as u64, Ordering::Release);
    }

    /// The sequence number of the newest one up to a moment that a key is in.
    #[inline]
    pub fn newest_over(&self, namespace: u16, key: &[u8], moment: u64) -> Option<u64> {
        match self.count() {
            0 => None,
            _ => self.find(namespace, key, moment),
        }
    }

    #[cold]
    fn find(&self, namespace: u16, key: &[u8], moment: u64) -> Option<u64> {
        let held = self.held();
        let union = held.unions.get(&namespace)?;
        if !union.contains(key) {
            return None;
        }
        let mut newest_first = held.all.iter().rev();
        let found = newest_first.find(|one| {
            one.sequence <= moment && one.namespace == namespace && one.range.contains(key)
        });
        found.map(|one| one.sequence)
    }

    /// Adds those of a namespace up to a moment to a set.
    pub fn add_to(&self, set: &mut RangeSet, namespace: u16, moment: u64) {
        if self.count() == 0 {
            return;
        }
        let held = self.held();
        let until = |one: &&DeletedRange| one.sequence <= moment && one.namespace == namespace;
        held.all
            .iter()
            .filter(until)
            .for_each(|one| set.insert(&one.range));
    }

    /// Namespaces that have some.
    pub fn namespaces(&self) -> Vec<u16> {
        self.held().unions.keys().copied().collect()
    }
}
