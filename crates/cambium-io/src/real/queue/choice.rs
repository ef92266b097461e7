//! Which of several ways to do the same takes the least time.
//!
//! What a device, a driver and a kernel make of a call is known to whoever measures it:
//! waking a thread takes longer than a write into memory, and far less than a flush of a
//! disk. All ways are tried in turn, some times each; the one with the least median serves
//! until all are tried again. That is soon at first, and more seldom the longer it is the
//! same one.

use std::time::Duration;

/// How often each way is tried before one is chosen.
const TRIES: usize = 5;
/// What a choice is good for, in uses: to begin with, and at most.
const FIRST_PAUSE: u32 = 64;
const LONGEST_PAUSE: u32 = 1 << 14;

/// A choice among a number of ways.
#[derive(Debug)]
pub(super) struct Choice {
    ways: usize,
    best: usize,
    /// Times of the present trial, the ways in turn; none between trials.
    tried: Vec<Duration>,
    /// Uses until the next trial; none while there is one.
    left: u32,
    pause: u32,
}

impl Choice {
    /// Among so many ways, at least one. The first is taken first.
    pub fn new(ways: usize) -> Self {
        Choice {
            ways: ways.max(1),
            best: 0,
            tried: Vec::new(),
            left: 0,
            pause: FIRST_PAUSE,
        }
    }

    /// The way to take now.
    pub fn next(&self) -> usize {
        match self.left {
            0 => self.tried.len() % self.ways,
            _ => self.best,
        }
    }

    /// That way took so long.
    pub fn took(&mut self, time: Duration) {
        if self.left > 0 {
            self.left -= 1;
            return;
        }
        self.tried.push(time);
        if self.tried.len() == self.ways * TRIES {
            self.choose();
        }
    }

    /// Ends a trial.
    fn choose(&mut self) {
        let median = |&way: &usize| {
            let of_way = self.tried.iter().skip(way).step_by(self.ways);
            let mut times: Vec<Duration> = of_way.copied().collect();
            times.sort_unstable();
            times[TRIES / 2]
        };
        let best = (0..self.ways).min_by_key(median).unwrap_or(0);
        self.pause = match best == self.best {
            true => (self.pause * 2).min(LONGEST_PAUSE),
            false => FIRST_PAUSE,
        };
        self.best = best;
        self.left = self.pause;
        self.tried.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses a choice, where each way takes so many microseconds; how often each was taken.
    fn uses(choice: &mut Choice, count: usize, micros: &[u64]) -> Vec<usize> {
        let mut taken = vec![0; micros.len()];
        for number in 0..count {
            let way = choice.next();
            taken[way] += 1;
            // One in nine takes long, whichever way it goes.
            let mishap = if number % 9 == 0 { 10_000 } else { 0 };
            choice.took(Duration::from_micros(micros[way] + mishap));
        }
        taken
    }

    #[test]
    fn the_quickest_way_is_taken_almost_always() {
        for quickest in 0..3 {
            let mut micros = [30, 30, 30];
            micros[quickest] = 20;
            let mut choice = Choice::new(3);
            let taken = uses(&mut choice, 100_000, &micros);
            assert!(taken[quickest] > 99_000, "{taken:?}");
            assert!(taken.iter().all(|&taken| taken >= TRIES), "{taken:?}");
        }
    }

    #[test]
    fn another_way_is_taken_once_it_has_become_the_quickest() {
        let mut choice = Choice::new(2);
        uses(&mut choice, 100_000, &[10, 20]);
        let taken = uses(&mut choice, 100_000, &[30, 20]);
        assert!(taken[1] > 80_000, "{taken:?}");
    }

    #[test]
    fn a_single_way_is_always_taken() {
        let mut choice = Choice::new(1);
        assert_eq!(uses(&mut choice, 1000, &[10]), [1000]);
    }
}
