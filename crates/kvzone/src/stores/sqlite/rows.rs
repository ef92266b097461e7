//! Rows of anybody's database, read and left as they are.

use std::path::Path;

use kvzone_core::error::{Error, Result};

use super::NAME;
use super::calls;
use super::connection::Connection;

/// Calls `visit` with the first two columns of each row until it answers false.
///
/// # Errors
/// The library is missing, the file is none of SQLite's, the statement is wrong:
/// SQLite's own words.
pub(crate) fn rows(
    file: &Path,
    sql: &str,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<()> {
    if !file.is_file() {
        return Err(Error::machine("open", file, "there is no such file"));
    }
    let loaded = calls::load().map_err(|error| Error::Usage(error.to_string()))?;
    let connection = Connection::open_to_read(&loaded.functions, file)?;
    let named = |error: Error| Error::machine(NAME, file, error);
    let statement = connection.prepare(sql).map_err(named)?;
    while connection.step("step", &statement).map_err(named)? {
        // SAFETY: used before the statement steps again.
        let key = unsafe { statement.bytes(0) };
        // SAFETY: likewise.
        let value = unsafe { statement.bytes(1) };
        if !visit(key, value) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::sqlite::calls::OPEN_FLAGS;

    #[test]
    fn columns_of_a_table_are_read_and_mistakes_are_told_in_sqlites_words() {
        let loaded = match calls::load() {
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
        let mut found = Vec::new();
        let sql = "SELECT CAST(rowid AS BLOB), CAST(name AS BLOB) FROM trees";
        rows(&file, sql, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            found.len() < 2
        })
        .unwrap();
        let expected = [("1", "oak"), ("2", "ash")];
        assert_eq!(
            found,
            expected.map(|(key, value)| (key.into(), value.into()))
        );
        let refused = |file: &Path, sql: &str| rows(file, sql, &mut |_, _| true).unwrap_err();
        let error = refused(&file, "SELECT a, b FROM shrubs").to_string();
        assert!(error.contains("no such table: shrubs"), "{error}");
        let error = refused(&folder.path().join("none"), sql).to_string();
        assert!(error.contains("no such file"), "{error}");
        let text = folder.path().join("text");
        std::fs::write(&text, "this is a text, and no database of anybody's").unwrap();
        let error = refused(&text, sql).to_string();
        assert!(error.contains("not a database"), "{error}");
    }
}
