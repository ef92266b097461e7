//! The interval in which a median lies.
//!
//! Percentile bootstrap (Efron, "Bootstrap methods: another look at the
//! jackknife", Annals of Statistics 1979): draw as many values as there are,
//! with replacement, take the median, and do that often; the middle 95 % of
//! those medians are the interval. Nothing is assumed of how the values are
//! distributed, which suits ratios of rates on a machine with neighbours.
//!
//! Few values give few different medians: with two or three rounds the
//! interval is from the smallest to the largest, and it says so by being wide.

use serde::{Deserialize, Serialize};

use super::draw::Draw;
use super::median;

/// Medians drawn. At 10,000 the ends move by less than the values differ.
const RESAMPLES: usize = 10_000;

/// From and to, with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// 2.5 % of the medians lie below.
    pub low: f64,
    /// 2.5 % lie above.
    pub high: f64,
}

/// The 95 % interval of the median of `values`, the same from the same seed;
/// `None` for fewer than two values.
///
/// ```
/// use kvzone_core::statistics::bootstrap::interval;
/// let same = interval(&[2.0, 2.0, 2.0, 2.0, 2.0], 1).unwrap();
/// assert_eq!((same.low, same.high), (2.0, 2.0));
/// assert!(interval(&[2.0], 1).is_none());
/// ```
pub fn interval(values: &[f64], seed: u64) -> Option<Interval> {
    if values.len() < 2 || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut draw = Draw::new(seed);
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            let sample: Vec<f64> = (0..values.len())
                .map(|_| values[draw.below(values.len())])
                .collect();
            median(&sample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let edge = RESAMPLES / 40;
    Some(Interval {
        low: *medians.get(edge)?,
        high: *medians.get(RESAMPLES - 1 - edge)?,
    })
}

/// The 95 % interval of the ratio of two medians whose values were measured
/// apart, each drawn from by itself; `None` for fewer than two values of
/// either, or where the other's median can be 0.
///
/// ```
/// use kvzone_core::statistics::bootstrap::interval_of_ratio;
/// let found = interval_of_ratio(&[4.0, 4.0], &[2.0, 2.0], 1).unwrap();
/// assert_eq!((found.low, found.high), (2.0, 2.0));
/// ```
pub fn interval_of_ratio(these: &[f64], others: &[f64], seed: u64) -> Option<Interval> {
    let usable = |values: &[f64]| values.len() >= 2 && values.iter().all(|v| v.is_finite());
    if !usable(these) || !usable(others) || others.iter().any(|&other| other <= 0.0) {
        return None;
    }
    let mut draw = Draw::new(seed);
    let mut drawn_median = |values: &[f64]| {
        let sample: Vec<f64> = (0..values.len())
            .map(|_| values[draw.below(values.len())])
            .collect();
        median(&sample)
    };
    let mut ratios: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| Some(drawn_median(these)? / drawn_median(others)?))
        .collect();
    ratios.sort_by(f64::total_cmp);
    let edge = RESAMPLES / 40;
    Some(Interval {
        low: *ratios.get(edge)?,
        high: *ratios.get(RESAMPLES - 1 - edge)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_of_medians_measured_apart_has_the_spread_of_both() {
        let these = [100.0, 110.0, 120.0];
        let others = [50.0, 55.0, 60.0];
        let found = interval_of_ratio(&these, &others, 5).unwrap();
        assert!((found.low - 100.0 / 60.0).abs() < 1e-9, "{found:?}");
        assert!((found.high - 120.0 / 50.0).abs() < 1e-9, "{found:?}");
        assert_eq!(interval_of_ratio(&these, &[0.0, 1.0], 5), None);
        assert_eq!(interval_of_ratio(&[1.0], &others, 5), None);
    }

    #[test]
    fn few_values_give_their_whole_range() {
        for values in [&[1.0, 3.0][..], &[1.0, 2.0, 3.0]] {
            let found = interval(values, 5).unwrap();
            assert_eq!((found.low, found.high), (1.0, 3.0), "{values:?}");
        }
    }

    #[test]
    fn one_value_far_out_among_many_does_not_move_it() {
        let mut values = vec![1.0; 19];
        values.push(1000.0);
        let found = interval(&values, 5).unwrap();
        assert_eq!((found.low, found.high), (1.0, 1.0));
    }

    #[test]
    fn the_interval_of_1_to_101_is_that_of_its_order_statistics() {
        // For the median of n values the binomial interval runs between the
        // order statistics n/2 -+ 0.98 sqrt(n): the 41st and the 61st of 101.
        let values: Vec<f64> = (1..=101).map(f64::from).collect();
        let found = interval(&values, 11).unwrap();
        assert!((found.low - 41.0).abs() <= 2.0, "{found:?}");
        assert!((found.high - 61.0).abs() <= 2.0, "{found:?}");
    }

    #[test]
    fn it_covers_the_true_median_about_as_often_as_it_says() {
        let mut draw = Draw::new(99);
        let covered = (0..300)
            .filter(|&trial| {
                let values: Vec<f64> = (0..15).map(|_| draw.below(1_000_001) as f64).collect();
                let found = interval(&values, trial).unwrap();
                found.low <= 500_000.0 && 500_000.0 <= found.high
            })
            .count();
        assert!((270..=298).contains(&covered), "{covered} of 300");
    }

    #[test]
    fn the_same_seed_gives_the_same_interval_and_infinity_none() {
        let values = [1.0, 4.0, 2.0, 8.0, 5.0, 7.0];
        assert_eq!(interval(&values, 3), interval(&values, 3));
        assert_eq!(interval(&[1.0, f64::INFINITY], 3), None);
    }
}
