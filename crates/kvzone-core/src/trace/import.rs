//! Traces out of text that other tools write, a line an operation.
//!
//! | format | a line | from |
//! |---|---|---|
//! | `csv` | `OPERATION,KEY[,BYTES[,NANOSECONDS[,THREAD]]]` | anything: operations are `load`, `get`, `put`, `delete` and `scan`; bytes those of the value (put, load), of what came (get; `-1` for nothing), or the entries asked for (scan) |
//! | `rocksdb` | `KEY TYPE COLUMN-FAMILY BYTES MICROSECONDS`, the key in hexadecimal | RocksDB's `trace_analyzer --convert_to_human_readable_trace` |
//! | `twitter` | `SECONDS,KEY,KEY BYTES,VALUE BYTES,CLIENT,OPERATION,TTL` | Twitter's published cache traces (Yang et al., OSDI 2020) |
//!
//! Keys of `csv` are the bytes between the commas, or, written `0x...`, hexadecimal. A
//! first line of `csv` that begins with `operation,` is its heading. What a format does not say is
//! unknown: a get of RocksDB's is then taken to have found a value of the mean
//! size. RocksDB's merges count as puts, deletions of ranges are refused, and a
//! seek is a scan of one entry, since the trace does not say how far it went.
//! Twitter's operations on one key become gets, puts and deletions; a get with a
//! value size found it.

use std::path::Path;

use cambium_io::{Environment, OpenOptions};

use super::{Answer, TraceWriter, Traced};
use crate::error::{Error, Result};

crate::named! {
    pub enum TextFormat {
        /// Our own.
        Csv = "csv",
        /// The output of `trace_analyzer`.
        RocksDb = "rocksdb",
        /// The form of the published cache traces.
        Twitter = "twitter",
    }
}

const READ_BYTES: usize = 1 << 20;

/// Makes a trace of a text; answers how many operations it has.
///
/// # Errors
/// A usage error that names file and line.
pub fn import(from: &Path, format: TextFormat, to: &Path) -> Result<u64> {
    let file = Environment::real()
        .file_system
        .open(from, OpenOptions::READ)?;
    let mut writer = TraceWriter::create(to)?;
    let mut text: Vec<u8> = Vec::new();
    let (mut offset, mut number) = (0, 0_u64);
    loop {
        let more = file.read_vec_at(offset, READ_BYTES)?;
        let is_last = more.len() < READ_BYTES;
        offset += more.len() as u64;
        text.extend_from_slice(&more);
        let end = match text.iter().rposition(|&byte| byte == b'\n') {
            _ if is_last => text.len(),
            Some(at) => at + 1,
            None => 0,
        };
        for line in text[..end].split(|&byte| byte == b'\n') {
            number += 1;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || number == 1 && line.starts_with(b"operation,") {
                continue;
            }
            add(&mut writer, format, line).map_err(|what| {
                Error::Usage(format!("{}: line {number}: {what}", from.display()))
            })?;
        }
        // The line end that closes the last whole line begins no other.
        number -= u64::from(text[..end].ends_with(b"\n"));
        text.drain(..end);
        if is_last {
            break;
        }
    }
    writer.finish()?;
    Ok(writer.count())
}

type Refused = std::result::Result<(), String>;

fn add(writer: &mut TraceWriter, format: TextFormat, line: &[u8]) -> Refused {
    match format {
        TextFormat::Csv => add_csv(writer, line),
        TextFormat::RocksDb => add_rocksdb(writer, line),
        TextFormat::Twitter => add_twitter(writer, line),
    }
}

fn number(field: &[u8], what: &str) -> std::result::Result<u64, String> {
    let text = std::str::from_utf8(field).unwrap_or("").trim();
    text.parse()
        .map_err(|_| format!("{text:?} is no number of {what}"))
}

fn hexadecimal(field: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = field.chunks(2).map(pair).collect();
    bytes.ok_or_else(|| {
        let text = String::from_utf8_lossy(field);
        format!("{text:?} is no key in hexadecimal digits")
    })
}

fn add_csv(writer: &mut TraceWriter, line: &[u8]) -> Refused {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b',').collect();
    let expected = "expected OPERATION,KEY[,BYTES[,NANOSECONDS[,THREAD]]]";
    let (Some(name), Some(key)) = (fields.first(), fields.get(1)) else {
        return Err(expected.to_string());
    };
    if fields.len() > 5 {
        return Err(format!("{expected}, found {} fields", fields.len()));
    }
    let decoded = match key.strip_prefix(b"0x") {
        Some(digits) => Some(hexadecimal(digits)?),
        None => None,
    };
    let key = decoded.as_deref().unwrap_or(key);
    let size = fields.get(2).filter(|field| !field.is_empty());
    let given = |what: &str| match size {
        Some(field) => number(field, what),
        None => Err(format!("{what} are missing; {expected}")),
    };
    let operation = match *name {
        b"load" => Traced::Load {
            key,
            value_bytes: given("bytes")?,
        },
        b"put" => Traced::Put {
            key,
            value_bytes: given("bytes")?,
        },
        b"delete" => Traced::Delete { key },
        b"scan" => Traced::Scan {
            from: key,
            limit: given("entries")?,
            visited: None,
        },
        b"get" => Traced::Get {
            key,
            answer: match size {
                None => Answer::Unknown,
                Some(&b"-1") => Answer::Absent,
                Some(field) => Answer::Found(number(field, "bytes")?),
            },
        },
        other => {
            return Err(format!(
                "{:?} is no operation: load, get, put, delete or scan",
                String::from_utf8_lossy(other)
            ));
        }
    };
    let at = fields
        .get(3)
        .map_or(Ok(0), |field| number(field, "nanoseconds"))?;
    let thread = fields
        .get(4)
        .map_or(Ok(0), |field| number(field, "a thread"))?;
    let thread = u32::try_from(thread).map_err(|_| format!("thread {thread}"))?;
    let added = writer.add(thread, at, &operation);
    added.map_err(|error| error.to_string())
}

fn add_rocksdb(writer: &mut TraceWriter, line: &[u8]) -> Refused {
    let fields: Vec<&[u8]> = line
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty())
        .collect();
    let [key, kind, family, size, microseconds] = fields[..] else {
        return Err(format!(
            "expected KEY TYPE COLUMN-FAMILY BYTES MICROSECONDS, found {} fields",
            fields.len()
        ));
    };
    let key = &hexadecimal(key.strip_prefix(b"0x").unwrap_or(key))?;
    number(family, "a column family")?;
    let value_bytes = number(size, "bytes")?;
    let operation = match number(kind, "a type")? {
        // A get's size is never known.
        0 | 8 => Traced::Get {
            key,
            answer: Answer::Unknown,
        },
        1 | 5 => Traced::Put { key, value_bytes },
        2 | 3 => Traced::Delete { key },
        6 | 7 => Traced::Scan {
            from: key,
            limit: 1,
            visited: None,
        },
        4 => return Err("a deletion of a range: a trace has none".to_string()),
        other => return Err(format!("type {other}; known are 0 to 8")),
    };
    let at = number(microseconds, "microseconds")?.saturating_mul(1_000);
    let added = writer.add(0, at, &operation);
    added.map_err(|error| error.to_string())
}

fn add_twitter(writer: &mut TraceWriter, line: &[u8]) -> Refused {
    // A key may hold commas: the other six fields are counted from the ends.
    let expected = "expected SECONDS,KEY,KEY BYTES,VALUE BYTES,CLIENT,OPERATION,TTL";
    let first = line.iter().position(|&byte| byte == b',');
    let rest = first.map(|at| &line[at + 1..]).unwrap_or_default();
    let mut fields = rest.rsplitn(6, |&byte| byte == b',');
    let mut next = || fields.next().ok_or_else(|| expected.to_string());
    let (_, name, client, size, _, key) = (next()?, next()?, next()?, next()?, next()?, next()?);
    let seconds = number(&line[..first.unwrap_or(0)], "seconds")?;
    let value_bytes = number(size, "bytes")?;
    let operation = match name {
        b"get" | b"gets" => Traced::Get {
            key,
            answer: match value_bytes {
                0 => Answer::Absent,
                bytes => Answer::Found(bytes),
            },
        },
        b"set" | b"add" | b"replace" | b"cas" | b"append" | b"prepend" | b"incr" | b"decr" => {
            Traced::Put { key, value_bytes }
        }
        b"delete" => Traced::Delete { key },
        other => {
            return Err(format!(
                "{:?} is no operation of these traces",
                String::from_utf8_lossy(other)
            ));
        }
    };
    let client = number(client, "a client")? as u32;
    let at = seconds.saturating_mul(1_000_000_000);
    let added = writer.add(client, at, &operation);
    added.map_err(|error| error.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::TraceReader;
    use super::*;

    fn read(format: TextFormat, text: &str) -> std::result::Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("text"), folder.path().join("trace"));
        std::fs::write(&from, text).unwrap();
        import(&from, format, &to).map_err(|error| error.to_string())?;
        let mut reader = TraceReader::open(&to).unwrap();
        let mut found = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            found.push(format!(
                "{} {} {:?}",
                record.thread, record.at, record.operation
            ));
        }
        Ok(found)
    }

    #[test]
    fn each_format_is_read() {
        let csv = "operation,key,bytes\nput,a,100,5,2\nget,0x6162,-1\r\n\nscan,a,7\n";
        let expected = [
            "2 5 Put { key: [97], value_bytes: 100 }",
            "0 0 Get { key: [97, 98], answer: Absent }",
            "0 0 Scan { from: [97], limit: 7, visited: None }",
        ];
        assert_eq!(read(TextFormat::Csv, csv).unwrap(), expected);
        let rocksdb = "6162 1 0 20 1000\n6162\t0\t0\t0\t2000\n";
        let expected = [
            "0 1000000 Put { key: [97, 98], value_bytes: 20 }",
            "0 2000000 Get { key: [97, 98], answer: Unknown }",
        ];
        assert_eq!(read(TextFormat::RocksDb, rocksdb).unwrap(), expected);
        let twitter = "3,a,b,3,9,17,get,0\n3,a,1,4,17,set,60";
        let expected = [
            "17 3000000000 Get { key: [97, 44, 98], answer: Found(9) }",
            "17 3000000000 Put { key: [97], value_bytes: 4 }",
        ];
        assert_eq!(read(TextFormat::Twitter, twitter).unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let cases = [
            (
                TextFormat::Csv,
                "put,a,1\nput,a\n",
                "line 2: bytes are missing",
            ),
            (TextFormat::Csv, "\n\npush,a\n", "line 3: \"push\""),
            (TextFormat::Csv, "get,0xf\n", "line 1: \"f\" is no key"),
            (TextFormat::Csv, "get,a,1,2,3,4\n", "found 6 fields"),
            (TextFormat::RocksDb, "61 4 0 0 0\n", "a deletion of a range"),
            (TextFormat::RocksDb, "61 1 0\n", "found 3 fields"),
            (TextFormat::Twitter, "1,a,1,2\n", "expected SECONDS"),
        ];
        for (format, text, words) in cases {
            let error = read(format, text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn lines_that_cross_pieces_of_the_file_are_counted_and_whole() {
        let mut text = String::new();
        for at in 0..150_000 {
            text += &format!("put,key{at},100\n");
        }
        assert_eq!(read(TextFormat::Csv, &text).unwrap().len(), 150_000);
        let error = read(TextFormat::Csv, &(text + "oops\n")).unwrap_err();
        assert!(error.contains("line 150001"), "{error}");
    }
}
