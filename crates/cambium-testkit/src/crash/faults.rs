//! Runs in which operations fail.

use cambium_api::{Capabilities, Durability, Error, WriteBatch};
use cambium_io::simulated::{ErrorNumber, Fault, FaultRule, OperationClass};

use super::driver::Driver;
use crate::holding::collect_all;
use crate::workload::{KEY_COUNT, key};

/// What was made to go wrong.
#[derive(Clone, Copy, Debug)]
pub(super) enum Armed {
    /// A rule for operations.
    Rule(FaultRule),
    /// A disk with little room.
    Full,
}

impl Armed {
    /// True if what fails is a sync: then the store must take no more writes.
    fn fails_syncs(self) -> bool {
        matches!(self, Armed::Rule(rule) if rule.class == OperationClass::Sync)
    }
}

impl Driver<'_> {
    /// Chooses a fault and gives it to the disk.
    pub(super) fn arm(&mut self) {
        let number = *self.generator.pick(&[
            ErrorNumber::InputOutput,
            ErrorNumber::InputOutput,
            ErrorNumber::NoSpace,
            ErrorNumber::TooManyFiles,
        ]);
        let plain = Fault::Error(number);
        let (class, fault) = match self.generator.below(10) {
            0..=2 => {
                let room = self.generator.below(16 << 10);
                self.disk.set_capacity(Some(self.disk.used_bytes() + room));
                self.armed = Some(Armed::Full);
                return;
            }
            3 => (OperationClass::Sync, plain),
            // File systems differ in what they do to pages that could not be written.
            4 => (OperationClass::Sync, Fault::SyncDropsPages(number)),
            5 => (OperationClass::Sync, Fault::SyncKeepsPages(number)),
            6 => (OperationClass::Write, Fault::PartialWrite(number)),
            7 => (OperationClass::Write, plain),
            8 => (OperationClass::Read, plain),
            _ => (
                *self
                    .generator
                    .pick(&[OperationClass::Allocate, OperationClass::Name]),
                plain,
            ),
        };
        let rule = FaultRule {
            class,
            nth: 1 + self.generator.below(6),
            forever: self.generator.chance(1, 3),
            fault,
        };
        self.disk.inject(rule);
        self.armed = Some(Armed::Rule(rule));
    }

    /// Lets everything work again.
    pub(super) fn disarm(&mut self) {
        self.disk.clear_faults();
        self.disk.set_capacity(None);
        self.armed = None;
    }

    /// An operation failed: what is read must still be right, and what is
    /// written must be refused after a failed sync, or right again.
    pub(super) fn after_failure(
        &mut self,
        error: Error,
        what: &str,
        wrote: bool,
    ) -> Result<(), String> {
        self.report.add("operations failed");
        let Some(armed) = self.armed else {
            return Err(format!("{what} failed with no fault about: {error}"));
        };
        let full = matches!(armed, Armed::Full);
        if full && !error.is_no_space() {
            return Err(format!("on a full disk {what} answers: {error}"));
        }
        self.disarm();
        // The forks of this operation speak of a write that may be taken back.
        self.look_at_points()?;
        let resolved = self.resolve(wrote)?;
        if error.is_no_space() && wrote && resolved == Resolved::Stands {
            return Err(format!(
                "{what} answers {error}, and what it wrote is there"
            ));
        }
        match resolved {
            Resolved::Unreadable => {
                self.report.add("unreadable after a failure");
                self.finished = true;
                Ok(())
            }
            resolved => self.try_again(armed, what, &error, resolved),
        }
    }

    /// Reads the store: a failed write happened whole or not at all.
    fn resolve(&mut self, wrote: bool) -> Result<Resolved, String> {
        let Some(store) = self.store.clone() else {
            return Ok(Resolved::Unreadable);
        };
        let found = match collect_all(&*store, &store.capabilities()) {
            Ok(found) => found,
            // What a failed sync dropped may be gone; it must not be wrong.
            Err(_) if self.lost_pages() => {
                return Ok(Resolved::Unreadable);
            }
            Err(error) => return Err(format!("reading after a failure: {error}")),
        };
        let sent = self.history.window().sent;
        if !wrote {
            self.history
                .find(&found, sent, sent)
                .map_err(|what| format!("after a failure: {what}"))?;
            return Ok(Resolved::Stands);
        }
        let before = sent.saturating_sub(1);
        let index = self.history.find(&found, before, sent);
        let index = index.map_err(|what| format!("after a failed write: {what}"))?;
        let unchanged = self.history.state(sent) == self.history.state(before);
        if index == before || unchanged {
            return Ok(Resolved::Refused);
        }
        Ok(Resolved::Stands)
    }

    /// Writes once more, with all faults gone.
    fn try_again(
        &mut self,
        armed: Armed,
        what: &str,
        first: &Error,
        resolved: Resolved,
    ) -> Result<(), String> {
        let Some(store) = self.store.clone() else {
            return Ok(());
        };
        let foreground = what == "write" || what == "sync";
        let batch = probe_batch(&store.capabilities());
        match store.write(batch, Durability::Written) {
            Ok(_) if armed.fails_syncs() && foreground => Err(format!(
                "a write succeeded after a failed sync ({what}: {first})"
            )),
            Ok(_) => {
                self.report.add("went on after a failure");
                self.look_at_points()?;
                if resolved == Resolved::Refused {
                    self.history.take_back();
                }
                self.promise();
                Ok(())
            }
            Err(error) if matches!(armed, Armed::Full) => Err(format!(
                "with room again a write answers: {error} ({what}: {first})"
            )),
            Err(error) if first.is_no_space() => Err(format!(
                "{what} answers {first}, and the next write {error}"
            )),
            Err(_) => {
                self.report.add("poisoned");
                self.drop_snapshots();
                self.finished = true;
                Ok(())
            }
        }
    }
}

/// What a failed operation left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolved {
    /// The store is as it was before.
    Refused,
    /// The store is as it was to become.
    Stands,
    /// The store cannot be read.
    Unreadable,
}

/// A batch that changes nothing in any state: a key that no run uses.
fn probe_batch(capabilities: &Capabilities) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.delete(&key(capabilities.keys, KEY_COUNT + 1));
    batch
}
