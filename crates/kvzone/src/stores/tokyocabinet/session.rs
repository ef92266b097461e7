//! An open database of Tokyo Cabinet, and a session.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kvzone_core::adapter::{Change, OpenStore, Session, Visit, alone, no_scan};
use kvzone_core::error::Result;

use super::database::{Database, Walk};
use super::{NAME, Plan};

pub(super) fn open(plan: Plan, folder: &Path) -> Result<Arc<dyn OpenStore>> {
    Ok(Arc::new(Open(Database::open(plan, folder)?)))
}

struct Open(Database);

impl OpenStore for Open {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(OneThread(self)))
    }

    fn sync(&self) -> Result<()> {
        self.0.synchronize()
    }

    /// Nothing is put off but a tree's changed pages.
    fn settle(&self) -> Result<()> {
        self.0.synchronize()
    }

    fn compact(&self) -> Result<()> {
        self.0.optimize()
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        BTreeMap::from([("entries".to_string(), self.0.entries() as f64)])
    }

    fn close(self: Arc<Self>) -> Result<()> {
        alone(self, NAME)?.0.close()
    }
}

struct OneThread(Arc<Open>);

impl Session for OneThread {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.0.0.get(key, value)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.0.put(key, value)?;
        self.0.0.after_write()
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.0.0.remove(key)?;
        self.0.0.after_write()
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        changes.iter().try_for_each(|change| match *change {
            Change::Put { key, value } => self.0.0.put(key, value),
            Change::Delete { key } => self.0.0.remove(key),
        })?;
        self.0.0.after_write()
    }

    fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        let database = &self.0.0;
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
