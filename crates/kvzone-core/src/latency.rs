//! Percentiles of many durations.
//!
//! Every sample is kept (4 bytes each), so a percentile is exact: the smallest
//! sample that at least that share of all samples does not exceed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A summary of durations, in nanoseconds; all 0 where there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: f64,
    /// Half of them took no longer.
    pub p50: u64,
    /// Nine in ten took no longer.
    pub p90: u64,
    /// 99 in a hundred took no longer.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

/// Collects durations.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    nanoseconds: Vec<u32>,
}

impl Samples {
    /// Room for so many samples before memory is asked for again.
    pub fn with_capacity(count: usize) -> Self {
        Samples {
            nanoseconds: Vec::with_capacity(count),
        }
    }

    /// Adds one; more than 4.29 seconds count as that.
    pub fn add(&mut self, duration: Duration) {
        let nanoseconds = u32::try_from(duration.as_nanos()).unwrap_or(u32::MAX);
        self.nanoseconds.push(nanoseconds);
    }

    /// How many were added.
    pub fn count(&self) -> u64 {
        self.nanoseconds.len() as u64
    }

    /// Sorts and sums up.
    pub fn summarize(mut self) -> Latency {
        self.nanoseconds.sort_unstable();
        let sorted = &self.nanoseconds;
        let Some(&max) = sorted.last() else {
            return Latency::default();
        };
        let sum: u64 = sorted.iter().map(|&sample| u64::from(sample)).sum();
        let percentile = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            u64::from(sorted[rank - 1])
        };
        Latency {
            mean: sum as f64 / sorted.len() as f64,
            p50: percentile(50),
            p90: percentile(90),
            p99: percentile(99),
            max: u64::from(max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact() {
        let mut samples = Samples::default();
        for n in (1..=200).rev() {
            samples.add(Duration::from_nanos(n));
        }
        assert_eq!(samples.count(), 200);
        let found = samples.summarize();
        let expected = Latency {
            mean: 100.5,
            p50: 100,
            p90: 180,
            p99: 198,
            max: 200,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn no_sample_gives_zeros_and_a_long_one_is_capped() {
        assert_eq!(Samples::default().summarize(), Latency::default());
        let mut samples = Samples::default();
        samples.add(Duration::from_secs(60));
        assert_eq!(samples.summarize().max, u64::from(u32::MAX));
    }
}
