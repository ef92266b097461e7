//! Writing: requests become entries, entries become few writes.
//!
//! 1. The request joins the commit queue; the first in line does the work of all
//!    that wait ([`cambium_storage::commit_queue`]).
//! 2. Requests are planned, small ones together ([`crate::plan`]): preconditions, the extents
//!    they make obsolete, space for their entries, one directly after the other as far as
//!    there is room.
//! 3. The entries are encoded and wait in memory ([`crate::apply`]); the index points to
//!    them, and readers see the request whole.
//! 4. If anyone in the group asked for more than `Buffered`, or enough waits, the
//!    entries are written, what lies together by one write; for `Synced` there is
//!    one sync for the group. While a large group is written and synced the next one is
//!    led ([`crate::flights`]).

use std::sync::{Arc, TryLockError};

use cambium_api::{Durability, Operation, Precondition, ReadSet, WriteBatch};
use cambium_base::{Error, Result, SequenceNumber};
use cambium_io::sync::MutexGuard;
use cambium_io::sync::atomic::Ordering;

use crate::core::{Core, Writer, lock, read};
use crate::engine::last_operations;
use crate::flights::Departed;
use crate::format::Superblock;
use crate::outgoing::LARGE_BYTES;
use crate::seeded_bug::SeededBug;

/// A group of so many bytes takes about as long to be written as to be synced: worth
/// doing one beside the other. Of smaller ones a sync had better take all there are.
const LARGE_GROUP_BYTES: usize = 512 << 10;

/// What a writer asks for.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    /// The last operation of each key, in order.
    pub operations: Vec<Operation>,
    pub preconditions: Vec<Precondition>,
    /// Reads of a transaction: the commit fails if one of them was written since.
    pub unchanged: Option<Arc<ReadSet>>,
    pub durability: Durability,
    pub user_bytes: u64,
}

impl WriteRequest {
    /// The writes of a batch, without conditions.
    pub fn new(batch: WriteBatch, durability: Durability) -> Result<Self> {
        batch.check_limits()?;
        Ok(WriteRequest {
            user_bytes: batch.bytes(),
            operations: last_operations(batch)?,
            preconditions: Vec::new(),
            unchanged: None,
            durability,
        })
    }
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
        self.queue
            .submit(&self.health, requests, synced, |group| self.commit(group))
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
        let requests: Vec<&WriteRequest> = group.iter().flatten().collect();
        let mut answers = Answers::with_capacity(requests.len());
        while answers.len() < requests.len() {
            let at = answers.len();
            writer = self.plan_first(writer, &requests[at..], &mut answers);
            for (request, answer) in requests[at..].iter().zip(&answers[at..]) {
                if answer.is_ok() {
                    needed = needed.max(request.durability);
                    let counted = &self.counters.user_bytes;
                    counted.fetch_add(request.user_bytes, Ordering::Relaxed);
                }
            }
            if needed > Durability::Buffered {
                // A failure comes again when it is waited for.
                _ = self.start_early(&mut writer);
            }
        }
        let is_apart = self.is_apart(&writer);
        if needed == Durability::Synced {
            self.note_group(&mut writer, !is_apart);
        }
        let begun = match needed {
            Durability::Synced if is_apart => self.take_off(&mut writer).map(Some),
            Durability::Synced => self.sync_all(&mut writer).map(|()| None),
            Durability::Buffered if writer.pending_bytes < self.tuning.coalesce_bytes => Ok(None),
            Durability::Buffered | Durability::Written => self.flush(&mut writer).map(|()| None),
        };
        let (answers, flight) = match begun {
            Ok(flight) => (answers, flight),
            Err(error) => (with_outcome(answers, &error), None),
        };
        let mut answers = answers.into_iter();
        let of_member = |requests: &Vec<_>| answers.by_ref().take(requests.len()).collect();
        let members = group.iter().map(of_member);
        members.map(|answers| (answers, flight.clone())).collect()
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

    /// Takes the writer lock, and notice of what ended without it.
    pub fn lock_to_lead(&self) -> MutexGuard<'_, Writer> {
        let mut writer = lock(&self.writer);
        self.settle_others(&mut writer);
        writer
    }

    /// Writes the superblock; the generation goes on even where that failed.
    pub fn write_superblock(&self, writer: &mut Writer) -> Result<()> {
        // It syncs: not beside another sync.
        let _one_at_a_time = lock(&self.syncing);
        self.health.check_sound()?;
        self.volume
            .write_superblock(&mut writer.superblock)
            .map_err(|error| self.health.unless_full(error))
    }

    /// Tells beside the device that what a call of `sync` was for is durable.
    pub fn mark_synced(&self) {
        // Under the lock: an earlier call must not write after a later one.
        let writer = lock(&self.writer);
        let place = (&*self.environment.file_system, &*self.path);
        let session = (writer.superblock.store, writer.superblock.epoch);
        if self.check_open().is_ok() {
            self.synced_mark
                .write(place, session, writer.synced_through);
        }
    }

    /// Changes the superblock and writes it; it is as before where that fails.
    pub fn change_superblock(
        &self,
        writer: &mut Writer,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        let before = writer.superblock;
        change(&mut writer.superblock);
        let written = self.write_superblock(writer);
        if written.is_err() {
            // A copy may have the generation.
            let generation = writer.superblock.generation;
            writer.superblock = Superblock {
                generation,
                ..before
            };
        }
        written
    }

    /// Gives this opening its epoch, durably, before its first entry: from then on
    /// the store is not clean.
    pub fn begin_session(&self, writer: &mut Writer) -> Result<()> {
        if writer.session_begun {
            return Ok(());
        }
        let last = writer.next_sequence - 1;
        self.change_superblock(writer, |superblock| {
            superblock.epoch += 1;
            superblock.clean = self.has_bug(SeededBug::StaleImage) && superblock.clean;
            superblock.describe(last, &read(&self.state));
        })?;
        writer.marked = last;
        writer.session_begun = true;
        Ok(())
    }

    /// Takes notice of a sync, which has made durable what was written when it began.
    fn settle_written(&self, writer: &mut Writer, written: Written) {
        writer.settle(written);
        self.synced.fetch_max(written.sequence, Ordering::AcqRel);
    }

    /// Makes everything written so far durable.
    pub fn sync_all(&self, writer: &mut Writer) -> Result<()> {
        self.settle_others(writer);
        if self.write_synced(writer)? {
            self.settle_written(writer, writer.written());
            self.collect_unpinned(writer);
            return Ok(());
        }
        self.flush(writer)?;
        if writer.unsynced && !self.has_bug(SeededBug::NoSync) {
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
            self.sync_members()?;
            self.keep_members(writer)?;
        }
        self.settle_written(writer, writer.written());
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
        let landed = self.land(flight)?;
        let durable = match self.has_bug(SeededBug::NoSync) {
            true => Some(landed),
            false => self.sync_landed(landed)?,
        };
        let Some(written) = durable else {
            return self.finish_beside_close(landed);
        };
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // The next group is being written: those who wait for this one need not wait
            // for that, unless a member may have been lost.
            Err(TryLockError::WouldBlock) if !self.volume.is_mirrored() => {
                self.synced.fetch_max(written.sequence, Ordering::AcqRel);
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
        self.settle_written(&mut writer, written);
        self.collect_unpinned(&mut writer);
        Ok(())
    }

    /// Makes a flight durable that was to be synced when a close had begun. The close either
    /// has had the writer lock, and synced everything, or waits for it.
    fn finish_beside_close(&self, landed: Written) -> Result<()> {
        let mut writer = lock(&self.writer);
        self.health.check_sound()?;
        if writer.synced_through < landed.sequence {
            self.sync_members()?;
            self.settle_written(&mut writer, landed);
        }
        Ok(())
    }
}
