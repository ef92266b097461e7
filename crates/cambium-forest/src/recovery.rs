//! Recovery: what a store that was not closed holds (section 3.3). Steps 1 to 3 are in
//! [`crate::replay`].
//!
//! The superblock names the newest header; its roots hold every write up to *r*.
//! From the header's replay offset the log is read to its end, stepping over runs
//! of nodes. Let *s* be the largest `synced_through` found.
//!
//! 1. Records of an attempt that was taken back for lack of space are left out.
//! 2. Whole batches that follow *r* without a gap are accepted; the first gap or
//!    part of a batch ends them at the *cut*. A header that an earlier recovery
//!    wrote says where that one cut, and where numbering went on.
//! 3. If the cut lies below *s*, something that was promised is missing: that is
//!    damage, and the open fails, naming the place.
//! 4. A new session is made durable in the superblock.
//! 5. What was accepted is written over itself and synced: a process that died,
//!    or whose sync failed, may have left it in the operating system's cache alone.
//!    The rest of its last block is wiped. A checkpoint's files were synced, and are shared:
//!    they are not written again.
//! 6. A header that says *recovered* is appended after it, in the new session,
//!    and synced; both copies of the superblock point to it. Records of older
//!    sessions after it never count again, and numbering goes on far above what
//!    may have been lost.
//!
//! The accepted writes fill the write buffer again; nothing of the tries is
//! written. A crash in 4 to 6 leaves the old header; the next recovery reads the
//! same log and comes to the same cut.
//!
//! A header that is damaged does not cost anything: the superblock names another
//! that leads to the same state. For a flush that is the header before it, from
//! which more is replayed; a header that says what no replay brings back (a
//! rollback, named snapshots, a compaction's first, the mark of a recovery) has a
//! copy of its own.

use cambium_api::ProgressSink;
use cambium_base::{Error, Result};
use cambium_io::File;
use cambium_io::sync::atomic::Ordering;
use cambium_storage::record::RecordHeader;
use cambium_storage::replay::write_again;

use crate::buffer::KeptMoments;
use crate::core::{Core, Maintenance, lock};
use crate::database::Database;
use crate::flush::Copies;
use crate::format::{header_record, kind};
use crate::replay::{Accepted, Tail, next_namespace};
use crate::seeded_bug::SeededBug;

/// Sequence numbers go on at the next multiple of this after a crash: more
/// than can have been given out and lost, so none is given twice.
const SEQUENCE_EPOCH: u64 = 1 << 32;

impl Core {
    /// Recovers the store. Called before anyone else has it. `is_synced` of files that were
    /// synced since they were written: nothing is written over itself.
    pub fn recover(&self, is_synced: bool, progress: &dyn ProgressSink) -> Result<()> {
        let mut maintenance = lock(&self.maintenance);
        let view = self.view.load_full();
        let start = maintenance.replay_start();
        let (tail, mut accepted) = self.replay(&view.database, &start, progress)?;
        self.take_session(&mut maintenance)?;
        match is_synced {
            // All of it lies before the end of the file, where the next segment begins.
            true => view
                .database
                .log
                .resume_at(view.database.log.file().length()?),
            false => {
                self.write_again(&maintenance, &view.database, &tail, &accepted)?;
                self.settle(&view.database, &accepted)?;
            }
        }
        {
            let mut writer = lock(&self.writer);
            let found = std::mem::take(&mut accepted.found);
            writer.next_namespace = writer.next_namespace.max(next_namespace(&found));
            let kept = KeptMoments::default();
            self.change_view(|view| self.refill(view.clone(), found, &kept));
        }
        self.finish_recovery(&mut maintenance, &view.database, &accepted)?;
        cambium_io::events::recovered("forest", &self.path, accepted.cut);
        Ok(())
    }

    /// Takes a session number that no crashed recovery has used.
    fn take_session(&self, maintenance: &mut Maintenance) -> Result<()> {
        if !self.has_bug(SeededBug::EpochReused) {
            maintenance.root.session += 1;
        }
        maintenance.root.clean = false;
        maintenance.root.end = 0;
        maintenance
            .write_root()
            .map_err(|error| self.health.unless_full(error))?;
        lock(&self.writer).session = maintenance.root.session;
        Ok(())
    }

    /// Writes what was accepted over itself, not yet synced.
    fn write_again(
        &self,
        maintenance: &Maintenance,
        database: &Database,
        tail: &Tail,
        accepted: &Accepted,
    ) -> Result<()> {
        let file = database.log.file();
        // Nodes that count were synced before the header that points to them.
        let mut position = maintenance.header.replay_from.min(maintenance.root.header);
        for &(start, end) in tail.extents.iter().filter(|(_, end)| *end <= accepted.end) {
            write_own(&**file, position, start)?;
            position = end;
        }
        write_own(&**file, position, accepted.end)
    }

    /// Wipes what was cut off up to the next block, and syncs: a record there could pass for
    /// one, and hide what is written over its end.
    fn settle(&self, database: &Database, accepted: &Accepted) -> Result<()> {
        let file = database.log.file();
        let block = database.log.geometry().block;
        let next = accepted.end.next_multiple_of(block);
        let wiped = next.min(file.length()?).saturating_sub(accepted.end);
        let is_shared = file.shared_until(accepted.end.saturating_sub(1)) >= accepted.end;
        file.write_at(&vec![0; wiped as usize], accepted.end)?;
        if is_shared {
            // The next record begins a segment: a process that has the shared one open finds it.
            file.set_length(next)?;
        }
        file.sync_data()?;
        database.log.resume_at(accepted.end);
        Ok(())
    }

    /// Marks the cut in the log, and begins the new session.
    fn finish_recovery(
        &self,
        maintenance: &mut Maintenance,
        database: &Database,
        accepted: &Accepted,
    ) -> Result<()> {
        let base = match self.has_bug(SeededBug::EpochReused) {
            true => accepted.cut,
            false => (accepted.cut / SEQUENCE_EPOCH + 1) * SEQUENCE_EPOCH,
        };
        let (header, appended) = {
            let mut writer = lock(&self.writer);
            let mut header = maintenance.header.clone();
            header.previous = maintenance.root.header;
            header.rolled_back_to = None;
            let record = header_record(base, accepted.cut, writer.session, true);
            let appended = self.append_header(database, &header, &record, Copies::Two)?;
            writer.next_sequence = base + 1;
            self.synced_through.store(base, Ordering::Release);
            (header, appended)
        };
        self.sync_header(database)?;
        maintenance.root.name(&appended, database);
        maintenance.header = header;
        maintenance
            .write_root_twice()
            .map_err(|error| self.health.unless_full(error))?;
        self.visible.store(base, Ordering::Release);
        self.session_begun.store(true, Ordering::Release);
        Ok(())
    }
}

/// Writes bytes over themselves, but for those that a checkpoint shares: it was made by a
/// process whose syncs had not failed, and syncs them.
fn write_own(file: &dyn File, from: u64, end: u64) -> Result<()> {
    write_again(
        file,
        file.shared_until(from).clamp(from, end.max(from)),
        end,
    )
}

/// A header that was found and what it says.
pub(crate) type FoundHeader = (u64, RecordHeader, crate::format::DatabaseHeader);

/// The sound header at an offset, if there is one.
pub(crate) fn header_at(database: &Database, offset: u64) -> Result<Option<FoundHeader>> {
    match database.log.read(offset, 4096) {
        Ok(record) if record.header.kind == kind::HEADER => {
            let decoded = crate::format::DatabaseHeader::decode(&record.payload);
            Ok(decoded.map(|header| (offset, record.header, header)))
        }
        Ok(_) | Err(Error::Corruption { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The last sound header before an offset, looked for block by block from
/// there to the file's start: for repair, which does not know what it said.
pub(crate) fn header_before(database: &Database, offset: u64) -> Result<Option<FoundHeader>> {
    let geometry = database.log.geometry();
    let mut block = offset / geometry.block * geometry.block;
    while block > geometry.first_offset {
        block -= geometry.block;
        if block < geometry.first_offset {
            break;
        }
        if let Some(found) = header_at(database, block)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
