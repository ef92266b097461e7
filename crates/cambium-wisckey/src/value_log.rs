//! The value log: the segments that writers append to, one after the other.
//!
//! It is the only log (section 3.4.2): small values, deletes and ranges go through
//! it as well. Appending goes to a buffer that reads look into first (section
//! 3.4.1); a run of small appends is stored through a window of the file, larger
//! ones are handed over in one write.
//!
//! A segment ends where it is full, and where the tree's write buffer is sealed:
//! so the tables of a flush hold whole segments, and recovery replays whole ones.
//! Sealed segments are not synced at once. A `Synced` write syncs them
//! before the last one, and so does a flush before its tables count: then no table
//! ever points to a value that a power cut can lose.

use std::sync::Arc;

use cambium_base::{Durability, Error, Result, SequenceNumber};
use cambium_io::WriteQueue;
use cambium_io::sync::atomic::Ordering;
use cambium_storage::record::{RecordHeader, most_record_bytes, next_attempt};

use crate::core::{Core, lock};
use crate::format::{ALIGNMENT, LARGEST_SEGMENT, SegmentKind, kind};
use crate::moving::MovedUnsynced;
use crate::note::{self, Head, NoteItem, SegmentNote};
use crate::pace::Pace;
use crate::reserve::Part;
use crate::seeded_bug::SeededBug;
use crate::segment::Segment;

/// Deletes that are worth a flush of their own once writers are idle: a flush brings them to
/// what they hide.
pub(crate) const MANY_DELETES: u64 = 256;

/// What the writer lock guards.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub next_sequence: u64,
    pub attempt: u16,
    pub synced_through: u64,
    pub session: u32,
    /// Number for the next namespace.
    pub next_namespace: u32,
    /// Number for the next segment.
    pub next_file: u32,
    /// Where the next write goes; none before the first.
    pub active: Option<Arc<Segment>>,
    /// The active segment holds bytes that no sync covers.
    pub active_unsynced: bool,
    /// Full segments that no sync covers yet, oldest first.
    pub unsynced: Vec<Arc<Segment>>,
    /// What collection moved, and no sync covers yet.
    pub moved: MovedUnsynced,
    /// There are names of segments that no sync of the folder covers.
    pub names_unsynced: bool,
    /// Bytes of log since the write buffer was sealed.
    pub logged: u64,
    /// Deletes since the write buffer was sealed; a range counts as many.
    pub deletes: u64,
    /// Entries since then, which may hide as many.
    pub entries: u64,
    /// How much of the log makes garbage, and what follows from it.
    pub pace: Pace,
    /// Full segments that no note speaks of yet.
    pub unnoted: Vec<Arc<Segment>>,
    /// What else the next note will say: namespaces, segments moved and dropped.
    pub pending: Vec<NoteItem>,
    /// Segments whose files are gone, and the moment up to which pins may lead
    /// to them.
    pub retired: Vec<(u32, u64)>,
}

/// One record to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogEntry<'a> {
    pub kind: u8,
    pub auxiliary: u32,
    pub batch_index: u32,
    pub batch_remaining: u32,
    /// Key, first key of a range, or name.
    pub first: &'a [u8],
    /// Value, or the key after a range.
    pub second: &'a [u8],
}

impl<'a> LogEntry<'a> {
    /// A record alone in its batch.
    pub fn new(kind: u8, auxiliary: u32, first: &'a [u8], second: &'a [u8]) -> Self {
        LogEntry {
            kind,
            auxiliary,
            batch_index: 0,
            batch_remaining: 0,
            first,
            second,
        }
    }

    /// The most that it will take in the log.
    pub fn most_bytes(&self) -> u64 {
        most_record_bytes(self.payload_bytes(), ALIGNMENT)
    }

    pub fn payload_bytes(&self) -> u64 {
        (self.first.len() + self.second.len()) as u64
    }

    /// How many deletes it counts as.
    fn deletes(&self) -> u64 {
        match self.kind {
            kind::DELETE => 1,
            kind::DELETE_RANGE | kind::NAMESPACE_DROPPED => MANY_DELETES,
            _ => 0,
        }
    }

    /// Its header: a template gives the part that all records of a group share.
    pub fn header(&self, template: &RecordHeader, sequence: u64) -> RecordHeader {
        RecordHeader {
            kind: self.kind,
            sequence: SequenceNumber(sequence),
            batch_index: self.batch_index,
            batch_remaining: self.batch_remaining,
            auxiliary: self.auxiliary,
            ..*template
        }
    }
}

/// Where a group of records went.
#[derive(Debug)]
pub(crate) struct Appended {
    pub segment: Arc<Segment>,
    /// Of the first record; the others follow without a gap.
    pub offset: u64,
    /// Of the first record.
    pub sequence: u64,
    /// The part of the headers that all records share.
    pub template: RecordHeader,
}

impl Writer {
    /// The part of the headers that its next records share.
    fn template(&self) -> RecordHeader {
        RecordHeader {
            attempt: self.attempt,
            synced_through: SequenceNumber(self.synced_through),
            session: self.session,
            ..RecordHeader::default()
        }
    }

    /// Bytes that a group will take in the log.
    fn bytes_of(&self, entries: &[LogEntry<'_>]) -> u64 {
        let template = self.template();
        let numbered = entries.iter().zip(self.next_sequence..);
        numbered
            .map(|(entry, sequence)| {
                let header = entry.header(&template, sequence);
                header.record_bytes(entry.payload_bytes(), ALIGNMENT)
            })
            .sum()
    }
}

impl Core {
    /// Brings records to the device as the durability asks, and numbers them. A
    /// failure for lack of space changes nothing; any other stops all writes. Deletes may
    /// have the reserve.
    pub fn append(
        &self,
        writer: &mut Writer,
        entries: &[LogEntry<'_>],
        durability: Durability,
    ) -> Result<Appended> {
        let appended = self.append_within_room(writer, entries, durability);
        if appended.as_ref().is_err_and(Error::is_no_space) {
            self.note_refused(writer.next_sequence);
        }
        appended
    }

    fn append_within_room(
        &self,
        writer: &mut Writer,
        entries: &[LogEntry<'_>],
        durability: Durability,
    ) -> Result<Appended> {
        self.check_sound()?;
        let makes_room = |entry: &LogEntry<'_>| {
            matches!(
                entry.kind,
                kind::DELETE | kind::DELETE_RANGE | kind::NAMESPACE_DROPPED
            )
        };
        if entries.iter().all(makes_room) {
            // Who is refused here has no use for what the reserve still holds.
            self.admit_if_broken(writer, entries, durability)?;
            return self.with_reserve(Part::Most, || self.append_now(writer, entries, durability));
        }
        self.mend_reserve()?;
        self.append_now(writer, entries, durability)
    }

    /// Lets a group of deletes in where the reserve is not whole; one that opens it itself
    /// is the first that has a part of it.
    fn admit_if_broken(
        &self,
        writer: &Writer,
        entries: &[LogEntry<'_>],
        durability: Durability,
    ) -> Result<()> {
        if !self.reserve.is_broken() {
            return Ok(());
        }
        let bytes = writer.bytes_of(entries);
        self.admit_deletes(match durability {
            Durability::Synced => bytes.next_multiple_of(u64::from(self.shape.block_bytes)),
            _ => bytes,
        })
    }

    fn append_now(
        &self,
        writer: &mut Writer,
        entries: &[LogEntry<'_>],
        durability: Durability,
    ) -> Result<Appended> {
        let bytes = writer.bytes_of(entries);
        let segment = self.active_segment(writer, bytes)?;
        if bytes > 0 {
            // Nothing ahead where it would be the reserve.
            let most = match self.reserve.is_broken() {
                true => 0,
                false => self.segment_target(writer.pace.live() + writer.logged),
            };
            segment.log.reserve_within(bytes, most)?;
        }
        let first = writer.next_sequence;
        let template = writer.template();
        let before = segment.log.end();
        let result = match entries {
            [entry] if durability == Durability::Written => {
                self.append_one(writer, &segment, entry, (&template, first))
            }
            _ => self.append_several(writer, &segment, entries, (&template, first), durability),
        };
        let offset = match result {
            Ok(offset) => offset,
            Err(error) => return Err(self.take_back(writer, &segment, before, error)),
        };
        let last = first + entries.len() as u64 - 1;
        if durability == Durability::Synced {
            self.sync_log(writer, &segment, last)?;
        }
        writer.next_sequence = last + 1;
        writer.logged += bytes;
        writer.deletes += entries.iter().map(LogEntry::deletes).sum::<u64>();
        writer.entries += entries.len() as u64;
        Ok(Appended {
            segment,
            offset,
            sequence: first,
            template,
        })
    }

    /// Stores a record through the window, if there is one, or writes it.
    fn append_one(
        &self,
        writer: &mut Writer,
        segment: &Segment,
        entry: &LogEntry<'_>,
        (template, sequence): (&RecordHeader, u64),
    ) -> Result<u64> {
        writer.active_unsynced = true;
        if entry.kind == kind::DELETE && self.has_bug(SeededBug::DeleteUnlogged) {
            return Ok(segment.log.end());
        }
        let header = entry.header(template, sequence);
        let payload = [entry.first, entry.second];
        if let Some(place) = segment.log.append_to_window(&header, &payload, u64::MAX) {
            return Ok(place.start);
        }
        let offset = segment.log.append(&header, &payload).start;
        segment.log.flush()?;
        Ok(offset)
    }

    fn append_several(
        &self,
        writer: &mut Writer,
        segment: &Segment,
        entries: &[LogEntry<'_>],
        (template, first): (&RecordHeader, u64),
        durability: Durability,
    ) -> Result<u64> {
        let offset = segment.log.append_several(|log| {
            for (index, entry) in entries.iter().enumerate() {
                if entry.kind == kind::DELETE && self.has_bug(SeededBug::DeleteUnlogged) {
                    continue;
                }
                let header = entry.header(template, first + index as u64);
                log.append(&header, &[entry.first, entry.second]);
            }
        });
        writer.active_unsynced |= !entries.is_empty();
        match durability {
            Durability::Buffered => {
                if segment.log.buffered_bytes() <= self.tuning.buffer_bytes {
                    return Ok(offset);
                }
            }
            Durability::Written => {}
            Durability::Synced => {
                if writer.active_unsynced {
                    let padding = segment.log.pad_to_block();
                    self.note_padding(padding);
                }
            }
        }
        segment.log.flush()?;
        Ok(offset)
    }

    /// Undoes an append that failed for lack of space; any other failure stops
    /// all writes.
    fn take_back(&self, writer: &mut Writer, segment: &Segment, end: u64, error: Error) -> Error {
        if !error.is_no_space() {
            return self.health.poison(error);
        }
        // What may be left of the entries must not be mixed with what follows.
        writer.attempt = match next_attempt(writer.attempt) {
            Ok(next) => next,
            Err(exhausted) => return self.health.poison(exhausted),
        };
        match segment.log.cut_back(end) {
            Ok(()) => error,
            Err(failure) => self.health.poison(failure),
        }
    }

    fn note_padding(&self, bytes: u64) {
        self.counters.log_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Makes everything written so far durable.
    pub fn sync_all(&self, writer: &mut Writer) -> Result<()> {
        self.check_sound()?;
        let Some(active) = writer.active.clone() else {
            return Ok(());
        };
        if writer.active_unsynced {
            let padding = active.log.pad_to_block();
            self.note_padding(padding);
            active
                .log
                .flush()
                .map_err(|error| self.health.poison(error))?;
        }
        self.sync_log(writer, &active, writer.next_sequence - 1)
    }

    /// Makes everything up to `last` durable: first the segments before the
    /// active one, then that, then names.
    fn sync_log(&self, writer: &mut Writer, active: &Segment, last: u64) -> Result<()> {
        let alone = (!self.has_bug(SeededBug::FailedSyncMissed)).then(|| lock(&self.log_sync));
        if alone.is_some() {
            // A flush may have synced the same segments, in vain.
            self.check_sound()?;
        }
        // A header alone is not synced: who finds one has lost what followed it.
        let written = active.log.end() > active.log.geometry().first_offset;
        if !self.has_bug(SeededBug::CommitUnsynced) {
            let older = std::mem::take(&mut writer.unsynced);
            let skip = self.has_bug(SeededBug::OlderSegmentsUnsynced);
            let synced = older
                .iter()
                .filter(|_| !skip)
                .try_for_each(|segment| segment.log.sync())
                .and_then(|()| match writer.active_unsynced && written {
                    true => active.log.sync(),
                    false => Ok(()),
                })
                .and_then(|()| self.sync_names(writer));
            synced.map_err(|error| self.health.poison(error))?;
            older.iter().for_each(|segment| segment.file.release());
        }
        writer.active_unsynced &= !written;
        self.set_synced(writer, last);
        let place = (&*self.environment.file_system, &*self.path);
        let session = (self.home.store, writer.session);
        self.synced_mark.write(place, session, last);
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Every write up to a number survives a crash from now on.
    pub fn set_synced(&self, writer: &mut Writer, through: u64) {
        writer.synced_through = through;
        self.ledger.synced.store(through, Ordering::Release);
    }

    pub fn sync_names(&self, writer: &mut Writer) -> Result<()> {
        if writer.names_unsynced {
            self.environment.file_system.sync_directory(&self.path)?;
            writer.names_unsynced = false;
        }
        Ok(())
    }

    /// Makes all full segments durable, and what collection moved; writers go on
    /// meanwhile. Called before tables that point into them count.
    pub fn sync_sealed_log(&self) -> Result<()> {
        if self.has_bug(SeededBug::TablesAheadOfLog) {
            return self.check_sound();
        }
        let mut queue = lock(&self.syncing);
        let writer = lock(&self.writer);
        self.check_sound()?;
        let (segments, moved) = (writer.unsynced.clone(), writer.moved.pending());
        let names = writer.names_unsynced;
        // The kernel reports a failed write to one sync alone. A writer that syncs the same
        // files therefore waits here, and finds the store poisoned if this sync fails. What
        // collection moved no writer syncs.
        let alone = (names || !segments.is_empty()).then(|| lock(&self.log_sync));
        drop(writer);
        let all = segments.iter();
        let all: Vec<_> = all
            .chain(moved.iter().map(|(segment, _)| segment))
            .collect();
        let synced = self
            .sync_together(&mut queue, &all)
            .and_then(|()| match names {
                true => self.environment.file_system.sync_directory(&self.path),
                false => Ok(()),
            });
        synced.map_err(|error| self.health.poison(error))?;
        drop(alone);
        let mut writer = lock(&self.writer);
        // A sync of a writer may have failed in place of this one.
        self.check_sound()?;
        writer.moved.synced(&moved);
        let done =
            |segment: &Arc<Segment>| segments.iter().any(|other| Arc::ptr_eq(other, segment));
        writer.unsynced.retain(|segment| !done(segment));
        if let Some(last) = segments.last() {
            let through = last.last_sequence.load(Ordering::Relaxed);
            let through = writer.synced_through.max(through);
            self.set_synced(&mut writer, through);
        }
        drop(writer);
        segments.iter().for_each(|segment| segment.file.release());
        Ok(())
    }

    /// Makes segments durable, all at the same time where the system can: their
    /// metadata is then one commit of its journal. The first failure, if any.
    fn sync_together(
        &self,
        queue: &mut Option<Box<dyn WriteQueue>>,
        segments: &[&Arc<Segment>],
    ) -> Result<()> {
        match segments {
            [] => return Ok(()),
            [segment] => return segment.log.sync(),
            _ => {}
        }
        segments.iter().for_each(|each| each.log.prepare_sync());
        let files = segments.iter().map(|segment| segment.file.batched());
        let files: Vec<_> = files.collect::<Result<_>>()?;
        let queue = match queue {
            Some(queue) => queue,
            none => {
                let file_system = &self.environment.file_system;
                none.insert(file_system.write_queue(self.tuning.reading)?)
            }
        };
        queue.sync_all(&files).into_iter().collect()
    }

    /// The segment that takes `bytes` more; a new one where the active one is
    /// full.
    fn active_segment(&self, writer: &mut Writer, bytes: u64) -> Result<Arc<Segment>> {
        if let Some(active) = &writer.active {
            let end = active.log.end();
            let empty = end == active.log.geometry().first_offset;
            let most = self.segment_target(writer.pace.live() + writer.logged);
            let fits = end.saturating_add(bytes) <= most || empty;
            if fits || bytes == 0 {
                return Ok(active.clone());
            }
        }
        self.roll(writer)?;
        if !writer.unsynced.is_empty() {
            self.notify_background();
        }
        let active = writer.active.clone();
        active.ok_or_else(|| Error::LimitExceeded("no segment is open".to_string()))
    }

    /// Ends the active segment, if anything is in it, and begins another. A
    /// failure leaves the old one active.
    pub fn roll(&self, writer: &mut Writer) -> Result<()> {
        if let Some(active) = &writer.active {
            if active.log.end() == active.log.geometry().first_offset {
                return Ok(());
            }
            active
                .log
                .flush()
                .map_err(|error| self.health.unless_full(error))?;
        }
        let next = self
            .new_segment(writer, SegmentKind::Written)
            .map_err(|error| self.health.unless_full(error))?;
        let first = writer.next_sequence;
        next.first_sequence.store(first, Ordering::Release);
        if let Some(full) = writer.active.replace(next.clone()) {
            self.finish_segment(writer, full)?;
        }
        writer.active_unsynced = true;
        writer.names_unsynced = true;
        self.reserve.look_again();
        self.change_segments(|segments| {
            segments.insert(next.number, next);
        });
        Ok(())
    }

    /// Nothing more will be appended to a segment.
    fn finish_segment(&self, writer: &mut Writer, full: Arc<Segment>) -> Result<()> {
        full.last_sequence
            .store(writer.next_sequence - 1, Ordering::Release);
        // Space that was taken ahead goes back, and so does the window.
        full.log
            .cut_back(full.log.end())
            .map_err(|error| self.health.poison(error))?;
        if writer.active_unsynced {
            writer.unsynced.push(full.clone());
        } else {
            full.file.release();
        }
        writer.unnoted.push(full);
        Ok(())
    }

    /// Makes a segment with the next number. The caller puts it into the map
    /// before anything points into it.
    pub fn new_segment(&self, writer: &mut Writer, kind: SegmentKind) -> Result<Arc<Segment>> {
        let number = writer.next_file;
        // Spent, whether or not the file comes to be.
        writer.next_file = number.checked_add(1).ok_or_else(|| {
            Error::LimitExceeded("a store has up to 2^32 segments in its life".to_string())
        })?;
        let salt = self.environment.randomness.next_u64();
        let segment = Segment::create(&self.home, number, salt, kind, &self.shape, &self.tuning)?;
        Ok(Arc::new(segment))
    }

    /// Refuses a batch that no segment could take.
    pub fn check_batch_bytes(bytes: u64) -> Result<()> {
        if bytes < LARGEST_SEGMENT / 2 {
            return Ok(());
        }
        Err(Error::LimitExceeded(format!(
            "a batch of {bytes} bytes of log: a segment has up to {LARGEST_SEGMENT}"
        )))
    }

    /// What the tables will hold when everything written so far is in them; the
    /// log goes on at the place of `head`. Takes what waits for a note.
    pub fn note_up_to(&self, writer: &mut Writer, segment: u32, offset: u64) -> Vec<u8> {
        let head = Head {
            sequence: writer.next_sequence - 1,
            segment,
            offset,
            session: writer.session,
        };
        self.note_behind(writer, vec![NoteItem::Head(head)])
    }

    /// The note of a close where this opening has appended nothing to the log: the head
    /// stays where it is. Empty if nothing waits for a note.
    pub fn note_without_head(&self, writer: &mut Writer) -> Vec<u8> {
        let nothing_waits = writer.unnoted.is_empty() && writer.pending.is_empty();
        if nothing_waits || self.has_bug(SeededBug::CloseUnnoted) {
            return Vec::new();
        }
        self.note_behind(writer, Vec::new())
    }

    /// A note of some items, and of what waits for a note, which it takes.
    fn note_behind(&self, writer: &mut Writer, mut items: Vec<NoteItem>) -> Vec<u8> {
        items.push(NoteItem::NextFile(writer.next_file));
        items.push(NoteItem::Traffic(self.traffic()));
        let finished = std::mem::take(&mut writer.unnoted);
        items.extend(finished.iter().map(|segment| segment_item(segment)));
        items.append(&mut writer.pending);
        note::encode(&items)
    }

    /// Seals the tree's write buffer together with the active segment. The next flush
    /// commits the note, also where the write buffer is empty: one queue keeps all notes
    /// in order, so that no note replaces what a newer one says.
    pub fn seal(&self, writer: &mut Writer) -> Result<()> {
        let note = self.note_of_seal(writer)?;
        if self.has_bug(SeededBug::NotesReversed) && self.tree.memtable_bytes() == 0 {
            return self.tree.commit_note(&note);
        }
        self.tree.seal(note);
        Ok(())
    }

    /// Ends the active segment, for a seal of the tree's write buffer; answers the note of
    /// the seal.
    pub fn note_of_seal(&self, writer: &mut Writer) -> Result<Vec<u8>> {
        self.roll(writer)?;
        let place = writer.active.as_ref().map(|active| {
            let first = active.log.geometry().first_offset;
            (active.number, first)
        });
        let (segment, offset) = place.unwrap_or((writer.next_file, 0));
        let note = self.note_up_to(writer, segment, offset);
        let logged = std::mem::take(&mut writer.logged);
        writer.deletes = 0;
        writer.entries = 0;
        self.set_pace(writer, logged);
        Ok(note)
    }
}

/// What a note says of a segment as it is now.
pub(crate) fn segment_item(segment: &Segment) -> NoteItem {
    NoteItem::Segment(SegmentNote {
        number: segment.number,
        kind: segment.kind,
        value_bytes: segment.value_bytes.load(Ordering::Relaxed),
        end: segment.log.end(),
        last: segment.last_sequence.load(Ordering::Relaxed),
    })
}
