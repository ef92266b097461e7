//! The wrappers that a scheduler controls.

pub mod atomic;
mod condvar;
mod mutex;
mod once;
mod rwlock;
pub mod scheduler;
pub mod thread;

pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard};
pub use once::OnceLock;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use scheduler::{is_scheduled, scheduled_time};

/// A place where another thread may run, for what is neither lock nor atomic nor file.
pub fn point() {
    scheduler::point();
}

/// Where an object lies: the name under which threads wait for it.
fn address<T: ?Sized>(object: &T) -> usize {
    std::ptr::from_ref(object).cast::<()>() as usize
}

/// The last field of a guard, which drops after its lock was released.
struct Wake(usize);

impl Wake {
    fn new<T: ?Sized>(object: &T) -> Self {
        Wake(address(object))
    }
}

impl Drop for Wake {
    /// Lets the threads that wait for the object try again.
    fn drop(&mut self) {
        scheduler::wake(self.0);
    }
}

/// An order between threads that ThreadSanitizer sees: it does not see into the
/// standard library's locks unless that library is built with it. Nothing in other
/// builds.
#[derive(Debug, Default)]
struct Edge {
    #[cfg(cambium_tsan)]
    passed: std::sync::atomic::AtomicU64,
}

impl Edge {
    const fn new() -> Self {
        Edge {
            #[cfg(cambium_tsan)]
            passed: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// Everything before an earlier pass happens before everything after this one.
    fn pass(&self) {
        #[cfg(cambium_tsan)]
        self.passed
            .fetch_add(1, std::sync::atomic::Ordering::AcqRel);
    }
}

/// Passes an edge when it is dropped: the first field of a guard.
struct Release<'a>(&'a Edge);

impl<'a> Release<'a> {
    /// Passes the edge now too: the lock was just taken.
    fn acquired(edge: &'a Edge) -> Self {
        edge.pass();
        Release(edge)
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.pass();
    }
}

#[cfg(test)]
mod tests;
