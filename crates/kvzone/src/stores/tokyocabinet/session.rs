//! An open database of Tokyo Cabinet, and a session.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvzone_core::adapter::{Change, OpenStore, Session, Visit, alone, no_scan};
use kvzone_core::error::Result;

use super::database::{Database, Walk};
use super::{NAME, Plan};

pub(super) fn open(plan: Plan, folder: &Path) -> Result<Arc<dyn OpenStore>> {
    Ok(Arc::new(Open {
        database: Database::open(plan, folder)?,
        writer: Mutex::new(()),
    }))
}

struct Open {
    database: Database,
    /// Held by the session that writes, where batches are transactions.
    writer: Mutex<()>,
}

impl Open {
    /// A lock that guards nothing which a panic could leave half done.
    fn line_up(&self) -> Option<MutexGuard<'_, ()>> {
        let lock = || self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.database.plan.transactions.then(lock)
    }

    fn apply(&self, changes: &[Change<'_>]) -> Result<()> {
        changes.iter().try_for_each(|change| match *change {
            Change::Put { key, value } => self.database.put(key, value),
            Change::Delete { key } => self.database.remove(key),
        })
    }
}

impl OpenStore for Open {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(OneThread { open: self }))
    }

    fn sync(&self) -> Result<()> {
        self.database.synchronize()
    }

    /// Nothing is put off but a tree's changed pages.
    fn settle(&self) -> Result<()> {
        self.database.synchronize()
    }

    fn compact(&self) -> Result<()> {
        let _writer = self.line_up();
        self.database.optimize()
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        BTreeMap::from([("entries".to_string(), self.database.entries() as f64)])
    }

    fn close(self: Arc<Self>) -> Result<()> {
        let open = alone(self, NAME)?;
        open.database.close()
    }
}

struct OneThread {
    open: Arc<Open>,
}

impl Session for OneThread {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.open.database.get(key, value)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let _writer = self.open.line_up();
        self.open.database.put(key, value)?;
        self.open.database.after_write()
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let _writer = self.open.line_up();
        self.open.database.remove(key)?;
        self.open.database.after_write()
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        let open = &*self.open;
        if open.database.plan.transactions {
            let _writer = open.line_up();
            return open.database.in_transaction(|| open.apply(changes));
        }
        open.apply(changes)?;
        open.database.after_write()
    }

    fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        let database = &self.open.database;
        if !database.plan.tree {
            return Err(no_scan(NAME));
        }
        let mut walk = Walk::new(database)?;
        let mut visited = 0;
        let mut there = limit > 0 && walk.jump(from)?;
        while there {
            if let Some((key, value)) = walk.entry()? {
                visit(key, value);
                visited += 1;
            }
            there = visited < limit && walk.next()?;
        }
        Ok(visited)
    }
}
