//! Entries over Redis' protocol: a connection a session.
//!
//! A put is `SET`, a get `GET`, a delete `DEL`. A batch of several changes is `MULTI`, its
//! commands, and `EXEC`, sent without waiting between them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use cambium_foreign::redis::{self, Address, Answer, Connection};
use kvzone_core::adapter::{Change, OpenStore, Session, Visit};
use kvzone_core::error::{Error, Result};

use super::process::ServerProcess;
use super::{Dialect, OWNER, connect, leave};

/// Commands of a batch that are sent before their answers are read: a server that is not read
/// stops reading as well.
const MOST_AHEAD: usize = 1_000;

pub(super) struct Open<D> {
    dialect: D,
    address: Address,
    password: Option<String>,
    control: Mutex<Connection>,
    held: Mutex<Held>,
}

/// A server that a session uses, and what its close ends.
pub(super) enum Held {
    Child(ServerProcess),
    /// The folder of a run on a server that was not started here.
    Elsewhere(PathBuf),
    Nothing,
}

impl<D: Dialect + 'static> Open<D> {
    pub(super) fn new(
        dialect: D,
        address: Address,
        password: Option<String>,
        control: Connection,
        held: Held,
    ) -> Self {
        Open {
            dialect,
            address,
            password,
            control: Mutex::new(control),
            held: Mutex::new(held),
        }
    }

    fn control<T>(&self, act: impl FnOnce(&D, &mut Connection) -> T) -> T {
        // Poisoned means that a call panicked; the next one fails with the server's words.
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        act(&self.dialect, &mut control)
    }
}

impl<D: Dialect + 'static> OpenStore for Open<D> {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        let connection = connect(self.dialect.name(), &self.address, self.password.as_deref())?;
        Ok(Box::new(OneThread {
            open: self,
            connection,
        }))
    }

    fn sync(&self) -> Result<()> {
        self.control(Dialect::sync)
    }

    fn settle(&self) -> Result<()> {
        self.control(Dialect::settle)
    }

    fn compact(&self) -> Result<()> {
        self.control(Dialect::compact)
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        let lines = self.control(Dialect::counters).unwrap_or_default();
        let number = |line: &str| {
            let (name, value) = line.trim().split_once(':')?;
            Some((name.to_string(), value.parse().ok()?))
        };
        lines.lines().filter_map(number).collect()
    }

    fn close(self: Arc<Self>) -> Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let process = match std::mem::replace(&mut *held, Held::Nothing) {
            Held::Child(process) => process,
            Held::Elsewhere(folder) => {
                return self.control(|dialect, control| leave(dialect.name(), control, &folder));
            }
            Held::Nothing => return Ok(()),
        };
        let ended = self.control(|dialect, control| control.call(dialect.shutdown()));
        // The connection ends in place of an answer.
        if let Err(error @ redis::Error::Refused(_)) = ended {
            return Err(Error::store(self.dialect.name(), "SHUTDOWN", error));
        }
        process.wait()
    }
}

struct OneThread<D> {
    open: Arc<Open<D>>,
    connection: Connection,
}

impl<D: Dialect + 'static> OneThread<D> {
    fn call(&mut self, call: &'static str, words: &[&[u8]]) -> Result<Answer> {
        super::call(self.open.dialect.name(), &mut self.connection, call, words)
    }

    fn push(&mut self, change: &Change<'_>) {
        match *change {
            Change::Put { key, value } => self.connection.push(&[b"SET", key, value]),
            Change::Delete { key } => self.connection.push(&[b"DEL", key]),
        }
    }

    /// Reads so many answers, none of which may be an error.
    fn expect(&mut self, count: usize) -> redis::Result<Option<Answer>> {
        self.connection.flush()?;
        let mut last = None;
        for _ in 0..count {
            last = Some(self.connection.receive()?.accepted()?);
        }
        Ok(last)
    }

    fn transaction(&mut self, changes: &[Change<'_>]) -> redis::Result<()> {
        self.connection.push(&[b"MULTI"]);
        let mut ahead = 1;
        for change in changes {
            self.push(change);
            ahead += 1;
            if ahead == MOST_AHEAD {
                self.expect(ahead)?;
                ahead = 0;
            }
        }
        self.connection.push(&[b"EXEC"]);
        match self.expect(ahead + 1)? {
            Some(Answer::List(answers)) => answers
                .into_iter()
                .try_for_each(|answer| answer.accepted().map(drop)),
            _ => Err(redis::Error::Refused("EXEC answered no list".to_string())),
        }
    }
}

impl<D: Dialect + 'static> Session for OneThread<D> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        match self.call("GET", &[b"GET", key])? {
            Answer::Bytes(bytes) => {
                *value = bytes;
                Ok(true)
            }
            _ => {
                value.clear();
                Ok(false)
            }
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.call("SET", &[b"SET", key, value]).map(drop)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.call("DEL", &[b"DEL", key]).map(drop)
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        match changes {
            [] => Ok(()),
            [Change::Put { key, value }] => self.put(key, value),
            [Change::Delete { key }] => self.delete(key),
            changes => {
                let written = self.transaction(changes);
                written.map_err(|error| Error::store(self.open.dialect.name(), "EXEC", error))
            }
        }
    }

    /// A server answers a part of a long range at a time.
    fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        let (mut visited, mut next) = (0, from.to_vec());
        loop {
            let dialect = &self.open.dialect;
            let page = dialect.scan(&mut self.connection, &next, limit - visited)?;
            let mut page = page.into_iter().map(Answer::into_bytes);
            let mut last = None;
            while let (Some(key), Some(value)) = (page.next(), page.next()) {
                // A bound of one byte `-` means none: what lies before it is left out.
                if key.as_slice() >= from && key != OWNER {
                    visit(&key, &value);
                    visited += 1;
                }
                last = Some(key);
            }
            match last {
                Some(key) if visited < limit => next = [key, vec![0]].concat(),
                _ => return Ok(visited),
            }
        }
    }
}
