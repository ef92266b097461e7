//! Cursors: keys from the tree, values fetched ahead in parallel.
//!
//! ```text
//! tree's cursor ──▶ key, pointer ──▶ window of a few, then of many ──▶ one batch of reads ──▶ entries
//! ```
//!
//! Values lie apart from the keys, so a scan reads at random places (section
//! 3.3.1). Once a cursor is asked for one entry after the other, either way, it
//! takes ever more pointers from the tree ahead of its caller and reads their
//! values together: as many at once as the option `batch` says, by io_uring where
//! the kernel has it. Values that lie close together, as garbage collection puts
//! them, are one read.
//!
//! A cursor pins its moment, so it sees the same state however long it lives,
//! through flushes, compaction and garbage collection.

use std::collections::VecDeque;

use cambium_api::{Cursor, Direction, Entry, KeyRange, ResumeToken};
use cambium_base::{Error, Result, Value};

use crate::format::{PREFIX_BYTES, Stored, full_key, namespace_end};
use crate::options::ENGINE;
use crate::pin::Pin;
use crate::read::Wanted;

/// Most bytes of values that wait in a cursor, but for a single one.
const LARGEST_WINDOW_BYTES: u64 = 4 << 20;

/// An entry whose value may not be read yet.
#[derive(Debug)]
struct Candidate {
    key: Value,
    /// The value, where it is inline.
    value: Option<Value>,
}

/// Walks the entries of a namespace at a pinned moment.
#[derive(Debug)]
pub(crate) struct EntryCursor {
    /// Declared before the pin, so that it lets go first.
    tree: Option<cambium_lsm::Cursor>,
    pin: Pin,
    namespace: u16,
    /// Full keys.
    from: Vec<u8>,
    to: Vec<u8>,
    direction: Direction,
    ready: VecDeque<Entry>,
    /// How many entries the next fill makes ready.
    window: usize,
    ended: bool,
    stuck: bool,
    last: Option<Value>,
}

impl EntryCursor {
    /// Before the first entry of a range, in a direction.
    pub fn new(pin: Pin, namespace: u16, range: &KeyRange, direction: Direction) -> Self {
        EntryCursor {
            tree: None,
            pin,
            namespace,
            from: full_key(namespace, range.from.as_deref().unwrap_or_default()),
            to: match &range.to {
                Some(to) => full_key(namespace, to),
                None => namespace_end(namespace),
            },
            direction,
            ready: VecDeque::new(),
            window: 1,
            ended: false,
            stuck: false,
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

    /// Puts the tree's cursor at the first entry at or behind a full key, or at
    /// the first of all.
    fn place(&mut self, target: Option<&[u8]>) -> Result<()> {
        self.ready.clear();
        self.ended = self.from >= self.to;
        self.window = 1;
        let tree = match &mut self.tree {
            Some(tree) => tree,
            none => none.insert(self.pin.core.tree.cursor(
                Some(&self.from),
                Some(&self.to),
                self.pin.moment,
            )?),
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

    /// The next entry of the tree: a candidate, and what is to be read for it.
    fn next_candidate(&mut self) -> Result<Option<(Candidate, Option<Wanted>)>> {
        let direction = self.direction;
        let tree = self.placed()?;
        let Some(entry) = tree.entry() else {
            return Ok(None);
        };
        let key = Value::copy_of(entry.key.get(PREFIX_BYTES..).unwrap_or_default());
        let (value, wanted) = match Stored::decode(entry.value) {
            Some(Stored::Inline(value)) => (Some(Value::copy_of(value)), None),
            Some(Stored::Pointer(pointer)) => {
                let wanted = Wanted {
                    pointer,
                    sequence: entry.sequence,
                    full_key: entry.key.to_vec(),
                };
                (None, Some(wanted))
            }
            None => return Err(self.pin.core.strange_entry()),
        };
        match direction {
            Direction::Forward => tree.next()?,
            Direction::Reverse => tree.previous()?,
        }
        Ok(Some((Candidate { key, value }, wanted)))
    }

    /// Makes the next entries ready, their values read together.
    fn fill(&mut self) -> Result<()> {
        let mut candidates = Vec::with_capacity(self.window);
        let mut wanted = Vec::with_capacity(self.window);
        let mut bytes = 0;
        while candidates.len() < self.window && bytes < LARGEST_WINDOW_BYTES {
            let Some((candidate, want)) = self.next_candidate()? else {
                self.ended = true;
                break;
            };
            bytes += want
                .as_ref()
                .map_or(0, |want| u64::from(want.pointer.value_bytes));
            candidates.push(candidate);
            wanted.extend(want);
        }
        self.window = (self.window * 2).min(self.pin.core.tuning.read_ahead);
        let mut fetched = self.pin.core.fetch(&wanted)?.into_iter();
        for Candidate { key, value } in candidates {
            let value = value.or_else(|| fetched.next());
            let value = value.expect("each candidate has a value or wants one");
            self.ready.push_back(Entry { key, value });
        }
        Ok(())
    }

    /// The next entry without reading its value: its key, and bytes of key and
    /// value as they are kept.
    pub fn next_unread(&mut self) -> Result<Option<(Value, u64)>> {
        self.pin.core.check_open()?;
        let next = self.next_candidate()?;
        Ok(next.map(|(Candidate { key, value }, wanted)| {
            let bytes = match wanted {
                Some(wanted) => wanted.pointer.record_bytes(wanted.full_key.len()),
                None => (key.len() + value.map_or(0, |value| value.len())) as u64,
            };
            (key, bytes)
        }))
    }

    /// Reads and verifies the next entry's value by itself; answers its bytes.
    /// Goes on behind an entry whose value is damaged.
    pub fn next_verified(&mut self) -> Result<Option<u64>> {
        self.pin.core.check_open()?;
        self.stuck = true;
        let Some((candidate, wanted)) = self.next_candidate()? else {
            return Ok(None);
        };
        self.stuck = false;
        self.last = Some(candidate.key.clone());
        let key_bytes = candidate.key.len();
        let value = match (candidate.value, wanted) {
            (Some(value), _) => value.len(),
            (None, Some(wanted)) => {
                let bytes = wanted.pointer.value_bytes as usize;
                self.pin.core.fetch(&[wanted])?;
                bytes
            }
            (None, None) => 0,
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
    fn next(&mut self) -> Result<Option<Entry>> {
        self.pin.core.check_open()?;
        if self.tree.is_none() {
            self.place(None)?;
        }
        if self.ready.is_empty() && !self.ended {
            self.fill()?;
        }
        let entry = self.ready.pop_front();
        if let Some(entry) = &entry {
            self.last = Some(entry.key.clone());
        }
        Ok(entry)
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
