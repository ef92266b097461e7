//! Entries on their way into a store, batch by batch.

use std::sync::Arc;

use cambium::{
    Durability, Error, ErrorClass, Expiry, KeyKind, Operation, Special, Store, WriteBatch,
};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::import::source::Item;
use crate::notation::shown_key;
use crate::progress::{Meter, Unit};

/// Entries, and bytes of keys and values, between two syncs: the contract.
const SYNC_ENTRIES: u64 = 10_000;
const SYNC_BYTES: u64 = 64 << 20;
/// Entries and bytes in a batch: large enough that its cost is not felt.
const BATCH_ENTRIES: usize = 1000;
const BATCH_BYTES: u64 = 4 << 20;

/// How much was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Entries.
    pub entries: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// Puts entries into a store; memory is bounded by one batch and one entry.
pub struct Intake {
    /// Its writes are buffered; a sync follows when it is due.
    store: Store,
    /// Shows how far it is.
    pub meter: Meter,
    batch: WriteBatch,
    /// Where entries go that name no namespace; `None` is the default one.
    namespace: Option<Arc<str>>,
    /// Taken so far, by earlier runs of the same import too.
    pub done: Amount,
    /// Of that, what is on the device.
    pub synced: Amount,
    /// Entries that this run has put.
    written: u64,
    /// What to do where there is no room for more.
    remedy: &'static str,
}

impl Intake {
    /// Begins, with entries that name no namespace in this one, and with the words
    /// for what to do where there is no room for more.
    pub fn new(store: &Store, namespace: Option<&str>, remedy: &'static str) -> Self {
        Intake {
            store: store.with_durability(Durability::Buffered),
            meter: Meter::new(Unit::Bytes),
            batch: WriteBatch::new(),
            namespace: namespace.map(Into::into),
            done: Amount::default(),
            synced: Amount::default(),
            written: 0,
            remedy,
        }
    }

    /// True when so much was taken since the last sync that one is due.
    pub fn is_sync_due(&self) -> bool {
        self.done.entries - self.synced.entries >= SYNC_ENTRIES
            || self.done.bytes - self.synced.bytes >= SYNC_BYTES
    }

    /// Brings everything taken so far onto the device.
    pub fn sync(&mut self) -> Result<(), Failure> {
        self.write_batch()?;
        self.store.sync()?;
        self.synced = self.done;
        Ok(())
    }

    /// Takes an entry.
    pub fn take(&mut self, item: Item) -> Result<(), Failure> {
        let capabilities = self.store.capabilities();
        let bytes = (item.key.len() + item.value.len()) as u64;
        if let Some(name) = item.namespace.as_ref().filter(|name| !name.is_empty()) {
            if !capabilities.namespaces {
                self.write_batch()?;
                self.store.sync()?;
                return Err(Failure::usage(format!(
                    "the entry of key {} is of namespace {name:?}, and engine {} has no \
                     namespaces: import it into a store of engine forest; everything before it is in",
                    shown_key(capabilities.keys, &item.key),
                    capabilities.engine
                )));
            }
        }
        let operation = Operation::Put {
            key: item.key,
            value: item.value,
        };
        let namespace = item.namespace.or_else(|| self.namespace.clone());
        self.batch.push(namespace, operation);
        if let Some(moment) = item.expires {
            let special = Special::Expires(Expiry::At(moment));
            self.batch.make_special(special);
        }
        self.done.entries += 1;
        self.done.bytes += bytes;
        if self.batch.len() >= BATCH_ENTRIES || self.batch.bytes() >= BATCH_BYTES {
            self.write_batch()?;
            let text = format!("{} entries", self.done.entries);
            self.meter.set(self.done.bytes, text);
        }
        Ok(())
    }

    fn write_batch(&mut self) -> Result<(), Failure> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        let entries = batch.len() as u64;
        // An engine may refuse an integer that lies far from all others, and
        // with it the batch; written one by one, what came before it is kept
        // and it is named. Keys of bytes were checked already: no copy.
        let copy = (self.store.capabilities().keys == KeyKind::Integer).then(|| batch.clone());
        match (self.store.write(batch), copy) {
            (Ok(_), _) => {
                self.written += entries;
                Ok(())
            }
            (Err(error), Some(copy)) if error.class() == ErrorClass::Usage => {
                self.write_singly(copy)
            }
            (Err(error), _) if error.is_no_space() => Err(self.full(&error)),
            (Err(error), _) => Err(error.into()),
        }
    }

    /// What is said where the store has no room for a batch: how much is in without it.
    fn full(&self, error: &Error) -> Failure {
        let durable = match self.store.sync() {
            Ok(()) => "durable",
            Err(_) => "not all of them durable",
        };
        let (entries, remedy) = (self.written, self.remedy);
        let message = format!("{error}; {entries} entries are in, {durable}: {remedy}");
        Failure::from_status_of(error, message)
    }

    fn write_singly(&mut self, mut batch: WriteBatch) -> Result<(), Failure> {
        let mut special = batch.take_special().into_iter().peekable();
        for (place, (namespace, operation)) in batch.into_operations().into_iter().enumerate() {
            let key = match &operation {
                Operation::Put { key, .. } => key.clone(),
                _ => Vec::new(),
            };
            let mut single = WriteBatch::new();
            single.push(namespace, operation);
            if let Some((_, special)) = special.next_if(|(of, _)| *of == place) {
                single.make_special(special);
            }
            if let Err(error) = self.store.write(single) {
                if error.is_no_space() {
                    return Err(self.full(&error));
                }
                self.store.sync()?;
                let key = shown_key(KeyKind::Integer, &key);
                return Err(Failure::failed(format!(
                    "the entry of key {key} was refused: {error}; everything before it is in"
                )));
            }
            self.written += 1;
        }
        Ok(())
    }
}
