//! Stores that break, to show that the others go on.
//!
//! `crashing` takes its process down at its hundredth write, `hanging` never
//! comes back from it. They are in no list, but `--stores` knows them: the
//! tests run them, and whoever doubts what KVZone does about such a store can.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cambium_base::Durability;
use kvzone_core::adapter::{
    Adapter, Availability, Capabilities, Change, OpenRequest, OpenStore, Session, Visit,
};
use kvzone_core::error::Result;

/// Writes that go well.
const GOOD_WRITES: u64 = 99;

/// What a store does at its hundredth write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Broken {
    /// Ends the process by SIGABRT.
    Crashing,
    /// Sleeps for ever.
    Hanging,
}

impl Adapter for Broken {
    fn name(&self) -> &'static str {
        match self {
            Broken::Crashing => "crashing",
            Broken::Hanging => "hanging",
        }
    }

    fn summary(&self) -> &'static str {
        "breaks at its hundredth write"
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
            concurrent_writers: true,
            durabilities: &Durability::ALL,
            sizes_its_cache: false,
            compacts: false,
            persistent: false,
        }
    }

    fn settings(&self, _: &OpenRequest) -> Result<BTreeMap<String, String>> {
        Ok(BTreeMap::new())
    }

    fn open(&self, _: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        Ok(Arc::new(BrokenStore {
            breaks: *self,
            writes: AtomicU64::new(0),
        }))
    }

    fn keeps_data(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct BrokenStore {
    breaks: Broken,
    writes: AtomicU64,
}

impl BrokenStore {
    fn written(&self, count: u64) {
        if self.writes.fetch_add(count, Ordering::Relaxed) + count <= GOOD_WRITES {
            return;
        }
        match self.breaks {
            Broken::Crashing => std::process::abort(),
            Broken::Hanging => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
        }
    }
}

impl OpenStore for BrokenStore {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(BrokenSession(self)))
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

struct BrokenSession(Arc<BrokenStore>);

impl Session for BrokenSession {
    fn get(&mut self, _: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        Ok(false)
    }

    fn put(&mut self, _: &[u8], _: &[u8]) -> Result<()> {
        self.0.written(1);
        Ok(())
    }

    fn delete(&mut self, _: &[u8]) -> Result<()> {
        self.0.written(1);
        Ok(())
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        self.0.written(changes.len() as u64);
        Ok(())
    }

    fn scan(&mut self, _: &[u8], _: u64, _: &mut Visit<'_>) -> Result<u64> {
        Err(kvzone_core::adapter::no_scan("broken"))
    }
}
