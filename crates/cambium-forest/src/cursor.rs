//! Cursors: the write buffers and a trie, merged in key order at one moment.
//!
//! ```text
//! active buffer  ─┐
//! sealed buffer  ─┼─▶ merge: nearest key, newest source wins, removals hide ─▶ entries
//! trie           ─┘        documents read ahead, in batches that grow
//! ```
//!
//! A cursor pins its moment, so it sees the same state however long it lives,
//! through flushes and compaction. It holds no lock and borrows nothing. The
//! trie knows chunks of keys only, so its documents are read to learn their
//! keys; the more a cursor is asked for, the more of them it reads together.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use cambium_api::{Cursor, Direction, Entry, KeyRange, ResumeToken};
use cambium_base::{Error, Result, Value};

use crate::buffer::{Buffer, Version};
use crate::database::Document;
use crate::document::DocumentAddress;
use crate::index::{IndexCursor, Keys};
use crate::nodes::Nodes;
use crate::options::ENGINE;
use crate::view::Pin;

/// Entries copied from a buffer at first, and at most.
const FIRST_RUN: usize = 8;
const LARGEST_RUN: usize = 256;

/// Bytes of documents that are read ahead together, and one document more.
const READ_AHEAD_BYTES: u64 = 2 << 20;

/// What a cursor answers from one write buffer.
#[derive(Debug)]
struct BufferSource {
    buffer: Arc<Buffer>,
    run: VecDeque<(Box<[u8]>, Version)>,
    /// Where the next run begins; `None` behind the last.
    next: Option<Bound<Vec<u8>>>,
    length: usize,
}

impl BufferSource {
    fn new(buffer: Arc<Buffer>) -> Self {
        BufferSource {
            buffer,
            run: VecDeque::new(),
            next: None,
            length: FIRST_RUN,
        }
    }

    fn seek(&mut self, bound: Bound<Vec<u8>>) {
        self.run.clear();
        self.next = Some(bound);
        self.length = FIRST_RUN;
    }

    /// True if it has no further entries.
    fn is_over(&self) -> bool {
        self.run.is_empty() && self.next.is_none()
    }

    fn peek(&mut self, pin: &Pin, namespace: u16, direction: Direction) -> Option<&[u8]> {
        if self.run.is_empty() {
            let from = self.next.take()?;
            let bound = match &from {
                Bound::Included(key) => Bound::Included(key.as_slice()),
                Bound::Excluded(key) => Bound::Excluded(key.as_slice()),
                Bound::Unbounded => Bound::Unbounded,
            };
            self.run = self
                .buffer
                .run(namespace, bound, direction, pin.sequence, self.length)
                .into();
            if self.run.len() == self.length {
                let last = self.run.back().map(|(key, _)| key.to_vec());
                self.next = last.map(Bound::Excluded);
            }
            self.length = (self.length * 2).min(LARGEST_RUN);
        }
        self.run.front().map(|(key, _)| &**key)
    }
}

/// What a cursor answers from the trie.
#[derive(Debug)]
struct TrieSource {
    cursor: Option<IndexCursor>,
    ahead: VecDeque<Document>,
    window: usize,
    ended: bool,
}

impl TrieSource {
    fn peek(&mut self, pin: &Pin, direction: Direction) -> Result<Option<&[u8]>> {
        if self.ahead.is_empty() && !self.ended {
            self.read_ahead(pin, direction)?;
        }
        Ok(self.ahead.front().map(|document| &*document.key))
    }

    fn read_ahead(&mut self, pin: &Pin, direction: Direction) -> Result<()> {
        let Some(cursor) = &mut self.cursor else {
            self.ended = true;
            return Ok(());
        };
        let database = &pin.view.database;
        let nodes = Nodes {
            core: &pin.core,
            database,
        };
        let mut addresses: Vec<DocumentAddress> = Vec::with_capacity(self.window);
        let mut bytes = 0;
        while addresses.len() < self.window && bytes < READ_AHEAD_BYTES {
            match cursor.advance(&nodes, direction == Direction::Forward)? {
                Some(address) => {
                    bytes += address.most_bytes();
                    addresses.push(address);
                }
                None => {
                    self.ended = true;
                    break;
                }
            }
        }
        self.ahead = pin.core.documents(database, &addresses)?.into();
        self.window = (self.window * 2).min(pin.core.tuning.read_ahead);
        Ok(())
    }
}

/// An entry before its document is read.
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

/// Walks the entries of a namespace at a pinned moment.
#[derive(Debug)]
pub(crate) struct EntryCursor {
    pin: Pin,
    namespace: u16,
    range: KeyRange,
    direction: Direction,
    buffers: Vec<BufferSource>,
    trie: TrieSource,
    ready: VecDeque<Document>,
    /// How many entries the next fill makes ready.
    window: usize,
    ended: bool,
    started: bool,
    last: Option<Value>,
}

impl EntryCursor {
    /// Before the first entry of a range, in a direction.
    pub fn new(pin: Pin, namespace: u16, range: KeyRange, direction: Direction) -> Self {
        let root = pin.view.root(namespace).root;
        let buffers = pin
            .view
            .buffers()
            .map(|buffer| BufferSource::new(buffer.clone()))
            .collect();
        EntryCursor {
            buffers,
            trie: TrieSource {
                cursor: root.map(|root| pin.core.index.cursor(root)),
                ahead: VecDeque::new(),
                window: 1,
                ended: false,
            },
            pin,
            namespace,
            range,
            direction,
            ready: VecDeque::new(),
            window: 1,
            ended: false,
            started: false,
            last: None,
        }
    }

    /// Goes on behind the last entry before a token was taken.
    pub fn resumed(pin: Pin, namespace: u16, token: &ResumeToken) -> Result<Self> {
        let mut range = KeyRange::all();
        let mut last = None;
        match token.as_bytes() {
            [TOKEN_BEGIN] => {}
            [TOKEN_BEHIND, key @ ..] => {
                // The first key behind `key` is `key` and a zero.
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

    /// Puts all sources at the first key at or behind `key`, or at the first
    /// of all.
    fn place(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.ready.clear();
        self.ended = false;
        self.started = true;
        self.window = 1;
        for buffer in &mut self.buffers {
            buffer.seek(key.map_or(Bound::Unbounded, |key| Bound::Included(key.to_vec())));
        }
        self.trie.ahead.clear();
        self.trie.ended = false;
        self.trie.window = 1;
        let forward = self.direction == Direction::Forward;
        if let Some(cursor) = &mut self.trie.cursor {
            let database = &self.pin.view.database;
            let nodes = Nodes {
                core: &self.pin.core,
                database,
            };
            let keys = Keys {
                core: &self.pin.core,
                database,
            };
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

    /// True if `one` comes before `other` in the cursor's direction.
    fn is_nearer(direction: Direction, one: &[u8], other: &[u8]) -> bool {
        match direction {
            Direction::Forward => one < other,
            Direction::Reverse => one > other,
        }
    }

    /// The next entry of the merge, its document perhaps not read yet.
    fn next_candidate(&mut self) -> Result<Option<Candidate>> {
        loop {
            let mut nearest: Option<Vec<u8>> = None;
            for source in &mut self.buffers {
                if let Some(key) = source.peek(&self.pin, self.namespace, self.direction) {
                    if nearest
                        .as_ref()
                        .is_none_or(|nearest| Self::is_nearer(self.direction, key, nearest))
                    {
                        nearest = Some(key.to_vec());
                    }
                }
            }
            let in_trie = self.trie.peek(&self.pin, self.direction)?;
            let trie_first = match (&nearest, in_trie) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(nearest), Some(key)) => Self::is_nearer(self.direction, key, nearest),
            };
            if trie_first {
                let document = self.trie.ahead.pop_front();
                match self.judge(document.as_ref().map(|document| &*document.key)) {
                    Judgement::Skip => continue,
                    Judgement::End => return Ok(None),
                    Judgement::Take => return Ok(document.map(Candidate::Read)),
                }
            }
            let Some(key) = nearest else {
                return Ok(None);
            };
            // The newest source is the first that has the key; all go on.
            let mut newest: Option<Version> = None;
            for source in &mut self.buffers {
                if source.run.front().is_some_and(|(other, _)| **other == *key) {
                    let version = source.run.pop_front().map(|(_, version)| version);
                    newest = newest.or(version);
                }
            }
            if self
                .trie
                .ahead
                .front()
                .is_some_and(|document| *document.key == *key)
            {
                self.trie.ahead.pop_front();
            }
            match self.judge(Some(&key)) {
                Judgement::Skip => continue,
                Judgement::End => return Ok(None),
                Judgement::Take => {}
            }
            if let Some(document) = newest.and_then(|version| version.document) {
                return Ok(Some(Candidate::Buffered(key.into_boxed_slice(), document)));
            }
        }
    }

    /// Holds a key against the range.
    fn judge(&self, key: Option<&[u8]>) -> Judgement {
        let Some(key) = key else {
            return Judgement::End;
        };
        if self.range.contains(key) {
            return Judgement::Take;
        }
        let behind = match self.direction {
            Direction::Forward => self.range.to.as_deref().is_some_and(|to| key >= to),
            Direction::Reverse => self.range.from.as_deref().is_some_and(|from| key < from),
        };
        if behind {
            Judgement::End
        } else {
            Judgement::Skip
        }
    }

    /// Makes what the trie has read ahead ready, which nothing is merged with.
    fn fill_from_trie(&mut self) -> Result<()> {
        if self.trie.peek(&self.pin, self.direction)?.is_none() {
            self.ended = true;
            return Ok(());
        }
        let ahead = std::mem::take(&mut self.trie.ahead);
        let ends = [ahead.front(), ahead.back()];
        let is_inside = |end: &Document| matches!(self.judge(Some(&end.key)), Judgement::Take);
        // They are in the order of their keys.
        if ends.into_iter().flatten().all(is_inside) {
            self.ready = ahead;
            return Ok(());
        }
        for document in ahead {
            match self.judge(Some(&document.key)) {
                Judgement::Take => self.ready.push_back(document),
                Judgement::Skip => {}
                Judgement::End => {
                    self.ended = true;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Makes the next entries ready, their documents read together.
    fn fill(&mut self) -> Result<()> {
        if self.buffers.iter().all(BufferSource::is_over) {
            return self.fill_from_trie();
        }
        let mut candidates = Vec::with_capacity(self.window);
        let mut bytes = 0;
        while candidates.len() < self.window && bytes < READ_AHEAD_BYTES {
            match self.next_candidate()? {
                Some(candidate) => {
                    bytes += candidate.most_bytes();
                    candidates.push(candidate);
                }
                None => {
                    self.ended = true;
                    break;
                }
            }
        }
        self.window = (self.window * 2).min(self.pin.core.tuning.read_ahead);
        let addresses: Vec<DocumentAddress> = candidates
            .iter()
            .filter_map(|candidate| match candidate {
                Candidate::Buffered(_, address) => Some(*address),
                Candidate::Read(_) => None,
            })
            .collect();
        let database = &self.pin.view.database;
        let mut read = self.pin.core.documents(database, &addresses)?.into_iter();
        for candidate in candidates {
            match candidate {
                Candidate::Read(document) => self.ready.push_back(document),
                Candidate::Buffered(key, address) => {
                    let document = read.next().filter(|document| *document.key == *key);
                    let document = document.ok_or_else(|| {
                        database.damage(
                            address.offset(),
                            "a document has another key than the index says",
                        )
                    })?;
                    self.ready.push_back(document);
                }
            }
        }
        Ok(())
    }

    /// The next entry as a document.
    pub fn next_document(&mut self) -> Result<Option<Document>> {
        self.pin.core.check_open()?;
        if !self.started {
            self.begin()?;
        }
        while self.ready.is_empty() && !self.ended {
            self.fill()?;
        }
        Ok(self.ready.pop_front())
    }

    /// The key of the last entry answered.
    pub fn last_key(&self) -> Option<Value> {
        self.last.clone()
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
    fn next(&mut self) -> Result<Option<Entry>> {
        let document = self.next_document()?;
        if let Some(document) = &document {
            self.last = Some(document.key.clone());
        }
        Ok(document.map(|document| Entry {
            key: document.key,
            value: document.value,
        }))
    }

    fn next_key(&mut self) -> Result<Option<Value>> {
        self.pin.core.check_open()?;
        if !self.started {
            self.begin()?;
        }
        let key = match self.ready.pop_front() {
            Some(document) => Some(document.key),
            None if self.ended => None,
            // The write buffers have whole keys: their documents are not read.
            None => self.next_candidate()?.map(|candidate| match candidate {
                Candidate::Read(document) => document.key,
                Candidate::Buffered(key, _) => Value::copy_of(&key),
            }),
        };
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
            Some(begin) if Self::is_nearer(self.direction, key, &begin) => begin,
            _ => key.to_vec(),
        };
        self.place(Some(&target))
    }

    fn resume_token(&self) -> Option<ResumeToken> {
        if self.direction == Direction::Reverse {
            return None;
        }
        Some(ResumeToken::from_bytes(match &self.last {
            None => vec![TOKEN_BEGIN],
            Some(key) => {
                let mut bytes = vec![TOKEN_BEHIND];
                bytes.extend_from_slice(key);
                bytes
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that cannot go on has failed

    use super::*;
    use std::path::Path;
    use std::sync::atomic::Ordering;

    use cambium_api::{Operation, OptionValues};
    use cambium_base::Durability;
    use cambium_io::Environment;

    use crate::core::Core;
    use crate::write::WriteRequest;

    const LARGE: usize = 700 << 10;

    fn store(buffer_entries: &'static str) -> Arc<Core> {
        let options = OptionValues::from([
            ("write_buffer_entries", buffer_entries),
            ("cache_bytes", "0"),
            ("compaction_threshold", "100"),
        ]);
        let path = Path::new("/s");
        let core = crate::open::create(&Environment::memory(), path, &options).unwrap();
        for number in 0..24u8 {
            let (key, value) = (vec![number; 20], vec![number; LARGE]);
            let put = (0, Operation::Put { key, value });
            let request = WriteRequest::new(vec![put], Durability::Written);
            core.write_request(request).unwrap();
        }
        core
    }

    fn cursor(core: &Arc<Core>) -> EntryCursor {
        let all = KeyRange::all();
        EntryCursor::new(core.pin().unwrap(), 0, all, Direction::Forward)
    }

    #[test]
    fn what_is_read_ahead_is_bounded_by_bytes() {
        // In the trie, and in a write buffer.
        for buffer_entries in ["8", "1000"] {
            let core = store(buffer_entries);
            let mut cursor = cursor(&core);
            let mut most = 0;
            let mut entries = 0;
            while cursor.next().unwrap().is_some() {
                entries += 1;
                let held = cursor.ready.iter().chain(&cursor.trie.ahead);
                most = most.max(held.map(|held| held.value.len()).sum());
            }
            assert_eq!(entries, 24);
            assert!(most > LARGE, "nothing is read ahead");
            let bound = 2 * (READ_AHEAD_BYTES as usize + LARGE);
            assert!(most <= bound, "{most} bytes ahead, more than {bound}");
        }
    }

    #[test]
    fn keys_of_a_write_buffer_come_without_their_documents() {
        let core = store("1000");
        let reads = || core.counters.document_reads.load(Ordering::Relaxed);
        let before = reads();
        let mut cursor = cursor(&core);
        for number in 0..12u8 {
            let key = Cursor::next_key(&mut cursor).unwrap();
            assert_eq!(key.unwrap(), [number; 20]);
        }
        assert_eq!(reads(), before);
        // And the entries behind them with their values.
        let entry = cursor.next().unwrap().unwrap();
        assert_eq!((entry.key[0], entry.value.len()), (12, LARGE));
        let key = Cursor::next_key(&mut cursor).unwrap();
        assert_eq!(key.unwrap(), [13; 20]);
        let left = std::iter::from_fn(|| Cursor::next_key(&mut cursor).unwrap());
        assert_eq!(left.count(), 10);
        assert_eq!(Cursor::next_key(&mut cursor).unwrap(), None);
    }
}
