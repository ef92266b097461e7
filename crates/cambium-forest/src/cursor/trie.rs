//! What a cursor answers from a trie.
//!
//! Addresses are taken from the trie a leaf at a time. What they lead to is read ahead:
//! one document or packed block at first, then as many each time as there were so far. A
//! document of a packed block is made when the cursor comes to it, and no sooner.

use std::collections::VecDeque;

use cambium_api::{Direction, Entry};
use cambium_base::{Result, Value};

use super::READ_AHEAD_BYTES;
use crate::database::{Database, Document, DocumentBytes};
use crate::document::{DocumentAddress, PACKED_BLOCK_BYTES};
use crate::index::IndexCursor;
use crate::packed_reads::Stretch;
use crate::view::Pin;

/// Records that lie in so many bytes count as one read: a device brings them in little more
/// time than one of them.
const RECORDS_BYTES: u64 = 16 << 10;

/// What a cursor answers from the trie.
#[derive(Debug)]
pub(super) struct TrieSource {
    pub cursor: Option<IndexCursor>,
    pub ahead: VecDeque<Stretch>,
    front: Option<Document>,
    /// How many documents and blocks the next read brings.
    window: usize,
    /// How many were read since the cursor was put where it began.
    read: usize,
    ended: bool,
}

impl TrieSource {
    pub fn new(cursor: Option<IndexCursor>) -> Self {
        TrieSource {
            cursor,
            ahead: VecDeque::new(),
            front: None,
            window: 1,
            read: 0,
            ended: false,
        }
    }

    /// Forgets what was read ahead: the cursor is put elsewhere.
    pub fn restart(&mut self) {
        self.ahead.clear();
        self.front = None;
        self.window = 1;
        self.read = 0;
        self.ended = false;
    }

    /// Comes to no further document.
    pub fn end(&mut self) {
        self.restart();
        self.ended = true;
    }

    /// The key of the next document.
    pub fn peek(&mut self, pin: &Pin, direction: Direction) -> Result<Option<&[u8]>> {
        if self.front.is_none() {
            self.front = self.make_next(pin, direction)?;
        }
        Ok(self.front.as_ref().map(|document| &*document.key))
    }

    /// The document whose key was peeked at.
    pub fn take(&mut self) -> Option<Document> {
        self.front.take()
    }

    /// Takes it if it has a key.
    pub fn take_if(&mut self, key: &[u8]) {
        self.front.take_if(|front| *front.key == *key);
    }

    /// The next entry, if it lies in the packed block or run of records at hand.
    #[inline]
    pub fn next_neighbour(&mut self, database: &Database) -> Result<Option<Entry>> {
        match (&self.front, self.ahead.front_mut()) {
            (None, Some(stretch)) => stretch.next_neighbour(database),
            _ => Ok(None),
        }
    }

    /// The same, where it lies.
    #[inline]
    pub fn neighbour(&mut self, database: &Database) -> Result<Option<DocumentBytes<'_>>> {
        match (&self.front, self.ahead.front_mut()) {
            (None, Some(stretch)) => stretch.neighbour(database),
            _ => Ok(None),
        }
    }

    /// Goes back before the last neighbour.
    pub fn step_back(&mut self) {
        if let Some(stretch) = self.ahead.front_mut() {
            stretch.step_back();
        }
    }

    /// The key of the entry that was answered last as a neighbour.
    pub fn last_neighbour(&self, database: &Database) -> Option<Value> {
        self.ahead.front()?.last_neighbour(database)
    }

    /// The next document.
    pub fn next(&mut self, pin: &Pin, direction: Direction) -> Result<Option<Document>> {
        match self.front.take() {
            Some(front) => Ok(Some(front)),
            None => self.make_next(pin, direction),
        }
    }

    fn make_next(&mut self, pin: &Pin, direction: Direction) -> Result<Option<Document>> {
        loop {
            if let Some(stretch) = self.ahead.front_mut() {
                if let Some(document) = stretch.next(&pin.view.database)? {
                    return Ok(Some(document));
                }
                self.ahead.pop_front();
                continue;
            }
            if self.ended {
                return Ok(None);
            }
            self.read_ahead(pin, direction)?;
        }
    }

    fn read_ahead(&mut self, pin: &Pin, direction: Direction) -> Result<()> {
        let Some(cursor) = &mut self.cursor else {
            self.ended = true;
            return Ok(());
        };
        let database = &pin.view.database;
        let nodes = pin.core.nodes(database);
        let forward = direction == Direction::Forward;
        let mut addresses: Vec<DocumentAddress> = Vec::with_capacity(self.window);
        let (mut reads, mut bytes, mut unit) = (0, 0, None);
        while reads < self.window && bytes < READ_AHEAD_BYTES && !self.ended {
            let there = cursor.advance_many(&nodes, forward, |address| {
                let (whole, of_unit, own) = match address.is_packed() {
                    true => (PACKED_BLOCK_BYTES, PACKED_BLOCK_BYTES, 0),
                    false => (RECORDS_BYTES, 0, address.most_bytes()),
                };
                let next = Some((address.start() / whole, whole));
                if next != unit {
                    if reads == self.window || bytes >= READ_AHEAD_BYTES {
                        return false;
                    }
                    reads += 1;
                    unit = next;
                    bytes += of_unit;
                }
                bytes += own;
                addresses.push(address);
                true
            });
            self.ended = !there?;
        }
        let most = pin.core.tuning.read_ahead;
        let keep = self.window < most;
        self.ahead = pin.core.stretches(database, &addresses, keep)?;
        self.read += self.window;
        self.window = self.read.min(most);
        Ok(())
    }
}
