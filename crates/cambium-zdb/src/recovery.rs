//! Recovery: what a store that was not closed holds.
//!
//! From the catalog's replay offsets, every data file's tail and both commit
//! logs are read. Let *r* be the catalog's replay sequence and *s* the largest
//! `synced_through` found anywhere.
//!
//! 1. Records of an attempt that was taken back for lack of space are left out.
//! 2. Whole batches that follow *r* without a gap are accepted; the first gap
//!    or part of a batch ends them at the *cut*.
//! 3. If the cut lies below *s*, something that was promised is missing: that
//!    is damage, and the open fails, naming the place.
//! 4. A new session is written to the superblock. Each file goes on at the
//!    block after its last accepted record. Where anything else lies after its last
//!    accepted record before a hole, a `CUT` record says so, for a rebuild of the
//!    index from the log alone.
//! 5. Entries that only a commit log (or the successor of a compaction) has
//!    are appended to their data files, and after them entries that lie behind their
//!    places: sequence numbers ascend along a file. Slots are set in sequence order.
//! 6. A checkpoint under the new session makes all of it durable before the
//!    first write is taken; records of the old session beyond the cut never
//!    count again. Numbering goes on far above what may have been lost.
//!
//! A crash in 4 to 6 leaves the old catalog; the next recovery reads the same
//! tails, takes a session of its own, and comes to the same cut. So 4 to 6 overwrite no
//! accepted record, also none after a hole.

use std::collections::BTreeMap;
use std::sync::Arc;

use cambium_api::ProgressSink;
use cambium_base::{Error, Result, SequenceNumber};
use cambium_index::Slot;
use cambium_io::sync::atomic::Ordering;
use cambium_storage::record::RecordHeader;
use cambium_storage::replay::write_again;

use crate::catalog::UNCOUNTED;
use crate::changes::past::Cut;
use crate::core::{Core, lock};
use crate::data_file::DataFile;
use crate::format::{FLAG_SPLIT, entry_prefix, kind};
use crate::seeded_bug::SeededBug;
use crate::table::{LockedPieces, Table};
use crate::tails::{Fault, Found, Source, Tails};

/// Sequence numbers go on at the next multiple of this after a crash: more
/// than can have been given out and lost, so none is given twice.
pub(crate) const SEQUENCE_EPOCH: u64 = 1 << 32;

/// What the tails come to.
pub(crate) struct Accepted {
    /// In the order of their sequence numbers.
    pub entries: Vec<Found>,
    /// The last accepted sequence number.
    pub cut: u64,
    /// The largest number that was promised durable.
    pub promised: u64,
}

impl Accepted {
    /// How many string keys come, less those that go.
    pub fn string_keys(&self) -> i64 {
        let entries = self.entries.iter();
        entries.map(|found| i64::from(found.auxiliary as i32)).sum()
    }

    /// Bytes of the accepted records that lie in data files.
    pub fn bytes(&self) -> u64 {
        let records = self.entries.iter().map(|found| match found.source {
            Source::Primary { offset, end, .. } => end - offset,
            Source::Saved { .. } => 0,
        });
        records.sum()
    }

    /// How many entries were accepted.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

impl Core {
    /// Recovers the store. Called by `open`, before anyone else has it.
    pub fn recover(&self, progress: &dyn ProgressSink) -> Result<()> {
        let (tails, accepted) = self.read_accepted(progress)?;
        self.begin_recovery_session()?;
        self.replay(&tails, &accepted)?;
        drop(tails);
        self.finish_recovery(accepted.cut)?;
        self.close_tables_beyond_limit();
        cambium_io::events::recovered("zdb", &self.path, accepted.cut);
        Ok(())
    }

    /// The same in memory alone, for an opening that writes nothing: values that are in no
    /// data file stay in the files' buffers.
    pub fn recover_in_memory(&self, progress: &dyn ProgressSink) -> Result<()> {
        let (tails, accepted) = self.read_accepted(progress)?;
        self.replay(&tails, &accepted)?;
        drop(tails);
        self.visible.store(accepted.cut, Ordering::Release);
        let synced = accepted.promised.min(accepted.cut);
        self.synced.fetch_max(synced, Ordering::AcqRel);
        self.close_tables_beyond_limit();
        cambium_io::events::recovered("zdb", &self.path, accepted.cut);
        Ok(())
    }

    fn read_accepted(&self, progress: &dyn ProgressSink) -> Result<(Tails, Accepted)> {
        let mut tails = self.read_tails(progress, false)?;
        let mut accepted = self.accept(&tails)?;
        self.refuse_missing(&tails, &accepted)?;
        tails.save_out_of_order(&mut accepted.entries, |key| {
            let place = key % u64::from(self.shape.data_files);
            (self.table_number(key), place)
        })?;
        Ok((tails, accepted))
    }

    /// Decides which of the found entries count.
    pub fn accept(&self, tails: &Tails) -> Result<Accepted> {
        Ok(match self.has_bug(SeededBug::TornTailKept) {
            true => tails.accept_all(),
            false => tails.accept_whole_batches(self.has_bug(SeededBug::BatchSplit)),
        })
    }

    /// Fails if something is missing that was promised.
    fn refuse_missing(&self, tails: &Tails, accepted: &Accepted) -> Result<()> {
        if accepted.cut >= accepted.promised {
            return Ok(());
        }
        let what = format!(
            "entry {} is missing, and entries up to {} were synced",
            accepted.cut + 1,
            accepted.promised
        );
        Err(match tails.faults.first() {
            Some(Fault { file, fault }) => {
                Error::corruption(file, fault.offset, format!("{}; {what}", fault.reason))
            }
            None => Error::corruption(&self.path, 0, what),
        })
    }

    /// Takes a session number that no crashed recovery has used.
    fn begin_recovery_session(&self) -> Result<()> {
        let mut maintenance = lock(&self.maintenance);
        if !self.has_bug(SeededBug::EpochReused) {
            maintenance.catalog.last_session += 1;
        }
        maintenance
            .write_catalog()
            .map_err(|error| self.health.unless_full(error))?;
        lock(&self.writer).session = maintenance.catalog.last_session;
        Ok(())
    }

    /// Brings files and slots to the accepted state.
    fn replay(&self, tails: &Tails, accepted: &Accepted) -> Result<()> {
        self.cut_files(tails, accepted)?;
        let session = lock(&self.writer).session;
        let (mut buckets, mut more_keys) = (self.buckets.count(), 0);
        for found in &accepted.entries {
            let number = self.table_number(found.key);
            let table = match tails.tables.get(&number) {
                Some(table) => Some(table.clone()),
                None => self.table(number)?,
            };
            let Some(table) = table else {
                return Err(Error::corruption(
                    &self.path,
                    0,
                    format!(
                        "entry {} is of key {}, and there is no table {number}",
                        found.sequence, found.key
                    ),
                ));
            };
            let (file, position) = match found.source {
                Source::Primary { file, offset, .. } => (tails.files[file].clone(), offset),
                Source::Saved { value, .. } => {
                    self.append_saved(&table, found, &tails.values[value], session)?
                }
            };
            let keys = (found.key, found.last);
            if found.kind == kind::DELETE_RANGE {
                table.load_within(keys.0, keys.1)?;
                let place = table.place_of(found.key);
                let deleted = LockedPieces::default().delete_range(&table, keys, place);
                file.count_range(deleted);
            } else {
                table.load_piece(table.piece_of(found.key).0)?;
                let slot = match found.kind {
                    kind::PUT => Slot::Position(position),
                    _ => Slot::Deleted,
                };
                let before = LockedPieces::default().set(&table, found.key, slot);
                file.count_entry(before, slot);
            }
            more_keys += i64::from(found.auxiliary as i32);
            if found.flags & FLAG_SPLIT != 0 {
                buckets = buckets.max(found.key + 1);
            }
        }
        let keys = match self.buckets.keys() {
            UNCOUNTED => UNCOUNTED,
            known => known.saturating_add_signed(more_keys),
        };
        self.buckets.recovered(buckets, keys);
        self.counters
            .replayed
            .fetch_add(accepted.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Lets each file go on after its last accepted record, and writes what that takes where
    /// the store may be written. The file's own records end at its first hole; accepted
    /// records after the hole stay until the checkpoint, for a recovery after a crash of this
    /// one.
    fn cut_files(&self, tails: &Tails, accepted: &Accepted) -> Result<()> {
        let mut ends: Vec<u64> = tails.files.iter().map(|file| file.log.end()).collect();
        let mut kept = ends.clone();
        let mut counted = vec![0usize; ends.len()];
        let overwrites = self.has_bug(SeededBug::HoleOverwritten);
        for found in &accepted.entries {
            match found.source {
                Source::Primary { file, end, .. } => {
                    ends[file] = ends[file].max(end);
                    counted[file] += 1;
                }
                Source::Saved {
                    behind_hole: Some((file, end)),
                    ..
                } if !overwrites => kept[file] = kept[file].max(end),
                Source::Saved { .. } => {}
            }
        }
        let mut met = vec![0usize; ends.len()];
        for found in &tails.found {
            if let Source::Primary { file, .. } = found.source {
                met[file] += 1;
            }
        }
        let mut writer = lock(&self.writer);
        for (number, file) in tails.files.iter().enumerate() {
            let (end, kept) = (ends[number], kept[number].max(ends[number]));
            let untidy = tails.untidy[number];
            if !self.home.writable {
                file.log.resume_at(kept);
                self.note_cut(file, end, untidy || met[number] != counted[number]);
                continue;
            }
            write_again(&**file.log.file(), file.log.end(), end)?;
            wipe_to_block(file, kept)?;
            file.log.resume_at(kept);
            if counted[number] > 0 {
                // What survived a killed process is not on the device yet.
                mark_dirty(&mut writer.dirty, file);
            }
            let untidy = untidy || met[number] != counted[number];
            self.note_cut(file, end, untidy);
            if untidy {
                let header = RecordHeader {
                    kind: kind::CUT,
                    sequence: SequenceNumber(accepted.cut),
                    synced_through: SequenceNumber(accepted.promised),
                    session: writer.session,
                    ..RecordHeader::default()
                };
                file.log.reserve_last(64)?;
                file.log.append(&header, &[&end.to_le_bytes()]);
                mark_dirty(&mut writer.dirty, file);
            }
        }
        Ok(())
    }

    /// Notes for the change feed that the records from `end` to where the file goes on do
    /// not count.
    fn note_cut(&self, file: &DataFile, end: u64, untidy: bool) {
        if untidy {
            lock(&self.past).cuts.push(Cut {
                file: file.file.number,
                from: end,
                to: file.log.end(),
            });
        }
    }

    fn append_saved(
        &self,
        table: &Table,
        found: &Found,
        (time, value): &(u64, Vec<u8>),
        session: u32,
    ) -> Result<(Arc<DataFile>, u64)> {
        let file = table.current_file(table.place_of(found.key));
        let header = RecordHeader {
            kind: found.kind,
            flags: found.flags,
            sequence: SequenceNumber(found.sequence),
            session,
            batch_index: found.batch_index,
            batch_remaining: found.batch_remaining,
            auxiliary: found.auxiliary,
            ..RecordHeader::default()
        };
        let prefix = entry_prefix(*time, found.key);
        let bytes = (header_and(value.len()) + prefix.len()) as u64 + self.shape.alignment;
        if self.home.writable {
            file.log.reserve_last(bytes)?;
        }
        let position = file.log.append(&header, &[&prefix, value]).start;
        mark_dirty(&mut lock(&self.writer).dirty, &file);
        Ok((file, position))
    }

    /// Makes the recovered state durable under the new session.
    fn finish_recovery(&self, cut: u64) -> Result<()> {
        let base = match self.has_bug(SeededBug::EpochReused) {
            true => cut,
            false => (cut / SEQUENCE_EPOCH + 1) * SEQUENCE_EPOCH,
        };
        {
            let mut writer = lock(&self.writer);
            writer.next_sequence = base + 1;
            writer.synced_through = 0;
        }
        self.visible.store(base, Ordering::Release);
        self.session_begun.store(true, Ordering::Release);
        let mut maintenance = lock(&self.maintenance);
        let session = lock(&self.writer).session;
        let catalog = &mut maintenance.catalog;
        catalog.session = session;
        let successors: Vec<_> = catalog
            .tables
            .iter_mut()
            .flat_map(|(&table, entry)| {
                entry
                    .files
                    .iter_mut()
                    .enumerate()
                    .filter_map(move |(place, data)| {
                        let (file, _) = data.successor.take()?;
                        Some((table, place as u32, file))
                    })
            })
            .collect();
        self.checkpoint_locked(&mut maintenance, false)?;
        // Losing the newest copy later must not bring the old session back.
        maintenance
            .write_catalog()
            .map_err(|error| self.health.unless_full(error))?;
        for (table, place, file) in successors {
            let path = crate::format::data_path(&self.path, table, place, file.number);
            if self.environment.file_system.metadata(&path)?.is_some() {
                self.environment.file_system.remove(&path)?;
            }
        }
        Ok(())
    }
}

impl Tails {
    /// The whole batches that follow the last checkpoint without a gap.
    pub fn accept_whole_batches(&self, split_allowed: bool) -> Accepted {
        let mut accepted = self.accept_all();
        let entries = &mut accepted.entries;
        entries.truncate(whole_batches(entries, self.replay_sequence, split_allowed));
        accepted.cut = entries
            .last()
            .map_or(self.replay_sequence, |last| last.sequence);
        accepted
    }

    /// All entries, across gaps and parts of batches.
    fn accept_all(&self) -> Accepted {
        let entries = self.found_to_replay();
        Accepted {
            cut: entries
                .last()
                .map_or(self.replay_sequence, |last| last.sequence),
            promised: self.promised(),
            entries,
        }
    }

    /// The largest sequence number that was promised durable.
    pub fn promised(&self) -> u64 {
        self.synced_through.max(self.durable_sequence)
    }

    /// The entries after the replay sequence number, each once, in order.
    pub fn found_to_replay(&self) -> Vec<Found> {
        let begun = attempts_begin(&self.found);
        let mut found: Vec<Found> = self
            .found
            .iter()
            .filter(|found| found.sequence > self.replay_sequence)
            .filter(|found| {
                let later = begun.range(found.attempt.saturating_add(1)..);
                found.attempt == u16::MAX
                    || !later.into_iter().any(|(_, &first)| first <= found.sequence)
            })
            .copied()
            .collect();
        // An entry's own file before the places it was saved in.
        found.sort_by_key(|found| (found.sequence, matches!(found.source, Source::Saved { .. })));
        found.dedup_by_key(|found| found.sequence);
        found
    }
}

/// For each attempt above the first, where it began: what earlier attempts
/// wrote from there on was taken back.
fn attempts_begin(found: &[Found]) -> BTreeMap<u16, u64> {
    let mut begun = BTreeMap::new();
    for found in found.iter().filter(|found| found.attempt > 0) {
        let first = found.sequence - u64::from(found.batch_index);
        let known = begun.entry(found.attempt).or_insert(first);
        *known = first.min(*known);
    }
    begun
}

/// How many of the sorted entries form whole batches without a gap.
fn whole_batches(found: &[Found], after: u64, split_allowed: bool) -> usize {
    let mut accepted = 0;
    loop {
        let expected = after + 1 + accepted as u64;
        let rest = &found[accepted..];
        if let Some(size) = whole_batch(rest, expected) {
            accepted += size;
        } else if split_allowed && rest.first().is_some_and(|entry| entry.sequence == expected) {
            accepted += 1;
        } else {
            return accepted;
        }
    }
}

/// How many entries the batch has that begins with this sequence number, if all
/// of it is at the head of the sorted entries.
pub(crate) fn whole_batch(found: &[Found], first: u64) -> Option<usize> {
    let size = found.first()?.batch_remaining as usize + 1;
    let batch = found.get(..size)?;
    let whole = batch.iter().enumerate().all(|(index, entry)| {
        entry.sequence == first + index as u64
            && entry.batch_index as usize == index
            && entry.batch_remaining as usize == size - 1 - index
    });
    whole.then_some(size)
}

/// Wipes the bytes that a recovery cuts off, up to the block where the file goes on: a
/// record there could pass for one, and hide what is written over its end.
fn wipe_to_block(file: &DataFile, from: u64) -> Result<()> {
    let below = file.log.file();
    let block = from.next_multiple_of(file.log.geometry().block);
    let wiped = block.min(below.length()?).saturating_sub(from);
    below.write_at(&vec![0; wiped as usize], from)
}

fn mark_dirty(dirty: &mut Vec<Arc<DataFile>>, file: &Arc<DataFile>) {
    file.unlogged.store(true, Ordering::Release);
    if !file.dirty.swap(true, Ordering::AcqRel) {
        dirty.push(file.clone());
    }
}

fn header_and(bytes: usize) -> usize {
    cambium_storage::record::MOST_RECORD_HEADER_BYTES + bytes
}
