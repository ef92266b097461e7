//! Entries on their way to the device: several writes under way at once, to every
//! member, while the next entries are encoded.
//!
//! What waits together goes into one write as far as it lies together. Entries of a batch
//! are encoded side by side in one buffer to begin with; small ones of several are copied
//! into one, large ones are never copied: a write takes several buffers. So a write is
//! started when enough waits for it, not for each large entry: in space of a file that was
//! never written ([`crate::ahead`]) the file system does one write at a time, whatever its
//! length.
//! Nothing counts before [`Core::flush`] has waited for all of it. What is under way when
//! the writer lock is let go is a flight ([`crate::flights`]).

use std::ops::{Deref, Range};
use std::sync::Arc;

use cambium_base::Result;
use cambium_io::sync::atomic::Ordering;
use cambium_io::{AlignedBuffer, File, WriteQueue, WriteRequest};

use crate::core::{Core, Writer, lock, write};
use crate::flights::{Departed, Flight};
use crate::seeded_bug::SeededBug;
use crate::volume::buffer;
use crate::write::Written;

/// Pieces of so many bytes are not copied to others: a write takes them as they are.
pub(crate) const LARGE_BYTES: usize = 64 << 10;
/// So many bytes that wait are started before the rest of a group is encoded. No
/// buffer of several entries is longer.
pub(crate) const START_BYTES: usize = 256 << 10;
/// The same in space of a file that was never written: few writes, as each waits there for
/// the one before it.
const FRESH_START_BYTES: usize = 512 << 10;

/// So many writes are each done and synced at once; of more, the writes go ahead.
const MOST_SYNCED: usize = 16;

/// The state of the thread that syncs.
#[derive(Debug, Default)]
pub(crate) struct SyncQueue {
    /// For syncs of several members; made when it is first needed.
    queue: Option<Box<dyn WriteQueue>>,
    /// What the last sync of a flight made durable.
    through: Option<Written>,
}

impl SyncQueue {
    fn open(&mut self, core: &Core) -> Result<&mut Box<dyn WriteQueue>> {
        Ok(match &mut self.queue {
            Some(queue) => queue,
            none => none.insert(core.write_queue()?),
        })
    }
}

/// Entries that lie together, encoded in one buffer.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// The first block of the first of them.
    pub block: u32,
    /// How many there are.
    pub entries: u64,
    pub bytes: Arc<AlignedBuffer>,
}

/// An entry in such a buffer.
#[derive(Clone, Debug)]
pub(crate) struct PendingEntry {
    pub piece: Piece,
    pub range: Range<usize>,
}

impl Deref for PendingEntry {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.piece.bytes[self.range.clone()]
    }
}

/// What is not on the device yet.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// Made when it is first needed.
    queue: Option<Box<dyn WriteQueue>>,
    /// What no write was started for.
    waiting: Vec<Piece>,
    waiting_bytes: usize,
    /// The member of each write under way, in the order of the queue.
    under_way: Vec<usize>,
    /// What those writes carry.
    started: Vec<Piece>,
}

impl Outgoing {
    /// Forgets what no write was started for.
    fn clear(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// Bytes that no write was started for.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Adds entries to be written.
    pub fn push(&mut self, piece: Piece) {
        self.waiting_bytes += piece.bytes.len();
        self.waiting.push(piece);
    }
}

impl Core {
    /// Starts writing, if enough waits for it to be worth a write.
    pub fn start_early(&self, writer: &mut Writer) -> Result<()> {
        let enough = match writer.ahead.meets_fresh_space() {
            true => FRESH_START_BYTES,
            false => START_BYTES,
        };
        if writer.outgoing.waiting_bytes < enough.min(self.tuning.coalesce_bytes) {
            return Ok(());
        }
        self.start(writer)
    }

    /// Starts writing everything that waits.
    fn start(&self, writer: &mut Writer) -> Result<()> {
        if writer.outgoing.waiting.is_empty() {
            return Ok(());
        }
        let files = self.files_to_write();
        let queue = match &mut writer.outgoing.queue {
            Some(queue) => queue,
            none => none.insert(self.queue_of_flight()?),
        };
        // Nothing fails from here on: what is taken out is on its way.
        let mut pieces = std::mem::take(&mut writer.outgoing.waiting);
        writer.outgoing.waiting_bytes = 0;
        pieces.sort_unstable_by_key(|piece| piece.block);
        writer.unsynced = true;
        writer.starts += 1;
        writer.stated = writer.stating;
        let mut rest = pieces.as_slice();
        while !rest.is_empty() {
            let (run, others) = rest.split_at(self.adjacent(rest));
            let buffers = self.lay_together(run);
            for (member, file) in &files {
                queue.submit(WriteRequest {
                    file: file.clone(),
                    offset: self.volume.offset(run[0].block),
                    buffers: buffers.clone(),
                });
                writer.outgoing.under_way.push(*member);
            }
            rest = others;
        }
        writer.outgoing.started.append(&mut pieces);
        Ok(())
    }

    /// Starts all that waits, and lets it go: the writer lock need not be held until it is
    /// on the device.
    pub fn take_off(&self, writer: &mut Writer) -> Result<Arc<Departed>> {
        let started = self.start(writer);
        let queue = match writer.outgoing.queue.take() {
            Some(queue) => started.map(|()| queue),
            None => started.and_then(|()| self.queue_of_flight()),
        };
        let queue = queue.map_err(|error| {
            _ = self.wait(writer);
            self.health.poison(error)
        })?;
        writer.pending_bytes = 0;
        let flight = Flight {
            queue,
            members: std::mem::take(&mut writer.outgoing.under_way),
            pieces: std::mem::take(&mut writer.outgoing.started),
        };
        Ok(self.depart(flight, writer.written()))
    }

    fn queue_of_flight(&self) -> Result<Box<dyn WriteQueue>> {
        self.flights.queue().map_or_else(|| self.write_queue(), Ok)
    }

    /// The members that are written.
    fn files_to_write(&self) -> Vec<(usize, Arc<dyn File>)> {
        let there = self.volume.there();
        there.map(|(member, file)| (member, file.clone())).collect()
    }

    /// Writes and syncs all that waits at once, if those are few writes: no thread is
    /// woken for one member, and of several none waits for another. False if they are
    /// more, or another write is not synced yet.
    pub fn write_synced(&self, writer: &mut Writer) -> Result<bool> {
        let outgoing = &mut writer.outgoing;
        let synced = !writer.unsynced || self.has_bug(SeededBug::SyncedForOthers);
        let idle = outgoing.under_way.is_empty() && synced;
        let pieces = &mut outgoing.waiting;
        if !idle || pieces.is_empty() || self.has_bug(SeededBug::NoSync) {
            return Ok(false);
        }
        pieces.sort_unstable_by_key(|piece| piece.block);
        let mut runs = Vec::new();
        let mut rest = pieces.as_slice();
        while !rest.is_empty() && runs.len() <= MOST_SYNCED {
            let (run, others) = rest.split_at(self.adjacent(rest));
            runs.push(run);
            rest = others;
        }
        if runs.len() > MOST_SYNCED {
            return Ok(false);
        }
        let files = self.files_to_write();
        let mut syncing = lock(&self.syncing);
        self.health.check_sound()?;
        let queue = syncing.open(self)?;
        writer.unsynced = true;
        writer.starts += 1;
        writer.stated = writer.stating;
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        let writes: Vec<_> = runs
            .into_iter()
            .map(|run| (self.volume.offset(run[0].block), self.lay_together(run)))
            .collect();
        let requests = files.iter().flat_map(|(_, file)| {
            writes.iter().map(|(offset, buffers)| WriteRequest {
                file: file.clone(),
                offset: *offset,
                buffers: buffers.clone(),
            })
        });
        let answers = queue.write_synced(requests.collect());
        let members = files
            .iter()
            .flat_map(|(member, _)| vec![*member; writes.len()]);
        let outcome = self.volume.settle(by_member(members, answers), false);
        drop(syncing);
        outcome.map_err(|error| self.failed_write(error))?;
        self.keep_members(writer)?;
        writer.outgoing.clear();
        self.forget_written(writer);
        Ok(true)
    }

    fn write_queue(&self) -> Result<Box<dyn WriteQueue>> {
        let file_system = &self.environment.file_system;
        file_system.write_queue(self.tuning.read_queue)
    }

    /// How many of the first pieces lie together and go into one write.
    fn adjacent(&self, pieces: &[Piece]) -> usize {
        let mut bytes = pieces[0].bytes.len();
        let pairs = pieces.windows(2);
        1 + pairs
            .take_while(|pair| {
                let end = self.volume.offset(pair[0].block) + pair[0].bytes.len() as u64;
                bytes += pair[1].bytes.len();
                end == self.volume.offset(pair[1].block) && bytes <= self.tuning.coalesce_bytes
            })
            .count()
    }

    /// The buffers of a write of pieces that lie together: large ones as they are, small
    /// neighbours in one.
    fn lay_together(&self, run: &[Piece]) -> Vec<Arc<AlignedBuffer>> {
        let counters = &self.counters;
        let bytes: usize = run.iter().map(|piece| piece.bytes.len()).sum();
        counters.writes.fetch_add(1, Ordering::Relaxed);
        let entries: u64 = run.iter().map(|piece| piece.entries).sum();
        counters
            .entries_written
            .fetch_add(entries, Ordering::Relaxed);
        let written = &counters.bytes_written;
        written.fetch_add(bytes as u64, Ordering::Relaxed);
        let is_small = |piece: &Piece| piece.bytes.len() < LARGE_BYTES;
        run.chunk_by(|one, next| is_small(one) && is_small(next))
            .map(copied_together)
            .collect()
    }

    /// Hands all entries that wait to the operating system.
    pub fn flush(&self, writer: &mut Writer) -> Result<()> {
        self.land_all();
        self.health.check_sound()?;
        if writer.pending_bytes == 0 {
            return Ok(());
        }
        let started = self.start(writer);
        let written = self.wait(writer);
        let outcome = started.and(written);
        outcome.map_err(|error| self.failed_write(error))?;
        self.keep_members(writer)?;
        self.forget_written(writer);
        Ok(())
    }

    /// All of it is on the device: readers find it there.
    fn forget_written(&self, writer: &mut Writer) {
        writer.outgoing.started.clear();
        let written = std::mem::take(&mut *write(&self.pending));
        let buffers = written.into_values().map(|entry| entry.piece.bytes);
        self.flights.recycle(buffers, self.tuning.flight_bytes);
        writer.pending_bytes = 0;
    }

    /// Waits for what is under way: what each member has answered.
    fn wait(&self, writer: &mut Writer) -> Result<()> {
        let Some(queue) = &mut writer.outgoing.queue else {
            return Ok(());
        };
        let answers = queue.wait_all();
        let members = std::mem::take(&mut writer.outgoing.under_way);
        let of_members = by_member(members, answers);
        if of_members.is_empty() {
            return Ok(());
        }
        self.volume.settle(of_members, false)
    }

    /// Makes what was written durable on every member. No two syncs are under way at
    /// once, and none begins after one has failed: the kernel tells of a failed write
    /// once, and a sync that reports it must not be followed by one that does not.
    pub fn sync_members(&self) -> Result<()> {
        let mut queue = lock(&self.syncing);
        self.health.check_sound()?;
        self.sync_all_at_once(&mut queue)
            .map_err(|error| self.health.poison(error))
    }

    /// Makes a flight that has landed durable, with all that have landed by now; answers
    /// what is durable afterwards. Done already where a sync for a later one began in time.
    /// `None`, and nothing done, after a close has begun: the members may belong to another
    /// process by now.
    pub fn sync_landed(&self, flight: Written) -> Result<Option<Written>> {
        let mut queue = lock(&self.syncing);
        self.health.check_sound()?;
        if let Some(through) = queue.through.filter(|through| through.covers(flight)) {
            return Ok(Some(through));
        }
        if self.health.is_closed() && !self.has_bug(SeededBug::SyncsAfterClose) {
            return Ok(None);
        }
        let landed = self.flights.written().unwrap_or(flight);
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.sync_all_at_once(&mut queue)
            .map_err(|error| self.health.poison(error))?;
        queue.through = Some(landed);
        Ok(Some(landed))
    }

    /// Syncs every member, all at the same time.
    fn sync_all_at_once(&self, queue: &mut SyncQueue) -> Result<()> {
        if !self.volume.is_mirrored() {
            return self.volume.sync();
        }
        let (members, files): (Vec<_>, Vec<_>) = self.files_to_write().into_iter().unzip();
        let answers = queue.open(self)?.sync_all(&files);
        self.volume
            .settle(members.into_iter().zip(answers).collect(), false)
    }
}

/// One buffer of pieces that lie together.
fn copied_together(pieces: &[Piece]) -> Arc<AlignedBuffer> {
    if let [alone] = pieces {
        return alone.bytes.clone();
    }
    let mut together = buffer(pieces.iter().map(|piece| piece.bytes.len()).sum());
    let mut at = 0;
    for piece in pieces {
        together[at..at + piece.bytes.len()].copy_from_slice(&piece.bytes);
        at += piece.bytes.len();
    }
    Arc::new(together)
}

/// What each member has come to: its first failure, or success.
pub(crate) fn by_member(
    members: impl IntoIterator<Item = usize>,
    answers: Vec<Result<()>>,
) -> Vec<(usize, Result<()>)> {
    let mut of_members: Vec<(usize, Result<()>)> = Vec::new();
    for (member, answer) in members.into_iter().zip(answers) {
        match of_members.iter_mut().find(|(known, _)| *known == member) {
            Some((_, before)) if before.is_ok() => *before = answer,
            Some(_) => {}
            None => of_members.push((member, answer)),
        }
    }
    of_members
}
