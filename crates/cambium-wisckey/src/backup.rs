//! Backups: a checkpoint that shares files with the store where the file system can, a
//! copy of all entries elsewhere.
//!
//! What a checkpoint shares is never written again by either store:
//!
//! - Tables. Both trees only make new ones and remove names.
//! - Segments that the manifest knows, but for the one where the log goes on. Nothing is
//!   appended to a sealed segment that counts for the checkpoint: it reads each segment up
//!   to the end that the note of its edit says. Space within a segment is not given back
//!   while the file has several names ([`crate::holes`]).
//!
//! A checkpoint flushes first, so that it has no log to replay: it opens as a store that was
//! closed. It has the id and the sequence numbers of the store. How long it takes depends on
//! the write buffer and on the number of files, and not on the bytes in them.

use std::path::Path;
use std::sync::Arc;

use cambium_api::ProgressSink;
use cambium_api::backup::StateCopy;
use cambium_base::{Result, SequenceNumber};
use cambium_io::sync::atomic::Ordering;
use cambium_io::{FileLock, FileSystem};
use cambium_storage::sharing::{clone_synced, copy_synced, make_checkpoint, share_unchanging};
use cambium_storage::superblock::Superblock;

use crate::core::{Core, lock};
use crate::engine::{WisckeyStore, run};
use crate::format::{FORMAT_VERSION, Root, segment_path};
use crate::ledger::LedgerState;
use crate::open::{attach, is_ours};

/// Copies the state now into a folder that is empty or not there; answers the last write
/// that the copy holds.
pub(crate) fn back_up(
    store: &WisckeyStore,
    core: &Arc<Core>,
    destination: &Path,
    progress: &dyn ProgressSink,
) -> Result<SequenceNumber> {
    core.check_open()?;
    if core.settle_for_checkpoint()? {
        if let Some(last) = checkpoint(core, destination)? {
            return Ok(last);
        }
    }
    copy(store, core, destination, progress)
}

/// Makes a checkpoint; `None`, and nothing is left of it, where files cannot be shared.
fn checkpoint(core: &Core, destination: &Path) -> Result<Option<SequenceNumber>> {
    let files = &core.environment.file_system;
    make_checkpoint(files, &core.path, destination, is_ours, |held| {
        core.share_into(destination, held)
    })
}

impl Core {
    /// Brings everything written so far into tables. False where a checkpoint cannot be
    /// made of what the manifest says: the store is open for reading alone and holds writes
    /// in memory, a failure has stopped its writes, or the disk is full.
    fn settle_for_checkpoint(self: &Arc<Self>) -> Result<bool> {
        let clean = lock(&self.maintenance).root.clean;
        if self.health.is_of_reader() || !self.session_begun.load(Ordering::Acquire) {
            return Ok(clean);
        }
        if self.check_sound().is_err() {
            return Ok(false);
        }
        match self.flush_now() {
            Err(error) if error.is_no_space() => Ok(false),
            flushed => flushed.map(|()| true),
        }
    }

    /// Fills the folder of a checkpoint, and opens it as far as reading every manifest and
    /// header. Answers the last write in it, or `None` where files cannot be shared.
    fn share_into(
        &self,
        destination: &Path,
        held: Box<dyn FileLock>,
    ) -> Result<Option<SequenceNumber>> {
        let file_system = &*self.environment.file_system;
        let root = Root {
            clean: true,
            ..lock(&self.maintenance).root
        };
        let Some(state) = self.share_files(file_system, destination, &root)? else {
            return Ok(None);
        };
        Superblock::create(
            &self.environment.file_system,
            destination,
            self.home.store,
            FORMAT_VERSION,
            &self.root_payload(&root),
        )?;
        file_system.sync_directory(destination)?;
        let tuning = self.tuning.clone();
        let (environment, store) = (&self.environment, self.home.store);
        attach(environment, destination, store, tuning, (held, false), None)?;
        Ok(Some(SequenceNumber(state.head.sequence)))
    }

    fn share_files(
        &self,
        file_system: &dyn FileSystem,
        destination: &Path,
        root: &Root,
    ) -> Result<Option<LedgerState>> {
        // No segment goes, and no space within one, until all have their second names.
        let _sharing = lock(&self.sharing);
        let keys = destination.join(root.tree_folder());
        let mut share = |from: &Path, to: &Path| share_unchanging(file_system, from, to);
        let Some(note) = self.tree.checkpoint(&keys, &mut share)? else {
            return Ok(None);
        };
        let state = LedgerState::of_note(&note, &self.ledger.hole_rule).unwrap_or_default();
        for (&number, account) in &state.segments {
            let from = segment_path(&self.path, number);
            let to = segment_path(destination, number);
            let shared = match number == state.head.segment {
                // Both stores go on writing there.
                true => {
                    let cloned = clone_synced(file_system, &from, &to, account.end)?;
                    if !cloned {
                        copy_synced(file_system, &from, &to, account.end)?;
                    }
                    true
                }
                false => share_unchanging(file_system, &from, &to)?,
            };
            if !shared {
                return Ok(None);
            }
        }
        Ok(Some(state))
    }
}

/// Writes the state of now, all namespaces, and every named snapshot into a new store of the
/// same shape.
fn copy(
    store: &WisckeyStore,
    core: &Arc<Core>,
    destination: &Path,
    progress: &dyn ProgressSink,
) -> Result<SequenceNumber> {
    let newest = store.newest_state()?;
    let last = newest.sequence();
    let options = core.shape.as_options();
    // Before it has its marker it is no store: a copy is whole, or none.
    let making = crate::open::make(&core.environment, destination, &options)?;
    making.conclude_closed(&core.path, |filled| {
        let copy = run(filled);
        StateCopy::new(&*copy, progress).copy_all(store, newest)?;
        copy.sync()?;
        copy.close()
    })?;
    Ok(last)
}
