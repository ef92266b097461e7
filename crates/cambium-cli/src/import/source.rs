//! What every source of an import is, and how one is named.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium::{Store, UnixMillis};

use crate::failure::Failure;
use crate::import::dumps::DumpSource;
use crate::import::files::FileSource;
use crate::import::foreign::{Foreign, ForeignSource};
use crate::import::lines::{LineKind, LineSource};
use crate::import::position::Position;
use crate::import::redis::RedisSource;
use crate::import::tables::TableSource;
use crate::progress::Meter;

/// Bytes read from a file at once.
const READ_BYTES: usize = 256 << 10;

/// A key and its value, checked against the limits and the store's kind of keys.
#[derive(Debug, PartialEq, Eq)]
pub struct Item {
    /// The namespace that the source names; `None` if it names none.
    pub namespace: Option<Arc<str>>,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// The moment at which the entry expires.
    pub expires: Option<UnixMillis>,
}

/// Where entries come from, in an order that is the same each time.
pub trait Source {
    /// The next entry, or `None` at the end. What is left out (and goes on)
    /// is said on the meter; a failure says where, and what was expected.
    fn next_item(&mut self, meter: &Meter) -> Result<Option<Item>, Failure>;

    /// Behind the last entry answered; `None` before the first.
    fn position(&self) -> Option<Position>;

    /// Moves behind a place that an earlier run kept; called before the first
    /// entry is asked for.
    fn resume(&mut self, position: &Position) -> Result<(), Failure>;

    /// Parts of the input that were left out since they could not be read.
    fn left_out(&self) -> u64 {
        0
    }
}

/// A source as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceName {
    kind: SourceKind,
    /// A file or folder; `-` is standard input.
    path: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceKind {
    Files,
    Lines(LineKind),
    Dump,
    Foreign(Foreign),
    Table,
    Redis,
}

/// How each is named: before the colon, and behind it.
const KINDS: [(&str, &str, SourceKind); 9] = [
    ("files:", "DIR", SourceKind::Files),
    ("jsonl:", "FILE", SourceKind::Lines(LineKind::Json)),
    ("tsv:", "FILE", SourceKind::Lines(LineKind::Tabs)),
    ("dump:", "FILE", SourceKind::Dump),
    ("leveldb:", "DIR", SourceKind::Foreign(Foreign::LevelDb)),
    ("rocksdb:", "DIR", SourceKind::Foreign(Foreign::RocksDb)),
    ("lmdb:", "FILE", SourceKind::Foreign(Foreign::Lmdb)),
    ("sqlite:", "FILE#TABLE", SourceKind::Table),
    ("redis:", "HOST:PORT", SourceKind::Redis),
];

/// The refusal of a kept position that cannot be of the source.
pub fn elsewhere() -> Failure {
    Failure::failed("the kept position is of another kind of source; import without --resume")
}

impl SourceName {
    /// Parses `KIND:PATH`.
    pub fn parse(text: &OsStr) -> Result<Self, Failure> {
        let bytes = text.as_bytes();
        for (prefix, _, kind) in KINDS {
            let path = bytes.strip_prefix(prefix.as_bytes());
            if let Some(path) = path.filter(|path| !path.is_empty()) {
                return Ok(SourceName {
                    kind,
                    path: PathBuf::from(OsStr::from_bytes(path)),
                });
            }
        }
        Err(Failure::usage(format!(
            "--from {}: expected {}",
            text.to_string_lossy(),
            KINDS
                .map(|(kind, place, _)| format!("{kind}{place}"))
                .join(", ")
        )))
    }

    /// True for `-`.
    pub fn is_standard_input(&self) -> bool {
        self.path == Path::new("-")
    }

    /// What tells this source from others, for keeping its position: the kind
    /// and the path with links and dots resolved.
    pub fn identity(&self) -> Vec<u8> {
        let (path, table) = self.path_and_table();
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let kind = KINDS.iter().find(|(_, _, kind)| *kind == self.kind);
        let kind = kind.map_or("", |(prefix, _, _)| prefix);
        let cut: &[u8] = if table.is_empty() { b"" } else { b"#" };
        [kind.as_bytes(), path.as_os_str().as_bytes(), cut, table].concat()
    }

    /// A table's file and name; of others the path, and nothing.
    fn path_and_table(&self) -> (&Path, &[u8]) {
        let bytes = self.path.as_os_str().as_bytes();
        // Both names may have a `#`: the file is the longest that is there.
        let cuts = || (0..bytes.len()).rev().filter(|&at| bytes[at] == b'#');
        let is_file = |at: &usize| Path::new(OsStr::from_bytes(&bytes[..*at])).is_file();
        let cut = cuts().find(is_file).or_else(|| cuts().next());
        match cut.filter(|_| self.kind == SourceKind::Table) {
            Some(at) => (Path::new(OsStr::from_bytes(&bytes[..at])), &bytes[at + 1..]),
            None => (&self.path, b""),
        }
    }

    /// Opens it for a store.
    pub fn open(&self, store: &Store) -> Result<Box<dyn Source>, Failure> {
        let keys = store.capabilities().keys;
        Ok(match self.kind {
            SourceKind::Files => Box::new(FileSource::open(&self.path, store.path(), keys)?),
            SourceKind::Lines(kind) => {
                Box::new(LineSource::new(kind, Input::open(&self.path)?, keys))
            }
            SourceKind::Dump => Box::new(DumpSource::open(Input::open(&self.path)?, keys)?),
            SourceKind::Foreign(kind) => Box::new(ForeignSource::open(kind, &self.path, keys)?),
            SourceKind::Table => {
                let (file, table) = self.path_and_table();
                if table.is_empty() {
                    return Err(Failure::usage(format!(
                        "--from sqlite:{}: expected sqlite:FILE#TABLE",
                        self.path.display()
                    )));
                }
                let table = String::from_utf8_lossy(table);
                Box::new(TableSource::open(file, &table, keys)?)
            }
            SourceKind::Redis => {
                Box::new(RedisSource::connect(&self.path.to_string_lossy(), keys)?)
            }
        })
    }
}

/// A file or standard input, with the name that messages call it by.
pub struct Input {
    name: String,
    reader: Reader,
}

enum Reader {
    File(BufReader<File>),
    Standard(BufReader<io::Stdin>),
}

impl Input {
    fn open(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Input {
                name: "standard input".to_string(),
                reader: Reader::Standard(BufReader::with_capacity(READ_BYTES, io::stdin())),
            });
        }
        let failed = |error: io::Error| Failure::file(path, &error);
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_dir() {
            return Err(Failure::failed(format!(
                "{}: expected a file, this is a folder; files:DIR imports one",
                path.display()
            )));
        }
        Ok(Input {
            name: path.display().to_string(),
            reader: Reader::File(BufReader::with_capacity(READ_BYTES, file)),
        })
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Moves to an offset from the start: by seeking in a file, by reading in
    /// what cannot seek. `taken` bytes were read from it before.
    pub fn move_to(&mut self, offset: u64, taken: u64) -> Result<(), Failure> {
        let moved = match &mut self.reader {
            Reader::File(file) => match file.seek(SeekFrom::Start(offset)) {
                // A pipe with a name.
                Err(error) if error.kind() == io::ErrorKind::NotSeekable => {
                    discard(file, offset - taken.min(offset))
                }
                Err(error) => Err(error),
                Ok(_) => file.get_ref().metadata().and_then(|metadata| {
                    if metadata.len() < offset && metadata.is_file() {
                        return Err(too_short());
                    }
                    Ok(())
                }),
            },
            Reader::Standard(input) => discard(input, offset - taken.min(offset)),
        };
        moved.map_err(|error| {
            Failure::failed(format!(
                "{}: cannot go on at offset {offset}: {error}; import without --resume",
                self.name
            ))
        })
    }
}

fn discard(reader: &mut dyn Read, count: u64) -> io::Result<()> {
    let passed = io::copy(&mut reader.take(count), &mut io::sink())?;
    if passed < count {
        return Err(too_short());
    }
    Ok(())
}

fn too_short() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "it is shorter than it was when the import was interrupted",
    )
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.reader {
            Reader::File(file) => file.read(buffer),
            Reader::Standard(input) => input.read(buffer),
        }
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match &mut self.reader {
            Reader::File(file) => file.fill_buf(),
            Reader::Standard(input) => input.fill_buf(),
        }
    }

    fn consume(&mut self, count: usize) {
        match &mut self.reader {
            Reader::File(file) => file.consume(count),
            Reader::Standard(input) => input.consume(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_known_kind_and_a_path() {
        let name = SourceName::parse(OsStr::new("files:a:b")).unwrap();
        assert_eq!(name.path, Path::new("a:b"));
        for text in ["a", "files:", "csv:a", ""] {
            assert!(SourceName::parse(OsStr::new(text)).is_err(), "{text}");
        }
    }
}
