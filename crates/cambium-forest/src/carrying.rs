//! How writers keep to the speed of a flush.
//!
//! A flush takes as long as its nodes and what it cleans take. Were writers not slowed
//! meanwhile, they would fill the active buffer at once and then stand still until the flush
//! ends. So they fill it as slowly as a flush of the usual duration needs:
//!
//! ```text
//! full      ┤                   ╭──────────╌╌╌
//! 3/4       ┤           ╭──╌╌╌╌╌
//!           │     ╭─╌╌╌╌
//!           │  ╭╌╌         writers wait above this line
//!           ┼──┴────────┬───────────────▶ since the flush began
//!                 usual duration
//! ```
//!
//! The line never reaches the bound, so a flush that takes twice as long as usual slows writers
//! further, and does not stop them.

use std::time::Duration;

use cambium_io::sync::atomic::{AtomicU64, Ordering};

use crate::core::Core;

/// Writers are not slowed while the buffer is less full, in thousandths.
const FREE: u64 = 125;
/// The buffer is three quarters full after the usual duration.
const PART_OF_DURATION: u64 = 3;
/// A shorter delay is not worth a sleep. Few long sleeps leave the percentiles of writes alone;
/// many short ones do not.
const SHORTEST_DELAY: Duration = Duration::from_millis(2);
/// The longest that a writer sleeps before it looks again.
const LONGEST_SLEEP: Duration = Duration::from_millis(10);

/// The flush that goes on, and those before it, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Carrying {
    /// When it began; 0: none goes on.
    began: AtomicU64,
    /// How long they took, as an average over the last few; 0: there was none.
    usual: AtomicU64,
}

impl Core {
    fn nanoseconds(&self) -> u64 {
        self.environment.clock.monotonic().as_nanos() as u64
    }

    /// A flush begins.
    pub fn begin_carrying(&self) {
        let now = self.nanoseconds().max(1);
        self.carrying.began.store(now, Ordering::Relaxed);
    }

    /// It has come to its end.
    pub fn end_carrying(&self) {
        let began = self.carrying.began.swap(0, Ordering::Relaxed);
        let took = self.nanoseconds().saturating_sub(began);
        let usual = match self.carrying.usual.load(Ordering::Relaxed) {
            0 => took,
            usual => usual / 4 * 3 + took / 4,
        };
        self.carrying.usual.store(usual, Ordering::Relaxed);
    }

    /// A writer waits here while the buffer is fuller than it should be at this moment of a
    /// flush.
    pub fn keep_to_flush(&self) {
        let began = self.carrying.began.load(Ordering::Relaxed);
        let fullness = match began {
            0 => return,
            _ => self.fullness(),
        };
        if fullness < FREE {
            return;
        }
        let usual = self.carrying.usual.load(Ordering::Relaxed);
        let part = usual / PART_OF_DURATION;
        let due = began.saturating_add(part * fullness / 1000_u64.saturating_sub(fullness).max(1));
        let now = self.nanoseconds();
        if due < now + SHORTEST_DELAY.as_nanos() as u64 {
            return;
        }
        let goes_on = || self.carrying.began.load(Ordering::Relaxed) == began;
        self.delay(Duration::from_nanos(due), LONGEST_SLEEP, goes_on);
    }
}
