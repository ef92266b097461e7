//! Entries on their way to the device: several writes under way at once, to every
//! member, while the next entries are encoded.
//!
//! What waits together is laid into one write as far as it lies together; a large
//! entry is a write of its own, started as soon as it is encoded and never copied.
//! Nothing counts before [`Core::flush`] has waited for all of it, and nothing is under
//! way when the writer lock is let go.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cambium_base::Result;
use cambium_io::{AlignedBuffer, WriteQueue, WriteRequest};

use crate::core::{Core, Writer, lock, read, write};
use crate::volume::{MemberState, buffer};

/// Entries of so many bytes are written alone: copying them would cost more than
/// another write.
const LARGE_BYTES: usize = 64 << 10;
/// So many bytes that wait are started before the rest of a group is encoded.
const START_BYTES: usize = 256 << 10;

/// Most bytes of buffers that are kept to be used again.
const SPARE_BYTES: usize = 16 << 20;

/// For syncs of several members; made when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct SyncQueue {
    queue: Option<Box<dyn WriteQueue>>,
}

/// An entry, encoded, and its first block.
pub(crate) type Encoded = (u32, Arc<AlignedBuffer>);

/// What is not on the device yet.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// Made when it is first needed.
    queue: Option<Box<dyn WriteQueue>>,
    /// Entries that no write was started for.
    waiting: Vec<Encoded>,
    waiting_bytes: usize,
    /// The member of each write under way, in the order of the queue.
    under_way: Vec<usize>,
    /// Buffers of large entries, to be used again: fresh memory costs a fault a page.
    spare: Vec<AlignedBuffer>,
}

impl Outgoing {
    /// Forgets entries that no write was started for.
    fn clear(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// Memory for an entry, with anything in it.
    pub fn buffer(&mut self, bytes: usize) -> AlignedBuffer {
        let fits = self.spare.iter().position(|spare| spare.len() == bytes);
        match fits {
            Some(at) => self.spare.swap_remove(at),
            None => buffer(bytes),
        }
    }

    /// Keeps the memory of what was written, if nobody reads it.
    fn recycle(&mut self, written: impl Iterator<Item = Arc<AlignedBuffer>>) {
        let mut kept: usize = self.spare.iter().map(|spare| spare.len()).sum();
        for bytes in written.filter(|bytes| bytes.len() >= LARGE_BYTES) {
            if kept + bytes.len() > SPARE_BYTES {
                self.spare.clear();
                kept = 0;
            }
            if let Ok(bytes) = Arc::try_unwrap(bytes) {
                kept += bytes.len();
                self.spare.push(bytes);
            }
        }
    }

    /// Adds entries.
    pub fn push(&mut self, entries: &[Encoded]) {
        self.waiting.extend_from_slice(entries);
        self.waiting_bytes += entries.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    }
}

impl Core {
    /// Starts writing, if enough waits for it to be worth a write.
    pub fn start_early(&self, writer: &mut Writer) -> Result<()> {
        if writer.outgoing.waiting_bytes < START_BYTES.min(self.tuning.coalesce_bytes) {
            return Ok(());
        }
        self.start(writer)
    }

    /// Starts writing everything that waits.
    fn start(&self, writer: &mut Writer) -> Result<()> {
        if writer.outgoing.waiting.is_empty() {
            return Ok(());
        }
        let mut files = Vec::with_capacity(self.volume.member_count());
        for member in 0..self.volume.member_count() {
            if self.volume.state(member) != MemberState::Lost {
                files.push((member, self.volume.file_of(member)?.clone()));
            }
        }
        let queue = match &mut writer.outgoing.queue {
            Some(queue) => queue,
            none => none.insert(self.write_queue()?),
        };
        // Nothing fails from here on: what is taken out is on its way.
        let mut entries = std::mem::take(&mut writer.outgoing.waiting);
        writer.outgoing.waiting_bytes = 0;
        entries.sort_unstable_by_key(|(block, _)| *block);
        writer.unsynced = true;
        writer.starts += 1;
        writer.stated = writer.stating;
        let mut rest = entries.as_slice();
        while !rest.is_empty() {
            let (run, others) = rest.split_at(self.adjacent(rest));
            let bytes = self.lay_together(run);
            for (member, file) in &files {
                queue.submit(WriteRequest {
                    file: file.clone(),
                    offset: self.volume.offset(run[0].0),
                    bytes: bytes.clone(),
                });
                writer.outgoing.under_way.push(*member);
            }
            rest = others;
        }
        Ok(())
    }

    fn write_queue(&self) -> Result<Box<dyn WriteQueue>> {
        let file_system = &self.environment.file_system;
        file_system.write_queue(self.tuning.read_queue)
    }

    /// How many of the first entries lie together and go into one write.
    fn adjacent(&self, entries: &[Encoded]) -> usize {
        let mut bytes = entries[0].1.len();
        let is_large = |entry: &Encoded| entry.1.len() >= LARGE_BYTES;
        let pairs = entries.windows(2);
        1 + pairs
            .take_while(|pair| {
                let end = self.volume.offset(pair[0].0) + pair[0].1.len() as u64;
                bytes += pair[1].1.len();
                end == self.volume.offset(pair[1].0)
                    && bytes <= self.tuning.coalesce_bytes
                    && !pair.iter().any(is_large)
            })
            .count()
    }

    /// One buffer of entries that lie together.
    fn lay_together(&self, run: &[Encoded]) -> Arc<AlignedBuffer> {
        let counters = &self.counters;
        let bytes: usize = run.iter().map(|(_, bytes)| bytes.len()).sum();
        counters.writes.fetch_add(1, Ordering::Relaxed);
        let entries = &counters.entries_written;
        entries.fetch_add(run.len() as u64, Ordering::Relaxed);
        let written = &counters.bytes_written;
        written.fetch_add(bytes as u64, Ordering::Relaxed);
        if let [(_, alone)] = run {
            return alone.clone();
        }
        let mut together = buffer(bytes);
        let mut at = 0;
        for (_, bytes) in run {
            together[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        Arc::new(together)
    }

    /// Hands all entries that wait to the operating system.
    pub fn flush(&self, writer: &mut Writer) -> Result<()> {
        if writer.pending_bytes == 0 {
            return Ok(());
        }
        let started = self.start(writer);
        let written = self.wait(writer);
        if let Err(error) = started.and(written) {
            // All of it once more, if there is a next time.
            writer.outgoing.clear();
            let pending = read(&self.pending);
            let entries = pending.iter().map(|(&block, bytes)| (block, bytes.clone()));
            writer.outgoing.push(&entries.collect::<Vec<_>>());
            return Err(self.unless_full(error));
        }
        self.keep_members(writer)?;
        let written = std::mem::take(&mut *write(&self.pending));
        writer.outgoing.recycle(written.into_values());
        writer.pending_bytes = 0;
        Ok(())
    }

    /// Waits for what is under way: what each member has answered.
    fn wait(&self, writer: &mut Writer) -> Result<()> {
        let Some(queue) = &mut writer.outgoing.queue else {
            return Ok(());
        };
        let answers = queue.wait_all();
        let members = std::mem::take(&mut writer.outgoing.under_way);
        let mut of_members: Vec<(usize, Result<()>)> = Vec::new();
        for (member, answer) in members.into_iter().zip(answers) {
            match of_members.iter_mut().find(|(known, _)| *known == member) {
                Some((_, before)) if before.is_ok() => *before = answer,
                Some(_) => {}
                None => of_members.push((member, answer)),
            }
        }
        if of_members.is_empty() {
            return Ok(());
        }
        self.volume.settle(of_members, false)
    }

    /// Makes what was written durable on every member. No two syncs are under way at
    /// once, and none begins after one has failed: the kernel tells of a failed write
    /// once, and whoever is told must not be followed by one who is not.
    pub fn sync_members(&self) -> Result<()> {
        let mut queue = lock(&self.syncing);
        self.health.check_sound()?;
        self.sync_all_at_once(&mut queue)
            .map_err(|error| self.poisoned(error))
    }

    /// Syncs every member, all at the same time.
    fn sync_all_at_once(&self, queue: &mut SyncQueue) -> Result<()> {
        if !self.volume.is_mirrored() {
            return self.volume.sync();
        }
        let mut members = Vec::new();
        let mut files = Vec::new();
        for member in 0..self.volume.member_count() {
            if self.volume.state(member) != MemberState::Lost {
                members.push(member);
                files.push(self.volume.file_of(member)?.clone());
            }
        }
        let queue = match &mut queue.queue {
            Some(queue) => queue,
            none => none.insert(self.write_queue()?),
        };
        let answers = queue.sync_all(&files);
        self.volume
            .settle(members.into_iter().zip(answers).collect(), false)
    }
}
