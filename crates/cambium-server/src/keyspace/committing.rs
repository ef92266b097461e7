//! A round's writes become one batch of the store.

use cambium::Result;

use super::{Keyspace, layout};

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
        if self.state != self.committed {
            batch.put(layout::STATE_KEY, self.state.encode());
        }
        if self.tracks_unsynced {
            self.note_unsynced(&batch, round, synced);
        }
        if let Err(error) = self.store.write(batch) {
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
