//! Keys and values as text.
//!
//! | notation | keys | values |
//! |---|---|---|
//! | raw (command line) | bytes as they are | bytes as they are |
//! | hexadecimal (`--hex`) | two digits a byte | two digits a byte |
//! | text (`scan`, `tsv:`) | escaped | escaped |
//! | JSON | `key` where it is UTF-8, else `key_hex` | `value` or `value_hex` |
//!
//! An entry of another namespace than the default one has `namespace` before the
//! key in JSON; other notations have no place for it.
//!
//! Keys of an integer table are decimal everywhere (a number in JSON), and 8
//! bytes, big-endian, in the store. The escapes of the text notation are `\t`,
//! `\n`, `\r`, `\\`, and `\x` with two digits for other control characters, so
//! that a line is always one entry, a tab always ends the key, and no key can
//! command a terminal; all other bytes stand for themselves.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use cambium::hexdump::{from_hex, readable, to_hex};
use cambium::{KeyKind, limits};

use crate::failure::Failure;

/// Reads a key given on the command line.
pub fn key_argument(keys: KeyKind, hex: bool, text: &OsStr) -> Result<Vec<u8>, Failure> {
    match keys {
        KeyKind::Integer => integer_key(text.as_bytes()).map_err(|expected| {
            Failure::usage(format!("key {}: {expected}", readable(text.as_bytes())))
        }),
        KeyKind::Bytes => {
            let key = bytes_argument(hex, "key", text)?;
            limits::check_key(&key)?;
            Ok(key)
        }
    }
}

/// Reads a value (or a key of bytes) given on the command line.
pub fn bytes_argument(hex: bool, what: &str, text: &OsStr) -> Result<Vec<u8>, Failure> {
    if !hex {
        return Ok(text.as_bytes().to_vec());
    }
    text.to_str().and_then(from_hex).ok_or_else(|| {
        Failure::usage(format!(
            "{what} {}: with --hex expected hexadecimal digits, two for each byte",
            readable(text.as_bytes())
        ))
    })
}

/// A decimal key as the store has it; otherwise what was expected.
pub fn integer_key(text: &[u8]) -> Result<Vec<u8>, &'static str> {
    let number: Option<u64> = std::str::from_utf8(text)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok());
    number
        .map(|number| number.to_be_bytes().to_vec())
        .ok_or("this store has integer keys: expected a decimal number, 0 to 18446744073709551615")
}

/// The number that a key of an integer table is.
pub fn key_number(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.try_into().ok()?))
}

/// A key for messages.
pub fn shown_key(keys: KeyKind, key: &[u8]) -> String {
    match (keys, key_number(key)) {
        (KeyKind::Integer, Some(number)) => number.to_string(),
        _ => readable(key),
    }
}

/// Writes bytes in the text notation.
pub fn write_escaped(to: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    let mut plain = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= b' ' && byte != b'\\' && byte != 0x7f {
            continue;
        }
        to.write_all(&bytes[plain..at])?;
        plain = at + 1;
        match byte {
            b'\t' => to.write_all(b"\\t")?,
            b'\n' => to.write_all(b"\\n")?,
            b'\r' => to.write_all(b"\\r")?,
            b'\\' => to.write_all(b"\\\\")?,
            other => write!(to, "\\x{other:02x}")?,
        }
    }
    to.write_all(&bytes[plain..])
}

/// Reads the text notation; otherwise what was expected.
pub fn unescape(text: &[u8]) -> Result<Vec<u8>, &'static str> {
    const EXPECTED: &str = "expected \\t, \\n, \\r, \\\\ or \\x and two digits behind a backslash";
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        bytes.extend_from_slice(&rest[..at]);
        let (byte, taken) = match rest.get(at + 1) {
            Some(b't') => (b'\t', 2),
            Some(b'n') => (b'\n', 2),
            Some(b'r') => (b'\r', 2),
            Some(b'\\') => (b'\\', 2),
            Some(b'x') => {
                let digits = rest.get(at + 2..at + 4).ok_or(EXPECTED)?;
                let digits = std::str::from_utf8(digits).ok();
                let byte = digits.and_then(from_hex).ok_or(EXPECTED)?;
                (byte[0], 4)
            }
            _ => return Err(EXPECTED),
        };
        bytes.push(byte);
        rest = &rest[at + taken..];
    }
    bytes.extend_from_slice(rest);
    Ok(bytes)
}

/// How `scan` and `export` write entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Key, tab, value, line end, escaped.
    Text,
    /// One JSON object a line.
    Json,
    /// Key, tab, value, line end, in hexadecimal digits.
    Hex,
}

/// Writes an entry as one line; without a value, its key alone.
pub fn write_line(
    to: &mut dyn Write,
    format: Format,
    keys: KeyKind,
    key: &[u8],
    value: Option<&[u8]>,
) -> io::Result<()> {
    write_line_of(to, format, keys, "", key, value)
}

/// The same for an entry of a namespace, which JSON alone shows.
pub fn write_line_of(
    to: &mut dyn Write,
    format: Format,
    keys: KeyKind,
    namespace: &str,
    key: &[u8],
    value: Option<&[u8]>,
) -> io::Result<()> {
    let number = match keys {
        KeyKind::Integer => key_number(key),
        KeyKind::Bytes => None,
    };
    match format {
        Format::Json => return write_json_line(to, namespace, number, key, value),
        Format::Text => match number {
            Some(number) => write!(to, "{number}")?,
            None => write_escaped(to, key)?,
        },
        Format::Hex => match number {
            Some(number) => write!(to, "{number}")?,
            None => to.write_all(to_hex(key).as_bytes())?,
        },
    }
    if let Some(value) = value {
        to.write_all(b"\t")?;
        match format {
            Format::Hex => to.write_all(to_hex(value).as_bytes())?,
            _ => write_escaped(to, value)?,
        }
    }
    to.write_all(b"\n")
}

fn write_json_line(
    to: &mut dyn Write,
    namespace: &str,
    number: Option<u64>,
    key: &[u8],
    value: Option<&[u8]>,
) -> io::Result<()> {
    to.write_all(b"{")?;
    if !namespace.is_empty() {
        write_json_field(to, "namespace", namespace.as_bytes())?;
        to.write_all(b",")?;
    }
    match number {
        Some(number) => write!(to, "\"key\":{number}")?,
        None => write_json_field(to, "key", key)?,
    }
    if let Some(value) = value {
        to.write_all(b",")?;
        write_json_field(to, "value", value)?;
    }
    to.write_all(b"}\n")
}

fn write_json_field(to: &mut dyn Write, name: &str, bytes: &[u8]) -> io::Result<()> {
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            write!(to, "\"{name}\":")?;
            serde_json::to_writer(&mut *to, text).map_err(io::Error::from)
        }
        Err(_) => write!(to, "\"{name}_hex\":\"{}\"", to_hex(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(format: Format, keys: KeyKind, key: &[u8], value: &[u8]) -> String {
        let mut text = Vec::new();
        write_line(&mut text, format, keys, key, Some(value)).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn every_byte_comes_back_through_the_text_notation() {
        let all: Vec<u8> = (0..=255).chain(*b"\\x41\\\\").collect();
        let mut text = Vec::new();
        write_escaped(&mut text, &all).unwrap();
        assert!(!text.iter().any(|&byte| byte < b' ' || byte == 0x7f));
        assert_eq!(unescape(&text).unwrap(), all);
    }

    #[test]
    fn broken_escapes_are_refused() {
        for text in [&b"\\"[..], b"\\q", b"\\x4", b"\\xzz", b"a\\"] {
            assert!(unescape(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn json_has_text_where_it_is_utf8_and_hexadecimal_digits_elsewhere() {
        let text = line(Format::Json, KeyKind::Bytes, b"a\"b", b"\xff\x00");
        assert_eq!(text, "{\"key\":\"a\\\"b\",\"value_hex\":\"ff00\"}\n");
        let number = u64::MAX.to_be_bytes();
        let text = line(Format::Json, KeyKind::Integer, &number, b"");
        assert_eq!(text, "{\"key\":18446744073709551615,\"value\":\"\"}\n");
    }

    #[test]
    fn integer_keys_are_digits_and_nothing_else() {
        assert_eq!(integer_key(b"7").unwrap(), 7u64.to_be_bytes());
        for text in [&b""[..], b"+7", b"-1", b" 7", b"18446744073709551616", b"x"] {
            assert!(integer_key(text).is_err(), "{text:?}");
        }
    }
}
