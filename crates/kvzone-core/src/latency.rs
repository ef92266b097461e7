//! Histograms of durations in nanoseconds.
//!
//! They keep three significant digits (`hdrhistogram`), so a percentile is right to a
//! thousandth, in memory that does not grow with the samples.

use hdrhistogram::Histogram;

use crate::error::{Error, Result};
use crate::record::LatencySummary;

/// The longest that is told apart: an hour.
pub(crate) const LONGEST: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST, DIGITS)
        .map_err(|error| Error::Usage(format!("histogram: {error}")))
}

/// Sums a histogram up; none if it is empty.
pub(crate) fn summary(histogram: &Histogram<u64>) -> Option<LatencySummary> {
    (!histogram.is_empty()).then(|| LatencySummary {
        mean: histogram.mean(),
        stdev: histogram.stdev(),
        p50: histogram.value_at_quantile(0.5),
        p90: histogram.value_at_quantile(0.9),
        p99: histogram.value_at_quantile(0.99),
        p999: histogram.value_at_quantile(0.999),
        max: histogram.max(),
    })
}
