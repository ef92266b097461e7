//! Cursors: integer keys in order, entries in the order of writing, and the
//! buckets of string keys in an order that survives their growth.
//!
//! Each cursor pins a moment. It finds a batch of candidates in the index,
//! reads them together, and hands them out one by one.

use std::collections::VecDeque;

use cambium_api::{Cursor, Direction, Entry, KeyRange, ResumeToken};
use cambium_base::coding::{Decoder, put_length_prefixed};
use cambium_base::{Error, Result, Value};
use cambium_index::BucketMap;

use crate::bucket::Bucket;
use crate::core::Core;
use crate::read::{Candidate, Pin};
use crate::seeded_bug::SeededBug;
use crate::table::Table;

/// Entries fetched together: enough to keep the device busy, few enough that
/// a cursor that is soon dropped has wasted little.
const FIRST_BATCH: usize = 16;
const LARGEST_BATCH: usize = 256;

/// An integer key's bytes.
pub(crate) fn key_bytes(key: u64) -> Value {
    Value::copy_of(&key.to_be_bytes())
}

/// The integer that a key's bytes stand for.
pub(crate) fn integer_key(key: &[u8]) -> Result<u64> {
    key.try_into().map(u64::from_be_bytes).map_err(|_| {
        Error::InvalidArgument(format!(
            "a key of {} bytes: keys of this store are unsigned 64-bit integers, 8 bytes, big-endian",
            key.len()
        ))
    })
}

/// The smallest integer key at or after a bound, as bytes compare; `None`
/// where there is none.
fn first_at(bound: &[u8]) -> Option<u64> {
    let mut head = [0; 8];
    let count = bound.len().min(8);
    head[..count].copy_from_slice(&bound[..count]);
    let key = u64::from_be_bytes(head);
    // A longer bound lies after the key that it begins with.
    if bound.len() > 8 {
        key.checked_add(1)
    } else {
        Some(key)
    }
}

/// The first and last integer key of a range; `None` for an empty one.
pub(crate) fn integer_bounds(range: &KeyRange) -> Option<(u64, u64)> {
    let first = range.from.as_deref().map_or(Some(0), first_at)?;
    let last = match range.to.as_deref().map(first_at) {
        None | Some(None) => u64::MAX,
        Some(Some(end)) => end.checked_sub(1)?,
    };
    (first <= last).then_some((first, last))
}

impl Core {
    /// Up to `limit` keys from `first` to `last` that have or had an entry, in
    /// the order of `direction`, and where to go on (`None` at the end).
    fn candidate_keys(
        &self,
        (first, last): (u64, u64),
        direction: Direction,
        limit: usize,
    ) -> Result<(Vec<u64>, Option<u64>)> {
        let mut keys = Vec::new();
        let mut numbers = self.table_numbers();
        numbers.retain(|&number| {
            (self.table_number(first)..=self.table_number(last)).contains(&number)
        });
        if direction == Direction::Reverse {
            numbers.reverse();
        }
        for number in numbers {
            let Some(table) = self.table(number)? else {
                continue;
            };
            let mut pieces: Vec<_> = table.pieces_within(first, last).collect();
            if direction == Direction::Reverse {
                pieces.reverse();
            }
            for (piece, slots) in pieces {
                let missing = limit - keys.len();
                keys.append(&mut self.keys_of_piece(&table, (piece, slots), direction, missing)?);
                if keys.len() >= limit {
                    keys.truncate(limit);
                    let end = keys[limit - 1];
                    let next = match direction {
                        Direction::Forward => end.checked_add(1).filter(|&next| next <= last),
                        Direction::Reverse => end.checked_sub(1).filter(|&next| next >= first),
                    };
                    return Ok((keys, next));
                }
            }
        }
        Ok((keys, None))
    }

    /// The first `limit` keys of some slots of a piece that have an entry, in the order of
    /// `direction`, and those among them that had one.
    fn keys_of_piece(
        &self,
        table: &Table,
        (piece, slots): (usize, std::ops::Range<usize>),
        direction: Direction,
        limit: usize,
    ) -> Result<Vec<u64>> {
        if !table.piece(piece).may_have_entries() {
            return Ok(Vec::new());
        }
        table.load_piece(piece)?;
        let [mut first, mut last] =
            [slots.start, slots.end - 1].map(|slot| table.key_of(piece, slot));
        let state = table.piece(piece);
        let live = state
            .live(slots, 1)
            .map(|(slot, _)| table.key_of(piece, slot));
        let mut keys: Vec<u64> = match direction {
            Direction::Forward => live.take(limit).collect(),
            Direction::Reverse => live.rev().take(limit).collect(),
        };
        drop(state);
        if let Some(&end) = keys.last().filter(|_| keys.len() == limit) {
            match direction {
                Direction::Forward => last = end,
                Direction::Reverse => first = end,
            }
        }
        // Keys that went since the cursor's moment.
        let old = self.history.keys_between(first, last);
        if !old.is_empty() {
            keys.extend(old);
            keys.sort_unstable();
            keys.dedup();
            if direction == Direction::Reverse {
                keys.reverse();
            }
        }
        Ok(keys)
    }

    /// Keeps the keys that had an entry at a moment, of keys that have or had one. The index tells, and
    /// no entry is read: a key that was changed since has its old version in the history.
    fn retain_seen(&self, keys: &mut Vec<u64>, at: u64) -> Result<()> {
        let mut seen = Vec::with_capacity(keys.len());
        for &key in &*keys {
            let is_there = matches!(self.candidate(key)?, Candidate::At(_));
            let before = self.history.version_at(key, at);
            if before.map_or(is_there, |old| old.is_some()) {
                seen.push(key);
            }
        }
        *keys = seen;
        Ok(())
    }
}

/// Integer keys in order, either way.
pub(crate) struct IntegerCursor {
    pin: Pin,
    direction: Direction,
    /// First and last key of the range; `None` for an empty one.
    bounds: Option<(u64, u64)>,
    /// What is left to look through.
    rest: Option<(u64, u64)>,
    /// The next keys, without values where keys alone were asked for.
    ready: VecDeque<(u64, Option<Value>)>,
    last: Option<u64>,
    batch: usize,
}

impl IntegerCursor {
    pub fn new(pin: Pin, bounds: Option<(u64, u64)>, direction: Direction) -> Self {
        IntegerCursor {
            pin,
            direction,
            bounds,
            rest: bounds,
            ready: VecDeque::new(),
            last: None,
            batch: FIRST_BATCH,
        }
    }

    /// After the key a token holds.
    pub fn resumed(pin: Pin, token: &ResumeToken) -> Result<Self> {
        let after = integer_key(token.as_bytes()).map_err(|_| foreign_token())?;
        let mut cursor = IntegerCursor::new(pin, Some((0, u64::MAX)), Direction::Forward);
        cursor.rest = after.checked_add(1).map(|first| (first, u64::MAX));
        cursor.last = Some(after);
        Ok(cursor)
    }

    /// Makes the next keys ready, with their values or without.
    fn fill(&mut self, with_values: bool) -> Result<()> {
        let core = self.pin.core.clone();
        while let Some(bounds) = self.rest.filter(|_| self.ready.is_empty()) {
            let (mut keys, next) = core.candidate_keys(bounds, self.direction, self.batch)?;
            self.batch = (self.batch * 2).min(LARGEST_BATCH);
            match with_values {
                true => self.ready.extend(self.read(keys)?),
                false => {
                    core.retain_seen(&mut keys, self.pin.sequence)?;
                    self.ready.extend(keys.into_iter().map(|key| (key, None)));
                }
            }
            self.rest = next.map(|next| match self.direction {
                Direction::Forward => (next, bounds.1),
                Direction::Reverse => (bounds.0, next),
            });
        }
        Ok(())
    }

    /// The values of keys that have some at the cursor's moment.
    fn read(&self, keys: Vec<u64>) -> Result<VecDeque<(u64, Option<Value>)>> {
        let entries = self.pin.core.read_versions(&keys, self.pin.sequence)?;
        let found = keys.into_iter().zip(entries);
        Ok(found
            .filter_map(|(key, entry)| Some((key, Some(entry?.value))))
            .collect())
    }
}

impl Cursor for IntegerCursor {
    fn another(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        let (pin, bounds) = (self.pin.again()?, integer_bounds(range));
        Ok(Box::new(IntegerCursor::new(pin, bounds, direction)))
    }

    fn next(&mut self) -> Result<Option<Entry>> {
        self.pin.core.check_open()?;
        if let Some((_, None)) = self.ready.front() {
            // Keys alone were asked for before.
            let keys = self.ready.iter().map(|(key, _)| *key).collect();
            self.ready = self.read(keys)?;
        }
        if self.ready.is_empty() {
            self.fill(true)?;
        }
        let Some((key, Some(value))) = self.ready.pop_front() else {
            return Ok(None);
        };
        self.last = Some(key);
        Ok(Some(Entry {
            key: key_bytes(key),
            value,
        }))
    }

    fn next_key(&mut self) -> Result<Option<Value>> {
        self.pin.core.check_open()?;
        if self.ready.is_empty() {
            self.fill(false)?;
        }
        let Some((key, _)) = self.ready.pop_front() else {
            return Ok(None);
        };
        self.last = Some(key);
        Ok(Some(key_bytes(key)))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.pin.core.check_open()?;
        let everything = match self.direction {
            Direction::Forward => first_at(key).map(|first| (first, u64::MAX)),
            Direction::Reverse => match first_at(key) {
                Some(first) if key.len() == 8 => Some((0, first)),
                Some(first) => first.checked_sub(1).map(|last| (0, last)),
                None => Some((0, u64::MAX)),
            },
        };
        let within = |(first, last): (u64, u64)| {
            let (lower, upper) = match self.pin.core.has_bug(SeededBug::SeekUnbounded) {
                true => (0, u64::MAX),
                false => self.bounds?,
            };
            let (first, last) = (first.max(lower), last.min(upper));
            (first <= last).then_some((first, last))
        };
        self.rest = everything.and_then(within);
        self.ready.clear();
        self.batch = FIRST_BATCH;
        Ok(())
    }

    fn resume_token(&self) -> Option<ResumeToken> {
        let last = self.last.filter(|_| self.direction == Direction::Forward)?;
        Some(ResumeToken::from_bytes(last.to_be_bytes().to_vec()))
    }
}

fn foreign_token() -> Error {
    Error::InvalidArgument("the resume token is not one of this store's cursors".into())
}

/// String keys in the order of their reversed hashes.
pub(crate) struct BucketCursor {
    pin: Pin,
    /// The next reversed hash to look at; 2^32 at the end.
    cursor: u64,
    ready: VecDeque<(u32, Entry)>,
    last: Option<(u32, Value)>,
    batch: usize,
}

impl BucketCursor {
    pub fn new(pin: Pin) -> Self {
        BucketCursor {
            pin,
            cursor: 0,
            ready: VecDeque::new(),
            last: None,
            batch: FIRST_BATCH,
        }
    }

    /// After the reversed hash and key a token holds.
    pub fn resumed(pin: Pin, token: &ResumeToken) -> Result<Self> {
        let mut decoder = Decoder::new(token.as_bytes());
        let (Some(hash), Some(key)) = (decoder.u32(), decoder.length_prefixed()) else {
            return Err(foreign_token());
        };
        let mut cursor = BucketCursor::new(pin);
        cursor.cursor = u64::from(hash);
        cursor.last = Some((hash, Value::copy_of(key)));
        Ok(cursor)
    }

    fn fill(&mut self) -> Result<()> {
        let core = self.pin.core.clone();
        let map = BucketMap::new(self.pin.buckets);
        while self.cursor < 1 << 32 && self.ready.is_empty() {
            let mut buckets = Vec::with_capacity(self.batch);
            let mut end = self.cursor;
            while end < 1 << 32 && buckets.len() < self.batch {
                let (bucket, next) = map.bucket_at(end as u32);
                buckets.push(bucket);
                end = next;
            }
            self.batch = (self.batch * 2).min(LARGEST_BATCH);
            let entries = core.read_versions(&buckets, self.pin.sequence)?;
            for (bucket, entry) in buckets.into_iter().zip(entries) {
                if let Some(entry) = entry {
                    self.take_bucket(&core, bucket, &entry.value)?;
                }
            }
            self.cursor = end;
        }
        Ok(())
    }

    fn take_bucket(&mut self, core: &Core, number: u64, bytes: &Value) -> Result<()> {
        let Some(bucket) = Bucket::decode(bytes) else {
            let what = format!("the value of bucket {number} is no list of keys and values");
            return Err(Error::corruption(&core.path, 0, what));
        };
        let mut entries: Vec<(u32, Entry)> = bucket
            .pairs
            .into_iter()
            .map(|(key, value)| (core.buckets.hash(&key).reverse_bits(), Entry { key, value }))
            .filter(|(hash, entry)| {
                let last = self.last.as_ref();
                last.is_none_or(|(known, key)| (*hash, &entry.key) > (*known, key))
            })
            .collect();
        entries.sort_by(|one, other| (one.0, &one.1.key).cmp(&(other.0, &other.1.key)));
        self.ready.extend(entries);
        Ok(())
    }
}

impl Cursor for BucketCursor {
    fn next(&mut self) -> Result<Option<Entry>> {
        self.pin.core.check_open()?;
        if self.ready.is_empty() {
            self.fill()?;
        }
        let Some((hash, entry)) = self.ready.pop_front() else {
            return Ok(None);
        };
        self.last = Some((hash, entry.key.clone()));
        Ok(Some(entry))
    }

    fn resume_token(&self) -> Option<ResumeToken> {
        let (hash, key) = self.last.as_ref()?;
        let mut bytes = hash.to_le_bytes().to_vec();
        put_length_prefixed(&mut bytes, key);
        Some(ResumeToken::from_bytes(bytes))
    }
}

/// Entries of one table after the other, each in the order of their sequence
/// numbers (ZDB, section II.C: insertion-order iterating).
pub(crate) struct InsertionCursor {
    pin: Pin,
    tables: VecDeque<u64>,
    /// Sequence and key of the current table's entries, in order.
    order: VecDeque<(u64, u64)>,
    current: u64,
    last: Option<(u64, u64)>,
}

impl InsertionCursor {
    pub fn new(pin: Pin) -> Self {
        let tables = pin.core.table_numbers().into();
        InsertionCursor {
            pin,
            tables,
            order: VecDeque::new(),
            current: 0,
            last: None,
        }
    }

    /// After the table and sequence number a token holds.
    pub fn resumed(pin: Pin, token: &ResumeToken) -> Result<Self> {
        let mut decoder = Decoder::new(token.as_bytes());
        let (Some(table), Some(sequence)) = (decoder.u64(), decoder.u64()) else {
            return Err(foreign_token());
        };
        let mut cursor = InsertionCursor::new(pin);
        cursor.tables.retain(|&number| number >= table);
        cursor.last = Some((table, sequence));
        Ok(cursor)
    }

    /// Sorts the next table's entries by sequence number: 16 bytes for each
    /// entry of one table, whatever the number of tables.
    fn next_table(&mut self) -> Result<bool> {
        let Some(number) = self.tables.pop_front() else {
            return Ok(false);
        };
        let core = self.pin.core.clone();
        let first = number.saturating_mul(core.shape.keys_per_table);
        let last = first.saturating_add(core.shape.keys_per_table - 1);
        let mut order = Vec::new();
        let mut rest = Some((first, last));
        while let Some(bounds) = rest {
            let (keys, next) = core.candidate_keys(bounds, Direction::Forward, LARGEST_BATCH)?;
            let entries = core.read_versions(&keys, self.pin.sequence)?;
            let found = keys.into_iter().zip(entries);
            order.extend(found.filter_map(|(key, entry)| Some((entry?.sequence.0, key))));
            rest = next.map(|next| (next, bounds.1));
        }
        if let Some((table, sequence)) = self.last {
            order.retain(|&(entry, _)| table != number || entry > sequence);
        }
        order.sort_unstable();
        self.order = order.into();
        self.current = number;
        Ok(true)
    }
}

impl Cursor for InsertionCursor {
    fn next(&mut self) -> Result<Option<Entry>> {
        self.pin.core.check_open()?;
        loop {
            while let Some((sequence, key)) = self.order.pop_front() {
                self.last = Some((self.current, sequence));
                if let Some(entry) = self.pin.core.read_version(key, Some(self.pin.sequence))? {
                    return Ok(Some(Entry {
                        key: key_bytes(key),
                        value: entry.value,
                    }));
                }
            }
            if !self.next_table()? {
                return Ok(None);
            }
        }
    }

    fn resume_token(&self) -> Option<ResumeToken> {
        let (table, sequence) = self.last?;
        let mut bytes = table.to_le_bytes().to_vec();
        bytes.extend_from_slice(&sequence.to_le_bytes());
        Some(ResumeToken::from_bytes(bytes))
    }
}
