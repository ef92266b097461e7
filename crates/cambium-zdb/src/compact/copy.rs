//! Copying: what is live goes to the new file, in rounds, each shorter.

use std::sync::Arc;

use cambium_base::{Error, Result};
use cambium_io::Environment;
use cambium_storage::record::RecordHeader;
use cambium_storage::scan::{Scanned, ScannedRecord};

use super::Compaction;
use crate::core::{Core, lock};
use crate::format::{entry_bounds, kind};
use crate::seeded_bug::SeededBug;

/// The copy stops the writers for the rest once fewer bytes than this are missing.
const NEAR_BYTES: u64 = 256 << 10;
/// Rounds of catching up before writers are stopped in any case.
const MOST_ROUNDS: u32 = 8;
/// The new file's buffer is handed over when it holds this much.
const FLUSH_BYTES: usize = 1 << 20;

impl Core {
    /// Copies up to `budget` bytes; true when near enough to the old file's end.
    pub(super) fn advance_compaction(
        &self,
        compaction: &mut Compaction,
        budget: u64,
    ) -> Result<bool> {
        let until = compaction
            .round_end
            .min(compaction.position.saturating_add(budget));
        let (end, session) = self.settled_end(compaction)?;
        let before = compaction.moved_bytes();
        self.copy_live(compaction, until, (end, session))?;
        self.environment
            .pay_for_background(compaction.moved_bytes() - before);
        if compaction.position < compaction.round_end {
            return Ok(false);
        }
        compaction.rounds += 1;
        compaction.round_end = compaction.old.log.end();
        let behind = compaction.round_end - compaction.position.min(compaction.round_end);
        Ok(behind <= NEAR_BYTES || compaction.rounds >= MOST_ROUNDS)
    }

    /// Where the old file ends now, with all of it in the file, and the session of
    /// its last entries. Under the writer lock, since a write that is refused for
    /// lack of space takes back what it appended.
    pub(super) fn settled_end(&self, compaction: &Compaction) -> Result<(u64, u32)> {
        let writer = lock(&self.writer);
        let log = &compaction.old.log;
        log.flush().map_err(|error| self.health.poison(error))?;
        Ok((log.written_end(), writer.session))
    }

    /// Copies what is live between the position and `until`. Reading stops
    /// after the record that passes `until`, or at the file's settled end.
    pub(super) fn copy_live(
        &self,
        compaction: &mut Compaction,
        until: u64,
        (written_end, session): (u64, u32),
    ) -> Result<()> {
        let old = compaction.old.clone();
        let log = &old.log;
        let started = self.environment.clock.monotonic();
        let mut scanner = log.scan(compaction.position, written_end)?;
        let mut reached = 0;
        scanner.resume_sessions(compaction.highest_session);
        while scanner.position() < until {
            let record = match scanner.next()? {
                Some(Scanned::Record(record)) => record,
                // What recoveries cut off; a live entry among it is noticed
                // before the switch.
                Some(Scanned::Fault(_)) => continue,
                None => {
                    // The file may end before the log: padding is not written.
                    reached = written_end;
                    break;
                }
            };
            let Some(keys) = entry_bounds(&record.header, record.prefix()) else {
                continue;
            };
            if !self.is_wanted(compaction, &record, keys)? {
                continue;
            }
            let payload = scanner.payload(&record)?;
            compaction.append(self.shape.alignment, &record, keys, &payload, session)?;
            if compaction.new.log.buffered_bytes() > FLUSH_BYTES {
                compaction.flush_new(&self.environment)?;
            }
        }
        compaction.report.read_operations += 1;
        reached = reached.max(scanner.position().min(written_end));
        compaction.report.bytes_read += reached.saturating_sub(compaction.position);
        compaction.highest_session = scanner.highest_session();
        compaction.position = reached.max(compaction.position);
        let busy = self.environment.clock.monotonic() - started;
        compaction.report.phases.read += busy.as_secs_f64();
        Ok(())
    }

    /// An entry is wanted if its slot points at it; a removal if the new file
    /// has an entry of its keys already, which a rebuild would bring back.
    fn is_wanted(
        &self,
        compaction: &Compaction,
        record: &ScannedRecord,
        (first, last): (u64, u64),
    ) -> Result<bool> {
        let points_at = |key, offset| {
            let location = compaction.table.locate(key)?;
            Ok(location.is_some_and(|location| {
                location.position == offset && Arc::ptr_eq(&location.file, &compaction.old)
            }))
        };
        match record.header.kind {
            kind::PUT => points_at(first, record.offset),
            kind::DELETE | kind::DELETE_RANGE => {
                let mut removes = false;
                for (&key, &(copied, _)) in compaction.moved.range(first..=last) {
                    // A removal that a recovery has cut off still lies in the file;
                    // it is none, for a slot points at an entry that it would remove.
                    if points_at(key, copied)? {
                        return Ok(false);
                    }
                    removes = true;
                }
                let forgotten = record.header.kind == kind::DELETE_RANGE
                    && self.has_bug(SeededBug::CompactionWithoutRanges);
                Ok(removes && !forgotten)
            }
            _ => Ok(false),
        }
    }
}

impl Compaction {
    /// Appends a copy of a record to the new file.
    fn append(
        &mut self,
        alignment: u64,
        record: &ScannedRecord,
        (first, last): (u64, u64),
        payload: &[u8],
        session: u32,
    ) -> Result<()> {
        let header = RecordHeader {
            session,
            ..record.header
        };
        let total = header.total_bytes(alignment);
        self.new.log.reserve(total)?;
        let position = self.new.log.append(&header, &[payload]).start;
        if header.kind == kind::PUT {
            self.moved.insert(first, (record.offset, position));
            self.report.documents += 1;
        } else {
            let removed = self.moved.range(first..=last).map(|(&key, _)| key);
            for key in removed.collect::<Vec<_>>() {
                self.moved.remove(&key);
            }
        }
        self.copied += 1;
        self.report.bytes_written += total;
        Ok(())
    }

    fn flush_new(&mut self, environment: &Environment) -> Result<()> {
        let started = environment.clock.monotonic();
        self.new.log.flush()?;
        let busy = environment.clock.monotonic() - started;
        self.report.phases.write += busy.as_secs_f64();
        Ok(())
    }
}

/// Every live slot of the place was copied from where it points now.
pub(super) fn prove_complete(compaction: &Compaction) -> Result<()> {
    for piece in 0..compaction.table.piece_count() {
        for (key, position) in compaction.table.live_in_piece(piece, compaction.place) {
            let copied = compaction.moved.get(&key);
            if copied.is_none_or(|&(from, _)| from != position) {
                return Err(Error::corruption(
                    compaction.old.log.path(),
                    position,
                    format!(
                        "the entry of key {key} cannot be read, so the file cannot be compacted; `cambium check` lists the damage"
                    ),
                ));
            }
        }
    }
    Ok(())
}
