//! The end of a compaction: the new file is announced, switched to, and made
//! the only one.

use cambium_api::CompactReport;
use cambium_base::{Error, Result};
use cambium_io::sync::atomic::Ordering;

use super::Compaction;
use super::copy::prove_complete;
use crate::core::{Core, Maintenance, Switched, lock};
use crate::seeded_bug::SeededBug;

impl Core {
    /// Announces the new file, switches to it and makes that durable.
    pub(super) fn finish_compaction(&self, mut compaction: Compaction) -> Result<CompactReport> {
        let started = self.environment.clock.monotonic();
        let mut maintenance = lock(&self.maintenance);
        let table = compaction.table.clone();
        let (number, place) = (table.number, compaction.place);
        // The catalog must name the old file: its successor is found through it.
        let unnamed = !maintenance.switched.is_empty();
        if unnamed && !self.has_bug(SeededBug::SuccessorForgotten) {
            if let Err(error) = self.checkpoint_locked(&mut maintenance, false) {
                drop(maintenance);
                self.abandon(compaction);
                return Err(error);
            }
        }
        let announced = self.announce(&mut maintenance, &compaction);
        if let Err(error) = announced {
            drop(maintenance);
            self.abandon(compaction);
            return Err(error);
        }
        if let Err(error) = self.switch(&mut compaction) {
            // Still the old file: withdraw the announcement.
            if let Some(entry) = maintenance.catalog.tables.get_mut(&number) {
                entry.files[place].successor = None;
            }
            _ = maintenance.write_catalog();
            drop(maintenance);
            self.abandon(compaction);
            return Err(error);
        }
        maintenance.switched.push(Switched {
            table: number,
            place: place as u32,
            new: compaction.new.file,
            copies_through: compaction.new.copies_through(),
        });
        self.checkpoint_locked(&mut maintenance, false)?;
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        let copied = compaction.report.bytes_written;
        cambium_io::events::compacted("zdb", &self.path, copied);
        self.counters
            .compaction_bytes
            .fetch_add(copied, Ordering::Relaxed);
        let busy = self.environment.clock.monotonic() - started;
        compaction.report.phases.flush_and_commit += busy.as_secs_f64();
        Ok(compaction.report)
    }

    /// Makes the new file durable and names it in the superblock as successor.
    fn announce(&self, maintenance: &mut Maintenance, compaction: &Compaction) -> Result<()> {
        let new = &compaction.new;
        new.log.pad_to_block();
        new.log.flush()?;
        new.log.sync().map_err(|error| self.health.poison(error))?;
        self.environment
            .file_system
            .sync_directory(&self.path)
            .map_err(|error| self.health.poison(error))?;
        let Some(entry) = maintenance.catalog.tables.get_mut(&compaction.table.number) else {
            return Err(Error::Closed);
        };
        entry.files[compaction.place].successor = Some((new.file, new.log.end()));
        // Both copies: one that does not name the file must never count.
        maintenance.write_catalog_twice().map_err(|error| {
            if let Some(entry) = maintenance.catalog.tables.get_mut(&compaction.table.number) {
                entry.files[compaction.place].successor = None;
            }
            self.health.unless_full(error)
        })?;
        for piece in 0..compaction.table.piece_count() {
            let state = compaction.table.piece(piece);
            let needed = state.slots.is_none() && state.on_disk != 0;
            drop(state);
            if needed {
                compaction.table.load_piece(piece)?;
            }
        }
        Ok(())
    }

    /// Stops writers, copies the rest, proves that nothing is missing, and
    /// moves the slots.
    fn switch(&self, compaction: &mut Compaction) -> Result<()> {
        let careless = self.has_bug(SeededBug::CompactionWithoutCatchUp);
        // Without writers for the last bytes only.
        if !careless {
            let (end, session) = self.settled_end(compaction)?;
            self.copy_live(compaction, end, (end, session))?;
        }
        let mut writer = lock(&self.writer);
        compaction
            .old
            .log
            .flush()
            .map_err(|error| self.health.poison(error))?;
        if !careless {
            let end = compaction.old.log.written_end();
            self.copy_live(compaction, end, (end, writer.session))?;
        }
        let (table, place) = (&compaction.table, compaction.place);
        if !careless {
            prove_complete(compaction)?;
        }
        compaction
            .new
            .log
            .flush()
            .map_err(|error| self.health.poison(error))?;
        // Before the file is current: statistics sum these counts beside the switch.
        let new = &compaction.new;
        new.entries.store(compaction.copied, Ordering::Relaxed);
        new.live.store(
            compaction.old.live.load(Ordering::Relaxed),
            Ordering::Relaxed,
        );
        let last = writer.next_sequence - 1;
        new.begin_after_copies(last);
        self.keep_replaced_file(&compaction.old, last);
        writer.targets.remove(&table.number);
        table.begin_switch(place, compaction.new.clone());
        for piece in 0..table.piece_count() {
            table.switch_piece(piece, place, |key, old| {
                let &(from, to) = compaction.moved.get(&key)?;
                (from == old).then_some(to)
            });
        }
        table.end_switch(place);
        new.unlogged.store(true, Ordering::Release);
        if !new.dirty.swap(true, Ordering::AcqRel) {
            writer.dirty.push(new.clone());
        }
        Ok(())
    }
}
