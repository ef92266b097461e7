//! Backups: clones of all files where the file system shares blocks between files, a copy of
//! all entries elsewhere.
//!
//! Data files are appended to until a compaction replaces them, so none can have two names.
//! A clone is taken while neither writers nor checkpoints write, after all buffers were
//! handed over: the clones are what a process leaves that dies at that moment, and the copy
//! is recovered from them. A checkpoint before bounds what that reads.

use std::path::Path;
use std::sync::Arc;

use cambium_api::backup::copy_entries;
use cambium_api::{IterationOrder, ProgressSink};
use cambium_base::{Result, SequenceNumber};
use cambium_storage::sharing::{clone_files, make_checkpoint, sync_files};

use crate::core::{Core, lock};
use crate::engine::ZdbStore;
use crate::open::{LOCK_NAME, attach, is_ours, make_ready};

/// Copies the state now into a folder that is empty or not there; answers the last write
/// that the copy holds.
pub(crate) fn back_up(
    core: &Arc<Core>,
    destination: &Path,
    progress: &dyn ProgressSink,
) -> Result<SequenceNumber> {
    core.check_open()?;
    match clone_store(core, destination, progress)? {
        Some(last) => Ok(last),
        None => copy(core, destination, progress),
    }
}

/// Makes a copy of clones; `None`, and nothing is left of it, where there cannot be any.
fn clone_store(
    core: &Core,
    destination: &Path,
    progress: &dyn ProgressSink,
) -> Result<Option<SequenceNumber>> {
    let (environment, store) = (&core.environment, core.home.store);
    let files = &environment.file_system;
    if !core.health.is_of_reader() {
        match core.checkpoint() {
            // What lies in the files after a failure is not known; what can be read is.
            Err(error) if error.is_no_space() || core.health.check_sound().is_err() => {
                return Ok(None);
            }
            ended => ended?,
        }
    }
    make_checkpoint(files, &core.path, destination, is_ours, |held| {
        let Some(last) = core.clone_files_into(destination)? else {
            return Ok(None);
        };
        sync_files(&**files, destination)?;
        let tuning = core.tuning.clone();
        let copy = attach(environment, destination, store, tuning, (held, true))?;
        make_ready(&copy, progress)?;
        copy.close()?;
        Ok(Some(last))
    })
}

impl Core {
    fn clone_files_into(&self, destination: &Path) -> Result<Option<SequenceNumber>> {
        let _maintenance = lock(&self.maintenance);
        let writer = lock(&self.writer);
        for file in &writer.dirty {
            file.log
                .flush()
                .map_err(|error| self.health.unless_full(error))?;
        }
        let files = &*self.environment.file_system;
        let is_wanted = |name: &str| is_ours(name) && name != LOCK_NAME;
        let cloned = clone_files(files, &self.path, destination, is_wanted)?;
        Ok(cloned.then(|| SequenceNumber(writer.next_sequence - 1)))
    }
}

/// Writes the entries of now into a new store of the same shape.
fn copy(
    core: &Arc<Core>,
    destination: &Path,
    progress: &dyn ProgressSink,
) -> Result<SequenceNumber> {
    let pin = core.pin()?;
    let last = SequenceNumber(pin.sequence);
    let mut cursor = crate::reader::iterate_at(pin, IterationOrder::Any, None)?;
    let mut options = core.shape.as_options(core.buckets.count());
    // What is in this store already is welcome in its copy.
    options.set("sparse_tables", "16777216");
    options.set("max_tables", "16777216");
    // Before it has its marker it is no store: a copy is whole, or none.
    let making = crate::open::make(&core.environment, destination, &options)?;
    making.conclude_closed(&core.path, |filled| {
        let copy = ZdbStore::run(filled);
        copy_entries(&mut *cursor, &*copy, &mut 0, progress)?;
        copy.close()
    })?;
    Ok(last)
}
