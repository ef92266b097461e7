//! How writers keep to the speed of a flush.
//!
//! A flush takes as long as its nodes and what it cleans take. Were writers not slowed
//! meanwhile, they would fill the active buffer at once and then stand still until the flush
//! ends. So they fill it at an even rate, as slowly as the flush needs:
//!
//! ```text
//! full  ┤                      ╭───────╌╌╌
//! 4/5   ┤                 ╭──╌╌
//!       │          ╭──╌╌╌╌
//!       │   ╭──╌╌╌╌         writers wait above this line
//!       ┼───┴─────────────┬──────────────▶ since the flush began
//!                 expected duration
//! ```
//!
//! The duration that is expected comes from the part of its changes that the flush has
//! applied, since one that cleans takes many times as long as one that does not. Before it has
//! applied any, the usual duration counts as well. Past the expected duration the line bends
//! and never reaches the bound: writers slow down further, and do not stop.

use std::time::Duration;

use cambium_io::sync::atomic::{AtomicU64, Ordering};

use crate::core::Core;

/// Writers are not slowed while the buffer is less full, in thousandths.
const FREE: u64 = 125;
/// So full is the buffer after the duration that is expected.
const EXPECTED: u64 = 800;
/// A flush is at its end some time after its last change: it syncs. In thousandths.
const WITH_SYNC: u64 = 1100;
/// Thousandths of its changes that a flush applies before they tell how long it takes.
const TELLING: u64 = 10;
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
    /// Changes of the one that goes on, and those that it has applied.
    changes: AtomicU64,
    applied: AtomicU64,
}

impl Carrying {
    /// How long the flush takes that has gone on for `elapsed`.
    fn expected(&self, elapsed: u64) -> u64 {
        let usual = self.usual.load(Ordering::Relaxed);
        let changes = self.changes.load(Ordering::Relaxed);
        if changes == 0 {
            return usual;
        }
        let part = self.applied.load(Ordering::Relaxed).saturating_mul(1000) / changes;
        let by_part = elapsed.saturating_mul(WITH_SYNC) / part.max(TELLING);
        match part {
            ..TELLING => usual.max(by_part),
            _ => by_part,
        }
    }
}

impl Core {
    fn nanoseconds(&self) -> u64 {
        self.environment.clock.monotonic().as_nanos() as u64
    }

    /// A flush of so many changes begins.
    pub fn begin_carrying(&self, changes: u64) {
        self.carrying.changes.store(changes, Ordering::Relaxed);
        self.carrying.applied.store(0, Ordering::Relaxed);
        let now = self.nanoseconds().max(1);
        self.carrying.began.store(now, Ordering::Relaxed);
    }

    /// It has applied more of them.
    pub fn carried(&self, changes: u64) {
        self.carrying.applied.fetch_add(changes, Ordering::Relaxed);
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
        let now = self.nanoseconds();
        let expected = self.carrying.expected(now.saturating_sub(began));
        let due = began.saturating_add(match fullness {
            ..EXPECTED => expected / (EXPECTED - FREE) * (fullness - FREE),
            _ => {
                expected.saturating_mul(1000 - EXPECTED) / 1000_u64.saturating_sub(fullness).max(1)
            }
        });
        if due < now + SHORTEST_DELAY.as_nanos() as u64 {
            return;
        }
        let goes_on = || self.carrying.began.load(Ordering::Relaxed) == began;
        self.delay(Duration::from_nanos(due), LONGEST_SLEEP, goes_on);
    }
}
