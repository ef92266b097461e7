//! Where an interrupted import goes on.
//!
//! After each sync the place behind the last synced entry is kept in the
//! store's folder, in `IMPORT-<hash of the source>.json`:
//!
//! ```text
//! {"source_hex":"…","imported":{"entries":10000,"bytes":81234},"position":{"line":{"offset":90210,"line":10000}}}
//! ```
//!
//! It is written to another name, synced and renamed, after the store's sync,
//! so it never promises what could be lost; losing it, or its newest version, costs
//! only doing a part of the import again, which changes nothing. So the folder is
//! not synced. A finished import removes it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium::hash::lookup3_pair;
use cambium::hexdump::{from_hex, to_hex};
use cambium_io::{FileSystem, OpenOptions};
use serde::{Deserialize, Serialize};

use crate::dump::DumpState;
use crate::failure::Failure;
use crate::import::intake::Amount;
use crate::import::source::SourceName;
use crate::notation::{Reader, write_escaped};

/// Longer than any position file; bounds what is read.
const MAX_BYTES: usize = 1 << 20;

/// A place in a source, behind an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Position {
    /// Of a tree of files: the last path.
    File {
        /// In hexadecimal digits: paths need not be text.
        path_hex: String,
    },
    /// Of a file of lines.
    Line {
        /// Bytes from the start.
        offset: u64,
        /// Lines before it.
        line: u64,
    },
    /// Of a dump.
    Dump(DumpState),
    /// Of a foreign store: the last key.
    Key {
        /// Its column family or database; empty for the one without a name.
        part: String,
        /// In hexadecimal digits.
        key_hex: String,
    },
    /// Of a table: the key of the last row.
    Row {
        /// As SQL.
        key: String,
    },
    /// Of a server: where the page with the last key begins.
    Cursor {
        /// The server's cursor.
        cursor: String,
        /// The run of the server that gave it.
        run: String,
    },
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::File { path_hex } => write!(f, "file {}", escaped(path_hex)),
            Position::Line { line, .. } => write!(f, "line {line}"),
            Position::Dump(state) => write!(f, "entry {} of the dump", state.entries),
            Position::Key { part, key_hex } if part.is_empty() => {
                write!(f, "key {}", escaped(key_hex))
            }
            Position::Key { part, key_hex } => {
                write!(f, "key {} of {part:?}", escaped(key_hex))
            }
            Position::Row { key } => write!(f, "the row of key {key}"),
            Position::Cursor { cursor, .. } => write!(f, "the keys before cursor {cursor}"),
        }
    }
}

/// Bytes in the text notation.
fn escaped(hex: &str) -> String {
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    _ = write_escaped(
        &mut text,
        Reader::Person,
        &from_hex(hex).unwrap_or_default(),
    );
    String::from_utf8_lossy(&text).into_owned()
}

/// What is kept of an import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Synced so far.
    pub imported: Amount,
    /// Where it goes on.
    pub position: Position,
}

#[derive(Serialize, Deserialize)]
struct Content {
    source_hex: String,
    #[serde(flatten)]
    kept: Kept,
}

/// The file that keeps the place of one source in one store.
pub struct PositionFile {
    file_system: Arc<dyn FileSystem>,
    folder: PathBuf,
    path: PathBuf,
    source_hex: String,
}

impl PositionFile {
    /// The file for a source, in the store's folder.
    pub fn new(file_system: Arc<dyn FileSystem>, store: &Path, source: &SourceName) -> Self {
        let identity = source.identity();
        let (first, second) = lookup3_pair(&identity, 0, 0);
        PositionFile {
            file_system,
            folder: store.to_path_buf(),
            path: store.join(format!("IMPORT-{first:08x}{second:08x}.json")),
            source_hex: to_hex(&identity),
        }
    }

    /// What was kept, if anything.
    pub fn read(&self) -> Result<Option<Kept>, Failure> {
        if self.file_system.metadata(&self.path)?.is_none() {
            return Ok(None);
        }
        let file = self.file_system.open(&self.path, OpenOptions::READ)?;
        let mut bytes = vec![0; MAX_BYTES.min(file.length()? as usize)];
        let count = file.read_at(&mut bytes, 0)?;
        let content: Content = serde_json::from_slice(&bytes[..count]).map_err(|error| {
            Failure::failed(format!(
                "{}: {error}; import without --resume, which does everything again",
                self.path.display()
            ))
        })?;
        // Two sources of one hash: the other one's place is none of ours.
        Ok((content.source_hex == self.source_hex).then_some(content.kept))
    }

    /// Keeps a place; a power cut may leave the one before it.
    pub fn write(&self, kept: &Kept) -> Result<(), Failure> {
        let content = Content {
            source_hex: self.source_hex.clone(),
            kept: kept.clone(),
        };
        let text =
            serde_json::to_vec(&content).map_err(|error| Failure::file(&self.path, &error))?;
        let temporary = self.path.with_extension("new");
        let options = OpenOptions {
            truncate: true,
            ..OpenOptions::CREATE
        };
        let file = self.file_system.open(&temporary, options)?;
        let written = file
            .write_at(&text, 0)
            .and_then(|()| file.sync_data())
            .and_then(|()| self.file_system.rename(&temporary, &self.path));
        written.map_err(|error| {
            // On a full disk the store needs the draft's space.
            _ = self.file_system.remove(&temporary);
            error.into()
        })
    }

    /// Forgets the place.
    pub fn remove(&self) -> Result<(), Failure> {
        if self.file_system.metadata(&self.path)?.is_some() {
            self.file_system.remove(&self.path)?;
            self.file_system.sync_directory(&self.folder)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_place_comes_back_and_belongs_to_its_source_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file_system = cambium::Environment::real().file_system;
        let file = |source: &str| {
            let name = SourceName::parse(OsStr::new(source)).unwrap();
            PositionFile::new(file_system.clone(), folder.path(), &name)
        };
        let kept = Kept {
            imported: Amount {
                entries: 3,
                bytes: 9,
            },
            position: Position::File {
                path_hex: to_hex(b"a/\xff"),
            },
        };
        file("files:a").write(&kept).unwrap();
        assert_eq!(file("files:a").read().unwrap(), Some(kept));
        assert_eq!(file("tsv:a").read().unwrap(), None);
        file("files:a").remove().unwrap();
        assert_eq!(file("files:a").read().unwrap(), None);
    }
}
