//! A table or view of SQLite as a source of entries.
//!
//! The key is the primary key, the row's number where there is none, or a view's
//! first column; numbers are decimal. The value is the other column, as it is, or a
//! JSON object where there are several: text, numbers and null as themselves, bytes
//! as `NAME_hex`. Rows come in the order of the key, which is all that is needed to
//! go on.

use std::path::{Path, PathBuf};

use cambium::KeyKind;
use cambium::hexdump::{readable, to_hex};
use cambium_foreign::sqlite::Rows;
use serde_json::{Number, Value};

use crate::failure::Failure;
use crate::import::foreign::item;
use crate::import::position::Position;
use crate::import::source::{Item, Source, elsewhere};
use crate::progress::Meter;

/// A table, row by row.
pub struct TableSource {
    file: PathBuf,
    table: String,
    /// What the key is in SQL.
    key: String,
    /// The other columns.
    columns: Vec<String>,
    keys: KeyKind,
    /// None until the first row is asked for.
    rows: Option<Rows>,
    /// The key of the last row, as SQL.
    last: Option<String>,
    left_out: u64,
}

impl TableSource {
    /// Opens a table of a file.
    pub fn open(file: &Path, table: &str, keys: KeyKind) -> Result<Self, Failure> {
        std::fs::metadata(file).map_err(|error| Failure::file(file, &error))?;
        let mut source = TableSource {
            file: file.to_path_buf(),
            table: table.to_string(),
            key: String::new(),
            columns: Vec::new(),
            keys,
            rows: None,
            last: None,
            left_out: 0,
        };
        source.refuse_utf16()?;
        source.choose_key()?;
        Ok(source)
    }

    fn named(&self, words: impl std::fmt::Display) -> String {
        format!("{}, table {}: {words}", self.file.display(), self.table)
    }

    fn failed(&self, error: cambium_foreign::Error) -> Failure {
        match error {
            missing @ cambium_foreign::Error::Missing { .. } => missing.into(),
            error => Failure::failed(self.named(error)),
        }
    }

    /// All rows of a query, as text.
    fn ask(&self, sql: &str, columns: usize) -> Result<Vec<Vec<String>>, Failure> {
        let mut rows = Rows::of(&self.file, sql).map_err(|error| self.failed(error))?;
        let mut answers = Vec::new();
        while rows.advance().map_err(|error| self.failed(error))? {
            let text = |column| String::from_utf8_lossy(rows.column(column)).into_owned();
            answers.push((0..columns).map(text).collect());
        }
        Ok(answers)
    }

    /// Bytes of text are as the file has them, and have to be UTF-8.
    fn refuse_utf16(&self) -> Result<(), Failure> {
        let answer = self.ask("PRAGMA encoding", 1)?;
        match answer.first().is_some_and(|row| row[0] == "UTF-8") {
            true => Ok(()),
            false => Err(Failure::failed(self.named(
                "its text is UTF-16; expected UTF-8, as `sqlite3 OLD .dump | sqlite3 NEW` writes it",
            ))),
        }
    }

    fn choose_key(&mut self) -> Result<(), Failure> {
        let name = text_literal(self.table.as_bytes());
        let master = "SELECT type FROM sqlite_master WHERE type IN ('table', 'view') AND";
        let kind = self.ask(&format!("{master} name = {name} COLLATE NOCASE"), 1)?;
        let Some(kind) = kind.first() else {
            let all = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY 1";
            let names: Vec<String> = self.ask(all, 1)?.into_iter().flatten().collect();
            let names = if names.is_empty() {
                "none".to_string()
            } else {
                names.join(", ")
            };
            let what = self.named(format!("there is no such table; there are {names}"));
            return Err(Failure::failed(what));
        };
        let columns = self.ask(
            // Hidden are those of virtual tables (1), and generated ones (2 and 3).
            &format!("SELECT name, pk FROM pragma_table_xinfo({name}) WHERE hidden <> 1"),
            2,
        )?;
        let (primary, others): (Vec<_>, Vec<_>) =
            columns.into_iter().partition(|column| column[1] != "0");
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let mut others: Vec<String> = others
            .into_iter()
            .map(|mut one| one.swap_remove(0))
            .collect();
        self.key = match (primary.as_slice(), kind[0].as_str()) {
            ([key], _) => quoted(&key[0]),
            ([], "view") if !others.is_empty() => quoted(&others.remove(0)),
            ([], _) => "rowid".to_string(),
            (several, _) => {
                let names: Vec<&str> = several.iter().map(|one| one[0].as_str()).collect();
                return Err(Failure::usage(self.named(format!(
                    "its key has several columns, {}; make a view whose first column is one key, and import that",
                    names.join(", ")
                ))));
            }
        };
        self.columns = others;
        Ok(())
    }

    /// Each column with its type before it; text and numbers as text.
    fn begin(&self) -> Result<Rows, Failure> {
        let quoted = |name: &String| format!("\"{}\"", name.replace('"', "\"\""));
        let columns = [self.key.clone()]
            .into_iter()
            .chain(self.columns.iter().map(quoted));
        let columns: Vec<String> = columns
            .map(|column| format!("typeof({column}), CAST({column} AS BLOB)"))
            .collect();
        let behind = match &self.last {
            Some(last) => format!("WHERE {} > {last}", self.key),
            None => String::new(),
        };
        let sql = format!(
            "SELECT {} FROM {} {behind} ORDER BY {}",
            columns.join(", "),
            quoted(&self.table),
            self.key
        );
        Rows::of(&self.file, &sql).map_err(|error| self.failed(error))
    }
}

impl Source for TableSource {
    fn next_item(&mut self, meter: &Meter) -> Result<Option<Item>, Failure> {
        loop {
            let mut rows = match self.rows.take() {
                Some(rows) => rows,
                None => self.begin()?,
            };
            if !rows.advance().map_err(|error| self.failed(error))? {
                return Ok(None);
            }
            let key = rows.column(1).to_vec();
            let made = match literal(rows.column(0), &key) {
                Some(literal) => {
                    self.last = Some(literal);
                    item(None, key.clone(), value(&rows, &self.columns), self.keys)
                }
                None => Err("its key is NULL".to_string()),
            };
            self.rows = Some(rows);
            match made {
                Ok(item) => return Ok(Some(item)),
                Err(why) => {
                    let row = self.named(format!("the row of key {}: {why}", readable(&key)));
                    meter.say(&format!("{row}; left out"));
                    self.left_out += 1;
                }
            }
        }
    }

    fn position(&self) -> Option<Position> {
        self.last.clone().map(|key| Position::Row { key })
    }

    fn resume(&mut self, position: &Position) -> Result<(), Failure> {
        let Position::Row { key } = position else {
            return Err(elsewhere());
        };
        self.last = Some(key.clone());
        Ok(())
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// A key as SQL that sorts as it does; none for NULL.
fn literal(kind: &[u8], key: &[u8]) -> Option<String> {
    match kind {
        b"null" => None,
        b"integer" | b"real" => Some(String::from_utf8_lossy(key).into_owned()),
        b"text" => Some(text_literal(key)),
        _ => Some(format!("X'{}'", to_hex(key))),
    }
}

/// Any text, without quoting.
fn text_literal(text: &[u8]) -> String {
    format!("CAST(X'{}' AS TEXT)", to_hex(text))
}

/// The value of a row: the one column, or all as JSON.
fn value(rows: &Rows, columns: &[String]) -> Vec<u8> {
    if columns.len() <= 1 {
        return match columns.len() {
            0 => Vec::new(),
            _ => rows.column(3).to_vec(),
        };
    }
    let mut fields = Vec::new();
    for (at, name) in columns.iter().enumerate() {
        let (kind, bytes) = (rows.column(2 * at + 2), rows.column(2 * at + 3));
        let text = std::str::from_utf8(bytes).ok();
        let number = text.and_then(|text| text.parse::<Number>().ok());
        let (name, value) = match (kind, text, number) {
            (b"null", ..) => (name.clone(), Value::Null),
            (b"integer" | b"real", _, Some(number)) => (name.clone(), Value::Number(number)),
            (b"blob", ..) | (_, None, _) => (format!("{name}_hex"), Value::from(to_hex(bytes))),
            (_, Some(text), _) => (name.clone(), Value::from(text)),
        };
        fields.push(format!("{}:{value}", Value::from(name)));
    }
    format!("{{{}}}", fields.join(",")).into_bytes()
}
