//! Reads that end in place of waiting for a device.
//!
//! An event loop calls a store for values that are probably in memory, and cannot wait for the
//! device if one is not. Within [`without_waiting`] a read of a real file that would wait
//! fails with an error for which [`Error::would_wait`](cambium_base::Error::would_wait) is
//! true; the caller then repeats the call on a thread that may wait. Simulated files have no
//! device, so their reads never fail that way.

use std::cell::Cell;

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(true) };
}

/// Runs `work`, in which reads by this thread do not wait for a device.
pub fn without_waiting<R>(work: impl FnOnce() -> R) -> R {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            MAY_WAIT.set(self.0);
        }
    }
    let _before = Before(MAY_WAIT.replace(false));
    work()
}

/// False within [`without_waiting`].
pub(crate) fn may_wait() -> bool {
    MAY_WAIT.get()
}
