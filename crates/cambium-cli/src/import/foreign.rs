//! LevelDB, RocksDB and LMDB as sources of entries.
//!
//! Their libraries are loaded when they are needed ([`cambium_foreign`]). The default
//! column family, or the database without a name, goes where entries go that name no
//! namespace; each other one is a namespace of its name.
//!
//! Damage in a file of LMDB can end the process that reads it: LMDB's own assertions
//! abort, and pages that a cut file lacks cannot be mapped. So a process of its own reads
//! the file first ([`read_lmdb`]), and the import begins when that process ended well.

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use cambium::hexdump::{from_hex, readable, to_hex};
use cambium::{KeyKind, limits};
use cambium_foreign::{Error, Reader, lmdb, log_structured};

use crate::failure::{Failure, Status};
use crate::import::position::Position;
use crate::import::source::{Item, Source, elsewhere};
use crate::notation::key_of_text;
use crate::progress::Meter;

/// Whose store it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    LevelDb,
    RocksDb,
    Lmdb,
}

/// A store of keys and values that is not ours.
pub struct ForeignSource {
    path: String,
    reader: Box<dyn Reader>,
    keys: KeyKind,
    /// The part that is read, by its place among the parts.
    at: usize,
    /// The reader stands in that part.
    has_begun: bool,
    /// Where to begin in it.
    behind: Option<Vec<u8>>,
    last: Option<Position>,
    left_out: u64,
}

impl ForeignSource {
    /// Opens it.
    pub fn open(kind: Foreign, path: &Path, keys: KeyKind) -> Result<Self, Failure> {
        let reader: Box<dyn Reader> = match kind {
            Foreign::LevelDb => {
                expect_file(path, "CURRENT", "a folder of LevelDB")?;
                refuse_rocksdb(path)?;
                Box::new(log_structured::Reader::leveldb(path)?)
            }
            Foreign::RocksDb => {
                expect_file(path, "CURRENT", "a folder of RocksDB")?;
                Box::new(log_structured::Reader::rocksdb(path)?)
            }
            Foreign::Lmdb => {
                if !path.is_file() {
                    expect_file(path, "data.mdb", "a file of LMDB, or a folder of it")?;
                }
                refuse_damaged_lmdb(path)?;
                Box::new(lmdb::Reader::open(path)?)
            }
        };
        Ok(ForeignSource {
            path: path.display().to_string(),
            left_out: reader.unfit_parts().len() as u64,
            reader,
            keys,
            at: 0,
            has_begun: false,
            behind: None,
            last: None,
        })
    }

    /// Goes to the next part that has something to be read.
    fn begin(&mut self, meter: &Meter) -> Result<bool, Failure> {
        if self.at == 0 && self.behind.is_none() {
            for unfit in self.reader.unfit_parts() {
                meter.say(&format!("{}: {unfit}; left out", self.path));
            }
        }
        let Some(part) = self.reader.parts().get(self.at).cloned() else {
            return Ok(false);
        };
        self.reader.begin(&part, self.behind.take().as_deref())?;
        self.has_begun = true;
        Ok(true)
    }
}

/// The command that is [`read_lmdb`] in a process of its own.
const READ_LMDB: &str = "read-lmdb";

/// Reads all of an LMDB environment, and keeps nothing.
pub fn read_lmdb(path: &Path) -> Result<Status, Failure> {
    const SMALLEST_PAGE: usize = 512;
    let failed = |error| match error {
        missing @ Error::Missing { .. } => missing.into(),
        error => Failure::file(path, &error),
    };
    let mut reader = lmdb::Reader::open(path).map_err(failed)?;
    for part in reader.parts().to_vec() {
        let (counted, mut read) = (reader.entries(&part).map_err(failed)?, 0);
        reader.begin(&part, None).map_err(failed)?;
        while let Some((key, value)) = reader.next_entry().map_err(failed)? {
            read += 1;
            for bytes in [key, value] {
                black_box(bytes.iter().step_by(SMALLEST_PAGE).max());
                black_box(bytes.last());
            }
            // A tree that repeats its pages may have no end.
            if read > counted {
                break;
            }
        }
        if read != counted {
            let found = match read > counted {
                true => "more".to_string(),
                false => read.to_string(),
            };
            return Err(Failure::failed(format!(
                "{}: damaged: database {part:?} counts {counted} entries, and {found} can be \
                 read; import a sound copy of it",
                path.display()
            )));
        }
    }
    Ok(Status::Done)
}

fn refuse_damaged_lmdb(path: &Path) -> Result<(), Failure> {
    // The path of a program file that was replaced names nothing, or another version.
    let program = match cfg!(target_os = "linux") {
        true => Ok(PathBuf::from("/proc/self/exe")),
        false => std::env::current_exe(),
    };
    let program = program.map_err(|error| Failure::file(Path::new("cambium"), &error))?;
    let mut command = Command::new(&program);
    command
        .args([READ_LMDB, "--"])
        .arg(path)
        .stdin(Stdio::null());
    let reading = command.output();
    let reading = reading.map_err(|error| Failure::file(&program, &error))?;
    let words = String::from_utf8_lossy(&reading.stderr);
    let words = words.trim_end();
    let Some(signal) = reading.status.signal() else {
        return match reading.status.success() {
            true => Ok(()),
            false => Err(Failure::failed(
                words.strip_prefix("cambium: ").unwrap_or(words),
            )),
        };
    };
    if ![libc::SIGABRT, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV].contains(&signal) {
        return Err(Failure::failed(format!(
            "{}: the process that read it was ended ({}); import it again",
            path.display(),
            reading.status
        )));
    }
    let file = match path.is_dir() {
        true => path.join("data.mdb"),
        false => path.to_path_buf(),
    };
    let length = std::fs::metadata(&file).map_err(|error| Failure::file(&file, &error))?;
    let expected = match lmdb::bytes_of_pages(&file) {
        Some(pages) => format!("its meta page counts pages of {pages} bytes"),
        None => "it has no meta page".to_string(),
    };
    let words = words.lines().next();
    let words = words.map_or(String::new(), |line| format!(", {line}"));
    Err(Failure::failed(format!(
        "{}: damaged: LMDB crashed when it read the file ({}{words}); it has {} bytes, and \
         {expected}; import a sound copy of it",
        file.display(),
        reading.status,
        length.len(),
    )))
}

/// Foreign libraries make folders that are not there, and files in those that are.
fn expect_file(folder: &Path, name: &str, expected: &str) -> Result<(), Failure> {
    let path = folder.join(name);
    match path.try_exists() {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::failed(format!(
            "{}: expected {expected}, with a file {name} in it",
            folder.display()
        ))),
        Err(error) => Err(Failure::file(&path, &error)),
    }
}

fn refuse_rocksdb(folder: &Path) -> Result<(), Failure> {
    let mut names = std::fs::read_dir(folder).map_err(|error| Failure::file(folder, &error))?;
    let is_options = |name: &str| name.starts_with("OPTIONS-");
    if names.any(|entry| entry.is_ok_and(|entry| is_options(&entry.file_name().to_string_lossy())))
    {
        return Err(Failure::usage(format!(
            "{0}: this is a folder of RocksDB; expected --from rocksdb:{0}",
            folder.display()
        )));
    }
    Ok(())
}

impl Source for ForeignSource {
    fn next_item(&mut self, meter: &Meter) -> Result<Option<Item>, Failure> {
        loop {
            if !self.has_begun && !self.begin(meter)? {
                return Ok(None);
            }
            let Some((key, value)) = self.reader.next_entry()? else {
                (self.at, self.has_begun) = (self.at + 1, false);
                continue;
            };
            let (foreign_key, value) = (key.to_vec(), value.to_vec());
            let part = &self.reader.parts()[self.at];
            self.last = Some(Position::Key {
                part: part.clone(),
                key_hex: to_hex(&foreign_key),
            });
            let namespace = (!part.is_empty()).then(|| Arc::from(part.as_str()));
            match item(namespace, foreign_key.clone(), value, self.keys) {
                Ok(item) => return Ok(Some(item)),
                Err(why) => {
                    let key = readable(&foreign_key);
                    meter.say(&format!("{}, key {key}: {why}; left out", self.path));
                    self.left_out += 1;
                }
            }
        }
    }

    fn position(&self) -> Option<Position> {
        self.last.clone()
    }

    fn resume(&mut self, position: &Position) -> Result<(), Failure> {
        let Position::Key { part, key_hex } = position else {
            return Err(elsewhere());
        };
        let at = self.reader.parts().iter().position(|name| name == part);
        let (Some(at), Some(key)) = (at, from_hex(key_hex)) else {
            return Err(Failure::failed(format!(
                "{}: there is no {part:?} in it any more; import without --resume",
                self.path
            )));
        };
        (self.at, self.behind) = (at, Some(key));
        Ok(())
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// An entry that the store can have, or why it cannot.
pub fn item(
    namespace: Option<Arc<str>>,
    key: Vec<u8>,
    value: Vec<u8>,
    keys: KeyKind,
) -> Result<Item, String> {
    let key = key_of_text(key, keys)?;
    let within = limits::check_key(&key).and(limits::check_value(&value));
    within.map_err(|error| error.to_string())?;
    Ok(Item {
        namespace,
        key,
        value,
        expires: None,
    })
}
