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

/// The address of an object, by which threads wait for it.
fn address<T: ?Sized>(object: &T) -> usize {
    std::ptr::from_ref(object).cast::<()>() as usize
}

/// The last field of a guard: it drops after the guard has released its lock.
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

#[cfg(test)]
mod tests;
