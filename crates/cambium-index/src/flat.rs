//! The flat index of ZDB (section II.A): an array with one slot per key of a
//! range, holding the position of the key's entry and nothing else.
//!
//! A slot has 4 to 8 bytes, little-endian, and holds a position in units of
//! an alignment, so that 4 bytes reach far beyond 4 GiB:
//!
//! | stored | meaning |
//! |---|---|
//! | 0 | never written |
//! | all ones | deleted |
//! | anything else | position / alignment |
//!
//! Position 0 is a file's header and never an entry, so 0 can mean never
//! written: fresh memory is a valid array.

use std::ops::Range;

use cambium_base::{Error, Result};

/// What a slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// No entry since the table was made (or since a rebuild).
    NeverWritten,
    /// The last entry was a removal.
    Deleted,
    /// Where the entry lies: a multiple of the alignment.
    Position(u64),
}

/// How slots are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotFormat {
    bytes: usize,
    alignment: u64,
}

impl SlotFormat {
    /// Slots of 4 to 8 `bytes`, positions in units of `alignment`, a power of two.
    pub fn new(bytes: usize, alignment: u64) -> Result<Self> {
        if !(4..=8).contains(&bytes) {
            return Err(Error::InvalidArgument(format!(
                "slot_bytes={bytes}: expected 4, 5, 6, 7 or 8"
            )));
        }
        if !alignment.is_power_of_two() || alignment > 4096 {
            return Err(Error::InvalidArgument(format!(
                "alignment={alignment}: expected a power of two up to 4096"
            )));
        }
        Ok(SlotFormat { bytes, alignment })
    }

    /// Bytes a slot takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn deleted(&self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes)
    }

    /// The largest position a slot can hold.
    pub fn max_position(&self) -> u64 {
        (self.deleted() - 1).saturating_mul(self.alignment)
    }
}

/// Slots of consecutive keys.
///
/// ```
/// use cambium_index::{FlatSlots, Slot, SlotFormat};
/// let mut slots = FlatSlots::new(SlotFormat::new(5, 8).unwrap(), 100);
/// slots.set(7, Slot::Position(4096));
/// assert_eq!(slots.get(7), Slot::Position(4096));
/// assert_eq!(slots.get(8), Slot::NeverWritten);
/// assert_eq!(slots.as_bytes().len(), 500);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatSlots {
    format: SlotFormat,
    bytes: Box<[u8]>,
}

impl FlatSlots {
    /// `count` slots that were never written.
    pub fn new(format: SlotFormat, count: usize) -> Self {
        FlatSlots {
            format,
            bytes: vec![0; count * format.bytes].into_boxed_slice(),
        }
    }

    /// Slots as they were stored.
    pub fn from_bytes(format: SlotFormat, bytes: Box<[u8]>) -> Self {
        FlatSlots { format, bytes }
    }

    /// As they are stored.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.format.bytes
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What slot number `slot` says.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn get(&self, slot: usize) -> Slot {
        let width = self.format.bytes;
        let start = slot * width;
        // A load and a mask, but for the last slots: much cheaper than copying
        // a number of bytes that only the store knows.
        let stored = match self.bytes.get(start..start + 8) {
            Some(eight) => cambium_base::coding::u64_at(eight, 0) & self.format.deleted(),
            None => {
                let mut field = [0u8; 8];
                field[..width].copy_from_slice(&self.bytes[start..start + width]);
                u64::from_le_bytes(field)
            }
        };
        match stored {
            0 => Slot::NeverWritten,
            stored if stored == self.format.deleted() => Slot::Deleted,
            stored => Slot::Position(stored.saturating_mul(self.format.alignment)),
        }
    }

    /// Deletes the entries of every `step`-th slot of a range, of the first one on; answers
    /// how many there were.
    ///
    /// # Panics
    /// If there are no such slots, or `step` is 0.
    pub fn delete_every(&mut self, slots: Range<usize>, step: usize) -> u64 {
        match self.format.bytes {
            4 => self.delete_of_width::<4>(slots, step),
            5 => self.delete_of_width::<5>(slots, step),
            6 => self.delete_of_width::<6>(slots, step),
            7 => self.delete_of_width::<7>(slots, step),
            _ => self.delete_of_width::<8>(slots, step),
        }
    }

    fn delete_of_width<const WIDTH: usize>(&mut self, slots: Range<usize>, step: usize) -> u64 {
        let deleted = self.format.deleted();
        let bytes = &mut self.bytes[slots.start * WIDTH..slots.end * WIDTH];
        let mut count = 0;
        for field in bytes.chunks_exact_mut(WIDTH).step_by(step) {
            let mut stored = [0; 8];
            stored[..WIDTH].copy_from_slice(field);
            let stored = u64::from_le_bytes(stored);
            // No branches: entries may lie anywhere.
            count += u64::from(stored != 0 && stored != deleted);
            let after = if stored == 0 { 0 } else { deleted };
            field.copy_from_slice(&after.to_le_bytes()[..WIDTH]);
        }
        count
    }

    /// Sets slot number `slot`.
    ///
    /// # Panics
    /// If there is no such slot, or a position is no multiple of the
    /// alignment or beyond the largest: callers check where logs grow.
    pub fn set(&mut self, slot: usize, value: Slot) {
        let stored = match value {
            Slot::NeverWritten => 0,
            Slot::Deleted => self.format.deleted(),
            Slot::Position(position) => {
                assert!(
                    position > 0
                        && position % self.format.alignment == 0
                        && position <= self.format.max_position(),
                    "position {position} fits in a slot"
                );
                position / self.format.alignment
            }
        };
        let width = self.format.bytes;
        self.bytes[slot * width..(slot + 1) * width]
            .copy_from_slice(&stored.to_le_bytes()[..width]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_width_holds_its_largest_position_and_keeps_neighbours() {
        for bytes in 4..=8 {
            for alignment in [1, 8, 512] {
                let format = SlotFormat::new(bytes, alignment).unwrap();
                let mut slots = FlatSlots::new(format, 3);
                let largest = format.max_position() / alignment * alignment;
                slots.set(0, Slot::Deleted);
                slots.set(1, Slot::Position(largest));
                slots.set(2, Slot::Position(alignment));
                assert_eq!(slots.get(0), Slot::Deleted);
                assert_eq!(slots.get(1), Slot::Position(largest));
                assert_eq!(slots.get(2), Slot::Position(alignment));
                slots.set(1, Slot::NeverWritten);
                assert_eq!(slots.get(0), Slot::Deleted);
                assert_eq!(slots.get(1), Slot::NeverWritten);
            }
        }
    }

    #[test]
    fn every_third_entry_of_a_range_is_deleted() {
        for bytes in 4..=8 {
            let mut slots = FlatSlots::new(SlotFormat::new(bytes, 8).unwrap(), 12);
            for slot in 0..12 {
                slots.set(slot, Slot::Position(8 + slot as u64 * 8));
            }
            slots.set(5, Slot::NeverWritten);
            assert_eq!(slots.delete_every(2..11, 3), 2, "slots 2 and 8, but not 5");
            assert_eq!(slots.delete_every(2..11, 3), 0);
            let gone = |slot: &usize| slots.get(*slot) == Slot::Deleted;
            assert_eq!((0..12).filter(gone).collect::<Vec<_>>(), [2, 8]);
            assert_eq!(slots.get(5), Slot::NeverWritten);
        }
    }

    #[test]
    fn four_bytes_reach_beyond_four_gibibytes() {
        let format = SlotFormat::new(4, 8).unwrap();
        assert!(format.max_position() > 30 << 30);
    }
}
