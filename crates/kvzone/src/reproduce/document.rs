//! Puts a table between its markers in a document:
//!
//! ```text
//! <!-- begin zdb/table1 -->
//! ... replaced as a whole ...
//! <!-- end zdb/table1 -->
//! ```
//!
//! The documents are pages of this repository's book, whose commands run in a suite unless
//! they say why not.

use std::fs;
use std::path::Path;

use kvzone_core::error::{Error, Result};

/// Is there a place for the table?
pub(super) fn check(path: &Path, name: &str) -> Result<()> {
    replaced(path, &read(path)?, name, "").map(drop)
}

pub(super) fn update(path: &Path, name: &str, text: &str) -> Result<()> {
    let text = text.replace("```sh\n", "```sh ignore=takes-minutes\n");
    let new = replaced(path, &read(path)?, name, &text)?;
    fs::write(path, new).map_err(|error| Error::machine("write", path, error))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| Error::machine("read", path, error))
}

fn replaced(path: &Path, document: &str, name: &str, text: &str) -> Result<String> {
    let (begin, end) = (
        format!("<!-- begin {name} -->\n"),
        format!("<!-- end {name} -->"),
    );
    let parts = document.split_once(&begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(&end)?;
        Some((before, after))
    });
    let Some((before, after)) = parts else {
        let path = path.display();
        let markers = format!("{}{end}", begin.trim_end());
        return Err(Error::Usage(format!(
            "{path} has no place for the table: it needs the lines {markers}"
        )));
    };
    Ok(format!("{before}{begin}\n{}\n\n{end}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let path = Path::new("x.md");
        let document = "# A\n<!-- begin t -->\nold\n<!-- end t -->\nrest\n";
        let new = replaced(path, document, "t", "new\n").unwrap();
        let expected = "# A\n<!-- begin t -->\n\nnew\n\n<!-- end t -->\nrest\n";
        assert_eq!(new, expected);
        let again = replaced(path, &new, "t", "new").unwrap();
        assert_eq!(again, new, "doing it twice changes nothing");
    }

    #[test]
    fn a_document_without_a_place_is_a_usage_error_that_names_the_markers() {
        for document in ["", "<!-- begin t -->\n", "<!-- end t --><!-- begin t -->\n"] {
            let error = replaced(Path::new("x.md"), document, "t", "").unwrap_err();
            assert!(matches!(&error, Error::Usage(_)));
            assert!(error.to_string().contains("<!-- end t -->"));
        }
    }
}
