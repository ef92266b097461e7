//! The switch: the new file becomes the store's.
//!
//! Writers wait from here on, so little is left to do: the last writes, a
//! header, one sync of both, and the two copies of the superblock.

use std::sync::Arc;

use cambium_api::CompactReport;
use cambium_base::Result;
use cambium_io::sync::atomic::Ordering;
use cambium_storage::record::RecordHeader;

use super::Compaction;
use crate::core::{Core, Maintenance, Writer, lock};
use crate::database::Database;
use crate::document::DOCUMENT_ALIGNMENT;
use crate::flush::{Appended, Copies};
use crate::format::{DatabaseHeader, header_record};
use crate::seeded_bug::SeededBug;
use crate::view::{Roots, View};

/// What is caught up with while writers wait, at most.
const MOST_AT_SWITCH: u64 = 8 << 20;

impl Core {
    /// Makes the new file the store's; `None` where writers have added so much while it
    /// waited for a flush or a snapshot that they would have to wait for it.
    pub(super) fn switch(
        self: &Arc<Self>,
        compaction: &mut Compaction,
    ) -> Result<Option<CompactReport>> {
        let began = self.environment.clock.monotonic();
        let plan = self.plan_history(&compaction.source.view.database)?;
        let mut maintenance = lock(&self.maintenance);
        let mut writer = lock(&self.writer);
        let until = self.end_of_writes(compaction, &writer)?;
        if until - compaction.caught_up > MOST_AT_SWITCH {
            return Ok(None);
        }
        self.catch_up_to(compaction, until)?;
        self.apply_pending(compaction)?;
        self.check_last_write(compaction, &writer)?;
        let mut snapshots = self.carried_snapshots(&maintenance, compaction)?;
        if self.has_bug(SeededBug::CompactionDropsSnapshots) {
            snapshots.clear();
        }
        let old = self.view.load_full();
        let database = compaction.database.clone();
        let mut roots = Roots {
            sequence: writer.next_sequence - 1,
            namespaces: std::mem::take(&mut compaction.roots),
        };
        roots.namespaces.retain(|number, _| old.names.has(*number));
        database.log.flush()?;
        let end = database.log.end();
        let header = DatabaseHeader {
            sequence: roots.sequence,
            replay_from: end,
            replay_session: writer.session,
            start: end,
            snapshots,
            ..maintenance.header.clone()
        };
        self.counters
            .compaction_bytes
            .fetch_add(end, Ordering::Relaxed);
        let mut header = self.complete(header, &maintenance, &roots, writer.next_namespace);
        header.previous = 0;
        header.begin = 0;
        header.trees_from = 0;
        header.changes_from = roots.sequence;
        header.kept_files = self.settle_history(&old.database, plan, roots.sequence)?;
        let record = header_record(roots.sequence, roots.sequence, writer.session, false);
        header.start = behind_spare(&database, &header, &record);
        let appended = self.append_header(&database, &header, &record, Copies::Two)?;
        database.log.give_back_ahead()?;
        // Documents, nodes and header together: nothing names any of them yet.
        if !self.has_bug(SeededBug::CompactionUnsynced) {
            self.sync_header(&database)?;
        }
        if self.has_bug(SeededBug::OldFileRemovedEarly) {
            self.environment.file_system.remove(old.database.path())?;
        }
        compaction.named = true;
        self.point_to(&mut maintenance, &database, &appended)?;
        self.note_kept(compaction.kept, database.log.end());
        maintenance.header = header;
        maintenance.sealed_at = None;
        maintenance.packed_at = None;
        writer.unsynced = false;
        self.synced_through.store(roots.sequence, Ordering::Release);
        let kept = maintenance.header.kept_files.clone();
        old.database.end_with(roots.sequence);
        self.history.switch(&kept, database.clone(), roots.sequence);
        let roots = Arc::new(roots);
        self.change_view(|view| View {
            database: database.clone(),
            active: Arc::default(),
            sealed: None,
            run: Arc::default(),
            roots,
            names: view.names.clone(),
            known: compaction.known.clone(),
            era: Arc::default(),
        });
        drop(writer);
        // Nothing is left to be ahead of: giving the old file's space back takes long on
        // some devices.
        self.note_ended();
        let (view, header) = (self.view.load(), &maintenance.header);
        self.plan_hold(&view, &view.roots, header, header.replay_from);
        drop(maintenance);
        let is_kept = kept.iter().any(|kept| kept.file == old.database.file);
        if !is_kept && !self.has_bug(SeededBug::OldFileRemovedEarly) {
            self.history.discard(old.database.file.number);
            self.remove_unneeded();
        }
        self.note_filled(compaction);
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        let report = &mut compaction.report;
        report.bytes_written = database.log.end();
        let spent = self.environment.clock.monotonic() - began;
        report.phases.flush_and_commit += spent.as_secs_f64();
        self.counters.note_compaction(report);
        Ok(Some(report.clone()))
    }

    /// Every write that was given a number is in the new file.
    fn check_last_write(&self, compaction: &Compaction, writer: &Writer) -> Result<()> {
        let last = writer.next_sequence - 1;
        let carried = compaction.caught_up_sequence;
        let sound = carried == last || !compaction.met_writes && carried < last;
        if sound || self.has_bug(SeededBug::CompactionWithoutCatchUp) {
            return Ok(());
        }
        let from = &compaction.source.view.database;
        Err(from.damage(
            compaction.caught_up,
            format!("the log ends with write {carried}, and write {last} was the last one"),
        ))
    }

    /// Points both copies of the superblock to a header of a new file, whose
    /// name is durable.
    fn point_to(
        &self,
        maintenance: &mut Maintenance,
        database: &Database,
        appended: &Appended,
    ) -> Result<()> {
        maintenance.root.file = database.file;
        maintenance.root.keeps_damaged = false;
        maintenance.root.name(appended, database);
        // Both copies: an older one must not bring the old file back. After a
        // failure the next open may take either file: no more writes.
        maintenance
            .write_root_twice()
            .map_err(|error| self.health.poison(error))
    }
}

/// Where a file's beginning ends for who looks whether it has grown: the header's
/// spare is a part of what the compaction wrote.
fn behind_spare(database: &Database, header: &DatabaseHeader, record: &RecordHeader) -> u64 {
    let bytes = record.record_bytes(header.encode().len() as u64, DOCUMENT_ALIGNMENT);
    header.start + bytes.next_multiple_of(database.log.geometry().block)
}
