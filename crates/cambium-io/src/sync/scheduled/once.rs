//! A cell that is written once.

use std::sync::PoisonError;

use super::mutex::Mutex;
use super::{Edge, scheduler};

/// [`std::sync::OnceLock`], scheduled: an initialization may be interrupted.
#[derive(Debug)]
pub struct OnceLock<T> {
    edge: Edge,
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
            edge: Edge::new(),
            cell: std::sync::OnceLock::new(),
            initializing: Mutex::new(()),
        }
    }

    /// See [`std::sync::OnceLock::get`].
    pub fn get(&self) -> Option<&T> {
        scheduler::point();
        let value = self.cell.get();
        self.edge.pass();
        value
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
        self.edge.pass();
        self.cell.set(value)
    }

    /// See [`std::sync::OnceLock::get_or_init`].
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
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
        self.edge.pass();
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
            edge: Edge::new(),
            cell: value.into(),
            initializing: Mutex::new(()),
        }
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> Self {
        OnceLock {
            edge: Edge::new(),
            cell: self.cell.clone(),
            initializing: Mutex::new(()),
        }
    }
}
