//! Byte counts as people write them.
//!
//! A whole number and a unit: nothing or `B` for bytes, `KiB MiB GiB TiB` for
//! powers of 1,024 (`K M G T` mean the same), `KB MB GB TB` for powers of
//! 1,000.

use cambium_base::{Error, Result};

const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// Reads a byte count.
///
/// ```
/// use kvzone_core::size::parse;
/// assert_eq!(parse("2GiB").unwrap(), 2 << 30);
/// assert_eq!(parse("10 kb").unwrap(), 10_000);
/// assert!(parse("2 apples").is_err());
/// ```
pub fn parse(text: &str) -> Result<u64> {
    let invalid = |why: &str| {
        Error::InvalidArgument(format!(
            "size {text:?}: {why}; write a whole number and a unit, such as 4096, 64MiB, 2GiB"
        ))
    };
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| invalid("no whole number"))?;
    let (_, factor) = UNITS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))
        .ok_or_else(|| invalid("no such unit"))?;
    number
        .checked_mul(*factor)
        .ok_or_else(|| invalid("too large"))
}

pub fn display(bytes: u64) -> String {
    let units = [
        (1_u64 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    for (factor, unit) in units {
        if bytes >= factor {
            let number = bytes as f64 / factor as f64;
            return if bytes % factor == 0 {
                format!("{number:.0} {unit}")
            } else {
                format!("{number:.1} {unit}")
            };
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_every_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("4KiB", 4096),
            ("4k", 4096),
            ("3MB", 3_000_000),
            (" 2 GiB ", 2 << 30),
        ] {
            assert_eq!(parse(text).unwrap(), bytes, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "MiB", "-1", "1.5GiB", "7XB", "99999999TiB"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("64MiB"), "{text}: {error}");
        }
    }

    #[test]
    fn sizes_are_written_with_a_unit() {
        assert_eq!(display(512), "512 B");
        assert_eq!(display(4096), "4 KiB");
        assert_eq!(display(1536), "1.5 KiB");
        assert_eq!(display(2 << 30), "2 GiB");
    }
}
