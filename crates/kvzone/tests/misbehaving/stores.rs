//! Stores in memory that do one thing wrong.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvzone_core::adapter::{
    Adapter, Capabilities, Change, OpenRequest, OpenStore, Session, one_by_one,
};
use kvzone_core::error::{Error, Result};

/// Writes that go well in stores that crash or hang.
const GOOD_WRITES: u32 = 99;

pub fn all() -> Vec<Box<dyn Adapter>> {
    let faults = [Fault::Crashes, Fault::Hangs, Fault::Forgets];
    faults
        .map(|fault| Box::new(fault) as Box<dyn Adapter>)
        .into()
}

#[derive(Clone, Copy)]
enum Fault {
    /// Ends its process by SIGABRT.
    Crashes,
    /// Sleeps for ever.
    Hangs,
    /// Has on the disk what a sync or a close found, whatever it acknowledged.
    Forgets,
}

struct Store {
    fault: Fault,
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    writes: u32,
}

impl Adapter for Fault {
    fn name(&self) -> &'static str {
        match self {
            Fault::Crashes => "crashing",
            Fault::Hangs => "hanging",
            Fault::Forgets => "forgetful",
        }
    }

    fn summary(&self) -> &'static str {
        "misbehaves"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: matches!(self, Fault::Forgets),
            ..Capabilities::BARE
        }
    }

    fn open(&self, request: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        let file = request.folder.join("entries");
        let entries: Vec<(Vec<u8>, Vec<u8>)> = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap(),
            Err(_) => Vec::new(),
        };
        let state = State {
            entries: entries.into_iter().collect(),
            writes: 0,
        };
        Ok(Arc::new(Store {
            fault: *self,
            file,
            state: Mutex::new(state),
        }))
    }

    fn keeps_data(&self) -> bool {
        matches!(self, Fault::Forgets)
    }
}

impl OpenStore for Store {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(OneThread(self)))
    }

    fn sync(&self) -> Result<()> {
        let entries: Vec<_> = self
            .state
            .lock()
            .unwrap()
            .entries
            .clone()
            .into_iter()
            .collect();
        let text = serde_json::to_vec(&entries).unwrap();
        std::fs::write(&self.file, text)
            .map_err(|error| Error::store(self.fault.name(), "sync", error))
    }

    fn close(self: Arc<Self>) -> Result<()> {
        self.sync()
    }
}

struct OneThread(Arc<Store>);

impl OneThread {
    fn write(&self, change: impl FnOnce(&mut State)) -> Result<()> {
        let mut state = self.0.state.lock().unwrap();
        state.writes += 1;
        change(&mut state);
        match self.0.fault {
            Fault::Crashes if state.writes > GOOD_WRITES => std::process::abort(),
            Fault::Hangs if state.writes > GOOD_WRITES => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
            _ => Ok(()),
        }
    }
}

impl Session for OneThread {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let state = self.0.state.lock().unwrap();
        let found = state.entries.get(key);
        value.extend_from_slice(found.map_or(&[], Vec::as_slice));
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        OneThread::write(self, |state| {
            state.entries.insert(key.to_vec(), value.to_vec());
        })
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        OneThread::write(self, |state| drop(state.entries.remove(key)))
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        one_by_one(self, changes)
    }
}
