//! One moment of a [`Database`](crate::Database).

use std::sync::Arc;

use cambium::{Result, SequenceNumber, Snapshot, Value};
use cambium_io::sync::atomic::{AtomicBool, Ordering};

use crate::database::no_namespaces;
use crate::long_keys;
use crate::reader::Reader;
use crate::sorted_keys::SortedKeys;
use crate::walker::{Bounds, Shape, Walker};

/// A database at one moment, for as long as it is held.
#[derive(Clone, Debug)]
pub struct View {
    pub(crate) snapshot: Snapshot,
    pub(crate) keys: Option<SortedKeys>,
    pub(crate) reader: Arc<Reader>,
    /// Set when the database is closed.
    pub(crate) closed: Arc<AtomicBool>,
}

impl View {
    /// The last write that it sees.
    pub fn sequence(&self) -> SequenceNumber {
        self.snapshot.sequence()
    }

    /// The value that a key had.
    ///
    /// # Errors
    /// `Closed`, `Corruption`, `Io`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        match &self.keys {
            None => stored_value(&self.snapshot, key),
            Some(keys) => match keys.find(key) {
                Some(key) => stored_value(&self.snapshot, key),
                None => self.snapshot.get(b"").map(|_| None),
            },
        }
    }

    /// The values that several keys had, in the order of the keys; the reads go to the
    /// device together.
    ///
    /// # Errors
    /// As of [`View::get`].
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        if self.keys.is_none() && !keys.iter().any(|key| long_keys::may_share(key)) {
            return self.snapshot.multi_get(keys);
        }
        keys.iter().map(|key| self.get(key)).collect()
    }

    /// The same moment of another namespace, or `None` if there is none of that name.
    ///
    /// # Errors
    /// Those of [`Snapshot::namespace`]; `InvalidArgument` with a comparator.
    pub fn namespace(&self, name: &str) -> Result<Option<View>> {
        if self.keys.is_some() {
            return Err(no_namespaces(name));
        }
        let snapshot = self.snapshot.namespace(name)?;
        Ok(snapshot.map(|snapshot| View {
            snapshot,
            ..self.clone()
        }))
    }

    /// An iterator over it, unplaced at first.
    pub fn walker(&self, bounds: &Bounds) -> Walker {
        self.walker_of(bounds, false)
    }

    /// The same, where values are wanted or not: without them each is empty, and
    /// the engine need not read it.
    pub fn walker_of(&self, bounds: &Bounds, keys_only: bool) -> Walker {
        let snapshot = self.snapshot.clone();
        match (&self.keys, keys_only) {
            (None, false) => Walker::by_bytes(snapshot, bounds, Shape::EntriesInGroups),
            (None, true) => Walker::by_bytes(snapshot, bounds, Shape::KeysInGroups),
            (Some(keys), _) => Walker::by_order(snapshot, keys.clone(), bounds, keys_only),
        }
    }

    /// True once the database was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Long walks read ahead with this.
    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The store's own snapshot of this moment.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}

/// The value of a key, out of its group where it is long.
pub(crate) fn stored_value(snapshot: &Snapshot, key: &[u8]) -> Result<Option<Value>> {
    long_keys::find(key, |key| snapshot.get(key))
}
