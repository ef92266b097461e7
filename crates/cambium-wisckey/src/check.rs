//! Verifying a store without writing to it.
//!
//! The tree verifies its tables and the manifest. Then every entry is visited: the
//! value that its pointer leads to is read, and its checksums, key and sequence
//! number are compared. The log after the head is read as recovery would: what it
//! would drop is a note; what it would miss is damage. The changes that are held for
//! consumers are read. Other garbage is not looked at: nothing reads it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    ChangeFeed, ChangeOptions, CheckReport, Direction, Finding, FindingKind, KeyRange,
    OptionValues, Progress, ProgressSink,
};
use cambium_base::{Error, Result};
use cambium_io::{Environment, LockMode};
use cambium_lsm::{DumpItem, EntryRef};
use cambium_storage::store_lock::lock_store;
use cambium_storage::superblock;

use crate::changes::LogFeed;
use crate::core::{Core, lock};
use crate::cursor::EntryCursor;
use crate::format::{FORMAT_VERSION, Stored, segment_path};
use crate::open::{FORMAT, attach};
use crate::options::Tuning;
use crate::pin::Pin;
use crate::recovery::missing;

/// Verifies a store that no process has open for writing.
pub(crate) fn check(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    let (tuning, _) = Tuning::of_opening(options)?;
    let file_system = &*environment.file_system;
    let (marker, held) = lock_store(file_system, path, FORMAT, LockMode::Shared)?;
    let mut report = CheckReport::default();
    let content = superblock::read(file_system, path, &marker.store, FORMAT_VERSION);
    let attached = content.and_then(|content| {
        report.note_other_copy(content.other_copy.as_ref());
        attach(environment, path, marker.store, tuning, (held, false), None)
    });
    let core = match attached {
        Ok(core) => core,
        Err(error) => {
            report.take(error)?;
            return Ok(report);
        }
    };
    let clean = lock(&core.maintenance).root.clean;
    if !clean {
        check_tail(&core, &mut report, progress)?;
    }
    check_contents(&core, &mut report, progress)?;
    check_history(&core, &mut report)?;
    if report.is_sound() {
        check_ledger(&core, &mut report)?;
    }
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
    check_history(core, &mut report)?;
    Ok(report)
}

/// Reads the changes that are held for consumers. False if there is damage.
pub(crate) fn check_history(core: &Arc<Core>, report: &mut CheckReport) -> Result<bool> {
    let Some(oldest) = core.consumers.oldest() else {
        return Ok(true);
    };
    let feed = LogFeed::new(core, oldest, ChangeOptions::default());
    let read = feed.and_then(|mut feed| {
        while feed.next()?.is_some() {}
        Ok(())
    });
    match read {
        // The consumer begins again with a snapshot. Damage that took writes which it has read
        // is reported where the log is read.
        Ok(()) | Err(Error::HistoryLost { .. } | Error::InvalidArgument(_)) => Ok(true),
        Err(damage) => report.take(damage).map(|()| false),
    }
}

/// Fills the tree with what recovery would find after the head.
fn check_tail(
    core: &Arc<Core>,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<()> {
    let (mut tail, found) = match core.read_tail(progress) {
        Ok(read) => read,
        Err(error) => return report.take(error),
    };
    let accepted = core.accept(&tail, found, false);
    let lost = missing(&tail, &accepted);
    if let Some(first) = accepted.found.first() {
        report.findings.push(Finding {
            kind: FindingKind::Note,
            file: core.place_of(&tail, first.segment),
            offset: first.offset,
            what: format!(
                "the store was not closed; the next open replays {} sound writes",
                accepted.found.len()
            ),
        });
    }
    for (place, fault) in tail.faults.iter().filter(|_| lost.is_none()) {
        report.findings.push(Finding {
            kind: FindingKind::Note,
            file: core.place_of(&tail, *place),
            offset: fault.offset,
            what: format!("{}; a torn tail, which the next open drops", fault.reason),
        });
    }
    for segment in &tail.segments {
        let (length, first) = (
            segment.log.file().length()?,
            segment.log.geometry().first_offset,
        );
        if length < first {
            report.findings.push(Finding {
                kind: FindingKind::Note,
                file: segment.path().to_path_buf(),
                offset: length,
                what: "the file ends within its headers; a torn tail, which the next open drops"
                    .to_string(),
            });
        }
    }
    for &number in &tail.blank {
        report.findings.push(Finding {
            kind: FindingKind::Note,
            file: segment_path(&core.path, number),
            offset: 0,
            what: "the segment has no header: no sync covers it, and the next open removes it"
                .to_string(),
        });
    }
    for error in std::mem::take(&mut tail.damage) {
        report.take(error)?;
    }
    if let Some((place, offset, what)) = lost {
        let damage = Error::corruption(core.place_of(&tail, place), offset, what);
        report.take(damage)?;
    }
    core.refill(&tail, &accepted)
}

/// Holds the ledger against the tables: what it thinks dead must be.
fn check_ledger(core: &Core, report: &mut CheckReport) -> Result<()> {
    let mut pointed_to: BTreeMap<u32, u64> = BTreeMap::new();
    core.tree.dump(&mut |item| {
        // A tombstone holds nothing, which is no pointer.
        if let DumpItem::Entry(EntryRef { key, value, .. }) = item {
            if let Some(Stored::Pointer(pointer)) = Stored::decode(value) {
                *pointed_to.entry(pointer.segment).or_insert(0) += pointer.record_bytes(key.len());
            }
        }
        Ok(())
    })?;
    let state = core.ledger.state();
    for (&number, account) in &state.segments {
        let bytes = pointed_to.remove(&number).unwrap_or(0);
        let live = account.live_bytes();
        if bytes == live {
            continue;
        }
        report.findings.push(Finding {
            // More than there is: a crash came between a move and its flush.
            // Less: collection would drop what is still pointed to.
            kind: match bytes < live {
                true => FindingKind::Note,
                false => FindingKind::Damage,
            },
            file: segment_path(&core.path, number),
            offset: 0,
            what: format!("tables point to {bytes} bytes of this segment; the ledger says {live}"),
        });
    }
    // Of a segment that was dropped, only entries that a later one hides are left.
    Ok(())
}

/// Verifies tree and values, and counts the entries.
fn check_contents(
    core: &Arc<Core>,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<()> {
    let mut damage = Vec::new();
    let summary = core.tree.check(&mut |finding| damage.push(finding))?;
    for error in damage {
        report.take(error)?;
    }
    report.files += summary.tables + core.segments.load().len() as u64;
    report.bytes += summary.bytes;
    let before = report.findings.len();
    let (pin, names) = core.pin_with_names()?;
    for (_, namespace) in names.all() {
        check_entries(pin.again()?, namespace, before > 0, report, progress)?;
    }
    for (name, _) in core.list_named_snapshots()? {
        check_snapshot(core, &name, report, progress)?;
    }
    Ok(())
}

/// Verifies the tables of a named snapshot that the tree does not have, and all its values.
/// Its damage names it.
pub(crate) fn check_snapshot(
    core: &Arc<Core>,
    name: &str,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<()> {
    let Ok((pin, kept)) = core.pin_named(name) else {
        // Dropped since it was listed.
        return Ok(());
    };
    let mut of_snapshot = CheckReport::default();
    for error in pin.check_tables()? {
        of_snapshot.take(error)?;
    }
    let damaged = !of_snapshot.findings.is_empty();
    for &namespace in kept.namespaces.keys() {
        let pin = pin.again()?;
        check_entries(pin, namespace, damaged, &mut of_snapshot, progress)?;
    }
    for mut finding in of_snapshot.findings {
        finding.what = format!("{} (of named snapshot {name:?})", finding.what);
        report.findings.push(finding);
    }
    Ok(())
}

/// Verifies the entries of a namespace with their values, and counts them. `is_damaged`: the
/// tree's damage is in the report already.
fn check_entries(
    pin: Pin,
    namespace: u16,
    is_damaged: bool,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<()> {
    let stuck = |report: &mut CheckReport, error| match is_damaged {
        true => Ok(()),
        false => report.take(error),
    };
    verify_entries((pin, namespace), "check", report, progress, stuck, |_| {
        Ok(())
    })
}

/// Verifies the entries of a namespace with their values, and counts them. Values that are
/// damaged go into the report, and their keys to `damaged`; damage of the tree, where there is
/// no going on, to `stuck`.
pub(crate) fn verify_entries(
    (pin, namespace): (Pin, u16),
    phase: &'static str,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
    stuck: impl FnOnce(&mut CheckReport, Error) -> Result<()>,
    mut damaged: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut cursor = EntryCursor::new(pin, namespace, &KeyRange::all(), Direction::Forward);
    loop {
        match cursor.next_verified() {
            Ok(Some(bytes)) => {
                report.entries += 1;
                report.bytes += bytes;
            }
            Ok(None) => break,
            Err(error) if cursor.is_stuck() => return stuck(report, error),
            Err(error) => {
                report.take(error)?;
                damaged(cursor.visited())?;
            }
        }
        if report.entries % 4096 == 0 {
            progress.report(Progress {
                phase,
                done: report.entries,
                total: None,
            });
        }
    }
    Ok(())
}
