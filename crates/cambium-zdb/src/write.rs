//! Writing: requests, groups and the two ways to the device.
//!
//! A group of requests is written by its leader in this order:
//!
//! 1. Entries are numbered and appended to their data files, with space
//!    allocated before, so that a full disk refuses them before a byte is written.
//! 2. The files' buffers are handed to the operating system, one write each.
//! 3. If anyone asked for `Synced`: a small group goes to the commit log as one
//!    frame, with one sync (design: small synced writes); before that, files
//!    with bytes that no frame covers are synced, so that everything earlier
//!    is durable too. A large group syncs the data files themselves.
//! 4. Slots are pointed at the entries, and the group becomes visible.
//!
//! A crash between any two steps leaves a suffix to be dropped. A failed write
//! or sync stops all further writes; a full disk takes back what was appended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cambium_api::Precondition;
use cambium_base::{Durability, Error, Result, SequenceNumber};
use cambium_index::Slot;
use cambium_storage::log::LogFile;
use cambium_storage::record::{RECORD_HEADER_BYTES, RecordHeader, record_bytes};

use crate::core::{Core, Writer, lock};
use crate::data_file::DataFile;
use crate::format::{
    ENTRY_PREFIX_BYTES, FRAME_ENTRY_BYTES, FrameEntry, encode_frame_entry, entry_prefix, kind,
};
use crate::options::SeededBug;
use crate::table::Table;

/// A change of one integer key, or of a range of them.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put {
        key: u64,
        value: Vec<u8>,
    },
    Delete {
        key: u64,
    },
    /// From the first key to the second, exclusive; `None` is open above.
    DeleteRange {
        from: u64,
        to: Option<u64>,
    },
}

/// What a writer submits.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    pub changes: Vec<Change>,
    pub durability: Durability,
    /// Checked against the state right before the changes.
    pub preconditions: Vec<(u64, Precondition)>,
    /// Flags of every entry.
    pub flags: u8,
    /// How many string keys the request adds or takes away.
    pub string_keys: i32,
    /// Bytes of keys and values as the user gave them, for statistics.
    pub user_bytes: u64,
}

impl WriteRequest {
    pub fn new(changes: Vec<Change>, durability: Durability) -> Self {
        WriteRequest {
            changes,
            durability,
            preconditions: Vec::new(),
            flags: 0,
            string_keys: 0,
            user_bytes: 0,
        }
    }

    /// Must see the effect of everything before it in its group.
    fn needs_current_state(&self) -> bool {
        !self.preconditions.is_empty()
            || self
                .changes
                .iter()
                .any(|change| matches!(change, Change::DeleteRange { .. }))
    }
}

/// An entry on its way.
struct Planned {
    table: Arc<Table>,
    file: Arc<DataFile>,
    key: u64,
    /// `None` removes the key.
    value: Option<Vec<u8>>,
    flags: u8,
    auxiliary: u32,
    batch_index: u32,
    batch_remaining: u32,
    position: u64,
}

impl Planned {
    fn kind(&self) -> u8 {
        if self.value.is_some() {
            kind::PUT
        } else {
            kind::DELETE
        }
    }

    fn value(&self) -> &[u8] {
        self.value.as_deref().unwrap_or_default()
    }

    fn payload_bytes(&self) -> u64 {
        (ENTRY_PREFIX_BYTES + self.value().len()) as u64
    }
}

/// Requests that are written together.
#[derive(Default)]
struct Plan {
    entries: Vec<Planned>,
    /// For each request its place in the group, and how many entries it has.
    requests: Vec<(usize, usize)>,
    durability: Option<Durability>,
    user_bytes: u64,
}

impl Core {
    /// Writes a request through the queue.
    pub fn write_request(&self, request: WriteRequest) -> Result<SequenceNumber> {
        self.check_writable()?;
        self.prepare(&request)?;
        let synced = request.durability == Durability::Synced;
        let answer = self.queue.submit(request, synced, |group| self.lead(group));
        if self.checkpoint_due.load(Ordering::Acquire) {
            self.on_checkpoint_due();
        }
        answer
    }

    /// Does outside the queue what may need I/O: makes tables, reads pieces.
    fn prepare(&self, request: &WriteRequest) -> Result<()> {
        if !request.changes.is_empty() {
            self.begin_session()?;
        }
        for change in &request.changes {
            let key = match change {
                Change::Put { key, .. } => {
                    self.ensure_table(*key)?;
                    *key
                }
                Change::Delete { key } => *key,
                Change::DeleteRange { .. } => continue,
            };
            if let Some(table) = self.table_of(key)? {
                table.load_piece(table.piece_of(key).0)?;
            }
        }
        Ok(())
    }

    /// Writes a group, and answers each request of it.
    fn lead(&self, group: Vec<WriteRequest>) -> Vec<Result<SequenceNumber>> {
        let mut writer = lock(&self.writer);
        let mut answers: Vec<Option<Result<SequenceNumber>>> = Vec::new();
        answers.resize_with(group.len(), || None);
        let mut plan = Plan::default();
        for (member, request) in group.into_iter().enumerate() {
            if request.needs_current_state() && !plan.requests.is_empty() {
                self.commit_plan(&mut writer, std::mem::take(&mut plan), &mut answers);
            }
            if let Err(error) = self.plan_request(member, request, &mut plan) {
                answers[member] = Some(Err(error));
            }
        }
        self.commit_plan(&mut writer, plan, &mut answers);
        answers
            .into_iter()
            .map(|answer| answer.expect("every request was planned or refused"))
            .collect()
    }

    /// Turns a request into entries.
    fn plan_request(&self, member: usize, request: WriteRequest, plan: &mut Plan) -> Result<()> {
        self.check_writable()?;
        for (index, (key, precondition)) in request.preconditions.iter().enumerate() {
            let current = self.read_latest(*key)?;
            if !precondition.holds(current.as_deref()) {
                return Err(Error::PreconditionFailed { index });
            }
        }
        let first_in_plan = plan.requests.is_empty();
        let mut entries = Vec::with_capacity(request.changes.len());
        let changes = if request.needs_current_state() {
            self.resolve_ranges(request.changes)?
        } else {
            request.changes
        };
        for change in changes {
            let (key, value) = match change {
                Change::Put { key, value } => (key, Some(value)),
                Change::Delete { key } => (key, None),
                Change::DeleteRange { .. } => continue,
            };
            let Some(table) = self.table_of(key)? else {
                continue;
            };
            table.load_piece(table.piece_of(key).0)?;
            // Removing what is not there needs no entry; what the slot says
            // holds only if nothing planned before could have put the key.
            if value.is_none() && first_in_plan && table.locate(key)?.is_none() {
                continue;
            }
            let file = table.current_file(table.place_of(key));
            entries.push(Planned {
                file,
                key,
                value,
                table,
                flags: request.flags,
                auxiliary: 0,
                batch_index: entries.len() as u32,
                batch_remaining: 0,
                position: 0,
            });
        }
        let count = entries.len();
        if self.history.open_snapshots() > 0
            && self.history.held() + (plan.entries.len() + count) as u64
                > self.tuning.snapshot_limit
        {
            return Err(Error::SnapshotLimit {
                held: self.history.held(),
                option: "snapshot_limit",
            });
        }
        for (index, entry) in entries.iter_mut().enumerate() {
            entry.batch_remaining = (count - 1 - index) as u32;
        }
        if let Some(last) = entries.last_mut() {
            last.auxiliary = request.string_keys as u32;
        }
        plan.entries.append(&mut entries);
        plan.requests.push((member, count));
        plan.user_bytes += request.user_bytes;
        plan.durability = plan.durability.max(Some(request.durability));
        Ok(())
    }

    /// Replaces ranges by the keys that are in them now; a later change of a
    /// key wins over an earlier one.
    fn resolve_ranges(&self, changes: Vec<Change>) -> Result<Vec<Change>> {
        let mut resolved: BTreeMap<u64, Option<Vec<u8>>> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Put { key, value } => _ = resolved.insert(key, Some(value)),
                Change::Delete { key } => _ = resolved.insert(key, None),
                Change::DeleteRange { from, to } => {
                    let within = |key: u64| key >= from && to.is_none_or(|to| key < to);
                    for (key, value) in resolved.iter_mut() {
                        if within(*key) {
                            *value = None;
                        }
                    }
                    self.for_each_key(from, to, |key| {
                        resolved.insert(key, None);
                    })?;
                }
            }
        }
        let changes = resolved.into_iter().map(|(key, value)| match value {
            Some(value) => Change::Put { key, value },
            None => Change::Delete { key },
        });
        Ok(changes.collect())
    }

    /// Calls `visit` for each key of a range that has an entry now.
    pub fn for_each_key(
        &self,
        from: u64,
        to: Option<u64>,
        mut visit: impl FnMut(u64),
    ) -> Result<()> {
        let last = match to {
            Some(0) => return Ok(()),
            Some(to) => to - 1,
            None => u64::MAX,
        };
        if from > last {
            return Ok(());
        }
        for number in self.table_numbers() {
            if number < self.table_number(from) || number > self.table_number(last) {
                continue;
            }
            let Some(table) = self.table(number)? else {
                continue;
            };
            let per_piece = self.shape.slots_per_piece() as u64;
            for piece in 0..table.piece_count() {
                let first = table.first_key.saturating_add(piece as u64 * per_piece);
                if first > last || first.saturating_add(per_piece - 1) < from {
                    continue;
                }
                if table.piece(piece).slots.is_none() && table.piece(piece).on_disk == 0 {
                    continue;
                }
                table.load_piece(piece)?;
                let state = table.piece(piece);
                let Some(slots) = &state.slots else { continue };
                for slot in 0..slots.len() {
                    let Some(key) = first.checked_add(slot as u64) else {
                        break;
                    };
                    if (from..=last).contains(&key) && matches!(slots.get(slot), Slot::Position(_))
                    {
                        visit(key);
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes a plan and answers its requests. What does not fit on the disk
    /// together is tried one by one.
    fn commit_plan(
        &self,
        writer: &mut Writer,
        mut plan: Plan,
        answers: &mut [Option<Result<SequenceNumber>>],
    ) {
        if plan.requests.is_empty() {
            return;
        }
        match self.write_plan(writer, &mut plan) {
            Ok(first) => {
                let mut last = first - 1;
                for &(member, count) in &plan.requests {
                    last += count as u64;
                    answers[member] = Some(Ok(SequenceNumber(last)));
                }
            }
            Err(error)
                if error.is_no_space()
                    && plan.requests.len() > 1
                    && self.poison.get().is_none() =>
            {
                let durability = plan.durability;
                let mut entries = plan.entries.into_iter();
                for (member, count) in plan.requests {
                    let alone = Plan {
                        entries: entries.by_ref().take(count).collect(),
                        requests: vec![(member, count)],
                        durability,
                        user_bytes: 0,
                    };
                    self.commit_plan(writer, alone, answers);
                }
            }
            Err(error) => {
                for &(member, _) in &plan.requests {
                    answers[member] = Some(Err(error.clone()));
                }
            }
        }
    }

    /// Writes a plan; answers the sequence number of its first entry.
    fn write_plan(&self, writer: &mut Writer, plan: &mut Plan) -> Result<u64> {
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
            writer.synced_through = last;
        }
        writer.next_sequence = first + plan.entries.len() as u64;
        self.apply_plan(plan, first);
        self.note_progress(writer, plan);
        Ok(first)
    }

    /// Allocates space for all entries in their files.
    fn reserve(&self, plan: &Plan) -> Result<()> {
        let mut needed: BTreeMap<u64, (u64, &Arc<DataFile>)> = BTreeMap::new();
        for entry in &plan.entries {
            let bytes = record_bytes(entry.payload_bytes(), self.shape.alignment);
            needed
                .entry(entry.file.file.number.0)
                .or_insert((0, &entry.file))
                .0 += bytes;
        }
        for (bytes, file) in needed.into_values() {
            if file.log.end() + bytes > self.shape.slots.max_position() {
                return Err(Error::LimitExceeded(format!(
                    "{} would pass {} bytes, the most that slot_bytes={} and alignment={} can address; compact it, or create a store with larger slots",
                    file.log.path().display(),
                    self.shape.slots.max_position(),
                    self.shape.slots.bytes(),
                    self.shape.alignment
                )));
            }
            file.log.reserve(bytes)?;
        }
        Ok(())
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
            if entry.value.is_none() && self.has_bug(SeededBug::DeleteUnlogged) {
                continue;
            }
            let prefix = entry_prefix(time, entry.key);
            entry.position = entry.file.log.append(&header, &[&prefix, entry.value()]);
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
            .map(|entry| (FRAME_ENTRY_BYTES + entry.value().len()) as u64)
            .sum();
        if durability != Durability::Synced
            || plan.entries.is_empty()
            || bytes > self.tuning.commit_group_bytes
            || !self.make_room_in_commit_log(writer, bytes)
        {
            return None;
        }
        let mut payload = Vec::with_capacity(bytes as usize + 12);
        payload.extend_from_slice(&self.environment.clock.wall_nanoseconds().to_le_bytes());
        payload.extend_from_slice(&(plan.entries.len() as u32).to_le_bytes());
        for entry in &plan.entries {
            let framed = FrameEntry {
                kind: entry.kind(),
                flags: entry.flags,
                auxiliary: entry.auxiliary,
                key: entry.key,
                batch_index: entry.batch_index,
                batch_remaining: entry.batch_remaining,
                value: entry.value(),
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
        let needed = bytes + RECORD_HEADER_BYTES as u64 + 16;
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
            if !entry.file.dirty.swap(true, Ordering::AcqRel) {
                writer.dirty.push(entry.file.clone());
            }
            if !framed {
                entry.file.unlogged.store(true, Ordering::Release);
            }
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

    /// Undoes an append that failed for lack of space; any other failure
    /// stops all writes.
    fn take_back(
        &self,
        writer: &mut Writer,
        ends: Vec<(Arc<DataFile>, u64)>,
        error: Error,
    ) -> Error {
        if !error.is_no_space() {
            return self.poisoned(error);
        }
        // What may be left of the entries must not be mixed with what follows.
        writer.attempt = writer.attempt.wrapping_add(1);
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
        for file in writer.dirty.drain(..) {
            if file.unlogged.load(Ordering::Acquire) {
                file.log.sync()?;
                self.counters.syncs.fetch_add(1, Ordering::Relaxed);
                file.unlogged.store(false, Ordering::Release);
                file.dirty.store(false, Ordering::Release);
            } else {
                still_dirty.push(file);
            }
        }
        writer.dirty = still_dirty;
        let Some((mut header, payload)) = frame else {
            return Ok(());
        };
        // Everything before the frame is durable by now.
        header.synced_through = SequenceNumber(first - 1);
        let active = &mut writer.commit_logs[writer.active_log];
        active.last_sequence = last;
        active.in_use = true;
        active.log.append(&header, &[&payload]);
        active.log.pad_to_block();
        active.log.flush()?;
        if !self.has_bug(SeededBug::CommitLogUnsynced) {
            active.log.sync()?;
        }
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.counters
            .commit_log_bytes
            .fetch_add(payload.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Points the slots at the entries and lets readers see them, a request
    /// at a time.
    fn apply_plan(&self, plan: &Plan, first: u64) {
        let _applying = lock(&self.apply);
        let snapshots = self.history.open_snapshots() > 0;
        let mut start = 0;
        for &(_, count) in &plan.requests {
            let entries = &plan.entries[start..start + count];
            let sequence = first + start as u64;
            let split = self
                .buckets
                .begin_split_if(entries.first().map_or(0, |entry| entry.flags));
            if snapshots || count > 1 {
                for (index, entry) in entries.iter().enumerate() {
                    // The writer has loaded the piece, so this cannot fail.
                    let before = entry.table.locate(entry.key).unwrap_or_default();
                    self.history
                        .keep(entry.key, sequence + index as u64, before);
                }
            }
            for entry in entries {
                let slot = match &entry.value {
                    Some(_) => Slot::Position(entry.position),
                    None => Slot::Deleted,
                };
                entry.table.set_slot(entry.key, slot);
                entry.file.entries.fetch_add(1, Ordering::Relaxed);
                if let Some(delta) = (entry.auxiliary != 0).then_some(entry.auxiliary as i32) {
                    self.buckets.add_keys(i64::from(delta));
                }
            }
            start += count;
            self.visible
                .fetch_max(first + start as u64 - 1, Ordering::AcqRel);
            if count > 1 && !snapshots {
                self.history.release_batch();
            }
            drop(split);
        }
    }

    fn note_progress(&self, writer: &mut Writer, plan: &Plan) {
        let logged = plan
            .entries
            .iter()
            .map(|entry| record_bytes(entry.payload_bytes(), self.shape.alignment))
            .sum::<u64>();
        writer.bytes_since_checkpoint += logged;
        self.counters.user_bytes.fetch_add(user, Ordering::Relaxed);
        self.counters.log_bytes.fetch_add(logged, Ordering::Relaxed);
        if writer.bytes_since_checkpoint > self.tuning.checkpoint_bytes {
            self.checkpoint_due.store(true, Ordering::Release);
        }
    }
}
