//! A store in memory that is wrong in one way, on purpose.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use kvzone_core::adapter::{
    Adapter, Capabilities, Change, DurabilityName, OpenRequest, OpenStore, Session, Visit, no_scan,
    one_by_one,
};
use kvzone_core::driver::clock::Clock;
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
    /// A store that is opened again: every tenth key is as it was when the load had
    /// ended, or not there; what was deleted is there; a byte of one value is another.
    KeepsOlder,
    Loses,
    BringsBack,
    Damages,
    /// Right, but it stands still in the last 100 ms of every second: a closed loop
    /// hides it in one slow call of thousands, and in an open loop a tenth of all
    /// operations are due while nothing moves.
    Stalls,
}

/// A store in memory, without scans, that is wrong in one way. It outlives
/// being closed.
pub struct Lying {
    store: Arc<LyingStore>,
}

struct LyingStore {
    lie: Lie,
    clock: Clock,
    entries: Mutex<Entries>,
    writes: Mutex<u32>,
    /// The first sync, which ends the load.
    loaded: Mutex<Option<Entries>>,
    deleted: Mutex<Entries>,
    opened: Mutex<u32>,
}

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

impl Lying {
    pub fn new(lie: Lie) -> Self {
        let store = Arc::new(LyingStore {
            lie,
            clock: Clock::start(),
            entries: Mutex::default(),
            writes: Mutex::default(),
            loaded: Mutex::default(),
            deleted: Mutex::default(),
            opened: Mutex::default(),
        });
        Lying { store }
    }
}

impl Adapter for Lying {
    fn name(&self) -> &'static str {
        "lying"
    }

    fn summary(&self) -> &'static str {
        "is wrong in one way"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: format!("{:?}", self.store.lie).starts_with("Scan"),
            durabilities: match self.store.lie {
                Lie::LosesAKey => &[DurabilityName::Written],
                _ => &DurabilityName::ALL,
            },
            persistent: true,
            ..Capabilities::BARE
        }
    }

    fn open(&self, _request: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        let mut opened = self.store.opened.lock().unwrap();
        *opened += 1;
        if *opened == 2 {
            self.store.wake();
        }
        Ok(self.store.clone())
    }
}

impl OpenStore for LyingStore {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(LyingSession { store: self }))
    }

    fn sync(&self) -> Result<()> {
        let entries = self.entries.lock().unwrap();
        self.loaded
            .lock()
            .unwrap()
            .get_or_insert_with(|| entries.clone());
        Ok(())
    }

    fn close(self: Arc<Self>) -> Result<()> {
        Ok(())
    }
}

impl LyingStore {
    fn wake(&self) {
        let mut entries = self.entries.lock().unwrap();
        let loaded = self.loaded.lock().unwrap().clone().unwrap_or_default();
        let tenth: Vec<Vec<u8>> = entries.keys().step_by(10).cloned().collect();
        match self.lie {
            Lie::KeepsOlder => {
                let older = |key: Vec<u8>| (key.clone(), loaded[&key].clone());
                entries.extend(tenth.into_iter().map(older));
            }
            Lie::Loses => entries.retain(|key, _| !tenth.contains(key)),
            Lie::BringsBack => entries.append(&mut self.deleted.lock().unwrap()),
            Lie::Damages => {
                let value = entries.values_mut().next().unwrap();
                *value.last_mut().unwrap() ^= 1;
            }
            _ => {}
        }
    }

    fn stall(&self) {
        const SECOND: u64 = 1_000_000_000;
        let now = self.clock.now();
        if self.lie == Lie::Stalls && now % SECOND >= 900_000_000 {
            self.clock.wait_until((now / SECOND + 1) * SECOND, SECOND);
        }
    }
}

struct LyingSession {
    store: Arc<LyingStore>,
}

impl Session for LyingSession {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        self.store.stall();
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
        self.store.deleted.lock().unwrap().remove(key);
        let mut entries = self.store.entries.lock().unwrap();
        entries.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        if let Some(value) = self.store.entries.lock().unwrap().remove(key) {
            self.store
                .deleted
                .lock()
                .unwrap()
                .insert(key.to_vec(), value);
        }
        Ok(())
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        one_by_one(self, changes)
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
