//! A counter that many threads count in without waiting for one another: each
//! has a stripe, and a reader adds them up.

use std::cell::Cell;

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Stripes, a power of two: threads beyond share them.
const STRIPES: usize = 8;

/// On cache lines of its own, prefetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

/// Counts events of many threads.
///
/// ```
/// let counter = cambium_io::counter::StripedCounter::default();
/// counter.add(2);
/// counter.add(3);
/// assert_eq!(counter.sum(), 5);
/// ```
#[derive(Debug, Default)]
pub struct StripedCounter {
    stripes: [Stripe; STRIPES],
}

thread_local! {
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn own_stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    STRIPE.with(|stripe| {
        if stripe.get() == usize::MAX {
            stripe.set(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        stripe.get()
    })
}

impl StripedCounter {
    /// Counts `amount` more.
    pub fn add(&self, amount: u64) {
        self.stripes[own_stripe()]
            .0
            .fetch_add(amount, Ordering::Relaxed);
    }

    /// What has been counted; counting meanwhile may be missed.
    pub fn sum(&self) -> u64 {
        let stripes = self.stripes.iter();
        stripes.map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_threads_count_adds_up() {
        let counter = StripedCounter::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * STRIPES {
                scope.spawn(|| (0..1_000).for_each(|_| counter.add(1)));
            }
        });
        assert_eq!(counter.sum(), 2_000 * STRIPES as u64);
    }
}
