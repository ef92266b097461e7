//! Looks for the highest rate at which a store keeps a latency.
//!
//! An open loop whose rate changes every half second: up while enough operations
//! are in time, down when too many are late (KVZone, section 2.1: a target by
//! latency). It doubles until the first window fails, and then goes up by a
//! twentieth and down by a fifth, so that it stays around the limit. When the rate
//! falls below the least that is asked for, the target cannot be reached, and the
//! phase ends.
//!
//! In the last third of a phase whose length is known the rate is held: that of the
//! windows that were kept, a tenth less each time that what was held so far is not
//! kept any more. A rate is *confirmed* if all operations since it was last set, a
//! sixth of the phase at least, kept the latency together.
//!
//! A changed rate begins anew: operations that were due under the old one and had
//! not been issued are forgiven. Inside a window nothing is: latency counts from
//! the moment at which an operation was due.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::job::LatencyTarget;

/// Looks of the thread that watches, between two decisions.
const LOOKS: u32 = 5;

/// A window with fewer calls says nothing of a percentile; it lasts longer.
const CALLS: u64 = 100;

/// A window without enough calls for so many looks has failed: the store stands
/// still.
const PATIENCE: u32 = 4 * LOOKS;

const UP: f64 = 1.05;
const DOWN: f64 = 0.8;
/// From a rate that was held and is not kept to the next.
const LOWER: f64 = 0.9;

/// What threads read and count, and the thread that watches decides.
#[derive(Debug)]
pub struct Governor {
    target: LatencyTarget,
    threads: u32,
    /// Nanoseconds from one operation of a thread to its next.
    interval: AtomicU64,
    /// Changes with the rate.
    epoch: AtomicU64,
    calls: AtomicU64,
    late: AtomicU64,
    control: Mutex<Control>,
}

/// One window: the rate asked for, calls, and how many were late.
type Window = (f64, u64, u64);

#[derive(Debug, Default)]
struct Control {
    rate: f64,
    /// Some window has failed.
    found_limit: bool,
    unreachable: bool,
    looks: u32,
    windows: Vec<Window>,
    /// Looks of the whole phase, where its length is known, and so far.
    length: Option<u64>,
    passed: u64,
    /// What was held so far, and from which look on.
    held: Option<(Window, u64)>,
}

impl Governor {
    /// Begins at the target's rate.
    pub fn new(target: LatencyTarget, threads: u32, length: Option<u64>) -> Self {
        let governor = Governor {
            target,
            threads,
            interval: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            late: AtomicU64::new(0),
            control: Mutex::new(Control {
                rate: target.first_rate,
                length,
                ..Control::default()
            }),
        };
        governor.set(target.first_rate);
        governor
    }

    fn set(&self, rate: f64) {
        let interval = f64::from(self.threads) * 1e9 / rate;
        self.interval.store(interval as u64, Ordering::Relaxed);
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub fn interval(&self) -> u64 {
        self.interval.load(Ordering::Relaxed)
    }

    /// Another number when the rate has changed.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// A call ended so long after it was due.
    #[inline]
    pub fn count(&self, latency: u64) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if latency > self.target.nanoseconds {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Looks, and changes the rate if it is time to; `stop` is set when the target
    /// cannot be reached.
    pub fn look(&self, stop: &AtomicBool) {
        // Poisoned means that the thread that watches panicked: it is this one.
        let mut control = self.control.lock().unwrap_or_else(|e| e.into_inner());
        let calls = self.calls.load(Ordering::Relaxed);
        let late = self.late.load(Ordering::Relaxed);
        if let Some(rate) = control.look(&self.target, calls, late) {
            self.calls.store(0, Ordering::Relaxed);
            self.late.store(0, Ordering::Relaxed);
            self.set(rate);
        }
        if control.unreachable {
            stop.store(true, Ordering::Relaxed);
        }
    }

    /// For `extra`: what was asked for, what was kept, and every window.
    pub fn to_json(&self) -> Value {
        let control = self.control.lock().unwrap_or_else(|e| e.into_inner());
        json!({
            "latency_ns": self.target.nanoseconds,
            "percentile": self.target.percentile,
            "rate_kept": control.rate_kept(&self.target),
            "confirmed": control.is_confirmed(&self.target),
            "unreachable": control.unreachable,
            "windows": control.windows,
        })
    }
}

fn is_kept(target: &LatencyTarget, (_, calls, late): Window) -> bool {
    calls > 0 && late as f64 <= calls as f64 * (1.0 - target.percentile / 100.0)
}

impl Control {
    /// The next rate, where a window ends.
    fn look(&mut self, target: &LatencyTarget, calls: u64, late: u64) -> Option<f64> {
        self.looks += 1;
        self.passed += 1;
        let is_last_third = self.length.is_some_and(|all| self.passed > all - all / 3);
        if (is_last_third || self.held.is_some()) && !self.unreachable {
            return self.hold(target, calls, late);
        }
        let is_long_enough = self.looks >= LOOKS && calls >= CALLS;
        if !(is_long_enough || self.looks >= PATIENCE) {
            return None;
        }
        self.looks = 0;
        let window = (self.rate, calls, late);
        self.windows.push(window);
        let kept = is_kept(target, window);
        self.found_limit |= !kept;
        self.rate *= match (kept, self.found_limit) {
            (true, false) => 2.0,
            (true, true) => UP,
            (false, _) => DOWN,
        };
        self.unreachable |= self.rate < target.least_rate;
        Some(self.rate)
    }

    /// Holds a rate; the next, where one begins to be held.
    fn hold(&mut self, target: &LatencyTarget, calls: u64, late: u64) -> Option<f64> {
        let Some((window, since)) = &mut self.held else {
            let rate = self.kept(target).unwrap_or(self.rate * DOWN);
            self.held = Some(((rate, 0, 0), self.passed));
            return Some(rate);
        };
        *window = (window.0, calls, late);
        let is_long_enough = self.passed - *since >= u64::from(LOOKS) && calls >= CALLS;
        if !is_long_enough || is_kept(target, *window) {
            return None;
        }
        let lower = window.0 * LOWER;
        self.held = Some(((lower, 0, 0), self.passed));
        self.unreachable |= lower < target.least_rate;
        Some(lower)
    }

    /// What was held, or else what was kept.
    fn rate_kept(&self, target: &LatencyTarget) -> Option<f64> {
        match self.held {
            Some(_) if self.unreachable => None,
            Some((window, _)) => Some(window.0),
            None => self.kept(target),
        }
    }

    /// Whether what was held was kept for long enough; none where nothing was held.
    fn is_confirmed(&self, target: &LatencyTarget) -> Option<bool> {
        let (window, since) = self.held?;
        let long = self
            .length
            .is_some_and(|all| (self.passed - since) * 6 >= all);
        Some(long && !self.unreachable && window.1 >= CALLS && is_kept(target, window))
    }

    /// The median of the rates that were kept since the limit was first found;
    /// the last that was kept, if none failed; none if nothing was kept.
    fn kept(&self, target: &LatencyTarget) -> Option<f64> {
        if self.unreachable {
            return None;
        }
        let first = self
            .windows
            .iter()
            .position(|&window| !is_kept(target, window));
        let since = &self.windows[first.unwrap_or(self.windows.len().saturating_sub(1))..];
        let rates = since.iter().filter(|&&window| is_kept(target, window));
        crate::statistics::median(&rates.map(|window| window.0).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: LatencyTarget = LatencyTarget {
        nanoseconds: 1_000_000,
        percentile: 99.0,
        first_rate: 1_000.0,
        least_rate: 100.0,
    };

    /// Windows of a store that is in time up to a rate, and late beyond it.
    fn run(limit: f64, windows: u32) -> Governor {
        let governor = Governor::new(TARGET, 1, None);
        let stop = AtomicBool::new(false);
        for _ in 0..windows * LOOKS {
            let rate = 1e9 / governor.interval() as f64;
            let latency = if rate > limit { 2_000_000 } else { 10_000 };
            (0..CALLS).for_each(|_| governor.count(latency));
            governor.look(&stop);
        }
        governor
    }

    #[test]
    fn it_stays_around_the_limit_and_says_what_was_kept() {
        for limit in [1_500.0, 40_000.0] {
            let found = run(limit, 60).to_json();
            let kept = found["rate_kept"].as_f64().unwrap_or(0.0);
            assert!(
                kept > 0.75 * limit && kept <= 1.001 * limit,
                "{kept}, {limit}"
            );
            assert_eq!(found["unreachable"], false);
        }
    }

    #[test]
    fn the_last_third_holds_a_rate_and_confirms_it() {
        let (limit, length) = (5_000.0, 300);
        let governor = Governor::new(TARGET, 1, Some(length));
        let stop = AtomicBool::new(false);
        let mut rates = Vec::new();
        for _ in 0..length {
            let rate = 1e9 / governor.interval() as f64;
            let latency = if rate > limit { 2_000_000 } else { 10_000 };
            (0..CALLS).for_each(|_| governor.count(latency));
            governor.look(&stop);
            rates.push(rate);
        }
        let found = governor.to_json();
        assert_eq!(found["confirmed"], true, "{found}");
        let kept = found["rate_kept"].as_f64().unwrap_or(0.0);
        assert!(kept > 0.75 * limit && kept <= limit, "{kept}");
        let last = &rates[220..];
        assert!(last.iter().all(|rate| (rate - kept).abs() < 0.01 * kept));
    }

    #[test]
    fn a_rate_that_is_not_kept_when_it_is_held_is_lowered() {
        let length = 300;
        let governor = Governor::new(TARGET, 1, Some(length));
        let stop = AtomicBool::new(false);
        for look in 0..length {
            // The store becomes slower just then.
            let limit = if look < 200 { 8_000.0 } else { 5_000.0 };
            let rate = 1e9 / governor.interval() as f64;
            let latency = if rate > limit { 2_000_000 } else { 10_000 };
            (0..CALLS).for_each(|_| governor.count(latency));
            governor.look(&stop);
        }
        let found = governor.to_json();
        let kept = found["rate_kept"].as_f64().unwrap_or(0.0);
        assert!(kept > 0.8 * 5_000.0 && kept <= 5_000.0, "{kept}");
        assert_eq!(found["confirmed"], true, "{found}");
    }

    #[test]
    fn a_target_that_cannot_be_reached_ends_the_phase() {
        let found = run(50.0, 60).to_json();
        assert_eq!(found["unreachable"], true);
        assert!(found["rate_kept"].is_null());
    }

    #[test]
    fn a_hundredth_may_be_late_and_no_more() {
        assert!(is_kept(&TARGET, (1.0, 1_000, 10)));
        assert!(!is_kept(&TARGET, (1.0, 1_000, 11)));
        assert!(!is_kept(&TARGET, (1.0, 0, 0)));
    }

    #[test]
    fn a_store_that_stands_still_has_failed() {
        let governor = Governor::new(TARGET, 1, None);
        let stop = AtomicBool::new(false);
        let before = governor.interval();
        (0..PATIENCE).for_each(|_| governor.look(&stop));
        assert!(governor.interval() > before);
    }

    #[test]
    fn windows_with_few_calls_last_longer() {
        let governor = Governor::new(TARGET, 1, None);
        let stop = AtomicBool::new(false);
        let epoch = governor.epoch();
        for _ in 0..LOOKS {
            governor.count(1);
            governor.look(&stop);
        }
        assert_eq!(governor.epoch(), epoch, "five calls say nothing");
    }
}
