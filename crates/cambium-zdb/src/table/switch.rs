//! Switching a place of a table from one data file to the next, piece by piece,
//! while reads go on: what a compaction does at its end.

use std::sync::Arc;

use cambium_index::Slot;

use super::Table;
use crate::core::write;
use crate::data_file::DataFile;

impl Table {
    /// Begins a switch: new entries go to `file`, slots still point into the
    /// old one until [`Table::switch_piece`] moves them.
    pub fn begin_switch(&self, place: usize, file: Arc<DataFile>) {
        let mut places = write(&self.places);
        let place = &mut places[place];
        place.generation += 1;
        place.previous = Some(std::mem::replace(&mut place.current, file));
    }

    /// Moves one piece's slots of a place to the new file: `move_slot` answers
    /// the new position of an old one. The caller has made sure that every
    /// live entry was copied.
    pub fn switch_piece(
        &self,
        piece: usize,
        place: usize,
        move_slot: impl Fn(u64, u64) -> Option<u64>,
    ) {
        let file = self.places()[place].current.file.number.0;
        let mut state = self.piece_mut(piece);
        state.homes[place].generation += 1;
        state.homes[place].file = file;
        let (slots, step) = self.slots_at(piece, 0..self.shape.slots_per_piece(), Some(place));
        let moves: Vec<(usize, Slot)> = state
            .live(slots, step)
            .map(|(slot, position)| {
                let moved = move_slot(self.key_of(piece, slot), position);
                (slot, moved.map_or(Slot::NeverWritten, Slot::Position))
            })
            .collect();
        if !moves.is_empty() {
            let slots = state.slots_to_change();
            for (slot, moved) in moves {
                slots.set(slot, moved);
            }
        }
    }

    /// Keys and positions of a piece's live entries at a place.
    pub fn live_in_piece(&self, piece: usize, place: usize) -> Vec<(u64, u64)> {
        let (slots, step) = self.slots_at(piece, 0..self.shape.slots_per_piece(), Some(place));
        let state = self.piece(piece);
        let live = state.live(slots, step);
        live.map(|(slot, position)| (self.key_of(piece, slot), position))
            .collect()
    }

    /// Ends a switch: the old file has no slot any more.
    pub fn end_switch(&self, place: usize) -> Option<Arc<DataFile>> {
        let mut places = write(&self.places);
        places[place].previous.take()
    }
}
