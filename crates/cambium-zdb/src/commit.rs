//! Committing a group: the way of its entries to the device.
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

use std::borrow::Cow;
use std::sync::Arc;

use cambium_api::Written;
use cambium_base::{Durability, Error, Result, SequenceNumber};
use cambium_index::Slot;
use cambium_io::sync::atomic::Ordering;
use cambium_storage::log::LogFile;
use cambium_storage::record::{MOST_RECORD_HEADER_BYTES, RecordHeader, next_attempt};

use crate::core::{Core, Writer, lock};
use crate::data_file::DataFile;
use crate::format::{
    ENTRY_PREFIX_BYTES, FRAME_ENTRY_BYTES, FRAME_HEAD_BYTES, FrameEntry, encode_frame_entry,
    entry_prefix, frame_head, kind, range_bounds, range_keys,
};
use crate::framed_keys::{note_keys, splits_bucket};
use crate::options::Keys;
use crate::seeded_bug::SeededBug;
use crate::table::{LockedPieces, Table};

/// A table that takes entries, with its data files by place. Only a holder of the writer
/// lock closes a table or replaces a data file, so a target stays true under the lock.
#[derive(Debug)]
pub(crate) struct Target {
    pub table: Arc<Table>,
    files: Vec<Arc<DataFile>>,
}

impl Target {
    pub fn new(table: Arc<Table>) -> Self {
        Target {
            files: table.current_files(),
            table,
        }
    }

    fn file_of(&self, key: u64) -> &Arc<DataFile> {
        &self.files[self.table.place_of(key)]
    }
}

/// A change of a key, or of the keys of a range in a data file, on its way to the device.
pub(crate) struct Entry<'v> {
    pub kind: u8,
    pub key: u64,
    /// The last key of a removed range; else the key.
    pub last: u64,
    pub value: Cow<'v, [u8]>,
    /// Its table, in the targets of the group.
    pub target: usize,
    pub flags: u8,
    pub auxiliary: u32,
    pub batch_index: u32,
    pub batch_remaining: u32,
    /// Its request deletes and nothing else: of string keys, a bucket is written anew without
    /// those that go.
    pub makes_room: bool,
    /// Set by the append.
    pub position: u64,
}

impl<'v> Entry<'v> {
    /// A put on its own.
    pub fn put(key: u64, value: impl Into<Cow<'v, [u8]>>, target: usize) -> Self {
        Entry {
            kind: kind::PUT,
            key,
            last: key,
            value: value.into(),
            target,
            flags: 0,
            auxiliary: 0,
            batch_index: 0,
            batch_remaining: 0,
            makes_room: false,
            position: 0,
        }
    }

    pub fn removes(&self) -> bool {
        self.kind != kind::PUT
    }

    fn is_range(&self) -> bool {
        self.kind == kind::DELETE_RANGE
    }

    /// The same for the validation of transactions.
    fn written(&self) -> Written<'_> {
        match range_bounds(&self.value).filter(|_| self.is_range()) {
            Some((from, to)) => Written::RangeOf(0, from, to),
            None => Written::IntegerKey(self.key),
        }
    }
}

/// Entries that are written together.
pub(crate) struct Group<'g, 'v> {
    pub targets: &'g [Arc<Target>],
    pub entries: &'g mut [Entry<'v>],
    /// How many entries each request has, in their order.
    pub counts: &'g [usize],
    pub durability: Durability,
    pub user_bytes: u64,
}

/// The entries that a group appends to one data file.
struct Share<'g> {
    file: &'g Arc<DataFile>,
    /// Its entries, by their places in the group.
    entries: Vec<usize>,
    bytes: u64,
    /// Where the file ended before.
    end: u64,
}

impl Core {
    /// Writes a group; answers the sequence number of its first entry.
    pub(crate) fn write_group(
        &self,
        writer: &mut Writer,
        group: &mut Group<'_, '_>,
    ) -> Result<u64> {
        self.check_writable()?;
        let first = writer.next_sequence;
        let last = first + group.entries.len() as u64 - 1;
        let logged = match self.store_in_window(writer, group) {
            Some(bytes) => bytes,
            None => self.append_and_sync(writer, group, (first, last))?,
        };
        writer.next_sequence = last + 1;
        self.apply(group, first);
        self.note_progress(writer, logged, group.user_bytes);
        Ok(first)
    }

    fn header_of(&self, writer: &Writer, entry: &Entry<'_>, index: usize) -> RecordHeader {
        RecordHeader {
            kind: entry.kind,
            flags: entry.flags,
            attempt: writer.attempt,
            sequence: SequenceNumber(writer.next_sequence + index as u64),
            synced_through: SequenceNumber(writer.synced_through),
            session: writer.session,
            batch_index: entry.batch_index,
            batch_remaining: entry.batch_remaining,
            auxiliary: entry.auxiliary,
            ..RecordHeader::default()
        }
    }

    /// Stores a single `Written` entry in the window of its file, which has space already.
    /// `None` where there is no room; nothing was done then.
    fn store_in_window(&self, writer: &mut Writer, group: &mut Group<'_, '_>) -> Option<u64> {
        let [entry] = &mut *group.entries else {
            return None;
        };
        let unlogged = entry.removes() && self.has_bug(SeededBug::DeleteUnlogged);
        if group.durability != Durability::Written || writer.any_buffered || unlogged {
            return None;
        }
        let file = group.targets[entry.target].file_of(entry.key);
        let header = self.header_of(writer, entry, 0);
        let prefix = entry_prefix(self.environment.clock.wall_nanoseconds(), entry.key);
        let limit = self.shape.slots.max_position();
        let payload = [&prefix[..], &entry.value];
        let place = file.log.append_to_window(&header, &payload, limit)?;
        entry.position = place.start;
        self.mark_dirty(writer, file, false);
        Some(place.end - place.start)
    }

    /// Appends the entries to their files' buffers, and hands them over and syncs them as
    /// the durability asks; answers the bytes.
    fn append_and_sync(
        &self,
        writer: &mut Writer,
        group: &mut Group<'_, '_>,
        (first, last): (u64, u64),
    ) -> Result<u64> {
        let shares = self.reserve(writer, group)?;
        self.append(writer, group, &shares);
        let is_for_log = self.is_for_commit_log(group);
        let frame = is_for_log.then(|| self.frame_for(writer, group, first));
        let frame = frame.flatten();
        let written = self.hand_over(writer, group.durability, &shares, frame.is_some());
        if let Err(error) = written {
            return Err(self.take_back(writer, &shares, error));
        }
        if group.durability == Durability::Synced {
            self.make_durable(writer, frame, last, first)
                .map_err(|error| self.health.poison(error))?;
            self.note_synced(writer, last);
        }
        if is_for_log || splits_bucket(group.entries) {
            note_keys(writer, group.entries, first);
        }
        Ok(shares.iter().map(|share| share.bytes).sum())
    }

    /// Allocates space for all entries in their files.
    fn reserve<'g>(&self, writer: &Writer, group: &Group<'g, '_>) -> Result<Vec<Share<'g>>> {
        // Few files, and neighbours of a key are found at the end.
        let mut shares: Vec<Share<'g>> = Vec::new();
        for (index, entry) in group.entries.iter().enumerate() {
            let file = group.targets[entry.target].file_of(entry.key);
            let known = shares
                .iter()
                .rposition(|share| Arc::ptr_eq(share.file, file));
            let at = known.unwrap_or_else(|| {
                shares.push(Share {
                    file,
                    entries: Vec::new(),
                    bytes: 0,
                    end: 0,
                });
                shares.len() - 1
            });
            let header = self.header_of(writer, entry, index);
            let payload = (ENTRY_PREFIX_BYTES + entry.value.len()) as u64;
            shares[at].bytes += header.record_bytes(payload, self.shape.alignment);
            shares[at].entries.push(index);
        }
        let makes_room = group.entries.iter().all(|entry| entry.makes_room);
        // In an order that does not hang on which file came first.
        shares.sort_by_key(|share| share.file.file.number.0);
        for share in &mut shares {
            share.end = self.reserve_in(share.file, share.bytes, makes_room)?;
        }
        Ok(shares)
    }

    /// Allocates space in one file; answers where it ends.
    fn reserve_in(&self, file: &DataFile, bytes: u64, makes_room: bool) -> Result<u64> {
        let end = file.log.end();
        if end + bytes > self.shape.slots.max_position() {
            return Err(Error::LimitExceeded(format!(
                "{} would pass {} bytes, the most that slot_bytes={} and alignment={} can address; compact it, or create a store with larger slots",
                file.log.path().display(),
                self.shape.slots.max_position(),
                self.shape.slots.bytes(),
                self.shape.alignment
            )));
        }
        self.reserve_in_file(file, bytes, makes_room)?;
        Ok(end)
    }

    /// Appends the entries, in the order of their numbers along each file.
    fn append(&self, writer: &Writer, group: &mut Group<'_, '_>, shares: &[Share<'_>]) {
        let time = self.environment.clock.wall_nanoseconds();
        for share in shares {
            share.file.log.append_several(|log| {
                for &index in &share.entries {
                    let entry = &mut group.entries[index];
                    if entry.removes() && self.has_bug(SeededBug::DeleteUnlogged) {
                        continue;
                    }
                    let header = self.header_of(writer, entry, index);
                    let prefix = entry_prefix(time, entry.key);
                    entry.position = log.append(&header, &[&prefix, &entry.value]).start;
                }
            });
        }
    }

    /// True if a group is synced and small.
    fn is_for_commit_log(&self, group: &Group<'_, '_>) -> bool {
        group.durability == Durability::Synced
            && !group.entries.is_empty()
            && frame_bytes(group.entries) <= self.tuning.commit_group_bytes
    }

    /// The frame of a group that is for the commit log, if it fits.
    fn frame_for(
        &self,
        writer: &mut Writer,
        group: &Group<'_, '_>,
        first: u64,
    ) -> Option<(RecordHeader, Vec<u8>)> {
        let bytes = frame_bytes(group.entries);
        if !self.make_room_in_commit_log(writer, bytes) {
            return None;
        }
        let time = self.environment.clock.wall_nanoseconds();
        let mut payload = frame_head(time, group.entries.len() as u32);
        payload.reserve(bytes as usize);
        for entry in &*group.entries {
            let framed = FrameEntry {
                kind: entry.kind,
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
            self.commit_log_due.store(true, Ordering::Release);
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
        durability: Durability,
        shares: &[Share<'_>],
        framed: bool,
    ) -> Result<()> {
        for share in shares {
            self.mark_dirty(writer, share.file, framed);
        }
        let mut logs = shares.iter().map(|share| &share.file.log);
        if durability == Durability::Buffered {
            writer.any_buffered = true;
            return logs
                .filter(|log| log.buffered_bytes() > self.tuning.buffer_bytes)
                .try_for_each(LogFile::flush);
        }
        if durability == Durability::Written && !writer.any_buffered {
            return logs.try_for_each(LogFile::flush);
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
    fn take_back(&self, writer: &mut Writer, shares: &[Share<'_>], error: Error) -> Error {
        if !error.is_no_space() {
            return self.health.poison(error);
        }
        // What may be left of the entries must not be mixed with what follows.
        writer.attempt = match next_attempt(writer.attempt) {
            Ok(next) => next,
            Err(exhausted) => return self.health.poison(exhausted),
        };
        for share in shares {
            if let Err(failure) = share.file.log.cut_back(share.end) {
                return self.health.poison(failure);
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
    fn apply(&self, group: &Group<'_, '_>, first: u64) {
        let _applying = lock(&self.apply);
        if self.shape.keys == Keys::Integer {
            let written = group.entries.iter().map(Entry::written);
            self.recent.note((first..).zip(written));
        }
        let mut start = 0;
        for &count in group.counts {
            let entries = &group.entries[start..start + count];
            let split = self
                .buckets
                .begin_split_if(entries.first().map_or(0, |entry| entry.flags));
            if self.history.open_snapshots() > 0 {
                self.keep_replaced(group.targets, entries, first + start as u64);
            }
            start += count;
            self.publish(group.targets, entries, first + start as u64 - 1);
            let added = entries
                .iter()
                .map(|entry| i64::from(entry.auxiliary as i32));
            match added.sum() {
                0 => {}
                added => self.buckets.add_keys(added),
            }
            drop(split);
        }
    }

    /// Keeps what snapshots may need.
    fn keep_replaced(&self, targets: &[Arc<Target>], entries: &[Entry<'_>], first: u64) {
        for (sequence, entry) in (first..).zip(entries) {
            let table = &targets[entry.target].table;
            // The writer has loaded the pieces, so this cannot fail.
            let keep = |key| {
                let before = table.locate(key).unwrap_or_default();
                self.history.keep(key, sequence, before);
            };
            match entry.is_range() {
                true => table
                    .live_within((entry.key, entry.last), Some(table.place_of(entry.key)))
                    .for_each(keep),
                false => keep(entry.key),
            }
        }
    }

    /// Points the slots at the entries of one request, whose last sequence number is
    /// `last`, and makes them visible, under the locks of all their pieces: a reader meets
    /// all of the request or nothing.
    ///
    /// Values are cached by key alone, and read without these locks. All old ones go before
    /// the first new one comes, so no reader meets one key of the request new and then
    /// another one old. Readers fill the cache under the lock of a key's piece: none does
    /// meanwhile.
    fn publish(&self, targets: &[Arc<Target>], entries: &[Entry<'_>], last: u64) {
        let outside = self.has_bug(SeededBug::CacheOutsideLocks) && entries.len() > 1;
        let ranges = entries.iter().take_while(|entry| entry.is_range());
        let (ranges, entries) = entries.split_at(ranges.count());
        let forget = |entry: &Entry<'_>| self.cache.remove(entry.key);
        let refresh = || {
            let puts = entries.iter().filter(|entry| !entry.removes());
            puts.for_each(|entry| self.cache.update(entry.key, &entry.value));
        };
        let was_warm = self.cache.has_values();
        if outside && was_warm {
            entries.iter().for_each(forget);
        }
        let mut locked = LockedPieces::default();
        for range in ranges {
            let target = &targets[range.target];
            let place = target.table.place_of(range.key);
            let deleted = locked.delete_range(&target.table, (range.key, range.last), place);
            target.file_of(range.key).count_range(deleted);
        }
        self.forget_ranges(ranges);
        let mut point_at = |entry: &Entry<'_>| {
            let target = &targets[entry.target];
            let slot = match entry.removes() {
                true => Slot::Deleted,
                false => Slot::Position(entry.position),
            };
            let before = locked.set(&target.table, entry.key, slot);
            target.file_of(entry.key).count_entry(before, slot);
            // A put on its own is cached below in any case.
            if (entries.len() > 1 || entry.removes()) && !outside && self.cache.has_values() {
                forget(entry);
            }
        };
        // Pieces are locked in the order of their keys.
        if entries.is_sorted_by_key(|entry| entry.key) {
            entries.iter().for_each(point_at);
        } else {
            let mut sorted: Vec<&Entry<'_>> = entries.iter().collect();
            sorted.sort_unstable_by_key(|entry| entry.key);
            sorted.into_iter().for_each(&mut point_at);
        }
        self.visible.fetch_max(last, Ordering::AcqRel);
        if !outside && self.cache.has_values() {
            refresh();
        }
        drop(locked);
        if outside && was_warm {
            refresh();
        }
    }

    /// Takes the values of removed ranges out of the cache, under the locks of their pieces.
    fn forget_ranges(&self, ranges: &[Entry<'_>]) {
        // The entries of one range follow one another.
        let same = |one: &Entry<'_>, next: &Entry<'_>| one.value == next.value;
        for range in ranges.chunk_by(same) {
            let keys = range.first().and_then(|entry| range_keys(&entry.value));
            if let Some((from, last)) = keys.filter(|_| self.cache.has_values()) {
                self.cache.remove_range(from, last);
            }
        }
    }

    /// Counts what was written, and announces a checkpoint where enough was.
    fn note_progress(&self, writer: &mut Writer, logged: u64, user_bytes: u64) {
        writer.bytes_since_checkpoint += logged;
        self.counters
            .user_bytes
            .fetch_add(user_bytes, Ordering::Relaxed);
        self.counters.log_bytes.fetch_add(logged, Ordering::Relaxed);
        if writer.bytes_since_checkpoint > self.tuning.checkpoint_bytes {
            self.index_due.store(true, Ordering::Release);
        }
    }
}

/// Bytes of the frame that holds some entries.
fn frame_bytes(entries: &[Entry<'_>]) -> u64 {
    let of_each = entries
        .iter()
        .map(|entry| FRAME_ENTRY_BYTES + entry.value.len());
    of_each.sum::<usize>() as u64
}
