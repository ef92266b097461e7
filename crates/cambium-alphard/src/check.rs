//! Verifying a store without writing to it.
//!
//! What is live is read from the index image or by a scan, as an opening would, with
//! the same proof that nothing is missing. Then each live entry is read and its
//! checksums compared. What recovery would drop is a note.

use std::path::Path;

use cambium_api::{CheckReport, Finding, FindingKind, OptionValues, Progress, ProgressSink};
use cambium_base::{Error, Extent, Result};
use cambium_index::cuckoo::SlotKey;
use cambium_io::{Environment, LockMode, OpenOptions};
use cambium_storage::marker;

use crate::core::{Core, Pin, read};
use crate::format::{FORMAT_VERSION, LOCK_NAME};
use crate::open::{assemble, attach, load};
use crate::options::{self, ENGINE};

/// Entries read together.
const READ_TOGETHER: usize = 64;

/// Verifies a store that nobody has open for writing.
pub(crate) fn check(
    environment: &Environment,
    path: &Path,
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    let file_system = &*environment.file_system;
    let marker = marker::read_marker_of(file_system, path, ENGINE, FORMAT_VERSION)?;
    let held = file_system.lock(&path.join(LOCK_NAME), LockMode::Shared)?;
    let tuning = options::tuning(OptionValues::default())?;
    let mut report = CheckReport::default();
    let attached = attach(file_system, path, &marker, &tuning, OpenOptions::READ);
    let (volume, superblock, unsound) = match attached {
        Ok(attached) => attached,
        Err(error) => {
            take(&mut report, error)?;
            return Ok(report);
        }
    };
    for offset in unsound {
        report.findings.push(Finding {
            kind: FindingKind::Note,
            file: volume.path(),
            offset,
            what: "this copy of the superblock does not match its checksum; the other is sound and counts".to_string(),
        });
    }
    let loaded = load(environment, path, (&volume, &superblock), &tuning, progress);
    let recovered = match loaded {
        Ok(recovered) => recovered,
        Err(error) => {
            take(&mut report, error)?;
            return Ok(report);
        }
    };
    report.findings.extend(recovered.findings.iter().cloned());
    if !recovered.dead.is_empty() {
        report.findings.push(Finding {
            kind: FindingKind::Note,
            file: volume.path(),
            offset: volume.offset(recovered.dead[0]),
            what: format!(
                "{} entries behind the last whole write: the next opening erases them",
                recovered.dead.len()
            ),
        });
    }
    report.bytes += recovered.bytes;
    report.files += 1;
    let core = assemble(
        environment,
        path,
        tuning,
        (volume, superblock),
        recovered,
        Some(held),
    );
    check_entries(&core.pin()?, &mut report, progress)?;
    let findings = &mut report.findings;
    findings.sort_by(|one, other| (&one.file, one.offset).cmp(&(&other.file, other.offset)));
    Ok(report)
}

/// Verifies what an open store holds, as of now.
pub(crate) fn check_open_store(pin: &Pin, progress: &dyn ProgressSink) -> Result<CheckReport> {
    let mut report = CheckReport {
        files: 1,
        ..CheckReport::default()
    };
    check_entries(pin, &mut report, progress)?;
    Ok(report)
}

/// Reads every entry that a moment sees.
fn check_entries(pin: &Pin, report: &mut CheckReport, progress: &dyn ProgressSink) -> Result<()> {
    let core = &*pin.core;
    let total = read(&core.state).index.len() as u64;
    let mut from = Some(0);
    while let Some(at) = from {
        let page = read(&core.state).page(at, pin.moment);
        from = page.next;
        let mut entries: Vec<(SlotKey, Extent)> = page
            .entries
            .into_iter()
            .map(|(_, slot, extent)| (slot, extent))
            .collect();
        // As they lie, so that the device is read from start to end.
        entries.sort_unstable_by_key(|(_, extent)| *extent);
        for some in entries.chunks(READ_TOGETHER) {
            check_some(core, some, report)?;
            progress.report(Progress {
                phase: "checking",
                done: report.entries,
                total: Some(total),
            });
        }
    }
    Ok(())
}

fn check_some(core: &Core, some: &[(SlotKey, Extent)], report: &mut CheckReport) -> Result<()> {
    let extents: Vec<Extent> = some.iter().map(|(_, extent)| *extent).collect();
    for (&(slot, extent), bytes) in some.iter().zip(core.read_many(&extents)?) {
        let length = u64::from(extent.blocks) * u64::from(core.block_bytes);
        match bytes.and_then(|bytes| core.open_entry(bytes, extent, slot)) {
            Ok(entry) if core.names(&entry.key) == slot => {
                report.entries += 1;
                report.bytes += length;
            }
            Ok(_) => {
                let what = "the entry's key is not the one that its header speaks of";
                take(report, core.volume.damage(extent.block, what))?;
            }
            Err(error) => take(report, error)?,
        }
    }
    Ok(())
}

impl Core {
    /// A key as the index holds it.
    pub fn names(&self, key: &[u8]) -> SlotKey {
        read(&self.state).index.key(key)
    }
}

/// Damage becomes a finding; anything else ends the check.
fn take(report: &mut CheckReport, error: Error) -> Result<()> {
    let Error::Corruption { file, offset, what } = error else {
        return Err(error);
    };
    report.findings.push(Finding {
        kind: FindingKind::Damage,
        file,
        offset,
        what,
    });
    Ok(())
}
