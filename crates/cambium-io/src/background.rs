//! What background work of all stores of an environment may take together.
//!
//! Each store decides when a flush, a compaction or a collection is due. How many
//! compactions run at a time, and how many bytes all background work reads and writes in a
//! second, is a limit of the machine that the stores share.
//!
//! Background work pays for bytes after it has moved them ([`BackgroundLimits::spend`]), and
//! the next step waits until they are paid for. Commits pay nothing. Where writers write
//! faster than the limit lets flushes follow, write buffers fill, and writers wait for the
//! flush of a full one, as with RocksDB's rate limiter.

use std::sync::Arc;
use std::time::Duration;

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
/// The smallest limit, in bytes a second: with less, a writer that waits for the flush of a
/// large write buffer would wait for hours.
const LEAST_RATE: u64 = 64 << 10;
/// The longest that background work sleeps before it looks whether it was cancelled.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);
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
    /// `bytes_per_second` of reading and writing by all background work; 0 for no such limit.
    /// A limit below 64 KiB a second counts as so much.
    pub fn new(concurrent: usize, bytes_per_second: u64) -> Arc<Self> {
        Arc::new(BackgroundLimits {
            concurrent,
            bytes_per_second: match bytes_per_second {
                0 => 0,
                rate => rate.max(LEAST_RATE),
            },
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

    /// Background work has read or written so many bytes.
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

    /// Waits until what was moved is paid for, or until `is_over`. For work on request, and
    /// for writers that do background work themselves; the caller holds no lock that readers
    /// take.
    pub fn wait(&self, clock: &dyn Clock, is_over: &dyn Fn() -> bool) {
        while self.is_exhausted(clock) && !is_over() {
            let paid_until = Duration::from_nanos(self.paid_until.load(Ordering::Relaxed));
            let left = paid_until.saturating_sub(clock.monotonic());
            clock.sleep(left.min(LONGEST_SLEEP));
        }
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
    use super::*;
    use crate::simulated::SteppedClock;

    const RATE: u64 = 1 << 20;

    #[test]
    fn what_was_moved_too_fast_is_waited_for() {
        let limits = BackgroundLimits::new(1, RATE);
        let clock = SteppedClock::default();
        clock.advance(Duration::from_secs(100));
        limits.spend(&clock, RATE / 10);
        assert!(
            !limits.is_exhausted(&clock),
            "a burst of a tenth of a second"
        );
        limits.spend(&clock, RATE);
        assert!(limits.is_exhausted(&clock));
        clock.advance(Duration::from_millis(999));
        assert!(limits.is_exhausted(&clock));
        clock.advance(Duration::from_millis(2));
        assert!(!limits.is_exhausted(&clock));
        BackgroundLimits::new(1, 0).spend(&clock, u64::MAX);
    }

    #[test]
    fn a_wait_ends_when_bytes_are_paid_for_or_nobody_needs_the_work() {
        let clock = SteppedClock::default();
        let limits = BackgroundLimits::new(1, RATE);
        let began = clock.monotonic();
        limits.spend(&clock, 3 * RATE);
        limits.wait(&clock, &|| true);
        assert_eq!(clock.monotonic(), began);
        limits.wait(&clock, &|| false);
        let waited = clock.monotonic() - began;
        assert!(waited >= Duration::from_millis(2900), "{waited:?}");
        assert!(waited <= Duration::from_millis(3100), "{waited:?}");
    }

    #[test]
    fn the_smallest_limit_stalls_nobody_for_hours() {
        let clock = SteppedClock::default();
        let limits = BackgroundLimits::new(1, 1);
        limits.spend(&clock, LEAST_RATE);
        limits.wait(&clock, &|| false);
        assert!(clock.monotonic() <= Duration::from_secs(2));
    }
}
