//! Objects of an open store in a child process that was forked off.
//!
//! A child inherits the memory of its parent, but none of its threads. Locks may be held by
//! threads that are not there, and what a store does when it is dropped waits for them, or
//! writes to files that the parent writes. So a child neither calls the objects of a store
//! that it inherited, nor drops them.

use cambium::{Error, Result};

use crate::c;

/// An object that is called and dropped only in the process that made it. In others calls are
/// errors, and a drop does nothing.
///
/// ```
/// use cambium_bindings::OfProcess;
/// let store = OfProcess::new("oak".to_string());
/// assert_eq!(store.get()?, "oak");
/// # Ok::<(), cambium::Error>(())
/// ```
#[derive(Debug)]
pub struct OfProcess<T> {
    /// `None` only while it is dropped.
    object: Option<T>,
    forks: u32,
}

impl<T> OfProcess<T> {
    /// An object of this process.
    pub fn new(object: T) -> Self {
        c::count_forks();
        OfProcess {
            object: Some(object),
            forks: c::forks(),
        }
    }

    /// The object.
    ///
    /// # Errors
    /// `InvalidArgument` in a process that was forked off since.
    pub fn get(&self) -> Result<&T> {
        match &self.object {
            Some(object) if self.forks == c::forks() => Ok(object),
            _ => Err(Error::InvalidArgument(
                "the store belongs to the parent process, which opened it and then forked this \
                 one: open the store here after the parent has closed it"
                    .to_string(),
            )),
        }
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.forks != c::forks() {
            std::mem::forget(self.object.take());
        }
    }
}
