//! The table of packs that hold entries that count, and the number of small entries that lie
//! alone.
//!
//! The blocks of a pack are free when nothing needs any of its entries. Obsolete entries of
//! other packs, and small entries that lie alone, take space that moving gives back
//! ([`crate::cleaning`]).

use std::collections::{BTreeMap, BTreeSet};

use cambium_base::Extent;

use crate::pack;
use crate::place::Place;
use crate::stale::StaleHeaders;

/// A pack is worth moving where so many of a thousand entries are obsolete.
const LEAST_SHARE: u64 = 60;
/// One block in so many of packs' stays free of new entries: where all are full, cleaning costs
/// many moves for each block that it gives back.
const SPARE_SHARE: u64 = 8;
/// Cleaning keeps the space of so many packs for itself.
const WORKSPACE_PACKS: u64 = 4;
/// In a small store it keeps this part of the blocks instead.
const WORKSPACE_SHARE: u64 = 8;
/// The walk does not begin for so few small entries.
const FEW: u64 = 16;

/// Most blocks and entries of a pack.
#[derive(Clone, Copy, Debug, Default)]
struct Most {
    blocks: u32,
    entries: u32,
}

/// A pack with entries that count.
#[derive(Clone, Copy, Debug)]
struct Held {
    blocks: u32,
    /// Its last write; 0 where recovery found it.
    written: u64,
    /// The number of entries that it was made with.
    entries: u32,
    /// The number of entries that a reader may need.
    needed: u32,
    /// The last write that made one obsolete.
    obsolete_since: u64,
    /// Tombstones, which go by themselves in the order of their writes; or it is damaged.
    stays: bool,
}

impl Held {
    /// Entries in a thousand that no reader needs, and moving would get rid of.
    fn obsolete_share(&self) -> u64 {
        match self.stays {
            true => 0,
            false => 1000 * u64::from(self.entries - self.needed) / u64::from(self.entries.max(1)),
        }
    }

    /// Thousandths of blocks that those take.
    fn obsolete(&self) -> u64 {
        u64::from(self.blocks) * self.obsolete_share()
    }

    /// True if its entries could share blocks with others: a group of few writers makes such a
    /// pack. One with the most entries may take few blocks, and moving gives nothing back.
    fn is_short(&self, most: Most) -> bool {
        !self.stays && self.blocks < most.blocks && 2 * self.entries <= most.entries
    }
}

/// All packs, guarded by the writer lock.
#[derive(Debug, Default)]
pub(crate) struct Packs {
    most: Most,
    held: BTreeMap<u32, Held>,
    /// Their blocks.
    blocks: u64,
    /// Thousandths of those that obsolete entries take.
    obsolete: u64,
    /// The number of short packs.
    short: u64,
    /// Packs that tombstones wait for.
    urgent: BTreeSet<u32>,
    /// Small entries that lie alone.
    small: u64,
    /// Blocks of waste that a whole walk could not move, since they are damaged.
    left: u64,
    /// Thousandths of blocks that the present walk gives back, less those that its moves take: a
    /// move may gain what the next one loses.
    pub gained: i64,
    /// Something has moved whose blocks no sync has given back yet.
    pub unsettled: bool,
    /// The oldest moment that was held when cleaning was last tried.
    pub pinned: Option<u64>,
    /// Packs are not written: the store keeps history.
    pub are_off: bool,
    /// The block that the walk goes on at.
    pub next_block: u32,
    /// The last write before the walk began: what came later is left to the next one.
    began: u64,
    /// The waste that there was then.
    waste_before: u64,
    /// The number of walks that have ended.
    pub walks: u64,
}

impl Packs {
    /// None yet; of a store that keeps history there will be none.
    pub fn new(are_off: bool, block_bytes: u32) -> Self {
        Packs {
            most: Most {
                blocks: pack::most_blocks(block_bytes),
                entries: pack::most_entries(block_bytes) as u32,
            },
            are_off,
            ..Packs::default()
        }
    }

    /// Takes an entry or a tombstone that recovery found; true if its blocks are not known yet.
    pub fn find(&mut self, place: Place, is_tombstone: bool) -> bool {
        self.gain(place);
        let Some(number) = place.number() else {
            return true;
        };
        let entries = number as u32 + 1;
        if !self.held.contains_key(&place.block) {
            self.add(place.extent(), 0, (is_tombstone, 0));
        }
        let mut is_new = false;
        self.change(place.block, |held| {
            is_new = held.entries == 0;
            held.entries = held.entries.max(entries);
            held.needed += 1;
        });
        is_new
    }

    /// Recovery has found all entries and stale headers: counts the obsolete entries of each
    /// pack, and keeps one stale header of each pack that is free.
    pub fn all_found(&mut self, stale: &mut StaleHeaders) {
        let mut obsolete: BTreeMap<u32, u32> = BTreeMap::new();
        for (_, block) in stale.iter() {
            *obsolete.entry(block).or_default() += 1;
        }
        for (block, count) in obsolete {
            let found = self.change(block, |held| {
                held.entries = held.entries.max(held.needed + count);
            });
            if found.is_none() {
                stale.keep_oldest(block);
            }
        }
    }

    /// A pack of entries, or of tombstones, is written; with the number of its last write.
    pub fn add(&mut self, pack: Extent, entries: usize, (of_tombstones, written): (bool, u64)) {
        let held = Held {
            blocks: pack.blocks,
            written,
            entries: entries as u32,
            needed: entries as u32,
            obsolete_since: 0,
            stays: of_tombstones,
        };
        self.blocks += u64::from(pack.blocks);
        self.short += u64::from(held.is_short(self.most));
        self.held.insert(pack.block, held);
    }

    /// An entry is written.
    pub fn gain(&mut self, place: Place) {
        self.small += u64::from(place.is_small());
    }

    /// No reader needs an entry since a write; answers the blocks that are obsolete with it,
    /// and since which write.
    pub fn lose(&mut self, place: Place, sequence: u64) -> Option<(Extent, u64)> {
        self.small -= u64::from(place.is_small());
        let held = match place.number() {
            None => None,
            Some(_) => Some(self.change(place.block, |held| {
                held.needed -= 1;
                held.obsolete_since = held.obsolete_since.max(sequence);
            })?),
        };
        let emptied = held.filter(|held| held.needed == 0);
        if let Some(held) = emptied {
            self.held.remove(&place.block);
            self.urgent.remove(&place.block);
            self.blocks -= u64::from(held.blocks);
            self.obsolete -= held.obsolete();
            self.short -= u64::from(held.is_short(self.most));
        }
        self.left = self.left.min(self.all_waste());
        match held {
            None => Some((place.extent(), sequence)),
            Some(_) => emptied.map(|held| (place.extent(), held.obsolete_since)),
        }
    }

    fn change(&mut self, block: u32, change: impl FnOnce(&mut Held)) -> Option<Held> {
        let held = self.held.get_mut(&block)?;
        let before = *held;
        change(held);
        self.obsolete = self.obsolete - before.obsolete() + held.obsolete();
        self.short -= u64::from(before.is_short(self.most));
        self.short += u64::from(held.is_short(self.most));
        Some(*held)
    }

    /// The blocks of a pack are free with the next entry that is lost: a seeded bug.
    pub fn need_one(&mut self, block: u32) {
        self.change(block, |held| held.needed = 1);
    }

    /// True if a header at a block is that of a pack with entries that count.
    pub fn holds(&self, block: u32) -> bool {
        self.held.contains_key(&block)
    }

    /// Notes that tombstones wait for a pack: its entries shall move whatever that gives back.
    pub fn want(&mut self, block: u32) {
        if self.held.get(&block).is_some_and(|held| !held.stays) {
            self.urgent.insert(block);
        }
    }

    /// True if there are such packs.
    pub fn is_urgent(&self) -> bool {
        !self.urgent.is_empty()
    }

    /// Such packs, up to so many; each is answered once.
    pub fn take_urgent(&mut self, most: usize) -> Vec<Extent> {
        let mut packs = Vec::new();
        while let Some(block) = self.urgent.pop_first() {
            let held = self.held.get(&block);
            packs.extend(held.map(|held| Extent {
                block,
                blocks: held.blocks,
            }));
            if packs.len() == most {
                break;
            }
        }
        packs
    }

    /// Notes that entries of the pack at a block cannot be moved, if it was written by then.
    pub fn leave(&mut self, block: u32, by: u64) {
        self.urgent.remove(&block);
        self.change(block, |held| held.stays |= held.written <= by);
        self.left = self.left.min(self.all_waste());
    }

    /// True if the pack at a block is worth moving: short, or at least as much of it obsolete
    /// as of all packs together.
    pub fn is_worth_moving(&self, block: u32) -> bool {
        let average = self.obsolete / self.blocks.max(1);
        let held = self.held.get(&block).filter(|held| !held.stays);
        held.is_some_and(|held| {
            held.is_short(self.most) || held.obsolete_share() >= average.max(LEAST_SHARE)
        })
    }

    /// Thousandths of blocks that an entry keeps from being free; of a pack its part.
    pub fn takes(&self, place: Place) -> u64 {
        let blocks = 1000 * u64::from(place.extent().blocks);
        let held = self
            .held
            .get(&place.block)
            .filter(|_| place.number().is_some());
        blocks / held.map_or(1, |held| u64::from(held.needed.max(1)))
    }

    /// The next block at or behind one that a walk has to look at, if it is known. A few small
    /// entries that lie alone may stay so, unless all are asked for.
    pub fn next_after(&self, block: u32, all: bool) -> Option<u32> {
        if self.small > if all { 0 } else { FEW } {
            return Some(block);
        }
        let mut packs = self.held.range(block..).map(|(&block, _)| block);
        packs.find(|&block| self.is_worth_moving(block))
    }

    /// A walk goes on, or begins after a last write; answers the last write that it looks at.
    pub fn go_on(&mut self, last_write: u64) -> u64 {
        if self.next_block == 0 {
            self.began = last_write;
            self.waste_before = self.all_waste();
        }
        self.began
    }

    /// The walk over the device has come to its end.
    pub fn walked(&mut self) {
        self.left = match std::mem::take(&mut self.gained) {
            1000.. => 0,
            _ => self.all_waste().min(self.waste_before),
        };
        self.next_block = 0;
        self.walks += 1;
    }

    /// Blocks that moving gives back, about; without those that a whole walk could not move.
    pub fn waste(&self) -> u64 {
        self.all_waste().saturating_sub(self.left)
    }

    fn all_waste(&self) -> u64 {
        // Half of a block of each is blank, about.
        let blank = self.small + self.short;
        let blank = if blank > FEW { blank / 2 } else { 0 };
        match self.are_off {
            true => 0,
            false => blank + self.obsolete / 1000,
        }
    }

    /// Blocks that are left free of new entries so that packs can be cleaned: those that
    /// entries and deletes may take which replace others, and those that only moves take.
    pub fn spare_blocks(&self, total_blocks: u64) -> (u64, u64) {
        if self.blocks + self.small <= FEW || self.are_off {
            return (0, 0);
        }
        let workspace = WORKSPACE_PACKS * u64::from(self.most.blocks);
        let workspace = workspace.min(total_blocks / WORKSPACE_SHARE);
        (self.blocks / SPARE_SHARE, workspace)
    }

    /// The number of packs.
    pub fn len(&self) -> usize {
        self.held.len()
    }
}
