//! Moving what is live: a window of values, sorted by key, to a *moved* segment, and
//! the tree's pointers after them.
//!
//! A pointer is exchanged only if it still is what the collection saw, and in memory
//! first. The flush that brings it into a table syncs the values before the table
//! counts, as it does for those that writers wrote: one sync for many windows. Until
//! then the old pointer and the old value are what a crash leaves.

use std::ops::Range;
use std::sync::Arc;

use cambium_base::{Durability, Result, SequenceNumber};
use cambium_io::sync::atomic::Ordering;
use cambium_lsm::{Relocation, Replaced, Seen};
use cambium_storage::record::RecordHeader;

use crate::collect::{Collector, Work};
use crate::core::{Core, lock};
use crate::format::{ALIGNMENT, FLAG_MOVED, SegmentKind, ValuePointer, kind};
use crate::note::NoteItem;
use crate::seeded_bug::SeededBug;
use crate::segment::Segment;
use crate::value_log::{LogEntry, segment_item};

/// Appended to a moved segment before it is handed over. No more: a log keeps a buffer
/// of this size for the next time.
pub(crate) const WRITE_BYTES: u64 = 512 << 10;

/// Pointers that are exchanged at once.
const SWAPPED: usize = 2048;

/// A value that the tree points to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveValue<'v> {
    pub full_key: &'v [u8],
    pub value: &'v [u8],
    pub sequence: u64,
    pub pointer: ValuePointer,
}

impl<'v> LiveValue<'v> {
    fn log_entry(&self) -> LogEntry<'v> {
        let key = self.full_key;
        LogEntry::new(kind::PUT, key.len() as u32, key, self.value)
    }

    /// Bytes its record takes.
    pub fn record_bytes(&self) -> u64 {
        self.pointer.record_bytes(self.full_key.len())
    }

    fn payload_bytes(&self) -> u64 {
        (self.full_key.len() + self.value.len()) as u64
    }

    /// The header of its next record: a template gives the part that all of them
    /// share.
    fn header(&self, template: &RecordHeader) -> RecordHeader {
        RecordHeader {
            sequence: SequenceNumber(self.sequence),
            auxiliary: self.full_key.len() as u32,
            ..*template
        }
    }

    /// Bytes its next record will take.
    fn will_take(&self, template: &RecordHeader) -> u64 {
        let header = self.header(template);
        header.record_bytes(self.payload_bytes(), ALIGNMENT)
    }
}

/// Where a value went.
#[derive(Clone, Debug)]
struct Moved {
    place: Range<u64>,
    header_bytes: u8,
}

impl Moved {
    fn bytes(&self) -> u64 {
        self.place.end - self.place.start
    }
}

/// Moved segments with bytes that no sync covers yet.
#[derive(Debug, Default)]
pub(crate) struct MovedUnsynced(Vec<Unsynced>);

#[derive(Clone, Debug)]
struct Unsynced {
    segment: Arc<Segment>,
    /// Up to where something was appended.
    end: u64,
    /// Nothing more comes.
    finished: bool,
}

impl MovedUnsynced {
    /// Something was appended to a segment.
    fn add(&mut self, segment: &Arc<Segment>) {
        let end = segment.log.end();
        match self.of(segment) {
            Some(known) => known.end = end,
            None => self.0.push(Unsynced {
                segment: segment.clone(),
                end,
                finished: false,
            }),
        }
    }

    /// Nothing more is appended to a segment: once it is synced its file may be closed.
    pub fn finished(&mut self, segment: &Arc<Segment>) {
        match self.of(segment) {
            Some(known) => known.finished = true,
            None => segment.file.release(),
        }
    }

    fn of(&mut self, segment: &Arc<Segment>) -> Option<&mut Unsynced> {
        let is_it = |known: &&mut Unsynced| Arc::ptr_eq(&known.segment, segment);
        self.0.iter_mut().find(is_it)
    }

    /// What is to be synced.
    pub fn pending(&self) -> Vec<(Arc<Segment>, u64)> {
        let all = self.0.iter();
        all.map(|known| (known.segment.clone(), known.end))
            .collect()
    }

    /// Segments were synced up to where they ended then.
    pub fn synced(&mut self, done: &[(Arc<Segment>, u64)]) {
        let is_done = |known: &Unsynced| {
            let mut done = done.iter();
            done.any(|(segment, end)| Arc::ptr_eq(segment, &known.segment) && *end == known.end)
        };
        self.0.retain(|known| {
            let goes = is_done(known);
            if goes && known.finished {
                known.segment.file.release();
            }
            !goes
        });
    }
}

impl Core {
    /// Appends live values, which come in key order, to the moved segment, and has the
    /// tree point there. `seen`: of the lookups that found them.
    pub fn move_window(
        self: &Arc<Self>,
        collector: &mut Collector,
        window: &[LiveValue<'_>],
        seen: Option<&Seen>,
        work: &mut Work,
    ) -> Result<()> {
        if self.has_bug(SeededBug::CollectionReinserts) {
            return self.reinsert(window);
        }
        let mut rest = window;
        while !rest.is_empty() {
            let started = self.environment.clock.monotonic();
            let bytes = rest[0].record_bytes();
            let output = self.output_for(collector, bytes)?;
            let moved = self.append_moved(&output, rest)?;
            let (part, left) = rest.split_at(moved.len());
            rest = left;
            work.bytes_written += moved.iter().map(Moved::bytes).sum::<u64>();
            work.values += part.len() as u64;
            work.write += self.since(started);
            let started = self.environment.clock.monotonic();
            if !self.has_bug(SeededBug::MovedUnsynced) {
                lock(&self.writer).moved.add(&output);
            }
            self.relocate(&output, part, &moved, seen)?;
            work.flush += self.since(started);
        }
        Ok(())
    }

    /// The moved segment that takes a record of `bytes` more.
    fn output_for(&self, collector: &mut Collector, bytes: u64) -> Result<Arc<Segment>> {
        if let Some(output) = &collector.output {
            let end = output.log.end();
            if end.saturating_add(bytes) <= self.moved_segment_bytes() {
                return Ok(output.clone());
            }
            // Space that was taken ahead goes back.
            output
                .log
                .cut_back(end)
                .map_err(|error| self.health.poison(error))?;
            lock(&self.writer).moved.finished(output);
        }
        let mut writer = lock(&self.writer);
        let output = self
            .new_segment(&mut writer, SegmentKind::Moved)
            .map_err(|error| self.health.unless_full(error))?;
        writer.names_unsynced = true;
        self.change_segments(|segments| {
            segments.insert(output.number, output.clone());
        });
        collector.output = Some(output.clone());
        Ok(output)
    }

    fn moved_segment_bytes(&self) -> u64 {
        self.segment_target(self.ledger.state().total_and_live().1)
    }

    /// Appends as many values as the segment takes, at least one; answers where
    /// each went.
    fn append_moved(&self, output: &Segment, values: &[LiveValue<'_>]) -> Result<Vec<Moved>> {
        let template = {
            let writer = lock(&self.writer);
            RecordHeader {
                kind: kind::PUT,
                flags: FLAG_MOVED,
                synced_through: SequenceNumber(writer.synced_through),
                session: writer.session,
                ..RecordHeader::default()
            }
        };
        let most = self.moved_segment_bytes();
        let start = output.log.end();
        let mut end = start;
        let mut count = 0;
        for value in values {
            let bytes = value.will_take(&template);
            if count > 0 && end + bytes > most {
                break;
            }
            end += bytes;
            count += 1;
        }
        let written = output
            .log
            .reserve_within(end - start, most)
            .and_then(|()| append_pieces(output, &values[..count], &template));
        match written {
            Ok(moved) => {
                self.counters
                    .moved_bytes
                    .fetch_add(end - start, Ordering::Relaxed);
                Ok(moved)
            }
            Err(error) => {
                let error = self.health.unless_full(error);
                if error.is_no_space() {
                    output
                        .log
                        .cut_back(start)
                        .map_err(|failure| self.health.poison(failure))?;
                }
                Err(error)
            }
        }
    }

    /// Has the tree point to the moved records.
    fn relocate(
        &self,
        output: &Segment,
        values: &[LiveValue<'_>],
        moved: &[Moved],
        seen: Option<&Seen>,
    ) -> Result<()> {
        // The next note must know the segment before any table points into it,
        // and must never think less of it alive than there is.
        let all: u64 = moved.iter().map(Moved::bytes).sum();
        output.add_value_bytes(all);
        lock(&self.writer).pending.push(segment_item(output));
        let mut not_needed = 0;
        let mut outcome = Ok(());
        for (values, moved) in values.chunks(SWAPPED).zip(moved.chunks(SWAPPED)) {
            let relocated = match outcome {
                Err(_) => Vec::new(),
                Ok(()) => self
                    .point_to(output, values, moved, seen)
                    .unwrap_or_else(|error| {
                        outcome = Err(error);
                        Vec::new()
                    }),
            };
            let missed = moved.iter().enumerate();
            let missed = missed.filter(|&(at, _)| relocated.get(at) != Some(&Relocation::Done));
            not_needed += missed.map(|(_, moved)| moved.bytes()).sum::<u64>();
        }
        if not_needed > 0 {
            lock(&self.writer).pending.push(NoteItem::Garbage {
                segment: output.number,
                bytes: not_needed,
            });
        }
        outcome
    }

    /// Exchanges the pointers to some values.
    fn point_to(
        &self,
        output: &Segment,
        values: &[LiveValue<'_>],
        moved: &[Moved],
        seen: Option<&Seen>,
    ) -> Result<Vec<Relocation>> {
        let pointers: Vec<_> = values
            .iter()
            .zip(moved)
            .map(|(value, moved)| {
                let to = ValuePointer {
                    segment: output.number,
                    offset: moved.place.start,
                    header_bytes: moved.header_bytes,
                    ..value.pointer
                };
                (value.pointer.encode(), to.encode())
            })
            .collect();
        let entries: Vec<Replaced<'_>> = values
            .iter()
            .zip(&pointers)
            .map(|(value, (old_value, new_value))| Replaced {
                key: value.full_key,
                sequence: value.sequence,
                old_value,
                new_value,
            })
            .collect();
        self.tree.relocate_all(&entries, seen)
    }

    /// What [`SeededBug::CollectionReinserts`] does.
    fn reinsert(&self, window: &[LiveValue<'_>]) -> Result<()> {
        let mut writer = lock(&self.writer);
        for value in window {
            let entry = [value.log_entry()];
            let appended = self.append(&mut writer, &entry, Durability::Written)?;
            self.apply(&appended, &entry, 0, None);
        }
        Ok(())
    }
}

/// Appends values in pieces that are handed over one after the other; answers where each
/// went.
fn append_pieces(
    output: &Segment,
    values: &[LiveValue<'_>],
    template: &RecordHeader,
) -> Result<Vec<Moved>> {
    let mut moved = Vec::with_capacity(values.len());
    let mut rest = values;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |value: &&LiveValue<'_>| {
            bytes += value.will_take(template);
            bytes <= WRITE_BYTES
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (piece, left) = rest.split_at(count);
        output.log.append_several(|log| {
            for value in piece {
                let header = value.header(template);
                moved.push(Moved {
                    place: log.append(&header, &[value.full_key, value.value]),
                    header_bytes: header.header_bytes_before(value.payload_bytes()) as u8,
                });
            }
        });
        output.log.flush()?;
        rest = left;
    }
    Ok(moved)
}
