//! `memory`, but it stands still in the last 100 ms of every second since it
//! was opened: what a store that collects garbage looks like from outside.
//!
//! A closed loop hides it: one call in the thousands of a second is slow. In an
//! open loop, a tenth of all operations are due while nothing moves.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Memory, capabilities, found, no_settings};
use crate::adapter::{
    Adapter, Availability, Capabilities, Change, OpenRequest, OpenStore, Session, Visit,
};
use crate::driver::clock::Clock;
use crate::error::Result;

const SECOND: u64 = 1_000_000_000;
const MOVES: u64 = 900_000_000;

/// The adapter `stalling`.
#[derive(Clone, Copy, Debug)]
pub struct Stalling;

impl Adapter for Stalling {
    fn name(&self) -> &'static str {
        "stalling"
    }

    fn summary(&self) -> &'static str {
        "memory that stands still for 100 ms of every second"
    }

    fn probe(&self) -> Availability {
        found()
    }

    fn capabilities(&self) -> Capabilities {
        capabilities(false)
    }

    fn settings(&self, request: &OpenRequest) -> Result<BTreeMap<String, String>> {
        no_settings(self.name(), request)
    }

    fn open(&self, request: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        Ok(Arc::new(StallingStore {
            clock: Clock::start(),
            memory: Memory.open(request)?,
        }))
    }
}

struct StallingStore {
    clock: Clock,
    memory: Arc<dyn OpenStore>,
}

impl OpenStore for StallingStore {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(StallingSession {
            clock: self.clock,
            memory: self.memory.clone().session()?,
        }))
    }

    fn sync(&self) -> Result<()> {
        self.memory.sync()
    }

    fn settle(&self) -> Result<()> {
        self.memory.settle()
    }

    fn compact(&self) -> Result<()> {
        self.memory.compact()
    }

    fn close(self: Arc<Self>) -> Result<()> {
        self.memory.clone().close()
    }
}

struct StallingSession {
    clock: Clock,
    memory: Box<dyn Session>,
}

impl StallingSession {
    fn stall(&self) {
        let now = self.clock.now();
        if now % SECOND >= MOVES {
            self.clock.wait_until((now / SECOND + 1) * SECOND, SECOND);
        }
    }
}

impl Session for StallingSession {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.stall();
        self.memory.get(key, value)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.stall();
        self.memory.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.stall();
        self.memory.delete(key)
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        self.stall();
        self.memory.write(changes)
    }

    fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        self.stall();
        self.memory.scan(from, limit, visit)
    }
}
