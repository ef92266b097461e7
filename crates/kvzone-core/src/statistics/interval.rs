//! The interval in which a median lies, by order statistics.
//!
//! Draw n values independently: the number of them below the true median is binomial with
//! one half, whatever their distribution. So the true median lies between the k-th smallest
//! and the k-th largest with probability 1 - 2 P(Bin(n, 1/2) < k), exactly (David and
//! Nagaraja, "Order Statistics", 2003, section 7.1). The narrowest such interval with at
//! least 95 % is taken. Fewer than six values have none: then it is from the smallest to
//! the largest, and [`Interval::coverage`] says what that is worth, 94 % for five.
//!
//! A bootstrap of so few values, as many tools have it, covers less than it says.

use serde::{Deserialize, Serialize};

/// Asked for, where there are values enough.
const COVERAGE: f64 = 0.95;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The true median is no lower, ...
    pub low: f64,
    /// ... and no higher, ...
    pub high: f64,
    /// ... with at least this probability.
    pub coverage: f64,
}

/// The interval of the median of `values`; `None` for fewer than two, or where one is not
/// finite.
///
/// ```
/// use kvzone_core::statistics::interval::interval;
/// let five = interval(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
/// assert_eq!((five.low, five.high, five.coverage), (1.0, 5.0, 0.9375));
/// let nine = interval(&[9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]).unwrap();
/// assert_eq!((nine.low, nine.high), (2.0, 8.0));
/// assert!(interval(&[2.0]).is_none());
/// ```
pub fn interval(values: &[f64]) -> Option<Interval> {
    if values.len() < 2 || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // Walks inwards while what is left outside stays within what may be.
    let mut term = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let (mut outside, mut cut) = (term, 0);
    loop {
        let next = term * (count - cut) as f64 / (cut + 1) as f64;
        if 2.0 * (outside + next) > 1.0 - COVERAGE {
            break;
        }
        (term, outside, cut) = (next, outside + next, cut + 1);
    }
    Some(Interval {
        low: sorted[cut],
        high: sorted[count - 1 - cut],
        coverage: 1.0 - 2.0 * outside,
    })
}

/// The interval of the ratio of two medians whose values were measured apart: from the one's
/// low end by the other's high end to the opposite, which covers the true ratio at least as
/// often as both intervals do together. `None` where either has none, or the other's can be 0.
///
/// ```
/// use kvzone_core::statistics::interval::interval_of_ratio;
/// let found = interval_of_ratio(&[4.0, 4.0], &[2.0, 2.0]).unwrap();
/// assert_eq!((found.low, found.high), (2.0, 2.0));
/// ```
pub fn interval_of_ratio(these: &[f64], others: &[f64]) -> Option<Interval> {
    let (these, others) = (interval(these)?, interval(others)?);
    (others.low > 0.0).then(|| Interval {
        low: these.low / others.high,
        high: these.high / others.low,
        coverage: these.coverage * others.coverage,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn it_covers_the_true_median_as_often_as_it_says() {
        let mut draw = Random::new(99);
        for count in [3, 5, 6, 10, 15] {
            let trials = 4_000;
            let mut says = 0.0;
            let covered = (0..trials)
                .filter(|_| {
                    // A law with a long tail, whose median is 0.25.
                    let mut value = || (draw.below(1_000_001) as f64 / 1e6).powi(2);
                    let values: Vec<f64> = (0..count).map(|_| value()).collect();
                    let found = interval(&values).unwrap();
                    says = found.coverage;
                    found.low <= 0.25 && 0.25 <= found.high
                })
                .count();
            let share = covered as f64 / f64::from(trials);
            assert!((share - says).abs() < 0.02, "{count}: {share}, says {says}");
            assert!(count < 6 || says >= COVERAGE, "{count}: {says}");
        }
    }

    #[test]
    fn a_ratio_of_medians_measured_apart_has_the_spread_of_both() {
        let others = [50.0, 55.0, 60.0];
        let found = interval_of_ratio(&[100.0, 110.0, 120.0], &others).unwrap();
        assert!((found.low - 100.0 / 60.0).abs() < 1e-9, "{found:?}");
        assert!((found.high - 120.0 / 50.0).abs() < 1e-9, "{found:?}");
        assert_eq!(interval_of_ratio(&[1.0, 2.0], &[0.0, 1.0]), None);
        assert_eq!(interval_of_ratio(&[1.0], &others), None);
    }

    #[test]
    fn many_values_narrow_it_and_infinity_has_none() {
        let values: Vec<f64> = (1..=101).map(f64::from).collect();
        let found = interval(&values).unwrap();
        assert_eq!((found.low, found.high), (41.0, 61.0));
        assert_eq!(interval(&[1.0, f64::INFINITY]), None);
    }
}
