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
//! command a terminal; all other bytes stand for themselves. On a terminal bytes
//! that are no UTF-8, and characters that do not show, become `\x` and two digits as
//! well; that reads back the same.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use cambium::hexdump::{from_hex, readable};
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

/// A key that is text, as the store has it: decimal where keys are integers;
/// otherwise what was expected.
pub fn key_of_text(text: Vec<u8>, keys: KeyKind) -> Result<Vec<u8>, String> {
    match keys {
        KeyKind::Bytes => Ok(text),
        KeyKind::Integer => integer_key(&text).map_err(|expected| format!("key: {expected}")),
    }
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

/// Who reads what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A file, or a program behind a pipe: only what the notation needs is escaped.
    Program,
    /// A person at a terminal: what is not printable is escaped as well.
    Person,
}

/// Writes bytes in the text notation.
pub fn write_escaped(to: &mut dyn Write, reader: Reader, bytes: &[u8]) -> io::Result<()> {
    if reader == Reader::Program {
        return write_with_escapes(to, bytes);
    }
    for chunk in bytes.utf8_chunks() {
        let text = chunk.valid();
        let mut plain = 0;
        for (at, hidden) in text.match_indices(is_hidden) {
            write_with_escapes(to, &text.as_bytes()[plain..at])?;
            plain = at + hidden.len();
            write_digits(to, hidden.as_bytes())?;
        }
        write_with_escapes(to, &text.as_bytes()[plain..])?;
        write_digits(to, chunk.invalid())?;
    }
    Ok(())
}

fn write_with_escapes(to: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
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
            other => write_digits(to, &[other])?,
        }
    }
    to.write_all(&bytes[plain..])
}

fn write_digits(to: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    bytes
        .iter()
        .try_for_each(|byte| write!(to, "\\x{byte:02x}"))
}

/// Characters beyond ASCII that a terminal obeys, or does not show: controls, marks
/// of direction, and what has no width.
pub fn is_hidden(character: char) -> bool {
    let not_ascii = !character.is_ascii();
    not_ascii && (character.is_control() || is_invisible(character))
}

fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// True for text of lines that a terminal shows as it is.
pub fn is_text(bytes: &[u8]) -> bool {
    let shows = |character: char| {
        matches!(character, '\t' | '\n') || !(character.is_control() || is_hidden(character))
    };
    std::str::from_utf8(bytes).is_ok_and(|text| text.chars().all(shows))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back_through_the_text_notation() {
        let all: Vec<u8> = (0..=255).chain(*b"\\x41\\\\").collect();
        let mut text = Vec::new();
        write_escaped(&mut text, Reader::Program, &all).unwrap();
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
    fn integer_keys_are_digits_and_nothing_else() {
        assert_eq!(integer_key(b"7").unwrap(), 7u64.to_be_bytes());
        for text in [&b""[..], b"+7", b"-1", b" 7", b"18446744073709551616", b"x"] {
            assert!(integer_key(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_person_sees_no_control_and_every_byte_comes_back() {
        let mut all: Vec<u8> = (0..=255).collect();
        all.extend("ω \u{9b}31m\u{202e}abc\u{e0041}é".bytes());
        let mut text = Vec::new();
        write_escaped(&mut text, Reader::Person, &all).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            !text
                .chars()
                .any(|character| character.is_control() || is_hidden(character))
        );
        assert!(
            text.contains("ω \\xc2\\x9b31m") && text.ends_with('é'),
            "{text}"
        );
        assert_eq!(unescape(text.as_bytes()).unwrap(), all);
    }

    #[test]
    fn text_has_lines_and_no_commands() {
        assert!(is_text("one\n\ttwo ω\n".as_bytes()) && is_text(b""));
        for value in [
            &b"\xff"[..],
            b"\x1b[31m",
            b"a\rb",
            "\u{9b}".as_bytes(),
            b"\0",
        ] {
            assert!(!is_text(value), "{value:?}");
        }
    }
}
