//! Checkpoints: the index on the device catches up with the log.
//!
//! A checkpoint is fuzzy: writers go on while it runs.
//!
//! 1. Under the writer lock, note where each data file ends: replay will begin
//!    there, behind sequence number *r*.
//! 2. Copy each dirty piece of the index under its own lock. The copies hold
//!    everything up to *r* and some of what came later.
//! 3. Under the writer lock, hand over all buffers; the last number given out
//!    is *d*. Then sync all data files: everything the copies point at is
//!    durable **before** they are written (index never ahead of its log).
//! 4. Write the copies over the piece images that do not count, and sync.
//! 5. Write the superblock with the replay offsets, *r*, *d* and the pieces'
//!    new generations: the checkpoint counts from here.
//! 6. Commit logs whose frames are all at or below *d* are free again.
//!
//! A crash before 5 leaves the old catalog with its pieces and offsets intact;
//! after 5, replay finds everything up to *d* or reports damage.

use std::collections::HashMap;
use std::sync::Arc;

use cambium_base::{FileNumber, Result};
use cambium_io::sync::atomic::Ordering;

use crate::core::{Core, Maintenance, lock};
use crate::data_file::DataFile;
use crate::seeded_bug::SeededBug;
use crate::table::Table;

/// A piece's image on its way to the device.
struct Image {
    table: Arc<Table>,
    piece: usize,
    on_disk: u32,
    slots: Vec<u8>,
    /// What the catalog will hold.
    written: u32,
}

/// Where a data file ends, and what it holds up to there.
struct End {
    replay_from: u64,
    entries: u64,
    live: u64,
}

impl Core {
    /// Runs a checkpoint now; `Closed` where a close came before.
    pub fn checkpoint(&self) -> Result<()> {
        let mut maintenance = lock(&self.maintenance);
        self.health.check_open()?;
        self.checkpoint_locked(&mut maintenance, false)
    }

    /// Runs a checkpoint; with `clean` it is the last one of a close, and
    /// nobody writes any more.
    pub fn checkpoint_locked(&self, maintenance: &mut Maintenance, clean: bool) -> Result<()> {
        self.health.check_sound()?;
        self.checkpoint_due.store(false, Ordering::Release);
        if !self.session_begun.load(Ordering::Acquire) {
            return Ok(());
        }
        let (replay_sequence, ends) = self.note_ends();
        let mut images = self.copy_dirty_pieces();
        let result = self.checkpoint_files(maintenance, &mut images, replay_sequence, ends, clean);
        if result.is_err() {
            // The images did not get there: their pieces still differ.
            for image in &images {
                image.table.piece_mut(image.piece).dirty = true;
            }
            self.checkpoint_due.store(true, Ordering::Release);
        }
        result
    }

    fn note_ends(&self) -> (u64, HashMap<FileNumber, End>) {
        let writer = lock(&self.writer);
        let ends = self
            .open_tables()
            .iter()
            .flat_map(|table| table.current_files())
            .map(|file| {
                let end = End {
                    replay_from: file.log.end(),
                    entries: file.entries.load(Ordering::Relaxed),
                    live: file.live.load(Ordering::Relaxed),
                };
                (file.file.number, end)
            })
            .collect();
        (writer.next_sequence - 1, ends)
    }

    fn copy_dirty_pieces(&self) -> Vec<Image> {
        let mut images = Vec::new();
        for table in self.open_tables() {
            for piece in 0..table.piece_count() {
                if !table.piece(piece).dirty {
                    continue;
                }
                let mut state = table.piece_mut(piece);
                state.dirty = false;
                let Some(slots) = &state.slots else { continue };
                images.push(Image {
                    piece,
                    on_disk: state.on_disk,
                    slots: slots.as_bytes().to_vec(),
                    written: 0,
                    table: table.clone(),
                });
            }
        }
        images
    }

    fn checkpoint_files(
        &self,
        maintenance: &mut Maintenance,
        images: &mut [Image],
        replay_sequence: u64,
        mut ends: HashMap<FileNumber, End>,
        clean: bool,
    ) -> Result<()> {
        let durable_sequence = self.sync_data_files(clean, &mut ends)?;
        self.write_images(images)?;
        let before = maintenance.catalog.clone();
        let catalog = &mut maintenance.catalog;
        for image in images.iter() {
            if let Some(entry) = catalog.tables.get_mut(&image.table.number) {
                entry.pieces[image.piece] = image.written;
            }
        }
        for switched in &maintenance.switched {
            if let Some(entry) = catalog.tables.get_mut(&switched.table) {
                let data = &mut entry.files[switched.place as usize];
                data.file = switched.new;
                data.successor = None;
            }
        }
        for entry in catalog.tables.values_mut() {
            for data in &mut entry.files {
                if let Some(end) = ends.get(&data.file.number) {
                    data.replay_from = end.replay_from;
                    data.entries = end.entries;
                    data.live = end.live;
                }
            }
        }
        catalog.replay_sequence = if clean {
            durable_sequence
        } else {
            replay_sequence
        };
        catalog.durable_sequence = durable_sequence;
        catalog.buckets = self.buckets.count();
        catalog.string_keys = self.buckets.keys();
        catalog.clean = clean;
        catalog.traffic = self.counters.traffic();
        let payload = catalog.encode();
        // The clean mark goes to both copies: an older one would be replayed
        // from offsets that the next session has passed.
        let written = if clean {
            maintenance.superblock.write_both(&payload)
        } else {
            maintenance.superblock.write(&payload)
        };
        if let Err(error) = written {
            maintenance.catalog = before;
            return Err(self.unless_full(error));
        }
        for image in images.iter() {
            image.table.piece_mut(image.piece).on_disk = image.written;
        }
        self.free_commit_logs(durable_sequence);
        self.remove_switched(maintenance, &payload)?;
        self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Hands over and syncs everything written so far; answers the last
    /// sequence number of it.
    fn sync_data_files(&self, clean: bool, ends: &mut HashMap<FileNumber, End>) -> Result<u64> {
        let (durable_sequence, files) = {
            let mut writer = lock(&self.writer);
            let mut files = Vec::with_capacity(writer.dirty.len());
            for file in &writer.dirty {
                file.log.pad_to_block();
                if let Err(error) = file.log.flush() {
                    return Err(if error.is_no_space() {
                        error
                    } else {
                        self.poisoned(error)
                    });
                }
                if let Some(end) = ends.get_mut(&file.file.number).filter(|_| clean) {
                    end.replay_from = file.log.end();
                }
                files.push((file.clone(), file.log.end()));
            }
            writer.any_buffered = false;
            let other = 1 - writer.active_log;
            if writer.commit_logs[writer.active_log].in_use && !writer.commit_logs[other].in_use {
                writer.active_log = other;
                writer.commit_logs[other].log.rewind();
            }
            writer.bytes_since_checkpoint = 0;
            (writer.next_sequence - 1, files)
        };
        for (file, _) in &files {
            if self.has_bug(SeededBug::IndexAheadOfLog) {
                continue;
            }
            file.log.sync().map_err(|error| self.poisoned(error))?;
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        }
        self.forget_synced(&files, durable_sequence);
        Ok(durable_sequence)
    }

    /// Takes files off the list of unsynced ones, unless a writer has gone on
    /// in them: its bytes may not have been part of the sync.
    fn forget_synced(&self, files: &[(Arc<DataFile>, u64)], durable_sequence: u64) {
        let mut writer = lock(&self.writer);
        for (file, end) in files {
            if file.log.end() == *end {
                file.dirty.store(false, Ordering::Release);
                file.unlogged.store(false, Ordering::Release);
            }
        }
        writer
            .dirty
            .retain(|file| file.dirty.load(Ordering::Acquire));
        writer.synced_through = writer.synced_through.max(durable_sequence);
    }

    /// Writes the images to the copies that do not count, and syncs them.
    fn write_images(&self, images: &mut [Image]) -> Result<()> {
        let in_place = self.has_bug(SeededBug::PieceInPlace);
        for image in images.iter_mut() {
            let written =
                image
                    .table
                    .write_piece(image.piece, image.on_disk, &image.slots, in_place);
            image.written = match written {
                Ok(written) => written,
                Err(error) if error.is_no_space() => return Err(error),
                Err(error) => return Err(self.poisoned(error)),
            };
            self.counters
                .index_bytes
                .fetch_add(u64::from(self.shape.piece_bytes), Ordering::Relaxed);
        }
        let mut synced = None;
        for image in images.iter() {
            if synced != Some(image.table.number) {
                image
                    .table
                    .index_file
                    .sync_data()
                    .map_err(|error| self.poisoned(error))?;
                self.counters.syncs.fetch_add(1, Ordering::Relaxed);
                synced = Some(image.table.number);
            }
        }
        Ok(())
    }

    /// Removes the files that compactions have replaced, once neither copy of
    /// the superblock names them. Readers that still have them open keep them.
    fn remove_switched(&self, maintenance: &mut Maintenance, payload: &[u8]) -> Result<()> {
        if maintenance.switched.is_empty() {
            return Ok(());
        }
        let switched = std::mem::take(&mut maintenance.switched);
        maintenance
            .superblock
            .write(payload)
            .map_err(|error| self.unless_full(error))?;
        for place in switched {
            self.environment.file_system.remove(&place.old_path)?;
        }
        Ok(())
    }

    fn free_commit_logs(&self, durable_sequence: u64) {
        let mut writer = lock(&self.writer);
        let active = writer.active_log;
        for (number, log) in writer.commit_logs.iter_mut().enumerate() {
            if log.in_use && log.last_sequence <= durable_sequence {
                log.in_use = false;
                if number == active {
                    log.log.rewind();
                }
            }
        }
    }
}
