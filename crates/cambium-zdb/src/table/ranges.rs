//! Ranges of keys in a table.
//!
//! The removal of a range has an entry in each data file with live keys of it, so that each
//! file says all of its keys. Such an entry concerns every `data_files`-th slot of a range.

use std::ops::Range;

use cambium_index::Slot;
use cambium_io::sync::RwLockWriteGuard;

use super::{LockedPieces, Piece, Table};

impl Table {
    /// The pieces that hold the slots of a range of keys, and these slots.
    pub fn pieces_within(
        &self,
        first: u64,
        last: u64,
    ) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let first = first.max(self.first_key);
        let last = last.min(self.first_key.saturating_add(self.slot_count() - 1));
        let per_piece = self.shape.slots_per_piece();
        let slots = match first <= last {
            true => (first - self.first_key) as usize..(last - self.first_key) as usize + 1,
            false => 0..0,
        };
        let pieces = slots.start / per_piece..slots.end.div_ceil(per_piece);
        pieces.map(move |piece| {
            let before = piece * per_piece;
            let start = slots.start.saturating_sub(before);
            (piece, start..per_piece.min(slots.end - before))
        })
    }

    /// Brings the pieces of a range into memory.
    pub fn load_within(&self, first: u64, last: u64) -> cambium_base::Result<()> {
        for (piece, _) in self.pieces_within(first, last) {
            if self.piece(piece).may_have_entries() {
                self.load_piece(piece)?;
            }
        }
        Ok(())
    }

    /// The keys of a range that have entries, or those of them that belong to the data file
    /// at a place. The caller has loaded the pieces.
    pub fn live_within(
        &self,
        (first, last): (u64, u64),
        place: Option<usize>,
    ) -> impl Iterator<Item = u64> + '_ {
        let pieces = self.pieces_within(first, last);
        pieces.flat_map(move |(piece, slots)| {
            let (slots, step) = self.slots_at(piece, slots, place);
            // The piece is free again before the caller gets a key.
            let live: Vec<_> = self.piece(piece).live(slots, step).collect();
            live.into_iter()
                .map(move |(slot, _)| self.key_of(piece, slot))
        })
    }

    /// The key of a slot.
    pub fn key_of(&self, piece: usize, slot: usize) -> u64 {
        // The last table there is has slots beyond the last key, which are never written.
        let slot = (piece * self.shape.slots_per_piece() + slot) as u64;
        self.first_key.saturating_add(slot)
    }

    /// Of slots of a piece, those of the data file at a place: the first of them to the end,
    /// and the step between two.
    pub(super) fn slots_at(
        &self,
        piece: usize,
        slots: Range<usize>,
        place: Option<usize>,
    ) -> (Range<usize>, usize) {
        let Some(place) = place else {
            return (slots, 1);
        };
        let files = self.shape.data_files as usize;
        let before = self.place_of(self.key_of(piece, slots.start));
        let start = slots.start + (place + files - before) % files;
        (start.min(slots.end)..slots.end, files)
    }
}

impl Piece {
    /// False if no slot was ever written.
    pub fn may_have_entries(&self) -> bool {
        self.slots.is_some() || self.on_disk != 0
    }

    /// Of every `step`-th slot of a range, those that point at entries, with their positions.
    pub fn live(
        &self,
        slots: Range<usize>,
        step: usize,
    ) -> impl DoubleEndedIterator<Item = (usize, u64)> + '_ {
        self.slots.iter().flat_map(move |all| {
            let slots = slots.clone().step_by(step);
            slots.filter_map(|slot| match all.get(slot) {
                Slot::Position(position) => Some((slot, position)),
                _ => None,
            })
        })
    }
}

/// Locks of pieces, in the order of tables and pieces.
pub(super) type PiecesOfRanges<'a> = Vec<((u64, usize), RwLockWriteGuard<'a, Piece>)>;

impl<'a> LockedPieces<'a> {
    /// Deletes the entries of a range in the data file at a place; answers how many there
    /// were. The pieces must be in memory, and are locked from now on. Ranges come before keys.
    pub fn delete_range(
        &mut self,
        table: &'a Table,
        (first, last): (u64, u64),
        place: usize,
    ) -> u64 {
        let mut deleted = 0;
        for (piece, slots) in table.pieces_within(first, last) {
            let (slots, step) = table.slots_at(piece, slots, Some(place));
            let at = self.find_of_ranges(table, piece).unwrap_or_else(|at| {
                let locked = ((table.number, piece), table.piece_mut(piece));
                self.of_ranges.insert(at, locked);
                at
            });
            let state = &mut self.of_ranges[at].1;
            if state.live(slots.clone(), step).next().is_some() {
                deleted += state.slots_to_change().delete_every(slots, step);
            }
        }
        deleted
    }

    /// A piece among those of ranges; or the place where it belongs.
    #[inline]
    pub(super) fn find_of_ranges(&self, table: &Table, piece: usize) -> Result<usize, usize> {
        let wanted = (table.number, piece);
        self.of_ranges.binary_search_by_key(&wanted, |(of, _)| *of)
    }
}
