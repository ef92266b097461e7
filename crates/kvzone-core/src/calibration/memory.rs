//! A sorted map in memory under one lock: the least that a store that keeps
//! data, and its order, costs.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::CAPABILITIES;
use crate::adapter::{
    Adapter, Capabilities, Change, OpenRequest, OpenStore, Session, Visit, alone,
};
use crate::error::Result;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Copy, Debug)]
pub struct Memory;

impl Adapter for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn summary(&self) -> &'static str {
        "a sorted map in memory under one lock: keeps nothing"
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn open(&self, _request: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        Ok(Arc::new(MemoryStore::default()))
    }
}

#[derive(Debug, Default)]
struct MemoryStore {
    entries: RwLock<Entries>,
}

impl MemoryStore {
    // The map is whole after every call of it, so a thread that panicked with
    // the lock in hand has broken nothing.
    fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenStore for MemoryStore {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(MemorySession { store: self }))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn close(self: Arc<Self>) -> Result<()> {
        alone(self, Memory.name()).map(drop)
    }
}

#[derive(Debug)]
struct MemorySession {
    store: Arc<MemoryStore>,
}

fn put(entries: &mut Entries, key: &[u8], value: &[u8]) {
    match entries.get_mut(key) {
        Some(old) => {
            old.clear();
            old.extend_from_slice(value);
        }
        None => {
            entries.insert(key.to_vec(), value.to_vec());
        }
    }
}

impl Session for MemorySession {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let entries = self.store.read();
        let found = entries.get(key);
        value.extend_from_slice(found.map_or(&[], Vec::as_slice));
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        put(&mut self.store.write(), key, value);
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.store.write().remove(key);
        Ok(())
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        let mut entries = self.store.write();
        for change in changes {
            match change {
                Change::Put { key, value } => put(&mut entries, key, value),
                Change::Delete { key } => drop(entries.remove(*key)),
            }
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        let entries = self.store.read();
        let range = (Bound::Included(from), Bound::Unbounded);
        let mut count = 0;
        for (key, value) in entries.range::<[u8], _>(range).take(limit as usize) {
            visit(key, value);
            count += 1;
        }
        Ok(count)
    }

    fn walk(&mut self, backwards: bool, visit: &mut Visit<'_>) -> Result<u64> {
        let entries = self.store.read();
        match backwards {
            false => entries.iter().for_each(|(key, value)| visit(key, value)),
            true => entries
                .iter()
                .rev()
                .for_each(|(key, value)| visit(key, value)),
        }
        Ok(entries.len() as u64)
    }
}
