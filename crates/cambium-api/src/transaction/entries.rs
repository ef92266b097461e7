//! Scans of a transaction: a cursor over its snapshot, with its writes above.

use std::collections::BTreeSet;
use std::ops::Bound;

use cambium_base::{Error, Result, Value};

use super::TransactionView;
use super::writes::{Found, bound_before};
use crate::conflicts::Range;
use crate::cursor::{Cursor, Direction, Entry};

/// Entries of a transaction. After an error it has ended.
pub struct TransactionEntries {
    view: TransactionView,
    cursor: Box<dyn Cursor>,
    /// The next entry of the snapshot, by its full key.
    ahead: Option<(Vec<u8>, Value)>,
    order: Order,
    has_failed: bool,
}

enum Order {
    Keys(Keys),
    /// As the snapshot has them, then the keys that only the transaction has.
    Any {
        written: BTreeSet<Vec<u8>>,
    },
}

/// Where an ordered scan is, in full keys.
struct Keys {
    direction: Direction,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    /// The bounds of the whole scan.
    range: Range,
    /// The scan's place among the ranges that the transaction has read.
    read: usize,
}

/// A key that a scan passed: its value, or `None` if the transaction deletes it; and true
/// if it is the key that was read ahead.
type Passed = (Vec<u8>, Option<Value>, bool);

impl std::fmt::Debug for TransactionEntries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TransactionEntries({:?})", self.view)
    }
}

impl TransactionEntries {
    pub(super) fn ordered(
        view: TransactionView,
        cursor: Box<dyn Cursor>,
        range: Range,
        direction: Direction,
    ) -> Result<Self> {
        let read = passed_nothing(&range, direction);
        let keys = Keys {
            direction,
            from: Bound::Included(range.0.clone()),
            to: bound_before(range.1.as_ref()).cloned(),
            read: view.shared.state()?.reads.add_range(read.0, read.1),
            range,
        };
        Self::begin(view, cursor, Order::Keys(keys))
    }

    pub(super) fn unordered(
        view: TransactionView,
        cursor: Box<dyn Cursor>,
        range: Range,
    ) -> Result<Self> {
        let written = {
            let mut state = view.shared.state()?;
            let written = state.writes.keys_within(&range);
            state.reads.add_range(range.0, range.1);
            written
        };
        Self::begin(view, cursor, Order::Any { written })
    }

    fn begin(view: TransactionView, cursor: Box<dyn Cursor>, order: Order) -> Result<Self> {
        let mut entries = TransactionEntries {
            view,
            cursor,
            ahead: None,
            order,
            has_failed: false,
        };
        entries.read_ahead()?;
        Ok(entries)
    }

    fn read_ahead(&mut self) -> Result<()> {
        let view = &self.view;
        self.ahead = self
            .cursor
            .next()?
            .map(|entry| (view.full_key(&entry.key), entry.value));
        Ok(())
    }

    /// Moves to the first entry at or behind `key` in the direction of the scan. What is
    /// skipped does not count as read.
    ///
    /// # Errors
    /// `Unsupported` in an unordered pass; those of reading.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        self.cursor.seek(key)?;
        if let Order::Keys(keys) = &mut self.order {
            let full = self.view.full_key(key);
            let mut range = keys.range.clone();
            match keys.direction {
                Direction::Forward => range.0 = full.max(range.0),
                Direction::Reverse => {
                    let behind = just_behind(&full);
                    let is_within = range.1.as_ref().is_none_or(|to| behind < *to);
                    range.1 = if is_within { Some(behind) } else { range.1 };
                }
            }
            let read = passed_nothing(&range, keys.direction);
            keys.read = self.view.shared.state()?.reads.add_range(read.0, read.1);
            keys.from = Bound::Included(range.0);
            keys.to = bound_before(range.1.as_ref()).cloned();
        }
        self.read_ahead()
    }

    fn next_entry(&mut self) -> Result<Option<Entry>> {
        match &self.order {
            Order::Keys(_) => self.next_by_key(),
            Order::Any { .. } => self.next_of_any(),
        }
    }

    fn next_by_key(&mut self) -> Result<Option<Entry>> {
        while let Some((full, value, is_ahead)) = self.pass_next()? {
            if is_ahead {
                self.read_ahead()?;
            }
            if let Some(value) = value {
                let key = Value::copy_of(&full[2..]);
                return Ok(Some(Entry { key, value }));
            }
        }
        Ok(None)
    }

    /// Passes the next key of the snapshot or of the writes.
    fn pass_next(&mut self) -> Result<Option<Passed>> {
        let Order::Keys(keys) = &mut self.order else {
            return Ok(None);
        };
        let mut state = self.view.shared.state()?;
        let written = state.writes.next(&keys.from, &keys.to, keys.direction);
        let (full, value) = match (written, &self.ahead) {
            (Some((key, value)), None) => (key.clone(), value.clone()),
            (Some((key, value)), Some((ahead, _))) if keys.meets(key, ahead) => {
                (key.clone(), value.clone())
            }
            (_, Some((ahead, value))) => {
                let is_deleted = state.writes.deletes(ahead);
                (ahead.clone(), (!is_deleted).then(|| value.clone()))
            }
            (None, None) => {
                match keys.direction {
                    Direction::Forward => {
                        state.reads.range_mut(keys.read).1.clone_from(&keys.range.1);
                    }
                    Direction::Reverse => {
                        state.reads.range_mut(keys.read).0.clone_from(&keys.range.0);
                    }
                }
                return Ok(None);
            }
        };
        keys.pass(&full, state.reads.range_mut(keys.read));
        let is_ahead = self.ahead.as_ref().is_some_and(|(ahead, _)| *ahead == full);
        Ok(Some((full, value, is_ahead)))
    }

    fn next_of_any(&mut self) -> Result<Option<Entry>> {
        drop(self.view.shared.state()?);
        while let Some((full, value)) = self.ahead.take() {
            self.read_ahead()?;
            let found = self.view.shared.state()?.writes.find(&full);
            if let Order::Any { written } = &mut self.order {
                written.remove(&full);
            }
            let key = Value::copy_of(&full[2..]);
            match found {
                Found::Untouched => return Ok(Some(Entry { key, value })),
                Found::Written(Some(value)) => return Ok(Some(Entry { key, value })),
                Found::Written(None) => {}
            }
        }
        while let Order::Any { written } = &mut self.order {
            let Some(full) = written.pop_first() else {
                break;
            };
            if let Found::Written(Some(value)) = self.view.shared.state()?.writes.find(&full) {
                let key = Value::copy_of(&full[2..]);
                return Ok(Some(Entry { key, value }));
            }
        }
        Ok(None)
    }
}

impl Keys {
    /// True if the scan comes to a key no later than to another.
    fn meets(&self, key: &[u8], other: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => key <= other,
            Direction::Reverse => key >= other,
        }
    }

    /// The scan goes on behind a key, which is read, with all before it.
    fn pass(&mut self, full: &[u8], read: &mut Range) {
        match self.direction {
            Direction::Forward => {
                self.from = Bound::Excluded(full.to_vec());
                read.1 = Some(just_behind(full));
            }
            Direction::Reverse => {
                self.to = Bound::Excluded(full.to_vec());
                read.0.clear();
                read.0.extend_from_slice(full);
            }
        }
    }
}

/// The first key behind a key.
fn just_behind(full: &[u8]) -> Vec<u8> {
    let mut behind = Vec::with_capacity(full.len() + 1);
    behind.extend_from_slice(full);
    behind.push(0);
    behind
}

/// The range that a scan has read before its first entry: empty, at its first bound. A
/// reverse scan without an upper bound has no such key, so its whole range counts as read.
fn passed_nothing((from, to): &Range, direction: Direction) -> Range {
    match (direction, to) {
        (Direction::Forward, _) => (from.clone(), Some(from.clone())),
        (Direction::Reverse, Some(to)) => (to.clone(), Some(to.clone())),
        (Direction::Reverse, None) => (from.clone(), None),
    }
}

impl Iterator for TransactionEntries {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let next = self.next_entry();
        self.has_failed = next.is_err();
        next.transpose()
    }
}
