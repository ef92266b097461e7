//! Syncing the log.
//!
//! A group with a `Synced` write is synced by its leader ([`crate::commit`]). A sync of what
//! other calls have written ([`Core::sync_written`]) makes no writer wait: it hands over what
//! is buffered, syncs without the writer's lock, and then says in memory and in the log how
//! far that came. What is appended meanwhile begins in a block of its own, so that no block
//! is written again that the sync has brought to the device. Calls that wait for one another
//! share the next sync.

use std::sync::Arc;

use cambium_base::{Result, SequenceNumber};
use cambium_io::sync::MutexGuard;
use cambium_io::sync::atomic::Ordering;
use cambium_storage::log::LogFile;
use cambium_storage::record::{RecordHeader, most_record_bytes};

use crate::core::{Core, Mark, Writer, lock};
use crate::database::Database;
use crate::document::DOCUMENT_ALIGNMENT;
use crate::format::kind;
use crate::seeded_bug::SeededBug;
use crate::view::View;

impl Core {
    /// Brings every write that was answered to the device.
    ///
    /// # Errors
    /// `Poisoned` after a failed sync; those of the file system while it hands over what was
    /// buffered.
    pub fn sync_written(&self) -> Result<()> {
        self.check_writable()?;
        let Some((database, last)) = self.hand_over_all()? else {
            return Ok(());
        };
        self.sync_handed_over(&database, last)?;
        let mut writer = lock(&self.writer);
        let newest = writer.next_sequence - 1;
        if self.has_bug(SeededBug::SyncTakesLaterWrites) {
            self.synced_through.fetch_max(newest, Ordering::AcqRel);
        }
        // A file that has taken its place meanwhile was synced whole, and what follows in this
        // one says how far it was synced. After a close the file may be somebody else's.
        let view = self.view.load();
        let is_current = Arc::ptr_eq(&view.database, &database);
        if is_current && newest == last && self.check_writable().is_ok() {
            writer.unsynced = false;
            self.mark_synced(&mut writer, &view, last);
        }
        Ok(())
    }

    /// Hands over what is buffered, up to the end of a block; answers the file and the last
    /// write, or `None` if nothing was written since the last sync.
    fn hand_over_all(&self) -> Result<Option<(Arc<Database>, u64)>> {
        let mut writer = lock(&self.writer);
        self.check_sound()?;
        if !writer.unsynced {
            return Ok(None);
        }
        let database = self.view.load().database.clone();
        let end = database.log.end();
        database.log.pad_to_block();
        if let Err(error) = database.log.flush() {
            return Err(self.take_back(&mut writer, &database, end, error));
        }
        let last = writer.next_sequence - 1;
        self.handed_over.fetch_max(last, Ordering::AcqRel);
        Ok(Some((database, last)))
    }

    /// Syncs a file up to a write, and with it what others have handed over before it begins;
    /// not at all if another call has done so.
    fn sync_handed_over(&self, database: &Arc<Database>, last: u64) -> Result<()> {
        let _alone = self.begin_sync()?;
        if self.synced_through.load(Ordering::Acquire) >= last {
            return Ok(());
        }
        let all = self.handed_over.load(Ordering::Acquire);
        // This sync reaches no write of a file that has taken its place.
        let is_current = Arc::ptr_eq(&self.view.load().database, database);
        if !self.has_bug(SeededBug::CommitUnsynced) {
            self.sync_now(database)?;
        }
        let covered = if is_current { last.max(all) } else { last };
        self.synced_through.fetch_max(covered, Ordering::AcqRel);
        Ok(())
    }

    /// Hands over what a log has buffered; any failure but one for lack of space stops all
    /// writes.
    pub fn flush_log(&self, log: &LogFile) -> Result<()> {
        log.flush().map_err(|error| self.health.unless_full(error))
    }

    /// Syncs a database file; a failure stops all writes.
    ///
    /// Syncs come one at a time: the operating system tells one of them that a page was
    /// not written, and answers the next as if all were. So the one that fails stops the
    /// store before another begins.
    pub fn sync_log(&self, database: &Database) -> Result<()> {
        let _alone = self.begin_sync()?;
        self.sync_now(database)
    }

    fn begin_sync(&self) -> Result<Option<MutexGuard<'_, ()>>> {
        let apart = self.has_bug(SeededBug::SyncsApart);
        let alone = (!apart).then(|| lock(&self.syncing));
        if alone.is_some() {
            self.health.check_sound()?;
        }
        Ok(alone)
    }

    fn sync_now(&self, database: &Database) -> Result<()> {
        database
            .log
            .sync()
            .map_err(|error| self.health.poison(error))?;
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Says in the log that everything up to here is on the device, so that who
    /// opens it after the death of the process can tell damage from a torn tail. It
    /// is handed over, not synced: it is there only if the sync before it was done,
    /// and where it is lost, nothing is. Past the page cache it would be an access of
    /// the device for each commit; there the next record says the same. It takes no room that
    /// a delete would not get.
    pub fn mark_synced(&self, writer: &mut Writer, view: &View, last: u64) {
        let database = &view.database;
        let end = database.log.end();
        let room = most_record_bytes(0, DOCUMENT_ALIGNMENT);
        if database.is_direct() || self.reserve_for(view, &[], room).is_err() {
            return;
        }
        let header = RecordHeader {
            kind: kind::SYNCED,
            sequence: SequenceNumber(last),
            synced_through: SequenceNumber(last),
            ..self.record_template(writer)
        };
        database.log.append(&header, &[]);
        let written = match database.log.flush() {
            Err(error) if error.is_no_space() => database.log.cut_back(end),
            outcome => outcome,
        };
        writer.mark = Some(Mark {
            file: database.file.number,
            start: end,
            end: database.log.end(),
        });
        if let Err(error) = written {
            // The sync is done; the store takes no further write.
            _ = self.health.poison(error);
        }
    }
}
