//! The book: `docs/` as mdBook builds it.
//!
//! `docs/SUMMARY.md` is the table of contents, and every page of `docs/` is in it. A page links
//! to the code by relative paths, so that its links work where the repository is shown.
//! [`copy`] prepares the folder that mdBook reads: there, links that leave `docs/` lead to the
//! repository's address.

use std::fs;
use std::io;
use std::path::Path;

use crate::links::{self, Piece};
use crate::violation::Violation;
use crate::workspace::{self, TextFile};

const FOLDER: &str = "docs/";
const CONTENTS: &str = "docs/SUMMARY.md";

/// Checks that the table of contents names every page.
pub fn check(files: &[TextFile]) -> Vec<Violation> {
    let contents = files.iter().find(|file| file.path == CONTENTS);
    let listed: Vec<String> = contents.map_or_else(Vec::new, |file| {
        let targets = links::links(&file.text).into_iter();
        targets
            .filter_map(|(_, target)| links::resolve(CONTENTS, &target))
            .collect()
    });
    let pages = files.iter().filter(|file| {
        file.path.starts_with(FOLDER) && file.path.ends_with(".md") && file.path != CONTENTS
    });
    pages
        .filter(|page| !listed.contains(&page.path))
        .map(|page| {
            let remedy = "add the page to docs/SUMMARY.md";
            Violation::error(&page.path, 0, "book", "is not in the book", remedy)
        })
        .collect()
}

/// Writes the book's sources into `to`: `book.toml`, and every other file of `docs/` in `src/`.
/// Links that leave `docs/` lead to the same path below `address`.
///
/// # Errors
/// If a file cannot be read or written.
pub fn copy(root: &Path, to: &Path, address: &str) -> io::Result<()> {
    for file in workspace::read(root)? {
        let Some(name) = file.path.strip_prefix(FOLDER) else {
            continue;
        };
        let target = match name {
            "book.toml" => to.join(name),
            _ => to.join("src").join(name),
        };
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder)?;
        }
        let text = match name.ends_with(".md") {
            true => outward(&file, address),
            false => file.text,
        };
        fs::write(target, text)?;
    }
    Ok(())
}

/// A page whose links out of `docs/` are addresses.
fn outward(file: &TextFile, address: &str) -> String {
    let mut text = String::new();
    for piece in links::pieces(&file.text) {
        match piece {
            Piece::Text(piece) => text += piece,
            Piece::Target(target) => {
                let (path, _) = target.split_once('#').unwrap_or((target, ""));
                match links::resolve(&file.path, path) {
                    Some(path) if !target.contains("://") && !path.starts_with(FOLDER) => {
                        text = text + address + "/" + &path;
                    }
                    _ => text += target,
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_outside_the_contents_are_found() {
        let files = [
            TextFile::new(CONTENTS, "- [A](a.md)\n- [B](engines/b.md)\n"),
            TextFile::new("docs/a.md", ""),
            TextFile::new("docs/engines/b.md", ""),
            TextFile::new("docs/engines/c.md", ""),
            TextFile::new("README.md", ""),
        ];
        let found = check(&files);
        let paths: Vec<&str> = found.iter().map(|found| found.path.as_str()).collect();
        assert_eq!(paths, ["docs/engines/c.md"]);
    }

    #[test]
    fn links_out_of_the_book_become_addresses() {
        let page = "[a](../crates/a.rs) and [b](b.md#c), [d](https://e/f)\n```\n[x](../y)\n```\n";
        let file = TextFile::new("docs/page.md", page);
        let expected =
            "[a](https://h/crates/a.rs) and [b](b.md#c), [d](https://e/f)\n```\n[x](../y)\n```\n";
        assert_eq!(outward(&file, "https://h"), expected);
    }

    #[test]
    fn the_sources_lie_where_mdbook_looks() {
        let (root, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(root.path().join("docs/format")).unwrap();
        fs::write(root.path().join("docs/book.toml"), "[book]\n").unwrap();
        fs::write(root.path().join("docs/format/a.md"), "[r](../../R.md)\n").unwrap();
        copy(root.path(), to.path(), "https://h").unwrap();
        assert!(to.path().join("book.toml").is_file());
        let page = fs::read_to_string(to.path().join("src/format/a.md")).unwrap();
        assert_eq!(page, "[r](https://h/R.md)\n");
    }
}
