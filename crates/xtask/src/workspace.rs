//! Finding and reading the files that the rules look at.
//!
//! Every text file below the root counts, except build output and version
//! control. Paths are relative to the root, with `/` between folders, so that
//! reports read the same everywhere.

use std::fs;
use std::io;
use std::path::Path;

/// Names that hold nothing written by people.
const SKIPPED: &[&str] = &["target", ".git", "corpus", "artifacts"];
/// Larger files are data, not text.
const MOST_BYTES: u64 = 1 << 20;

/// One text file of the workspace.
#[derive(Clone, Debug)]
pub struct TextFile {
    /// Relative to the root.
    pub path: String,
    /// The content.
    pub text: String,
}

impl TextFile {
    /// A file that exists only in a test.
    pub fn new(path: &str, text: &str) -> Self {
        TextFile {
            path: path.to_string(),
            text: text.to_string(),
        }
    }

    /// The crate a file belongs to: the folder's name under `crates/`.
    pub fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// True for Rust source.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// True for files that only tests, benchmarks or examples compile.
    pub fn is_test(&self) -> bool {
        let mut parts = self.path.split('/').rev();
        let name = parts.next().unwrap_or_default();
        name == "tests.rs"
            || name.ends_with("_tests.rs")
            || parts.any(|folder| matches!(folder, "tests" | "benches" | "examples" | "fuzz"))
    }
}

/// Every text file below `root`, sorted by path.
///
/// # Errors
/// If a folder or file cannot be read. Files that are not UTF-8 are no text
/// and are passed over.
pub fn read(root: &Path) -> io::Result<Vec<TextFile>> {
    let mut files = Vec::new();
    read_folder(root, "", &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn read_folder(folder: &Path, prefix: &str, files: &mut Vec<TextFile>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        // In a linked worktree `.git` is a file.
        if SKIPPED.contains(&name.as_str()) {
            continue;
        }
        let path = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() {
            read_folder(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file() && entry.metadata()?.len() <= MOST_BYTES {
            if let Ok(text) = String::from_utf8(fs::read(entry.path())?) {
                files.push(TextFile { path, text });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_files_are_told_from_library_files() {
        for path in [
            "crates/a/tests/crash.rs",
            "crates/a/src/log/tests.rs",
            "crates/a/benches/get.rs",
        ] {
            assert!(TextFile::new(path, "").is_test(), "{path}");
        }
        assert!(!TextFile::new("crates/a/src/latest.rs", "").is_test());
        let file = TextFile::new("crates/a/src/b.rs", "");
        assert_eq!(file.crate_name(), Some("a"));
    }

    #[test]
    fn build_output_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("target/debug")).unwrap();
        fs::write(folder.path().join("target/debug/a.rs"), "x").unwrap();
        fs::write(folder.path().join("b.rs"), "y").unwrap();
        let files = read(folder.path()).unwrap();
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["b.rs"]);
    }
}
