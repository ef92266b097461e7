//! Data sets of one's own: `dir:`, `jsonl:`, `sqlite:`.
//!
//! | written as | keys | values |
//! |---|---|---|
//! | `dir:PATH` | paths of the regular files below, from there on | what is in them |
//! | `jsonl:FILE?key=FIELD` | a field of each line's object, text or number (`id`) | the line |
//! | `sqlite:FILE?table=NAME&column=NAME&key=NAME` | a column [the row's id] | another column |
//!
//! Keys are the real ones. Values are pieces of the real bytes, as large as the
//! real values are and as often as they are, so that they compress as those do;
//! which piece a key gets, and the 24 bytes in front that prove it, are KVZone's.
//! All of a set is taken, up to the number of keys that is asked for.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_foreign::sqlite::Rows;
use kvzone_core::error::{Error, Result};
use kvzone_core::job::{KeySource, SizeChoice};
use kvzone_core::names::unknown;
use kvzone_core::sizes::{Bar, Histogram};

use super::machine::{self, walk};
use super::{Keys, Sample};
use crate::output;
use crate::place::{self, RunFolder};

/// Bytes of values that are kept to make values of.
const SAMPLE_BYTES: usize = 4 << 20;
/// No value takes more of them than this.
const PIECE_BYTES: usize = 64 << 10;
/// A larger file or field counts as one of this size.
const MOST_VALUE_BYTES: u64 = 64 << 20;
/// Bars of the histogram of sizes.
const BARS: usize = 1_000;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Own {
    Directory(PathBuf),
    /// Objects, a line each.
    JsonLines {
        file: PathBuf,
        key: String,
    },
    /// Rows of a table.
    Sqlite {
        file: PathBuf,
        table: String,
        column: String,
        key: Option<String>,
    },
}

/// The set that a text names; none if it is a name of a set that is known.
pub(crate) fn parse(text: &str) -> Result<Option<Own>> {
    let Some((kind, rest)) = text.split_once(':') else {
        return Ok(None);
    };
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut fields = Vec::new();
    for field in query.split('&').filter(|field| !field.is_empty()) {
        let (name, value) = field.split_once('=').unwrap_or((field, ""));
        if value.is_empty() {
            return Err(refused(text, &format!("{field:?} is no NAME=VALUE")));
        }
        fields.push((name, value.to_string()));
    }
    let known: &[&str] = match kind {
        "dir" => &[],
        "jsonl" => &["key"],
        "sqlite" => &["table", "column", "key"],
        _ => {
            let words = unknown("kind", kind, ["dir", "jsonl", "sqlite"]);
            return Err(refused(text, &words));
        }
    };
    if let Some((name, _)) = fields.iter().find(|(name, _)| !known.contains(name)) {
        let words = format!("no field {name:?}; there is {}", known.join(", "));
        return Err(refused(text, &words));
    }
    let mut field = |name: &str| {
        let at = fields.iter().position(|(of, _)| *of == name)?;
        Some(fields.swap_remove(at).1)
    };
    let file = PathBuf::from(path);
    Ok(Some(match kind {
        "dir" => Own::Directory(file),
        "jsonl" => Own::JsonLines {
            file,
            key: field("key").unwrap_or("id".to_string()),
        },
        _ => {
            let (table, column) = (field("table"), field("column"));
            let (Some(table), Some(column)) = (table, column) else {
                let form = "write sqlite:FILE?table=NAME&column=NAME, and &key=NAME for a key";
                return Err(refused(text, form));
            };
            Own::Sqlite {
                file,
                table,
                column,
                key: field("key"),
            }
        }
    }))
}

fn refused(text: &str, what: &str) -> Error {
    Error::Usage(format!("data set {text}: {what}"))
}

#[derive(Default)]
struct Collected {
    keys: BTreeSet<Vec<u8>>,
    most: usize,
    sizes: Vec<u64>,
    sample: Vec<u8>,
    /// Entries whose key was there already, or cannot be one.
    left_out: u64,
}

impl Collected {
    /// Takes an entry; false when there are enough. Of the value, its beginning is
    /// enough.
    fn take(&mut self, key: &[u8], value: &[u8], value_bytes: u64) -> bool {
        let possible = !key.is_empty() && !key.contains(&b'\n');
        if !possible || !self.keys.insert(key.to_vec()) {
            self.left_out += 1;
            return true;
        }
        self.sizes.push(value_bytes.min(MOST_VALUE_BYTES));
        let room = SAMPLE_BYTES - self.sample.len().min(SAMPLE_BYTES);
        let piece = value.len().min(PIECE_BYTES).min(room);
        self.sample.extend_from_slice(&value[..piece]);
        self.keys.len() < self.most
    }
}

impl Own {
    /// As the user named it.
    fn text(&self) -> String {
        match self {
            Own::Directory(path) => format!("dir:{}", path.display()),
            Own::JsonLines { file, key } => format!("jsonl:{}?key={key}", file.display()),
            Own::Sqlite {
                file,
                table,
                column,
                ..
            } => format!("sqlite:{}?table={table}&column={column}", file.display()),
        }
    }

    /// Up to so many entries, in files in `directory`.
    ///
    /// # Errors
    /// A file that is not there, a line that is no object, a table that is not
    /// there; the error names the place. A usage error if there is no entry.
    pub(crate) fn keys(&self, most: u64, directory: &Path) -> Result<Keys> {
        let mut found = Collected {
            most: usize::try_from(most).unwrap_or(usize::MAX),
            ..Collected::default()
        };
        match self {
            Own::Directory(path) => files(path, &mut found)?,
            Own::JsonLines { file, key } => lines(file, key, &mut found)?,
            Own::Sqlite {
                file,
                table,
                column,
                key,
            } => {
                let quoted = |name: &str| match is_rowid(name) {
                    // So that a table without one is an error.
                    true => name.to_string(),
                    false => format!("\"{}\"", name.replace('"', "\"\"")),
                };
                for name in [Some(column), key.as_ref()].into_iter().flatten() {
                    refuse_unknown_column(file, table, name)?;
                }
                let key = key.as_deref().map_or("rowid".to_string(), quoted);
                let (column, table) = (quoted(column), quoted(table));
                // Text and numbers as text; NULL is no key.
                let sql = format!(
                    "SELECT CAST({key} AS BLOB), CAST({column} AS BLOB) FROM {table} \
                     WHERE {key} IS NOT NULL"
                );
                let failed = |error| Error::machine("read", file, error);
                let mut rows = Rows::of(file, &sql).map_err(failed)?;
                while rows.advance().map_err(failed)? {
                    let (key, value) = (rows.column(0), rows.column(1));
                    if !found.take(key, value, value.len() as u64) {
                        break;
                    }
                }
            }
        }
        if found.keys.is_empty() {
            return Err(refused(&self.text(), "it has no entry"));
        }
        if found.left_out > 0 {
            output::complain(&format!(
                "kvzone: {} entries of the data set are left out: their key was there already, \
                 is empty, or has a line end in it",
                found.left_out
            ));
        }
        let directory = place::prepare(directory)?;
        let folder = RunFolder::create(&directory, "dataset")?;
        let (path, sample) = (folder.path().join("keys"), folder.path().join("values"));
        machine::write(&path, &found.keys)?;
        std::fs::write(&sample, &found.sample)
            .map_err(|error| Error::machine("write", &sample, error))?;
        Ok(Keys {
            source: KeySource::File(path),
            key_bytes: machine::sizes(&found.keys),
            are_default: false,
            value_bytes: histogram(found.sizes)?,
            sample: Some(Sample {
                path: (!found.sample.is_empty()).then_some(sample),
                keys: found.keys.len() as u64,
            }),
            kept: Some(Arc::new(folder)),
        })
    }
}

fn is_rowid(name: &str) -> bool {
    let names = ["rowid", "oid", "_rowid_"];
    names.iter().any(|other| name.eq_ignore_ascii_case(other))
}

/// SQLite takes a quoted name of no column for a text.
fn refuse_unknown_column(file: &Path, table: &str, name: &str) -> Result<()> {
    let failed = |error| Error::machine("read", file, error);
    let literal = table.replace('\'', "''");
    // Generated columns as well.
    let sql = format!("SELECT name FROM pragma_table_xinfo('{literal}')");
    let mut rows = Rows::of(file, &sql).map_err(failed)?;
    let mut columns = Vec::new();
    while rows.advance().map_err(failed)? {
        columns.push(String::from_utf8_lossy(rows.column(0)).into_owned());
    }
    let is_known = columns
        .iter()
        .any(|column| column.eq_ignore_ascii_case(name));
    // The query itself says that there is no such table.
    if is_known || is_rowid(name) || columns.is_empty() {
        return Ok(());
    }
    let words = unknown("column", name, columns.iter().map(String::as_str));
    let file = file.display();
    Err(Error::Usage(format!(
        "data set {file}, table {table}: {words}"
    )))
}

fn files(folder: &Path, found: &mut Collected) -> Result<()> {
    // What cannot be read below is left out; the folder itself must be there.
    std::fs::read_dir(folder).map_err(|error| Error::machine("read folder", folder, error))?;
    let mut begin = Vec::new();
    walk(folder, &mut |path| {
        begin.clear();
        let Ok(file) = File::open(path) else {
            return true;
        };
        let bytes = file.metadata().map_or(0, |found| found.len());
        if file
            .take(PIECE_BYTES as u64)
            .read_to_end(&mut begin)
            .is_err()
        {
            return true;
        }
        let name = path.strip_prefix(folder).unwrap_or(path);
        found.take(name.as_os_str().as_bytes(), &begin, bytes)
    });
    Ok(())
}

fn lines(file: &Path, field: &str, found: &mut Collected) -> Result<()> {
    let opened = File::open(file).map_err(|error| Error::machine("open", file, error))?;
    let mut reader = BufReader::new(opened);
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let read = reader.read_until(b'\n', &mut line);
        if read.map_err(|error| Error::machine("read", file, error))? == 0 {
            break;
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        let wrong =
            |what: String| Error::Usage(format!("{}: line {number}: {what}", file.display()));
        let object: serde_json::Value =
            serde_json::from_slice(text).map_err(|error| wrong(format!("no JSON: {error}")))?;
        let key = match object.get(field) {
            Some(serde_json::Value::String(key)) => key.clone(),
            Some(number @ serde_json::Value::Number(_)) => number.to_string(),
            Some(_) => return Err(wrong(format!("{field:?} is neither text nor a number"))),
            None => {
                let fields = object.as_object().into_iter().flat_map(|all| all.keys());
                return Err(wrong(unknown("field", field, fields.map(String::as_str))));
            }
        };
        if !found.take(key.as_bytes(), text, text.len() as u64) {
            break;
        }
    }
    Ok(())
}

/// Bars of as many sizes each; one a size where there are few.
fn histogram(mut sizes: Vec<u64>) -> Result<SizeChoice> {
    sizes.sort_unstable();
    let mut bars: Vec<Bar> = Vec::new();
    let each = sizes.len().div_ceil(BARS).max(1);
    for part in sizes.chunks(each) {
        let (from, to) = (part[0], part[part.len() - 1]);
        match bars.last_mut() {
            Some(last) if from == to && (last.from, last.to) == (from, to) => {
                last.weight += part.len() as f64;
            }
            _ => bars.push(Bar {
                from,
                to,
                weight: part.len() as f64,
            }),
        }
    }
    Ok(SizeChoice::Histogram(Histogram::new(bars)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_named_with_their_fields_and_nonsense_is_refused() {
        let file = PathBuf::from("a b");
        assert_eq!(parse("url").unwrap(), None);
        assert_eq!(
            parse("dir:a b").unwrap(),
            Some(Own::Directory(file.clone()))
        );
        let lines = Own::JsonLines {
            file: file.clone(),
            key: "name".to_string(),
        };
        assert_eq!(parse("jsonl:a b?key=name").unwrap(), Some(lines));
        let table = Own::Sqlite {
            file,
            table: "t".to_string(),
            column: "c".to_string(),
            key: None,
        };
        assert_eq!(parse("sqlite:a b?table=t&column=c").unwrap(), Some(table));
        for (text, words) in [
            ("sqlit:a", "near it: sqlite"),
            ("sqlite:a?table=t", "table=NAME&column=NAME"),
            ("jsonl:a?kye=b", "no field \"kye\""),
            ("jsonl:a?key", "no NAME=VALUE"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn sizes_keep_their_mean_and_their_ends() {
        let sizes: Vec<u64> = (0..50_000).map(|at| at % 5_000).collect();
        let found = histogram(sizes).unwrap();
        assert_eq!((found.smallest(), found.largest()), (0, 4_999));
        assert!((found.mean() - 2_499.5).abs() < 5.0, "{}", found.mean());
    }
}
