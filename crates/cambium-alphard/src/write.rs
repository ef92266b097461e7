//! Writing: requests become entries, entries become few writes.
//!
//! 1. The request joins the commit queue; the first in line does the work of all
//!    that wait ([`cambium_storage::commit_queue`]).
//! 2. Each request is planned: preconditions, the extents it makes obsolete, space
//!    for its entries, one right behind the other as far as there is room.
//! 3. Its entries are encoded and wait in memory; the index points to them, and
//!    readers see the request whole.
//! 4. If anyone in the group asked for more than `Buffered`, or enough waits, the
//!    entries are written, what lies together by one write; for `Synced` there is
//!    one sync for the group. While a large group is written and synced the next one is
//!    led ([`crate::flights`]).

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, TryLockError};

use cambium_api::{Durability, Operation, Precondition};
use cambium_base::{Error, Extent, Result, SequenceNumber, Value};
use cambium_io::StepOutcome;

use crate::core::{Core, Writer, lock, read, write};
use crate::flights::Departed;
use crate::format::{self, EntryHeader, EntryKind, Superblock, blocks_for};
use crate::outgoing::{LARGE_BYTES, PendingEntry, Piece, START_BYTES};
use crate::seeded_bug::SeededBug;
use crate::state::{KeyName, State};

/// A group of so many bytes takes about as long to be written as to be synced: worth
/// doing one beside the other. Of smaller ones a sync had better take all there are.
const LARGE_GROUP_BYTES: usize = 512 << 10;
/// More waiting than so many times the coalescing limit, and a write that cannot
/// be done is refused before it is planned.
const MOST_PENDING: usize = 4;

/// What is erased at once to make room for a write.
const ROOM_BYTES: u64 = 1 << 20;
/// After so many steps a write waits only for those that let tombstones go.
const MOST_STEPS: u32 = 1024;

/// What a writer asks for.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    /// The last operation of each key, in order.
    pub operations: Vec<Operation>,
    pub preconditions: Vec<Precondition>,
    pub durability: Durability,
    pub user_bytes: u64,
}

/// An operation with all that it needs to be done.
struct Planned<'a> {
    key: &'a [u8],
    /// `None` deletes.
    value: Option<&'a [u8]>,
    name: KeyName,
    before: Option<Extent>,
    extent: Extent,
}

/// The answers to the requests of one member of a group.
pub(crate) type Answers = Vec<Result<SequenceNumber>>;

/// The same, with the flight that they wait for.
pub(crate) type Begun = (Answers, Option<Arc<Departed>>);

/// The answers of a group whose writing failed.
fn with_outcome(mut answers: Answers, error: &Error) -> Answers {
    for answer in answers.iter_mut().filter(|answer| answer.is_ok()) {
        *answer = Err(error.clone());
    }
    answers
}

/// What a sync that begins now makes durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// The last write.
    sequence: u64,
    /// What entries up to there say is durable.
    stated: u64,
    starts: u64,
}

impl Written {
    /// True if what makes this durable makes `other` durable too.
    pub fn covers(self, other: Written) -> bool {
        self.sequence >= other.sequence
    }
}

impl Writer {
    /// All that was started, when nothing waits.
    pub fn written(&self) -> Written {
        Written {
            sequence: self.next_sequence - 1,
            stated: self.stated,
            starts: self.starts,
        }
    }

    /// A sync has made durable what was written when it began.
    fn settle(&mut self, written: Written) {
        if self.starts == written.starts {
            self.unsynced = false;
        }
        self.marked = self.marked.max(written.stated);
        self.synced_through = self.synced_through.max(written.sequence);
        self.stale.settle(self.synced_through);
    }

    /// The superblock could not be written: it is as before, but for the
    /// generation, which a copy may have.
    pub fn take_superblock_back(&mut self, before: Superblock) {
        let generation = self.superblock.generation;
        self.superblock = Superblock {
            generation,
            ..before
        };
    }
}

impl Core {
    /// Does a write, together with those of others.
    pub fn write_request(self: &Arc<Self>, request: WriteRequest) -> Result<SequenceNumber> {
        let (answers, flight) = self.begin_requests(vec![request])?;
        let mut answers = self.finish(answers, flight.as_deref());
        // One answer a request.
        answers.pop().unwrap_or(Err(Error::Closed))
    }

    /// Begins several writes in turn, together with those of others; one answer each,
    /// which counts when [`Core::finish`] has given it.
    pub fn begin_requests(self: &Arc<Self>, requests: Vec<WriteRequest>) -> Result<Begun> {
        self.check_writable()?;
        let synced = requests
            .iter()
            .any(|request| request.durability == Durability::Synced);
        Ok(self
            .queue
            .submit(requests, synced, |group| self.commit(group)))
    }

    /// Waits for the flight that writes are on, if any, and makes it durable.
    pub fn finish(&self, answers: Answers, flight: Option<&Departed>) -> Answers {
        match flight.map(|flight| self.finish_flight(flight)) {
            Some(Err(error)) => with_outcome(answers, &error),
            _ => answers,
        }
    }

    /// Does the writes of a group: one answer for each request of each member. Those of a
    /// large group are only begun, so that the next one is led meanwhile.
    fn commit(&self, group: Vec<Vec<WriteRequest>>) -> Vec<Begun> {
        let mut writer = self.lock_to_lead();
        let mut needed = Durability::Buffered;
        let mut answers = Vec::with_capacity(group.len());
        for requests in &group {
            let mut of_member = Answers::with_capacity(requests.len());
            for request in requests {
                let (held, answer) = self.plan_with_room(writer, request);
                writer = held;
                if answer.is_ok() && request.durability > Durability::Buffered {
                    // A failure comes again when it is waited for.
                    _ = self.start_early(&mut writer);
                }
                if answer.is_ok() {
                    needed = needed.max(request.durability);
                    let counted = &self.counters.user_bytes;
                    counted.fetch_add(request.user_bytes, Ordering::Relaxed);
                }
                of_member.push(answer.map(SequenceNumber));
            }
            answers.push(of_member);
        }
        let is_apart = self.is_apart(&writer);
        if needed == Durability::Synced {
            self.note_group(&mut writer, !is_apart);
        }
        let outcome = match needed {
            Durability::Synced if is_apart => match self.take_off(&mut writer) {
                Ok(flight) => {
                    let begun = answers.into_iter();
                    return begun
                        .map(|answers| (answers, Some(flight.clone())))
                        .collect();
                }
                Err(error) => Err(error),
            },
            Durability::Synced => self.sync_all(&mut writer),
            Durability::Written => self.flush(&mut writer),
            Durability::Buffered if writer.pending_bytes >= self.tuning.coalesce_bytes => {
                self.flush(&mut writer)
            }
            Durability::Buffered => Ok(()),
        };
        let done = answers.into_iter().map(|answers| match &outcome {
            Ok(()) => answers,
            Err(error) => with_outcome(answers, error),
        });
        done.map(|answers| (answers, None)).collect()
    }

    /// True if what waits had better be written while the next group is led.
    fn is_apart(&self, writer: &Writer) -> bool {
        let alone = LARGE_GROUP_BYTES.min(self.tuning.coalesce_bytes);
        let least = match self.flights.any() {
            true => LARGE_BYTES.min(alone),
            false => alone,
        };
        writer.pending_bytes >= least
    }

    fn lock_to_lead(&self) -> MutexGuard<'_, Writer> {
        let mut writer = lock(&self.writer);
        self.settle_others(&mut writer);
        self.land_failed(&mut writer);
        writer
    }

    /// As [`Core::plan`]; where there is no space, tombstones are let go as far as they
    /// can, which is else the background's to do. The writer lock is let go for that: what
    /// was planned before is there to be written by anybody.
    fn plan_with_room<'a>(
        &'a self,
        mut writer: MutexGuard<'a, Writer>,
        request: &WriteRequest,
    ) -> (MutexGuard<'a, Writer>, Result<u64>) {
        let mut steps = 0;
        loop {
            let planned = self
                .check_writable()
                .and_then(|()| self.plan(&mut writer, request));
            let error = match planned {
                Err(error) if error.is_no_space() && !writer.tombstones.is_empty() => error,
                other => return (writer, other),
            };
            let before = (writer.tombstones.len(), writer.allocator.free_blocks());
            // Only what is said to be durable can be erased.
            let settled = self.settle(&mut writer);
            drop(writer);
            let stepped = settled.and_then(|()| self.step(ROOM_BYTES));
            writer = self.lock_to_lead();
            steps += 1;
            let goes_on = match stepped {
                _ if writer.tombstones.len() < before.0 => true,
                // The background may have had some of it to write zeros there.
                Ok(_) if writer.allocator.free_blocks() > before.1 => steps < MOST_STEPS,
                // One may erase headers without the last that a tombstone waits for, or
                // copy to a mirror first.
                Ok(outcome) => outcome == StepOutcome::Again && steps < MOST_STEPS,
                Err(failed) if failed.is_no_space() => false,
                Err(failed) => return (writer, Err(failed)),
            };
            if !goes_on {
                return (writer, Err(error));
            }
        }
    }

    /// Gives a request its numbers and its space, and makes it visible.
    fn plan(&self, writer: &mut Writer, request: &WriteRequest) -> Result<u64> {
        for (index, precondition) in request.preconditions.iter().enumerate() {
            let current = self.current(precondition.key())?;
            if !precondition.holds(current.as_deref()) {
                return Err(Error::PreconditionFailed { index });
            }
        }
        if writer.outgoing.waiting_bytes() > MOST_PENDING * self.tuning.coalesce_bytes {
            self.flush(writer)?;
        }
        let mut planned = Vec::with_capacity(request.operations.len());
        for operation in &request.operations {
            planned.extend(self.resolve(writer, operation)?);
        }
        if planned.is_empty() {
            return Ok(writer.next_sequence - 1);
        }
        self.check_snapshots(planned.len())?;
        self.begin_session(writer)?;
        self.collect_unpinned(writer);
        self.allocate(writer, &mut planned)?;
        self.forget_kept(&planned);
        Ok(self.apply(writer, &planned))
    }

    /// What an operation replaces; `None` for a delete of what is not there.
    fn resolve<'a>(
        &self,
        writer: &mut Writer,
        operation: &'a Operation,
    ) -> Result<Option<Planned<'a>>> {
        let (key, value) = match operation {
            Operation::Put { key, value } => (key, Some(value.as_slice())),
            Operation::Delete { key } => (key, None),
            Operation::DeleteRange { .. } => return Err(crate::engine::unordered("delete_range")),
        };
        let (name, candidates) = {
            let state = read(&self.state);
            let name = state.name(key);
            (name, state.index.find(name.slot).collect::<Vec<_>>())
        };
        let before = self.choose(writer, name, &candidates)?;
        if before.is_none() && value.is_none() {
            return Ok(None);
        }
        let block_bytes = self.block_bytes;
        let blocks = value.map_or(1, |value| blocks_for(key.len(), value.len(), block_bytes));
        Ok(Some(Planned {
            key,
            value,
            name,
            before,
            extent: Extent { block: 0, blocks },
        }))
    }

    /// Which of the extents under a slot is the key's. One that is whole in its
    /// slot needs no look; a longer one is compared by its second hash, which the
    /// entry's header has if memory has it no more.
    fn choose(
        &self,
        writer: &mut Writer,
        name: KeyName,
        candidates: &[Extent],
    ) -> Result<Option<Extent>> {
        if name.slot.is_exact() {
            return Ok(candidates.first().copied());
        }
        for &extent in candidates {
            let known = writer.key_checks.get(&extent.block).copied();
            let check = known.map_or_else(|| self.key_check_at(extent), Ok)?;
            if check == name.check {
                return Ok(Some(extent));
            }
        }
        Ok(None)
    }

    /// The second hash of the key whose entry lies at an extent, which cannot go
    /// away now. With the first it makes 120 bits under a secret: two keys that
    /// agree in them are taken for one, here as in recovery.
    fn key_check_at(&self, extent: Extent) -> Result<u64> {
        let first = Extent {
            blocks: 1,
            ..extent
        };
        let head = self.read_extent(first)?;
        let decode =
            |head: &[u8]| format::decode_header(head, extent.block, self.block_bytes, self.seed);
        let mut members = self.volume.readable();
        let header = decode(&head).or_else(|| {
            // Damaged on one member: perhaps not on the other.
            members.find_map(|member| decode(&self.volume.read_from(member, first).ok()?))
        });
        match header {
            Some(header) => Ok(header.key_check),
            None => Err(self.volume.damage(
                extent.block,
                "the index points here, and no entry header matches its checksum",
            )),
        }
    }

    /// The value that a key has now, for a precondition.
    fn current(&self, key: &[u8]) -> Result<Option<Value>> {
        let moment = read(&self.state).visible;
        // The writer lock is held: what is live stays where it is.
        self.get_at(key, moment)
    }

    fn check_snapshots(&self, changes: usize) -> Result<()> {
        let state = read(&self.state);
        if state.pins() == 0 || state.changes() + changes as u64 <= self.tuning.snapshot_limit {
            return Ok(());
        }
        Err(Error::SnapshotLimit {
            held: state.changes(),
            option: "snapshot_limit",
        })
    }

    /// Finds space for each entry, right behind the one before it where that is
    /// free; all of them or none.
    fn allocate(&self, writer: &mut Writer, planned: &mut [Planned<'_>]) -> Result<()> {
        let deletes_only = planned.iter().all(|entry| entry.value.is_none());
        let mut behind = None;
        for at in 0..planned.len() {
            let blocks = planned[at].extent.blocks;
            match self.find_space(writer, blocks, behind, deletes_only) {
                Ok(extent) => {
                    planned[at].extent = extent;
                    behind = Some(extent);
                }
                Err(error) => {
                    for taken in &planned[..at] {
                        writer.allocator.free(taken.extent);
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Writes the superblock; the generation goes on even where that failed.
    pub fn write_superblock(&self, writer: &mut Writer) -> Result<()> {
        // It syncs: not beside another sync.
        let _one_at_a_time = lock(&self.syncing);
        self.health.check_sound()?;
        self.volume
            .write_superblock(&mut writer.superblock)
            .map_err(|error| self.unless_full(error))
    }

    /// Gives this opening its epoch, durably, before its first entry: from then on
    /// the store is not clean.
    pub fn begin_session(&self, writer: &mut Writer) -> Result<()> {
        if writer.session_begun {
            return Ok(());
        }
        let before = writer.superblock;
        let last = writer.next_sequence - 1;
        let state = read(&self.state);
        let superblock = &mut writer.superblock;
        superblock.epoch += 1;
        superblock.clean = self.has_bug(SeededBug::StaleImage) && superblock.clean;
        superblock.sequence = last;
        superblock.synced_through = last;
        superblock.live_digest = state.live_digest;
        superblock.live_entries = state.index.len() as u64;
        drop(state);
        if let Err(error) = self.write_superblock(writer) {
            writer.take_superblock_back(before);
            return Err(error);
        }
        writer.marked = last;
        writer.session_begun = true;
        Ok(())
    }

    /// Encodes a request's entries and shows them to readers.
    fn apply(&self, writer: &mut Writer, planned: &[Planned<'_>]) -> u64 {
        let mut state = write(&self.state);
        let mut encoded = Vec::with_capacity(planned.len());
        let mut rest = planned;
        while !rest.is_empty() {
            let (run, others) = rest.split_at(self.in_one_piece(rest));
            let bytes = run.iter().map(|entry| self.bytes_of(entry)).sum();
            let mut buffer = self.flights.buffer(bytes, self.volume.memory_alignment());
            let mut ranges = Vec::with_capacity(run.len());
            let mut at = 0;
            for (number, entry) in run.iter().enumerate() {
                let remaining = others.len() + run.len() - number - 1;
                let end = at + self.bytes_of(entry);
                self.encode(writer, &mut state, (entry, remaining), &mut buffer[at..end]);
                ranges.push((entry.extent.block, at..end));
                at = end;
            }
            let piece = Piece {
                block: run[0].extent.block,
                entries: run.len() as u64,
                bytes: Arc::new(buffer),
            };
            encoded.extend(ranges.into_iter().map(|(block, range)| {
                let piece = piece.clone();
                (block, PendingEntry { piece, range })
            }));
            writer.pending_bytes += bytes;
            writer.outgoing.push(piece);
            rest = others;
        }
        writer.stating = writer.synced_through;
        // Before the index is let go: who finds an extent there must find its bytes.
        write(&self.pending).extend(encoded);
        drop(state);
        self.keep_written(planned);
        writer.next_sequence - 1
    }

    /// Whatever is kept of the places that entries will take is no more. Nobody finds
    /// these in the index now, and who did has looked what is kept of them before.
    fn forget_kept(&self, planned: &[Planned<'_>]) {
        if !self.has_bug(SeededBug::CacheServesOverwritten) {
            for entry in planned {
                self.kept.remove(entry.extent.block);
            }
        }
    }

    /// Offers the cache what was written, and lets go what that replaces: readers of the
    /// index need not wait for it, and no other entry comes to these places meanwhile.
    fn keep_written(&self, planned: &[Planned<'_>]) {
        for entry in planned {
            // Snapshots that see it read it again; for all others it would be garbage.
            let replaced = |before: Extent| self.kept.remove(before.block);
            let replaced = entry.before.is_some_and(replaced);
            if let Some(value) = entry.value {
                self.kept
                    .take_written(entry.extent, entry.key, value, replaced);
            }
        }
    }

    /// What an entry takes on the device.
    fn bytes_of(&self, entry: &Planned<'_>) -> usize {
        entry.extent.blocks as usize * self.block_bytes as usize
    }

    /// How many of the first entries lie together and share a buffer; a large one has
    /// its own.
    fn in_one_piece(&self, planned: &[Planned<'_>]) -> usize {
        let most = START_BYTES.min(self.tuning.coalesce_bytes);
        let mut bytes = self.bytes_of(&planned[0]);
        let is_large = |entry: &Planned<'_>| self.bytes_of(entry) >= LARGE_BYTES;
        let pairs = planned.windows(2);
        1 + pairs
            .take_while(|pair| {
                let [one, next] = [pair[0].extent, pair[1].extent];
                bytes += self.bytes_of(&pair[1]);
                one.block + one.blocks == next.block && bytes <= most && !pair.iter().any(is_large)
            })
            .count()
    }

    /// Gives an entry its number, points the index to it, and encodes it; so many more
    /// of its batch follow.
    fn encode(
        &self,
        writer: &mut Writer,
        state: &mut State,
        (entry, remaining): (&Planned<'_>, usize),
        into: &mut [u8],
    ) {
        let sequence = writer.next_sequence;
        writer.next_sequence += 1;
        let after = entry.value.map(|_| entry.extent);
        let seen = state.change(entry.key, entry.name.slot, (entry.before, after), sequence);
        if let Some(obsolete) = seen {
            writer.allocator.free_after(obsolete, sequence);
        }
        writer.stale.cover(entry.extent, sequence);
        if let Some(before) = entry.before {
            writer.stale.add(sequence, before.block);
        }
        if after.is_some() && !entry.name.slot.is_exact() {
            let checks = &mut writer.key_checks;
            checks.insert(entry.extent.block, entry.name.check);
        }
        if after.is_none() {
            writer.tombstones.push_back((sequence, entry.extent.block));
        }
        let header = EntryHeader {
            kind: match after {
                Some(_) => EntryKind::Value,
                None => EntryKind::Tombstone,
            },
            key_bytes: after.map_or(0, |_| entry.key.len() as u16),
            value_bytes: entry.value.map_or(0, |value| value.len() as u32),
            sequence,
            synced_through: writer.synced_through,
            live_digest: state.live_digest,
            slot_key: entry.name.slot,
            key_check: entry.name.check,
            epoch: writer.superblock.epoch,
            remaining: remaining as u32,
            block: entry.extent.block,
        };
        let key = if after.is_some() { entry.key } else { &[] };
        let value = entry.value.unwrap_or_default();
        format::encode_entry(into, &header, key, value, self.block_bytes, self.seed);
        if after.is_none() && self.has_bug(SeededBug::NoTombstone) {
            into.fill(0);
        }
    }

    /// Makes everything written so far durable.
    pub fn sync_all(&self, writer: &mut Writer) -> Result<()> {
        self.settle_others(writer);
        if self.write_synced(writer)? {
            writer.settle(writer.written());
            self.collect_unpinned(writer);
            return Ok(());
        }
        self.flush(writer)?;
        if writer.unsynced && !self.has_bug(SeededBug::NoSync) {
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
            self.sync_members()?;
            self.keep_members(writer)?;
        }
        writer.settle(writer.written());
        self.collect_unpinned(writer);
        Ok(())
    }

    /// Takes notice of syncs that ended while the writer lock was held.
    fn settle_others(&self, writer: &mut Writer) {
        for written in std::mem::take(&mut *lock(&self.settled)) {
            writer.settle(written);
        }
    }

    /// Waits for a flight, and makes it durable, without the writer lock: the next group
    /// is led meanwhile.
    fn finish_flight(&self, flight: &Departed) -> Result<()> {
        let mut written = self.land(flight)?;
        if !self.has_bug(SeededBug::NoSync) {
            written = self.sync_landed(written)?;
        }
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // The next group is being written: those who wait for this one need not wait
            // for that, unless a member may have been lost.
            Err(TryLockError::WouldBlock) if !self.volume.is_mirrored() => {
                lock(&self.settled).push(written);
                return Ok(());
            }
            Err(TryLockError::WouldBlock) => lock(&self.writer),
        };
        if self.health.is_closed() {
            // The close has synced all there was, or has failed.
            return self.health.check_sound();
        }
        self.keep_members(&mut writer)?;
        writer.settle(written);
        self.collect_unpinned(&mut writer);
        Ok(())
    }
}
