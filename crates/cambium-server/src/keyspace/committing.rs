//! A round's writes become one batch of the store.

use cambium::Result;

use super::{Keyspace, layout, partitions};

impl Keyspace {
    /// Hands everything that is pending to the store, as the writes of `round`.
    ///
    /// # Errors
    /// Those of a write: nothing of the round was written then.
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
        let written = self.store.write(batch);
        self.settle_batches(&dirty, made, written.is_ok());
        if let Err(error) = written {
            self.state = self.committed.clone();
            self.recent.forget_all();
            self.soonest.fill((0, Vec::new()));
            // The store's own error says more than one of reading it.
            _ = self.load_expiries();
            return Err(error);
        }
        self.committed = self.state.clone();
        Ok(())
    }

    /// Keys, with their hashes, whose readers wait until this batch is committed; a range of
    /// keys counts as all of its partition.
    fn dirty_keys(&self, batch: &cambium::WriteBatch) -> Vec<(Vec<u8>, u64)> {
        if self.partitions.is_none() {
            return Vec::new();
        }
        let key = |operation: &cambium::Operation| match operation {
            cambium::Operation::Put { key, .. } | cambium::Operation::Delete { key } => {
                self.notes_dirty(key).then(|| (key.clone(), self.hash(key)))
            }
            cambium::Operation::DeleteRange { range } => {
                let from = range.from.as_ref().filter(|from| self.notes_dirty(from));
                from.map(|from| (from.clone(), partitions::WHOLE))
            }
        };
        let operations = batch.operations().iter();
        operations
            .filter_map(|(_, operation)| key(operation))
            .collect()
    }

    fn note_unsynced(&mut self, batch: &cambium::WriteBatch, round: u64, synced: u64) {
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
