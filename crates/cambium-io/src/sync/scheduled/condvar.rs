//! A condition variable under a scheduler.
//!
//! A scheduled waiter waits by its mutex' wrapper and this object's address; the
//! standard library's condition variable serves the threads that are not scheduled.

use std::sync::{LockResult, PoisonError};
use std::time::Duration;

use super::address;
use super::mutex::{Mutex, MutexGuard};
use super::scheduler::{self, Waiting};

/// [`std::sync::Condvar`], scheduled.
#[derive(Debug, Default)]
pub struct Condvar {
    /// Counts notifications for threads that are not scheduled.
    rounds: std::sync::Mutex<u64>,
    changed: std::sync::Condvar,
}

/// Whether a wait ended because its time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// True if the time was over.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// See [`std::sync::Condvar::new`].
    pub const fn new() -> Self {
        Condvar {
            rounds: std::sync::Mutex::new(0),
            changed: std::sync::Condvar::new(),
        }
    }

    /// See [`std::sync::Condvar::wait`].
    ///
    /// # Errors
    /// If a thread panicked while it held the lock.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.wait_until(guard, None).0
    }

    /// See [`std::sync::Condvar::wait_timeout`].
    ///
    /// # Errors
    /// If a thread panicked while it held the lock.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let (guard, timed_out) = self.wait_until(guard, Some(limit));
        let timed_out = WaitTimeoutResult(timed_out);
        match guard {
            Ok(guard) => Ok((guard, timed_out)),
            Err(poisoned) => Err(PoisonError::new((poisoned.into_inner(), timed_out))),
        }
    }

    /// See [`std::sync::Condvar::wait_while`].
    ///
    /// # Errors
    /// If a thread panicked while it held the lock.
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// See [`std::sync::Condvar::wait_timeout_while`].
    ///
    /// # Errors
    /// If a thread panicked while it held the lock.
    pub fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        limit: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let now = || scheduler::scheduled_time().unwrap_or_else(scheduler::real_time);
        let end = now().saturating_add(limit);
        loop {
            if !condition(&mut guard) {
                return Ok((guard, WaitTimeoutResult(false)));
            }
            let left = end.saturating_sub(now());
            if left.is_zero() {
                return Ok((guard, WaitTimeoutResult(true)));
            }
            (guard, _) = self.wait_timeout(guard, left)?;
        }
    }

    /// Releases the lock, waits, and takes the lock again; true if time was over.
    fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Option<Duration>,
    ) -> (LockResult<MutexGuard<'a, T>>, bool) {
        let lock: &'a Mutex<T> = guard.lock;
        if scheduler::is_scheduled() {
            // No other scheduled thread runs between the release and the wait.
            drop(guard);
            let waiting = Waiting::new("a condition", address(self));
            let timed_out = scheduler::block(waiting.at_most(limit));
            return (lock.lock(), timed_out);
        }
        let rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        drop(guard);
        let limit = limit.unwrap_or(Duration::from_secs(1 << 20));
        let before = *rounds;
        let waited = (self.changed).wait_timeout_while(rounds, limit, |now| *now == before);
        let timed_out = waited.unwrap_or_else(PoisonError::into_inner).1.timed_out();
        (lock.lock(), timed_out)
    }

    fn notify_unscheduled(&self) {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        *rounds += 1;
        drop(rounds);
        self.changed.notify_all();
    }

    /// See [`std::sync::Condvar::notify_one`].
    pub fn notify_one(&self) {
        if scheduler::point() {
            scheduler::wake_one(address(self));
        } else {
            self.notify_unscheduled();
        }
    }

    /// See [`std::sync::Condvar::notify_all`].
    pub fn notify_all(&self) {
        if scheduler::point() {
            scheduler::wake(address(self));
        } else {
            self.notify_unscheduled();
        }
    }
}
