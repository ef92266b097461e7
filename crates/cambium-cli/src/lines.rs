//! Entries and changes as lines: how `scan`, `export` and `changes` write them.

use std::io::{self, Write};

use cambium::hexdump::to_hex;
use cambium::{Change, ChangeBatch, KeyKind, Operation, UnixMillis};

use crate::notation::{Reader, is_hidden, key_number, write_escaped};

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

/// Writes entries of a kind of keys, for a reader.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    pub format: Format,
    pub keys: KeyKind,
    pub reader: Reader,
}

impl Lines {
    /// Writes an entry as one line; without a value, its key alone. JSON alone shows
    /// the namespace, and when the entry expires.
    pub fn write(
        &self,
        to: &mut dyn Write,
        namespace: &str,
        key: &[u8],
        value: Option<&[u8]>,
        expires: Option<UnixMillis>,
    ) -> io::Result<()> {
        if self.format == Format::Json {
            to.write_all(b"{")?;
            self.write_fields(to, (namespace, key), value, expires)?;
            return to.write_all(b"}\n");
        }
        self.write_key(to, key)?;
        if let Some(value) = value {
            to.write_all(b"\t")?;
            self.write_bytes(to, value)?;
        }
        to.write_all(b"\n")
    }

    fn write_bytes(&self, to: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
        match self.format {
            Format::Hex => to.write_all(to_hex(bytes).as_bytes()),
            _ => write_escaped(to, self.reader, bytes),
        }
    }

    fn number(&self, key: &[u8]) -> Option<u64> {
        match self.keys {
            KeyKind::Integer => key_number(key),
            KeyKind::Bytes => None,
        }
    }

    fn write_key(&self, to: &mut dyn Write, key: &[u8]) -> io::Result<()> {
        match self.number(key) {
            Some(number) => write!(to, "{number}"),
            None => self.write_bytes(to, key),
        }
    }

    /// The fields of an entry's JSON object.
    fn write_fields(
        &self,
        to: &mut dyn Write,
        (namespace, key): (&str, &[u8]),
        value: Option<&[u8]>,
        expires: Option<UnixMillis>,
    ) -> io::Result<()> {
        if !namespace.is_empty() {
            self.write_field(to, "namespace", namespace.as_bytes())?;
            to.write_all(b",")?;
        }
        self.write_key_field(to, "key", key)?;
        if let Some(value) = value {
            to.write_all(b",")?;
            self.write_field(to, "value", value)?;
        }
        if let Some(UnixMillis(moment)) = expires {
            write!(to, ",\"expires_at\":{moment}")?;
        }
        Ok(())
    }

    fn write_key_field(&self, to: &mut dyn Write, name: &str, key: &[u8]) -> io::Result<()> {
        match self.number(key) {
            Some(number) => write!(to, "\"{name}\":{number}"),
            None => self.write_field(to, name, key),
        }
    }

    /// Writes a committed batch: one JSON object, or one line of text for each change.
    pub fn write_batch(&self, to: &mut dyn Write, batch: &ChangeBatch) -> io::Result<()> {
        if self.format != Format::Json {
            let mut changes = batch.changes.iter();
            return changes.try_for_each(|change| self.write_change_line(to, batch, change));
        }
        let ChangeBatch {
            first,
            last,
            synced,
            changes,
        } = batch;
        write!(
            to,
            "{{\"first\":{first},\"last\":{last},\"synced\":{synced},\"changes\":["
        )?;
        for (place, change) in changes.iter().enumerate() {
            to.write_all(if place > 0 { b"," } else { b"" })?;
            self.write_change(to, change)?;
        }
        to.write_all(b"]}\n")
    }

    fn write_change(&self, to: &mut dyn Write, change: &Change) -> io::Result<()> {
        let namespace = change.namespace.as_deref().unwrap_or_default();
        let operation = operation_name(&change.operation);
        write!(to, "{{\"operation\":\"{operation}\",")?;
        match &change.operation {
            Operation::Put { key, value } => {
                self.write_fields(to, (namespace, key), Some(value), change.expires)?;
            }
            Operation::Delete { key } => self.write_fields(to, (namespace, key), None, None)?,
            Operation::DeleteRange { range } => {
                self.write_field(to, "namespace", namespace.as_bytes())?;
                for (name, edge) in [("from", &range.from), ("to", &range.to)] {
                    if let Some(key) = edge {
                        to.write_all(b",")?;
                        self.write_key_field(to, name, key)?;
                    }
                }
            }
        }
        to.write_all(b"}")
    }

    fn write_change_line(
        &self,
        to: &mut dyn Write,
        batch: &ChangeBatch,
        change: &Change,
    ) -> io::Result<()> {
        write!(
            to,
            "{}\t{}\t",
            batch.last,
            operation_name(&change.operation)
        )?;
        self.write_bytes(
            to,
            change.namespace.as_deref().unwrap_or_default().as_bytes(),
        )?;
        to.write_all(b"\t")?;
        match &change.operation {
            Operation::Put { key, value } => {
                self.write_key(to, key)?;
                to.write_all(b"\t")?;
                self.write_bytes(to, value)?;
            }
            Operation::Delete { key } => self.write_key(to, key)?,
            Operation::DeleteRange { range } => {
                for (before, edge) in [("", &range.from), ("\t", &range.to)] {
                    to.write_all(before.as_bytes())?;
                    if let Some(key) = edge {
                        self.write_key(to, key)?;
                    }
                }
            }
        }
        to.write_all(b"\n")
    }

    fn write_field(&self, to: &mut dyn Write, name: &str, bytes: &[u8]) -> io::Result<()> {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return write!(to, "\"{name}_hex\":\"{}\"", to_hex(bytes));
        };
        write!(to, "\"{name}\":")?;
        let hides = |character| is_hidden(character) || character == '\x7f';
        if self.reader == Reader::Program || !text.contains(hides) {
            return serde_json::to_writer(to, text).map_err(io::Error::from);
        }
        for character in serde_json::to_string(text)?.chars() {
            let mut units = [0; 2];
            match hides(character) {
                true => character
                    .encode_utf16(&mut units)
                    .iter()
                    .try_for_each(|unit| write!(to, "\\u{unit:04x}"))?,
                false => write!(to, "{character}")?,
            }
        }
        Ok(())
    }
}

fn operation_name(operation: &Operation) -> &'static str {
    match operation {
        Operation::Put { .. } => "put",
        Operation::Delete { .. } => "delete",
        Operation::DeleteRange { .. } => "delete_range",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(reader: Reader, keys: KeyKind, key: &[u8], value: &[u8]) -> String {
        let format = Format::Json;
        let lines = Lines {
            format,
            keys,
            reader,
        };
        let mut text = Vec::new();
        lines.write(&mut text, "", key, Some(value), None).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn json_has_text_where_it_is_utf8_and_hexadecimal_digits_elsewhere() {
        let text = line(Reader::Program, KeyKind::Bytes, b"a\"b", b"\xff\x00");
        assert_eq!(text, "{\"key\":\"a\\\"b\",\"value_hex\":\"ff00\"}\n");
        let number = u64::MAX.to_be_bytes();
        let text = line(Reader::Program, KeyKind::Integer, &number, b"");
        assert_eq!(text, "{\"key\":18446744073709551615,\"value\":\"\"}\n");
    }

    #[test]
    fn json_for_a_person_escapes_what_a_terminal_obeys() {
        let value = "é\u{9b}\u{7f}\u{e0041}";
        let text = line(Reader::Person, KeyKind::Bytes, b"k", value.as_bytes());
        assert_eq!(
            text,
            "{\"key\":\"k\",\"value\":\"é\\u009b\\u007f\\udb40\\udc41\"}\n"
        );
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["value"], value);
    }
}
