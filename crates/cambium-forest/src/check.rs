//! Verifying a store without writing to it.
//!
//! From the newest header on, every index of every namespace and named snapshot
//! is walked: each node's checksum and every invariant of the trees. Each document
//! that they reach is read and its checksums compared, and that the index leads
//! back to it by its key. Then [`crate::agreement`] sees that the index has the newest
//! write of each key that the file has. The log after the header is read as recovery
//! would: what it would drop is a note; what it would miss is damage. What is stale is
//! otherwise not looked at: nothing reads it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    CheckReport, Direction, Finding, FindingKind, KeyRange, OptionValues, Progress, ProgressSink,
};
use cambium_base::{Result, StoreId};
use cambium_index::NodeAddress;
use cambium_io::Environment;
use cambium_io::segmented::place_in;
use cambium_storage::file_header::FileHeader;
use cambium_storage::store_lock::lock_for_reading;
use cambium_storage::superblock;

use crate::agreement::check_agreement;
use crate::buffer::KeptMoments;
use crate::changes::check_history;
use crate::core::{Core, lock};
use crate::cursor::EntryCursor;
use crate::document::DocumentAddress;
use crate::format::{FORMAT_VERSION, MAGIC, NamespaceRoot, Root};
use crate::nodes::Nodes;
use crate::open::{attach, read_marker};
use crate::options::Tuning;
use crate::packed_reads::OpenBlock;
use crate::replay::missing;
use crate::view::View;

/// Verifies a store that no process has open for writing.
pub(crate) fn check(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    let (tuning, _) = Tuning::of_opening(options)?;
    let below = &*environment.file_system;
    let environment = &tuning.segmented(environment);
    let marker = read_marker(&*environment.file_system, path)?;
    let mut report = check_store(environment, path, (marker.store, tuning), progress)?;
    for finding in &mut report.findings {
        match place_in(below, &finding.file, finding.offset) {
            Ok((segment, at)) if segment != finding.file => {
                let what = &mut finding.what;
                *what = format!("{what} (byte {at} of {})", segment.display());
            }
            _ => {}
        }
    }
    Ok(report)
}

/// The same for a store whose id is known, whatever its marker says.
pub(crate) fn check_store(
    environment: &Environment,
    path: &Path,
    (store, mut tuning): (StoreId, Tuning),
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    let file_system = &*environment.file_system;
    let held = lock_for_reading(file_system, path)?;
    let mut report = CheckReport::default();
    // Each block is read once.
    tuning.cache_bytes = Some(0);
    let content = superblock::read(file_system, path, &store, FORMAT_VERSION);
    let mut named = None;
    let attached = content.and_then(|content| {
        report.note_other_copy(content.other_copy.as_ref());
        named = Root::decode(&content.payload).map(|root| (root.header, root.clean));
        attach(environment, path, store, tuning, (held, false))
    });
    let core = match attached {
        Ok(core) => core,
        Err(error) => {
            report.take(error)?;
            return Ok(report);
        }
    };
    let view = core.view.load_full();
    if let Err(error) = FileHeader::read(&**view.database.log.file(), MAGIC, FORMAT_VERSION) {
        report.take(error)?;
    }
    let (header, clean) = {
        let maintenance = lock(&core.maintenance);
        (maintenance.root.header, maintenance.root.clean)
    };
    if let Some((wanted, _)) = named.filter(|&(wanted, _)| wanted != header) {
        let what = "the newest database header is damaged; the next open goes on from its spare, and replays what follows";
        report.take(view.database.damage(wanted, what))?;
    }
    match clean {
        true => check_closed_tail(&core, &view, &mut report, progress)?,
        false => check_tail(&core, &view, &mut report, progress)?,
    }
    check_contents(&core, &mut report, progress)?;
    report.sort();
    Ok(report)
}

/// Verifies what an open store holds, as it is on the device.
pub(crate) fn check_open_store(
    core: &Arc<Core>,
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    core.check_open()?;
    let mut report = CheckReport::default();
    check_contents(core, &mut report, progress)?;
    Ok(report)
}

/// A closed store has only nodes and headers after its replay point. The next
/// compaction reads past them, and stops where it cannot.
fn check_closed_tail(
    core: &Core,
    view: &View,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<()> {
    let maintenance = lock(&core.maintenance);
    let tail = core.read_tail(&view.database, &maintenance.replay_start(), progress)?;
    let within = |offset: u64| offset < maintenance.root.end;
    for fault in tail.faults.iter().filter(|fault| within(fault.offset)) {
        let what = format!("{}; no compaction gets past it", fault.reason);
        report.take(view.database.damage(fault.offset, what))?;
    }
    Ok(())
}

/// What recovery would find after the header; fills the buffer with it.
fn check_tail(
    core: &Arc<Core>,
    view: &View,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<()> {
    let maintenance = lock(&core.maintenance);
    let start = maintenance.replay_start();
    let mut tail = core.read_tail(&view.database, &start, progress)?;
    let accepted = match core.accept(&view.database, &start, &mut tail) {
        Ok(accepted) => accepted,
        Err(error) => return report.take(error),
    };
    drop(maintenance);
    let lost = missing(&tail, &accepted);
    if !accepted.found.is_empty() {
        report.findings.push(Finding {
            kind: FindingKind::Note,
            file: view.database.path().to_path_buf(),
            offset: accepted.found[0].offset,
            what: format!(
                "the store was not closed; the next open replays {} sound writes behind the last header",
                accepted.found.len()
            ),
        });
    }
    if let Some(offset) = accepted.unfinished.filter(|_| lost.is_none()) {
        report.findings.push(Finding {
            kind: FindingKind::Note,
            file: view.database.path().to_path_buf(),
            offset,
            what: "the rest of this write's batch is missing; the next open drops it".to_string(),
        });
    }
    for fault in tail.faults.iter().filter(|_| lost.is_none()) {
        report.findings.push(Finding {
            kind: FindingKind::Note,
            file: view.database.path().to_path_buf(),
            offset: fault.offset,
            what: format!("{}; a torn tail, which the next open drops", fault.reason),
        });
    }
    if let Some((offset, what)) = lost {
        report.take(view.database.damage(offset, what))?;
    }
    let found = accepted.found;
    core.change_view(|view| core.refill(view.clone(), found, &KeptMoments::default()));
    core.visible
        .store(accepted.cut, cambium_io::sync::atomic::Ordering::Release);
    Ok(())
}

/// Verifies indexes and documents, each read once, holds them against the log, and counts
/// the entries. Takes no memory that grows with the store, unless there are named
/// snapshots: 16 bytes a document then.
pub(crate) fn check_contents(
    core: &Arc<Core>,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<()> {
    let (pin, header) = core.pin_with_header()?;
    let view = pin.view.clone();
    let snapshots = &header.snapshots;
    let before = report.findings.len();
    // Only named snapshots share documents with the newest trees.
    let mut seen = (!snapshots.is_empty()).then(HashSet::new);
    let kept = snapshots.iter().flat_map(|snapshot| {
        let roots = snapshot.namespaces.iter();
        roots.map(|(namespace, root)| (*namespace, *root))
    });
    report.files += 1;
    let mut entries = 0;
    for (_, root) in view.roots.namespaces.iter() {
        entries += check_root(core, &view, *root, &mut seen, report, progress)?;
    }
    for (_, root) in kept {
        check_root(core, &view, root, &mut seen, report, progress)?;
    }
    let damaged = |finding: &Finding| finding.kind == FindingKind::Damage;
    if !report.findings[before..].iter().any(damaged) {
        check_agreement(core, &view, &header, report, progress)?;
    }
    check_history(core, report)?;
    if !view.is_buffered() {
        report.entries += entries;
        return Ok(());
    }
    for namespace in view.names.numbers() {
        let range = KeyRange::all();
        let mut cursor = EntryCursor::new(pin.again()?, namespace, range, Direction::Forward);
        loop {
            match cursor.next_key() {
                Ok(Some(_)) => report.entries += 1,
                Ok(None) => break,
                // Named already, unless it is only in a buffer.
                Err(_) if report.findings.len() > before => break,
                Err(error) => {
                    report.take(error)?;
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Documents of a check that were looked at already.
type Seen = Option<HashSet<DocumentAddress>>;

/// Verifies one tree and its documents; answers how many it reaches.
fn check_root(
    core: &Arc<Core>,
    view: &View,
    root: NamespaceRoot,
    seen: &mut Seen,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<u64> {
    let database = &view.database;
    let Some(address) = root.root else {
        return Ok(0);
    };
    let nodes = core.nodes(database);
    let found = core.index.check(&nodes, address, |documents, found| {
        progress.report(Progress {
            phase: "check",
            done: found.documents,
            total: Some(root.documents),
        });
        if let Some(seen) = seen {
            documents.retain(|&document| seen.insert(document));
        }
        documents.sort_unstable_by_key(|document| document.offset());
        let mut open = None;
        for &document in &*documents {
            report.bytes += document.most_bytes();
            match led_back(core, &nodes, address, document, &mut open) {
                Ok(()) => {}
                // The damaged node is named.
                Err(_) if !found.problems.is_empty() => {}
                Err(error) => report.take(error)?,
            }
        }
        Ok(())
    })?;
    let node_count = found.statistics.nodes();
    let sound = found.problems.is_empty();
    for problem in found.problems {
        report.take(problem)?;
    }
    report.bytes += node_count * database.node_bytes();
    let offset = address.0.saturating_mul(database.node_bytes());
    for (reached, said, what) in [
        (found.documents, root.documents, "documents"),
        (node_count, root.nodes, "nodes"),
    ] {
        if sound && reached != said {
            let what = format!("the index reaches {reached} {what}, and the header says {said}");
            report.take(database.damage(offset, what))?;
        }
    }
    Ok(found.documents)
}

/// Reads a document and sees that the index leads to it by its key.
fn led_back(
    core: &Core,
    nodes: &Nodes<'_>,
    root: NodeAddress,
    document: DocumentAddress,
    open: &mut Option<OpenBlock>,
) -> Result<()> {
    let database = nodes.database;
    let read = database.read_in_turn(document, open)?;
    match core.index.find(nodes, root, &read.key)? {
        Some(found) if found == document => Ok(()),
        _ => Err(database.damage(
            document.offset(),
            "the index does not lead to this document by its key",
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that cannot go on has failed

    use super::*;
    use cambium_storage::creation::Making;

    /// A compaction puts file and named snapshots into another file under the
    /// maintenance lock: a check that took the file before the switch and the snapshots
    /// after it would look for the snapshots' roots in the wrong file.
    #[test]
    fn a_check_takes_file_and_snapshots_at_one_moment() {
        let environment = Environment::memory();
        let none = OptionValues::default();
        let making = crate::open::make(&environment, Path::new("/store"), &none);
        let core = making.and_then(Making::conclude).unwrap();
        let (began, begun) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let maintenance = lock(&core.maintenance);
            let checking = scope.spawn(|| {
                began.send(()).unwrap();
                check_open_store(&core, &()).unwrap()
            });
            begun.recv().unwrap();
            for _ in 0..10_000 {
                std::thread::yield_now();
                assert!(lock(&core.pins).is_empty(), "it took the file already");
            }
            drop(maintenance);
            assert!(checking.join().unwrap().is_sound());
        });
    }
}
