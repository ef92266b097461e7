//! Checkpoints: the index on the device catches up with the log, or the data files with
//! the commit logs.
//!
//! # The index
//!
//! Writers go on while a checkpoint runs, and yet it is exact: index, offsets and
//! counts are those after sequence number *r*, no earlier and no later.
//!
//! 1. Under the writer lock, note *r*, where each data file ends (replay begins
//!    there), and every count; mark the pieces of the index that differ from the
//!    disk. From now on the first change of a marked piece puts its old slots
//!    aside (`table/pieces.rs`).
//! 2. Under the writer lock, hand over all buffers; the last number given out
//!    is *d*. Then sync all data files: everything the index points at is
//!    durable **before** it is written (index never ahead of its log).
//! 3. Write the marked pieces, one at a time, over the images that do not count,
//!    and sync.
//! 4. Write the superblock with the replay offsets, *r*, *d*, the counts and the
//!    pieces' new generations: the checkpoint counts from here.
//! 5. Commit logs whose frames are all at or below *d* are free again.
//!
//! A crash before 4 leaves the old catalog with its pieces and offsets intact;
//! after 4, replay finds everything up to *d* or reports damage. The counts must
//! be those at *r*, since replay adds what every later entry changes.
//!
//! # The commit logs
//!
//! Small synced writes fill a commit log long before much of the index has changed: each
//! takes a block there, and each key another piece of the index. A full commit log takes
//! steps 2, 4 and 5 alone, with the pieces and replay offsets of the last checkpoint. Replay
//! then finds in the data files what the commit log had. With step 2 a data file gets the
//! keys of these entries, in a block of their own: where an entry is damaged later, neither a
//! commit log nor the index could tell which key has lost its newest value.

use std::collections::HashMap;
use std::sync::Arc;

use cambium_base::{FileNumber, Result};
use cambium_io::sync::atomic::Ordering;

use crate::core::{Core, Maintenance, lock};
use crate::data_file::DataFile;
use crate::seeded_bug::SeededBug;
use crate::table::Table;

/// A piece of the index that a checkpoint writes.
struct Image {
    table: Arc<Table>,
    piece: usize,
    /// What the catalog will hold.
    written: u32,
}

/// Where a data file ends, and what it holds up to there.
struct End {
    replay_from: u64,
    entries: u64,
    live: u64,
}

/// The moment that a checkpoint makes durable.
struct Moment {
    /// The last sequence number before it.
    sequence: u64,
    ends: HashMap<FileNumber, End>,
    buckets: u64,
    string_keys: u64,
    /// The pieces that differ from the disk.
    images: Vec<Image>,
}

impl Core {
    /// Runs a checkpoint now; `Closed` where a close came before.
    pub fn checkpoint(&self) -> Result<()> {
        self.write_index(&mut lock(&self.maintenance))
    }

    fn write_index(&self, maintenance: &mut Maintenance) -> Result<()> {
        self.health.check_open()?;
        if self.has_obsolete_history() {
            self.begin_session_locked(maintenance)?;
        }
        self.checkpoint_locked(maintenance, false)
    }

    /// True if the index is to be written, or the commit logs are to be emptied.
    pub fn is_checkpoint_due(&self) -> bool {
        self.index_due.load(Ordering::Acquire) || self.commit_log_due.load(Ordering::Acquire)
    }

    /// Runs the checkpoint that is due: of the index, or of the commit logs alone. False if
    /// none is.
    pub fn checkpoint_if_due(&self) -> Result<bool> {
        if !self.is_checkpoint_due() {
            return Ok(false);
        }
        // An index that another thread failed to write goes first: it knows keys that no data
        // file has.
        let mut maintenance = lock(&self.maintenance);
        if self.index_due.load(Ordering::Acquire) {
            self.write_index(&mut maintenance)?;
        } else if self.commit_log_due.load(Ordering::Acquire) {
            self.health.check_open()?;
            self.empty_commit_logs(&mut maintenance)?;
        }
        Ok(true)
    }

    /// Makes the data files durable, so that the commit logs are free again.
    fn empty_commit_logs(&self, maintenance: &mut Maintenance) -> Result<()> {
        self.health.check_sound()?;
        self.commit_log_due.store(false, Ordering::Release);
        let synced = match self.has_bug(SeededBug::CommitLogEmptiedEarly) {
            true => Ok(lock(&self.writer).next_sequence - 1),
            false => self.sync_data_files(None),
        };
        let emptied = synced.and_then(|durable_sequence| {
            maintenance.catalog.durable_sequence = durable_sequence;
            self.health.check_sound()?;
            let written = maintenance.write_catalog();
            written.map_err(|error| self.health.unless_full(error))?;
            self.free_commit_logs(durable_sequence);
            Ok(())
        });
        if emptied.is_err() {
            self.commit_log_due.store(true, Ordering::Release);
        }
        emptied
    }

    /// Runs a checkpoint; with `clean` it is the last one of a close, and
    /// all writers have ended.
    pub fn checkpoint_locked(&self, maintenance: &mut Maintenance, clean: bool) -> Result<()> {
        self.health.check_sound()?;
        self.index_due.store(false, Ordering::Release);
        self.commit_log_due.store(false, Ordering::Release);
        if !self.session_begun.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut moment = self.begin_moment();
        let written = self.write_moment(maintenance, &mut moment, clean);
        if written.is_err() {
            for image in &moment.images {
                image.table.not_written(image.piece);
            }
        }
        let result = written.and_then(|durable_sequence| {
            self.free_commit_logs(durable_sequence);
            self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
            cambium_io::events::flushed("zdb", &self.path);
            self.remove_obsolete(maintenance)
        });
        if result.is_err() {
            self.index_due.store(true, Ordering::Release);
        }
        result
    }

    fn begin_moment(&self) -> Moment {
        // Every number given out has been applied: writers apply under this lock.
        let mut writer = lock(&self.writer);
        writer.bytes_since_checkpoint = 0;
        writer.framed.clear();
        let tables = self.open_tables();
        let files = tables.iter().flat_map(|table| table.current_files());
        let sequence = writer.next_sequence - 1;
        let ends = files.map(|file| {
            file.settle(sequence);
            let end = End {
                replay_from: file.log.end(),
                entries: file.entries.load(Ordering::Relaxed),
                live: file.live.load(Ordering::Relaxed),
            };
            (file.file.number, end)
        });
        let images = tables.iter().flat_map(|table| {
            let due = table.begin_checkpoint().into_iter();
            due.map(|piece| Image {
                table: table.clone(),
                piece,
                written: 0,
            })
        });
        Moment {
            ends: ends.collect(),
            images: images.collect(),
            sequence,
            buckets: self.buckets.count(),
            string_keys: self.buckets.keys(),
        }
    }

    /// Writes a moment to the device; answers up to which sequence number
    /// everything is durable now.
    fn write_moment(
        &self,
        maintenance: &mut Maintenance,
        moment: &mut Moment,
        clean: bool,
    ) -> Result<u64> {
        let settled = clean.then_some(&mut moment.ends);
        let durable_sequence = self.sync_data_files(settled)?;
        // Either copy may be lost, also while images are written over: both name those that count.
        if !moment.images.is_empty() && maintenance.has_one_copy {
            let written = maintenance.write_catalog();
            written.map_err(|error| self.health.unless_full(error))?;
            maintenance.has_one_copy = false;
        }
        self.write_images(&mut moment.images)?;
        let before = maintenance.catalog.clone();
        let catalog = &mut maintenance.catalog;
        for image in &moment.images {
            if let Some(entry) = catalog.tables.get_mut(&image.table.number) {
                entry.pieces[image.piece] = image.written;
            }
        }
        for switched in &maintenance.switched {
            if let Some(entry) = catalog.tables.get_mut(&switched.table) {
                let data = &mut entry.files[switched.place as usize];
                data.file = switched.new;
                data.copies_through = switched.copies_through;
                data.last_sequence = moment.sequence;
                data.successor = None;
            }
        }
        for entry in catalog.tables.values_mut() {
            for data in &mut entry.files {
                if let Some(end) = moment.ends.get(&data.file.number) {
                    if data.replay_from != end.replay_from {
                        data.last_sequence = moment.sequence;
                    }
                    data.replay_from = end.replay_from;
                    data.entries = end.entries;
                    data.live = end.live;
                }
            }
        }
        catalog.replay_sequence = moment.sequence;
        catalog.durable_sequence = durable_sequence;
        (catalog.buckets, catalog.string_keys) = match self.has_bug(SeededBug::CountsOfLater) {
            true => (self.buckets.count(), self.buckets.keys()),
            false => (moment.buckets, moment.string_keys),
        };
        catalog.clean = clean;
        let obsolete = self.settle_past(catalog);
        maintenance.obsolete.extend(obsolete);
        catalog.traffic = self.counters.traffic();
        if let Err(failed) = self.health.check_sound() {
            maintenance.catalog = before;
            return Err(failed);
        }
        // The clean mark goes to both copies: an older one would be replayed
        // from offsets that the next session has passed.
        let written = if clean {
            maintenance.write_catalog_twice()
        } else {
            maintenance.write_catalog()
        };
        if let Err(error) = written {
            maintenance.catalog = before;
            return Err(self.health.unless_full(error));
        }
        maintenance.has_one_copy = !clean;
        for image in &moment.images {
            image.table.piece_mut(image.piece).on_disk = image.written;
        }
        Ok(durable_sequence)
    }

    /// Hands over and syncs everything written so far; answers the last
    /// sequence number of it. `settled` gets the ends that the files have then, where all
    /// writers have ended.
    fn sync_data_files(&self, mut settled: Option<&mut HashMap<FileNumber, End>>) -> Result<u64> {
        let (durable_sequence, files) = {
            let mut writer = lock(&self.writer);
            // A writer whose sync failed has taken its files off the list.
            self.health.check_sound()?;
            self.append_framed_keys(&mut writer)?;
            let mut files = Vec::with_capacity(writer.dirty.len());
            for file in &writer.dirty {
                file.log.pad_to_block();
                if let Err(error) = file.log.flush() {
                    return Err(if error.is_no_space() {
                        error
                    } else {
                        self.health.poison(error)
                    });
                }
                let end = settled.as_mut();
                if let Some(end) = end.and_then(|ends| ends.get_mut(&file.file.number)) {
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
            (writer.next_sequence - 1, files)
        };
        for (file, _) in &files {
            if self.has_bug(SeededBug::IndexAheadOfLog) {
                continue;
            }
            self.sync_file(file)?;
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
        self.note_synced(&mut writer, durable_sequence);
    }

    /// Writes the images to the copies that do not count, and syncs them.
    fn write_images(&self, images: &mut [Image]) -> Result<()> {
        let in_place = self.has_bug(SeededBug::PieceInPlace);
        for image in images.iter_mut() {
            let (on_disk, slots) = image.table.take_image(image.piece);
            let written = image
                .table
                .write_piece(image.piece, on_disk, &slots, in_place);
            image.written = match written {
                Ok(written) => written,
                Err(error) if error.is_no_space() => return Err(error),
                Err(error) => return Err(self.health.poison(error)),
            };
            self.counters
                .index_bytes
                .fetch_add(u64::from(self.shape.piece_bytes), Ordering::Relaxed);
            self.environment
                .pay_for_background(u64::from(self.shape.piece_bytes));
        }
        let mut synced = None;
        for image in images.iter() {
            if synced != Some(image.table.number) {
                image
                    .table
                    .index_file
                    .sync_data()
                    .map_err(|error| self.health.poison(error))?;
                self.counters.syncs.fetch_add(1, Ordering::Relaxed);
                synced = Some(image.table.number);
            }
        }
        Ok(())
    }

    /// Removes the files that compactions have replaced and no consumer needs, once
    /// neither copy of the superblock names them. Readers that still have them open keep
    /// them.
    fn remove_obsolete(&self, maintenance: &mut Maintenance) -> Result<()> {
        if maintenance.obsolete.is_empty() {
            maintenance.switched.clear();
            return Ok(());
        }
        maintenance
            .write_catalog()
            .map_err(|error| self.health.unless_full(error))?;
        maintenance.switched.clear();
        let obsolete = std::mem::take(&mut maintenance.obsolete);
        let files = &self.environment.file_system;
        obsolete.iter().try_for_each(|path| files.remove(path))
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
