//! Cursors: keys from the tree, values fetched ahead in parallel ([`crate::ahead`]).
//!
//! ```text
//! tree's cursor ──▶ key, pointer ──▶ groups of values being read ──▶ entries
//!                               └──▶ values in the system's cache ──▶
//! ```
//!
//! What the operating system has in memory is read at once, by the caller
//! ([`crate::at_hand`]); the first value that has to come from the device, and those
//! after it, are read in groups.
//!
//! A cursor pins its moment, so it sees the same state however long it lives,
//! through flushes, compaction and garbage collection.

use std::ops::ControlFlow;

use cambium_api::{Cursor, Direction, Entry, KeyRange, ResumeToken, Visit};
use cambium_base::{Error, Result, Value};

use crate::ahead::{Ahead, Candidate, ValuePlace};
use crate::at_hand::AtHand;
use crate::format::{INLINE_START, PREFIX_BYTES, Stored, ValuePointer, full_key, full_range};
use crate::options::ENGINE;
use crate::pin::Pin;
use crate::read::{LARGEST_GAP, Wanted};

/// Values that lie one after the other come along with one that is read, up to so
/// many bytes: a device gives them in the same time.
const ALONG_BYTES: u64 = 8 << 10;

/// Walks the entries of a namespace at a pinned moment.
#[derive(Debug)]
pub(crate) struct EntryCursor {
    /// Declared before the pin, so that they let go first.
    tree: Option<cambium_lsm::Cursor>,
    ahead: Ahead,
    at_hand: AtHand,
    /// The entry that the tree's cursor stands at was handed out.
    is_spent: bool,
    /// Taken from the tree; its value is not in memory.
    held: Option<Candidate>,
    pin: Pin,
    namespace: u16,
    /// Full keys.
    from: Vec<u8>,
    to: Vec<u8>,
    direction: Direction,
    /// The tree has no further entry.
    ended: bool,
    /// What the tree answered in the place of its next entry.
    failure: Option<Error>,
    stuck: bool,
    /// The key that was visited last.
    last: Option<Value>,
    /// Bytes of keys and values handed out.
    answered: u64,
}

impl Drop for EntryCursor {
    fn drop(&mut self) {
        let answered = &self.pin.core.counters.answered_bytes;
        answered.add(self.answered);
    }
}

impl EntryCursor {
    /// Before the first entry of a range, in a direction.
    pub fn new(pin: Pin, namespace: u16, range: &KeyRange, direction: Direction) -> Self {
        let (from, to) = full_range(namespace, range);
        EntryCursor {
            tree: None,
            ahead: Ahead::default(),
            at_hand: AtHand::default(),
            is_spent: false,
            held: None,
            pin,
            namespace,
            from,
            to,
            direction,
            ended: false,
            failure: None,
            stuck: false,
            last: None,
            answered: 0,
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
        let mut cursor = Self::new(pin, namespace, &range, Direction::Forward);
        cursor.last = last;
        Ok(cursor)
    }

    /// The tree's cursor, at the first entry if it was not placed before.
    fn placed(&mut self) -> Result<&mut cambium_lsm::Cursor> {
        if self.tree.is_none() {
            self.place(None)?;
        }
        self.tree.as_mut().ok_or(Error::Closed)
    }

    /// Puts the tree's cursor at the first entry at or after a full key, or at
    /// the first of all.
    fn place(&mut self, target: Option<&[u8]>) -> Result<()> {
        self.ahead.clear();
        self.at_hand.clear();
        self.is_spent = false;
        self.held = None;
        self.failure = None;
        self.ended = self.from >= self.to;
        let tree = match &mut self.tree {
            Some(tree) => tree,
            none => none.insert(self.pin.cursor(&self.from, &self.to)?),
        };
        if self.ended {
            return Ok(());
        }
        match (self.direction, target) {
            (Direction::Forward, Some(target)) => tree.seek(target.max(&self.from)),
            (Direction::Forward, None) => tree.seek_first(),
            (Direction::Reverse, Some(target)) => tree.seek_before(target.min(&self.to)),
            (Direction::Reverse, None) => tree.seek_last(),
        }
    }

    /// The next entry of the tree, or the one that was held back.
    fn next_candidate(&mut self) -> Result<Option<Candidate>> {
        if let Some(held) = self.held.take() {
            return Ok(Some(held));
        }
        self.leave_spent();
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let tree = self.placed()?;
        let Some(entry) = tree.entry() else {
            return Ok(None);
        };
        let full_key = Value::copy_of(entry.key);
        let key = full_key.slice(PREFIX_BYTES.min(full_key.len())..full_key.len());
        let place = match Stored::decode(entry.value) {
            Some(Stored::Inline(_)) => ValuePlace::Inline(entry.value_from(INLINE_START)),
            Some(Stored::Pointer(pointer)) => ValuePlace::Log(Wanted {
                pointer,
                sequence: entry.sequence,
                full_key,
            }),
            None => return Err(self.pin.core.strange_entry()),
        };
        self.is_spent = true;
        Ok(Some(Candidate { key, place }))
    }

    /// Moves the tree's cursor on from an entry that was handed out. A failure's turn comes
    /// after that entry.
    #[inline]
    fn leave_spent(&mut self) {
        if !std::mem::take(&mut self.is_spent) {
            return;
        }
        let Some(tree) = &mut self.tree else {
            return;
        };
        let moved = match self.direction {
            Direction::Forward => tree.next(),
            Direction::Reverse => tree.previous(),
        };
        self.failure = moved.err();
    }

    /// The next entry, if its value is part of a block or of a stretch that was read. `None`:
    /// look for it elsewhere.
    #[inline]
    fn next_in_memory(&mut self) -> Option<Entry> {
        self.leave_spent();
        let entry = self.tree.as_ref()?.entry()?;
        let value = match Stored::decode(entry.value)? {
            Stored::Inline(_) => entry.value_from(INLINE_START),
            Stored::Pointer(pointer) => {
                let at_hand = &mut self.at_hand;
                // An error is found again, and answered then.
                let value = at_hand.in_stretch(pointer, entry.key, entry.sequence)?;
                value.ok()?
            }
        };
        let key = Value::copy_of(entry.key.get(PREFIX_BYTES..)?);
        self.is_spent = true;
        self.ahead.count_one();
        Some(Entry { key, value })
    }

    /// Shows the entries whose values are parts of blocks or of a stretch that was read.
    /// `Continue`: the next one has to be looked for elsewhere.
    #[inline]
    fn visit_in_memory(&mut self, visit: &mut Visit<'_>) -> Result<ControlFlow<()>> {
        loop {
            self.pin.core.check_open()?;
            self.leave_spent();
            let Some(entry) = self.tree.as_ref().and_then(cambium_lsm::Cursor::entry) else {
                return Ok(ControlFlow::Continue(()));
            };
            let key = entry.key.get(PREFIX_BYTES..).unwrap_or_default();
            let (flow, bytes) = match Stored::decode(entry.value) {
                Some(Stored::Inline(value)) => (visit(key, value), value.len()),
                Some(Stored::Pointer(pointer)) => {
                    let at_hand = &mut self.at_hand;
                    match at_hand.in_stretch(pointer, entry.key, entry.sequence) {
                        Some(Ok(value)) => (visit(key, &value), value.len()),
                        // An error is found again, and answered then.
                        _ => return Ok(ControlFlow::Continue(())),
                    }
                }
                None => return Ok(ControlFlow::Continue(())),
            };
            self.answered += (key.len() + bytes) as u64;
            self.last = Some(Value::copy_of(key));
            self.is_spent = true;
            self.ahead.count_one();
            if flow.is_break() {
                return Ok(flow);
            }
        }
    }

    /// The next entry, if its value needs no device. `None`: it does, or there is none.
    fn next_at_hand(&mut self) -> Result<Option<Entry>> {
        if !self.ahead.is_empty() || self.ended {
            return Ok(None);
        }
        // A failure's turn comes in the group that begins here.
        let candidate = match self.next_candidate() {
            Ok(Some(candidate)) => candidate,
            ended => {
                self.failure = ended.err();
                return Ok(None);
            }
        };
        let value = match &candidate.place {
            ValuePlace::Log(want) => {
                let beside = self.is_next_beside(Some(&candidate));
                let core = &self.pin.core;
                self.at_hand.read(core, want, self.direction, beside)
            }
            ValuePlace::Inline(value) => Some(Ok(value.clone())),
        };
        let Some(value) = value else {
            self.held = Some(candidate);
            return Ok(None);
        };
        self.ahead.count_one();
        let key = candidate.key;
        value.map(|value| Some(Entry { key, value }))
    }

    /// True if the tree's cursor is all that the next entry depends on.
    #[inline]
    fn is_walking(&self) -> bool {
        self.tree.is_some() && self.ahead.is_empty() && self.held.is_none() && !self.ended
    }

    /// The next entry, wherever its value is.
    #[inline(never)]
    fn next_elsewhere(&mut self) -> Result<Option<Entry>> {
        if self.tree.is_none() {
            self.place(None)?;
        }
        if let Some(entry) = self.next_at_hand()? {
            return Ok(Some(entry));
        }
        self.read_ahead()?;
        match self.ahead.next(&self.pin.core)? {
            Some(entry) => Ok(Some(entry)),
            None => self.failure.take().map_or(Ok(None), Err),
        }
    }

    /// True if the next entry's value lies right beside this one's, the way that
    /// the cursor goes.
    fn is_next_beside(&mut self, last: Option<&Candidate>) -> bool {
        let Some(ValuePlace::Log(last)) = last.map(|last| &last.place) else {
            return false;
        };
        self.leave_spent();
        let Some(entry) = self.tree.as_ref().and_then(cambium_lsm::Cursor::entry) else {
            return false;
        };
        let Some(Stored::Pointer(next)) = Stored::decode(entry.value) else {
            return false;
        };
        let bytes = |pointer: ValuePointer, key: &[u8]| pointer.record_bytes(key.len());
        let (from, to) = match self.direction {
            Direction::Forward => {
                let end = last.pointer.offset + bytes(last.pointer, &last.full_key);
                (end, next.offset)
            }
            Direction::Reverse => (next.offset + bytes(next, entry.key), last.pointer.offset),
        };
        next.segment == last.pointer.segment && from <= to && to - from <= LARGEST_GAP
    }

    /// Begins the reads of the next values, if it is time to.
    fn read_ahead(&mut self) -> Result<()> {
        let wants = self.ahead.wants(&self.pin.core);
        if self.ended || wants == 0 {
            return Ok(());
        }
        let mut candidates = Vec::with_capacity(wants);
        let mut bytes = 0;
        while (candidates.len() < wants && !self.ahead.is_full(bytes))
            || (bytes < ALONG_BYTES && self.is_next_beside(candidates.last()))
        {
            match self.next_candidate() {
                Ok(Some(candidate)) => {
                    if let ValuePlace::Log(wanted) = &candidate.place {
                        bytes += u64::from(wanted.pointer.value_bytes);
                    }
                    candidates.push(candidate);
                }
                ended => {
                    // An error's turn comes after the entries before it.
                    self.failure = ended.err();
                    self.ended = true;
                    break;
                }
            }
        }
        self.ahead.begin(&self.pin.core, candidates)
    }

    /// The next entry without reading its value: its key, and bytes of key and
    /// value as they are kept.
    pub fn next_unread(&mut self) -> Result<Option<(Value, u64)>> {
        self.pin.core.check_open()?;
        let next = self.next_candidate()?;
        Ok(next.map(|Candidate { key, place }| {
            let bytes = match place {
                ValuePlace::Log(wanted) => wanted.pointer.record_bytes(wanted.full_key.len()),
                ValuePlace::Inline(value) => (key.len() + value.len()) as u64,
            };
            (key, bytes)
        }))
    }

    /// Reads and verifies the next entry's value by itself; answers its bytes.
    /// Goes on after an entry whose value is damaged.
    pub fn next_verified(&mut self) -> Result<Option<u64>> {
        self.pin.core.check_open()?;
        self.stuck = true;
        let Some(candidate) = self.next_candidate()? else {
            return Ok(None);
        };
        self.stuck = false;
        self.last = Some(candidate.key.clone());
        let key_bytes = candidate.key.len();
        let value = match candidate.place {
            ValuePlace::Inline(value) => value.len(),
            ValuePlace::Log(wanted) => {
                let bytes = wanted.pointer.value_bytes as usize;
                self.pin.core.read_stored(&wanted)?;
                bytes
            }
        };
        Ok(Some((key_bytes + value) as u64))
    }

    /// The key that was visited last.
    pub fn visited(&self) -> &[u8] {
        self.last.as_deref().unwrap_or_default()
    }

    /// True if the last error was the tree's, so that there is no going on.
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }
}

const TOKEN_BEGIN: u8 = 0;
const TOKEN_BEHIND: u8 = 1;

impl Cursor for EntryCursor {
    fn another(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        let pin = self.pin.again()?;
        let cursor = EntryCursor::new(pin, self.namespace, range, direction);
        Ok(Box::new(cursor))
    }

    fn next(&mut self) -> Result<Option<Entry>> {
        self.pin.core.check_open()?;
        let mut entry = match self.is_walking() {
            true => self.next_in_memory(),
            false => None,
        };
        if entry.is_none() {
            entry = self.next_elsewhere()?;
        }
        if let Some(entry) = &entry {
            self.answered += (entry.key.len() + entry.value.len()) as u64;
            self.last = Some(entry.key.clone());
        }
        Ok(entry)
    }

    fn visit(&mut self, visit: &mut Visit<'_>) -> Result<ControlFlow<()>> {
        loop {
            if self.is_walking() && self.visit_in_memory(visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let Some(entry) = self.next()? else {
                return Ok(ControlFlow::Continue(()));
            };
            if visit(&entry.key, &entry.value).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    fn next_key(&mut self) -> Result<Option<Value>> {
        self.pin.core.check_open()?;
        if self.tree.is_none() {
            self.place(None)?;
        }
        // What was begun comes first; its values are not waited for.
        let key = match self.ahead.next_key() {
            Some(key) => Some(key),
            None => self.next_candidate()?.map(|candidate| candidate.key),
        };
        if let Some(key) = &key {
            self.answered += key.len() as u64;
            self.last = Some(key.clone());
        }
        Ok(key)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.pin.core.check_open()?;
        let mut target = full_key(self.namespace, key);
        if self.direction == Direction::Reverse {
            // The last key before `key` and a zero is `key` or one before it.
            target.push(0);
        }
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
