//! Committing a plan: the way of a group's entries to the device.
//!
//! 1. Entries are numbered and appended to their data files, with space
//!    allocated before, so that a full disk refuses them before a byte is written.
//! 2. The files' buffers are handed to the operating system, one write each.
//! 3. If anyone asked for `Synced`: a small group goes to the commit log as one
//!    frame, with one sync (design: small synced writes); before that, files
//!    with bytes that no frame covers are synced, so that everything earlier
//!    is durable too. A large group syncs the data files themselves; an empty frame
//!    then says so.
//! 4. Slots are pointed at the entries, and the group becomes visible.
//!
//! A crash between any two steps leaves a suffix to be dropped. A failed write
//! or sync stops all further writes; a full disk takes back what was appended.

use std::sync::Arc;

use cambium_api::Written;
use cambium_base::{Durability, Error, Result, SequenceNumber};
use cambium_index::Slot;
use cambium_io::sync::atomic::Ordering;
use cambium_storage::health::found_no_space;
use cambium_storage::log::LogFile;
use cambium_storage::record::{
    MOST_RECORD_HEADER_BYTES, RecordHeader, most_record_bytes, next_attempt,
};

use crate::core::{Core, Writer, lock};
use crate::data_file::DataFile;
use crate::format::{
    FRAME_ENTRY_BYTES, FRAME_HEAD_BYTES, FrameEntry, encode_frame_entry, entry_prefix, frame_head,
    kind,
};
use crate::options::Keys;
use crate::seeded_bug::SeededBug;
use crate::write::{Plan, Planned};

impl Core {
    /// Writes a plan; answers the sequence number of its first entry.
    pub(crate) fn write_plan(&self, writer: &mut Writer, plan: &mut Plan) -> Result<u64> {
        self.check_writable()?;
        let durability = plan.durability.unwrap_or_default();
        let first = writer.next_sequence;
        self.reserve(plan)?;
        let ends = self.append(writer, plan, first);
        let frame = self.frame_for(writer, plan, durability, first);
        let written = self.hand_over(writer, plan, durability, frame.is_some());
        if let Err(error) = written {
            return Err(self.take_back(writer, ends, error));
        }
        if durability == Durability::Synced {
            let last = first + plan.entries.len() as u64 - 1;
            self.make_durable(writer, frame, last, first)
                .map_err(|error| self.poisoned(error))?;
            self.note_synced(writer, last);
        }
        writer.next_sequence = first + plan.entries.len() as u64;
        self.apply_plan(plan, first);
        let logged = plan
            .entries
            .iter()
            .map(|entry| most_record_bytes(entry.payload_bytes(), self.shape.alignment))
            .sum::<u64>();
        self.note_progress(writer, logged, plan.user_bytes);
        Ok(first)
    }

    /// Allocates space for all entries in their files.
    fn reserve(&self, plan: &Plan) -> Result<()> {
        // Few files, so a list is searched faster than a map.
        let mut needed: Vec<(&Arc<DataFile>, u64)> = Vec::new();
        for entry in &plan.entries {
            let bytes = most_record_bytes(entry.payload_bytes(), self.shape.alignment);
            match needed
                .iter_mut()
                .find(|(file, _)| Arc::ptr_eq(file, &entry.file))
            {
                Some((_, sum)) => *sum += bytes,
                None => needed.push((&entry.file, bytes)),
            }
        }
        // In an order that does not hang on which file came first.
        needed.sort_by_key(|(file, _)| file.file.number.0);
        needed
            .into_iter()
            .try_for_each(|(file, bytes)| self.reserve_in(file, bytes))
    }

    /// Allocates space in one file.
    pub(crate) fn reserve_in(&self, file: &DataFile, bytes: u64) -> Result<()> {
        if file.log.end() + bytes > self.shape.slots.max_position() {
            return Err(Error::LimitExceeded(format!(
                "{} would pass {} bytes, the most that slot_bytes={} and alignment={} can address; compact it, or create a store with larger slots",
                file.log.path().display(),
                self.shape.slots.max_position(),
                self.shape.slots.bytes(),
                self.shape.alignment
            )));
        }
        file.log.reserve(bytes)
    }

    /// Appends the entries to their files' buffers; answers where each file
    /// ended before.
    fn append(&self, writer: &Writer, plan: &mut Plan, first: u64) -> Vec<(Arc<DataFile>, u64)> {
        let mut ends: Vec<(Arc<DataFile>, u64)> = Vec::new();
        let time = self.environment.clock.wall_nanoseconds();
        for (index, entry) in plan.entries.iter_mut().enumerate() {
            if !ends.iter().any(|(file, _)| Arc::ptr_eq(file, &entry.file)) {
                ends.push((entry.file.clone(), entry.file.log.end()));
            }
            let header = RecordHeader {
                kind: entry.kind(),
                flags: entry.flags,
                attempt: writer.attempt,
                sequence: SequenceNumber(first + index as u64),
                synced_through: SequenceNumber(writer.synced_through),
                session: writer.session,
                batch_index: entry.batch_index,
                batch_remaining: entry.batch_remaining,
                auxiliary: entry.auxiliary,
                ..RecordHeader::default()
            };
            if entry.removes && self.has_bug(SeededBug::DeleteUnlogged) {
                continue;
            }
            let prefix = entry_prefix(time, entry.key);
            entry.position = entry
                .file
                .log
                .append(&header, &[&prefix, &entry.value])
                .start;
        }
        ends
    }

    /// The frame for the commit log, if the group is synced, small, and fits.
    fn frame_for(
        &self,
        writer: &mut Writer,
        plan: &Plan,
        durability: Durability,
        first: u64,
    ) -> Option<(RecordHeader, Vec<u8>)> {
        let bytes: u64 = plan
            .entries
            .iter()
            .map(|entry| (FRAME_ENTRY_BYTES + entry.value.len()) as u64)
            .sum();
        if durability != Durability::Synced
            || plan.entries.is_empty()
            || bytes > self.tuning.commit_group_bytes
            || !self.make_room_in_commit_log(writer, bytes)
        {
            return None;
        }
        let time = self.environment.clock.wall_nanoseconds();
        let mut payload = frame_head(time, plan.entries.len() as u32);
        payload.reserve(bytes as usize);
        for entry in &plan.entries {
            let framed = FrameEntry {
                kind: entry.kind(),
                flags: entry.flags,
                auxiliary: entry.auxiliary,
                key: entry.key,
                batch_index: entry.batch_index,
                batch_remaining: entry.batch_remaining,
                value: &entry.value,
            };
            encode_frame_entry(&framed, &mut payload);
        }
        let header = RecordHeader {
            kind: kind::FRAME,
            attempt: writer.attempt,
            sequence: SequenceNumber(first),
            session: writer.session,
            ..RecordHeader::default()
        };
        Some((header, payload))
    }

    /// True if the active commit log takes a frame of so many bytes; changes
    /// to the other log when the active one is full and the other free.
    fn make_room_in_commit_log(&self, writer: &mut Writer, bytes: u64) -> bool {
        let limit = self.shape.commit_log_bytes;
        let needed = bytes + MOST_RECORD_HEADER_BYTES as u64 + 16;
        let fits = |log: &LogFile, end: u64| {
            (end + needed).next_multiple_of(log.geometry().block)
                <= limit.max(log.geometry().block * 4)
        };
        let active = &writer.commit_logs[writer.active_log];
        if !fits(&active.log, active.log.end()) {
            self.checkpoint_due.store(true, Ordering::Release);
            let other = &writer.commit_logs[1 - writer.active_log];
            if other.in_use || !fits(&other.log, other.log.geometry().first_offset) {
                return false;
            }
            writer.active_log = 1 - writer.active_log;
            writer.commit_logs[writer.active_log].log.rewind();
        }
        let active = &writer.commit_logs[writer.active_log];
        active.log.reserve(needed).is_ok()
    }

    /// Hands buffers to the operating system as the durability asks, padded
    /// where a sync follows.
    fn hand_over(
        &self,
        writer: &mut Writer,
        plan: &Plan,
        durability: Durability,
        framed: bool,
    ) -> Result<()> {
        for entry in &plan.entries {
            self.mark_dirty(writer, &entry.file, framed);
        }
        if durability == Durability::Buffered {
            writer.any_buffered = true;
            return plan
                .entries
                .iter()
                .filter(|entry| entry.file.log.buffered_bytes() > self.tuning.buffer_bytes)
                .try_for_each(|entry| entry.file.log.flush());
        }
        if durability == Durability::Written && !writer.any_buffered {
            return plan
                .entries
                .iter()
                .try_for_each(|entry| entry.file.log.flush());
        }
        // Nothing may be handed over before what was written earlier.
        for file in &writer.dirty {
            if durability == Durability::Synced && file.unlogged.load(Ordering::Acquire) {
                file.log.pad_to_block();
            }
            file.log.flush()?;
        }
        writer.any_buffered = false;
        Ok(())
    }

    /// Notes that a file is about to get bytes that are not synced, in the
    /// commit log or nowhere else yet.
    pub(crate) fn mark_dirty(&self, writer: &mut Writer, file: &Arc<DataFile>, framed: bool) {
        // Only the writer sets these; it is cheaper to look first.
        if !file.dirty.load(Ordering::Acquire) {
            file.dirty.store(true, Ordering::Release);
            writer.dirty.push(file.clone());
        }
        if !framed && !file.unlogged.load(Ordering::Acquire) {
            file.unlogged.store(true, Ordering::Release);
        }
    }

    /// Undoes an append that failed for lack of space; any other failure
    /// stops all writes.
    pub(crate) fn take_back(
        &self,
        writer: &mut Writer,
        ends: Vec<(Arc<DataFile>, u64)>,
        error: Error,
    ) -> Error {
        if !found_no_space(&error) {
            return self.poisoned(error);
        }
        // What may be left of the entries must not be mixed with what follows.
        writer.attempt = match next_attempt(writer.attempt) {
            Ok(next) => next,
            Err(exhausted) => return self.poisoned(exhausted),
        };
        for (file, end) in ends {
            if let Err(failure) = file.log.cut_back(end) {
                return self.poisoned(failure);
            }
        }
        error
    }

    /// Makes everything appended so far durable: the frame alone where there
    /// is one, and files with bytes that no frame covers.
    fn make_durable(
        &self,
        writer: &mut Writer,
        frame: Option<(RecordHeader, Vec<u8>)>,
        last: u64,
        first: u64,
    ) -> Result<()> {
        let mut still_dirty = Vec::with_capacity(writer.dirty.len());
        let mut any_synced = false;
        for file in writer.dirty.drain(..) {
            if file.unlogged.load(Ordering::Acquire) {
                self.sync_file(&file)?;
                any_synced = true;
                file.unlogged.store(false, Ordering::Release);
                file.dirty.store(false, Ordering::Release);
            } else {
                still_dirty.push(file);
            }
        }
        writer.dirty = still_dirty;
        let Some((mut header, payload)) = frame else {
            let promises = any_synced && !self.has_bug(SeededBug::SyncUnpromised);
            return match promises {
                true => self.promise(writer, last),
                false => Ok(()),
            };
        };
        // Everything before the frame is durable by now.
        header.synced_through = SequenceNumber(first - 1);
        self.log_frame(writer, last, &header, &payload)?;
        if !self.has_bug(SeededBug::CommitLogUnsynced) {
            writer.commit_logs[writer.active_log].log.sync()?;
        }
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Notes that everything up to `last` survives any crash.
    pub(crate) fn note_synced(&self, writer: &mut Writer, last: u64) {
        writer.synced_through = writer.synced_through.max(last);
        self.synced.fetch_max(last, Ordering::AcqRel);
    }

    /// Logs an empty frame which says that everything up to `last` is synced. Without
    /// it, damage to the end of a data file would look like a torn write. The frame is
    /// not synced: a power cut that loses it loses no data.
    fn promise(&self, writer: &mut Writer, last: u64) -> Result<()> {
        if !self.make_room_in_commit_log(writer, FRAME_HEAD_BYTES) {
            return Ok(());
        }
        let header = RecordHeader {
            kind: kind::FRAME,
            attempt: writer.attempt,
            sequence: SequenceNumber(last),
            synced_through: SequenceNumber(last),
            session: writer.session,
            ..RecordHeader::default()
        };
        let time = self.environment.clock.wall_nanoseconds();
        self.log_frame(writer, last, &header, &frame_head(time, 0))
    }

    /// Hands a frame to the active commit log.
    fn log_frame(
        &self,
        writer: &mut Writer,
        last: u64,
        header: &RecordHeader,
        payload: &[u8],
    ) -> Result<()> {
        let active = &mut writer.commit_logs[writer.active_log];
        active.last_sequence = last;
        active.in_use = true;
        active.log.append(header, &[payload]);
        active.log.pad_to_block();
        active.log.flush()?;
        self.counters
            .commit_log_bytes
            .fetch_add(payload.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Points the slots at the entries and lets readers see them, a request
    /// at a time.
    fn apply_plan(&self, plan: &Plan, first: u64) {
        let _applying = lock(&self.apply);
        if self.shape.keys == Keys::Integer {
            let keys = plan
                .entries
                .iter()
                .map(|entry| Written::IntegerKey(entry.key));
            self.recent.note((first..).zip(keys));
        }
        let mut start = 0;
        for &(_, count) in &plan.requests {
            let entries = &plan.entries[start..start + count];
            let sequence = first + start as u64;
            let split = self
                .buckets
                .begin_split_if(entries.first().map_or(0, |entry| entry.flags));
            self.keep_replaced(entries, sequence);
            for entry in entries {
                let slot = match entry.removes {
                    true => Slot::Deleted,
                    false => Slot::Position(entry.position),
                };
                entry
                    .table
                    .set_slot(entry.key, slot, || self.cache.remove(entry.key));
                entry.file.entries.fetch_add(1, Ordering::Relaxed);
                if let Some(delta) = (entry.auxiliary != 0).then_some(entry.auxiliary as i32) {
                    self.buckets.add_keys(i64::from(delta));
                }
            }
            start += count;
            self.visible
                .fetch_max(first + start as u64 - 1, Ordering::AcqRel);
            if count > 1 {
                self.history.release_batch();
            }
            drop(split);
        }
    }

    /// Keeps what snapshots, and readers who come between, may need.
    fn keep_replaced(&self, entries: &[Planned], sequence: u64) {
        let snapshots = self.history.open_snapshots() > 0;
        if !snapshots && entries.len() < 2 {
            return;
        }
        let replaced = entries.iter().enumerate().map(|(index, entry)| {
            // The writer has loaded the piece, so this cannot fail.
            let before = entry.table.locate(entry.key).unwrap_or_default();
            (entry.key, sequence + index as u64, before)
        });
        if snapshots {
            for (key, replaced_at, before) in replaced.clone() {
                self.history.keep(key, replaced_at, before);
            }
        }
        if entries.len() > 1 {
            self.history.keep_batch(replaced);
        }
    }

    /// Counts what was written, and announces a checkpoint where enough was.
    pub(crate) fn note_progress(&self, writer: &mut Writer, logged: u64, user_bytes: u64) {
        writer.bytes_since_checkpoint += logged;
        self.counters
            .user_bytes
            .fetch_add(user_bytes, Ordering::Relaxed);
        self.counters.log_bytes.fetch_add(logged, Ordering::Relaxed);
        if writer.bytes_since_checkpoint > self.tuning.checkpoint_bytes {
            self.checkpoint_due.store(true, Ordering::Release);
        }
    }
}
