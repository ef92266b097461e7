//! Cursors: the write buffers and a trie, merged in key order at one moment.
//!
//! ```text
//! active buffer  ─┐
//! sealed buffer  ─┼─▶ merge: nearest key, newest source wins, removals hide ─▶ entries
//! sorted run     ─┤        documents read ahead, in batches that grow
//! trie           ─┘
//! ```
//!
//! A cursor pins its moment, so it sees the same state however long it lives,
//! through flushes and compaction. It holds no lock and borrows nothing. The
//! trie knows chunks of keys only, so its documents are read to learn their
//! keys; the more a cursor is asked for, the more of them it reads together.

mod buffers;
mod run;
#[cfg(test)]
mod tests;
mod trie;
mod visit;

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};

use cambium_api::{Cursor, Direction, Entry, KeyRange, ResumeToken, Visit};
use cambium_base::{Error, Result, Value};

use crate::database::Document;
use crate::document::DocumentAddress;
use crate::options::ENGINE;
use crate::ranges::RangeSet;
use crate::view::Pin;
use buffers::BufferSource;
use run::RunSource;
use trie::TrieSource;

/// Bytes of documents that are read ahead together, and one document more.
const READ_AHEAD_BYTES: u64 = 2 << 20;

/// An entry, its document perhaps not read yet.
#[derive(Debug)]
enum Candidate {
    Read(Document),
    Buffered(Box<[u8]>, DocumentAddress),
}

impl Candidate {
    fn most_bytes(&self) -> u64 {
        match self {
            Candidate::Read(document) => (document.key.len() + document.value.len()) as u64,
            Candidate::Buffered(_, address) => address.most_bytes(),
        }
    }
}

/// What the newest of buffers and run has of a key.
enum Newest {
    Removed,
    At(DocumentAddress),
    Read(Document),
}

/// True if `one` comes before `other` in a direction.
fn is_nearer(direction: Direction, one: &[u8], other: &[u8]) -> bool {
    match direction {
        Direction::Forward => one < other,
        Direction::Reverse => one > other,
    }
}

/// True if a key lies past the end of a range, the way that a cursor goes.
#[inline]
fn is_behind(range: &KeyRange, direction: Direction, key: &[u8]) -> bool {
    match direction {
        Direction::Forward => range.to.as_deref().is_some_and(|to| key >= to),
        Direction::Reverse => range.from.as_deref().is_some_and(|from| key < from),
    }
}

/// Walks the entries of a namespace at a pinned moment.
#[derive(Debug)]
pub(crate) struct EntryCursor {
    pin: Pin,
    namespace: u16,
    range: KeyRange,
    direction: Direction,
    buffers: Vec<BufferSource>,
    run: RunSource,
    /// The nearest key of buffers and run, once it was looked for; while it stays what it
    /// is, whatever the trie comes to.
    nearest: Option<Option<Vec<u8>>>,
    trie: TrieSource,
    /// Deleted ranges of the buffers: they hide what the trie has.
    deleted: RangeSet,
    ready: VecDeque<Candidate>,
    /// How many entries the next fill makes ready.
    window: usize,
    ended: bool,
    started: bool,
    /// Nothing but the trie has entries left, and it stands within the range.
    is_trie_alone: bool,
    last: Option<Value>,
    /// The last entry is the trie's last neighbour, and not in `last`.
    is_last_in_trie: bool,
}

impl EntryCursor {
    /// Before the first entry of a range, in a direction.
    pub fn new(pin: Pin, namespace: u16, range: KeyRange, direction: Direction) -> Self {
        let root = pin.view.root(namespace).root;
        let deleted = pin.view.deleted(namespace, pin.sequence);
        let buffers = pin
            .view
            .buffers()
            .map(|buffer| BufferSource::new(buffer.clone()))
            .collect();
        EntryCursor {
            buffers,
            run: RunSource::new(pin.view.run.clone(), namespace, direction),
            nearest: None,
            trie: TrieSource::new(root.map(|root| pin.core.index.cursor(root))),
            deleted,
            pin,
            namespace,
            range,
            direction,
            ready: VecDeque::new(),
            window: 1,
            ended: false,
            started: false,
            is_trie_alone: false,
            last: None,
            is_last_in_trie: false,
        }
    }

    /// Goes on after the last entry before a token was taken.
    pub fn resumed(pin: Pin, namespace: u16, token: &ResumeToken) -> Result<Self> {
        let mut range = KeyRange::all();
        let mut last = None;
        match token.as_bytes() {
            [TOKEN_BEGIN] => {}
            [TOKEN_BEHIND, key @ ..] => {
                // The first key after `key` is `key` and a zero.
                let mut from = key.to_vec();
                from.push(0);
                range.from = Some(from);
                last = Some(Value::copy_of(key));
            }
            _ => {
                return Err(Error::InvalidArgument(format!(
                    "the resume token is none of engine {ENGINE}"
                )));
            }
        }
        let mut cursor = Self::new(pin, namespace, range, Direction::Forward);
        cursor.last = last;
        Ok(cursor)
    }

    /// Puts all sources at the first key at or after `key`, or at the first
    /// of all.
    fn place(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.keep_last();
        self.is_trie_alone = false;
        self.ready.clear();
        self.nearest = None;
        self.ended = false;
        self.started = true;
        self.window = 1;
        for buffer in &mut self.buffers {
            buffer.seek(key.map_or(Bound::Unbounded, |key| Bound::Included(key.to_vec())));
        }
        self.run.seek(&self.pin, key)?;
        self.place_trie(key)
    }

    fn place_trie(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.trie.restart();
        let forward = self.direction == Direction::Forward;
        if let Some(cursor) = &mut self.trie.cursor {
            let database = &self.pin.view.database;
            let nodes = self.pin.core.nodes(database);
            let keys = self.pin.core.keys(database);
            match key {
                Some(key) => cursor.seek(&nodes, &keys, key, forward)?,
                None => cursor.begin(&nodes, forward)?,
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<()> {
        let bound = match self.direction {
            Direction::Forward => self.range.from.clone(),
            Direction::Reverse => self.range.to.clone(),
        };
        self.place(bound.as_deref())
    }

    /// The nearest key of buffers and run, whole.
    fn nearest_buffered(&mut self) -> Result<Option<Vec<u8>>> {
        let mut nearest: Option<Vec<u8>> = None;
        for source in &mut self.buffers {
            if let Some(key) = source.peek(&self.pin, self.namespace, self.direction) {
                let is_nearest = |nearest: &Vec<u8>| is_nearer(self.direction, key, nearest);
                if nearest.as_ref().is_none_or(is_nearest) {
                    nearest = Some(key.to_vec());
                }
            }
        }
        if self.run.is_over() {
            return Ok(nearest);
        }
        let in_trie = self.trie.peek(&self.pin, self.direction)?;
        let other = match (nearest.as_deref(), in_trie) {
            (Some(one), Some(other)) if is_nearer(self.direction, other, one) => Some(other),
            (None, other) => other,
            (one, _) => one,
        };
        let in_run = self.run.key_up_to(&self.pin, other)?;
        let is_nearest =
            |nearest: &[u8]| in_run.is_some_and(|key| is_nearer(self.direction, key, nearest));
        if nearest.as_deref().is_none_or(is_nearest) {
            return Ok(in_run.map(<[u8]>::to_vec));
        }
        Ok(nearest)
    }

    /// The next entry of the merge, its document perhaps not read yet.
    fn next_candidate(&mut self) -> Result<Option<Candidate>> {
        loop {
            let nearest = match self.nearest.take() {
                Some(nearest) => nearest,
                None => self.nearest_buffered()?,
            };
            let in_trie = self.trie.peek(&self.pin, self.direction)?;
            let trie_first = match (&nearest, in_trie) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(nearest), Some(key)) => is_nearer(self.direction, key, nearest),
            };
            if trie_first {
                if self.skip_deleted()? {
                    self.nearest = Some(nearest).filter(|_| self.run.is_clear());
                    continue;
                }
                if self.run.is_clear() {
                    self.nearest = Some(nearest);
                }
                let document = self.trie.take();
                match self.judge(document.as_ref().map(|document| &*document.key)) {
                    Judgement::Skip => continue,
                    Judgement::End => return Ok(None),
                    Judgement::Take => return Ok(document.map(Candidate::Read)),
                }
            }
            let Some(key) = nearest else {
                return Ok(None);
            };
            let newest = self.take_buffered(&key);
            self.trie.take_if(&key);
            match self.judge(Some(&key)) {
                Judgement::Skip => continue,
                Judgement::End => return Ok(None),
                Judgement::Take => {}
            }
            match newest {
                Newest::Removed => {}
                Newest::Read(document) => return Ok(Some(Candidate::Read(document))),
                Newest::At(document) => {
                    return Ok(Some(Candidate::Buffered(key.into_boxed_slice(), document)));
                }
            }
        }
    }

    /// Goes past the deleted range that the trie's next document lies in; false if there is
    /// none.
    fn skip_deleted(&mut self) -> Result<bool> {
        if self.deleted.is_empty() {
            return Ok(false);
        }
        let Some(key) = self.trie.peek(&self.pin, self.direction)? else {
            return Ok(false);
        };
        let Some((first, behind)) = self.deleted.over(key) else {
            return Ok(false);
        };
        let next = match self.direction {
            Direction::Forward => behind.map(<[u8]>::to_vec),
            // The first key of the range is the last to be passed.
            Direction::Reverse if key == first => {
                self.trie.take();
                return Ok(true);
            }
            Direction::Reverse => Some(first.to_vec()),
        };
        match next {
            Some(key) => self.place_trie(Some(&key))?,
            None => self.trie.end(),
        }
        Ok(true)
    }

    /// What buffers and run have of a key: the newest source is the first that has it,
    /// and all go on.
    fn take_buffered(&mut self, key: &[u8]) -> Newest {
        let mut newest: Option<Option<DocumentAddress>> = None;
        for source in &mut self.buffers {
            let version = source.take(key);
            newest = newest
                .or(version.map(|version| version.document))
                .or_else(|| source.hides(&self.pin, self.namespace, key).then_some(None));
        }
        let in_run = self.run.take(key);
        let document = match (newest, in_run) {
            (Some(document), _) => document,
            (None, Some((_, Some(read)))) => return Newest::Read(read),
            (None, in_run) => in_run.and_then(|(document, _)| document),
        };
        document.map_or(Newest::Removed, Newest::At)
    }

    /// Holds a key against the range.
    fn judge(&self, key: Option<&[u8]>) -> Judgement {
        let Some(key) = key else {
            return Judgement::End;
        };
        if self.range.contains(key) {
            return Judgement::Take;
        }
        if is_behind(&self.range, self.direction, key) {
            Judgement::End
        } else {
            Judgement::Skip
        }
    }

    /// The next document where nothing is merged with the trie any more.
    fn next_of_trie(&mut self) -> Result<Option<Document>> {
        loop {
            while self.skip_deleted()? {}
            let Some(document) = self.trie.next(&self.pin, self.direction)? else {
                break;
            };
            match self.judge(Some(&document.key)) {
                Judgement::Take => {
                    self.is_trie_alone = self.deleted.is_empty();
                    return Ok(Some(document));
                }
                Judgement::Skip => {}
                Judgement::End => break,
            }
        }
        self.is_trie_alone = false;
        self.ended = true;
        Ok(None)
    }

    /// The next entry where it lies beside the last one in a packed block.
    #[inline]
    fn next_neighbour(&mut self) -> Result<Option<Entry>> {
        if !self.is_trie_alone {
            return Ok(None);
        }
        match self.trie.next_neighbour(&self.pin.view.database) {
            Ok(Some(entry)) if !is_behind(&self.range, self.direction, &entry.key) => {
                self.is_last_in_trie = true;
                Ok(Some(entry))
            }
            Ok(None) => Ok(None),
            behind_or_damaged => {
                self.end_before_neighbour();
                behind_or_damaged.map(|_| None)
            }
        }
    }

    /// Ends before the neighbour that was taken last: it is damaged, or not of the range.
    fn end_before_neighbour(&mut self) {
        self.trie.step_back();
        self.keep_last();
        self.is_trie_alone = false;
        self.ended = true;
    }

    /// Takes the key of the last entry before the trie goes on.
    fn keep_last(&mut self) {
        if std::mem::take(&mut self.is_last_in_trie) {
            self.last = self.trie.last_neighbour(&self.pin.view.database);
        }
    }

    /// Makes the next entries ready, their documents read together.
    fn fill(&mut self) -> Result<()> {
        let mut addresses: Vec<DocumentAddress> = Vec::new();
        let mut bytes = 0;
        while self.ready.len() < self.window && bytes < READ_AHEAD_BYTES {
            match self.next_candidate()? {
                Some(candidate) => {
                    bytes += candidate.most_bytes();
                    if let Candidate::Buffered(_, address) = &candidate {
                        addresses.push(*address);
                    }
                    self.ready.push_back(candidate);
                }
                None => {
                    self.ended = true;
                    break;
                }
            }
        }
        self.window = (self.window * 2).min(self.pin.core.tuning.read_ahead);
        let read = self.read_ready(&addresses);
        if read.is_err() {
            self.ready.clear();
        }
        read
    }

    /// Reads the documents of those that are ready and have addresses.
    fn read_ready(&mut self, addresses: &[DocumentAddress]) -> Result<()> {
        let database = &self.pin.view.database;
        let mut read = self
            .pin
            .core
            .documents_of_walk(database, addresses)?
            .into_iter();
        for candidate in &mut self.ready {
            if let Candidate::Buffered(key, address) = candidate {
                let document = read.next().filter(|document| *document.key == **key);
                let what = "a document has another key than the index says";
                let document = document.ok_or_else(|| database.damage(address.offset(), what))?;
                *candidate = Candidate::Read(document);
            }
        }
        Ok(())
    }

    /// The next entry as a document.
    pub fn next_document(&mut self) -> Result<Option<Document>> {
        self.pin.core.check_open()?;
        self.keep_last();
        if !self.started {
            self.begin()?;
        }
        while self.ready.is_empty() && !self.ended {
            if self.buffers.iter().all(BufferSource::is_over) && self.run.is_over() {
                return self.next_of_trie();
            }
            self.fill()?;
        }
        match self.ready.pop_front() {
            Some(Candidate::Read(document)) => Ok(Some(document)),
            // All that are ready are read.
            Some(Candidate::Buffered(..)) | None => Ok(None),
        }
    }

    /// The key of the last entry answered.
    pub fn last_key(&self) -> Option<Value> {
        match self.is_last_in_trie {
            true => self.trie.last_neighbour(&self.pin.view.database),
            false => self.last.clone(),
        }
    }

    /// The next entry's key, its document read and verified.
    pub fn next_key(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.next_document()?.map(|document| document.key.to_vec()))
    }
}

/// Where a key stands in the range.
enum Judgement {
    Take,
    Skip,
    End,
}

const TOKEN_BEGIN: u8 = 0;
const TOKEN_BEHIND: u8 = 1;

impl Cursor for EntryCursor {
    fn another(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        let pin = self.pin.again()?;
        let cursor = EntryCursor::new(pin, self.namespace, range.clone(), direction);
        Ok(Box::new(cursor))
    }

    fn next(&mut self) -> Result<Option<Entry>> {
        self.pin.core.check_open()?;
        if let Some(entry) = self.next_neighbour()? {
            return Ok(Some(entry));
        }
        let document = self.next_document()?;
        if let Some(document) = &document {
            self.last = Some(document.key.clone());
        }
        Ok(document.map(|document| Entry {
            key: document.key,
            value: document.value,
        }))
    }

    fn visit(&mut self, visit: &mut Visit<'_>) -> Result<ControlFlow<()>> {
        self.visit_entries(visit)
    }

    fn next_key(&mut self) -> Result<Option<Value>> {
        self.pin.core.check_open()?;
        if !self.started {
            self.begin()?;
        }
        self.keep_last();
        let next = match self.ready.pop_front() {
            None if !self.ended => self.next_candidate()?,
            ready => ready,
        };
        // The write buffers have whole keys: their documents are not read.
        let key = next.map(|candidate| match candidate {
            Candidate::Read(document) => document.key,
            Candidate::Buffered(key, _) => Value::copy_of(&key),
        });
        match &key {
            Some(key) => self.last = Some(key.clone()),
            None => self.ended = true,
        }
        Ok(key)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.pin.core.check_open()?;
        // Never before the range's own beginning.
        let begin = match self.direction {
            Direction::Forward => self.range.from.clone(),
            Direction::Reverse => self.range.to.clone(),
        };
        let target = match begin {
            Some(begin) if is_nearer(self.direction, key, &begin) => begin,
            _ => key.to_vec(),
        };
        self.place(Some(&target))
    }

    fn resume_token(&self) -> Option<ResumeToken> {
        if self.direction == Direction::Reverse {
            return None;
        }
        Some(ResumeToken::from_bytes(match self.last_key() {
            None => vec![TOKEN_BEGIN],
            Some(key) => {
                let mut bytes = vec![TOKEN_BEHIND];
                bytes.extend_from_slice(&key);
                bytes
            }
        }))
    }
}
