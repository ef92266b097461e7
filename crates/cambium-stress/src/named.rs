//! Named snapshots and rollbacks, and namespaces that come and go, where the engine has
//! them.
//!
//! Threads create named snapshots while others write. At the end of a session, when all
//! threads have stopped, the store may be brought back to one of them: its keys must then
//! be those of the sequence number that the store gave for the snapshot. The next session
//! verifies that; a rollback that was killed may have happened or not.

use std::path::Path;
use std::sync::atomic::Ordering;

use cambium::{Error, Store};

use crate::actor::{Actor, Step, violation};
use crate::ledger::{self, Base, Event, Level};
use crate::random::Random;
use crate::session::{Failed, Shared};

/// Drops the named snapshots of earlier sessions.
pub fn drop_old(store: &Store) -> Result<(), Error> {
    if store.capabilities().named_snapshots {
        for (name, _) in store.list_named_snapshots()? {
            store.drop_named_snapshot(&name)?;
        }
    }
    Ok(())
}

/// Brings the store back to one of the session's named snapshots, or to none.
pub fn roll_back(shared: &Shared, base: &Base, ledger: &Path, seed: u64) -> Result<(), Failed> {
    let store = &shared.stores[0];
    let mut random = Random::part(seed, 5);
    if !shared.abilities.named_snapshots || random.chance(40) {
        return Ok(());
    }
    let named = store
        .list_named_snapshots()
        .map_err(Failed::of("named snapshots"))?;
    if named.is_empty() {
        return Ok(());
    }
    let (name, number) = random.pick(&named).clone();
    let note = |event| ledger::note(ledger, base.generation, event).map_err(Failed::wrong);
    note(Event::RollingBack(number.0))?;
    store.rollback(&name).map_err(Failed::of("rollback"))?;
    note(Event::RolledBack(number.0))
}

impl Actor<'_> {
    /// Creates a named snapshot, which covers all that this thread has written.
    pub fn name_snapshot(&mut self) -> Step {
        if !self.shared.abilities.named_snapshots {
            return Ok(());
        }
        let store = &self.shared.stores[0];
        let name = format!("{}-{}", self.thread, self.random.next());
        let before = self.shared.acknowledged.load(Ordering::Acquire);
        // It is durable when the call returns, with everything before it.
        let made = self.change(Level::Synced, &[], |_, _| {
            store.create_named_snapshot(&name).map(|()| None)
        })?;
        let named = store
            .list_named_snapshots()
            .map_err(|error| self.judge("listing named snapshots", error))?;
        match named.iter().find(|(listed, _)| *listed == name) {
            Some((_, number)) if number.0 < before => violation(format!(
                "named snapshot {name} sees writes up to {number}, and {before} was acknowledged before"
            )),
            None if made => violation(format!(
                "named snapshot {name} was created and is not listed"
            )),
            _ => Ok(()),
        }
    }

    /// A namespace of the thread's own: what it holds goes with it.
    pub fn come_and_go(&mut self) -> Step {
        if !self.shared.abilities.droppable_namespaces {
            return Ok(());
        }
        let name = format!("own-{}", self.thread);
        let done = self.fill_and_drop(&name);
        match done {
            Ok(true) => Ok(()),
            Ok(false) => violation(format!(
                "namespace {name} does not hold what was put, or keeps it when it is dropped"
            )),
            Err(Error::NoSpace { .. } | Error::LimitExceeded(_)) => Ok(()),
            Err(error) => Err(self.judge("a namespace", error)),
        }
    }

    fn fill_and_drop(&mut self, name: &str) -> Result<bool, Error> {
        let store = &self.shared.stores[0];
        let own = store.namespace(name)?;
        own.put("left", "here")?;
        let there = own.get("left")?.is_some_and(|value| value == "here");
        if self.random.chance(50) {
            return Ok(there);
        }
        store.drop_namespace(name)?;
        let is_gone = matches!(own.get("left"), Err(Error::NotFound { .. }));
        let again = store.namespace(name)?;
        let is_empty = again.get("left")?.is_none();
        Ok(there && is_gone && is_empty)
    }

    /// A second opening is refused while the store is open.
    pub fn open_again(&mut self) -> Step {
        let opened = self
            .shared
            .plan
            .options()
            .open(self.shared.stores[0].path());
        match opened {
            Err(Error::Locked { .. }) => Ok(()),
            Err(error) => Err(self.judge("a second opening", error)),
            Ok(second) => {
                let closed = second.close();
                let is_closing = self.shared.closing.load(Ordering::Acquire);
                match closed {
                    _ if !is_closing => violation(
                        "the store was opened a second time while it was open".to_string(),
                    ),
                    Ok(()) => Ok(()),
                    Err(error) => Err(self.judge("closing after a second opening", error)),
                }
            }
        }
    }
}
