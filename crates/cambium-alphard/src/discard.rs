//! Telling the device, or the file system, which blocks are free.
//!
//! With `discard_bytes` above 0 the extents that became free are remembered here.
//! When so many bytes have come together, a step takes those that are still free
//! out of the allocator, so that no writer uses them meanwhile, discards them,
//! syncs, and gives them back.
//!
//! - *When*: an extent is free only when what replaced it is durable, and the device
//!   itself says so ([`crate::space`]). Nothing else is ever discarded.
//! - *A discard erases nothing.* Afterwards a block may read as zeros or as it did
//!   before. A stale header there still counts as one, and holds its tombstone, until
//!   zeros were written over it or an entry was.
//! - *The sync* comes before the blocks can be written again: a discard that is not
//!   durable yet must not come after what is written later.
//! - *A failure* says nothing of the entries. Discarding ends then until the store
//!   is opened again; nothing is poisoned.

use cambium_base::{Extent, Result};
use cambium_io::StepOutcome;
use cambium_io::sync::atomic::Ordering;

use crate::core::{Core, Writer, lock};

/// Ranges are cut to whole units of this: file systems take and give space in them.
const UNIT_BYTES: u64 = 4096;
/// Extents of one step.
const MOST_A_STEP: usize = 1024;
/// Extents remembered; beyond, the newest are not discarded, and lose nothing but
/// that.
const MOST_REMEMBERED: usize = 1 << 16;

/// Extents that became free and are not discarded yet.
#[derive(Debug, Default)]
pub(crate) struct Discards {
    /// 0 where nothing is discarded.
    threshold_bytes: u64,
    waiting: Vec<Extent>,
    waiting_blocks: u64,
}

impl Discards {
    /// For a store that discards when so many bytes wait; 0 is never.
    pub fn new(threshold_bytes: u64) -> Self {
        Discards {
            threshold_bytes,
            ..Discards::default()
        }
    }

    /// An extent became free.
    pub fn add(&mut self, extent: Extent) {
        if self.threshold_bytes == 0 || self.waiting.len() == MOST_REMEMBERED {
            return;
        }
        self.waiting.push(extent);
        self.waiting_blocks += u64::from(extent.blocks);
    }

    /// True if enough wait.
    pub fn is_due(&self, block_bytes: u32) -> bool {
        let bytes = self.waiting_blocks * u64::from(block_bytes);
        bytes > 0 && bytes >= self.threshold_bytes
    }

    /// No more until the store is opened again.
    fn end(&mut self) {
        *self = Discards::default();
    }
}

impl Core {
    /// Discards some of what waits, if it is enough, or all must go.
    pub(crate) fn discard_some(&self, all: bool) -> Result<StepOutcome> {
        let chosen = {
            let mut writer = lock(&self.writer);
            let discards = &writer.discards;
            if discards.waiting.is_empty() || !(all || discards.is_due(self.block_bytes)) {
                return Ok(StepOutcome::Idle);
            }
            take_free(&mut writer)
        };
        let outcome = self.discard_runs(&chosen);
        let mut writer = lock(&self.writer);
        for &extent in &chosen {
            writer.allocator.free(extent);
        }
        match outcome? {
            true => Ok(StepOutcome::Again),
            false => {
                writer.discards.end();
                Ok(StepOutcome::Idle)
            }
        }
    }

    /// Discards and syncs; false if it cannot be done here.
    fn discard_runs(&self, extents: &[Extent]) -> Result<bool> {
        let unit = u64::from(self.block_bytes);
        let mut discarded = 0;
        for run in runs(extents) {
            let start = (u64::from(run.block) * unit).next_multiple_of(UNIT_BYTES);
            let end = run.end() * unit / UNIT_BYTES * UNIT_BYTES;
            if start >= end {
                continue;
            }
            if !self.volume.discard(start, end - start) {
                return Ok(false);
            }
            discarded += end - start;
        }
        if discarded > 0 {
            self.sync_members()?;
            let counters = &self.counters;
            counters.discarded.fetch_add(discarded, Ordering::Relaxed);
            counters.syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(true)
    }
}

/// Takes those of the oldest that wait that are still free, in order of place.
fn take_free(writer: &mut Writer) -> Vec<Extent> {
    let count = writer.discards.waiting.len().min(MOST_A_STEP);
    let mut chosen: Vec<Extent> = writer.discards.waiting.drain(..count).collect();
    let blocks: u64 = chosen.iter().map(|extent| u64::from(extent.blocks)).sum();
    writer.discards.waiting_blocks -= blocks;
    chosen.sort_unstable();
    chosen.retain(|&extent| writer.allocator.take(extent));
    chosen
}

/// Neighbours as one; the extents are in order and apart.
fn runs(extents: &[Extent]) -> impl Iterator<Item = Extent> + '_ {
    extents
        .chunk_by(|one, next| one.end() == u64::from(next.block))
        .map(|run| Extent {
            block: run[0].block,
            blocks: run.iter().map(|extent| extent.blocks).sum(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(block: u32, blocks: u32) -> Extent {
        Extent { block, blocks }
    }

    #[test]
    fn neighbours_are_discarded_as_one() {
        let extents = [extent(4, 2), extent(6, 1), extent(8, 3), extent(11, 1)];
        let found: Vec<Extent> = runs(&extents).collect();
        assert_eq!(found, [extent(4, 3), extent(8, 4)]);
    }

    #[test]
    fn enough_must_wait_and_nothing_does_where_it_is_off() {
        let mut discards = Discards::new(4096);
        discards.add(extent(1, 7));
        assert!(!discards.is_due(512));
        discards.add(extent(9, 1));
        assert!(discards.is_due(512));
        discards.end();
        discards.add(extent(1, 70));
        assert!(!discards.is_due(512) && discards.waiting.is_empty());
    }
}
