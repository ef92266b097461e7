//! A store in memory that is wrong in one way, on purpose.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cambium_base::Durability;
use kvzone_core::adapter::{
    Adapter, Availability, Capabilities, Change, OpenRequest, OpenStore, Session, Visit, no_scan,
};
use kvzone_core::error::{Error, Result};

/// What a [`Lying`] store gets wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lie {
    None,
    LosesAKey,
    OlderVersion,
    OtherKeysValue,
    DamagedByte,
    ScanLeavesOut,
    ScanEndsEarly,
    ScanBackwards,
    ScanMiscounts,
    ScanOtherValues,
    ScanStrangeKey,
    FailsAfter(u32),
    PanicsAfter(u32),
}

/// A store in memory, without scans, that is wrong in one way. It outlives
/// being closed.
pub struct Lying {
    lie: Lie,
    store: Arc<LyingStore>,
}

struct LyingStore {
    lie: Lie,
    entries: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    writes: Mutex<u32>,
}

impl Lying {
    pub fn new(lie: Lie) -> Self {
        let store = Arc::new(LyingStore {
            lie,
            entries: Mutex::default(),
            writes: Mutex::default(),
        });
        Lying { lie, store }
    }
}

impl Adapter for Lying {
    fn name(&self) -> &'static str {
        "lying"
    }

    fn summary(&self) -> &'static str {
        "is wrong in one way"
    }

    fn probe(&self) -> Availability {
        Availability::Found {
            version: format!("{:?}", self.lie),
            path: None,
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: format!("{:?}", self.lie).starts_with("Scan"),
            atomic_batches: false,
            concurrent_writers: false,
            durabilities: &[Durability::Written],
            sizes_its_cache: false,
            compacts: false,
            persistent: true,
        }
    }

    fn settings(&self, _request: &OpenRequest) -> Result<BTreeMap<String, String>> {
        Ok(BTreeMap::new())
    }

    fn open(&self, _request: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        Ok(self.store.clone())
    }
}

impl OpenStore for LyingStore {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(LyingSession { store: self }))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn close(self: Arc<Self>) -> Result<()> {
        Ok(())
    }
}

struct LyingSession {
    store: Arc<LyingStore>,
}

impl Session for LyingSession {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let entries = self.store.entries.lock().unwrap();
        let found = match self.store.lie {
            Lie::OtherKeysValue => entries.values().next(),
            Lie::LosesAKey if key[0] == 0x40 => None,
            _ => entries.get(key),
        };
        value.extend_from_slice(found.map_or(&[], Vec::as_slice));
        if self.store.lie == Lie::DamagedByte && key[0] == 0x40 {
            value[50] ^= 1;
        }
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut writes = self.store.writes.lock().unwrap();
        *writes += 1;
        let many = *writes;
        drop(writes);
        match self.store.lie {
            Lie::FailsAfter(count) if many > count => {
                return Err(Error::store("lying", "put", "no space left"));
            }
            Lie::PanicsAfter(count) if many > count => panic!("on purpose"),
            // The load is kept, what comes later is not.
            Lie::OlderVersion if many > 2_000 => return Ok(()),
            _ => {}
        }
        let mut entries = self.store.entries.lock().unwrap();
        entries.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.store.entries.lock().unwrap().remove(key);
        Ok(())
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        for change in changes {
            match change {
                Change::Put { key, value } => self.put(key, value)?,
                Change::Delete { key } => self.delete(key)?,
            }
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        let lie = self.store.lie;
        let entries = self.store.entries.lock().unwrap();
        let mut found: Vec<_> = entries
            .range(from.to_vec()..)
            .take(limit as usize)
            .collect();
        match lie {
            Lie::ScanLeavesOut if found.len() > 3 => {
                found.remove(2);
            }
            Lie::ScanEndsEarly => found.truncate(found.len() / 2),
            Lie::ScanBackwards => found.reverse(),
            _ => {}
        }
        for (at, &(key, value)) in found.iter().enumerate() {
            let value = match lie {
                Lie::ScanOtherValues => found[found.len() - 1 - at].1,
                _ => value,
            };
            match lie {
                Lie::ScanStrangeKey if at == 1 => visit(&[key.as_slice(), b"x"].concat(), value),
                _ => visit(key, value),
            }
        }
        match lie {
            Lie::None => Err(no_scan("lying")),
            Lie::ScanMiscounts => Ok(found.len() as u64 + 1),
            _ => Ok(found.len() as u64),
        }
    }
}
