//! Keys that expire: their order, and their end.

use std::collections::BTreeSet;

use cambium::{Direction, KeyRange, Result};

use super::Keyspace;
use super::layout::{self, Entry};
use super::notices::Class;
use super::overlay::{Read, Walk};

/// Keys that expire in one step where no client waits.
pub const MOST_EXPIRED_A_STEP: usize = 100;
/// Keys that expire in each database before keys are counted.
pub const MOST_EXPIRED_A_COUNT: usize = 2_000;
/// Beside so many commands one key expires: live work goes first.
pub const COMMANDS_A_KEY: usize = 16;

/// A moment, and the database and key that expire then.
type Expiry = (u64, u8, Vec<u8>);

/// The moments at which keys expire, on engines without an order of keys. A commit that fails
/// takes back all changes since the one before.
#[derive(Debug, Default)]
pub(super) struct Expiries {
    all: BTreeSet<Expiry>,
    /// Changes since the last commit; true for what came.
    changes: Vec<(bool, Expiry)>,
}

impl Expiries {
    fn insert(&mut self, expiry: Expiry) {
        if self.all.insert(expiry.clone()) {
            self.changes.push((true, expiry));
        }
    }

    fn remove(&mut self, expiry: Expiry) {
        if self.all.remove(&expiry) {
            self.changes.push((false, expiry));
        }
    }

    /// Forgets those of a database.
    pub(super) fn empty(&mut self, database: u8) {
        let changes = &mut self.changes;
        self.all.retain(|expiry| {
            let stays = expiry.1 != database;
            if !stays {
                changes.push((false, expiry.clone()));
            }
            stays
        });
    }

    /// All changes are in the store now.
    pub(super) fn keep(&mut self) {
        self.changes.clear();
    }

    /// None of the changes is in the store.
    pub(super) fn take_back(&mut self) {
        for (came, expiry) in self.changes.drain(..).rev() {
            match came {
                true => _ = self.all.remove(&expiry),
                false => _ = self.all.insert(expiry),
            }
        }
    }
}

impl Keyspace {
    /// On an engine without an order of keys, one pass finds what expires when.
    pub(super) fn load_expiries(&mut self) -> Result<()> {
        if self.view.is_ordered {
            return Ok(());
        }
        for stored in self.store.iterate()? {
            let stored = stored?;
            let entry = Entry::decode(&stored.value).and_then(|entry| entry.expires);
            if let (Some(moment), [database, _, key @ ..]) = (entry, &*stored.key) {
                self.expiries.insert((moment, *database, key.to_vec()));
            }
        }
        self.expiries.keep();
        Ok(())
    }

    /// Deletes a key that has expired. The answer of a command that meets it does not depend on
    /// that: where the store has no room for the deletion, the key is gone all the same.
    pub(super) fn expire(&mut self, database: u8, key: &[u8], entry: &Entry) {
        let is_pending = self.footprint.is_pending;
        self.view.overlay.is_expiring = true;
        self.remove(database, key, entry);
        self.view.overlay.is_expiring = false;
        self.footprint.is_pending = is_pending;
        self.expired += 1;
        self.notices.add(Class::Expired, "expired", database, key);
    }

    pub(super) fn move_expiry(
        &mut self,
        database: u8,
        key: &[u8],
        old: Option<u64>,
        new: Option<u64>,
    ) {
        if old == new {
            return;
        }
        let count = &mut self.state.counts[usize::from(database)];
        count.expiring =
            count.expiring.saturating_sub(u64::from(old.is_some())) + u64::from(new.is_some());
        if let Some(moment) = new {
            let soonest = &mut self.soonest[usize::from(database)];
            if (moment, key) < (soonest.0, &*soonest.1) {
                *soonest = (moment, key.to_vec());
            }
        }
        if let Some(moment) = old {
            self.forget_expiry(database, moment, key);
        }
        let Some(moment) = new else { return };
        if self.view.is_ordered {
            let due = layout::expiry_key(database, moment, key);
            self.view.overlay.put(due, Vec::new());
        } else {
            self.expiries.insert((moment, database, key.to_vec()));
        }
    }

    /// A key does not expire at a moment any more.
    fn forget_expiry(&mut self, database: u8, moment: u64, key: &[u8]) {
        if self.view.is_ordered {
            let stale = layout::expiry_key(database, moment, key);
            self.view.overlay.delete(stale);
        } else {
            self.expiries.remove((moment, database, key.to_vec()));
        }
    }

    /// Deletes keys that have expired, as many as do not hold up other clients: a count that
    /// follows leaves them out.
    pub fn expire_some(&mut self) -> Result<()> {
        self.expire_step(MOST_EXPIRED_A_COUNT)
    }

    /// The moment of the round, if keys of the database may have expired that are not deleted
    /// yet: a walk over keys has to leave them out.
    pub fn undeleted_by(&self, database: u8) -> Option<u64> {
        let place = usize::from(database);
        let count = self.state.counts.get(place)?;
        let is_due = count.expiring > 0 && self.soonest[place].0 <= self.now;
        // Elsewhere the head deletes them, and this copy does not follow what is due.
        (is_due || !self.leads(database)).then_some(self.now)
    }

    /// Deletes keys that have expired, in each database up to `step`.
    pub fn expire_step(&mut self, step: usize) -> Result<()> {
        for database in 0..layout::MOST_DATABASES as u8 {
            let place = usize::from(database);
            if !self.leads(database) {
                continue;
            }
            if self.state.counts[place].expiring == 0 || self.soonest[place].0 > self.now {
                continue;
            }
            let soonest = self.soonest[place].clone();
            for (moment, key) in self.due(database, step)? {
                match self.raw(database, &key) {
                    Err(error) => {
                        // The rest is still due, also where a command only waits for a value.
                        self.soonest[place] = soonest;
                        return Err(error);
                    }
                    Ok(Some(entry)) if entry.expires == Some(moment) => {
                        self.expire(database, &key, &entry)
                    }
                    Ok(_) => self.forget_expiry(database, moment, &key),
                }
            }
        }
        Ok(())
    }

    /// The next moment at which something may expire.
    pub fn next_expiry(&self) -> Option<u64> {
        let counted = (0..).zip(self.soonest.iter().zip(&self.state.counts));
        let soonest =
            counted.filter(|(database, (_, count))| count.expiring > 0 && self.leads(*database));
        soonest.map(|(_, (soonest, _))| soonest.0).min()
    }

    /// Keys of a database that have expired, a step's worth; notes when the next one will.
    fn due(&mut self, database: u8, step: usize) -> Result<Vec<(u64, Vec<u8>)>> {
        let (now, mut due) = (self.now, Vec::new());
        let mut soonest = (u64::MAX, Vec::new());
        let mut take = |moment: u64, key: &[u8]| {
            if moment > now || due.len() == step {
                soonest = (moment, key.to_vec());
                return Walk::Enough;
            }
            due.push((moment, key.to_vec()));
            Walk::On
        };
        if self.view.is_ordered {
            // Not from the beginning: what was deleted there is passed again by each walk.
            let (moment, key) = &self.soonest[usize::from(database)];
            let range = KeyRange {
                from: Some(layout::expiry_key(database, *moment, key)),
                ..layout::expiries(database)
            };
            self.view
                .walk(&range, Direction::Forward, Read::Keys, |stored, _| {
                    layout::key_of_expiry(stored)
                        .map_or(Walk::On, |(moment, key)| take(moment, key))
                })?;
        } else {
            for (moment, of, key) in &self.expiries.all {
                if *of == database && take(*moment, key) == Walk::Enough {
                    break;
                }
            }
        }
        self.soonest[usize::from(database)] = soonest;
        Ok(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_commit_wrote_is_taken_back() {
        let expiry = |moment: u64, database: u8| (moment, database, b"oak".to_vec());
        let mut expiries = Expiries::default();
        expiries.insert(expiry(1, 0));
        expiries.insert(expiry(2, 1));
        expiries.keep();
        let committed = expiries.all.clone();
        expiries.remove(expiry(1, 0));
        expiries.insert(expiry(3, 0));
        expiries.remove(expiry(3, 0));
        expiries.insert(expiry(1, 0));
        expiries.empty(1);
        expiries.insert(expiry(4, 1));
        expiries.take_back();
        assert_eq!(expiries.all, committed);
    }
}
