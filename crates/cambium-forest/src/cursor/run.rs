//! What a cursor answers from the sorted run.
//!
//! The run has whole keys of most entries. Of a cut one ([`crate::sorted_run`]) the
//! document is read where the cursor comes to it, or where what is known of the key does
//! not tell whether it comes to it; those after it are then read along.

use std::collections::VecDeque;
use std::sync::Arc;

use cambium_api::Direction;
use cambium_base::Result;

use super::is_nearer;
use crate::database::Document;
use crate::document::DocumentAddress;
use crate::sorted_run::{RunEntry, SortedRun};
use crate::view::Pin;

/// An entry, and its document where it was read for its key.
#[derive(Debug)]
struct Ahead {
    entry: RunEntry,
    read: Option<Document>,
}

/// A place in a run.
#[derive(Debug)]
pub(super) struct RunSource {
    run: Arc<SortedRun>,
    namespace: u16,
    direction: Direction,
    ahead: VecDeque<Ahead>,
    /// The block to go on with.
    next: Option<usize>,
    /// How many documents the next read brings.
    window: usize,
}

impl RunSource {
    /// Before its first entry is looked for.
    pub fn new(run: Arc<SortedRun>, namespace: u16, direction: Direction) -> Self {
        RunSource {
            run,
            namespace,
            direction,
            ahead: VecDeque::new(),
            next: None,
            window: 1,
        }
    }

    /// True if it has no further entries.
    pub fn is_over(&self) -> bool {
        self.ahead.is_empty() && self.next.is_none()
    }

    /// True if its next key, or that there is none, is known whatever other sources have.
    pub fn is_clear(&self) -> bool {
        match self.ahead.front() {
            Some(first) => first.entry.is_whole,
            None => self.next.is_none(),
        }
    }

    /// Goes to the first entry at a key or after it, in the direction, or to the first
    /// of all.
    pub fn seek(&mut self, pin: &Pin, key: Option<&[u8]>) -> Result<()> {
        self.ahead.clear();
        self.window = 1;
        let last = self.run.blocks(self.namespace).checked_sub(1);
        self.next = match (key, self.direction) {
            (Some(key), _) => self.run.block_of(self.namespace, key),
            (None, Direction::Forward) => last.map(|_| 0),
            (None, Direction::Reverse) => last,
        };
        let Some(key) = key else {
            return Ok(());
        };
        loop {
            self.fill();
            let Some(first) = self.ahead.front() else {
                return Ok(());
            };
            if first.entry.is_unclear_beside(key) {
                self.read(pin)?;
                continue;
            }
            if !is_nearer(self.direction, &first.entry.known, key) {
                return Ok(());
            }
            self.ahead.pop_front();
        }
    }

    /// Takes the next block where no entry is left.
    fn fill(&mut self) {
        while let (true, Some(number)) = (self.ahead.is_empty(), self.next) {
            let mut entries = self.run.block(self.namespace, number);
            self.next = match self.direction {
                Direction::Forward => {
                    Some(number + 1).filter(|&next| next < self.run.blocks(self.namespace))
                }
                Direction::Reverse => {
                    entries.reverse();
                    number.checked_sub(1)
                }
            };
            let ahead = |entry| Ahead { entry, read: None };
            self.ahead.extend(entries.into_iter().map(ahead));
        }
    }

    /// The next entry's key, whole, unless it certainly comes after another.
    pub fn key_up_to(&mut self, pin: &Pin, other: Option<&[u8]>) -> Result<Option<&[u8]>> {
        self.fill();
        let Some(first) = self.ahead.front() else {
            return Ok(None);
        };
        if !first.entry.is_whole {
            let entry = &first.entry;
            let is_behind = other.is_some_and(|other| {
                !entry.is_unclear_beside(other) && !is_nearer(self.direction, &entry.known, other)
            });
            if is_behind {
                return Ok(None);
            }
            self.read(pin)?;
        }
        Ok(self.ahead.front().map(|first| first.entry.known.as_slice()))
    }

    /// Takes the next entry if it is of a key; answers its document's address, or that
    /// it is a removal, and the document if it was read.
    pub fn take(&mut self, key: &[u8]) -> Option<(Option<DocumentAddress>, Option<Document>)> {
        let first = self.ahead.front()?;
        if !first.entry.is_whole || first.entry.known != key {
            return None;
        }
        let first = self.ahead.pop_front()?;
        Some((first.entry.document, first.read))
    }

    /// Reads the documents of the next entries that are cut.
    fn read(&mut self, pin: &Pin) -> Result<()> {
        let mut cut: Vec<&mut Ahead> = self
            .ahead
            .iter_mut()
            .filter(|ahead| !ahead.entry.is_whole)
            .take(self.window)
            .collect();
        let addresses: Vec<DocumentAddress> = cut
            .iter()
            .filter_map(|ahead| ahead.entry.document)
            .collect();
        let documents = pin.core.documents_of_walk(&pin.view.database, &addresses)?;
        for (ahead, document) in cut.iter_mut().zip(documents) {
            ahead.entry = RunEntry::whole(document.key.to_vec(), ahead.entry.document);
            ahead.read = Some(document);
        }
        self.window = (self.window * 2).min(pin.core.tuning.read_ahead);
        Ok(())
    }
}
