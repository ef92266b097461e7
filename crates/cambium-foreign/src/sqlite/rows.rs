//! Rows of anybody's file, read and left as they are.

use std::ffi::c_int;
use std::path::Path;
use std::rc::Rc;

use super::{Cell, Connection, Statement, load};
use crate::error::Result;

/// The rows of a statement, which sees one moment.
pub struct Rows {
    // Finalized before the connection is closed: fields are dropped in this order.
    statement: Statement,
    connection: Rc<Connection>,
}

impl Rows {
    /// Begins to read a file that is there.
    ///
    /// # Errors
    /// The library is missing, the file is none of SQLite's, the statement is wrong:
    /// SQLite's own words.
    pub fn of(file: &Path, sql: &str) -> Result<Self> {
        let connection = Connection::open_to_read(&load()?.functions, file)?;
        Rows::prepare(Rc::new(connection), sql)
    }

    /// The rows of another statement of the same connection: of the same moment, if a row of
    /// this one is read or a transaction was begun.
    ///
    /// # Errors
    /// SQLite's own words.
    pub fn beside(&self, sql: &str) -> Result<Self> {
        Rows::prepare(self.connection.clone(), sql)
    }

    fn prepare(connection: Rc<Connection>, sql: &str) -> Result<Self> {
        Ok(Rows {
            statement: connection.prepare(sql)?,
            connection,
        })
    }

    /// Binds the first parameter, before the first row.
    ///
    /// # Errors
    /// SQLite's own words.
    pub fn bind_real(&self, real: f64) -> Result<()> {
        self.statement.bind_real(1, real)
    }

    /// Goes to the next row; false at the end.
    ///
    /// # Errors
    /// SQLite's own words.
    pub fn advance(&mut self) -> Result<bool> {
        self.connection.step("step", &self.statement)
    }

    /// A column of the present row, from 0, as the file stores it.
    pub fn cell(&self, column: usize) -> Cell<'_> {
        // SAFETY: the row stays until `advance`, which borrows this mutably.
        unsafe { self.statement.cell(column as c_int) }
    }

    /// A column of the present row as bytes, from 0; empty for NULL.
    pub fn column(&self, column: usize) -> &[u8] {
        // SAFETY: the row stays until `advance`, which borrows this mutably.
        unsafe { self.statement.bytes(column as c_int) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::OPEN_FLAGS;

    #[test]
    fn columns_of_a_table_are_read_and_mistakes_are_told_in_sqlites_words() {
        let loaded = match load() {
            Ok(loaded) => loaded,
            Err(error) => {
                eprintln!("SKIPPED: {error}");
                return;
            }
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trees.db");
        let made = Connection::open_as(&loaded.functions, &file, OPEN_FLAGS).unwrap();
        made.execute(
            "CREATE TABLE trees (name TEXT, height REAL);
             INSERT INTO trees VALUES ('oak', 40.5), ('ash', NULL), (NULL, 3);",
        )
        .unwrap();
        drop(made);
        let sql = "SELECT CAST(rowid AS BLOB), CAST(name AS BLOB) FROM trees";
        let mut rows = Rows::of(&file, sql).unwrap();
        for expected in [("1", "oak"), ("2", "ash"), ("3", "")] {
            assert!(rows.advance().unwrap());
            let found = (rows.column(0), rows.column(1));
            assert_eq!(found, (expected.0.as_bytes(), expected.1.as_bytes()));
        }
        assert!(!rows.advance().unwrap());
        let refused = |file: &Path, sql: &str| match Rows::of(file, sql) {
            Ok(mut rows) => rows.advance().unwrap_err().to_string(),
            Err(error) => error.to_string(),
        };
        let error = refused(&file, "SELECT a, b FROM shrubs");
        assert!(error.contains("no such table: shrubs"), "{error}");
        let error = refused(&folder.path().join("none"), sql);
        assert!(error.contains("unable to open"), "{error}");
        let text = folder.path().join("text");
        std::fs::write(&text, "this is a text, and no database of anybody's").unwrap();
        let error = refused(&text, sql);
        assert!(error.contains("not a database"), "{error}");
    }
}
