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
//! A walk that has come to runs of full length, in the order of bytes, is read ahead by
//! a thread ([`reader`](crate::reader)), if that is free.
//!
//! All of it is of one moment, so reading ahead shows nothing that a step at a time
//! would not. Two things are as if it read a step at a time: an error is answered
//! by the step that comes to it, and a database that was closed answers `Closed` at
//! the next step, also where the entry has been read.

use std::sync::Arc;

use cambium::{Direction, Error, Result};

use crate::reader::{Ahead, Run};
pub use crate::reader::{MAX_RUN_BYTES, MAX_RUN_ENTRIES};
use crate::view::View;
use crate::walker::{Bounds, Walker};

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
/// assert_eq!(walker.entry(), Some((&b"elm"[..], &b""[..])));
/// # database.close()
/// # }
/// ```
#[derive(Debug)]
pub struct RunWalker {
    /// Stands at the last entry of the run, or nowhere where that has ended or failed.
    /// None while the walk is read ahead.
    walker: Option<Walker>,
    ahead: Option<Arc<Ahead>>,
    view: View,
    bounds: Bounds,
    keys_only: bool,
    /// Neighbours, in the direction in which they were read.
    run: Run,
    direction: Direction,
    /// Which of the run it stands at; none where the run is empty.
    at: usize,
    /// How many entries are read the next time.
    next_entries: usize,
}

impl RunWalker {
    /// A walk over a database at one moment, unplaced at first; with empty values
    /// where only keys are wanted.
    pub fn new(view: &View, bounds: &Bounds, keys_only: bool) -> Self {
        RunWalker {
            walker: Some(view.walker_of(bounds, keys_only)),
            ahead: None,
            view: view.clone(),
            bounds: bounds.clone(),
            keys_only,
            run: Run::default(),
            direction: Direction::Forward,
            at: 0,
            next_entries: 1,
        }
    }

    /// Key and value of the entry where it stands.
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.run.entry(self.at)
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

    /// True while a thread reads for it.
    pub fn is_read_ahead(&self) -> bool {
        self.ahead.is_some()
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
        let walker = self.own_walker();
        seek(walker)?;
        self.read(direction);
        Ok(())
    }

    /// The walker, taken back from whoever reads ahead.
    fn own_walker(&mut self) -> &mut Walker {
        if let Some(ahead) = self.ahead.take() {
            self.walker = ahead.recall();
        }
        let (view, bounds) = (&self.view, &self.bounds);
        let keys_only = self.keys_only;
        // A new one stands nowhere, as one that was taken back may.
        let new = || view.walker_of(bounds, keys_only);
        self.walker.get_or_insert_with(new)
    }

    /// Goes from the last entry of the run to what lies behind it.
    fn go_on(&mut self) -> Result<()> {
        if let Some(error) = self.run.failed.take() {
            self.leave();
            return Err(error);
        }
        if self.run.ended {
            self.leave();
            return Ok(());
        }
        if let Some(run) = self.ahead.as_ref().and_then(|ahead| ahead.next_run()) {
            self.run = run;
            self.at = 0;
            self.read_ahead();
            return match self.failed_at_once() {
                Some(error) => Err(error),
                None => Ok(()),
            };
        }
        self.move_from(self.run.len() - 1, self.direction)
    }

    /// What reading the run answered in the place of its first entry.
    fn failed_at_once(&mut self) -> Option<Error> {
        match self.run.is_empty() {
            true => self.run.failed.take(),
            false => None,
        }
    }

    /// Goes from the first entry of the run the other way.
    fn turn(&mut self, direction: Direction) -> Result<()> {
        self.next_entries = 1;
        self.move_from(0, direction)
    }

    /// Goes from an entry of the run to its neighbour, and reads from there on.
    fn move_from(&mut self, at: usize, direction: Direction) -> Result<()> {
        let key = self.run.entry(at).map(|(key, _)| key.to_vec());
        self.leave();
        let Some(key) = key else { return Ok(()) };
        let walker = self.own_walker();
        if walker.key().is_none_or(|there| **there != *key) {
            walker.seek(&key)?;
        }
        walker.step(direction)?;
        self.read(direction);
        Ok(())
    }

    /// Reads a run that begins where the walker stands.
    fn read(&mut self, direction: Direction) {
        self.direction = direction;
        let most = self.next_entries;
        self.next_entries = (most * 2).min(MAX_RUN_ENTRIES);
        if let Some(walker) = &mut self.walker {
            self.run.read(walker, direction, most);
        }
        let is_long = most == MAX_RUN_ENTRIES;
        let goes_on = !self.run.ended && self.run.failed.is_none();
        if is_long && goes_on && self.view.reader().can_read() {
            let is_alone = |walker: &mut Walker| walker.asks_the_store_alone();
            let walker = self.walker.take_if(is_alone);
            self.ahead = walker.map(|walker| Ahead::new(walker, direction));
            self.read_ahead();
        }
    }

    fn read_ahead(&self) {
        if let Some(ahead) = &self.ahead {
            self.view.reader().read_for(ahead);
        }
    }

    fn leave(&mut self) {
        self.run.clear();
        self.at = 0;
    }
}

impl Drop for RunWalker {
    fn drop(&mut self) {
        // The reader may have the last hold on the store: that goes here, not there.
        if let Some(ahead) = self.ahead.take() {
            drop(ahead.recall());
        }
    }
}
