//! What background work of all stores of an environment may take together.
//!
//! Each store decides when its compaction is due; how many run at a time, and
//! how many bytes they move in a second, is a matter of the machine that they
//! share.

use std::sync::Arc;

use crate::environment::Clock;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Limits that stores share.
#[derive(Debug)]
pub struct BackgroundLimits {
    concurrent: usize,
    running: AtomicUsize,
    bytes_per_second: u64,
    /// Nanoseconds of the clock up to which what was moved is accounted for.
    paid_until: AtomicU64,
}

/// Compactions at a time, unless an environment is made with other limits: each
/// reads with a full queue, so more of them share what one gets.
const CONCURRENT_COMPACTIONS: usize = 2;
/// What may be moved at once after a pause, in seconds' worth.
const BURST_SECONDS: f64 = 0.1;

impl Default for BackgroundLimits {
    fn default() -> Self {
        BackgroundLimits {
            concurrent: CONCURRENT_COMPACTIONS,
            running: AtomicUsize::new(0),
            bytes_per_second: 0,
            paid_until: AtomicU64::new(0),
        }
    }
}

impl BackgroundLimits {
    /// At most `concurrent` compactions that began by themselves at a time, and
    /// `bytes_per_second` of reading and writing by all; 0 for no such limit.
    pub fn new(concurrent: usize, bytes_per_second: u64) -> Arc<Self> {
        Arc::new(BackgroundLimits {
            concurrent,
            bytes_per_second,
            ..BackgroundLimits::default()
        })
    }

    /// A turn, if one is free; given back when dropped.
    ///
    /// ```
    /// let limits = cambium_io::BackgroundLimits::new(1, 0);
    /// let turn = limits.begin().expect("nobody else runs");
    /// assert!(limits.begin().is_none());
    /// drop(turn);
    /// assert!(limits.begin().is_some());
    /// ```
    pub fn begin(self: &Arc<Self>) -> Option<BackgroundTurn> {
        let taken = self
            .running
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |running| {
                (running < self.concurrent).then_some(running + 1)
            });
        taken.ok().map(|_| BackgroundTurn {
            limits: self.clone(),
        })
    }

    /// Bytes were read or written.
    pub fn spend(&self, clock: &dyn Clock, bytes: u64) {
        if self.bytes_per_second == 0 {
            return;
        }
        let rate = self.bytes_per_second as f64;
        let now = clock.monotonic().as_nanos() as u64;
        let since = now.saturating_sub((BURST_SECONDS * 1e9) as u64);
        let cost = (bytes as f64 / rate * 1e9) as u64;
        // Never refused: the answer is always a number.
        _ = self
            .paid_until
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid| {
                Some(paid.max(since).saturating_add(cost))
            });
    }

    /// True while more was moved than the limit allows.
    pub fn is_exhausted(&self, clock: &dyn Clock) -> bool {
        self.bytes_per_second > 0
            && self.paid_until.load(Ordering::Relaxed) > clock.monotonic().as_nanos() as u64
    }
}

/// One of the compactions that may run at a time.
#[derive(Debug)]
pub struct BackgroundTurn {
    limits: Arc<BackgroundLimits>,
}

impl Drop for BackgroundTurn {
    fn drop(&mut self) {
        self.limits.running.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::simulated::SteppedClock;

    #[test]
    fn what_was_moved_too_fast_is_waited_for() {
        let limits = BackgroundLimits::new(1, 1000);
        let clock = SteppedClock::default();
        clock.advance(Duration::from_secs(100));
        limits.spend(&clock, 100);
        assert!(
            !limits.is_exhausted(&clock),
            "a burst of a tenth of a second"
        );
        limits.spend(&clock, 1000);
        assert!(limits.is_exhausted(&clock));
        clock.advance(Duration::from_millis(999));
        assert!(limits.is_exhausted(&clock));
        clock.advance(Duration::from_millis(2));
        assert!(!limits.is_exhausted(&clock));
        BackgroundLimits::new(1, 0).spend(&clock, u64::MAX);
    }
}
