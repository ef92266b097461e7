//! The place of an entry: alone in blocks of its own, or in a pack, whose blocks it shares.
//!
//! The index holds a place in the 8 bytes of an extent:
//!
//! ```text
//!   block: 32 bits │ alone:  small 1 │ blocks: 26
//!                  │ packed: 1 │ 0 │ number in the pack: 16 │ blocks of the pack: 8
//! ```
//!
//! The four bits above stay free, for what others keep beside a place.

use cambium_base::Extent;

use crate::format::blocks_for;
use crate::pack;

const PACKED: u32 = 1 << 27;
const SMALL: u32 = 1 << 26;
const NUMBER_SHIFT: u32 = 8;

/// The place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub block: u32,
    bits: u32,
}

impl Place {
    /// The place of an entry of these lengths that begins at a block of its own.
    pub fn alone(block: u32, (key_bytes, value_bytes): (usize, usize), block_bytes: u32) -> Self {
        let blocks = blocks_for(key_bytes, value_bytes, block_bytes);
        let alone = u64::from(blocks) * u64::from(block_bytes);
        let packed = pack::entry_bytes(key_bytes, value_bytes) as u64;
        let small = if 2 * packed <= alone { SMALL } else { 0 };
        Place {
            block,
            bits: blocks | small,
        }
    }

    /// The place of a tombstone at a block of its own.
    pub fn tombstone(block: u32) -> Self {
        Place { block, bits: 1 }
    }

    /// The place of an entry in a pack, with the number of the pack's entries before it.
    pub fn packed(pack: Extent, number: usize) -> Self {
        Place {
            block: pack.block,
            bits: pack.blocks | (number as u32) << NUMBER_SHIFT | PACKED,
        }
    }

    /// The same entry at another block.
    pub fn at(self, block: u32) -> Self {
        Place { block, ..self }
    }

    /// The blocks that it takes, or its pack.
    pub fn extent(self) -> Extent {
        let blocks = match self.number() {
            Some(_) => self.bits & ((1 << NUMBER_SHIFT) - 1),
            None => self.bits & (SMALL - 1),
        };
        Extent {
            block: self.block,
            blocks,
        }
    }

    /// The number of its pack's entries before it; `None` if it lies alone.
    pub fn number(self) -> Option<usize> {
        (self.bits & PACKED != 0).then_some((self.bits >> NUMBER_SHIFT & 0xffff) as usize)
    }

    /// True if it lies alone, and would take at most half the bytes in a pack.
    pub fn is_small(self) -> bool {
        self.bits & (PACKED | SMALL) == SMALL
    }

    /// A number that no other place has.
    pub fn id(self) -> u64 {
        u64::from(self.block) | u64::from(self.bits & !SMALL) << 32
    }

    /// The extent under which the index holds it.
    pub fn slot(self) -> Extent {
        Extent {
            block: self.block,
            blocks: self.bits,
        }
    }

    /// The place that the index holds as an extent.
    pub fn of_slot(slot: Extent) -> Self {
        Place {
            block: slot.block,
            bits: slot.blocks,
        }
    }
}
