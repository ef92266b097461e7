//! Locks, atomics and threads, by the names of the standard library.
//!
//! Every crate of an engine takes them from here. In a store they *are* the
//! standard library's: this module re-exports them and costs nothing.

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
