//! The writes of a transaction before its commit.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use cambium_base::Value;
use cambium_io::sync::atomic::{AtomicU64, Ordering};

use crate::batch::{Namespace, Operation, Special, WriteBatch};
use crate::conflicts::Range;
use crate::cursor::{Direction, KeyRange};
use crate::expiry::Expiry;

/// Savepoints that were made, by all transactions.
static SAVEPOINTS: AtomicU64 = AtomicU64::new(0);

/// Writes in memory, by full key ([`crate::conflicts::full_key`]).
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// The last write of each key.
    keys: BTreeMap<Vec<u8>, Write>,
    /// Deleted ranges in order. Keys that were written before are deleted in `keys`.
    ranges: Vec<Range>,
    /// Numbers of the savepoints, in order, and how long `undo` was then.
    savepoints: Vec<(u64, usize)>,
    /// The values that writes replaced since the first savepoint.
    undo: Vec<Undo>,
}

/// A write of a key.
#[derive(Clone, Debug, Default)]
pub(super) struct Write {
    /// The key's value; `None` deletes it.
    pub value: Option<Value>,
    /// When the entry expires, counted from the commit.
    pub expiry: Option<Expiry>,
}

#[derive(Debug)]
enum Undo {
    Key(Vec<u8>, Option<Write>),
    Range,
}

/// The result of looking a key up in the writes.
pub(super) enum Found {
    /// The transaction put or deleted it.
    Written(Write),
    /// The snapshot knows.
    Untouched,
}

impl Writes {
    /// True if nothing is written.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }

    /// Looks a key up in the transaction's own writes.
    pub fn find(&self, full: &[u8]) -> Found {
        match self.keys.get(full) {
            Some(write) => Found::Written(write.clone()),
            None if self.deletes(full) => Found::Written(Write::default()),
            None => Found::Untouched,
        }
    }

    /// True if a deleted range covers the key.
    pub fn deletes(&self, full: &[u8]) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|(from, to)| &from[..] <= full && to.as_ref().is_none_or(|to| full < &to[..]))
    }

    /// Puts or deletes a key.
    pub fn set(&mut self, full: Vec<u8>, write: Write) {
        if self.savepoints.is_empty() {
            self.keys.insert(full, write);
            return;
        }
        let before = self.keys.insert(full.clone(), write);
        self.undo.push(Undo::Key(full, before));
    }

    /// Deletes a range.
    pub fn delete_range(&mut self, from: Vec<u8>, to: Option<Vec<u8>>) {
        if to.as_ref().is_some_and(|to| *to <= from) {
            return;
        }
        let range = (from, to);
        let written = self.keys_within(&range);
        written
            .into_iter()
            .for_each(|key| self.set(key, Write::default()));
        self.ranges.push(range);
        if !self.savepoints.is_empty() {
            self.undo.push(Undo::Range);
        }
    }

    /// The first key that the transaction wrote within bounds, in a direction.
    pub fn next(
        &self,
        from: &Bound<Vec<u8>>,
        to: &Bound<Vec<u8>>,
        direction: Direction,
    ) -> Option<(&Vec<u8>, &Write)> {
        let (from, to) = (from.as_ref(), to.as_ref());
        if self.keys.is_empty() || holds_nothing(from, to) {
            return None;
        }
        let mut range = self.keys.range::<Vec<u8>, _>((from, to));
        match direction {
            Direction::Forward => range.next(),
            Direction::Reverse => range.next_back(),
        }
    }

    /// The keys that the transaction wrote in a range.
    pub fn keys_within(&self, (from, to): &Range) -> BTreeSet<Vec<u8>> {
        let bounds = (Bound::Included(from), bound_before(to.as_ref()));
        let keys = self.keys.range::<Vec<u8>, _>(bounds);
        keys.map(|(key, _)| key.clone()).collect()
    }

    /// A place to come back to, by a number that no other transaction's savepoint has.
    pub fn savepoint(&mut self) -> u64 {
        let number = SAVEPOINTS.fetch_add(1, Ordering::Relaxed);
        self.savepoints.push((number, self.undo.len()));
        number
    }

    /// Forgets what was written since a savepoint; false of one that is gone, or another
    /// transaction's.
    pub fn roll_back(&mut self, savepoint: u64) -> bool {
        let known = self
            .savepoints
            .binary_search_by_key(&savepoint, |(number, _)| *number);
        let Ok(at) = known else {
            return false;
        };
        let (_, writes) = self.savepoints[at];
        self.savepoints.truncate(at + 1);
        for undo in self.undo.drain(writes..).rev() {
            match undo {
                Undo::Range => _ = self.ranges.pop(),
                Undo::Key(key, Some(before)) => _ = self.keys.insert(key, before),
                Undo::Key(key, None) => _ = self.keys.remove(&key),
            }
        }
        true
    }

    /// The batch that does it all: ranges first, since `keys` has what came after them.
    /// `name` gives the name of a full key's namespace.
    pub fn into_batch(self, name: impl Fn(&[u8]) -> Namespace) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for (from, to) in self.ranges {
            let same = |to: &Vec<u8>| to.len() > 2 || to[..2] == from[..2];
            let range = KeyRange {
                from: Some(from[2..].to_vec()),
                to: to.filter(same).map(|to| to[2..].to_vec()),
            };
            batch.push(name(&from), Operation::DeleteRange { range });
        }
        for (mut full, write) in self.keys {
            let namespace = name(&full);
            full.drain(..2);
            let operation = match write.value {
                Some(value) => Operation::Put {
                    key: full,
                    value: value.to_vec(),
                },
                None => Operation::Delete { key: full },
            };
            batch.push(namespace, operation);
            if let Some(expiry) = write.expiry {
                batch.make_special(Special::Expires(expiry));
            }
        }
        batch
    }
}

/// The bound before the end of a range.
pub(super) fn bound_before(to: Option<&Vec<u8>>) -> Bound<&Vec<u8>> {
    to.map_or(Bound::Unbounded, Bound::Excluded)
}

/// True of bounds with nothing in between, some of which [`BTreeMap::range`] refuses.
fn holds_nothing(from: Bound<&Vec<u8>>, to: Bound<&Vec<u8>>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (
            Bound::Included(from) | Bound::Excluded(from),
            Bound::Included(to) | Bound::Excluded(to),
        ) => from >= to,
    }
}
