//! Figures as people read them: grouped digits, the unit that fits.

use crate::size;

/// A count or rate without fraction, its digits in groups of three.
///
/// ```
/// use kvzone_core::report::text::grouped;
/// assert_eq!(grouped(1_234_567.4), "1,234,567");
/// assert_eq!(grouped(999.0), "999");
/// ```
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.max(0.0));
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Nanoseconds, with the unit that leaves one to three digits before the point.
///
/// ```
/// use kvzone_core::report::text::duration;
/// assert_eq!(duration(850.0), "850 ns");
/// assert_eq!(duration(12_345.0), "12.3 µs");
/// assert_eq!(duration(2_500_000_000.0), "2.50 s");
/// ```
pub fn duration(nanoseconds: f64) -> String {
    for (unit, factor) in [("s", 1e9), ("ms", 1e6), ("µs", 1e3)] {
        if nanoseconds >= factor {
            return format!("{} {unit}", three_digits(nanoseconds / factor));
        }
    }
    format!("{nanoseconds:.0} ns")
}

/// A number below a few thousand with three digits that mean something.
pub fn three_digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Bytes with a binary unit.
pub fn bytes(value: f64) -> String {
    size::display(value.max(0.0).round() as u64)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Count,
    Number,
    Bytes,
    Nanoseconds,
}

impl Unit {
    pub fn text(self, value: f64) -> String {
        match self {
            Unit::Count => grouped(value),
            Unit::Number => three_digits(value),
            Unit::Bytes => bytes(value),
            Unit::Nanoseconds => duration(value),
        }
    }
}

/// A figure, or a dash where there is none.
pub fn or_dash(value: Option<f64>, write: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_string(), write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_at_the_edges_of_units() {
        assert_eq!(grouped(0.0), "0");
        assert_eq!(grouped(1000.0), "1,000");
        assert_eq!(duration(999.0), "999 ns");
        assert_eq!(duration(1000.0), "1.00 µs");
        assert_eq!(duration(99_960.0), "100 µs");
        assert_eq!(three_digits(9.999), "10.0");
        assert_eq!(bytes(1536.0), "1.5 KiB");
        assert_eq!(or_dash(None, grouped), "-");
        assert_eq!(or_dash(Some(5.0), grouped), "5");
    }
}
