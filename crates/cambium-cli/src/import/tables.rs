//! A table or view of SQLite as a source of entries.
//!
//! The key is the primary key, the row's number where there is none, or a view's
//! first column; numbers are decimal, and a real has the fewest digits that read back
//! the same. The value is the other column, as it is, or a JSON object where there are
//! several: text, numbers and null as themselves, bytes as `NAME_hex`. Rows come in the
//! order of the key, which is all that is needed to go on.
//!
//! Several rows can have one key in the store: the key of a view may repeat, and SQLite
//! tells the integer 1, the text '1' and the bytes x'31' apart. The import takes the
//! first of them that the store can have, names the others and leaves them out. Rows of
//! one storage class and key are neighbours. Where the keys have several classes, a
//! temporary table of SQLite has those that were taken.

use std::path::{Path, PathBuf};

use cambium::KeyKind;
use cambium::hexdump::{readable, to_hex};
use cambium_foreign::sqlite::{Cell, Rows};
use serde_json::{Number, Value};

use crate::failure::Failure;
use crate::import::foreign::item;
use crate::import::position::Position;
use crate::import::source::{Item, Source, elsewhere};
use crate::progress::Meter;

/// Keys that were taken, as the store has them.
const TAKEN: &str = "temp.cambium_taken";

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
    /// The key of the last row that was taken, as SQL.
    last: Option<String>,
    /// That row comes again, since the import goes on behind it.
    is_last_again: bool,
    /// The lowest and the highest class of the keys, where they differ.
    classes: Option<(Class, Class)>,
    left_out: u64,
}

/// Storage classes of keys in SQLite's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Number,
    Text,
    Blob,
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
            is_last_again: false,
            classes: None,
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
                "its text is UTF-16; expected UTF-8, as `sqlite3 OLD .dump | sqlite3 NEW` \
                 writes it",
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
            &format!("SELECT name, pk, hidden FROM pragma_table_xinfo({name})"),
            3,
        )?;
        let is_column = |name: &str| columns.iter().any(|one| one[0].eq_ignore_ascii_case(name));
        let row_number = ["rowid", "_rowid_", "oid"]
            .into_iter()
            .find(|name| !is_column(name));
        // Hidden are those of virtual tables (1), and generated ones (2 and 3).
        let columns = columns.into_iter().filter(|column| column[2] != "1");
        let (primary, others): (Vec<_>, Vec<_>) = columns.partition(|column| column[1] != "0");
        let mut others: Vec<String> = others
            .into_iter()
            .map(|mut one| one.swap_remove(0))
            .collect();
        self.key = match (primary.as_slice(), kind[0].as_str()) {
            ([key], _) => quoted(&key[0]),
            // The key of a view may have 'a' and 'A' where its column takes them for equal.
            ([], "view") if !others.is_empty() => {
                format!("{} COLLATE BINARY", quoted(&others.remove(0)))
            }
            ([], _) => match row_number {
                Some(name) => name.to_string(),
                None => {
                    return Err(Failure::usage(self.named(
                        "it has no primary key, and its columns rowid, _rowid_ and oid hide the \
                         row's number; make a view whose first column is the key, and import that",
                    )));
                }
            },
            (several, _) => {
                let names: Vec<&str> = several.iter().map(|one| one[0].as_str()).collect();
                return Err(Failure::usage(self.named(format!(
                    "its key has several columns, {}; make a view whose first column is one \
                     key, and import that",
                    names.join(", ")
                ))));
            }
        };
        self.columns = others;
        Ok(())
    }

    /// Runs a statement on the connection of others; whether it has a row.
    fn run(&self, others: &Rows, sql: &str) -> Result<bool, Failure> {
        let done = others.beside(sql).and_then(|mut rows| rows.advance());
        done.map_err(|error| self.failed(error))
    }

    /// The rows from the last one on.
    fn begin(&mut self) -> Result<Rows, Failure> {
        // A transaction: all statements read one moment.
        let mut all = Rows::of(&self.file, "BEGIN").map_err(|error| self.failed(error))?;
        all.advance().map_err(|error| self.failed(error))?;
        self.classes = self.classes_of(&all)?;
        if self.classes.is_some() {
            let columns = "(k BLOB PRIMARY KEY) WITHOUT ROWID";
            self.run(&all, &format!("CREATE TABLE {TAKEN} {columns}"))?;
            if let Some(last) = self.last.take() {
                let mut earlier = self.select(&all, Some(("<", &last)))?;
                while earlier.advance().map_err(|error| self.failed(error))? {
                    self.taken(&earlier, &bytes(key_of(&earlier)))?;
                }
                self.last = Some(last);
            }
        }
        self.is_last_again = self.last.is_some();
        self.select(&all, self.last.as_deref().map(|last| (">=", last)))
    }

    /// The lowest and the highest class of the keys, if they differ.
    fn classes_of(&self, others: &Rows) -> Result<Option<(Class, Class)>, Failure> {
        let (key, table) = (&self.key, quoted(&self.table));
        // Each of the two reads one entry where an index has the keys.
        let ends = ["min", "max"].map(|end| format!("(SELECT {end}({key}) FROM main.{table})"));
        let ends = others.beside(&format!("SELECT {}", ends.join(", ")));
        let mut ends = ends.map_err(|error| self.failed(error))?;
        ends.advance().map_err(|error| self.failed(error))?;
        let class = |column| literal(ends.cell(column)).map(|(class, _)| class);
        Ok(class(0)
            .zip(class(1))
            .filter(|(lowest, highest)| lowest < highest))
    }

    /// The key and the other columns of all rows, or of those on one side of a key.
    fn select(&self, others: &Rows, side: Option<(&str, &str)>) -> Result<Rows, Failure> {
        let columns: Vec<String> = self.columns.iter().map(|name| quoted(name)).collect();
        let columns = [&[self.key.clone()][..], &columns].concat().join(", ");
        let (key, table) = (&self.key, quoted(&self.table));
        let side = side.map(|(side, of)| (side, operand(of)));
        // The plus removes the affinity of a CAST, which would compare numbers as text.
        let condition = side.map_or(String::new(), |(side, (of, _))| {
            format!("WHERE {key} {side} +{of}")
        });
        // A view may have 1 and 1.0, which are two keys and equal to SQLite.
        let order = format!("ORDER BY {key}, typeof({key})");
        let sql = format!("SELECT {columns} FROM main.{table} {condition} {order}");
        let rows = others.beside(&sql).and_then(|rows| match side {
            Some((_, (_, Some(real)))) => rows.bind_real(real).map(|()| rows),
            _ => Ok(rows),
        });
        rows.map_err(|error| self.failed(error))
    }

    /// Whether a row of an earlier class has the key; if not, later classes will find it.
    fn is_taken(&self, rows: &Rows, class: Class, key: &[u8]) -> Result<bool, Failure> {
        let Some((lowest, highest)) = self.classes else {
            return Ok(false);
        };
        let key = to_hex(key);
        let find = format!("SELECT 1 FROM {TAKEN} WHERE k = X'{key}'");
        if class > lowest && self.run(rows, &find)? {
            return Ok(true);
        }
        if class < highest {
            self.run(
                rows,
                &format!("INSERT OR IGNORE INTO {TAKEN} VALUES (X'{key}')"),
            )?;
        }
        Ok(false)
    }

    /// The row's entry, or why the store cannot have it.
    fn entry(&self, rows: &Rows, key: &[u8]) -> Result<Item, String> {
        if self.keys == KeyKind::Integer && key.len() > 1 && key[0] == b'0' {
            return Err("expected a decimal number without zeros in front".to_string());
        }
        item(None, key.to_vec(), value(rows, &self.columns)?, self.keys)
    }

    /// The row's entry, or why it is left out; none for the row that comes again.
    fn taken(&mut self, rows: &Rows, key: &[u8]) -> Result<Option<Result<Item, String>>, Failure> {
        let Some((class, sql)) = literal(key_of(rows)) else {
            return Ok(Some(Err("its key is NULL".to_string())));
        };
        let item = match self.entry(rows, key) {
            Ok(item) => item,
            Err(why) => return Ok(Some(Err(why))),
        };
        let is_last = self.last.as_deref() == Some(&sql);
        let is_taken = self.is_taken(rows, class, &item.key)?;
        if std::mem::take(&mut self.is_last_again) && is_last {
            return Ok(None);
        }
        if is_last || is_taken {
            return Ok(Some(Err("an earlier row has the same key".to_string())));
        }
        self.last = Some(sql);
        Ok(Some(Ok(item)))
    }
}

impl Source for TableSource {
    fn next_item(&mut self, meter: &Meter) -> Result<Option<Item>, Failure> {
        let mut rows = match self.rows.take() {
            Some(rows) => rows,
            None => self.begin()?,
        };
        while rows.advance().map_err(|error| self.failed(error))? {
            let key = bytes(key_of(&rows));
            match self.taken(&rows, &key)? {
                None => {}
                Some(Ok(item)) => {
                    self.rows = Some(rows);
                    return Ok(Some(item));
                }
                Some(Err(why)) => {
                    let row = self.named(format!("the row of key {}: {why}", readable(&key)));
                    meter.say(&format!("{row}; left out"));
                    self.left_out += 1;
                }
            }
        }
        Ok(None)
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

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The key of a row. SQLite holds -0.0 equal to 0.0, so their rows can alternate: both
/// have the key 0.0.
fn key_of(rows: &Rows) -> Cell<'_> {
    match rows.cell(0) {
        Cell::Real(real) => Cell::Real(real + 0.0),
        cell => cell,
    }
}

/// A key's class, and the key as SQL; none for NULL.
fn literal(key: Cell<'_>) -> Option<(Class, String)> {
    Some(match key {
        Cell::Null => return None,
        Cell::Integer(number) => (Class::Number, number.to_string()),
        Cell::Real(real) => (Class::Number, text_of_real(real)),
        Cell::Text(text) => (Class::Text, text_literal(text)),
        Cell::Blob(bytes) => (Class::Blob, format!("X'{}'", to_hex(bytes))),
    })
}

/// A key for a statement: a real is bound to its parameter, since SQLite may read
/// another real out of the decimal digits.
fn operand(literal: &str) -> (&str, Option<f64>) {
    match (literal.parse::<i64>(), literal.parse()) {
        (Err(_), Ok(real)) => ("?1", Some(real)),
        _ => (literal, None),
    }
}

/// Any text, without quoting.
fn text_literal(text: &[u8]) -> String {
    format!("CAST(X'{}' AS TEXT)", to_hex(text))
}

/// The fewest digits that read back the same.
fn text_of_real(real: f64) -> String {
    match Number::from_f64(real) {
        Some(number) => number.to_string(),
        None if real > 0.0 => "Inf".to_string(),
        None => "-Inf".to_string(),
    }
}

/// A key or a value as the store has it.
fn bytes(cell: Cell<'_>) -> Vec<u8> {
    match cell {
        Cell::Null => Vec::new(),
        Cell::Integer(number) => number.to_string().into_bytes(),
        Cell::Real(real) => text_of_real(real).into_bytes(),
        Cell::Text(bytes) | Cell::Blob(bytes) => bytes.to_vec(),
    }
}

/// The value of a row: the one column, or all as JSON; otherwise why there is none.
fn value(rows: &Rows, columns: &[String]) -> Result<Vec<u8>, String> {
    if columns.len() <= 1 {
        return Ok(columns.first().map_or(Vec::new(), |_| bytes(rows.cell(1))));
    }
    let mut fields = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let cell = rows.cell(at + 1);
        let (name, value) = match cell {
            Cell::Null => (column.clone(), Value::Null),
            Cell::Integer(number) => (column.clone(), Value::from(number)),
            // JSON has no infinity: a text.
            Cell::Real(real) => {
                let number = Number::from_f64(real).map(Value::Number);
                (
                    column.clone(),
                    number.unwrap_or_else(|| text_of_real(real).into()),
                )
            }
            Cell::Text(bytes) | Cell::Blob(bytes) => match (cell, std::str::from_utf8(bytes)) {
                (Cell::Text(_), Ok(text)) => (column.clone(), Value::from(text)),
                _ => (hex_name(column, columns)?, Value::from(to_hex(bytes))),
            },
        };
        fields.push(format!("{}:{value}", Value::from(name)));
    }
    Ok(format!("{{{}}}", fields.join(",")).into_bytes())
}

/// The name that bytes of a column have in JSON.
fn hex_name(column: &str, columns: &[String]) -> Result<String, String> {
    let name = format!("{column}_hex");
    match columns.contains(&name) {
        true => Err(format!(
            "column {column:?} has bytes, which would be {name:?} in JSON, and there is a column \
             {name:?}; import a view with other names"
        )),
        false => Ok(name),
    }
}
