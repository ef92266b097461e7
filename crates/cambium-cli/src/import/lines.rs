//! JSON lines and tab-separated lines as sources of entries.
//!
//! A line of JSON may name its namespace (`"namespace":…`); tabs have none.
//! Blank lines are passed over; the last line needs no line end. In a store
//! with integer keys, keys are decimal: a number or a string in JSON.

use std::io::{BufRead, Read};
use std::sync::Arc;

use cambium::hexdump::from_hex;
use cambium::{KeyKind, UnixMillis, limits};
use serde::Deserialize;

use crate::failure::Failure;
use crate::import::position::Position;
use crate::import::source::{Input, Item, Source, elsewhere};
use crate::notation::{key_of_text, unescape};
use crate::progress::Meter;

/// The longest line read: the largest entry, every byte in two digits. It
/// bounds the memory that a file without line ends takes.
const MAX_LINE_BYTES: u64 = 2 * (limits::MAX_VALUE_BYTES + limits::MAX_KEY_BYTES) as u64 + 1024;

/// How a line is an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// `{"key":…,"value":…}`.
    Json,
    /// Key, tab, value.
    Tabs,
}

/// A file of lines.
pub struct LineSource {
    kind: LineKind,
    input: Input,
    keys: KeyKind,
    /// Of the last entry that named one: they mostly come in runs.
    namespace: Option<Arc<str>>,
    /// Bytes and lines behind the last entry answered, blank lines included.
    offset: u64,
    line: u64,
    buffer: Vec<u8>,
}

impl LineSource {
    /// Reads entries of a store's kind of keys.
    pub fn new(kind: LineKind, input: Input, keys: KeyKind) -> Self {
        LineSource {
            kind,
            input,
            keys,
            namespace: None,
            offset: 0,
            line: 0,
            buffer: Vec::new(),
        }
    }

    fn broken(&self, what: &str) -> Failure {
        Failure::failed(format!(
            "{}, line {}: {what}",
            self.input.name(),
            self.line + 1
        ))
    }

    /// Reads a line into the buffer, without its end; the bytes it took, 0 at
    /// the end of the input.
    fn read_line(&mut self) -> Result<u64, Failure> {
        self.buffer.clear();
        let read = (&mut self.input)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut self.buffer);
        let taken = read.map_err(|error| self.broken(&error.to_string()))? as u64;
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        } else if taken == MAX_LINE_BYTES {
            return Err(self.broken(
                "longer than the largest entry can be; expected an entry, then a line end",
            ));
        }
        Ok(taken)
    }

    fn parse(&mut self) -> Result<Item, Failure> {
        let item = match self.kind {
            LineKind::Json => parse_json(&self.buffer, self.keys),
            LineKind::Tabs => parse_tabs(&self.buffer, self.keys),
        };
        let mut item = item.map_err(|what| self.broken(&what))?;
        if item.namespace.is_some() {
            if item.namespace != self.namespace {
                self.namespace = item.namespace;
            }
            item.namespace = self.namespace.clone();
        }
        let within = limits::check_key(&item.key).and(limits::check_value(&item.value));
        within.map_err(|error| self.broken(&error.to_string()))?;
        Ok(item)
    }
}

impl Source for LineSource {
    fn next_item(&mut self, _: &Meter) -> Result<Option<Item>, Failure> {
        loop {
            let taken = self.read_line()?;
            if taken == 0 {
                return Ok(None);
            }
            let blank = self.buffer.is_empty() || self.buffer == b"\r";
            // The place moves only behind lines that were understood.
            let item = if blank { None } else { Some(self.parse()?) };
            self.offset += taken;
            self.line += 1;
            if item.is_some() {
                return Ok(item);
            }
        }
    }

    fn position(&self) -> Option<Position> {
        Some(Position::Line {
            offset: self.offset,
            line: self.line,
        })
    }

    fn resume(&mut self, position: &Position) -> Result<(), Failure> {
        let &Position::Line { offset, line } = position else {
            return Err(elsewhere());
        };
        (self.offset, self.line) = (offset, line);
        self.input.move_to(offset, 0)
    }
}

/// A line as JSON; fields beyond these are refused rather than dropped.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonEntry {
    namespace: Option<String>,
    key: Option<JsonKey>,
    key_hex: Option<String>,
    value: Option<String>,
    value_hex: Option<String>,
    expires_at: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum JsonKey {
    Number(u64),
    Text(String),
}

fn parse_json(line: &[u8], keys: KeyKind) -> Result<Item, String> {
    let entry: JsonEntry = serde_json::from_slice(line).map_err(|error| {
        // Its own line number is always 1: ours stands before it.
        let text = error.to_string();
        let (what, _) = text.split_once(" at line ").unwrap_or((&text, ""));
        format!(
            "{what} at column {}; expected {{\"key\": text, \"value\": text}}, or key_hex and value_hex with hexadecimal digits",
            error.column()
        )
    })?;
    let key = match (entry.key, entry.key_hex) {
        (Some(JsonKey::Number(number)), None) if keys == KeyKind::Integer => {
            number.to_be_bytes().to_vec()
        }
        (Some(JsonKey::Number(_)), None) => {
            return Err(
                "the key is a number; expected a string, this store's keys are byte strings"
                    .to_string(),
            );
        }
        (Some(JsonKey::Text(text)), None) => key_of_text(text.into_bytes(), keys)?,
        (None, Some(digits)) => hex_field("key_hex", &digits)?,
        _ => return Err("expected one of key and key_hex".to_string()),
    };
    if keys == KeyKind::Integer && key.len() != 8 {
        return Err("key_hex: this store has integer keys: expected 16 digits".to_string());
    }
    let value = match (entry.value, entry.value_hex) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(digits)) => hex_field("value_hex", &digits)?,
        _ => return Err("expected one of value and value_hex".to_string()),
    };
    Ok(Item {
        namespace: entry.namespace.map(Into::into),
        key,
        value,
        expires: entry.expires_at.map(UnixMillis),
    })
}

fn hex_field(name: &str, digits: &str) -> Result<Vec<u8>, String> {
    from_hex(digits)
        .ok_or_else(|| format!("{name}: expected hexadecimal digits, two for each byte"))
}

fn parse_tabs(line: &[u8], keys: KeyKind) -> Result<Item, String> {
    let tab = line
        .iter()
        .position(|&byte| byte == b'\t')
        .ok_or("no tab; expected KEY TAB VALUE")?;
    let (key, value) = (&line[..tab], &line[tab + 1..]);
    if value.contains(&b'\t') {
        return Err("a second tab; expected KEY TAB VALUE, with \\t for tabs in them".to_string());
    }
    Ok(Item {
        namespace: None,
        key: key_of_text(unescape(key)?, keys)?,
        value: unescape(value)?,
        expires: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(key: &[u8], value: &[u8]) -> Result<Item, String> {
        Ok(Item {
            namespace: None,
            key: key.to_vec(),
            value: value.to_vec(),
            expires: None,
        })
    }

    #[test]
    fn json_fields_are_text_or_hexadecimal_digits() {
        let parse = |line: &str| parse_json(line.as_bytes(), KeyKind::Bytes);
        assert_eq!(
            parse(r#"{"key":"a\u0000","value":"b"}"#),
            item(b"a\0", b"b")
        );
        assert_eq!(
            parse(r#"{"value_hex":"ff","key_hex":""}"#),
            item(b"", b"\xff")
        );
        for line in [
            r#"{"key":"a"}"#,
            r#"{"key":"a","key_hex":"61","value":""}"#,
            r#"{"key":"a","value":5}"#,
            r#"{"key":5,"value":""}"#,
            r#"{"key_hex":"6","value":""}"#,
            r#"{"key":"a","value":"b","more":1}"#,
            r#"{"key":"a","value":"b"} x"#,
            "[]",
            "{",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn integer_keys_are_numbers_or_decimal_strings() {
        let parse = |line: &str| parse_json(line.as_bytes(), KeyKind::Integer);
        let seven = 7u64.to_be_bytes();
        assert_eq!(parse(r#"{"key":7,"value":""}"#), item(&seven, b""));
        assert_eq!(parse(r#"{"key":"7","value":""}"#), item(&seven, b""));
        for key in ["-7", "7.5", "\"x\"", "18446744073709551616"] {
            let line = format!("{{\"key\":{key},\"value\":\"\"}}");
            assert!(parse(&line).is_err(), "{line}");
        }
        assert!(parse(r#"{"key_hex":"07","value":""}"#).is_err());
    }

    #[test]
    fn a_tabbed_line_has_one_tab_and_known_escapes() {
        let parse = |line: &[u8]| parse_tabs(line, KeyKind::Bytes);
        assert_eq!(parse(b"a\\tb\tc\\n\xff"), item(b"a\tb", b"c\n\xff"));
        assert_eq!(parse(b"\t"), item(b"", b""));
        for line in [&b"a"[..], b"a\tb\tc", b"a\t\\q"] {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }
}
