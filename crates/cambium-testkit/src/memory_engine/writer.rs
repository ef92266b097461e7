//! What writes the log: buffering, handing over, syncing, and what a failure ends.

use cambium_api::{Durability, Error, Result};
use cambium_io::FileLock;
use cambium_storage::health::Health;

use super::Bug;
use super::log::Log;
use super::open::ENGINE;

/// What only one writer at a time has.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) log: Log,
    pub(super) lock: Option<Box<dyn FileLock>>,
    pub(super) writable: bool,
    pub(super) poison: Option<Error>,
}

impl Writer {
    /// Refuses writes after a failure, and to a store that was opened for reading alone.
    pub(super) fn check_sound(&self) -> Result<()> {
        Health::of(ENGINE, self.writable).check_sound()?;
        match &self.poison {
            Some(error) => Err(Error::poisoned_by(error)),
            None => Ok(()),
        }
    }

    /// Keeps the failure that ends this store's writes.
    pub(super) fn poison(&mut self, error: Error, bug: Option<Bug>) -> Error {
        if bug != Some(Bug::SyncRetried) {
            self.poison = Some(error.clone());
        }
        error
    }

    /// Brings what is buffered as far as `durability` asks. `keep` is how much
    /// of the buffer was there before this write, which a full disk refuses.
    pub(super) fn secure(
        &mut self,
        durability: Durability,
        keep: usize,
        bug: Option<Bug>,
    ) -> Result<()> {
        if durability == Durability::Buffered {
            return Ok(());
        }
        if let Err(error) = self.log.flush() {
            if !error.is_no_space() {
                return Err(self.poison(error, bug));
            }
            self.log.forget_from(keep);
            return match self.log.cut_back() {
                Ok(()) => Err(error),
                Err(second) => Err(self.poison(second, bug)),
            };
        }
        if durability == Durability::Synced {
            if let Err(error) = self.log.sync() {
                return Err(self.poison(error, bug));
            }
        }
        Ok(())
    }
}
