//! Whether a store may still be used: open, and nothing failed that leaves what
//! is on the device unknown.
//!
//! The first failure is final: it is kept, and every later write answers it.
//! Reads go on until the store is closed. A store that was opened for reading alone
//! refuses writes from the start.
//!
//! ```
//! use cambium_base::Error;
//! use cambium_storage::health::Health;
//! let health = Health::default();
//! health.check_writable().unwrap();
//! let failure = health.poison(Error::Cancelled);
//! assert!(health.check_open().is_ok() && health.check_writable().is_err());
//! assert!(health.close().is_some(), "it was open");
//! assert!(matches!(health.check_open(), Err(Error::Closed)));
//! # drop(failure);
//! ```

use std::sync::PoisonError;

use cambium_base::{Error, Result};
use cambium_io::events;
use cambium_io::sync::atomic::{AtomicBool, Ordering};
use cambium_io::sync::{Mutex, MutexGuard, OnceLock};

/// True if there was no descriptor for a file (`EMFILE`, `ENFILE`).
fn is_of_descriptors(error: &Error) -> bool {
    let is_opening = matches!(
        error,
        Error::Io {
            operation: "open" | "open folder",
            ..
        }
    );
    let number = error.os_error().and_then(std::io::Error::raw_os_error);
    cfg!(unix) && is_opening && matches!(number, Some(23 | 24))
}

/// What every call of an open store asks first.
#[derive(Debug, Default)]
pub struct Health {
    failure: OnceLock<Error>,
    closed: AtomicBool,
    /// Held by the close, from its beginning to its end.
    closing: Mutex<()>,
    /// The engine of a store that was opened for reading alone.
    reader_of: Option<&'static str>,
    /// A seeded defect: a failure does not stop writes.
    forgets: bool,
}

impl Health {
    /// Of an engine's store, which may be one that was opened for reading alone.
    pub fn of(engine: &'static str, writable: bool) -> Self {
        Health {
            reader_of: (!writable).then_some(engine),
            ..Health::default()
        }
    }

    /// Seeds a defect, for tests: a failure does not stop writes.
    #[must_use]
    pub fn forgetting(self, forgets: bool) -> Self {
        Health { forgets, ..self }
    }

    /// True where the store was opened for reading alone.
    pub fn is_of_reader(&self) -> bool {
        self.reader_of.is_some()
    }

    /// Refuses calls after a close.
    pub fn check_open(&self) -> Result<()> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Refuses writes after a failure, and to a store that was opened for reading alone.
    pub fn check_sound(&self) -> Result<()> {
        if let Some(engine) = self.reader_of {
            return Err(Error::Unsupported {
                engine,
                what: "writing to a store that was opened for reading alone",
                instead: "open it where its folder can be written",
            });
        }
        match self.failure() {
            Some(original) => Err(Error::poisoned_by(original)),
            None => Ok(()),
        }
    }

    /// As [`Health::check_sound`], and after a close.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.check_sound()
    }

    /// Stops all further writes; answers the error. Lack of space that stops writes is
    /// answered as [`Error::Poisoned`], since `NoSpace` says that nothing changed.
    pub fn poison(&self, error: Error) -> Error {
        if self.forgets {
            return error;
        }
        if self.failure.set(error.clone()).is_ok() {
            events::poisoned(&error);
        }
        match error.is_no_space() {
            true => Error::poisoned_by(&error),
            false => error,
        }
    }

    /// As [`Health::poison`], but for lack of space that left everything as it was.
    pub fn unless_full(&self, error: Error) -> Error {
        match error.is_no_space() {
            true => error,
            false => self.poison(error),
        }
    }

    /// As [`Health::unless_full`], but also for a file that was not opened since the process or
    /// the machine has no descriptors left. For callers that open, write and sync a file in full
    /// each time they are called, and change nothing else before.
    pub fn unless_unopened(&self, error: Error) -> Error {
        match is_of_descriptors(&error) {
            true => error,
            false => self.unless_full(error),
        }
    }

    /// The first failure.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// True after [`Health::close`].
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Begins a close, which lasts until what this answers is dropped. A second call waits
    /// for that, and answers `None`: when any close has returned, the store is closed.
    pub fn close(&self) -> Option<MutexGuard<'_, ()>> {
        let closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        (!self.closed.swap(true, Ordering::AcqRel)).then_some(closing)
    }
}
