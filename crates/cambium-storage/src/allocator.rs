//! Space on a device: which blocks are free (*KVZone and Alphard*, section 3.2.1).
//!
//! A bitmap has one bit a block. [`Allocator::alloc`] finds a run of free blocks,
//! going on from where the last one was found; [`Allocator::alloc_adjacent`] takes
//! blocks right behind others, so that several entries go to the device in one
//! write; a short list of what was freed last serves when little is free.
//!
//! What is freed is not free at once: what took its place must be durable, and be
//! known to be so after any crash. [`Allocator::free_after`] therefore names the
//! write that made an extent obsolete, and [`Allocator::release`] says up to which
//! write all is safe. The map is derived from what lies on the device, and never
//! stored.

use std::collections::BTreeSet;

use cambium_base::Extent;

/// Extents freed last that are remembered.
const RECENT_EXTENTS: usize = 32;

/// The free blocks of a device.
///
/// ```
/// use cambium_storage::allocator::Allocator;
/// let mut allocator = Allocator::new(2, 100);
/// let first = allocator.alloc(3).unwrap();
/// let second = allocator.alloc_adjacent(first, 4).unwrap();
/// assert_eq!((first.block, second.block), (2, 5));
/// allocator.free_after(first, 7);
/// assert_eq!(allocator.free_blocks(), 91);
/// allocator.release(7);
/// assert_eq!(allocator.free_blocks(), 94);
/// ```
#[derive(Debug)]
pub struct Allocator {
    /// One bit a block, set where it is taken.
    words: Vec<u64>,
    /// Blocks before it belong to somebody else.
    first: u32,
    /// Blocks from here on are not given out.
    limit: u32,
    free: u64,
    /// Where the search goes on.
    cursor: u32,
    recent: Vec<Extent>,
    /// Freed, and waiting for the write that made them obsolete to be safe.
    waiting: BTreeSet<(u64, Extent)>,
    waiting_blocks: u64,
}

impl Allocator {
    /// Blocks `first..limit`, all free.
    ///
    /// # Panics
    /// If `limit` is below `first`.
    pub fn new(first: u32, limit: u32) -> Self {
        assert!(first <= limit, "the range has a length");
        Allocator {
            words: vec![0; (limit as usize).div_ceil(64)],
            first,
            limit,
            free: u64::from(limit - first),
            cursor: first,
            recent: Vec::new(),
            waiting: BTreeSet::new(),
            waiting_blocks: 0,
        }
    }

    /// Gives out blocks up to a higher limit from now on.
    pub fn raise_limit(&mut self, limit: u32) {
        if limit > self.limit {
            self.free += u64::from(limit - self.limit);
            self.limit = limit;
            self.words.resize((limit as usize).div_ceil(64), 0);
        }
    }

    /// The block after the last that is given out.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Blocks that can be given out now.
    pub fn free_blocks(&self) -> u64 {
        self.free
    }

    /// Blocks that are freed, and wait for a write to be safe.
    pub fn waiting_blocks(&self) -> u64 {
        self.waiting_blocks
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.words.capacity() * 8 + self.waiting.len() * 3 * size_of::<(u64, Extent)>() / 2
    }

    /// True if any block of a range is taken, or out of bounds.
    pub fn is_taken(&self, extent: Extent) -> bool {
        let end = extent.end();
        extent.block < self.first
            || end > u64::from(self.limit)
            || self.next_before(extent.block, true, end as u32) < end as u32
    }

    /// The block after the last that is taken; the first one where none is.
    pub fn taken_end(&self) -> u32 {
        let word = self.words.iter().rposition(|&word| word != 0);
        let end = word.map_or(0, |word| {
            word as u32 * 64 + 64 - self.words[word].leading_zeros()
        });
        end.max(self.first)
    }

    /// Takes an extent that is known to be in use: for what a scan found. False
    /// if part of it is taken already, or out of bounds; nothing is taken then.
    pub fn take(&mut self, extent: Extent) -> bool {
        let fits = !self.is_taken(extent);
        if fits {
            self.set(extent, true);
            self.free -= u64::from(extent.blocks);
        }
        fits
    }

    /// Finds free blocks, `None` where no run is long enough.
    pub fn alloc(&mut self, blocks: u32) -> Option<Extent> {
        if u64::from(blocks) > self.free || blocks == 0 {
            return None;
        }
        let extent = self.find_recent(blocks).or_else(|| {
            self.find(self.cursor, self.limit, blocks)
                .or_else(|| self.find(self.first, self.limit, blocks))
        })?;
        self.cursor = extent.end() as u32;
        self.take(extent).then_some(extent)
    }

    /// Takes the blocks right behind an extent, if they are free.
    pub fn alloc_adjacent(&mut self, behind: Extent, blocks: u32) -> Option<Extent> {
        let extent = Extent {
            block: u32::try_from(behind.end()).ok()?,
            blocks,
        };
        if !self.take(extent) {
            return None;
        }
        self.cursor = extent.end() as u32;
        Some(extent)
    }

    /// Gives back what was allocated and never written.
    pub fn free(&mut self, extent: Extent) {
        self.set(extent, false);
        self.free += u64::from(extent.blocks);
        if self.recent.len() == RECENT_EXTENTS {
            self.recent.remove(0);
        }
        self.recent.push(extent);
    }

    /// Gives an extent back once the write `sequence`, which made it obsolete,
    /// is safe.
    pub fn free_after(&mut self, extent: Extent, sequence: u64) {
        self.waiting_blocks += u64::from(extent.blocks);
        self.waiting.insert((sequence, extent));
    }

    /// All writes up to `sequence` are safe. Answers how many extents became free.
    pub fn release(&mut self, sequence: u64) -> usize {
        self.release_each(sequence, |_| {})
    }

    /// The same, and calls with each extent that became free.
    pub fn release_each(&mut self, sequence: u64, mut freed: impl FnMut(Extent)) -> usize {
        let mut count = 0;
        while let Some(&(needed, extent)) = self.waiting.first() {
            if needed > sequence {
                break;
            }
            self.waiting.pop_first();
            self.waiting_blocks -= u64::from(extent.blocks);
            self.free(extent);
            freed(extent);
            count += 1;
        }
        count
    }

    /// The write that must be safe for the first waiting extent to become free.
    pub fn waits_for(&self) -> Option<u64> {
        self.waiting.first().map(|(sequence, _)| *sequence)
    }

    /// Extents that wait, each with the write that made it obsolete, in the order of the writes.
    pub fn waiting(&self) -> impl ExactSizeIterator<Item = (u64, Extent)> + '_ {
        self.waiting.iter().copied()
    }

    /// Runs of free blocks, in order.
    pub fn free_extents(&self) -> impl Iterator<Item = Extent> + '_ {
        let mut at = self.first;
        std::iter::from_fn(move || {
            let block = self.next(at, false);
            if block >= self.limit {
                return None;
            }
            at = self.next(block, true);
            Some(Extent {
                block,
                blocks: at - block,
            })
        })
    }

    /// Something freed of late that is large enough: where little is free, a
    /// search through the map would look at most of it.
    fn find_recent(&mut self, blocks: u32) -> Option<Extent> {
        if self.free > u64::from(self.limit - self.first) / 8 {
            return None;
        }
        while let Some(at) = self
            .recent
            .iter()
            .rposition(|extent| extent.blocks >= blocks)
        {
            let found = self.recent.remove(at);
            // Others may have taken it meanwhile.
            if !self.is_taken(found) {
                return Some(Extent { blocks, ..found });
            }
        }
        None
    }

    fn find(&self, from: u32, to: u32, blocks: u32) -> Option<Extent> {
        let mut at = from;
        loop {
            let block = self.next(at, false);
            if block >= to || to - block < blocks {
                return None;
            }
            // No further than is needed: the rest of the device may be one free run.
            let end = self.next_before(block, true, block + blocks);
            if end - block >= blocks {
                return Some(Extent { block, blocks });
            }
            at = end;
        }
    }

    /// The first block at or after `from` that is taken, or not; the limit if
    /// there is none.
    fn next(&self, from: u32, taken: bool) -> u32 {
        self.next_before(from, taken, self.limit)
    }

    /// The same, but for blocks from `bound` on, which is answered for them.
    fn next_before(&self, from: u32, taken: bool, bound: u32) -> u32 {
        let bound = bound.min(self.limit);
        if from >= bound {
            return bound;
        }
        let flip = if taken { 0 } else { u64::MAX };
        let end = (bound as usize).div_ceil(64);
        let mut word = from as usize / 64;
        let mut bits = (self.words[word] ^ flip) & u64::MAX << (from % 64);
        while bits == 0 {
            word += 1;
            if word >= end {
                return bound;
            }
            bits = self.words[word] ^ flip;
        }
        (word as u32 * 64 + bits.trailing_zeros()).min(bound)
    }

    fn set(&mut self, extent: Extent, taken: bool) {
        let mut at = extent.block;
        let end = extent.end() as u32;
        while at < end {
            let (word, bit) = (at as usize / 64, at % 64);
            let count = (64 - bit).min(end - at);
            let mask = (u64::MAX >> (64 - count)) << bit;
            if taken {
                self.words[word] |= mask;
            } else {
                self.words[word] &= !mask;
            }
            at += count;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn extent(block: u32, blocks: u32) -> Extent {
        Extent { block, blocks }
    }

    #[test]
    fn extents_never_overlap_and_the_map_agrees_with_a_model() {
        let mut allocator = Allocator::new(5, 700);
        let mut model = vec![false; 700];
        let mut live: Vec<Extent> = Vec::new();
        let mut random = 1u64;
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let draw = (random >> 33) as u32;
            let blocks = 1 + draw % 9;
            let taken = match draw % 5 {
                0 | 1 => allocator.alloc(blocks),
                2 if !live.is_empty() => {
                    let behind = live[draw as usize % live.len()];
                    let found = allocator.alloc_adjacent(behind, blocks);
                    assert!(found.is_none_or(|found| u64::from(found.block) == behind.end()));
                    found
                }
                _ if !live.is_empty() => {
                    let gone = live.swap_remove(draw as usize % live.len());
                    allocator.free(gone);
                    (gone.block..gone.end() as u32).for_each(|at| model[at as usize] = false);
                    None
                }
                _ => None,
            };
            if let Some(taken) = taken {
                for at in taken.block..taken.end() as u32 {
                    assert!(at >= 5 && !model[at as usize], "block {at} twice");
                    model[at as usize] = true;
                }
                live.push(taken);
            }
            let free = model[5..].iter().filter(|&&taken| !taken).count() as u64;
            assert_eq!(allocator.free_blocks(), free);
        }
        let free: u64 = allocator
            .free_extents()
            .map(|run| u64::from(run.blocks))
            .sum();
        assert_eq!(free, allocator.free_blocks());
    }

    #[test]
    fn what_was_freed_is_free_only_when_its_replacement_is_safe() {
        let mut allocator = Allocator::new(0, 8);
        let first = allocator.alloc(4).unwrap();
        let second = allocator.alloc(4).unwrap();
        allocator.free_after(second, 9);
        allocator.free_after(first, 3);
        assert_eq!(allocator.alloc(1), None);
        assert_eq!(allocator.waits_for(), Some(3));
        assert_eq!(allocator.release(8), 1);
        assert_eq!(allocator.alloc(4), Some(first));
        assert_eq!(allocator.alloc(1), None);
        assert_eq!(allocator.release(9), 1);
        assert_eq!(
            (allocator.waiting_blocks(), allocator.free_blocks()),
            (0, 4)
        );
    }

    #[test]
    fn a_scan_takes_no_block_twice_and_none_out_of_bounds() {
        let mut allocator = Allocator::new(2, 130);
        assert_eq!(allocator.taken_end(), 2);
        assert!(allocator.take(extent(60, 10)));
        assert!(!allocator.take(extent(69, 1)), "taken");
        assert!(!allocator.take(extent(1, 1)), "before the first");
        assert!(!allocator.take(extent(129, 2)), "behind the limit");
        assert!(!allocator.take(extent(u32::MAX, u32::MAX)));
        assert_eq!(allocator.taken_end(), 70);
        assert!(allocator.take(extent(129, 1)));
        allocator.raise_limit(200);
        assert!(allocator.take(extent(130, 70)));
        assert_eq!(allocator.free_blocks(), 200 - 2 - 81);
    }
}
