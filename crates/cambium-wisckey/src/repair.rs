//! Bringing a damaged store back to what can be read.
//!
//! Where the tree is sound, it says what there should be: entries whose values
//! cannot be read are deleted, one finding each, and the rest stays. Where the tree
//! itself is damaged, it is built anew first ([`crate::rebuild`]).

use std::path::Path;
use std::sync::Arc;

use cambium_api::{CheckReport, Operation, OptionValues, ProgressSink};
use cambium_base::{Durability, Error, Result, StoreId};
use cambium_io::{Environment, FileLock, LockMode};
use cambium_storage::consumers::{CONSUMERS_NAME, Consumers};
use cambium_storage::marker::{self, FilesOfEngine, Marker};
use cambium_storage::synced_mark::SYNCED_NAME;

use crate::check::{check_history, check_snapshot, verify_entries};
use crate::core::{Core, lock};
use crate::format::{self, FORMAT_VERSION, TREE_FOLDERS};
use crate::note::{self, NoteItem};
use crate::open::{LOCK_NAME, open_damaged};
use crate::options::{ENGINE, Tuning};
use crate::rebuild::{rebuild_damaged_blocks, rebuild_from_log};
use crate::write::WriteRequest;

/// Mends a store that no process has open.
pub(crate) fn repair(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    let (tuning, _) = Tuning::of_opening(options)?;
    let file_system = &*environment.file_system;
    let magics = [
        ("", format::MAGIC),
        (TREE_FOLDERS[0], cambium_lsm::MANIFEST_MAGIC),
        (TREE_FOLDERS[1], cambium_lsm::MANIFEST_MAGIC),
    ];
    let files = FilesOfEngine {
        magics: &magics,
        has_name: crate::open::is_ours,
    };
    let known = || marker::known_marker(file_system, path, ENGINE, FORMAT_VERSION, files);
    let (marker, damage, held) = marker::mend_and_lock(file_system, path, known)?;
    let consumers_damage = remove_damaged_consumers(environment, path, marker.store)?;
    let mut report = repair_contents(environment, path, (&marker, &tuning), held, progress)?;
    if let Some(damage) = damage {
        report.note_mended(damage, "it is made anew")?;
    }
    if let Some(damage) = consumers_damage {
        report.take(damage)?;
        if let Some(finding) = report.findings.last_mut() {
            finding.what += "; the repair removes it";
        }
    }
    Ok(report)
}

/// Removes a list of consumers that cannot be read; answers its damage.
fn remove_damaged_consumers(
    environment: &Environment,
    path: &Path,
    store: StoreId,
) -> Result<Option<Error>> {
    let file_system = &*environment.file_system;
    match Consumers::read(file_system, path, store) {
        Err(damage) if damage.is_corruption() => {
            file_system.remove(&path.join(CONSUMERS_NAME))?;
            Ok(Some(damage))
        }
        read => read.map(|_| None),
    }
}

/// The same where the marker is sound.
fn repair_contents(
    environment: &Environment,
    path: &Path,
    (marker, tuning): (&Marker, &Tuning),
    held: Box<dyn FileLock>,
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let known = (marker.store, tuning);
    let first = mend_open(environment, path, known, held, &mut report, progress)?;
    let Err(tree_damage) = first else {
        return Ok(report);
    };
    if let Some(error) = tree_damage {
        // No opening is possible without the tree.
        report = CheckReport::default();
        report.take(error)?;
        let held = lock_again(environment, path)?;
        // Numbers go on behind the highest that is found: below what was synced, perhaps.
        let mark = path.join(SYNCED_NAME);
        if environment.file_system.metadata(&mark)?.is_some() {
            environment.file_system.remove(&mark)?;
        }
        rebuild_from_log(environment, path, known, &mut report, progress)?;
        drop(held);
        return Ok(report);
    }
    // The tree is sound now: what it points to may not be.
    let held = lock_again(environment, path)?;
    match mend_open(environment, path, known, held, &mut report, progress)? {
        Ok(()) => Ok(report),
        Err(_) => Err(Error::corruption(
            path,
            0,
            "the tree that the repair built is damaged: the device may be failing",
        )),
    }
}

fn lock_again(environment: &Environment, path: &Path) -> Result<Box<dyn FileLock>> {
    let file_system = &environment.file_system;
    file_system.lock(&path.join(LOCK_NAME), LockMode::Exclusive)
}

/// Opens a store, and mends what its tree leads to. `Err`: the tree itself was damaged;
/// with an error if it cannot be opened, without one if it was built anew.
fn mend_open(
    environment: &Environment,
    path: &Path,
    (store, tuning): (StoreId, &Tuning),
    held: Box<dyn FileLock>,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<std::result::Result<(), Option<Error>>> {
    let mut lost = Vec::new();
    let known = (store, tuning.clone());
    let core = match open_damaged(environment, path, known, held, &mut lost, progress) {
        Ok(core) => core,
        Err(error) => return Ok(Err(Some(error))),
    };
    if mend(&core, lost, report, progress)? {
        return Ok(Ok(()));
    }
    *report = CheckReport::default();
    let rebuilt = rebuild_damaged_blocks(&core, report);
    // Nothing of this opening may be written any more.
    drop(core.health.close());
    lock(&core.lock).take();
    rebuilt.map(|()| Err(None))
}

/// Deletes what cannot be read. False if the tree itself is damaged; then nothing was
/// changed.
fn mend(
    core: &Arc<Core>,
    lost: Vec<Error>,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<bool> {
    let mut is_sound = true;
    core.tree.check(&mut |_| is_sound = false)?;
    if !is_sound {
        return Ok(false);
    }
    for error in lost {
        report.take(error)?;
    }
    for (_, namespace) in core.namespaces() {
        let pin = core.pin()?;
        let stuck = |_: &mut CheckReport, error| Err(error);
        let delete = |key: &[u8]| {
            let delete = Operation::Delete { key: key.to_vec() };
            let request = WriteRequest::new([(namespace, delete)], Durability::Written);
            core.write_request(request).map(|_| ())
        };
        verify_entries((pin, namespace), "repair", report, progress, stuck, delete)?;
    }
    drop_damaged_snapshots(core, report, progress)?;
    drop_lost_segments(core)?;
    if !check_history(core, report)? {
        core.note_lost_history(core.ledger.visible())?;
    }
    core.close()?;
    Ok(true)
}

/// Drops named snapshots that cannot be read whole: one finding for each.
fn drop_damaged_snapshots(
    core: &Arc<Core>,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<()> {
    for (name, _) in core.list_named_snapshots()? {
        let mut found = CheckReport::default();
        check_snapshot(core, &name, &mut found, progress)?;
        if let Some(mut first) = found.findings.into_iter().next() {
            first.what += "; the repair drops the snapshot";
            report.findings.push(first);
            core.drop_named_snapshot(&name)?;
        }
    }
    Ok(())
}

/// Nothing is wanted any more of segments that could not be opened.
fn drop_lost_segments(core: &Arc<Core>) -> Result<()> {
    let known: Vec<u32> = core.ledger.state().segments.keys().copied().collect();
    let lost = known
        .into_iter()
        .filter(|&number| core.segment(number).is_none());
    let items: Vec<NoteItem> = lost.map(NoteItem::Dropped).collect();
    if items.is_empty() {
        return Ok(());
    }
    core.begin_session()?;
    core.seal(&mut lock(&core.writer))?;
    core.tree.flush()?;
    core.tree.commit_note(&note::encode(&items))
}
