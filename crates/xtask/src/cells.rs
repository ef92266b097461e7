//! Tables of numbers that are copied from `docs/matrix.md`.
//!
//! The first page and some guides show a part of the matrix. Such a table follows the line
//! `<!-- cells of docs/matrix.md -->`: its first row names columns of the matrix, and the first
//! cell of each further row names a row there. The rest is copied from the first table of
//! `docs/matrix.md`. A number of another store is bold where the matrix says that ours is
//! behind. `cargo xtask cells` copies; tidy reports a copy that is older than the matrix.

use std::fs;
use std::io;
use std::path::Path;

use crate::violation::Violation;
use crate::workspace::{self, TextFile};

const MATRIX: &str = "docs/matrix.md";
/// Stands for a cell that the matrix does not have.
const MISSING: &str = "not in the matrix";
const MARK: &str = "<!-- cells of docs/matrix.md -->";

/// Checks every copy.
pub fn check(files: &[TextFile]) -> Vec<Violation> {
    let copies = files.iter().filter(|file| is_copy(file));
    let stale = copies.filter(|file| {
        let text = refreshed(files, file);
        text != file.text || text.contains(MISSING)
    });
    stale
        .map(|file| {
            let what = "a table differs from docs/matrix.md, or names what is not there";
            let remedy = "run `cargo xtask cells`, and mend rows that the matrix does not have";
            Violation::error(&file.path, 0, "cells", what, remedy)
        })
        .collect()
}

/// Copies the cells anew.
///
/// # Errors
/// If a file cannot be read or written.
pub fn write(root: &Path) -> io::Result<()> {
    let files = workspace::read(root)?;
    for file in files.iter().filter(|file| is_copy(file)) {
        fs::write(root.join(&file.path), refreshed(&files, file))?;
    }
    Ok(())
}

fn is_copy(file: &TextFile) -> bool {
    file.path.ends_with(".md") && file.text.lines().any(|line| line == MARK)
}

/// The cells of a row, without the bold of a copy.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|').trim_end_matches('|');
    row.split('|')
        .map(|cell| cell.trim().replace("**", ""))
        .collect()
}

/// A file with its tables as the matrix has them.
fn refreshed(files: &[TextFile], file: &TextFile) -> String {
    let matrix = files.iter().find(|file| file.path == MATRIX);
    let matrix = matrix.map_or("", |file| file.text.as_str());
    let lines = matrix
        .lines()
        .skip_while(|line| !line.starts_with("| cell |"));
    let rows: Vec<Vec<String>> = lines
        .take_while(|line| line.starts_with('|'))
        .map(cells)
        .collect();
    let mut text = String::new();
    let mut columns: Option<Vec<String>> = None;
    let mut within = false;
    for line in file.text.lines() {
        if line == MARK {
            within = true;
        } else if within && line.starts_with('|') {
            match &columns {
                None => columns = Some(cells(line)),
                Some(_) if line.starts_with("|---") => {}
                Some(columns) => {
                    let name = cells(line).into_iter().next().unwrap_or_default();
                    text += &row(&rows, columns, &name);
                    continue;
                }
            }
        } else if !line.is_empty() {
            (within, columns) = (false, None);
        }
        text += line;
        text.push('\n');
    }
    text
}

/// A row of a copy.
fn row(rows: &[Vec<String>], columns: &[String], name: &str) -> String {
    let heads = rows.first().map_or(&[][..], Vec::as_slice);
    let found = rows
        .iter()
        .find(|row| row.first().is_some_and(|first| first == name));
    let of = |column: &str| -> &str {
        let place = heads.iter().position(|head| head == column);
        let cell = place.and_then(|place| found?.get(place));
        cell.map_or(MISSING, String::as_str)
    };
    let behind = of("verdict") == "behind";
    let best = of("best of ours : best peer")
        .rsplit(' ')
        .next()
        .unwrap_or("");
    let mut text = format!("| {name} |");
    for column in columns.iter().skip(1) {
        text += &match of(column) {
            cell if behind && column == best => format!(" **{cell}** |"),
            cell => format!(" {cell} |"),
        };
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const MATRIX_PAGE: &str = "# M\n\n| cell | best of ours : best peer | verdict | forest | leveldb |\n\
        |---|---|---|---:|---:|\n| scan | 0.74 [0.7, 0.8] forest : leveldb | behind | 3 | 4 |\n\
        | fill | 2.00 [1.9, 2.1] forest : leveldb | ahead | 8 | 4 |\n";

    fn with(copy: &str) -> Vec<TextFile> {
        let text = format!("before\n\n{MARK}\n\n{copy}\nafter | bar\n");
        vec![
            TextFile::new(MATRIX, MATRIX_PAGE),
            TextFile::new("README.md", &text),
        ]
    }

    #[test]
    fn copies_that_are_old_are_found_and_mended() {
        let heads = "| | leveldb | forest |\n|---|---:|---:|\n";
        let good = format!("{heads}| scan | **4** | 3 |\n| fill | 4 | 8 |\n");
        assert_eq!(check(&with(&good)).len(), 0);
        let old = with(&format!("{heads}| scan | 1 | 2 |\n| fill | 4 | 8 |\n"));
        assert_eq!(check(&old).len(), 1);
        assert_eq!(refreshed(&old, &old[1]), with(&good)[1].text);
    }

    #[test]
    fn rows_that_the_matrix_does_not_have_are_found() {
        let mut files = with("| | forest |\n|---|---:|\n| jump | 7 |\n");
        assert_eq!(check(&files).len(), 1);
        files[1].text = refreshed(&files, &files[1]);
        assert_eq!(check(&files).len(), 1, "also behind a copy");
    }
}
