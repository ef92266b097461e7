//! Pieces of a table's index between memory and disk: read and verified on
//! first touch, written to the copy that does not count.
//!
//! A checkpoint writes each piece as it was at one sequence number, while writers
//! go on. [`Table::begin_checkpoint`] marks the pieces that differ from the disk;
//! the first change of a marked piece puts its old slots aside; and
//! [`Table::take_image`] takes what was put aside, or else copies the slots. So
//! at most those pieces are copied at once that writers have met meanwhile.

use cambium_base::Result;
use cambium_index::FlatSlots;

use super::{Piece, Table};
use crate::format;
use crate::seeded_bug::SeededBug;

impl Piece {
    /// The slots, to be changed. The caller has loaded the piece.
    pub(super) fn slots_to_change(&mut self) -> &mut FlatSlots {
        let slots = self
            .slots
            .as_mut()
            .expect("the writer loads a piece before it changes it");
        if self.due && self.set_aside.is_none() {
            self.set_aside = Some(slots.as_bytes().into());
        }
        self.dirty = true;
        slots
    }
}

impl Table {
    /// Brings a piece into memory. Reading happens outside the lock.
    pub fn load_piece(&self, piece: usize) -> Result<()> {
        let on_disk = {
            let state = self.piece(piece);
            if state.slots.is_some() {
                return Ok(());
            }
            state.on_disk
        };
        let mut read = self.read_piece(piece, on_disk);
        if self.seeded_bug.is(SeededBug::LoadRaceIsDamage) {
            read = Ok(read?);
        }
        let mut state = self.piece_mut(piece);
        // If another thread has loaded the piece, two checkpoints may have
        // written over the image since, and what was read here is not damage.
        if state.slots.is_none() {
            state.slots = Some(read?);
        }
        Ok(())
    }

    /// Reads the image of a piece that counts, for a check.
    pub fn verify_piece(&self, piece: usize) -> Result<()> {
        loop {
            let on_disk = self.piece(piece).on_disk;
            let read = self.read_piece(piece, on_disk);
            // Checkpoints may have written over the image since.
            if self.piece(piece).on_disk == on_disk {
                return read.map(|_| ());
            }
        }
    }

    /// Marks the pieces that differ from the disk as part of a checkpoint, and
    /// answers them. The caller holds the writer lock.
    pub fn begin_checkpoint(&self) -> Vec<usize> {
        let mut due = Vec::new();
        for piece in 0..self.piece_count() {
            if self.piece(piece).dirty {
                let mut state = self.piece_mut(piece);
                (state.dirty, state.due) = (false, true);
                due.push(piece);
            }
        }
        due
    }

    /// The slots of a marked piece as they were when the checkpoint began, and
    /// which image of it counts.
    pub fn take_image(&self, piece: usize) -> (u32, Box<[u8]>) {
        let mut state = self.piece_mut(piece);
        state.due = false;
        let slots = match state.set_aside.take() {
            Some(slots) => slots,
            None => state
                .slots
                .as_ref()
                .map_or_else(Box::default, |slots| slots.as_bytes().into()),
        };
        (state.on_disk, slots)
    }

    /// The checkpoint did not write the piece, or its image does not count.
    pub fn not_written(&self, piece: usize) {
        let mut state = self.piece_mut(piece);
        (state.dirty, state.due, state.set_aside) = (true, false, None);
    }

    /// Brings a piece into memory for a new entry, with space for both copies
    /// on the device: a checkpoint must not fail for lack of it later, when the
    /// entry is written.
    pub fn prepare_piece(&self, piece: usize) -> Result<()> {
        self.load_piece(piece)?;
        if self.piece(piece).reserved {
            return Ok(());
        }
        let offset = format::piece_offset(&self.shape, piece, 0);
        self.index_file
            .allocate(offset, 2 * u64::from(self.shape.piece_bytes))?;
        self.piece_mut(piece).reserved = true;
        Ok(())
    }

    /// Reads and verifies a piece as the catalog has it.
    pub fn read_piece(&self, piece: usize, on_disk: u32) -> Result<FlatSlots> {
        if on_disk == 0 {
            return Ok(FlatSlots::new(
                self.shape.slots,
                self.shape.slots_per_piece(),
            ));
        }
        let (generation, copy) = (on_disk >> 1, on_disk & 1);
        let offset = format::piece_offset(&self.shape, piece, copy);
        let mut bytes = vec![0; self.shape.piece_bytes as usize];
        self.index_file.read_exact_at(&mut bytes, offset)?;
        let slots = format::decode_piece(
            &self.shape,
            &self.seed,
            self.index_file.path(),
            offset,
            generation,
            piece,
            &bytes,
        )?;
        Ok(FlatSlots::from_bytes(self.shape.slots, slots))
    }

    /// Writes a piece's image to the copy that does not count, not yet
    /// synced; answers what the catalog is to hold.
    pub fn write_piece(
        &self,
        piece: usize,
        on_disk: u32,
        slots: &[u8],
        in_place: bool,
    ) -> Result<u32> {
        // Generations need only differ from those of the two copies.
        let generation = ((on_disk >> 1) + 1).max(1) & (u32::MAX >> 1);
        let generation = generation.max(1);
        let copy = if in_place {
            on_disk & 1
        } else {
            (on_disk & 1) ^ 1
        };
        let offset = format::piece_offset(&self.shape, piece, copy);
        let bytes = format::encode_piece(&self.shape, &self.seed, offset, generation, piece, slots);
        self.index_file.write_at(&bytes, offset)?;
        Ok(generation << 1 | copy)
    }
}
