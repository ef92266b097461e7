//! Copying entries from one store into another: what a backup and an export
//! between engines share.
//!
//! A backup of a store with named snapshots copies one state after the other:
//!
//! ```text
//! oldest snapshot ─▶ next snapshot ─▶ … ─▶ newest state
//!   copied whole      what differs           what differs
//! ```

use std::cmp::Ordering;
use std::sync::Arc;

use cambium_base::{Durability, Result};

use crate::batch::{Operation, WriteBatch};
use crate::cursor::{Cursor, Direction, Entry, KeyRange};
use crate::engine::{Engine, Snapshot};
use crate::report::{Progress, ProgressSink};

/// Bytes of a batch: large enough that its own cost does not count.
const BATCH_BYTES: u64 = 4 << 20;

/// Puts all that a cursor answers into `copy`, and adds to `done` how many
/// entries that were. Nothing is synced: `copy.sync()` or `copy.close()` is the
/// caller's.
///
/// # Errors
/// Those of either store; what was copied up to there stays in the copy.
pub fn copy_entries(
    cursor: &mut dyn Cursor,
    copy: &dyn Engine,
    done: &mut u64,
    progress: &dyn ProgressSink,
) -> Result<()> {
    let mut batch = WriteBatch::new();
    while let Some(entry) = cursor.next()? {
        batch.put(&entry.key, &entry.value);
        *done += 1;
        if batch.bytes() > BATCH_BYTES {
            copy.write(std::mem::take(&mut batch), Durability::Buffered)?;
            progress.report(Progress {
                phase: "backup",
                done: *done,
                total: None,
            });
        }
    }
    copy.write(batch, Durability::Buffered).map(|_| ())
}

/// A copy of a store with an order of keys that is brought to one state after the other. The
/// copy numbers its writes itself.
pub struct StateCopy<'a> {
    copy: &'a dyn Engine,
    /// The state that the copy equals.
    before: Option<Arc<dyn Snapshot>>,
    /// Entries put or deleted.
    done: u64,
    progress: &'a dyn ProgressSink,
}

impl<'a> StateCopy<'a> {
    /// Into a store that is empty.
    pub fn new(copy: &'a dyn Engine, progress: &'a dyn ProgressSink) -> Self {
        StateCopy {
            copy,
            before: None,
            done: 0,
            progress,
        }
    }

    /// Makes the copy equal all named snapshots of a store, in the order in which they were
    /// made, and keeps each under its name; then makes it equal the newest state.
    ///
    /// # Errors
    /// Those of either store.
    pub fn copy_all(mut self, store: &dyn Engine, newest: Arc<dyn Snapshot>) -> Result<()> {
        let mut names = store.list_named_snapshots()?;
        names.sort_by_key(|&(_, sequence)| sequence);
        // All are held before the first is copied: one that is dropped meanwhile is copied too.
        let held = names.into_iter().map(|(name, _)| {
            let snapshot = store.named_snapshot(&name)?;
            Ok((name, snapshot))
        });
        for (name, snapshot) in held.collect::<Result<Vec<_>>>()? {
            self.bring_to(snapshot)?;
            self.copy.create_named_snapshot(&name)?;
        }
        self.bring_to(newest)
    }

    /// Makes the copy equal a state.
    ///
    /// # Errors
    /// Those of either store; what was copied up to there stays in the copy.
    pub fn bring_to(&mut self, state: Arc<dyn Snapshot>) -> Result<()> {
        let names = state.namespaces()?;
        let mut there = Vec::new();
        if let Some(before) = &self.before {
            for name in before.namespaces()? {
                let (old, new) = (before.namespace(&name)?, state.namespace(&name)?);
                let number = |space: &Arc<dyn Snapshot>| space.namespace_number();
                // One that was made again under the same name is another.
                let stays =
                    names.contains(&name) && old.as_ref().map(number) == new.as_ref().map(number);
                match old {
                    Some(old) if stays => there.push((name, old)),
                    _ => self.copy.drop_namespace(&name)?,
                }
            }
        }
        for name in names {
            let into = self.copy.namespace(&name)?;
            let old = there.iter().find(|(known, _)| *known == name);
            let old = old.map(|(_, old)| old.clone());
            if let Some(new) = state.namespace(&name)? {
                self.bring_namespace_to(old, &*new, &*into)?;
            }
        }
        self.before = Some(state);
        Ok(())
    }

    fn bring_namespace_to(
        &mut self,
        old: Option<Arc<dyn Snapshot>>,
        new: &dyn Snapshot,
        into: &dyn Engine,
    ) -> Result<()> {
        let all = KeyRange::all();
        let mut wanted = new.scan(&all, Direction::Forward)?;
        let there = old.map(|old| old.scan(&all, Direction::Forward));
        let mut there = there.transpose()?;
        let mut next_there = || there.as_mut().map_or(Ok(None), |cursor| cursor.next());
        let (mut old, mut new): (Option<Entry>, Option<Entry>) = (next_there()?, wanted.next()?);
        let mut batch = WriteBatch::new();
        loop {
            let order = match (&old, &new) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.key.cmp(&new.key),
            };
            let before = match order.is_le() {
                true => std::mem::replace(&mut old, next_there()?),
                false => None,
            };
            let after = match order.is_ge() {
                true => std::mem::replace(&mut new, wanted.next()?),
                false => None,
            };
            let operation = match (before, after) {
                (Some(gone), None) => Operation::Delete {
                    key: gone.key.to_vec(),
                },
                (before, Some(came))
                    if before.as_ref().is_none_or(|old| old.value != came.value) =>
                {
                    let (key, value) = (came.key.to_vec(), came.value.to_vec());
                    Operation::Put { key, value }
                }
                _ => continue,
            };
            self.take(operation, &mut batch, into)?;
        }
        into.write(batch, Durability::Buffered).map(|_| ())
    }

    fn take(
        &mut self,
        operation: Operation,
        batch: &mut WriteBatch,
        into: &dyn Engine,
    ) -> Result<()> {
        batch.push(None, operation);
        self.done += 1;
        if batch.bytes() > BATCH_BYTES {
            into.write(std::mem::take(batch), Durability::Buffered)?;
            self.progress.report(Progress {
                phase: "backup",
                done: self.done,
                total: None,
            });
        }
        Ok(())
    }
}
