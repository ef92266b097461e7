//! Bytes made readable for people.

use std::fmt::Write as _;

/// Sixteen bytes a line: offset, hexadecimal, printable ASCII.
///
/// ```
/// let text = cambium_base::hexdump::hexdump(b"cambium", 0x10);
/// assert!(text.starts_with("00000010  63 61 6d 62 69 75 6d"));
/// assert!(text.trim_end().ends_with("|cambium|"));
/// ```
pub fn hexdump(bytes: &[u8], first_offset: u64) -> String {
    let mut text = String::new();
    for (line, chunk) in bytes.chunks(16).enumerate() {
        let _ = write!(text, "{:08x}  ", first_offset + line as u64 * 16);
        for position in 0..16 {
            match chunk.get(position) {
                Some(byte) => _ = write!(text, "{byte:02x} "),
                None => text.push_str("   "),
            }
        }
        text.push_str(" |");
        text.extend(chunk.iter().map(|&byte| match byte {
            0x20..0x7f => byte as char,
            _ => '.',
        }));
        text.push_str("|\n");
    }
    text
}

/// Lower-case hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes that hexadecimal digits stand for, or `None` where they are not.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if digits.len() % 2 != 0 {
        return None;
    }
    let nibble = |digit: u8| (digit as char).to_digit(16).map(|value| value as u8);
    digits
        .chunks(2)
        .map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?))
        .collect()
}

/// Text where the bytes are printable, else `0x` and hexadecimal digits; long
/// keys are cut, with their length.
pub fn readable(bytes: &[u8]) -> String {
    const SHOWN: usize = 64;
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let mut text = match std::str::from_utf8(shown) {
        Ok(text) if !text.chars().any(char::is_control) => format!("{text:?}"),
        _ => format!("0x{}", to_hex(shown)),
    };
    if bytes.len() > SHOWN {
        let _ = write!(text, "… ({} bytes)", bytes.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_goes_both_ways_and_bad_digits_are_refused() {
        assert_eq!(from_hex(&to_hex(b"\x00\xffa")), Some(b"\x00\xffa".to_vec()));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("zz"), None);
    }
}
