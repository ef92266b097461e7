//! Whether a ratio names a winner.
//!
//! A difference below 2 % is nobody's reason to choose a store, and smaller
//! than what the layout of a binary in memory does to a program. So a winner is
//! named only if the whole interval lies beyond [`INDIFFERENT`] of 1.00, and
//! never from fewer than [`ROUNDS_FOR_A_CLAIM`] rounds.

use serde::{Deserialize, Serialize};

use super::interval::{Interval, interval, interval_of_ratio};
use super::median;
use crate::report::text::three_digits;

/// Ratios this near to 1 are no difference.
pub const INDIFFERENT: f64 = 0.02;

/// Rounds below which a claim should not be made.
pub const ROUNDS_FOR_A_CLAIM: usize = 5;

/// What the rounds say of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The interval lies above 1.02.
    Higher,
    /// The interval lies below 0.98.
    Lower,
    /// The interval lies within 0.98 to 1.02.
    Equal,
    /// The interval reaches across a bound: noise drowns the difference.
    Noise,
    /// Too few rounds: nothing can be said.
    Unknown,
}

/// A ratio of two stores over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub ratio: f64,
    /// Its interval; null for one round.
    pub interval: Option<Interval>,
    pub verdict: Verdict,
    /// The ratio in each round; empty where there are no rounds in common.
    pub ratios: Vec<f64>,
}

impl Comparison {
    /// The ratio with its interval: `0.50 [0.40, 0.60]`.
    pub fn text(&self) -> String {
        let range = self.interval.map_or_else(String::new, |range| {
            let (low, high) = (three_digits(range.low), three_digits(range.high));
            format!(" [{low}, {high}]")
        });
        three_digits(self.ratio) + &range
    }
}

/// Compares two stores by what they reached in each round: `pairs` of (this,
/// other). Rounds in which the other reached nothing are left out; `None` if
/// no round is left.
///
/// ```
/// use kvzone_core::statistics::verdict::{Verdict, compare};
/// let rounds = [(210.0, 100.0), (400.0, 200.0), (290.0, 150.0), (20.0, 10.0), (3.0, 1.5)];
/// let found = compare(&rounds).unwrap();
/// assert_eq!(found.ratio, 2.0);
/// assert_eq!(found.verdict, Verdict::Higher);
/// ```
pub fn compare(pairs: &[(f64, f64)]) -> Option<Comparison> {
    let ratios: Vec<f64> = pairs
        .iter()
        .filter(|(_, other)| *other > 0.0)
        .map(|(this, other)| this / other)
        .filter(|ratio| ratio.is_finite())
        .collect();
    let ratio = median(&ratios)?;
    let interval = interval(&ratios);
    let verdict = judge(interval, ratios.len(), INDIFFERENT);
    Some(Comparison {
        ratio,
        interval,
        verdict,
        ratios,
    })
}

/// The same of values by round: rounds that only one of them has are left out.
pub fn compare_rounds(this: &[(u32, f64)], other: &[(u32, f64)]) -> Option<Comparison> {
    let pair = |&(round, value): &(u32, f64)| {
        let same = other.iter().find(|of| of.0 == round)?;
        Some((value, same.1))
    };
    compare(&this.iter().filter_map(pair).collect::<Vec<_>>())
}

/// Compares what was measured at two times: the ratio of the medians, with no
/// rounds in common. `indifferent` is the distance from 1 that is none. `None`
/// where either has no values, or the others' median is 0.
///
/// ```
/// use kvzone_core::statistics::verdict::{Verdict, compare_apart};
/// let (these, others) = ([220.0, 222.0, 221.0, 220.5, 219.0], [100.0, 101.0, 99.0, 100.5, 100.0]);
/// let found = compare_apart(&these, &others, 0.02).unwrap();
/// assert_eq!(found.verdict, Verdict::Higher);
/// ```
pub fn compare_apart(these: &[f64], others: &[f64], indifferent: f64) -> Option<Comparison> {
    let ratio = median(these)? / median(others)?;
    if !ratio.is_finite() {
        return None;
    }
    let interval = interval_of_ratio(these, others);
    let verdict = judge(interval, these.len().min(others.len()), indifferent);
    Some(Comparison {
        ratio,
        interval,
        verdict,
        ratios: Vec::new(),
    })
}

fn judge(interval: Option<Interval>, rounds: usize, indifferent: f64) -> Verdict {
    let Some(interval) = interval.filter(|_| rounds >= ROUNDS_FOR_A_CLAIM) else {
        return Verdict::Unknown;
    };
    let (low, high) = (1.0 - indifferent, 1.0 + indifferent);
    if interval.low > high {
        Verdict::Higher
    } else if interval.high < low {
        Verdict::Lower
    } else if interval.low >= low && interval.high <= high {
        Verdict::Equal
    } else {
        Verdict::Noise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(pairs: &[(f64, f64)]) -> Verdict {
        compare(pairs).unwrap().verdict
    }

    #[test]
    fn a_winner_needs_the_whole_interval_beyond_two_percent() {
        let times =
            |factor: f64| [100.0, 110.0, 90.0, 105.0, 95.0].map(|other| (other * factor, other));
        assert_eq!(verdict(&times(1.03)), Verdict::Higher);
        assert_eq!(verdict(&times(0.97)), Verdict::Lower);
        assert_eq!(verdict(&times(1.01)), Verdict::Equal);
        let mixed = [(2.0, 1.0), (1.0, 2.0), (1.0, 1.0), (3.0, 2.0), (2.0, 3.0)];
        assert_eq!(verdict(&mixed), Verdict::Noise);
    }

    #[test]
    fn ratios_are_taken_inside_rounds_so_drift_of_the_machine_cancels() {
        // Each round is ten times slower than the one before; the ratio holds.
        let drifting = [
            (110.0, 100.0),
            (11.0, 10.0),
            (1.1, 1.0),
            (0.11, 0.1),
            (0.011, 0.01),
        ];
        let found = compare(&drifting).unwrap();
        assert!((found.ratio - 1.1).abs() < 1e-9);
        assert_eq!(found.verdict, Verdict::Higher);
    }

    #[test]
    fn few_rounds_say_nothing_and_none_is_no_comparison() {
        assert_eq!(verdict(&[(5.0, 1.0); 4]), Verdict::Unknown);
        assert_eq!(verdict(&[(5.0, 1.0); 5]), Verdict::Higher);
        assert_eq!(compare(&[]), None);
        assert_eq!(compare(&[(1.0, 0.0)]), None);
    }
}
