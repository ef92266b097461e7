//! How writers keep to the speed of the background, which carries their buffers into the
//! tries.
//!
//! A flush takes as long as its nodes and what it cleans take; writers fill the next buffer
//! meanwhile. Were they not slowed, they would fill it at once and then stand still until the
//! flush ends. So they are slowed from the moment that the buffer is an eighth full: to the
//! rate of recent flushes when it is half full, to less beyond. Each takes its turn on the
//! line of [`crate::compact`]'s pace.

use std::time::Duration;

use cambium_base::Result;
use cambium_io::sync::Mutex;
use cambium_io::sync::atomic::{AtomicU64, Ordering};

use crate::core::{Core, lock};

/// Writers are not slowed below this fullness, in thousandths.
const FREE: u64 = 125;
/// They keep to the rate of recent flushes at this one.
const HALF: u64 = 500;

/// What a step of the background has carried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Carried {
    /// Bytes of the log.
    pub logged: u64,
    /// Into the tries, and not into the run alone.
    pub is_in_tries: bool,
}

/// The speed of recent flushes.
#[derive(Debug, Default)]
pub(crate) struct Carrying {
    recent: Mutex<Recent>,
    /// Nanoseconds of a KiB while a flush runs; 0: none runs, or its speed is not known.
    cost: AtomicU64,
}

/// Sums over recent steps.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    time: Duration,
    logged: u64,
}

impl Core {
    /// A step begins; answers when.
    pub fn begin_carrying(&self) -> Duration {
        let recent = *lock(&self.carrying.recent);
        let cost = (recent.time.as_nanos() << 10) / u128::from(recent.logged.max(1));
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        self.carrying.cost.store(cost, Ordering::Relaxed);
        self.environment.clock.monotonic()
    }

    /// A step that began then has come to its end.
    pub fn end_carrying(&self, began: Duration, outcome: &Result<Carried>) {
        self.carrying.cost.store(0, Ordering::Relaxed);
        let Ok(carried) = outcome else {
            return;
        };
        let mut recent = lock(&self.carrying.recent);
        recent.time += self.environment.clock.monotonic().saturating_sub(began);
        recent.logged += carried.logged;
        if carried.is_in_tries {
            // The older a flush, the less it counts.
            recent.time /= 2;
            recent.logged /= 2;
        }
    }

    /// What a KiB of a write costs on the writers' line while a flush runs, in nanoseconds.
    pub fn cost_of_carrying(&self) -> u64 {
        let cost = self.carrying.cost.load(Ordering::Relaxed);
        if cost == 0 {
            return 0;
        }
        let beyond = self.fullness().saturating_sub(FREE);
        cost.saturating_mul(beyond) / (HALF - FREE)
    }
}
