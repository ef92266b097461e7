//! A flat table in memory: the pieces of its index and its data files.
//!
//! The index is private memory, read lazily piece by piece and verified on
//! first touch. Only checkpoints write it back, so it is never ahead of its
//! log on the device. A slot and the *generation* of the data file it points
//! into are read under one lock a piece, so that compaction can switch a table
//! to a new file piece by piece while reads go on: a reader sees the old
//! position with the old file, or the new with the new.

mod pieces;
mod ranges;
mod switch;

use std::sync::Arc;

use cambium_api::Seeded;
use cambium_base::checksum::ChecksumSeed;
use cambium_base::{Error, Result};
use cambium_index::{FlatSlots, Slot};
use cambium_io::File;
use cambium_io::sync::atomic::AtomicU64;
use cambium_io::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use cambium_storage::file_header::FileHeader;

use crate::catalog::{DataEntry, TableEntry};
use crate::core::{read, write};
use crate::data_file::{DataFile, Home, create_with_header};
use crate::format::{self, FORMAT_VERSION, FileRef, INDEX_MAGIC};
use crate::options::Shape;
use crate::seeded_bug::SeededBug;
use ranges::PiecesOfRanges;

/// An open flat table.
#[derive(Debug)]
pub(crate) struct Table {
    pub number: u64,
    /// The first key; the table covers `keys_per_table` from it.
    pub first_key: u64,
    pub index_file: Arc<dyn File>,
    pub shape: Shape,
    seed: ChecksumSeed,
    seeded_bug: Seeded<SeededBug>,
    pieces: Vec<RwLock<Piece>>,
    places: RwLock<Vec<Place>>,
    /// When it was last asked for, in ticks of the store.
    pub last_used: AtomicU64,
}

/// A piece of the index in memory.
#[derive(Debug)]
pub(crate) struct Piece {
    /// `None` until first touched.
    pub slots: Option<FlatSlots>,
    /// As in the catalog: 0 never written, else generation * 2 + copy.
    pub on_disk: u32,
    /// Differs from what is on disk.
    pub dirty: bool,
    /// Belongs to the checkpoint that is running, which has not copied it yet.
    due: bool,
    /// The slots as that checkpoint must write them, put aside by the first
    /// change since it began.
    set_aside: Option<Box<[u8]>>,
    /// Both copies have space on the device.
    pub reserved: bool,
    /// For each place, the data file its slots point into.
    pub homes: Vec<SlotHome>,
}

/// The data file that slots point into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotHome {
    /// How many files the place had before it since the table was opened.
    pub generation: u32,
    /// Its number.
    pub file: u64,
}

/// The data file at a place; two of them while a compaction switches over.
#[derive(Debug)]
struct Place {
    generation: u32,
    current: Arc<DataFile>,
    previous: Option<Arc<DataFile>>,
}

/// Where a key's entry lies.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    pub file: Arc<DataFile>,
    pub position: u64,
    /// Of the data file, at its place.
    pub generation: u32,
}

impl Table {
    /// Makes a table's files, not yet synced, and its catalog entry.
    pub fn create(
        home: &Home,
        number: u64,
        mut new_file: impl FnMut() -> FileRef,
    ) -> Result<(Table, TableEntry)> {
        let shape = &home.shape;
        let index = new_file();
        let index_file = create_index(home, number, index)?;
        let files = (0..shape.data_files)
            .map(|place| DataFile::create(home, new_file(), (number, place)).map(Arc::new))
            .collect::<Result<Vec<_>>>()?;
        let entry = TableEntry {
            index,
            pieces: vec![0; shape.pieces()],
            files: files
                .iter()
                .map(|file| DataEntry::of_new(file.file, format::first_offset(shape)))
                .collect(),
        };
        let table = Self::assemble(home, number, &entry, index_file, files);
        Ok((table, entry))
    }

    /// Opens a table of the catalog: headers only. A missing index file is
    /// `Err` of kind corruption naming it.
    pub fn open(home: &Home, number: u64, entry: &TableEntry) -> Result<Table> {
        let index_path = format::index_path(&home.folder, number, entry.index.number);
        if home.file_system.metadata(&index_path)?.is_none() {
            return Err(Error::corruption(
                index_path,
                0,
                "the index file is missing; opening the store for writing rebuilds it from the data files",
            ));
        }
        let index_file = home.file_system.open(&index_path, home.access())?;
        FileHeader::read(&*index_file, INDEX_MAGIC, FORMAT_VERSION)?
            .check_identity(&index_path, &home.identity(entry.index))?;
        let files = entry
            .files
            .iter()
            .enumerate()
            .map(|(place, data)| DataFile::open(home, data, (number, place as u32)).map(Arc::new))
            .collect::<Result<Vec<_>>>()?;
        Ok(Self::assemble(home, number, entry, index_file, files))
    }

    fn assemble(
        home: &Home,
        number: u64,
        entry: &TableEntry,
        index_file: Arc<dyn File>,
        files: Vec<Arc<DataFile>>,
    ) -> Table {
        let homes: Vec<SlotHome> = files
            .iter()
            .map(|file| SlotHome {
                generation: 0,
                file: file.file.number.0,
            })
            .collect();
        let pieces = entry
            .pieces
            .iter()
            .map(|&on_disk| {
                RwLock::new(Piece {
                    slots: None,
                    on_disk,
                    dirty: false,
                    due: false,
                    set_aside: None,
                    reserved: on_disk != 0,
                    homes: homes.clone(),
                })
            })
            .collect();
        let places = files
            .into_iter()
            .map(|current| Place {
                generation: 0,
                current,
                previous: None,
            })
            .collect();
        Table {
            number,
            first_key: number.saturating_mul(home.shape.keys_per_table),
            index_file,
            shape: home.shape,
            seed: ChecksumSeed::new(&home.identity(entry.index)),
            seeded_bug: home.seeded_bug,
            pieces,
            places: RwLock::new(places),
            last_used: AtomicU64::new(0),
        }
    }

    /// How many slots the table has.
    pub fn slot_count(&self) -> u64 {
        // The last table ends with the last key there is.
        self.shape
            .keys_per_table
            .min((u64::MAX - self.first_key).saturating_add(1))
    }

    /// The place of a key's data file.
    pub fn place_of(&self, key: u64) -> usize {
        (key % u64::from(self.shape.data_files)) as usize
    }

    /// The piece and the slot in it that belong to a key of this table.
    pub fn piece_of(&self, key: u64) -> (usize, usize) {
        let slot = (key - self.first_key) as usize;
        let per_piece = self.shape.slots_per_piece();
        (slot / per_piece, slot % per_piece)
    }

    /// The keys of this table whose slots are in the same piece; the very last
    /// key there is counts to none.
    pub fn keys_of_piece(&self, key: u64) -> std::ops::Range<u64> {
        let first = key - self.piece_of(key).1 as u64;
        let end = first.saturating_add(self.shape.slots_per_piece() as u64);
        // The last piece has slots beyond the table's end.
        first..end.min(self.first_key.saturating_add(self.slot_count()))
    }

    /// How many pieces there are.
    pub fn piece_count(&self) -> usize {
        self.pieces.len()
    }

    /// A piece, for reading.
    pub fn piece(&self, piece: usize) -> RwLockReadGuard<'_, Piece> {
        read(&self.pieces[piece])
    }

    /// A piece, for changing.
    pub fn piece_mut(&self, piece: usize) -> RwLockWriteGuard<'_, Piece> {
        write(&self.pieces[piece])
    }

    fn places(&self) -> RwLockReadGuard<'_, Vec<Place>> {
        read(&self.places)
    }

    /// The data file that takes new entries of a place.
    pub fn current_file(&self, place: usize) -> Arc<DataFile> {
        self.places()[place].current.clone()
    }

    /// All data files that take new entries.
    pub fn current_files(&self) -> Vec<Arc<DataFile>> {
        self.places()
            .iter()
            .map(|place| place.current.clone())
            .collect()
    }

    /// The data file of a generation, if it is still one of the two.
    fn file_of(&self, place: usize, generation: u32) -> Option<Arc<DataFile>> {
        let places = self.places();
        let place = &places[place];
        if generation == place.generation {
            Some(place.current.clone())
        } else if generation + 1 == place.generation {
            place.previous.clone()
        } else {
            None
        }
    }

    /// Where the entry of a key of this table lies; `None` if it has none.
    /// Reads the piece of the index on first touch.
    pub fn locate(&self, key: u64) -> Result<Option<Location>> {
        let (piece, slot) = self.piece_of(key);
        let place = self.place_of(key);
        loop {
            let (found, generation) = {
                let state = self.piece(piece);
                match &state.slots {
                    Some(slots) => (slots.get(slot), state.homes[place].generation),
                    None if state.on_disk == 0 => return Ok(None),
                    None => {
                        drop(state);
                        self.load_piece(piece)?;
                        continue;
                    }
                }
            };
            let Slot::Position(position) = found else {
                return Ok(None);
            };
            // A compaction may have finished since: then look again.
            if let Some(file) = self.file_of(place, generation) {
                return Ok(Some(Location {
                    file,
                    position,
                    generation,
                }));
            }
        }
    }

    /// Shows what the slot of a key says, and which data file it means, under
    /// the shared lock of its piece, if the piece is in memory.
    pub fn with_slot<R>(&self, key: u64, look: impl FnOnce(Slot, SlotHome) -> R) -> Option<R> {
        let (piece, slot) = self.piece_of(key);
        let state = self.piece(piece);
        let slots = state.slots.as_ref()?;
        Some(look(slots.get(slot), state.homes[self.place_of(key)]))
    }

    /// True if a new entry of a key needs no reading and no allocating before.
    pub fn is_prepared(&self, key: u64) -> bool {
        let state = self.piece(self.piece_of(key).0);
        state.slots.is_some() && state.reserved
    }

    /// Bytes of the index that are in memory, and those of the whole range.
    pub fn index_bytes(&self) -> (u64, u64) {
        let loaded = (0..self.pieces.len())
            .filter(|&piece| self.piece(piece).slots.is_some())
            .count() as u64;
        let per_piece = (self.shape.slots_per_piece() * self.shape.slots.bytes()) as u64;
        (
            loaded * per_piece,
            self.slot_count() * self.shape.slots.bytes() as u64,
        )
    }

    /// True if any piece differs from what is on disk.
    pub fn has_dirty_pieces(&self) -> bool {
        (0..self.pieces.len()).any(|piece| self.piece(piece).dirty)
    }
}

/// Exclusive locks of pieces, of any tables, held together: readers see either no change
/// that is made under them, or all of them. Every other thread holds one at a time.
#[derive(Default)]
pub(crate) struct LockedPieces<'a> {
    last: Option<(&'a Table, usize, RwLockWriteGuard<'a, Piece>)>,
    others: Vec<RwLockWriteGuard<'a, Piece>>,
    of_ranges: PiecesOfRanges<'a>,
}

impl<'a> LockedPieces<'a> {
    /// Points a key at its entry, or at none; answers what its slot said before. Keys come in
    /// ascending order. The key's piece must be in memory, and is locked from now on.
    pub fn set(&mut self, table: &'a Table, key: u64, value: Slot) -> Slot {
        let (piece, slot) = table.piece_of(key);
        let is_last = |(last, number, _): &&mut (&Table, usize, _)| {
            std::ptr::eq(*last, table) && *number == piece
        };
        if self.last.as_mut().filter(is_last).is_none() {
            if let Ok(known) = self.find_of_ranges(table, piece) {
                let slots = self.of_ranges[known].1.slots_to_change();
                let before = slots.get(slot);
                slots.set(slot, value);
                return before;
            }
            let next = (table, piece, table.piece_mut(piece));
            self.others
                .extend(self.last.replace(next).map(|(.., held)| held));
        }
        let (.., state) = self.last.as_mut().expect("locked above");
        let slots = state.slots_to_change();
        let before = slots.get(slot);
        slots.set(slot, value);
        before
    }
}

/// Makes a table's index file with its header, not yet synced.
pub(crate) fn create_index(home: &Home, number: u64, index: FileRef) -> Result<Arc<dyn File>> {
    let path = format::index_path(&home.folder, number, index.number);
    let identity = home.identity(index);
    let mut header = FileHeader::new(
        INDEX_MAGIC,
        FORMAT_VERSION,
        home.shape.block_bytes,
        identity,
    );
    header.parameters = [number, 0];
    let first = format::first_offset(&home.shape);
    create_with_header(&*home.file_system, &path, &header, first)
}
