//! A reader of a store's changes, which makes the store's contents of them.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use cambium_api::{
    ChangeBatch, ChangeFeed, Engine, Error, Result, SequenceNumber, Snapshot, Value,
};

use crate::holding::{Entries, apply_operation, collect_snapshot};

/// Entries by namespace and key; namespaces without entries are left out.
pub type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Value>>;

/// The entries of a store.
pub fn contents(store: &dyn Engine) -> Contents {
    let snapshot = store.snapshot().expect("an open store has a snapshot");
    let mut spaces = collect_snapshot(&*snapshot).expect("a sound store is read");
    spaces.retain(|_, entries| !entries.is_empty());
    spaces
}

/// Applies a batch to contents.
pub fn apply(batch: &ChangeBatch, to: &mut Contents) {
    for change in &batch.changes {
        let name = change.namespace.as_deref().unwrap_or_default();
        let entries = to.entry(name.to_string()).or_default();
        apply_operation(entries, &change.operation);
        if entries.is_empty() {
            to.remove(name);
        }
    }
}

/// True if batches, the first change among them, make what a store holds.
pub fn lead_to(batches: &[ChangeBatch], store: &dyn Engine) -> bool {
    let mut made = Contents::new();
    batches.iter().for_each(|batch| apply(batch, &mut made));
    made == contents(store)
}

/// The batches that a feed has now. Fails the test unless the batches are in order.
pub fn drain(feed: &mut dyn ChangeFeed) -> Vec<ChangeBatch> {
    let mut batches: Vec<ChangeBatch> = Vec::new();
    while let Some(batch) = feed.next().expect("a feed is read") {
        assert!(batch.first <= batch.last, "{batch:?}");
        if let Some(before) = batches.last() {
            assert!(before.last < batch.first, "{before:?} {batch:?}");
        }
        batches.push(batch);
    }
    batches
}

/// Contents made of a moment and the changes behind it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mirror {
    /// The last change that is in it.
    pub(crate) at: SequenceNumber,
    pub(crate) spaces: Contents,
}

impl Mirror {
    /// Begins at a snapshot.
    pub(crate) fn of(snapshot: &dyn Snapshot) -> Result<Self> {
        Ok(Mirror {
            at: snapshot.sequence(),
            spaces: collect_snapshot(snapshot)?,
        })
    }

    /// Takes the changes of a batch over; one that is out of order is damage.
    pub(crate) fn apply(&mut self, batch: &ChangeBatch) -> Result<()> {
        if batch.first <= self.at || batch.last < batch.first {
            let what = format!(
                "a batch from {} to {} behind change {}",
                batch.first, batch.last, self.at
            );
            return Err(Error::corruption("", 0, what));
        }
        self.at = batch.last;
        apply(batch, &mut self.spaces);
        Ok(())
    }

    /// Takes over all that a feed has.
    pub(crate) fn follow(&mut self, feed: &mut dyn ChangeFeed) -> Result<()> {
        while let Some(batch) = feed.next()? {
            self.apply(&batch)?;
        }
        Ok(())
    }

    /// What differs from these contents; a namespace without entries is none.
    pub(crate) fn difference<E: Borrow<Entries>>(
        &self,
        expected: &BTreeMap<String, E>,
    ) -> Option<String> {
        let nothing = Entries::new();
        let names = self.spaces.keys().chain(expected.keys());
        for name in names {
            let found = self.spaces.get(name).unwrap_or(&nothing);
            let wanted = expected.get(name).map_or(&nothing, Borrow::borrow);
            let lines = crate::holding::difference(wanted, found);
            if let Some(line) = lines.first() {
                let count = lines.len();
                return Some(format!(
                    "changes through {} make other contents in {count} keys: in namespace {name:?} {line}",
                    self.at
                ));
            }
        }
        None
    }
}
