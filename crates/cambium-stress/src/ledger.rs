//! What a worker meant to do, and what was answered, in files beside the store.
//!
//! Each thread appends lines to a file of its own, with one write to the operating
//! system each, so the file survives when the worker is killed:
//!
//! | line | meaning |
//! |---|---|
//! | `i N D F E...` | operation N begins: durability D (b, w, s), F the highest sequence number acknowledged to any thread, effects E |
//! | `a N S` | it was acknowledged with sequence number S (`-` where the call answers none) |
//! | `x N` | it was refused: nothing was written |
//!
//! Effects: `pID:LENGTH` put, `dID` delete, `rFROM-TO` delete a range of ids, `gGROUP:LENGTH`
//! put the keys of a shared group. An operation with neither answer may be in the store.
//! A last line without its end was cut off by a kill; its operation did not begin.
//!
//! `base-G.json` is the state that was verified when generation G began, and `G-T.log`
//! the lines of thread T since. A base appears under its name when it is whole.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::content::{GROUPS, KeyId, KeyShape, MEMBERS, SHARED, Version};

/// How safe a write was asked to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

    fn letter(self) -> char {
        match self {
            Level::Buffered => 'b',
            Level::Written => 'w',
            Level::Synced => 's',
        }
    }
}

/// One change that an operation makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Put {
        id: u32,
        length: u32,
    },
    Delete {
        id: u32,
    },
    /// Ids from the first to before the second.
    DeleteRange {
        from: u32,
        to: u32,
    },
    Group {
        group: usize,
        length: u32,
    },
}

/// What is known of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Acknowledged(Option<u64>),
    Refused,
    Unknown,
}

/// An operation as it was logged.
#[derive(Clone, Debug)]
pub struct Logged {
    pub number: u64,
    pub level: Level,
    pub floor: u64,
    pub effects: Vec<Effect>,
    pub outcome: Outcome,
}

/// The version that the effect at a place of an operation gives.
pub fn version_of(operation: u64, place: usize) -> u64 {
    operation << 8 | place.min(255) as u64
}

/// The state at the beginning of a generation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Base {
    pub generation: u64,
    /// Of each thread, what each id has.
    pub own: Vec<Vec<Option<Version>>>,
    /// What the keys of each group have.
    pub groups: Vec<Option<Version>>,
    /// Of each thread, the number of its next operation.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    let line = match event {
        Event::Closed => "closed\n".to_string(),
        Event::RollingBack(number) => format!("rolling-back {number}\n"),
        Event::RolledBack(number) => format!("rolled-back {number}\n"),
    };
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(log_path(folder, generation, MAIN))?;
    file.write_all(line.as_bytes())
}

/// The events of a generation.
pub fn events(folder: &Path, generation: u64) -> Vec<Event> {
    let text = fs::read_to_string(log_path(folder, generation, MAIN)).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |line: &str| {
        let (word, number) = line.split_once(' ').unwrap_or((line, "0"));
        let number = number.parse().ok()?;
        Some(match word {
            "closed" => Event::Closed,
            "rolling-back" => Event::RollingBack(number),
            _ => Event::RolledBack(number),
        })
    };
    whole.lines().filter_map(parse).collect()
}

/// The log of one thread, to be appended to.
pub struct Log {
    file: File,
    line: String,
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
            line: String::new(),
            gather,
        })
    }

    pub fn intent(
        &mut self,
        number: u64,
        level: Level,
        floor: u64,
        effects: &[Effect],
    ) -> io::Result<()> {
        _ = write!(self.line, "i {number} {} {floor}", level.letter());
        for effect in effects {
            _ = match effect {
                Effect::Put { id, length } => write!(self.line, " p{id}:{length}"),
                Effect::Delete { id } => write!(self.line, " d{id}"),
                Effect::DeleteRange { from, to } => write!(self.line, " r{from}-{to}"),
                Effect::Group { group, length } => write!(self.line, " g{group}:{length}"),
            };
        }
        self.end_line()
    }

    pub fn outcome(&mut self, number: u64, outcome: Outcome) -> io::Result<()> {
        _ = match outcome {
            Outcome::Acknowledged(Some(sequence)) => write!(self.line, "a {number} {sequence}"),
            Outcome::Acknowledged(None) => write!(self.line, "a {number} -"),
            Outcome::Refused => write!(self.line, "x {number}"),
            Outcome::Unknown => return Ok(()),
        };
        self.end_line()
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.line.push('\n');
        if self.gather && self.line.len() < 1 << 16 {
            return Ok(());
        }
        self.flush()
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(self.line.as_bytes())?;
        self.line.clear();
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
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut operations: Vec<Logged> = Vec::new();
    for line in whole.lines() {
        take_line(line, &mut operations)
            .ok_or_else(|| format!("{}: cannot read the line {line:?}", path.display()))?;
    }
    Ok(operations)
}

fn take_line(line: &str, operations: &mut Vec<Logged>) -> Option<()> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let number: u64 = words.next()?.parse().ok()?;
    if kind == "i" {
        let level = match words.next()? {
            "b" => Level::Buffered,
            "w" => Level::Written,
            _ => Level::Synced,
        };
        operations.push(Logged {
            number,
            level,
            floor: words.next()?.parse().ok()?,
            effects: words.map(parse_effect).collect::<Option<_>>()?,
            outcome: Outcome::Unknown,
        });
        return Some(());
    }
    let outcome = match (kind, words.next()) {
        ("a", Some("-")) => Outcome::Acknowledged(None),
        ("a", Some(sequence)) => Outcome::Acknowledged(Some(sequence.parse().ok()?)),
        _ => Outcome::Refused,
    };
    let operation = operations
        .iter_mut()
        .rev()
        .find(|operation| operation.number == number)?;
    operation.outcome = outcome;
    Some(())
}

fn parse_effect(word: &str) -> Option<Effect> {
    let (kind, rest) = word.split_at_checked(1)?;
    let pair = |by| {
        let (one, two) = rest.split_once(by)?;
        Some((one.parse::<u32>().ok()?, two.parse::<u32>().ok()?))
    };
    Some(match kind {
        "p" => pair(':').map(|(id, length)| Effect::Put { id, length })?,
        "d" => Effect::Delete {
            id: rest.parse().ok()?,
        },
        "r" => pair('-').map(|(from, to)| Effect::DeleteRange { from, to })?,
        "g" => pair(':').map(|(group, length)| Effect::Group {
            group: group as usize,
            length,
        })?,
        _ => return None,
    })
}
