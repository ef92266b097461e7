//! A cell that is written once.

use std::sync::PoisonError;

use super::mutex::Mutex;
use super::scheduler;

/// [`std::sync::OnceLock`], scheduled: an initialization may be interrupted.
#[derive(Debug)]
pub struct OnceLock<T> {
    cell: std::sync::OnceLock<T>,
    /// Held by the thread that initializes.
    initializing: Mutex<()>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        OnceLock::new()
    }
}

impl<T> OnceLock<T> {
    /// See [`std::sync::OnceLock::new`].
    pub const fn new() -> Self {
        OnceLock {
            cell: std::sync::OnceLock::new(),
            initializing: Mutex::new(()),
        }
    }

    /// See [`std::sync::OnceLock::get`].
    pub fn get(&self) -> Option<&T> {
        scheduler::point();
        self.cell.get()
    }

    /// See [`std::sync::OnceLock::take`].
    pub fn take(&mut self) -> Option<T> {
        self.cell.take()
    }

    /// See [`std::sync::OnceLock::get_mut`].
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.cell.get_mut()
    }

    /// See [`std::sync::OnceLock::set`].
    ///
    /// # Errors
    /// The value, if the cell has one.
    pub fn set(&self, value: T) -> Result<(), T> {
        scheduler::point();
        self.cell.set(value)
    }

    /// See [`std::sync::OnceLock::get_or_init`].
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        scheduler::point();
        if let Some(value) = self.cell.get() {
            return value;
        }
        let _initializing = self
            .initializing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = self.cell.get() {
            return value;
        }
        let value = make();
        self.cell.get_or_init(|| value)
    }

    /// See [`std::sync::OnceLock::into_inner`].
    pub fn into_inner(self) -> Option<T> {
        self.cell.into_inner()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        OnceLock {
            cell: value.into(),
            initializing: Mutex::new(()),
        }
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> Self {
        OnceLock {
            cell: self.cell.clone(),
            initializing: Mutex::new(()),
        }
    }
}
