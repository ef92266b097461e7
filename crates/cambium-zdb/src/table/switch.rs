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
        let per_piece = self.shape.slots_per_piece();
        let first = self.first_key.saturating_add((piece * per_piece) as u64);
        let moves: Vec<(usize, Slot)> = match &state.slots {
            None => return,
            Some(slots) => (0..slots.len())
                .filter_map(|slot| {
                    let key = first.wrapping_add(slot as u64);
                    match slots.get(slot) {
                        Slot::Position(position) if self.place_of(key) == place => {
                            let moved = move_slot(key, position);
                            Some((slot, moved.map_or(Slot::NeverWritten, Slot::Position)))
                        }
                        _ => None,
                    }
                })
                .collect(),
        };
        if !moves.is_empty() {
            let slots = state.slots_to_change();
            for (slot, moved) in moves {
                slots.set(slot, moved);
            }
        }
    }

    /// Keys and positions of a piece's live entries at a place.
    pub fn live_in_piece(&self, piece: usize, place: usize) -> Vec<(u64, u64)> {
        let state = self.piece(piece);
        let before = (piece * self.shape.slots_per_piece()) as u64;
        let first = self.first_key.saturating_add(before);
        let Some(slots) = &state.slots else {
            return Vec::new();
        };
        (0..slots.len())
            .filter_map(|slot| {
                let key = first.checked_add(slot as u64)?;
                match slots.get(slot) {
                    Slot::Position(position) if self.place_of(key) == place => {
                        Some((key, position))
                    }
                    _ => None,
                }
            })
            .collect()
    }

    /// Ends a switch: the old file has no slot any more.
    pub fn end_switch(&self, place: usize) -> Option<Arc<DataFile>> {
        let mut places = write(&self.places);
        places[place].previous.take()
    }
}
