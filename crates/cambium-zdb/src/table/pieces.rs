//! Pieces of a table's index between memory and disk: read and verified on
//! first touch, written to the copy that does not count.

use cambium_base::Result;
use cambium_index::FlatSlots;

use super::Table;
use crate::format;

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
        let slots = self.read_piece(piece, on_disk)?;
        let mut state = self.piece_mut(piece);
        if state.slots.is_none() && state.on_disk == on_disk {
            state.slots = Some(slots);
        }
        Ok(())
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
