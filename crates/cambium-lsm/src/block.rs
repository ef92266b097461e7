//! Blocks: entries with shared prefixes, searched by whole keys at intervals.
//!
//! ```text
//! ┌ entry │ entry │ … ┬ restart 0 │ restart 1 │ … ┬ restarts ┐
//! │                   │  4 bytes each             │ 4 bytes  │
//! └───────────────────┴───────────────────────────┴──────────┘
//! entry: varint shared · varint own · varint value length · kind · varint sequence · own key bytes · value
//! ```
//!
//! A key is written as what it does not share with the key before. Every so
//! many entries a *restart* shares nothing, and its offset stands at the end: a
//! search halves over the restarts and reads on from one. The format is
//! LevelDB's idea; the sequence number is a varint of its own instead of a tail
//! of the key, since pointers into a log are small and numbers are many.
//!
//! The same blocks hold entries, the index over blocks, and range tombstones.
//! A block came through its checksum before it is decoded; what is malformed
//! all the same answers [`BadBlock`] and never panics.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use cambium_base::Value;
use cambium_base::coding::{common_prefix, u32_at};
use cambium_base::varint::{put_varint, varint_at};

use crate::entry::{EntryKind, EntryRef, compare, same_key};

/// Builds a block from entries in order.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    interval: u32,
    since_restart: u32,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    /// A block with a whole key every `interval` entries.
    pub fn new(interval: u32) -> Self {
        BlockBuilder {
            bytes: Vec::new(),
            restarts: Vec::new(),
            interval: interval.max(1),
            since_restart: 0,
            last_key: Vec::new(),
        }
    }

    /// True if nothing was added.
    pub fn is_empty(&self) -> bool {
        self.restarts.is_empty()
    }

    /// Bytes if it were finished now.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.restarts.len() * 4 + 4
    }

    /// Adds an entry, which lies after the last.
    pub fn add(&mut self, entry: EntryRef<'_>) {
        let shared = if self.since_restart == 0 {
            self.restarts.push(self.bytes.len() as u32);
            0
        } else {
            common_prefix(&self.last_key, entry.key)
        };
        self.since_restart = (self.since_restart + 1) % self.interval;
        let own = &entry.key[shared..];
        put_varint(&mut self.bytes, shared as u64);
        put_varint(&mut self.bytes, own.len() as u64);
        put_varint(&mut self.bytes, entry.value.len() as u64);
        self.bytes.push(entry.kind as u8);
        put_varint(&mut self.bytes, entry.sequence);
        self.bytes.extend_from_slice(own);
        self.bytes.extend_from_slice(entry.value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(own);
    }

    /// The block's bytes; the builder begins anew.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        for restart in &self.restarts {
            bytes.extend_from_slice(&restart.to_le_bytes());
        }
        bytes.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        self.restarts.clear();
        self.since_restart = 0;
        self.last_key.clear();
        bytes
    }
}

/// Bytes that most keys have of their own, at most.
const SHORT_BYTES: usize = 16;

/// Entries that are walked before a search from the restarts is cheaper.
const MOST_STEPS: usize = 24;

/// A block whose bytes make no sense, and where within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadBlock(pub usize);

/// A block in memory; cheap to clone. It may be a part of bytes that were read together:
/// offsets below are those in all of them.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    bytes: Arc<[u8]>,
    /// The entries begin here.
    start: usize,
    /// Where the entries end and the restarts begin.
    entries_end: usize,
    restarts: usize,
}

impl Block {
    /// Takes bytes for a block.
    pub fn new(bytes: Arc<[u8]>) -> Result<Self, BadBlock> {
        let length = bytes.len();
        Self::within(bytes, 0..length)
    }

    /// Takes a part of bytes for a block.
    pub fn within(bytes: Arc<[u8]>, range: Range<usize>) -> Result<Self, BadBlock> {
        let start = range.start;
        let count_at = range.end.checked_sub(4).filter(|&at| at >= start);
        let count_at = count_at.filter(|_| range.end <= bytes.len());
        let count_at = count_at.ok_or(BadBlock(0))?;
        let restarts = u32_at(&bytes, count_at) as usize;
        let bad = BadBlock(count_at - start);
        let entries_end = restarts
            .checked_mul(4)
            .and_then(|table| count_at.checked_sub(table))
            .filter(|&end| end >= start)
            .ok_or(bad)?;
        if (restarts == 0) != (entries_end == start) {
            return Err(bad);
        }
        Ok(Block {
            bytes,
            start,
            entries_end,
            restarts,
        })
    }

    /// All bytes that it is a part of.
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Bytes it takes in memory.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + 48
    }

    fn restart(&self, number: usize) -> Result<usize, BadBlock> {
        let at = self.entries_end + number * 4;
        let offset = self.start + u32_at(&self.bytes, at) as usize;
        if offset < self.entries_end {
            Ok(offset)
        } else {
            Err(BadBlock(at - self.start))
        }
    }

    /// The entry's head at `offset`.
    #[inline]
    fn head(&self, offset: usize) -> Result<Head, BadBlock> {
        let bytes = &self.bytes[..self.entries_end];
        let bad = BadBlock(offset - self.start);
        let (lengths, at) = lengths_at(bytes, offset).ok_or(bad)?;
        let [shared, own, value] = lengths;
        let kind = bytes.get(at).copied().and_then(EntryKind::from_byte);
        let kind = kind.ok_or(bad)?;
        let number = bytes.get(at + 1..).ok_or(bad)?;
        let (sequence, length) = short_varint(number)
            .or_else(|| varint_at(number))
            .ok_or(bad)?;
        let at = at + 1 + length;
        let key_end = at.checked_add(own).ok_or(bad)?;
        let end = key_end.checked_add(value).ok_or(bad)?;
        if end > bytes.len() {
            return Err(bad);
        }
        Ok(Head {
            shared,
            own: at..key_end,
            value: key_end..end,
            kind,
            sequence,
        })
    }

    /// The last restart whose entry lies before the place, or the first one.
    fn restart_before(&self, key: &[u8], sequence: u64) -> Result<usize, BadBlock> {
        let (mut low, mut high) = (0, self.restarts);
        // Restarts below `low` lie before the place, those from `high` on do not.
        while low < high {
            let middle = low + (high - low) / 2;
            let offset = self.restart(middle)?;
            let head = self.head(offset)?;
            if head.shared != 0 {
                return Err(BadBlock(offset - self.start));
            }
            let place = (&self.bytes[head.own.clone()], head.sequence);
            if compare(place, (key, sequence)) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low.saturating_sub(1))
    }
}

/// A number of up to four bytes at the start of more, without a step for each byte.
#[inline]
fn short_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let word = u32::from_le_bytes(*bytes.first_chunk()?);
    let ends = !word & 0x8080_8080;
    let bits = ends.trailing_zeros() + 1;
    let all = (u64::from(word) & ((1 << bits) - 1)) as u32 & 0x7f7f_7f7f;
    let pairs = all & 0x007f_007f | (all & 0x7f00_7f00) >> 1;
    let number = pairs & 0x3fff | (pairs & 0x3fff_0000) >> 2;
    (ends != 0).then_some((number.into(), bits as usize / 8))
}

/// The three lengths that an entry begins with, and where they end.
#[inline]
fn lengths_at(bytes: &[u8], offset: usize) -> Option<([usize; 3], usize)> {
    // Nearly all are below 128, and take a byte each.
    if let Some(&[shared, own, value]) = bytes.get(offset..).and_then(|rest| rest.first_chunk()) {
        if (shared | own | value) < 0x80 {
            return Some(([shared.into(), own.into(), value.into()], offset + 3));
        }
    }
    let mut at = offset;
    let mut lengths = [0; 3];
    for length in &mut lengths {
        let (number, bytes_taken) = varint_at(bytes.get(at..)?)?;
        at += bytes_taken;
        *length = usize::try_from(number).ok()?;
    }
    Some((lengths, at))
}

/// An entry without its shared bytes.
#[derive(Debug)]
struct Head {
    shared: usize,
    own: Range<usize>,
    value: Range<usize>,
    kind: EntryKind,
    sequence: u64,
}

/// Stands at an entry of a block, or outside.
#[derive(Debug)]
pub(crate) struct BlockCursor {
    block: Block,
    key: Vec<u8>,
    sequence: u64,
    kind: EntryKind,
    value: Range<usize>,
    /// Where the entry begins, if it stands at one.
    start: Option<usize>,
    /// Going backward: the entries from the last restart up to this one, the next to be
    /// visited last, and their keys.
    passed: Vec<Passed>,
    passed_keys: Vec<u8>,
}

/// An entry that a walk backward comes to.
#[derive(Debug)]
struct Passed {
    start: usize,
    /// Its key begins here among the keys of all.
    key: usize,
    sequence: u64,
    kind: EntryKind,
    value: Range<usize>,
}

impl BlockCursor {
    /// Outside the block.
    pub fn new(block: Block) -> Self {
        BlockCursor {
            block,
            key: Vec::new(),
            sequence: 0,
            kind: EntryKind::Value,
            value: 0..0,
            start: None,
            passed: Vec::new(),
            passed_keys: Vec::new(),
        }
    }

    /// True if it stands at an entry.
    #[inline]
    pub fn is_placed(&self) -> bool {
        self.start.is_some()
    }

    /// The entry it stands at.
    #[inline]
    pub fn entry(&self) -> Option<EntryRef<'_>> {
        self.start?;
        Some(EntryRef {
            key: &self.key,
            sequence: self.sequence,
            kind: self.kind,
            value: &self.block.bytes[self.value.clone()],
        })
    }

    /// The value from its byte `from` on; shares the block.
    #[inline]
    pub fn shared_value(&self, from: usize) -> Value {
        let start = (self.value.start + from).min(self.value.end);
        Value::part_of(&self.block.bytes, start..self.value.end)
    }

    /// The share of the block's bytes that lies before the place, from 0 to 1.
    pub fn share_before(&self) -> f64 {
        let bytes = self.block.entries_end - self.block.start;
        let before = self.start.map_or(bytes, |start| start - self.block.start);
        before as f64 / bytes.max(1) as f64
    }

    fn outside(&mut self) {
        self.start = None;
    }

    /// Goes to the entry at `offset`; true if it has the key of the one before.
    #[inline]
    fn read_at(&mut self, offset: usize) -> Result<bool, BadBlock> {
        let head = self.block.head(offset)?;
        if head.shared > self.key.len() {
            return Err(BadBlock(offset - self.block.start));
        }
        let own = &self.block.bytes[head.own.clone()];
        let repeats = match head.shared {
            0 => same_key(own, &self.key),
            shared => own.is_empty() && shared == self.key.len(),
        };
        self.key.truncate(head.shared);
        match self.block.bytes[head.own.start..].first_chunk::<SHORT_BYTES>() {
            // For a few bytes a call that copies costs more than to copy too many.
            Some(more) if own.len() <= SHORT_BYTES => {
                let end = head.shared + own.len();
                self.key.extend_from_slice(more);
                self.key.truncate(end);
            }
            _ => self.key.extend_from_slice(own),
        }
        self.sequence = head.sequence;
        self.kind = head.kind;
        self.value = head.value;
        self.start = Some(offset);
        Ok(repeats)
    }

    fn go_to_restart(&mut self, number: usize) -> Result<(), BadBlock> {
        let offset = self.block.restart(number)?;
        self.passed.clear();
        self.key.clear();
        self.read_at(offset).map(drop)
    }

    /// To the first entry.
    pub fn seek_first(&mut self) -> Result<(), BadBlock> {
        if self.block.restarts == 0 {
            self.outside();
            return Ok(());
        }
        self.go_to_restart(0)
    }

    /// To the last entry.
    pub fn seek_last(&mut self) -> Result<(), BadBlock> {
        let Some(last) = self.block.restarts.checked_sub(1) else {
            self.outside();
            return Ok(());
        };
        self.go_to_restart(last)?;
        while self.value.end < self.block.entries_end {
            self.read_at(self.value.end)?;
        }
        Ok(())
    }

    /// To the first entry at or after the place.
    pub fn seek(&mut self, key: &[u8], sequence: u64) -> Result<(), BadBlock> {
        if self.block.restarts == 0 {
            self.outside();
            return Ok(());
        }
        let restart = self.block.restart_before(key, sequence)?;
        self.go_to_restart(restart)?;
        while compare((&self.key, self.sequence), (key, sequence)) == Ordering::Less {
            if self.value.end >= self.block.entries_end {
                self.outside();
                return Ok(());
            }
            self.read_at(self.value.end)?;
        }
        Ok(())
    }

    /// True if it stands at an entry that lies before the place.
    fn is_before(&self, key: &[u8], sequence: u64) -> bool {
        self.start.is_some()
            && compare((&self.key, self.sequence), (key, sequence)) == Ordering::Less
    }

    /// As [`BlockCursor::seek`], for places that come in order: where the next one is
    /// close behind, it is walked to.
    pub fn seek_on(&mut self, key: &[u8], sequence: u64) -> Result<(), BadBlock> {
        let mut steps = 0;
        while self.is_before(key, sequence) && steps < MOST_STEPS {
            self.next()?;
            if !self.is_before(key, sequence) {
                // At it, or after the last entry.
                return Ok(());
            }
            steps += 1;
        }
        self.seek(key, sequence)
    }

    /// To the last entry before the place.
    pub fn seek_before(&mut self, key: &[u8], sequence: u64) -> Result<(), BadBlock> {
        self.seek(key, sequence)?;
        match self.start {
            Some(_) => self.previous(),
            None => self.seek_last(),
        }
    }

    /// To the next entry.
    #[inline]
    pub fn next(&mut self) -> Result<(), BadBlock> {
        if self.start.is_none() || self.value.end >= self.block.entries_end {
            self.outside();
            return Ok(());
        }
        self.passed.clear();
        self.read_at(self.value.end).map(drop)
    }

    /// To the next entry; true if it has the same key. `None` if there is no other in the
    /// block, or one that makes no sense: it stays where it is, and [`BlockCursor::next`]
    /// answers the error.
    #[inline]
    pub fn next_within(&mut self) -> Option<bool> {
        if self.start.is_none() || self.value.end >= self.block.entries_end {
            return None;
        }
        self.passed.clear();
        self.read_at(self.value.end).ok()
    }

    /// To the entry before. Reads on from the restart before it, and remembers what it
    /// passes: that comes next.
    pub fn previous(&mut self) -> Result<(), BadBlock> {
        let Some(start) = self.start else {
            return Ok(());
        };
        if let Some(before) = self.passed.pop() {
            self.key.clear();
            self.key.extend_from_slice(&self.passed_keys[before.key..]);
            self.passed_keys.truncate(before.key);
            self.sequence = before.sequence;
            self.kind = before.kind;
            self.value = before.value;
            self.start = Some(before.start);
            return Ok(());
        }
        let (mut low, mut high) = (0, self.block.restarts);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.block.restart(middle)? < start {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let Some(restart) = low.checked_sub(1) else {
            self.outside();
            return Ok(());
        };
        self.go_to_restart(restart)?;
        self.passed_keys.clear();
        while self.value.end < start {
            self.passed.push(Passed {
                start: self.start.unwrap_or(start),
                key: self.passed_keys.len(),
                sequence: self.sequence,
                kind: self.kind,
                value: self.value.clone(),
            });
            self.passed_keys.extend_from_slice(&self.key);
            self.read_at(self.value.end)?;
        }
        Ok(())
    }
}

/// Decodes any bytes as a block, forward and backward; answers how many
/// entries both found. For tests of decoders.
#[doc(hidden)]
pub fn decode_block_entries(bytes: &[u8]) -> Option<usize> {
    let walk = || -> Result<usize, BadBlock> {
        let mut cursor = BlockCursor::new(Block::new(bytes.into())?);
        let mut forward = 0;
        cursor.seek_first()?;
        while cursor.entry().is_some() {
            forward += 1;
            cursor.next()?;
        }
        cursor.seek_last()?;
        // Restarts of malformed blocks may lead round in circles.
        for _ in 0..forward {
            if cursor.entry().is_none() {
                break;
            }
            cursor.previous()?;
        }
        cursor.seek(b"m", 5)?;
        cursor.seek_before(b"m", 5)?;
        Ok(forward)
    };
    walk().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_numbers_are_read_as_all_are() {
        for shift in 0..64 {
            for number in [(1u64 << shift) - 1, 1 << shift, (1 << shift) | 1] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, number);
                bytes.extend_from_slice(&[0xff; 3]);
                let short = short_varint(&bytes);
                assert_eq!(short.is_some(), number < 1 << 28);
                assert_eq!(short.or_else(|| varint_at(&bytes)), varint_at(&bytes));
            }
        }
    }

    fn sample(interval: u32) -> (Vec<(Vec<u8>, u64)>, Block) {
        let mut places = Vec::new();
        for number in 0..60u32 {
            let key = format!("key{:04}", number / 3 * 7).into_bytes();
            places.push((key, u64::from(100 - number % 3 * 20)));
        }
        let mut builder = BlockBuilder::new(interval);
        assert!(builder.is_empty());
        for (key, sequence) in &places {
            builder.add(EntryRef {
                key,
                sequence: *sequence,
                kind: EntryKind::Value,
                value: &sequence.to_le_bytes(),
            });
        }
        let expected = builder.bytes();
        let bytes = builder.finish();
        assert_eq!(bytes.len(), expected);
        (places, Block::new(bytes.into()).unwrap())
    }

    fn place(cursor: &BlockCursor) -> Option<(Vec<u8>, u64)> {
        let entry = cursor.entry()?;
        assert_eq!(entry.value, entry.sequence.to_le_bytes());
        Some((entry.key.to_vec(), entry.sequence))
    }

    #[test]
    fn entries_come_back_forward_and_backward_at_every_interval() {
        for interval in [1, 2, 7, 16, 100] {
            let (places, block) = sample(interval);
            let mut cursor = BlockCursor::new(block);
            cursor.seek_first().unwrap();
            for expected in &places {
                assert_eq!(place(&cursor).as_ref(), Some(expected));
                cursor.next().unwrap();
            }
            assert_eq!(place(&cursor), None);
            cursor.seek_last().unwrap();
            for expected in places.iter().rev() {
                assert_eq!(place(&cursor).as_ref(), Some(expected));
                cursor.previous().unwrap();
            }
            assert_eq!(place(&cursor), None);
        }
    }

    #[test]
    fn seeking_finds_the_neighbours_of_every_place() {
        for interval in [1, 3, 16] {
            let (places, block) = sample(interval);
            let mut cursor = BlockCursor::new(block);
            let keys = places.iter().map(|place| place.0.clone());
            for key in keys.chain([b"".to_vec(), b"zzz".to_vec(), b"key0001".to_vec()]) {
                for sequence in [0, 60, 61, 80, 100, u64::MAX] {
                    let target = (&key[..], sequence);
                    let at = places.partition_point(|place| {
                        compare((&place.0, place.1), target) == Ordering::Less
                    });
                    cursor.seek(&key, sequence).unwrap();
                    assert_eq!(place(&cursor).as_ref(), places.get(at));
                    cursor.seek_before(&key, sequence).unwrap();
                    let before = at.checked_sub(1).map(|before| &places[before]);
                    assert_eq!(place(&cursor).as_ref(), before);
                }
            }
        }
    }

    #[test]
    fn an_empty_block_has_nothing_to_stand_at() {
        let block = Block::new(BlockBuilder::new(4).finish().into()).unwrap();
        let mut cursor = BlockCursor::new(block);
        cursor.seek_first().unwrap();
        assert_eq!(cursor.entry(), None);
        cursor.seek_before(b"a", 1).unwrap();
        assert_eq!(cursor.entry(), None);
    }
}
