//! Verifying a store without writing to it.
//!
//! What is live is read from the index image or by a scan, as an opening would, with
//! the same proof that nothing is missing. Then each live entry is read and its
//! checksums compared; so is each change that is kept for consumers. What recovery would drop is a note; a member of a pair that is
//! missing, stale or cannot be read makes the store degraded.

use std::collections::HashSet;
use std::path::Path;

use cambium_api::{CheckReport, Finding, FindingKind, OptionValues, Progress, ProgressSink};
use cambium_base::{Error, Extent, Result};
use cambium_index::cuckoo::SlotKey;
use cambium_io::{AlignedBuffer, Environment, LockMode, OpenOptions};
use cambium_storage::store_lock::lock_store;

use crate::core::{Core, Pin, lock, read};
use crate::format;
use crate::members::{Attached, attach};
use crate::mirror;
use crate::open::{FORMAT, assemble, load};
use crate::options;
use crate::place::Place;
use crate::read::{Opened, by_extent};
use crate::volume::MemberState;

/// What is said of a member of a pair that cannot be read.
const UNREADABLE: &str = "cannot be read here";
/// What is said of one that was away.
const STALE: &str = "this member is stale: the store was written to without it; an open store brings it up to date, and `compact` at once";
/// The same of a store that was opened for reading alone.
const UNLIKE: &str = "this member lacks entries, or a crash left it different: the other one is read, and an opening to write makes them alike";
/// Entries read together.
pub(crate) const READ_TOGETHER: usize = 64;

/// Verifies a store that no process has open for writing.
pub(crate) fn check(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    let (tuning, _) = options::tuning_of_opening(options)?;
    let file_system = &*environment.file_system;
    let (marker, held) = lock_store(file_system, path, FORMAT, LockMode::Shared)?;
    let mut report = CheckReport::default();
    let access = OpenOptions::READ;
    let mut attached = match attach(file_system, path, &marker, &tuning, access, false) {
        Ok(attached) => attached,
        Err(error) => {
            report.take(error)?;
            return Ok(report);
        }
    };
    note_members(&attached, &mut report);
    attached.locks.push(held);
    let volume = &attached.volume;
    let place = (volume, &attached.superblock);
    let recovered = match load(environment, path, place, &tuning, progress) {
        Ok(recovered) => recovered,
        Err(error) => {
            report.take(error)?;
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
    if let Some(first) = recovered.differing.first() {
        let blocks: u64 = recovered
            .differing
            .iter()
            .map(|range| u64::from(range.blocks))
            .sum();
        report.findings.push(Finding {
            kind: FindingKind::Note,
            file: volume.path(),
            offset: volume.offset(first.block),
            what: format!("{blocks} blocks differ between the members, as a crash leaves them: the next opening makes them alike"),
        });
    }
    report.bytes += recovered.bytes;
    report.files += volume.readable().count() as u64;
    let core = assemble(environment, path, tuning, attached, recovered, false);
    let settled = lock(&core.writer).marked;
    check_entries(&core.pin()?, &mut report, progress, settled)?;
    match core.attach_consumers() {
        Ok(()) => core.check_kept_changes(&mut report)?,
        Err(error) => report.take(error)?,
    }
    report.sort();
    Ok(report)
}

/// What is odd about the members, without being damage.
fn note_members(attached: &Attached, report: &mut CheckReport) {
    let volume = &attached.volume;
    let mut note = |kind, member: usize, offset, what| {
        report.findings.push(Finding {
            kind,
            file: volume.member_path(member).to_path_buf(),
            offset,
            what,
        });
    };
    for &(member, offset) in &attached.unsound {
        let what = "this copy of the superblock does not match its checksum; the other is sound and counts";
        note(FindingKind::Note, member, offset, what.to_string());
    }
    for (member, error) in &attached.missing {
        let what = mirror::missing_text(error);
        note(FindingKind::Degraded, *member, 0, what);
    }
    if let Some(member) = volume.stale() {
        note(FindingKind::Degraded, member, 0, STALE.to_string());
    }
}

/// The same of an open store.
fn note_open_members(core: &Core, report: &mut CheckReport) {
    let volume = &core.volume;
    for member in 0..volume.member_count() {
        let what = match volume.state(member) {
            MemberState::Current => continue,
            MemberState::Stale if core.health.is_of_reader() => UNLIKE,
            MemberState::Stale => STALE,
            MemberState::Lost => {
                "this member is missing or has failed, and the store goes on without it"
            }
        };
        report.findings.push(Finding {
            kind: FindingKind::Degraded,
            file: volume.member_path(member).to_path_buf(),
            offset: 0,
            what: what.to_string(),
        });
    }
}

/// Verifies what an open store holds, as of now.
pub(crate) fn check_open_store(pin: &Pin, progress: &dyn ProgressSink) -> Result<CheckReport> {
    let mut report = CheckReport {
        files: pin.core.volume.readable().count() as u64,
        ..CheckReport::default()
    };
    note_open_members(&pin.core, &mut report);
    check_entries(pin, &mut report, progress, u64::MAX)?;
    pin.core.check_kept_changes(&mut report)?;
    Ok(report)
}

/// Reads every entry that a moment sees, from every member. Of two members one may
/// lack what was written after `settled`, as a crash leaves it.
fn check_entries(
    pin: &Pin,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
    settled: u64,
) -> Result<()> {
    let core = &*pin.core;
    let total = read(&core.state).index.len() as u64;
    // Entries of one pack come in several pages.
    let mut counted = HashSet::new();
    let mut from = Some(0);
    while let Some(at) = from {
        let page = pin.page(at)?;
        from = page.next;
        let mut entries: Vec<(SlotKey, Place)> = page
            .entries
            .into_iter()
            .map(|(_, slot, place)| (slot, place))
            .collect();
        // As they lie, so that the device is read from start to end.
        entries.sort_unstable_by_key(|(_, place)| *place);
        for some in entries.chunks(READ_TOGETHER) {
            check_some(core, some, (report, &mut counted), settled)?;
            progress.report(Progress {
                phase: "checking",
                done: report.entries,
                total: Some(total),
            });
        }
    }
    Ok(())
}

fn check_some(
    core: &Core,
    some: &[(SlotKey, Place)],
    (report, counted): (&mut CheckReport, &mut HashSet<(usize, u32)>),
    settled: u64,
) -> Result<()> {
    let packs: Vec<_> = by_extent(some).collect();
    let extents: Vec<Extent> = packs.iter().map(|pack| pack[0].1.extent()).collect();
    let mut sequences = vec![0; packs.len()];
    for (number, member) in core.volume.readable().enumerate() {
        let read = core.read_many_from(Some(member), &extents)?;
        for ((pack, sequence), bytes) in packs.iter().zip(&mut sequences).zip(read) {
            let extent = pack[0].1.extent();
            if number == 0 {
                *sequence = sequence_of(core, extent.block, &bytes);
            }
            let opened = bytes.and_then(|bytes| core.open_extent(bytes, extent));
            let findings = report.findings.len();
            let mut sound = 0;
            for &entry in *pack {
                sound += u64::from(check_one(core, member, entry, &opened, report)?);
            }
            if number == 0 {
                report.entries += sound;
            }
            let is_packed = pack[0].1.number().is_some();
            if sound > 0 && (!is_packed || counted.insert((member, extent.block))) {
                report.bytes += u64::from(extent.blocks) * u64::from(core.block_bytes);
            }
            if number > 0 && *sequence > settled {
                report.findings.truncate(findings);
            }
        }
    }
    Ok(())
}

/// What an entry's header says of its place in the order; 0 if it is not sound.
fn sequence_of(core: &Core, block: u32, bytes: &Result<AlignedBuffer>) -> u64 {
    let bytes = bytes.as_ref().ok();
    let header =
        bytes.and_then(|bytes| format::decode_header(bytes, block, core.block_bytes, core.seed));
    header.map_or(0, |header| header.sequence)
}

/// True if what was read from a member is the entry that the index speaks of.
fn check_one(
    core: &Core,
    member: usize,
    (slot, place): (SlotKey, Place),
    opened: &Result<Opened>,
    report: &mut CheckReport,
) -> Result<bool> {
    let entry = match opened {
        Ok(opened) => core.entry_of(opened, place, slot),
        Err(error) => Err(error.clone()),
    };
    let damage = match entry {
        Ok(entry) if core.names(&entry.key) == slot => return Ok(true),
        Ok(_) => {
            let what = "the entry's key is not the one that its header speaks of";
            core.volume.damage(place.block, what)
        }
        Err(error) => error,
    };
    let path = core.volume.member_path(member);
    match damage {
        Error::Corruption { offset, what, .. } => {
            report.take(Error::corruption(path, offset, what))?;
        }
        // Said once: a device that fails does so everywhere.
        Error::Io { .. } if core.volume.readable().any(|other| other != member) => {
            let known = |found: &Finding| found.file == path && found.what.contains(UNREADABLE);
            if !report.findings.iter().any(known) {
                report.findings.push(Finding {
                    kind: FindingKind::Degraded,
                    file: path.to_path_buf(),
                    offset: core.volume.offset(place.block),
                    what: format!("{UNREADABLE}; the other member is read instead: {damage}"),
                });
            }
        }
        other => return Err(other),
    }
    Ok(false)
}

impl Core {
    /// A key as the index holds it.
    pub fn names(&self, key: &[u8]) -> SlotKey {
        read(&self.state).index.key(key)
    }
}
