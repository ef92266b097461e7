//! The machine's clock, in nanoseconds since a phase began, and waiting for a
//! moment of it.
//!
//! This is the one place of the crate that reads a clock: what is measured is
//! the real machine, and going through a trait object would cost a tenth of
//! the whole budget of an operation (a read takes about 23 ns as it is).
//!
//! A sleep ends late, by some 80 µs on an idle machine: [`Clock::wait_until`]
//! therefore sleeps for less than it should and gives the processor away until
//! the moment has come. So the processor time of an open loop is not the
//! store's alone.

use std::time::{Duration, Instant};

/// A sleep shorter by this ends early enough.
const LATENESS: u64 = 100_000;

/// Nanoseconds of a wait after which it looks whether it should stop.
const PATIENCE: u64 = 50_000_000;

/// Nanoseconds since it was started.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    pub fn start() -> Self {
        Clock {
            origin: Instant::now(),
        }
    }

    #[inline]
    pub fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    pub fn seconds(&self) -> f64 {
        self.now() as f64 / 1e9
    }

    /// Waits until a moment, and answers the time then: at or just past it. No
    /// longer than `slice` nanoseconds at a time, so that the caller can look
    /// whether it should stop.
    pub fn wait_until(&self, moment: u64, slice: u64) -> u64 {
        let mut now = self.now();
        let end = moment.min(now.saturating_add(slice));
        if end > now + LATENESS {
            std::thread::sleep(Duration::from_nanos(end - now - LATENESS));
            now = self.now();
        }
        while now < end {
            // On a machine with few cores the store's own threads may be
            // waiting for this one.
            std::thread::yield_now();
            now = self.now();
        }
        now
    }

    /// Waits until a moment; false if it is not before `deadline`, or the wait was
    /// stopped.
    pub fn wait_for(&self, due: u64, deadline: u64, is_stopped: impl Fn() -> bool) -> bool {
        if due >= deadline {
            return false;
        }
        loop {
            let now = self.wait_until(due, PATIENCE);
            if is_stopped() {
                return false;
            }
            if now >= due {
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_at_its_moment_and_not_before() {
        let clock = Clock::start();
        for length in [0, 10_000, 400_000, 3_000_000] {
            let moment = clock.now() + length;
            assert!(clock.wait_until(moment, u64::MAX) >= moment);
        }
    }

    #[test]
    fn a_wait_is_cut_at_its_slice() {
        let clock = Clock::start();
        let far = 1_000_000_000_000;
        assert!(clock.wait_until(far, 1_000_000) < far);
    }
}
