//! A lock of many readers or one writer, under a scheduler.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use super::scheduler::{self, Waiting};
use super::{Wake, address};

/// [`std::sync::RwLock`], scheduled.
#[derive(Default)]
pub struct RwLock<T: ?Sized> {
    inner: std::sync::RwLock<T>,
}

impl<T> RwLock<T> {
    /// See [`std::sync::RwLock::new`].
    pub const fn new(value: T) -> Self {
        RwLock {
            inner: std::sync::RwLock::new(value),
        }
    }

    /// See [`std::sync::RwLock::into_inner`].
    ///
    /// # Errors
    /// If a writer panicked.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

/// Readers and writers differ only in the names of the standard library's calls.
macro_rules! side {
    ($Guard:ident, $take:ident, $try_take:ident, $wanted:literal) => {
        /// The lock on a [`RwLock`], until it is dropped.
        pub struct $Guard<'a, T: ?Sized> {
            inner: std::sync::$Guard<'a, T>,
            /// The last field: waiters are woken after the lock is released.
            _wake: Wake,
        }

        impl<'a, T: ?Sized> $Guard<'a, T> {
            fn new(inner: std::sync::$Guard<'a, T>, lock: &'a RwLock<T>) -> Self {
                $Guard {
                    inner,
                    _wake: Wake::new(lock),
                }
            }
        }

        impl<T: ?Sized> RwLock<T> {
            /// As the standard library's call of this name.
            ///
            /// # Errors
            /// If a writer panicked; the lock is in the error.
            pub fn $take(&self) -> LockResult<$Guard<'_, T>> {
                let guard = |inner| $Guard::new(inner, self);
                if !scheduler::point() {
                    return match self.inner.$take() {
                        Ok(inner) => Ok(guard(inner)),
                        Err(poisoned) => Err(PoisonError::new(guard(poisoned.into_inner()))),
                    };
                }
                loop {
                    match self.inner.$try_take() {
                        Ok(inner) => return Ok(guard(inner)),
                        Err(TryLockError::Poisoned(poisoned)) => {
                            return Err(PoisonError::new(guard(poisoned.into_inner())));
                        }
                        Err(TryLockError::WouldBlock) => {
                            scheduler::block(Waiting::new($wanted, address(self)));
                        }
                    }
                }
            }

            /// As the standard library's call of this name.
            ///
            /// # Errors
            /// If the lock is taken, or poisoned.
            pub fn $try_take(&self) -> TryLockResult<$Guard<'_, T>> {
                scheduler::point();
                let guard = |inner| $Guard::new(inner, self);
                match self.inner.$try_take() {
                    Ok(inner) => Ok(guard(inner)),
                    Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
                    Err(TryLockError::Poisoned(poisoned)) => Err(TryLockError::Poisoned(
                        PoisonError::new(guard(poisoned.into_inner())),
                    )),
                }
            }
        }

        impl<T: ?Sized> Deref for $Guard<'_, T> {
            type Target = T;

            fn deref(&self) -> &T {
                &self.inner
            }
        }

        impl<T: ?Sized + fmt::Debug> fmt::Debug for $Guard<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}

side!(RwLockReadGuard, read, try_read, "a lock for reading");
side!(RwLockWriteGuard, write, try_write, "a lock for writing");

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized> RwLock<T> {
    /// See [`std::sync::RwLock::get_mut`].
    ///
    /// # Errors
    /// If a writer panicked.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
