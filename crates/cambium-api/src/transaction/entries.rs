//! Scans of a transaction: cursors over its snapshot, with its writes above.

use std::collections::BTreeSet;
use std::ops::Bound;

use cambium_base::{Error, Result, Value};

use super::TransactionView;
use super::writes::{Found, Write, bound_before};
use crate::conflicts::Range;
use crate::cursor::{Cursor, Direction, Entry, KeyRange, unordered_pass};

/// Entries of a transaction: a scan goes from both ends. After an error it has ended.
pub struct TransactionEntries {
    view: TransactionView,
    order: Order,
    has_failed: bool,
}

enum Order {
    Keys(Box<Scan>),
    /// As the snapshot has them, then the keys that only the transaction has.
    Any {
        ahead: Ahead,
        written: BTreeSet<Vec<u8>>,
    },
}

/// A cursor of the snapshot, and its next entry, by its full key.
struct Ahead {
    cursor: Box<dyn Cursor>,
    next: Option<(Vec<u8>, Value)>,
}

/// An ordered scan, in full keys.
struct Scan {
    /// The bounds, as the snapshot takes them.
    asked: KeyRange,
    /// The bounds of the whole scan.
    range: Range,
    /// Between these is what neither end has passed.
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    front: End,
    back: Option<End>,
}

/// One end of a scan.
struct End {
    ahead: Ahead,
    /// Its place among the ranges that the transaction has read.
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

impl Ahead {
    fn begin(view: &TransactionView, cursor: Box<dyn Cursor>) -> Result<Self> {
        let mut ahead = Ahead { cursor, next: None };
        ahead.read(view)?;
        Ok(ahead)
    }

    fn read(&mut self, view: &TransactionView) -> Result<()> {
        self.next = self
            .cursor
            .next()?
            .map(|entry| (view.full_key(&entry.key), entry.value));
        Ok(())
    }
}

impl TransactionEntries {
    pub(super) fn ordered(view: TransactionView, asked: KeyRange) -> Result<Self> {
        let range = view.full_range(&asked);
        let scan = Scan {
            from: Bound::Included(range.0.clone()),
            to: bound_before(range.1.as_ref()).cloned(),
            front: End::begin(&view, &asked, &range, Direction::Forward)?,
            back: None,
            asked,
            range,
        };
        Ok(TransactionEntries {
            view,
            order: Order::Keys(Box::new(scan)),
            has_failed: false,
        })
    }

    pub(super) fn unordered(view: TransactionView, cursor: Box<dyn Cursor>) -> Result<Self> {
        let range = view.full_range(&KeyRange::all());
        let written = {
            let mut state = view.shared.state()?;
            let written = state.writes.keys_within(&range);
            state.reads.add_range(range.0, range.1);
            written
        };
        let ahead = Ahead::begin(&view, cursor)?;
        Ok(TransactionEntries {
            view,
            order: Order::Any { ahead, written },
            has_failed: false,
        })
    }

    /// Moves the front to the first entry at or behind `key`. What is skipped does not
    /// count as read.
    ///
    /// # Errors
    /// `Unsupported` in an unordered pass; those of reading.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.seek_towards(key.as_ref(), Direction::Forward)
    }

    /// Moves the back to the last entry at or before `key`. What is skipped does not
    /// count as read.
    ///
    /// # Errors
    /// As of [`TransactionEntries::seek`].
    pub fn seek_back(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.seek_towards(key.as_ref(), Direction::Reverse)
    }

    fn seek_towards(&mut self, key: &[u8], direction: Direction) -> Result<()> {
        match &mut self.order {
            Order::Keys(scan) => scan.seek(&self.view, key, direction),
            Order::Any { .. } => Err(self.unsupported()),
        }
    }

    fn unsupported(&self) -> Error {
        unordered_pass(self.view.shared.engine.capabilities().engine)
    }

    fn step(&mut self, direction: Direction) -> Option<Result<Entry>> {
        if self.has_failed {
            return None;
        }
        let next = match (&mut self.order, direction) {
            (Order::Keys(scan), _) => scan.next_entry(&self.view, direction),
            (Order::Any { ahead, written }, Direction::Forward) => {
                next_of_any(&self.view, ahead, written)
            }
            (Order::Any { .. }, Direction::Reverse) => Err(self.unsupported()),
        };
        self.has_failed = next.is_err();
        next.transpose()
    }
}

fn next_of_any(
    view: &TransactionView,
    ahead: &mut Ahead,
    written: &mut BTreeSet<Vec<u8>>,
) -> Result<Option<Entry>> {
    drop(view.shared.state()?);
    while let Some((full, value)) = ahead.next.take() {
        ahead.read(view)?;
        let found = view.shared.state()?.writes.find(&full);
        written.remove(&full);
        let key = Value::copy_of(&full[2..]);
        match found {
            Found::Untouched => return Ok(Some(Entry { key, value })),
            Found::Written(write) => {
                if let Some(value) = write.value {
                    return Ok(Some(Entry { key, value }));
                }
            }
        }
    }
    while let Some(full) = written.pop_first() {
        let found = view.shared.state()?.writes.find(&full);
        if let Found::Written(Write {
            value: Some(value), ..
        }) = found
        {
            let key = Value::copy_of(&full[2..]);
            return Ok(Some(Entry { key, value }));
        }
    }
    Ok(None)
}

impl End {
    fn begin(
        view: &TransactionView,
        asked: &KeyRange,
        range: &Range,
        direction: Direction,
    ) -> Result<Self> {
        let cursor = view.snapshot.scan(asked, direction)?;
        let read = passed_nothing(range, direction);
        let read = view.shared.state()?.reads.add_range(read.0, read.1);
        let ahead = Ahead::begin(view, cursor)?;
        Ok(End { ahead, read })
    }
}

impl Scan {
    /// The end at which a direction begins; the back is opened when it is first needed.
    fn end(&mut self, view: &TransactionView, direction: Direction) -> Result<&mut End> {
        if direction == Direction::Forward {
            return Ok(&mut self.front);
        }
        let back = match self.back.take() {
            Some(back) => back,
            None => End::begin(view, &self.asked, &self.range, direction)?,
        };
        Ok(self.back.insert(back))
    }

    fn seek(&mut self, view: &TransactionView, key: &[u8], direction: Direction) -> Result<()> {
        let full = view.full_key(key);
        let mut range = self.range.clone();
        match direction {
            Direction::Forward => range.0 = full.max(range.0),
            Direction::Reverse => {
                let behind = just_behind(&full);
                let is_within = range.1.as_ref().is_none_or(|to| behind < *to);
                range.1 = if is_within { Some(behind) } else { range.1 };
            }
        }
        let end = self.end(view, direction)?;
        end.ahead.cursor.seek(key)?;
        end.ahead.read(view)?;
        let read = passed_nothing(&range, direction);
        end.read = view.shared.state()?.reads.add_range(read.0, read.1);
        match direction {
            Direction::Forward => self.from = Bound::Included(range.0),
            Direction::Reverse => self.to = bound_before(range.1.as_ref()).cloned(),
        }
        Ok(())
    }

    fn next_entry(
        &mut self,
        view: &TransactionView,
        direction: Direction,
    ) -> Result<Option<Entry>> {
        self.end(view, direction)?;
        while let Some((full, value, is_ahead)) = self.pass_next(view, direction)? {
            if is_ahead {
                self.end(view, direction)?.ahead.read(view)?;
            }
            if let Some(value) = value {
                let key = Value::copy_of(&full[2..]);
                return Ok(Some(Entry { key, value }));
            }
        }
        Ok(None)
    }

    /// Passes the next key of the snapshot or of the writes.
    fn pass_next(
        &mut self,
        view: &TransactionView,
        direction: Direction,
    ) -> Result<Option<Passed>> {
        let end = match (direction, &self.back) {
            (Direction::Reverse, Some(back)) => back,
            _ => &self.front,
        };
        let mut state = view.shared.state()?;
        let ahead = end.ahead.next.as_ref();
        let ahead = ahead.filter(|(key, _)| is_between(&self.from, key, &self.to));
        let written = state.writes.next(&self.from, &self.to, direction);
        let (full, value) = match (written, ahead) {
            (Some((key, write)), None) => (key.clone(), write.value.clone()),
            (Some((key, write)), Some((ahead, _))) if meets(key, ahead, direction) => {
                (key.clone(), write.value.clone())
            }
            (_, Some((ahead, value))) => {
                let is_deleted = state.writes.deletes(ahead);
                (ahead.clone(), (!is_deleted).then(|| value.clone()))
            }
            (None, None) => {
                let read = state.reads.range_mut(end.read);
                match direction {
                    Direction::Forward => read.1 = behind_bound(&self.to),
                    Direction::Reverse => read.0 = behind_bound(&self.from).unwrap_or_default(),
                }
                return Ok(None);
            }
        };
        let read = state.reads.range_mut(end.read);
        match direction {
            Direction::Forward => {
                self.from = Bound::Excluded(full.clone());
                read.1 = Some(just_behind(&full));
            }
            Direction::Reverse => {
                self.to = Bound::Excluded(full.clone());
                read.0.clone_from(&full);
            }
        }
        let is_ahead = ahead.is_some_and(|(ahead, _)| *ahead == full);
        Ok(Some((full, value, is_ahead)))
    }
}

/// True if a scan comes to a key no later than to another.
fn meets(key: &[u8], other: &[u8], direction: Direction) -> bool {
    match direction {
        Direction::Forward => key <= other,
        Direction::Reverse => key >= other,
    }
}

/// True if a key is behind one bound and before the other.
fn is_between(from: &Bound<Vec<u8>>, key: &Vec<u8>, to: &Bound<Vec<u8>>) -> bool {
    let is_behind = match from {
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
        Bound::Unbounded => true,
    };
    is_behind
        && match to {
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
            Bound::Unbounded => true,
        }
}

/// The end of what was read up to an upper bound, or the start from a lower one.
fn behind_bound(bound: &Bound<Vec<u8>>) -> Option<Vec<u8>> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key.clone()),
        Bound::Unbounded => None,
    }
}

/// The first key behind a key.
fn just_behind(full: &[u8]) -> Vec<u8> {
    let mut behind = Vec::with_capacity(full.len() + 1);
    behind.extend_from_slice(full);
    behind.push(0);
    behind
}

/// The range that an end has read before its first entry: empty, at its first bound. The
/// back of a range without an upper bound has no such key, so the whole range counts as
/// read.
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
        self.step(Direction::Forward)
    }
}

impl DoubleEndedIterator for TransactionEntries {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Direction::Reverse)
    }
}
