//! An iterator that reads ahead, several entries at a time.
//!
//! For a language whose every call into the store costs more than an entry does:
//! Python's gives its interpreter lock away and takes it back. A [`RunWalker`]
//! stands where a [`Walker`] would, and goes where it would; what differs is when
//! the store is asked. It is asked for one entry after a seek or a turn, then for
//! two, four, and so on up to [`MAX_RUN_ENTRIES`] or about [`MAX_RUN_BYTES`], and
//! steps within what was read ask nothing:
//!
//! ```text
//!   read: [a] [b c] [d e f g] ...      both ways within [d e f g]: no reading
//!              before d: seek d, turn, [c] [b a] ...
//! ```
//!
//! All of it is of one moment, so reading ahead shows nothing that a step at a time
//! would not. Two things are as if it read a step at a time: an error is answered
//! by the step that comes to it, and a database that was closed answers `Closed` at
//! the next step, also where the entry has been read.

use cambium::{Direction, Entry, Error, Result};

use crate::database::View;
use crate::walker::{Bounds, Walker};

/// Entries that are read at a time, at most.
pub const MAX_RUN_ENTRIES: usize = 1024;
/// Bytes of keys and values after which no more are read at a time.
pub const MAX_RUN_BYTES: usize = 256 << 10;

/// An iterator that reads ahead.
///
/// ```
/// use cambium_bindings::{Database, RunWalker, Settings, walker::Bounds};
/// use cambium::{Direction, Durability};
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// let settings = Settings { create_if_missing: true, ..Settings::default() };
/// let database = Database::open(folder.path(), &settings)?;
/// for tree in [b"ash", b"elm", b"oak", b"yew"] {
///     database.put(tree, b"", Durability::Written)?;
/// }
/// let mut walker = RunWalker::new(&database.view()?, &Bounds::default(), false);
/// walker.seek_to_first()?;
/// assert!(!walker.can_step(Direction::Forward));
/// walker.step(Direction::Forward)?; // reads two
/// assert!(walker.can_step(Direction::Forward));
/// assert_eq!(walker.entry().map(|entry| &*entry.key), Some(&b"elm"[..]));
/// # database.close()
/// # }
/// ```
#[derive(Debug)]
pub struct RunWalker {
    /// Stands at the last entry of the run, or nowhere after `ended` or `failed`.
    walker: Walker,
    view: View,
    /// Neighbours, in the direction in which they were read.
    run: Vec<Entry>,
    direction: Direction,
    /// Which of the run it stands at; none where the run is empty.
    at: usize,
    /// Nothing lies behind the run.
    ended: bool,
    /// What reading behind the run answered.
    failed: Option<Error>,
    /// How many entries are read the next time.
    next_entries: usize,
}

impl RunWalker {
    /// A walk over a database at one moment, unplaced at first; with empty values
    /// where only keys are wanted.
    pub fn new(view: &View, bounds: &Bounds, keys_only: bool) -> Self {
        RunWalker {
            walker: view.walker_of(bounds, keys_only),
            view: view.clone(),
            run: Vec::new(),
            direction: Direction::Forward,
            at: 0,
            ended: false,
            failed: None,
            next_entries: 1,
        }
    }

    /// The entry where it stands.
    pub fn entry(&self) -> Option<&Entry> {
        self.run.get(self.at)
    }

    /// True once the database was closed.
    pub fn is_closed(&self) -> bool {
        self.view.is_closed()
    }

    /// True if a step would not ask the store.
    pub fn can_step(&self, direction: Direction) -> bool {
        match direction == self.direction {
            _ if self.is_closed() => false,
            true => self.at + 1 < self.run.len(),
            false => self.at > 0,
        }
    }

    /// Goes to the first entry.
    ///
    /// # Errors
    /// What the store answers; it then stands at none. So do all moves.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.place(Direction::Forward, Walker::seek_to_first)
    }

    /// Goes to the last entry.
    ///
    /// # Errors
    /// As of [`RunWalker::seek_to_first`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.place(Direction::Reverse, Walker::seek_to_last)
    }

    /// Goes to the first entry at or behind a key.
    ///
    /// # Errors
    /// As of [`RunWalker::seek_to_first`].
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.place(Direction::Forward, |walker| walker.seek(key))
    }

    /// Goes to the entry behind, or the one before. Beyond either end it stands at
    /// no entry, and stays there.
    ///
    /// # Errors
    /// As of [`RunWalker::seek_to_first`].
    pub fn step(&mut self, direction: Direction) -> Result<()> {
        if self.is_closed() {
            self.leave();
            return Err(Error::Closed);
        }
        if self.run.is_empty() {
            return Ok(());
        }
        match direction == self.direction {
            true if self.at + 1 < self.run.len() => self.at += 1,
            true => return self.go_on(),
            false if self.at > 0 => self.at -= 1,
            false => return self.turn(direction),
        }
        Ok(())
    }

    fn place(
        &mut self,
        direction: Direction,
        seek: impl FnOnce(&mut Walker) -> Result<()>,
    ) -> Result<()> {
        self.leave();
        self.next_entries = 1;
        seek(&mut self.walker)?;
        self.read(direction);
        Ok(())
    }

    /// Goes from the last entry of the run to what lies behind it.
    fn go_on(&mut self) -> Result<()> {
        if let Some(error) = self.failed.take() {
            self.leave();
            return Err(error);
        }
        let ended = self.ended;
        self.leave();
        if ended {
            return Ok(());
        }
        self.walker.step(self.direction)?;
        self.read(self.direction);
        Ok(())
    }

    /// Goes from the first entry of the run the other way.
    fn turn(&mut self, direction: Direction) -> Result<()> {
        let first = self.run.swap_remove(0);
        let is_there = self.walker.key() == Some(&first.key);
        self.leave();
        self.next_entries = 1;
        if !is_there {
            self.walker.seek(&first.key)?;
        }
        self.walker.step(direction)?;
        self.read(direction);
        Ok(())
    }

    /// Reads a run that begins where the walker stands.
    fn read(&mut self, direction: Direction) {
        self.direction = direction;
        let most = self.next_entries;
        let read = self
            .walker
            .take_run(direction, most, MAX_RUN_BYTES, &mut self.run);
        self.ended = read.is_ok() && self.walker.entry().is_none();
        self.failed = read.err();
        self.next_entries = (most * 2).min(MAX_RUN_ENTRIES);
    }

    fn leave(&mut self) {
        self.run.clear();
        self.at = 0;
        self.ended = false;
        self.failed = None;
    }
}
