//! Backups: the same files, shared, where the file system can share them, else a copy of the
//! newest state and every named snapshot, in a new store of the same shape.
//!
//! The log lies in segments ([`cambium_io::segmented`]), which both stores have from then on,
//! as clones or by second names; each of the two appends to segments of its own. They are
//! taken while neither writers nor flushes write, after the log's buffer was handed over: this
//! is what a process leaves that dies at that moment, and the copy is recovered from it, which
//! reads as much as the write buffer holds. The other way goes entry by entry, one state after
//! the other ([`StateCopy`]).

use std::path::Path;
use std::sync::Arc;

use cambium_api::ProgressSink;
use cambium_api::backup::StateCopy;
use cambium_base::{Result, SequenceNumber};
use cambium_storage::sharing::{clone_files, make_checkpoint, sync_files};
use cambium_storage::superblock;

use crate::core::{Core, lock};
use crate::engine::{run, snapshot_of};
use crate::format;
use crate::named::pin_of;
use crate::open::{attach, is_ours, make_ready};

/// Copies the state now into a folder that is empty or not there; answers the last write
/// that the copy holds.
pub(crate) fn back_up(
    core: &Arc<Core>,
    destination: &Path,
    progress: &dyn ProgressSink,
) -> Result<SequenceNumber> {
    core.check_open()?;
    // After a failure the content of the files is unknown, and entries can still be read. Beside
    // a process that writes, superblock and log would be of different moments.
    if !core.health.is_of_reader() && core.check_sound().is_ok() {
        if let Some(last) = clone_store(core, destination, progress)? {
            return Ok(last);
        }
    }
    copy(core, destination, progress)
}

/// Makes a copy of clones; `None`, and nothing is left of it, where there cannot be any.
fn clone_store(
    core: &Arc<Core>,
    destination: &Path,
    progress: &dyn ProgressSink,
) -> Result<Option<SequenceNumber>> {
    let (environment, store) = (&core.environment, core.home.store);
    let files = &environment.file_system;
    // The file system writes back what it shares: most of it before writers wait.
    match core.sync_written() {
        Err(error) if error.is_no_space() || core.check_sound().is_err() => return Ok(None),
        synced => synced?,
    }
    make_checkpoint(files, &core.path, destination, is_ours, |held| {
        let Some(last) = core.clone_files_into(destination)? else {
            return Ok(None);
        };
        sync_files(&**files, destination)?;
        let tuning = core.tuning;
        let copy = attach(environment, destination, store, tuning, (held, true))?;
        make_ready(&copy, true, progress)?;
        // The copy has no consumers.
        copy.give_history_back()?;
        copy.close()?;
        Ok(Some(last))
    })
}

impl Core {
    fn clone_files_into(&self, destination: &Path) -> Result<Option<SequenceNumber>> {
        let maintenance = lock(&self.maintenance);
        let writer = lock(&self.writer);
        let log = &self.view.load().database.log;
        log.end_file()
            .map_err(|error| self.health.unless_full(error))?;
        let files = &*self.environment.file_system;
        let header = &maintenance.header;
        let is_named = |number| {
            let mut kept = header.kept_files.iter();
            number == maintenance.root.file.number || kept.any(|kept| kept.file.number == number)
        };
        let is_wanted = |name: &str| {
            superblock::is_copy(name) || format::database_number(name).is_some_and(is_named)
        };
        let cloned = clone_files(files, &self.path, destination, is_wanted)?;
        Ok(cloned.then(|| SequenceNumber(writer.next_sequence - 1)))
    }
}

/// Copies the entries of now, and those of each named snapshot, into a new store.
fn copy(
    core: &Arc<Core>,
    destination: &Path,
    progress: &dyn ProgressSink,
) -> Result<SequenceNumber> {
    let (newest, header) = core.pin_with_header()?;
    let last = SequenceNumber(newest.sequence);
    let mut snapshots = header.snapshots.clone();
    snapshots.sort_by_key(|snapshot| snapshot.sequence);
    let options = core.shape.as_options();
    // Before it has its marker it is no store: a copy is whole, or none.
    let making = crate::open::make(&core.environment, destination, &options)?;
    making.conclude_closed(&core.path, |filled| {
        let copy = run(filled);
        let mut states = StateCopy::new(&*copy, progress);
        for snapshot in &snapshots {
            let names = header.names_of(snapshot).into_iter().collect();
            let pin = pin_of(core, &newest, snapshot, names)?;
            states.bring_to(snapshot_of(pin))?;
            copy.create_named_snapshot(&snapshot.name)?;
        }
        states.bring_to(snapshot_of(newest))?;
        copy.sync()?;
        copy.close()
    })?;
    Ok(last)
}
