//! Values that need no device: the walk along the keys reads them from the operating
//! system's cache.
//!
//! Reads that go to a device are worth a queue ([`crate::ahead`]); those that the
//! cache answers cost less than handing them to one. So a cursor with nothing under
//! way asks the cache first, in a call that never waits.
//!
//! ```text
//!   segment  │ a │ b │ c │ d │ e │ f │ g │ …      values in the order of their keys
//!            └── stretch ────────┘                one read; a, b, c … are parts of it
//! ```
//!
//! Where the value of the next key lies right beside, as collection and compaction
//! put it, a *stretch* is read: what comes next comes along. The first is short and
//! each is twice as long as the one before, so that a short walk reads little in
//! vain. Entries share the stretch, and its memory is used again once they are gone.
//! What is read again and again is kept, verified, and asked no more of the operating
//! system ([`crate::kept`]): stretches therefore end where units of that do.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use cambium_api::Direction;
use cambium_base::{Result, Value};
use cambium_io::File;

use crate::core::Core;
use crate::format::ValuePointer;
use crate::kept::{KeptStretch, LARGEST_KEPT, UNIT_BYTES};
use crate::open_files::Walk;
use crate::read::Wanted;
use crate::segment::{Segment, Segments};

/// Bytes of the first stretch, at least.
const FIRST_STRETCH: usize = 4 << 10;
/// Most bytes of a stretch, but for the end of its last unit.
const LARGEST_STRETCH: usize = 2 * UNIT_BYTES as usize;
/// After so many bytes of a walk the operating system reads ahead for it.
const LONG_WALK: u64 = 512 << 10;
/// Between two stretches of a walk: what was read ahead past this ([`crate::ahead`]).
const LONGEST_GAP: u64 = 4 << 20;
/// Most that a value keeps alive.
const ROOM_BYTES: usize = 64 << 10;

thread_local! {
    /// The memory of a stretch, between two cursors.
    static SPARE: Cell<Option<Arc<[u8]>>> = const { Cell::new(None) };
}

/// What was read of a segment, for one cursor.
#[derive(Debug, Default)]
pub(crate) struct AtHand {
    segments: Option<Arc<Segments>>,
    /// Of which the stretch is.
    segment: Option<Arc<Segment>>,
    /// The stretch, if it is a kept one.
    kept: Option<KeptStretch>,
    /// Where it lies otherwise.
    range: Range<u64>,
    bytes: Option<Arc<[u8]>>,
    /// Bytes of the next stretch.
    next_bytes: usize,
    /// Bytes of stretches since the cursor went elsewhere.
    walked_bytes: u64,
    /// Once they are many: of the segment that they lie in.
    walk: Option<Walk>,
    /// A record that lay alone. Who keeps its value keeps no more than twice its bytes.
    alone: Option<Arc<[u8]>>,
}

impl AtHand {
    /// The cursor goes elsewhere: what follows may be little.
    pub fn clear(&mut self) {
        self.kept = None;
        self.next_bytes = FIRST_STRETCH;
        self.walked_bytes = 0;
        self.walk = None;
    }

    /// A value, if it lies in the stretch, or in the kept one.
    #[inline]
    pub fn in_stretch(
        &mut self,
        pointer: ValuePointer,
        full_key: &[u8],
        sequence: u64,
    ) -> Option<Result<Value>> {
        if let Some(kept) = &mut self.kept {
            if let Some((bytes, within)) = kept.value(pointer, full_key.len(), sequence) {
                return Some(Ok(Value::part_of(bytes, within)));
            }
        }
        let segment = self.segment.as_ref()?;
        let end = pointer.offset + pointer.record_bytes(full_key.len());
        let range = &self.range;
        if segment.number != pointer.segment || pointer.offset < range.start || end > range.end {
            return None;
        }
        let bytes = self.bytes.as_ref()?;
        let start = (pointer.offset - self.range.start) as usize;
        let record = &bytes[start..(end - self.range.start) as usize];
        let within = segment.value_within(pointer, full_key, sequence, record);
        Some(within.map(|within| Value::part_of(bytes, start + within.start..start + within.end)))
    }

    /// Reads a value that needs no device; `None` if it does. `beside`: the value of
    /// the next key in `direction` lies right beside it.
    pub fn read(
        &mut self,
        core: &Core,
        want: &Wanted,
        direction: Direction,
        beside: bool,
    ) -> Option<Result<Value>> {
        let segment = match self.segment_of(core, want.pointer) {
            Some(segment) => segment,
            None => return Some(Err(core.lost_segment(want.pointer))),
        };
        let (pointer, key) = (want.pointer, want.full_key.as_slice());
        if pointer.offset >= segment.log.written_end() {
            let read = core.read_one(&segment, pointer, key, want.sequence);
            return read.transpose();
        }
        let bytes = pointer.record_bytes(key.len()) as usize;
        if bytes > LARGEST_STRETCH {
            return None;
        }
        let record = pointer.offset..pointer.offset + bytes as u64;
        self.kept = segment.kept.find(&segment.log, record);
        if self.kept.is_some() {
            let kept = self.in_stretch(pointer, key, want.sequence);
            return kept.or_else(|| self.read_alone(&segment, want, bytes));
        }
        let value = match beside {
            true => {
                self.read_stretch(&segment, pointer.offset, bytes, direction);
                self.in_stretch(pointer, key, want.sequence)
            }
            false => self.read_alone(&segment, want, bytes),
        };
        if value.is_some() {
            core.counters.value_reads.add(1);
        }
        value
    }

    /// Segments as they were while the cursor's moment was pinned: they stay open.
    fn segment_of(&mut self, core: &Core, pointer: ValuePointer) -> Option<Arc<Segment>> {
        let same = |segment: &&Arc<Segment>| segment.number == pointer.segment;
        if let Some(segment) = self.segment.as_ref().filter(same) {
            return Some(segment.clone());
        }
        let segments = self
            .segments
            .get_or_insert_with(|| core.segments.load_full());
        segments.get(&pointer.segment).cloned()
    }

    /// Reads the record of `bytes` bytes at `offset`, and what lies after it the way
    /// that the cursor goes.
    fn read_stretch(
        &mut self,
        segment: &Arc<Segment>,
        offset: u64,
        bytes: usize,
        direction: Direction,
    ) {
        let length = self.next_bytes.max(FIRST_STRETCH).max(bytes);
        self.next_bytes = (length * 2).max(UNIT_BYTES as usize).min(LARGEST_STRETCH);
        if !self.goes_on(segment, offset, bytes, direction) {
            (self.walked_bytes, self.walk) = (0, None);
        }
        self.walked_bytes += length as u64;
        if self.walked_bytes >= LONG_WALK
            && !self.walk.as_ref().is_some_and(|at| at.is_in(&segment.file))
        {
            self.walk = Some(Walk::begin(&segment.file));
        }
        let cuts = segment.log.cuts();
        let range = match direction {
            Direction::Forward => {
                let end = match bytes <= LARGEST_KEPT {
                    // The last record of a unit may end in the next; so may a stretch
                    // begin a little after the start of one.
                    true => {
                        let most_of_it = offset + length as u64 / 4 * 3;
                        most_of_it.next_multiple_of(UNIT_BYTES) + bytes as u64
                    }
                    false => offset + length as u64,
                };
                // What lies beyond is written, or will be, while this reads.
                offset..end.min(segment.log.written_end())
            }
            Direction::Reverse => {
                let end = offset + bytes as u64;
                end.saturating_sub(length as u64)..end
            }
        };
        let length = range.end.saturating_sub(range.start) as usize;
        let mut memory = self.bytes.take().or_else(|| SPARE.take());
        let room = match memory.as_mut().and_then(Arc::get_mut) {
            Some(room) => room,
            // Somebody still has entries of the stretch before.
            None => {
                let zeros = std::iter::repeat_n(0, ROOM_BYTES);
                Arc::make_mut(memory.insert(zeros.collect()))
            }
        };
        let count = segment
            .file
            .read_cached_at(&mut room[..length], range.start);
        segment.file.count_read(count as u64);
        if direction == Direction::Forward && bytes <= LARGEST_KEPT {
            let kept = &segment.kept;
            kept.offer(&segment.log, range.start, &room[..count], cuts);
            self.kept = kept.find(&segment.log, offset..offset + bytes as u64);
        }
        self.bytes = memory;
        self.range = range.start..range.start + count as u64;
        self.segment = Some(segment.clone());
    }

    /// True if a record lies about where the last stretch ended, or where a walk comes into
    /// the next segment.
    fn goes_on(&self, segment: &Segment, offset: u64, bytes: usize, direction: Direction) -> bool {
        let near = |from: u64, to: u64| from.abs_diff(to) <= LONGEST_GAP;
        let same = |last: &Arc<Segment>| last.number == segment.number;
        let is_same = self.segment.as_ref().is_some_and(same);
        let end = offset + bytes as u64;
        match direction {
            Direction::Forward if is_same => near(offset, self.range.end),
            Direction::Forward => near(offset, segment.log.geometry().first_offset),
            Direction::Reverse if is_same => near(end, self.range.start),
            Direction::Reverse => near(end, segment.log.written_end()),
        }
    }

    fn read_alone(
        &mut self,
        segment: &Segment,
        want: &Wanted,
        bytes: usize,
    ) -> Option<Result<Value>> {
        let fits = |room: &mut [u8]| (bytes..=2 * bytes).contains(&room.len());
        let before = self.alone.as_mut().and_then(Arc::get_mut);
        if !before.is_some_and(fits) {
            // Somebody still has the value before, or it was of another size.
            self.alone = Some(std::iter::repeat_n(0, bytes).collect());
        }
        let memory = self.alone.as_mut()?;
        let record = &mut Arc::get_mut(memory)?[..bytes];
        if segment.file.read_cached_at(record, want.pointer.offset) < bytes {
            return None;
        }
        segment.file.count_read(bytes as u64);
        let within = segment.value_within(want.pointer, &want.full_key, want.sequence, record);
        Some(within.map(|within| Value::part_of(memory, within)))
    }
}

impl Drop for AtHand {
    fn drop(&mut self) {
        if let Some(mut bytes) = self.bytes.take() {
            if Arc::get_mut(&mut bytes).is_some() {
                SPARE.set(Some(bytes));
            }
        }
    }
}
