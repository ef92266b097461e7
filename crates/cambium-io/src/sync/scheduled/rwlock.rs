//! A lock of many readers or one writer, under a scheduler.
//!
//! As the standard library's on Linux, no reader passes a writer that waits: a thread
//! that takes a lock for reading while it holds it for reading waits for ever as soon as
//! a writer comes between, and the scheduler says so.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use super::scheduler::{self, Waiting};
use super::{Wake, address};

/// [`std::sync::RwLock`], scheduled.
#[derive(Default)]
pub struct RwLock<T: ?Sized> {
    waiting_writers: AtomicUsize,
    inner: std::sync::RwLock<T>,
}

/// A writer that waits, until it is dropped; one thread runs at a time, so that no order
/// in memory matters.
struct WaitingWriter<'a>(&'a AtomicUsize);

impl<'a> WaitingWriter<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        WaitingWriter(count)
    }
}

impl Drop for WaitingWriter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T> RwLock<T> {
    /// See [`std::sync::RwLock::new`].
    pub const fn new(value: T) -> Self {
        RwLock {
            waiting_writers: AtomicUsize::new(0),
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

/// Readers and writers differ in the names of the standard library's calls, and in that
/// readers stand back for writers that wait.
macro_rules! side {
    ($Guard:ident, $take:ident, $try_take:ident, $writes:literal, $wanted:literal) => {
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
                let mut waiting = None;
                loop {
                    if $writes || !self.has_waiting_writer() {
                        match self.inner.$try_take() {
                            Ok(inner) => return Ok(guard(inner)),
                            Err(TryLockError::Poisoned(poisoned)) => {
                                return Err(PoisonError::new(guard(poisoned.into_inner())));
                            }
                            Err(TryLockError::WouldBlock) => {}
                        }
                    }
                    if $writes {
                        waiting.get_or_insert_with(|| WaitingWriter::new(&self.waiting_writers));
                    }
                    scheduler::block(Waiting::new($wanted, address(self)));
                }
            }

            /// As the standard library's call of this name.
            ///
            /// # Errors
            /// If the lock is taken, or poisoned.
            pub fn $try_take(&self) -> TryLockResult<$Guard<'_, T>> {
                if scheduler::point() && !$writes && self.has_waiting_writer() {
                    return Err(TryLockError::WouldBlock);
                }
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

side!(RwLockReadGuard, read, try_read, false, "a lock for reading");
side!(
    RwLockWriteGuard,
    write,
    try_write,
    true,
    "a lock for writing"
);

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized> RwLock<T> {
    fn has_waiting_writer(&self) -> bool {
        self.waiting_writers.load(Ordering::Relaxed) > 0
    }

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
