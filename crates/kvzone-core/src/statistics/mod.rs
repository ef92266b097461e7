//! What may be said of measurements, and what may not.
//!
//! The unit is the run, not the operation: a million operations of one process
//! share one layout of memory, one state of the disk and one neighbour. So
//! figures are medians over rounds, two stores are compared by the ratios
//! inside each round, and a ratio is believed as far as its interval says.
//!
//! | module | what it holds |
//! |---|---|
//! | [`interval`] | in which interval a median lies |
//! | [`rounds`] | in which order stores take turns |
//! | [`verdict`] | whether a ratio names a winner |
//! | `draw` | the small random generator of the rounds |

pub mod interval;
pub mod rounds;
pub mod verdict;

/// The middle value, or the mean of the two middle ones; `None` of nothing.
/// Values that are no numbers are left out.
///
/// ```
/// use kvzone_core::statistics::median;
/// assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
/// assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
/// assert_eq!(median(&[]), None);
/// ```
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(sorted[middle - 1], upper))
}

/// How far values lie apart: largest minus smallest, by the median. `None`
/// for fewer than two, and where the median is 0.
pub fn relative_spread(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    if values.len() < 2 || middle == 0.0 {
        return None;
    }
    let largest = values.iter().copied().fold(f64::MIN, f64::max);
    let smallest = values.iter().copied().fold(f64::MAX, f64::min);
    Some((largest - smallest) / middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_ignore_order_and_what_is_no_number() {
        assert_eq!(median(&[5.0, f64::NAN, 1.0]), Some(3.0));
        assert_eq!(median(&[f64::NAN]), None);
        assert_eq!(median(&[-1.0, 7.0, 2.0]), Some(2.0));
    }

    #[test]
    fn spread_is_relative_to_the_median() {
        assert_eq!(relative_spread(&[90.0, 100.0, 120.0]), Some(0.3));
        assert_eq!(relative_spread(&[1.0]), None);
        assert_eq!(relative_spread(&[0.0, 0.0]), None);
    }
}
