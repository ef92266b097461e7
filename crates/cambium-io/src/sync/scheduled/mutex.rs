//! A mutex under a scheduler.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use super::scheduler::{self, Waiting};
use super::{Wake, address};

/// [`std::sync::Mutex`], scheduled.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    inner: std::sync::Mutex<T>,
}

/// The lock on a [`Mutex`], until it is dropped.
pub struct MutexGuard<'a, T: ?Sized> {
    inner: std::sync::MutexGuard<'a, T>,
    pub(super) lock: &'a Mutex<T>,
    /// The last field: waiters are woken after the lock is released.
    _wake: Wake,
}

impl<T> Mutex<T> {
    /// See [`std::sync::Mutex::new`].
    pub const fn new(value: T) -> Self {
        Mutex {
            inner: std::sync::Mutex::new(value),
        }
    }

    /// See [`std::sync::Mutex::into_inner`].
    ///
    /// # Errors
    /// If a thread panicked while it held the lock.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    fn guard<'a>(&'a self, inner: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard {
            inner,
            lock: self,
            _wake: Wake::new(self),
        }
    }

    /// See [`std::sync::Mutex::lock`].
    ///
    /// # Errors
    /// If a thread panicked while it held the lock; the lock is in the error.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        if !scheduler::point() {
            return match self.inner.lock() {
                Ok(guard) => Ok(self.guard(guard)),
                Err(poisoned) => Err(PoisonError::new(self.guard(poisoned.into_inner()))),
            };
        }
        loop {
            match self.try_now() {
                Err(TryLockError::WouldBlock) => {
                    scheduler::block(Waiting::new("a mutex", address(self)));
                }
                Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
                Ok(guard) => return Ok(guard),
            }
        }
    }

    /// See [`std::sync::Mutex::try_lock`].
    ///
    /// # Errors
    /// If the lock is taken, or poisoned.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        scheduler::point();
        self.try_now()
    }

    fn try_now(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(guard) => Ok(self.guard(guard)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(poisoned)) => Err(TryLockError::Poisoned(PoisonError::new(
                self.guard(poisoned.into_inner()),
            ))),
        }
    }

    /// See [`std::sync::Mutex::get_mut`].
    ///
    /// # Errors
    /// If a thread panicked while it held the lock.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
