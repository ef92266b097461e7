//! Headers on the device that count no more, and how long tombstones must stay.
//!
//! An extent that is freed keeps its header until something is written over it.
//! Recovery would find it: harmless as long as something newer of its key is there
//! too, which for a deleted key is the tombstone. So a tombstone may go only when
//! no header is left that was made obsolete up to it. (The published design erases
//! the newest header of a deleted key and forgets the older ones: after a crash
//! they come back.)

use std::collections::BTreeSet;
use std::ops::Bound;

use cambium_base::Extent;

/// The list of stale headers, ordered by the write that made each obsolete.
#[derive(Debug, Default)]
pub(crate) struct StaleHeaders {
    by_sequence: BTreeSet<(u64, u32)>,
    /// The same by blocks. A pack has a header for all its entries, which became obsolete one
    /// after another.
    by_block: BTreeSet<(u32, u64)>,
    /// Overwritten by a write that is not durable yet: that write, and the header.
    overwritten: BTreeSet<(u64, u64, u32)>,
}

/// All at once: many times as fast as one by one.
impl FromIterator<(u64, u32)> for StaleHeaders {
    fn from_iter<T: IntoIterator<Item = (u64, u32)>>(headers: T) -> Self {
        let mut headers: Vec<(u64, u32)> = headers.into_iter().collect();
        let mut by_block: Vec<(u32, u64)> = headers
            .iter()
            .map(|&(sequence, block)| (block, sequence))
            .collect();
        headers.sort_unstable();
        by_block.sort_unstable();
        StaleHeaders {
            by_sequence: headers.into_iter().collect(),
            by_block: by_block.into_iter().collect(),
            overwritten: BTreeSet::new(),
        }
    }
}

impl StaleHeaders {
    /// The header at `block` was made obsolete by write `sequence`.
    pub fn add(&mut self, sequence: u64, block: u32) {
        self.by_sequence.insert((sequence, block));
        self.by_block.insert((block, sequence));
    }

    /// Write `sequence` goes over an extent: what was stale there is gone once
    /// that write is durable.
    pub fn cover(&mut self, extent: Extent, sequence: u64) {
        let end = extent.end().min(u64::from(u32::MAX)) as u32;
        let covered: Vec<(u32, u64)> = self
            .by_block
            .range((extent.block, 0)..(end, 0))
            .copied()
            .collect();
        for (block, freed) in covered {
            self.by_block.remove(&(block, freed));
            self.overwritten.insert((sequence, freed, block));
        }
    }

    /// Every write up to `sequence` is durable.
    pub fn settle(&mut self, sequence: u64) {
        while let Some(&(by, freed, block)) = self.overwritten.first() {
            if by > sequence {
                break;
            }
            self.overwritten.pop_first();
            self.by_sequence.remove(&(freed, block));
        }
    }

    /// Keeps the note of the oldest write at a block, and forgets the others: the blocks of the
    /// pack there are free, and one write of zeros erases its header.
    pub fn keep_oldest(&mut self, block: u32) {
        let all = self.by_block.range((block, 0)..=(block, u64::MAX));
        let others: Vec<u64> = all.skip(1).map(|(_, sequence)| *sequence).collect();
        for sequence in others {
            self.by_block.remove(&(block, sequence));
            self.by_sequence.remove(&(sequence, block));
        }
    }

    /// True if there is one at a block that nothing was written over.
    pub fn is_at(&self, block: u32) -> bool {
        let all = (block, 0)..=(block, u64::MAX);
        self.by_block.range(all).next().is_some()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_sequence.len()
    }

    /// The write that made the oldest one obsolete.
    pub fn oldest(&self) -> Option<u64> {
        self.by_sequence.first().map(|(sequence, _)| *sequence)
    }

    /// The oldest ones made obsolete up to a write, that nothing was written over; those
    /// behind one, if there is one.
    pub fn between(
        &self,
        behind: Option<(u64, u32)>,
        sequence: u64,
    ) -> impl Iterator<Item = (u64, u32)> + '_ {
        let last = (sequence, u32::MAX);
        let behind = behind.map(|behind| behind.min(last));
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_sequence
            .range((from, Bound::Included(last)))
            .copied()
            .filter(|(freed, block)| self.by_block.contains(&(*block, *freed)))
    }

    /// A header was erased, durably.
    pub fn erased(&mut self, sequence: u64, block: u32) {
        self.by_sequence.remove(&(sequence, block));
        self.by_block.remove(&(block, sequence));
    }

    /// Headers in the order of the writes that made them obsolete.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.by_sequence.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_counts_until_what_lies_over_it_is_durable() {
        let mut stale = StaleHeaders::default();
        stale.add(3, 10);
        stale.add(5, 20);
        stale.cover(
            Extent {
                block: 8,
                blocks: 4,
            },
            7,
        );
        assert_eq!(stale.oldest(), Some(3));
        assert_eq!(stale.between(None, 9).collect::<Vec<_>>(), [(5, 20)]);
        assert_eq!(stale.between(Some((5, 20)), 9).count(), 0);
        stale.settle(6);
        assert_eq!(stale.oldest(), Some(3));
        stale.settle(7);
        assert_eq!(stale.oldest(), Some(5));
        // The block of the first is stale once more, by another write.
        stale.add(9, 10);
        stale.erased(5, 20);
        assert_eq!(stale.iter().collect::<Vec<_>>(), [(9, 10)]);
    }
}
