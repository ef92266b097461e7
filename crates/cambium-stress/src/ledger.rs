//! The intents of a worker and the answers that it got, in files beside the store.
//!
//! Each thread appends lines of JSON to a file of its own, with one write to the operating
//! system each, so the file survives when the worker is killed. A [`Line`] is an intent, which
//! is written before the call, or its outcome. An operation without an outcome may be in the
//! store. A last line without its end was cut off by a kill; its operation did not begin.
//!
//! `base-G.json` is the state that was verified when generation G began, and `G-T.log`
//! the lines of thread T since. A base appears under its name when it is whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::content::{GROUPS, KeyId, KeyShape, MEMBERS, SHARED, Version};

/// The durability that a write asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    Buffered,
    Written,
    Synced,
}

impl Level {
    pub fn durability(self) -> cambium::Durability {
        match self {
            Level::Buffered => cambium::Durability::Buffered,
            Level::Written => cambium::Durability::Written,
            Level::Synced => cambium::Durability::Synced,
        }
    }
}

/// One change that an operation makes.
#[rustfmt::skip] // one line each
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    Put { id: u32, length: u32 },
    Delete { id: u32 },
    /// Ids from the first to before the second.
    DeleteRange { from: u32, to: u32 },
    /// The keys of a shared group.
    Group { group: usize, length: u32 },
}

/// The answer of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// With its sequence number, if the call answers one.
    Acknowledged(Option<u64>),
    /// Nothing was written.
    Refused,
    #[default]
    Unknown,
}

/// An operation as it was logged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Logged {
    pub number: u64,
    pub level: Level,
    /// The highest sequence number that was acknowledged to any thread before it began.
    pub floor: u64,
    pub effects: Vec<Effect>,
    #[serde(skip)]
    pub outcome: Outcome,
}

/// A line of a thread's file.
#[derive(Serialize, Deserialize)]
enum Line {
    Intent(Logged),
    /// With the operation's number.
    Outcome(u64, Outcome),
}

/// The version that the effect at a place of an operation gives.
pub fn version_of(operation: u64, place: usize) -> u64 {
    operation << 8 | place.min(255) as u64
}

/// The state at the beginning of a generation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Base {
    pub generation: u64,
    /// The version of each id of each thread.
    pub own: Vec<Vec<Option<Version>>>,
    /// The version of each group.
    pub groups: Vec<Option<Version>>,
    /// The number of the next operation of each thread.
    pub next: Vec<u64>,
}

impl Base {
    pub fn empty(shape: &KeyShape) -> Self {
        Base {
            generation: 0,
            own: vec![vec![None; shape.keys as usize]; shape.threads],
            groups: vec![None; GROUPS],
            next: vec![1; shape.threads],
        }
    }

    /// The version of a key's value.
    pub fn version(&self, (thread, id): KeyId) -> Option<Version> {
        if thread == SHARED {
            self.groups[id as usize / MEMBERS]
        } else {
            self.own[thread][id as usize]
        }
    }

    fn path(folder: &Path, generation: u64) -> PathBuf {
        folder.join(format!("base-{generation}.json"))
    }

    /// Makes this the newest base. The one before it stays, for people.
    pub fn store(&self, folder: &Path) -> io::Result<()> {
        let draft = folder.join("base.draft");
        fs::write(&draft, serde_json::to_vec(self)?)?;
        fs::rename(&draft, Base::path(folder, self.generation))?;
        let Some(old) = self.generation.checked_sub(2) else {
            return Ok(());
        };
        _ = fs::remove_file(Base::path(folder, old));
        for thread in 0..self.own.len() {
            _ = fs::remove_file(log_path(folder, old, &thread.to_string()));
        }
        _ = fs::remove_file(log_path(folder, old, MAIN));
        Ok(())
    }

    /// The number of the newest base of a folder.
    pub fn newest(folder: &Path) -> io::Result<u64> {
        let mut newest = None;
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let number = name
                .strip_prefix("base-")
                .and_then(|rest| rest.strip_suffix(".json"));
            newest = newest.max(number.and_then(|number| number.parse::<u64>().ok()));
        }
        newest.ok_or_else(|| io::Error::other("the ledger has no base"))
    }

    /// The newest base of a folder.
    pub fn load(folder: &Path) -> io::Result<Self> {
        let newest = Base::newest(folder)?;
        Ok(serde_json::from_slice(&fs::read(Base::path(
            folder, newest,
        ))?)?)
    }
}

/// The log of what the whole store went through, one line each.
pub const MAIN: &str = "main";

/// Something that the whole store went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A close was answered without an error.
    Closed,
    /// A rollback to the state of this sequence number begins.
    RollingBack(u64),
    /// It was answered without an error.
    RolledBack(u64),
}

fn log_path(folder: &Path, generation: u64, who: &str) -> PathBuf {
    folder.join(format!("{generation}-{who}.log"))
}

/// Notes an event.
pub fn note(folder: &Path, generation: u64, event: Event) -> io::Result<()> {
    let line = serde_json::to_string(&event)? + "\n";
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(log_path(folder, generation, MAIN))?;
    file.write_all(line.as_bytes())
}

/// The events of a generation.
pub fn events(folder: &Path, generation: u64) -> Vec<Event> {
    let text = fs::read_to_string(log_path(folder, generation, MAIN)).unwrap_or_default();
    let parse = |line| serde_json::from_str(line).ok();
    whole_lines(&text).filter_map(parse).collect()
}

/// The lines that were written to their end.
fn whole_lines(text: &str) -> std::str::Lines<'_> {
    text.rfind('\n').map_or("", |end| &text[..end]).lines()
}

/// The log of one thread, to be appended to.
pub struct Log {
    file: File,
    lines: Vec<u8>,
    /// Lines gather in memory where nothing will kill the worker.
    gather: bool,
}

impl Log {
    pub fn open(folder: &Path, generation: u64, thread: usize, gather: bool) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(log_path(
            folder,
            generation,
            &thread.to_string(),
        ))?;
        Ok(Log {
            file,
            lines: Vec::new(),
            gather,
        })
    }

    pub fn intent(&mut self, operation: Logged) -> io::Result<()> {
        self.push(&Line::Intent(operation))
    }

    pub fn outcome(&mut self, number: u64, outcome: Outcome) -> io::Result<()> {
        self.push(&Line::Outcome(number, outcome))
    }

    fn push(&mut self, line: &Line) -> io::Result<()> {
        serde_json::to_writer(&mut self.lines, line)?;
        self.lines.push(b'\n');
        if self.gather && self.lines.len() < 1 << 16 {
            return Ok(());
        }
        self.flush()
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.lines)?;
        self.lines.clear();
        Ok(())
    }
}

/// Reads what all threads logged since a base.
pub fn read_all(folder: &Path, base: &Base) -> Result<Vec<Vec<Logged>>, String> {
    (0..base.own.len())
        .map(|thread| read(folder, base.generation, thread))
        .collect()
}

fn read(folder: &Path, generation: u64, thread: usize) -> Result<Vec<Logged>, String> {
    let path = log_path(folder, generation, &thread.to_string());
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let mut operations: Vec<Logged> = Vec::new();
    for line in whole_lines(&text) {
        match serde_json::from_str(line) {
            Ok(Line::Intent(operation)) => operations.push(operation),
            Ok(Line::Outcome(number, outcome)) => {
                let mut known = operations.iter_mut().rev();
                if let Some(operation) = known.find(|operation| operation.number == number) {
                    operation.outcome = outcome;
                }
            }
            Err(error) => return Err(format!("{}: {line:?}: {error}", path.display())),
        }
    }
    Ok(operations)
}
