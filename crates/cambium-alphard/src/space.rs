//! Space: finding it, taking more of the device into use, and when what is obsolete
//! becomes free.
//!
//! An extent that became obsolete is free again only when a durable entry, or the
//! superblock, *says* that its replacement is durable ([`Writer::marked`]): recovery
//! believes gap-free numbers above what is said, and a gap where a freed extent was
//! reused would cut synced writes off. In a store with history the changes up to the replacement
//! must be lost as well ([`crate::change_log`]).

use cambium_base::{Error, Extent, Result};

use crate::change_log::ChangeLog;
use crate::core::{Core, Writer, lock, read};
use crate::place::Place;
use crate::seeded_bug::SeededBug;

/// One block in so many is reserved for batches that replace as many blocks as their values
/// take: deletes, also beside a counter that is written over. So a full store can be emptied.
const BLOCKS_A_RESERVED_ONE: u32 = 256;

/// So many blocks are left to cleaning even as a last resort.
const LAST_RESORT: u64 = 4;

/// The use of space that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// New entries.
    Add,
    /// Entries that replace as many blocks, and deletes.
    Replace,
    /// The same, where cleaning gives nothing more back.
    LastResort,
    /// Cleaning.
    Move,
}

impl Writer {
    /// No reader needs an entry since a write: blocks that no other one is in become free once
    /// that is durable.
    pub fn lose(&mut self, place: Place, sequence: u64) {
        if let Some((extent, since)) = self.packs.lose(place, sequence) {
            if place.number().is_some() {
                self.stale.keep_oldest(extent.block);
            }
            self.allocator.free_after(extent, since);
        }
    }

    /// Frees what writes up to `safe` replaced.
    pub fn release(&mut self, safe: u64) {
        let discards = &mut self.discards;
        self.allocator
            .release_each(safe, |extent| discards.add(extent));
    }
}

impl Core {
    /// Gives back what snapshots have let go.
    pub fn collect_unpinned(&self, writer: &mut Writer) {
        let freed = std::mem::take(&mut *lock(&self.unpinned));
        for (sequence, place) in freed {
            writer.lose(place, sequence);
        }
        self.release(writer);
    }

    /// Frees what recovery can do without, and readers of changes.
    pub fn release(&self, writer: &mut Writer) {
        self.release_beyond(writer, self.recent_blocks(writer));
    }

    /// The same; of changes that no consumer needs, so many blocks are kept.
    pub fn release_beyond(&self, writer: &mut Writer, recent_blocks: u64) {
        let safe = if self.has_bug(SeededBug::FreedTooEarly) {
            u64::MAX
        } else if self.has_bug(SeededBug::ReleasedUnmarked) {
            writer.synced_through
        } else {
            writer.marked
        };
        if writer.superblock.history_lost.is_some() {
            self.release_history(writer, safe, recent_blocks);
        } else {
            writer.release(safe);
        }
        if writer.discards.is_due(self.block_bytes) {
            if let Some(task) = self.background.get() {
                task.notify();
            }
        }
    }

    /// One extent; takes more of the device into use, or waits for what was freed
    /// to be free, where it must.
    pub fn find_space(
        &self,
        writer: &mut Writer,
        blocks: u32,
        behind: Option<Extent>,
        purpose: Purpose,
    ) -> Result<Extent> {
        let mut settled = false;
        loop {
            let kept = self.reserved(writer, purpose);
            let enough = writer.allocator.free_blocks() >= u64::from(blocks) + kept;
            if enough {
                let adjacent =
                    behind.and_then(|behind| writer.allocator.alloc_adjacent(behind, blocks));
                let found = adjacent.or_else(|| writer.allocator.alloc(blocks));
                if let Some(found) = found {
                    writer.ahead.gave(found);
                    return Ok(found);
                }
            }
            if self.extend(writer, blocks)? {
                continue;
            }
            if settled || writer.allocator.waiting_blocks() == 0 {
                return Err(self.no_space(writer, blocks));
            }
            settled = true;
            self.settle(writer)?;
            self.release_beyond(writer, 0);
        }
    }

    /// Blocks that a purpose leaves free, of those in use and those that are still to be taken
    /// into use.
    fn reserved(&self, writer: &Writer, purpose: Purpose) -> u64 {
        let superblock = &writer.superblock;
        let (spare, workspace) = writer.packs.spare_blocks(superblock.total_blocks.into());
        let kept = match purpose {
            Purpose::Move => 0,
            Purpose::LastResort => workspace.min(LAST_RESORT),
            Purpose::Replace => workspace,
            Purpose::Add => {
                let reserved = u64::from((superblock.total_blocks / BLOCKS_A_RESERVED_ONE).max(4));
                // Deletes that have taken their share need it no more.
                reserved.saturating_sub(writer.tombstones.len() as u64) + spare + workspace
            }
        };
        let unused = superblock.total_blocks - writer.allocator.limit();
        kept.saturating_sub(unused.into())
    }

    fn no_space(&self, writer: &Writer, blocks: u32) -> Error {
        let needed = u64::from(blocks) * u64::from(self.block_bytes);
        let allocator = &writer.allocator;
        let free = allocator.free_blocks() * u64::from(self.block_bytes);
        let held = allocator.waiting_blocks() * u64::from(self.block_bytes);
        let remedy = match read(&self.state)
            .log
            .as_ref()
            .is_some_and(ChangeLog::is_needed)
        {
            true => "let consumers of changes read on, or open with less history_bytes",
            false => "delete something, close snapshots, or make a larger store",
        };
        Error::NoSpace {
            path: self.volume.path(),
            what: format!(
                "an entry takes {needed} bytes in one piece; {free} bytes are free in all, {held} wait to become free: {remedy}"
            ),
        }
    }

    /// Takes more of the device into use, durably, before anything lies there.
    /// False if there is no more.
    fn extend(&self, writer: &mut Writer, blocks: u32) -> Result<bool> {
        let total = writer.superblock.total_blocks;
        let limit = writer.allocator.limit();
        if limit == total {
            return Ok(false);
        }
        let raised = self.next_limit(writer, blocks);
        self.wait_for_zeros();
        match self.has_bug(SeededBug::HighWaterLate) {
            true => writer.superblock.high_water = raised,
            false => self.change_superblock(writer, |superblock| superblock.high_water = raised)?,
        }
        writer.allocator.raise_limit(raised);
        writer.ahead.raised();
        Ok(true)
    }

    /// The high water after the next step, which has room for `blocks` at least.
    pub fn next_limit(&self, writer: &Writer, blocks: u32) -> u32 {
        let (limit, unit) = (writer.allocator.limit(), u64::from(self.block_bytes));
        let used = u64::from(limit) * unit;
        let step = writer.ahead.step_bytes(used, self.tuning.extend_bytes) / unit;
        let wanted = u64::from(limit) + step.max(1).max(blocks.into());
        wanted.min(writer.superblock.total_blocks.into()) as u32
    }

    /// Makes everything durable, and says so in the superblock: all that is
    /// obsolete now becomes free.
    pub fn settle(&self, writer: &mut Writer) -> Result<()> {
        self.sync_all(writer)?;
        if writer.marked < writer.synced_through {
            let through = writer.synced_through;
            self.change_superblock(writer, |superblock| {
                superblock.describe(through, &read(&self.state));
            })?;
            writer.marked = writer.synced_through;
        }
        self.collect_unpinned(writer);
        Ok(())
    }

    /// Extends the store to `size` bytes, durably; of a device, to no more than it has.
    pub fn grow(&self, writer: &mut Writer, size: u64) -> Result<()> {
        let unit = u64::from(self.block_bytes);
        let blocks = u32::try_from(size / unit).unwrap_or(u32::MAX);
        let total = writer.superblock.total_blocks;
        if blocks < total || blocks == u32::MAX {
            return Err(Error::InvalidArgument(format!(
                "size={size}: a store is extended only, from {} bytes to fewer than 2^32 blocks of {unit}",
                u64::from(total) * unit
            )));
        }
        self.begin_session(writer)?;
        self.volume
            .extend(u64::from(blocks) * unit, writer.superblock.filled)
            .map_err(|error| self.health.unless_full(error))?;
        // Before the superblock speaks of it.
        self.sync_members()?;
        self.keep_members(writer)?;
        self.change_superblock(writer, |superblock| superblock.total_blocks = blocks)
    }
}
