//! The change log: the place of the entry of each recent write, in the order of the writes.
//!
//! A store made with `history=on` shows its changes to readers ([`crate::changes`]). Entries and
//! tombstones on the device are the log: nothing is written twice. What a reader needs must keep
//! its blocks:
//!
//! - A put is read from its own entry. The write that replaces the entry does not free it.
//! - A tombstone has no key. A delete is read from the entry that it deleted, which has the key.
//!
//! So the entry that write `s` replaced waits in the allocator until the changes through `s` are
//! *lost*, or through `s - 1` where `s` is a put. A tombstone stays longer than the entry that it
//! deleted ([`crate::stale`]), so that recovery finds it.
//!
//! ```text
//!   write     1 put a   2 put b   3 put a   4 delete b   5 put a
//!   log       lost      lost      a, of 3   b, of 2      a, of 5
//!   free                          a, of 1
//!   waiting                                 b, of 2      a, of 3
//! ```
//!
//! History is lost in whole batches, the oldest one first. Recovery derives the log from the
//! headers that it finds ([`crate::past`]), and a clean close writes it into the index image.

use std::collections::VecDeque;

use cambium_base::{Error, Extent, Result, SequenceNumber};

const DELETE: u32 = 1 << 31;
const FIRST: u32 = 1 << 30;

/// The place of a change, in 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoggedChange {
    block: u32,
    /// The length in blocks, and above it two flags. An entry has at most 4 GiB and 64 KiB.
    blocks_and_flags: u32,
}

impl LoggedChange {
    /// A change that is read from an extent: a put from its entry, a delete from the entry that
    /// it deleted.
    pub fn new(extent: Extent, is_delete: bool, begins_batch: bool) -> Self {
        let delete = if is_delete { DELETE } else { 0 };
        let first = if begins_batch { FIRST } else { 0 };
        LoggedChange {
            block: extent.block,
            blocks_and_flags: extent.blocks | delete | first,
        }
    }

    /// Where it is read from.
    pub fn extent(self) -> Extent {
        Extent {
            block: self.block,
            blocks: self.blocks_and_flags & !(DELETE | FIRST),
        }
    }

    pub fn is_delete(self) -> bool {
        self.blocks_and_flags & DELETE != 0
    }

    /// True for the first change of a batch.
    pub fn begins_batch(self) -> bool {
        self.blocks_and_flags & FIRST != 0
    }

    /// Blocks that the write took.
    fn blocks(self) -> u64 {
        match self.is_delete() {
            true => 1,
            false => u64::from(self.extent().blocks),
        }
    }

    /// Its bytes in the index image.
    pub fn encode(self) -> [u8; 8] {
        let bits = u64::from(self.block) | u64::from(self.blocks_and_flags) << 32;
        bits.to_le_bytes()
    }

    /// The change of 8 bytes; `None` if they are not one that lies before block `end`.
    pub fn decode(bytes: [u8; 8], end: u32) -> Option<Self> {
        let bits = u64::from_le_bytes(bytes);
        let change = LoggedChange {
            block: bits as u32,
            blocks_and_flags: (bits >> 32) as u32,
        };
        let extent = change.extent();
        (extent.blocks > 0 && extent.end() <= u64::from(end)).then_some(change)
    }
}

/// How much log is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLimits {
    /// Blocks of changes that no consumer needs.
    pub unneeded: u64,
    /// Blocks of all changes.
    pub all: u64,
}

/// The changes that can be read.
#[derive(Debug)]
pub(crate) struct ChangeLog {
    /// No change up to this write can be read: the last one of a batch.
    lost: u64,
    /// One for each later write.
    changes: VecDeque<LoggedChange>,
    /// Blocks that those writes took.
    blocks: u64,
    /// Consumers need all changes after this write: the last one of a batch, or a lost one. The
    /// highest number there is without consumers.
    needed_after: u64,
}

impl ChangeLog {
    /// A log of changes after a write.
    pub fn new(lost: u64, changes: impl IntoIterator<Item = LoggedChange>) -> Self {
        let changes: VecDeque<LoggedChange> = changes.into_iter().collect();
        ChangeLog {
            lost,
            blocks: changes.iter().map(|change| change.blocks()).sum(),
            changes,
            needed_after: u64::MAX,
        }
    }

    /// Adds the change of the next write.
    pub fn push(&mut self, change: LoggedChange) {
        self.blocks += change.blocks();
        self.changes.push_back(change);
    }

    /// No change up to this write can be read.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// How many changes can be read.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// All changes, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = LoggedChange> + '_ {
        self.changes.iter().copied()
    }

    /// The change of a write; `None` if it is lost, or not made yet.
    fn change(&self, sequence: u64) -> Option<LoggedChange> {
        let at = sequence.checked_sub(self.lost + 1)?;
        self.changes.get(usize::try_from(at).ok()?).copied()
    }

    /// Refuses a reader that needs changes that are lost.
    pub fn check_history(&self, after: u64) -> Result<()> {
        if after >= self.lost {
            return Ok(());
        }
        Err(Error::HistoryLost {
            oldest: SequenceNumber(self.lost),
        })
    }

    /// The write before the batch that write `after + 1` belongs to.
    pub fn batch_end_before(&self, after: u64) -> u64 {
        let mut at = after;
        while self
            .change(at.saturating_add(1))
            .is_some_and(|next| !next.begins_batch() && at > self.lost)
        {
            at -= 1;
        }
        at
    }

    /// Changes after a batch, up to the last one of another, each with its number: whole
    /// batches, as many as take so many blocks, and one at least.
    pub fn batches(&self, after: u64, through: u64, blocks: u64) -> Vec<(u64, LoggedChange)> {
        let mut found = Vec::new();
        let mut taken = 0;
        for sequence in after + 1..=through {
            let Some(change) = self.change(sequence) else {
                break;
            };
            if !found.is_empty() && taken >= blocks && change.begins_batch() {
                break;
            }
            taken += u64::from(change.extent().blocks);
            found.push((sequence, change));
        }
        found
    }

    /// Consumers need the changes after a write, and no earlier ones; `None` without consumers.
    pub fn need_after(&mut self, oldest: Option<SequenceNumber>) {
        self.needed_after = oldest.map_or(u64::MAX, |oldest| self.batch_end_before(oldest.0));
    }

    /// Keeps the changes after a write for one more consumer.
    ///
    /// # Errors
    /// `HistoryLost`.
    pub fn keep_after(&mut self, after: u64) -> Result<()> {
        self.check_history(after)?;
        self.needed_after = self.needed_after.min(self.batch_end_before(after));
        Ok(())
    }

    /// True if consumers keep changes.
    pub fn is_needed(&self) -> bool {
        self.needed_after != u64::MAX && !self.changes.is_empty()
    }

    /// The last write of which the replaced entry is not needed.
    pub fn releasable(&self) -> u64 {
        match self.changes.front() {
            Some(oldest) if !oldest.is_delete() => self.lost + 1,
            _ => self.lost,
        }
    }

    /// True if the oldest batch should be lost: there is more log than is kept, or more space
    /// waits to become free, and losing the batch frees some of it.
    pub fn is_beyond(&self, limits: LogLimits, waiting_blocks: u64, marked: u64) -> bool {
        let kept = match self.lost < self.needed_after {
            true => limits.unneeded.min(limits.all),
            false => limits.all,
        };
        let frees_space = waiting_blocks > kept && self.lost < marked;
        !self.changes.is_empty() && (self.blocks > kept || frees_space)
    }

    /// Loses the oldest batch.
    pub fn drop_oldest(&mut self) {
        loop {
            let Some(oldest) = self.changes.pop_front() else {
                return;
            };
            self.lost += 1;
            self.blocks -= oldest.blocks();
            if self.changes.front().is_none_or(|next| next.begins_batch()) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that cannot go on has failed
    use super::*;

    fn put(block: u32, begins_batch: bool) -> LoggedChange {
        LoggedChange::new(Extent { block, blocks: 2 }, false, begins_batch)
    }

    /// Batches 1, 2 to 4, 5.
    fn log() -> ChangeLog {
        let first = [true, true, false, false, true];
        let changes = (10..).zip(first).map(|(block, first)| put(block, first));
        ChangeLog::new(0, changes)
    }

    #[test]
    fn batches_are_read_and_lost_whole() {
        let mut log = log();
        let read = |log: &ChangeLog, after, blocks| {
            let found = log.batches(after, 5, blocks);
            found.iter().map(|(at, _)| *at).collect::<Vec<u64>>()
        };
        assert_eq!(read(&log, 0, 3), [1, 2, 3, 4]);
        assert_eq!(read(&log, 1, 0), [2, 3, 4]);
        let ends: Vec<u64> = (0..=5).map(|after| log.batch_end_before(after)).collect();
        assert_eq!(ends, [0, 1, 1, 1, 4, 5]);
        log.drop_oldest();
        assert_eq!((log.lost(), log.releasable()), (1, 2));
        assert!(log.check_history(1).is_ok() && log.check_history(0).is_err());
        log.drop_oldest();
        assert_eq!((log.lost(), log.len()), (4, 1));
        log.drop_oldest();
        assert_eq!((log.lost(), log.releasable(), log.blocks), (5, 5, 0));
    }

    #[test]
    fn consumers_keep_changes_up_to_the_limit() {
        let mut log = log();
        let limits = LogLimits {
            unneeded: 0,
            all: 9,
        };
        // Of ten blocks nine may stay.
        log.keep_after(0).unwrap();
        assert!(log.is_beyond(limits, 0, 0));
        log.drop_oldest();
        assert!(!log.is_beyond(limits, 0, 0));
        assert!(log.is_beyond(limits, 10, 5), "space waits");
        assert!(!log.is_beyond(limits, 10, 1), "it would not be freed");
        assert!(log.keep_after(0).is_err());
        // A consumer within a batch needs the whole of it.
        log.need_after(Some(SequenceNumber(3)));
        assert!(!log.is_beyond(limits, 0, 0));
        log.need_after(None);
        assert!(log.is_beyond(limits, 0, 0));
    }

    #[test]
    fn a_delete_keeps_the_entry_that_it_deleted() {
        let extent = Extent {
            block: 7,
            blocks: 30,
        };
        let delete = LoggedChange::new(extent, true, true);
        let log = ChangeLog::new(8, [delete]);
        assert_eq!((log.releasable(), log.blocks), (8, 1));
        assert_eq!(LoggedChange::decode(delete.encode(), 37), Some(delete));
        assert_eq!(LoggedChange::decode(delete.encode(), 36), None);
        assert_eq!(delete.extent(), extent);
    }
}
