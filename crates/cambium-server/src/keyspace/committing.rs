//! A round's writes become one batch of the store.

use cambium::{Operation, Result, WriteBatch};

use super::layout::{self, State};
use super::{Keyspace, partitions};

/// Entries that are read at once.
const READ_TOGETHER: usize = 64;

impl Keyspace {
    /// Hands everything that is pending to the store, as the writes of `round`.
    ///
    /// # Errors
    /// Those of a write: nothing of the round was written then, but for a part of its deletes if
    /// it had nothing else and a full store took them in parts.
    pub fn commit(&mut self, round: u64, synced: u64) -> Result<()> {
        if self.is_committed() && self.state == self.committed {
            return Ok(());
        }
        let mut batch = self.view.overlay.take_batch();
        self.forget_fetched();
        let made = self.number_batches(&mut batch);
        let dirty = self.dirty_keys(&batch);
        if self.state != self.committed {
            batch.put(layout::STATE_KEY, self.state.encode());
        }
        if self.tracks_unsynced {
            self.note_unsynced(&batch, round, synced);
        }
        let written = self.write(batch);
        self.settle_batches(&dirty, made, written.is_ok());
        if let Err(error) = written {
            self.state = self.committed.clone();
            self.recent.forget_all();
            self.soonest.fill((0, Vec::new()));
            self.expiries.take_back();
            return Err(error);
        }
        self.committed = self.state.clone();
        self.expiries.keep();
        Ok(())
    }

    /// Writes a batch. Where an engine with a fixed size has no room for all tombstones of a
    /// batch that only deletes, they are written in parts.
    fn write(&mut self, batch: WriteBatch) -> Result<()> {
        let deletes = self.deletes_alone(&batch);
        match self.store.write(batch) {
            Err(error) if error.is_no_space() && !deletes.is_empty() => {
                self.delete_in_parts(&deletes)
            }
            written => written.map(drop),
        }
    }

    /// The keys that a batch deletes, if it does nothing else. None where an engine keeps keys in
    /// order: its batches have several operations for each key.
    fn deletes_alone(&self, batch: &WriteBatch) -> Vec<Vec<u8>> {
        if self.view.is_ordered || self.partitions.is_some() {
            return Vec::new();
        }
        let operations = batch.operations().iter();
        let others = operations.filter(|(_, operation)| match operation {
            Operation::Put { key, .. } => key != layout::STATE_KEY,
            _ => true,
        });
        let deleted = others.map(|(_, operation)| match operation {
            Operation::Delete { key } => Some(key.clone()),
            _ => None,
        });
        deleted.collect::<Option<_>>().unwrap_or_default()
    }

    /// Deletes keys in parts that a full store has room for, each with the counts behind it. The
    /// space of each part makes room for a larger one.
    fn delete_in_parts(&mut self, mut keys: &[Vec<u8>]) -> Result<()> {
        let mut most = 1;
        while !keys.is_empty() {
            let (part, others) = keys.split_at(most.min(keys.len()));
            let state = match others.is_empty() {
                true => self.state.clone(),
                false => self.state_without(part)?,
            };
            let mut batch = WriteBatch::new();
            for key in part {
                batch.delete(key);
            }
            batch.put(layout::STATE_KEY, state.encode());
            match self.store.write(batch) {
                Ok(_) => (self.committed, keys, most) = (state, others, 2 * most),
                Err(error) if error.is_no_space() && part.len() > 1 => most = part.len() / 2,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The committed state when some keys of the store are deleted.
    fn state_without(&self, keys: &[Vec<u8>]) -> Result<State> {
        let mut state = self.committed.clone();
        for keys in keys.chunks(READ_TOGETHER) {
            let wanted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            for (key, stored) in wanted.iter().zip(self.store.multi_get(&wanted)?) {
                let count = key.first().map(|&database| usize::from(database));
                let count = count.and_then(|database| state.counts.get_mut(database));
                if let (Some(stored), Some(count)) = (stored, count) {
                    let expires = layout::expires(&stored).is_some();
                    count.keys = count.keys.saturating_sub(1);
                    count.expiring = count.expiring.saturating_sub(u64::from(expires));
                }
            }
        }
        Ok(state)
    }

    /// Keys, with their hashes, whose readers wait until this batch is committed; a range of
    /// keys counts as all of its partition.
    fn dirty_keys(&self, batch: &WriteBatch) -> Vec<(Vec<u8>, u64)> {
        if self.partitions.is_none() {
            return Vec::new();
        }
        let key = |operation: &Operation| match operation {
            Operation::Put { key, .. } | Operation::Delete { key } => {
                self.notes_dirty(key).then(|| (key.clone(), self.hash(key)))
            }
            Operation::DeleteRange { range } => {
                let from = range.from.as_ref().filter(|from| self.notes_dirty(from));
                from.map(|from| (from.clone(), partitions::WHOLE))
            }
        };
        let operations = batch.operations().iter();
        operations
            .filter_map(|(_, operation)| key(operation))
            .collect()
    }

    fn note_unsynced(&mut self, batch: &WriteBatch, round: u64, synced: u64) {
        self.unsynced.retain(|_, written| *written > synced);
        for (_, operation) in batch.operations() {
            use cambium::Operation::{Delete, DeleteRange, Put};
            match operation {
                Put { key, .. } | Delete { key } => {
                    let hash = self.hash(key);
                    self.unsynced.insert(hash, round);
                }
                DeleteRange { .. } => self.emptied = round,
            }
        }
    }
}
