//! A batch of puts, the shortest way.
//!
//! Most batches of integer keys are runs: puts in ascending order, in one table,
//! not waiting for a sync. They need no plan: the records of each data file are
//! appended under one lock of its log, and the slots are set under the locks of
//! all pieces they lie in, held together. A reader meets all of the batch or
//! nothing of it, without old positions being kept for it. Whatever is out of
//! the ordinary is left to [`crate::commit`], whose order of steps this keeps.

use std::sync::Arc;

use cambium_api::{Operation, WriteBatch, Written};
use cambium_base::{Durability, Result, SequenceNumber};
use cambium_io::sync::atomic::Ordering;
use cambium_storage::record::{RecordHeader, most_record_bytes};

use crate::core::{Core, Writer, lock};
use crate::data_file::DataFile;
use crate::format::{ENTRY_PREFIX_BYTES, entry_prefix, kind};
use crate::seeded_bug::SeededBug;
use crate::table::Table;

/// Longer batches would keep readers of their pieces waiting.
const MOST_ENTRIES: usize = 1024;
/// Pieces whose locks are held together.
const MOST_PIECES: usize = 8;

/// A run of puts, and where it goes.
struct Run<'a> {
    entries: Vec<(u64, &'a [u8])>,
    table: Arc<Table>,
    files: Vec<Arc<DataFile>>,
}

impl Core {
    /// Writes a batch of integer keys; `None` where the ordinary way is
    /// needed, and nothing was done.
    pub fn write_directly(
        &self,
        batch: &WriteBatch,
        durability: Durability,
    ) -> Option<Result<SequenceNumber>> {
        if durability == Durability::Synced || !self.session_begun.load(Ordering::Acquire) {
            return None;
        }
        let entries = ascending_puts(batch)?;
        let answer = {
            let mut writer = lock(&self.writer);
            if writer.any_buffered && durability == Durability::Written {
                return None;
            }
            let run = self.run_of(entries)?;
            self.write_run(&mut writer, &run, durability, batch.bytes())
        };
        if self.checkpoint_due.load(Ordering::Acquire) {
            self.on_checkpoint_due();
        }
        Some(answer)
    }

    /// Where a run goes, if nothing has to be read, allocated or kept for it.
    fn run_of<'a>(&self, entries: Vec<(u64, &'a [u8])>) -> Option<Run<'a>> {
        let (first, last) = (entries.first()?.0, entries.last()?.0);
        if self.table_number(first) != self.table_number(last) || self.history.open_snapshots() > 0
        {
            return None;
        }
        self.with_open_table(first, |table| {
            let pieces = table.piece_of(first).0..=table.piece_of(last).0;
            let few = pieces.end() - pieces.start() < MOST_PIECES;
            (few && pieces
                .into_iter()
                .all(|piece| table.is_piece_prepared(piece)))
            .then(|| Run {
                table: table.clone(),
                files: table.current_files(),
                entries,
            })
        })?
    }

    fn write_run(
        &self,
        writer: &mut Writer,
        run: &Run<'_>,
        durability: Durability,
        user_bytes: u64,
    ) -> Result<SequenceNumber> {
        self.check_writable()?;
        let first = writer.next_sequence;
        let mut logged = 0;
        for place in 0..run.files.len() {
            let bytes = run
                .of_place(place)
                .map(|(_, (_, value))| {
                    let payload = (ENTRY_PREFIX_BYTES + value.len()) as u64;
                    most_record_bytes(payload, self.shape.alignment)
                })
                .sum::<u64>();
            if bytes > 0 {
                self.reserve_in(&run.files[place], bytes)?;
            }
            logged += bytes;
        }
        let mut positions = vec![0; run.entries.len()];
        let ends = self.append_run(writer, run, &mut positions);
        for (file, _) in &ends {
            self.mark_dirty(writer, file, false);
        }
        let handed_over = ends.iter().try_for_each(|(file, _)| match durability {
            Durability::Buffered if file.log.buffered_bytes() <= self.tuning.buffer_bytes => Ok(()),
            _ => file.log.flush(),
        });
        writer.any_buffered |= durability == Durability::Buffered;
        if let Err(error) = handed_over {
            return Err(self.take_back(writer, ends, error));
        }
        writer.next_sequence = first + run.entries.len() as u64;
        self.apply_run(run, first, &positions);
        self.note_progress(writer, logged, user_bytes);
        Ok(SequenceNumber(writer.next_sequence - 1))
    }

    /// Appends each file's records under one lock; answers where the files
    /// ended before.
    fn append_run(
        &self,
        writer: &Writer,
        run: &Run<'_>,
        positions: &mut [u64],
    ) -> Vec<(Arc<DataFile>, u64)> {
        let time = self.environment.clock.wall_nanoseconds();
        let count = run.entries.len();
        let mut ends = Vec::with_capacity(run.files.len());
        for (place, file) in run.files.iter().enumerate() {
            if run.of_place(place).next().is_none() {
                continue;
            }
            let end = file.log.append_several(|log| {
                for (index, (key, value)) in run.of_place(place) {
                    let header = RecordHeader {
                        kind: kind::PUT,
                        attempt: writer.attempt,
                        sequence: SequenceNumber(writer.next_sequence + index as u64),
                        synced_through: SequenceNumber(writer.synced_through),
                        session: writer.session,
                        batch_index: index as u32,
                        batch_remaining: (count - 1 - index) as u32,
                        ..RecordHeader::default()
                    };
                    let prefix = entry_prefix(time, *key);
                    positions[index] = log.append(&header, &[&prefix, value]).start;
                }
            });
            ends.push((file.clone(), end));
        }
        ends
    }

    fn apply_run(&self, run: &Run<'_>, first: u64, positions: &[u64]) {
        let _applying = lock(&self.apply);
        let keys = run.entries.iter().map(|(key, _)| Written::IntegerKey(*key));
        self.recent.note((first..).zip(keys));
        // A snapshot may have begun since it was asked for, but before this.
        if self.history.open_snapshots() > 0 {
            for (index, (key, _)) in run.entries.iter().enumerate() {
                let before = run.table.locate(*key).unwrap_or_default();
                self.history.keep(*key, first + index as u64, before);
            }
        }
        let last = first + run.entries.len() as u64 - 1;
        let added = self.point_at_run(run, last, positions);
        for (place, file) in run.files.iter().enumerate() {
            let count = run.of_place(place).count() as u64;
            file.entries.fetch_add(count, Ordering::Relaxed);
            file.live.fetch_add(added[place], Ordering::Relaxed);
        }
    }
}

impl Core {
    /// Points the slots at a run of entries, and publishes it.
    fn point_at_run(&self, run: &Run<'_>, last: u64, positions: &[u64]) -> Vec<u64> {
        let keys = || run.entries.iter().map(|(key, _)| *key);
        let forget = || keys().for_each(|key| self.cache.remove(key));
        let refresh = || {
            let entries = run.entries.iter();
            entries.for_each(|(key, value)| self.cache.update(*key, value));
        };
        let outside = self.has_bug(SeededBug::CacheOutsideLocks);
        let warm = self.cache.has_values();
        if outside && warm {
            forget();
        }
        let added = {
            let mut locked = run.table.lock_run(keys());
            // Values are cached by key alone, and read without these locks. All
            // old ones go before the first new one comes, so no reader meets one
            // key of the batch new and then another one old. Readers fill lines
            // under the lock of a key's piece: none is filled meanwhile.
            let warm = self.cache.has_values() && !outside;
            if warm {
                forget();
            }
            let added = locked.set(keys().zip(positions.iter().copied()));
            self.visible.fetch_max(last, Ordering::AcqRel);
            if warm {
                refresh();
            }
            added
        };
        if outside && warm {
            refresh();
        }
        added
    }
}

impl<'a> Run<'a> {
    /// The entries of one data file, with their places in the batch.
    fn of_place(&self, place: usize) -> impl Iterator<Item = (usize, &(u64, &'a [u8]))> {
        let table = &self.table;
        self.entries
            .iter()
            .enumerate()
            .filter(move |(_, (key, _))| table.place_of(*key) == place)
    }
}

/// The puts of a batch, if it has nothing else, and their keys ascend.
fn ascending_puts(batch: &WriteBatch) -> Option<Vec<(u64, &[u8])>> {
    if !(2..=MOST_ENTRIES).contains(&batch.len()) {
        return None;
    }
    let mut entries: Vec<(u64, &[u8])> = Vec::with_capacity(batch.len());
    for (namespace, operation) in batch.operations() {
        let (None, Operation::Put { key, value }) = (namespace, operation) else {
            return None;
        };
        let key = u64::from_be_bytes(key.as_slice().try_into().ok()?);
        if entries.last().is_some_and(|(before, _)| *before >= key) {
            return None;
        }
        entries.push((key, value));
    }
    Some(entries)
}
