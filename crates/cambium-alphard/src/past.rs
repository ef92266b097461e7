//! The change log after a crash, derived from the headers that the scan found.
//!
//! No number on the device says how far history reaches back: it reaches as far as the entries
//! are there. From the last write that recovery keeps, back to the first batch of which something
//! is missing:
//!
//! - a put needs its own entry. One that was replaced must match its checksum, since another
//!   entry may have come to some of its blocks;
//! - a delete needs its tombstone, and an older entry of the same key, for the key.
//!
//! So an entry that was given back, and that nothing was written over, becomes history again. That
//! does no harm. Entries that consumers need were not given back, so all of them are found.
//!
//! After a repair that lost entries the superblock says where history begins.

use std::collections::BTreeSet;

use crate::change_log::{ChangeLog, LoggedChange};
use crate::options::Tuning;
use crate::recovery::Recovered;
use crate::scan::{Found, Scan};
use crate::seeded_bug::SeededBug;

/// A write that the scan found, for the change log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundChange {
    sequence: u64,
    change: LoggedChange,
    /// The write that made the entry obsolete, which the change is read from; `None` if the
    /// entry is live.
    obsolete_at: Option<u64>,
    /// Whether that entry matches its checksum, where the scan has looked.
    sound: Option<bool>,
}

impl FoundChange {
    /// The change of a write: `newer` and `older` are the next entries of the same key that were
    /// found. `None` for a delete without an entry that it deleted.
    pub fn of(found: &Found, newer: Option<&Found>, older: Option<&Found>) -> Option<Self> {
        let begins_batch = found.begins_batch();
        let (entry, obsolete_at) = match found.is_tombstone() {
            true => {
                let deleted = older.filter(|older| !older.is_tombstone())?;
                (deleted, Some(found.sequence))
            }
            false => (found, newer.map(|newer| newer.sequence)),
        };
        Some(FoundChange {
            sequence: found.sequence,
            change: LoggedChange::new(entry.place().extent(), found.is_tombstone(), begins_batch),
            obsolete_at,
            sound: entry.sound(),
        })
    }
}

impl Scan<'_> {
    /// Changes up to this write are not looked for; `None` in a store without history.
    pub fn oldest_history(&self, cut: u64, tuning: &Tuning) -> Option<u64> {
        let lost = self.superblock.history_lost?;
        // Each change took a block at least.
        let most = tuning.history_bytes / u64::from(self.volume.block_bytes);
        Some(lost.max(cut.saturating_sub(most)))
    }

    /// Makes the change log of what was found, and takes the entries that it needs out of free
    /// space.
    pub fn derive_log(
        &self,
        recovered: &mut Recovered,
        mut found: Vec<FoundChange>,
        tuning: &Tuning,
    ) -> ChangeLog {
        let believed = tuning.seeded_bug.is(SeededBug::HistoryUnverified);
        found.sort_unstable_by_key(|found| found.sequence);
        let mut lost = recovered.sequence;
        let mut changes = Vec::new();
        let mut taken = BTreeSet::new();
        for found in found.into_iter().rev() {
            if found.sequence != lost || !(believed || self.is_there(&found)) {
                break;
            }
            if let Some(sequence) = found.obsolete_at {
                let extent = found.change.extent();
                // A deleted entry may be met twice: with its delete and as a put.
                if taken.insert(extent.block) {
                    if !recovered.allocator.take(extent) {
                        break;
                    }
                    recovered.allocator.free_after(extent, sequence);
                }
            }
            changes.push(found.change);
            lost -= 1;
        }
        // The batch of which a part is missing.
        while changes.last().is_some_and(|change| !change.begins_batch()) {
            changes.pop();
            lost += 1;
        }
        ChangeLog::new(lost, changes.into_iter().rev())
    }

    /// True if the entry that a change is read from is there. History that cannot be read is
    /// lost, and nothing else is.
    fn is_there(&self, found: &FoundChange) -> bool {
        let read = || self.body_is_sound(found.change.extent()).unwrap_or(false);
        found.obsolete_at.is_none() || found.sound.unwrap_or_else(read)
    }
}
