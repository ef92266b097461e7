//! An open database of Berkeley DB, and a session.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvzone_core::adapter::{Change, OpenStore, Session, Visit, alone};
use kvzone_core::error::{Error, Result};

use super::calls::{self, Object, Piece};
use super::environment::{Database, Environment, Walk, answer, nothing_said};
use super::{NAME, Plan};
use cambium_foreign::library::Handle;

pub(super) fn open(plan: Plan, folder: &Path) -> Result<Arc<dyn OpenStore>> {
    let environment = Environment::open(&plan, folder)?;
    Ok(Arc::new(Open {
        database: Database::open(&plan, &environment)?,
        environment,
        plan,
        since_checkpoint: AtomicU64::new(0),
        deadlocks: AtomicU64::new(0),
    }))
}

/// The database stands before its environment: fields are dropped in order.
struct Open {
    database: Database,
    environment: Environment,
    plan: Plan,
    /// Bytes written since somebody took a checkpoint, about.
    since_checkpoint: AtomicU64,
    /// Operations that a deadlock undid, and that were done again.
    deadlocks: AtomicU64,
}

/// Lengths are 32 bits.
fn check_length(bytes: &[u8]) -> Result<()> {
    if u32::try_from(bytes.len()).is_ok() {
        return Ok(());
    }
    let words = format!("{} bytes, where {} is most", bytes.len(), u32::MAX);
    Err(Error::store(NAME, "length", words))
}

impl Open {
    /// Calls until no deadlock undoes it.
    fn until_done(&self, mut call: impl FnMut() -> Result<c_int>) -> Result<c_int> {
        loop {
            let answered = call()?;
            if answered != calls::DEADLOCK {
                return Ok(answered);
            }
            nothing_said();
            self.deadlocks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One change, as part of a transaction or (null) by itself.
    fn apply(&self, transaction: Object, change: &Change<'_>) -> Result<c_int> {
        let object = self.database.object;
        match *change {
            Change::Put { key, value } => {
                check_length(key)?;
                check_length(value)?;
                let (mut key, mut value) = (Piece::of(key), Piece::of(value));
                // SAFETY: an open database, a transaction of this thread or
                // none, and bytes that stay for the call and are only read.
                Ok(unsafe { calls::put(object, transaction, &mut key, &mut value, 0) })
            }
            Change::Delete { key } => {
                check_length(key)?;
                let mut key = Piece::of(key);
                // SAFETY: as above.
                let deleted = unsafe { calls::delete(object, transaction, &mut key, 0) };
                Ok(if deleted == calls::NOT_FOUND {
                    0
                } else {
                    deleted
                })
            }
        }
    }

    fn change(&self, change: &Change<'_>) -> Result<()> {
        let applied = self.until_done(|| self.apply(ptr::null_mut(), change))?;
        answer("DB->put or DB->del", applied)?;
        self.after_write(size_of_change(change))
    }

    /// All changes or none; answers `DEADLOCK` where they were undone.
    fn transaction(&self, changes: &[Change<'_>]) -> Result<c_int> {
        let (mut begun, none) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: an open environment, no parent, a place for the new object.
        let made = unsafe { calls::txn_begin(self.environment.object, none, &mut begun, 0) };
        answer("DB_ENV->txn_begin", made)?;
        let transaction = Handle::new(begun, NAME, "DB_ENV->txn_begin")?;
        for change in changes {
            let applied = self.apply(begun, change);
            if !matches!(applied, Ok(0)) {
                // SAFETY: a transaction of this thread, not used after this.
                let aborted = unsafe { calls::abort(transaction) };
                let applied = applied?;
                if applied != calls::DEADLOCK {
                    answer("DB->put or DB->del in a transaction", applied)?;
                }
                answer("DB_TXN->abort", aborted)?;
                return Ok(applied);
            }
        }
        // SAFETY: as above.
        Ok(unsafe { calls::commit(transaction, 0) })
    }

    /// Takes the checkpoint that a write makes due.
    fn after_write(&self, bytes: u64) -> Result<()> {
        let before = self.since_checkpoint.fetch_add(bytes, Ordering::Relaxed);
        let limit = self.plan.checkpoint_bytes;
        match before < limit && before + bytes >= limit {
            true => self.checkpoint(),
            false => Ok(()),
        }
    }

    /// Writes the changed pages, so that log files can go.
    fn checkpoint(&self) -> Result<()> {
        self.since_checkpoint.store(0, Ordering::Relaxed);
        // SAFETY: an open environment with transactions.
        let done = unsafe { calls::txn_checkpoint(self.environment.object, 0, 0, 0) };
        answer("DB_ENV->txn_checkpoint", done)
    }
}

fn size_of_change(change: &Change<'_>) -> u64 {
    match change {
        Change::Put { key, value } => (key.len() + value.len()) as u64,
        Change::Delete { key } => key.len() as u64,
    }
}

impl OpenStore for Open {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(OneThread { open: self }))
    }

    fn sync(&self) -> Result<()> {
        self.checkpoint()
    }

    fn settle(&self) -> Result<()> {
        self.checkpoint()
    }

    fn compact(&self) -> Result<()> {
        let (object, none, nobody) = (self.database.object, ptr::null_mut(), ptr::null_mut());
        let compacted = self.until_done(|| {
            // SAFETY: an open database, all of it, in transactions of its own.
            Ok(unsafe {
                calls::compact(object, nobody, none, none, nobody, calls::FREE_SPACE, none)
            })
        })?;
        answer("DB->compact", compacted)?;
        self.checkpoint()
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        let deadlocks = self.deadlocks.load(Ordering::Relaxed);
        BTreeMap::from([("deadlocks".to_string(), deadlocks as f64)])
    }

    fn close(self: Arc<Self>) -> Result<()> {
        let open = alone(self, NAME)?;
        open.checkpoint()?;
        open.database.close()?;
        open.environment.close()
    }
}

struct OneThread {
    open: Arc<Open>,
}

impl Session for OneThread {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        check_length(key)?;
        let open = &*self.open;
        loop {
            value.clear();
            let mut found_bytes = 0;
            let found = open.until_done(|| {
                let (mut key, mut into) = (Piece::of(key), Piece::into(value));
                let none = ptr::null_mut();
                // SAFETY: an open database, no transaction, key bytes that stay
                // and are only read, and room for as many bytes as are named.
                let found =
                    unsafe { calls::get(open.database.object, none, &mut key, &mut into, 0) };
                found_bytes = into.size as usize;
                Ok(found)
            })?;
            match found {
                0 => {
                    // SAFETY: the library wrote so many bytes, within the room.
                    unsafe { value.set_len(found_bytes) };
                    return Ok(true);
                }
                calls::NOT_FOUND => return Ok(false),
                calls::BUFFER_SMALL => {
                    nothing_said();
                    value.reserve_exact(found_bytes);
                }
                other => answer("DB->get", other)?,
            }
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.open.change(&Change::Put { key, value })
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.open.change(&Change::Delete { key })
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        let open = &*self.open;
        let done = open.until_done(|| open.transaction(changes))?;
        answer("DB_TXN->commit", done)?;
        open.after_write(changes.iter().map(size_of_change).sum())
    }

    fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        check_length(from)?;
        let mut walk = Walk::new(&self.open.database)?;
        let mut visited = 0;
        let (mut to, mut key) = match from {
            [] => (calls::FIRST, from),
            _ => (calls::SET_RANGE, from),
        };
        while visited < limit {
            let Some((found, value)) = walk.entry(to, key)? else {
                break;
            };
            visit(found, value);
            visited += 1;
            (to, key) = (calls::NEXT, &[]);
        }
        Ok(visited)
    }
}
