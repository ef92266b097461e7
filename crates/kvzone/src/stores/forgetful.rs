//! A store that says "synced" and has written nothing yet, to show that this is found.
//!
//! `forgetful` is a map in memory and a file that every change is appended to: all of
//! them at each sync, and where [`HELD_BACK`] changes wait the older half. So whenever it
//! is killed it has acknowledged changes that the file does not have: half as many at
//! least. As [`super::broken`]'s it is in no list, and `--stores` knows it.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use cambium_base::Durability;
use kvzone_core::adapter::{
    Adapter, Availability, Capabilities, Change, OpenRequest, OpenStore, Session, Visit, no_scan,
};
use kvzone_core::error::{Error, Result};

const NAME: &str = "forgetful";

/// Changes that wait before they are written.
const HELD_BACK: usize = 1_000;

/// In place of a value's length: the key goes away.
const DELETED: u32 = u32::MAX;

pub(super) struct Forgetful;

impl Adapter for Forgetful {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "acknowledges what it has not written"
    }

    fn probe(&self) -> Availability {
        Availability::Found {
            version: env!("CARGO_PKG_VERSION").to_string(),
            path: None,
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: false,
            atomic_batches: false,
            concurrent_writers: false,
            durabilities: &Durability::ALL,
            sizes_its_cache: false,
            compacts: false,
            persistent: true,
        }
    }

    fn settings(&self, _: &OpenRequest) -> Result<BTreeMap<String, String>> {
        Ok(BTreeMap::new())
    }

    fn open(&self, request: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        let path = request.folder.join("log");
        let entries = read(&path).map_err(|error| Error::store(NAME, "open", error))?;
        let log = File::options().append(true).create(true).open(path);
        let inside = Inside {
            log: log.map_err(|error| Error::store(NAME, "open", error))?,
            entries,
            older: Vec::new(),
            waiting: Vec::new(),
            changes: 0,
        };
        Ok(Arc::new(Open(Mutex::new(inside))))
    }
}

/// What a log gives: lengths of key and value, and both, one change after another.
fn read(path: &Path) -> std::io::Result<HashMap<Vec<u8>, Vec<u8>>> {
    let mut entries = HashMap::new();
    let bytes = match path.exists() {
        true => fs::read(path)?,
        false => Vec::new(),
    };
    let mut rest = bytes.as_slice();
    while let Some((lengths, after)) = rest.split_first_chunk::<8>() {
        let (key, value) = lengths.split_at(4);
        let length = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
        let (key_bytes, value_bytes) = (length(key) as usize, length(value));
        let deleted = value_bytes == DELETED;
        let value_bytes = if deleted { 0 } else { value_bytes as usize };
        if after.len() < key_bytes + value_bytes {
            break;
        }
        let (entry, after) = after.split_at(key_bytes + value_bytes);
        let (key, value) = entry.split_at(key_bytes);
        match deleted {
            true => entries.remove(key),
            false => entries.insert(key.to_vec(), value.to_vec()),
        };
        rest = after;
    }
    Ok(entries)
}

struct Inside {
    log: File,
    entries: HashMap<Vec<u8>, Vec<u8>>,
    /// Changes that the file does not have, and behind them those that `changes` counts.
    older: Vec<u8>,
    waiting: Vec<u8>,
    changes: usize,
}

impl Inside {
    fn change(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let length = value.map_or(DELETED, |value| value.len() as u32);
        self.waiting
            .extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.waiting.extend_from_slice(&length.to_le_bytes());
        self.waiting.extend_from_slice(key);
        self.waiting.extend_from_slice(value.unwrap_or_default());
        match value {
            Some(value) => self.entries.insert(key.to_vec(), value.to_vec()),
            None => self.entries.remove(key),
        };
        self.changes += 1;
        if self.changes < HELD_BACK / 2 {
            return Ok(());
        }
        self.write_older()
    }

    fn write_older(&mut self) -> Result<()> {
        let written = self.log.write_all(&self.older);
        self.older = std::mem::take(&mut self.waiting);
        self.changes = 0;
        written.map_err(|error| Error::store(NAME, "write", error))
    }

    fn write(&mut self) -> Result<()> {
        self.write_older()?;
        self.write_older()
    }
}

struct Open(Mutex<Inside>);

impl Open {
    fn with<T>(&self, act: impl FnOnce(&mut Inside) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl OpenStore for Open {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(OneThread(self)))
    }

    fn sync(&self) -> Result<()> {
        self.with(Inside::write)
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn close(self: Arc<Self>) -> Result<()> {
        self.with(Inside::write)
    }
}

struct OneThread(Arc<Open>);

impl Session for OneThread {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        Ok(self.0.with(|inside| {
            let found = inside.entries.get(key);
            value.extend_from_slice(found.map_or(&[], Vec::as_slice));
            found.is_some()
        }))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.with(|inside| inside.change(key, Some(value)))
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.0.with(|inside| inside.change(key, None))
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        changes.iter().try_for_each(|change| match *change {
            Change::Put { key, value } => self.put(key, value),
            Change::Delete { key } => self.delete(key),
        })
    }

    fn scan(&mut self, _: &[u8], _: u64, _: &mut Visit<'_>) -> Result<u64> {
        Err(no_scan(NAME))
    }
}
