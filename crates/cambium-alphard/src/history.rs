//! History: how much of the change log stays for readers of changes, and their consumers.
//!
//! The store's folder holds the positions of consumers. Changes that a consumer has not read stay
//! until they take more than `history_bytes`, counted in two ways: the blocks that the changes
//! themselves took, and the blocks of replaced entries that wait to become free. Of changes that
//! no consumer needs, a sixteenth of the store's space stays, and at most 64 MiB. They let a reader
//! without a consumer follow at a distance. Such changes go when a write finds no other space, and
//! with a compaction.
//!
//! The log loses a change before the allocator gives the change's blocks out again. A reader looks
//! at the log again after each read: if its changes are not lost, it has read what was written.

use std::sync::Arc;

use cambium_api::{ChangeFeed, ChangeOptions, CheckReport, Durability, Statistics, WriteBatch};
use cambium_base::{Error, Result, SequenceNumber};
use cambium_io::sync::atomic::Ordering;
use cambium_storage::consumers::{CONSUMERS_NAME, Consumers};

use crate::change_log::LogLimits;
use crate::changes::LogFeed;
use crate::core::{Core, Writer, lock, read, write};
use crate::seeded_bug::SeededBug;
use crate::write::WriteRequest;

/// Most bytes of changes that are kept without a consumer.
const RECENT_BYTES: u64 = 64 << 20;
/// The part of the store's space that those may take.
const RECENT_SHARE: u64 = 16;

impl Core {
    /// Reads the list of consumers, and keeps what they need from now on. Does nothing in a store
    /// without history.
    pub fn attach_consumers(&self) -> Result<()> {
        let superblock = lock(&self.writer).superblock;
        if superblock.history_lost.is_none() {
            return Ok(());
        }
        let file_system = &*self.environment.file_system;
        let consumers = Consumers::read(file_system, &self.path, superblock.store)?;
        self.set_needed(consumers.oldest());
        _ = self.consumers.set(consumers);
        Ok(())
    }

    /// The same in a repair, which removes a damaged list; answers the damage.
    pub fn mend_consumers(&self) -> Result<Option<Error>> {
        match self.attach_consumers() {
            Err(damage) if damage.is_corruption() => {
                let file_system = &*self.environment.file_system;
                file_system.remove(&self.path.join(CONSUMERS_NAME))?;
                Ok(Some(damage))
            }
            attached => attached.map(|()| None),
        }
    }

    fn set_needed(&self, oldest: Option<SequenceNumber>) {
        if let Some(log) = &mut write(&self.state).log {
            log.need_after(oldest);
        }
    }

    /// Blocks of changes that are kept without a consumer.
    pub fn recent_blocks(&self, writer: &Writer) -> u64 {
        let share = u64::from(writer.superblock.total_blocks) / RECENT_SHARE;
        share.min(RECENT_BYTES / u64::from(self.block_bytes))
    }

    /// Frees what writes up to `safe` replaced, as far as no reader needs it; loses changes that
    /// are not kept. Does nothing before the opening has its epoch: until then the index image of
    /// the last close counts, and says where each change lies.
    pub fn release_history(&self, writer: &mut Writer, safe: u64, recent_blocks: u64) {
        let consumers_count = !self.has_bug(SeededBug::HistoryDroppedEarly);
        let all = self.tuning.history_bytes / u64::from(self.block_bytes);
        let limits = LogLimits {
            unneeded: recent_blocks,
            all: if consumers_count { all } else { 0 },
        };
        let mut state = write(&self.state);
        let Some(log) = state.log.as_mut().filter(|_| writer.session_begun) else {
            return;
        };
        loop {
            let releasable = match self.has_bug(SeededBug::HistoryReused) {
                true => safe,
                false => safe.min(log.releasable()),
            };
            writer.release(releasable);
            if !log.is_beyond(limits, writer.allocator.waiting_blocks(), safe) {
                return;
            }
            log.drop_oldest();
        }
    }

    /// Refuses a reader that needs changes that are lost.
    pub fn check_history(&self, after: u64) -> Result<()> {
        let state = read(&self.state);
        let log = state.log.as_ref();
        log.map_or(Ok(()), |log| log.check_history(after))
    }

    /// Refuses numbers that no write has yet.
    pub fn check_given_out(&self, number: SequenceNumber) -> Result<()> {
        let newest = read(&self.state).visible;
        if number.0 <= newest {
            return Ok(());
        }
        Err(Error::InvalidArgument(format!(
            "sequence number {number}: the newest of this store is {newest}"
        )))
    }

    /// Makes, moves or (`None`) takes away a consumer.
    pub fn move_consumer(
        self: &Arc<Self>,
        consumers: &Consumers,
        name: &str,
        to: Option<SequenceNumber>,
    ) -> Result<()> {
        self.check_writable()?;
        if let Some(to) = to {
            self.check_given_out(to)?;
            if to.0 > self.synced.load(Ordering::Acquire) {
                let nothing = WriteRequest::new(WriteBatch::new(), Durability::Synced)?;
                self.write_request(nothing)?;
            }
        }
        // A close waits for the end: afterwards another process may own the folder.
        let _one_at_a_time = lock(&self.maintenance);
        self.check_writable()?;
        if let (Some(to), Some(log)) = (to, &mut write(&self.state).log) {
            // Kept while the list is written.
            log.keep_after(to.0)?;
        }
        let moved = consumers.set(&*self.environment.file_system, name, to);
        self.set_needed(consumers.oldest());
        if let Some(task) = self.background.get() {
            task.notify();
        }
        moved
    }

    /// Reads the changes that are kept for consumers, and reports damage.
    pub fn check_kept_changes(self: &Arc<Self>, report: &mut CheckReport) -> Result<()> {
        let Some(oldest) = self.consumers.get().and_then(Consumers::oldest) else {
            return Ok(());
        };
        let feed = LogFeed::new(self, oldest, ChangeOptions::default());
        let read = feed.and_then(|mut feed| {
            while feed.next()?.is_some() {}
            Ok(())
        });
        match read {
            // The consumer begins again with a snapshot.
            Ok(()) | Err(Error::HistoryLost { .. } | Error::InvalidArgument(_)) => Ok(()),
            Err(damage) => report.take(damage),
        }
    }

    /// Adds what history takes.
    pub fn history_statistics(&self, writer: &Writer, statistics: &mut Statistics) {
        let state = read(&self.state);
        let Some(log) = &state.log else {
            return;
        };
        statistics.bytes(
            "history_bytes",
            writer.allocator.waiting_blocks() * u64::from(self.block_bytes),
            "replaced entries that stay for readers of changes, or wait to be known as durable",
        );
        statistics.count(
            "oldest_change",
            log.lost(),
            "sequence number after which the log has every change",
        );
    }
}
