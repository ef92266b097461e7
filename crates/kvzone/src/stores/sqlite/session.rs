//! An open SQLite file, and a session: a connection with its statements.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvzone_core::adapter::{Change, OpenStore, Session, Visit, alone};
use kvzone_core::error::{Error, Result};

use super::{NAME, Plan};
use cambium_foreign::sqlite::{Connection, Functions, OPEN_FLAGS, Statement, load};

/// Bytes of the number that a key is in the file.
const NUMBER_BYTES: usize = 8;

pub(super) fn open(plan: Plan, folder: &Path) -> Result<Arc<dyn OpenStore>> {
    let functions = &load()?.functions;
    let file = folder.join("store.sqlite");
    let upkeep = connect(functions, &plan, &file)?;
    upkeep.execute(plan.table())?;
    // What this connection is for is to make things durable.
    upkeep.execute("PRAGMA synchronous=FULL")?;
    Ok(Arc::new(Open {
        functions,
        plan,
        file,
        upkeep: Mutex::new(upkeep),
        writer: Mutex::new(()),
    }))
}

/// A connection to the file, which is made where there is none, with all settings.
fn connect(functions: &'static Functions, plan: &Plan, file: &Path) -> Result<Connection> {
    let connection = Connection::open_as(functions, file, OPEN_FLAGS)?;
    connection.wait_at_most(plan.busy_timeout_ms);
    connection.execute(&plan.pragmas())?;
    Ok(connection)
}

struct Open {
    functions: &'static Functions,
    plan: Plan,
    file: PathBuf,
    /// Looks after the file; sessions have connections of their own.
    upkeep: Mutex<Connection>,
    /// Held by the session that writes, with `writer_lock`.
    writer: Mutex<()>,
}

impl Open {
    /// A lock that guards nothing which a panic could leave half done.
    fn upkeep(&self) -> MutexGuard<'_, Connection> {
        self.upkeep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line_up(&self) -> Option<MutexGuard<'_, ()>> {
        let lock = || self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.plan.writer_lock.then(lock)
    }
}

impl OpenStore for Open {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        let connection = connect(self.functions, &self.plan, &self.file)?;
        Ok(Box::new(OneThread {
            get: connection.prepare("SELECT value FROM entries WHERE key = ?1")?,
            put: connection
                .prepare("INSERT OR REPLACE INTO entries (key, value) VALUES (?1, ?2)")?,
            delete: connection.prepare("DELETE FROM entries WHERE key = ?1")?,
            scan: connection
                .prepare("SELECT key, value FROM entries WHERE key >= ?1 ORDER BY key LIMIT ?2")?,
            walk: connection.prepare("SELECT key, value FROM entries ORDER BY key")?,
            walk_back: connection.prepare("SELECT key, value FROM entries ORDER BY key DESC")?,
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            connection,
            open: self,
        }))
    }

    /// A checkpoint with `synchronous=FULL` syncs the log and then the file.
    fn sync(&self) -> Result<()> {
        Ok(self.upkeep().checkpoint()?)
    }

    fn settle(&self) -> Result<()> {
        Ok(self.upkeep().checkpoint()?)
    }

    fn compact(&self) -> Result<()> {
        let upkeep = self.upkeep();
        upkeep.execute("VACUUM")?;
        Ok(upkeep.checkpoint()?)
    }

    fn close(self: Arc<Self>) -> Result<()> {
        let open = alone(self, NAME)?;
        let upkeep = open.upkeep.into_inner();
        Ok(upkeep.unwrap_or_else(PoisonError::into_inner).close()?)
    }
}

/// Statements stand before their connection: fields are dropped in order.
struct OneThread {
    get: Statement,
    put: Statement,
    delete: Statement,
    scan: Statement,
    walk: Statement,
    walk_back: Statement,
    begin: Statement,
    commit: Statement,
    connection: Connection,
    open: Arc<Open>,
}

/// The number of a key: big-endian, with the highest bit turned over, so that
/// the order of signed numbers is the order of keys. A shorter key than all
/// others have (where a scan begins) is filled up behind.
fn number(key: &[u8], key_bytes: usize) -> Result<i64> {
    let mut padded = [0; NUMBER_BYTES];
    let room = padded.get_mut(NUMBER_BYTES.saturating_sub(key_bytes)..);
    let place = room.and_then(|room| room.get_mut(..key.len()));
    let Some(place) = place else {
        let words = format!(
            "a key of {} bytes, where all keys are numbers of {key_bytes} bytes",
            key.len()
        );
        return Err(Error::store(NAME, "key", words));
    };
    place.copy_from_slice(key);
    Ok((u64::from_be_bytes(padded) ^ 1 << 63) as i64)
}

fn key_of(number: i64) -> [u8; NUMBER_BYTES] {
    (number as u64 ^ 1 << 63).to_be_bytes()
}

impl OneThread {
    /// Binds a key to the first parameter.
    ///
    /// # Safety
    /// The statement must be reset before the key goes.
    unsafe fn bind_key(&self, statement: &Statement, key: &[u8]) -> Result<()> {
        match self.open.plan.integer_keys {
            Some(key_bytes) => statement.bind_number(1, number(key, key_bytes)?)?,
            // SAFETY: as the caller says.
            None => unsafe { statement.bind_bytes(1, key) }?,
        }
        Ok(())
    }

    /// A number has as many bytes in a file as there are keys of that size:
    /// a shorter key would come back longer.
    fn check_size(&self, key: &[u8]) -> Result<()> {
        match self.open.plan.integer_keys {
            Some(key_bytes) if key.len() != key_bytes => {
                let words = format!("a key of {} bytes and not {key_bytes}", key.len());
                Err(Error::store(NAME, "key", words))
            }
            _ => Ok(()),
        }
    }

    fn apply(&self, change: &Change<'_>) -> Result<()> {
        match *change {
            Change::Put { key, value } => {
                self.check_size(key)?;
                // SAFETY: `run` resets the statement while the key is borrowed.
                unsafe { self.bind_key(&self.put, key) }?;
                // SAFETY: as above.
                unsafe { self.put.bind_bytes(2, value) }?;
                Ok(self.connection.run("put", &self.put)?)
            }
            Change::Delete { key } => {
                self.check_size(key)?;
                // SAFETY: as above.
                unsafe { self.bind_key(&self.delete, key) }?;
                Ok(self.connection.run("delete", &self.delete)?)
            }
        }
    }

    fn transaction(&self, changes: &[Change<'_>]) -> Result<()> {
        self.connection.run("begin", &self.begin)?;
        let applied = changes.iter().try_for_each(|change| self.apply(change));
        let ended = applied.and_then(|()| Ok(self.connection.run("commit", &self.commit)?));
        if ended.is_err() {
            // The first error is what is told; a rollback that fails adds
            // nothing to it.
            let _ = self.connection.execute("ROLLBACK");
        }
        ended
    }

    /// The statement is reset by the caller.
    fn visit_rows(&self, rows: &Statement, limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        let mut visited = 0;
        while visited < limit && self.connection.step("scan", rows)? {
            // SAFETY: used before the next step.
            let value = unsafe { rows.bytes(1) };
            match self.open.plan.integer_keys {
                Some(key_bytes) => {
                    let key = key_of(rows.number(0));
                    visit(&key[NUMBER_BYTES.saturating_sub(key_bytes)..], value);
                }
                None => {
                    // SAFETY: used before the next step.
                    visit(unsafe { rows.bytes(0) }, value);
                }
            }
            visited += 1;
        }
        Ok(visited)
    }
}

impl Session for OneThread {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        self.check_size(key)?;
        // SAFETY: the statement is reset below, while the key is borrowed.
        unsafe { self.bind_key(&self.get, key) }?;
        let found = self.connection.step("get", &self.get);
        if let Ok(true) = found {
            // SAFETY: copied before the reset.
            value.extend_from_slice(unsafe { self.get.bytes(0) });
        }
        self.get.reset();
        Ok(found?)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let _first = self.open.line_up();
        self.apply(&Change::Put { key, value })
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let _first = self.open.line_up();
        self.apply(&Change::Delete { key })
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        let _first = self.open.line_up();
        self.transaction(changes)
    }

    fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        // SAFETY: the statement is reset below, while the key is borrowed.
        unsafe { self.bind_key(&self.scan, from) }?;
        self.scan
            .bind_number(2, i64::try_from(limit).unwrap_or(i64::MAX))?;
        let visited = self.visit_rows(&self.scan, limit, visit);
        self.scan.reset();
        visited
    }

    fn walk(&mut self, backwards: bool, visit: &mut Visit<'_>) -> Result<u64> {
        let rows = if backwards {
            &self.walk_back
        } else {
            &self.walk
        };
        let visited = self.visit_rows(rows, u64::MAX, visit);
        rows.reset();
        visited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_the_order_of_keys() {
        let keys: [[u8; 8]; 4] = [[0; 8], [0, 0, 0, 0, 0, 0, 0, 9], [0x7f; 8], [0x80; 8]];
        let numbers: Vec<i64> = keys.iter().map(|key| number(key, 8).unwrap()).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
        for (key, number) in keys.iter().zip(numbers) {
            assert_eq!(key_of(number), *key);
        }
        assert!(number(&[0; 5], 4).is_err());
    }
}
