//! Consumers: positions under a name that pin history.

use std::sync::Arc;

use cambium_base::{Result, SequenceNumber};
use cambium_io::sync::atomic::Ordering;

use super::history::{History, not_given_out};
use crate::core::{Core, lock};

impl History {
    /// Names and positions of consumers.
    pub fn list(&self) -> Vec<(String, SequenceNumber)> {
        lock(&self.consumers).list()
    }
}

impl Core {
    /// Names and positions of consumers.
    pub fn list_consumers(&self) -> Result<Vec<(String, SequenceNumber)>> {
        self.check_open()?;
        Ok(self.history.list())
    }

    /// Makes, moves or takes away a consumer, durably.
    pub fn move_consumer(self: &Arc<Self>, name: &str, to: Option<SequenceNumber>) -> Result<()> {
        self.check_writable()?;
        if let Some(SequenceNumber(to)) = to {
            let newest = self.visible.load(Ordering::Acquire);
            if to > newest {
                return Err(not_given_out("a consumer at write", to, newest));
            }
            if to > self.synced_through.load(Ordering::Acquire) {
                self.sync_written()?;
            }
        }
        let consumers = lock(&self.history.consumers);
        // A close waits for the lock before it lets another process have the folder.
        self.check_open()?;
        self.history.begin_move(to.map(|to| to.0))?;
        let moved = consumers.set(&*self.environment.file_system, name, to);
        self.history.end_move(&consumers);
        drop(consumers);
        self.notify_background();
        moved
    }
}
