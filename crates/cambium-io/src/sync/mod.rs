//! Locks, atomics and threads, by the names of the standard library.
//!
//! Every crate below the facade takes them from here. Without the feature
//! `scheduled` this module re-exports the standard library's own types and costs
//! nothing: `plain` does not compile otherwise. Only tests enable the feature, through
//! `cambium-testkit`; each type is then a thin wrapper. A thread that `scheduler::run` started calls the scheduler before
//! every lock, unlock, wait, ordered atomic access and file operation; the scheduler
//! then decides, from a seed, which thread goes on. Any other thread passes through to
//! the standard library.
//!
//! The wrappers explore interleavings, not weak memory: a scheduled atomic access is
//! sequentially consistent. ThreadSanitizer covers the rest (`make soak`).

use std::sync::PoisonError;

#[cfg(not(feature = "scheduled"))]
mod plain {
    pub use std::sync::{
        Condvar, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard,
    };

    /// Atomics.
    pub mod atomic {
        pub use std::sync::atomic::*;
    }

    /// Threads.
    pub mod thread {
        pub use std::thread::*;
    }

    type Own = (
        std::sync::Mutex<u8>,
        std::sync::RwLock<u8>,
        std::sync::Condvar,
        std::sync::OnceLock<u8>,
        std::sync::atomic::AtomicU64,
        std::thread::JoinHandle<u8>,
    );
    type Exported = (
        Mutex<u8>,
        RwLock<u8>,
        Condvar,
        OnceLock<u8>,
        atomic::AtomicU64,
        thread::JoinHandle<u8>,
    );
    /// Compiles only while both lists name the same types.
    const _: fn(Own) -> Exported = |same| same;

    /// A place where another thread may run in a scheduled test; nothing here.
    #[inline(always)]
    pub fn point() {}

    /// The time of the scheduled test that this thread belongs to: none here.
    #[inline(always)]
    pub fn scheduled_time() -> Option<std::time::Duration> {
        None
    }
}

#[cfg(not(feature = "scheduled"))]
pub use plain::*;

#[cfg(feature = "scheduled")]
pub mod schedule;
#[cfg(feature = "scheduled")]
mod scheduled;

#[cfg(feature = "scheduled")]
pub use scheduled::*;

/// Calls `work` with a thread-local's value, taken out of its place and put back after.
///
/// Threads of a scheduled test share thread-locals and may switch within `work`, so a
/// borrow must not last that long. A thread that comes to the empty place gets a new
/// value.
pub fn with_taken<T: Default, R>(
    place: &'static std::thread::LocalKey<std::cell::RefCell<T>>,
    work: impl FnOnce(&mut T) -> R,
) -> R {
    let mut value = place.take();
    let result = work(&mut value);
    place.set(value);
    result
}

/// Locks a mutex, also after a thread has panicked under the lock. Callers keep the content
/// consistent between two statements.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for reading, as [`lock`] does.
pub fn read<T: ?Sized>(guarded: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    guarded.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing, as [`lock`] does.
pub fn write<T: ?Sized>(guarded: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    guarded.write().unwrap_or_else(PoisonError::into_inner)
}
