//! Whether a store may still be used: open, and nothing failed that leaves what
//! is on the device unknown.
//!
//! The first failure is final: it is kept, and every later write answers it.
//! Reads go on until the store is closed.
//!
//! ```
//! use cambium_base::Error;
//! use cambium_storage::health::Health;
//! let health = Health::default();
//! health.check_writable().unwrap();
//! let failure = health.poison(Error::Cancelled);
//! assert!(health.check_open().is_ok() && health.check_writable().is_err());
//! assert!(health.close(), "it was open");
//! assert!(matches!(health.check_open(), Err(Error::Closed)));
//! # drop(failure);
//! ```

use cambium_base::{Error, Result};
use cambium_io::sync::OnceLock;
use cambium_io::sync::atomic::{AtomicBool, Ordering};

/// True if a write was refused for lack of space: what was there before is as it was, and
/// the write can be done again when there is room. A *sync* that says so is no refusal: it
/// was to find room for bytes that were taken long before, and nobody knows which of them
/// are on the device.
pub fn found_no_space(error: &Error) -> bool {
    matches!(error, Error::NoSpace { what, .. } if !what.starts_with("sync"))
}

/// What every call of an open store asks first.
#[derive(Debug, Default)]
pub struct Health {
    failure: OnceLock<Error>,
    closed: AtomicBool,
}

impl Health {
    /// Refuses calls after a close.
    pub fn check_open(&self) -> Result<()> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Refuses writes after a failure.
    pub fn check_sound(&self) -> Result<()> {
        match self.failure() {
            Some(original) => Err(Error::poisoned_by(original)),
            None => Ok(()),
        }
    }

    /// Refuses writes after a close or a failure.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.check_sound()
    }

    /// Stops all further writes; answers the error.
    pub fn poison(&self, error: Error) -> Error {
        _ = self.failure.set(error.clone());
        error
    }

    /// The first failure.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// True after [`Health::close`].
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Closes; true for the one who did.
    pub fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(operation: &'static str) -> Error {
        let disk_full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        Error::io(operation, "a.log", disk_full)
    }

    #[test]
    fn a_full_disk_left_all_as_it_was_unless_it_answers_a_sync() {
        for operation in ["write", "allocate", "write for direct access"] {
            assert!(found_no_space(&full(operation)), "{operation}");
        }
        for operation in ["sync", "sync folder", "sync of a write"] {
            let error = full(operation);
            assert!(
                error.is_no_space() && !found_no_space(&error),
                "{operation}"
            );
        }
        let broken = std::io::Error::from_raw_os_error(5);
        assert!(!found_no_space(&Error::io("write", "a.log", broken)));
    }
}
