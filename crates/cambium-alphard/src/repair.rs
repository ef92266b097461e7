//! Repair: a damaged store is brought back to what can be read.
//!
//! The device is scanned; what is live by the headers found is kept, even where the
//! proof of completeness fails. Entries that do not match their checksums are lost,
//! each with a finding. So that nothing older of their keys comes back instead, all
//! stale headers are erased with theirs. Then the superblock is written with the
//! digest of what is left.
//!
//! Of a pair, an entry is lost only if both members have lost it; what one of them has
//! is written over what the other has instead. A stale member, or a blank one in place
//! of one that is lost, gets a copy of everything; so does one whose superblocks are damaged.
//! A blank one in place of the only one that had every entry says that this one will not come
//! back: the stale one stands for the store then, and a finding says what that costs. A member
//! that cannot be taken is a finding too.

use std::path::Path;

use cambium_api::{CheckReport, Finding, FindingKind, OptionValues, Progress, ProgressSink};
use cambium_base::{Error, Result};
use cambium_index::cuckoo::SlotKey;
use cambium_io::sync::atomic::Ordering;
use cambium_io::{Environment, FileSystem, StepOutcome};
use cambium_storage::marker::{self, Marker};
use cambium_storage::synced_mark;

use crate::check::READ_TOGETHER;
use crate::core::{Core, Writer, lock, write};
use crate::format::{self, FORMAT_VERSION, Superblock};
use crate::members::{attach, superblocks_named};
use crate::open::{DEVICE, assemble};
use crate::options::{self, ENGINE, Tuning};
use crate::place::Place;
use crate::seeded_bug::SeededBug;
use crate::volume::MemberState;
use crate::{mirror, recovery, upkeep};

/// Repairs a store; each loss is a finding.
pub(crate) fn repair(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
    progress: &dyn ProgressSink,
) -> Result<CheckReport> {
    let file_system = &*environment.file_system;
    let (tuning, _) = options::tuning_of_opening(options)?;
    let known = || known_marker(file_system, path, &tuning);
    let (marker, damage, held) = marker::mend_and_lock(file_system, path, known)?;
    let mut attached = attach(file_system, path, &marker, &tuning, DEVICE, true)?;
    attached.locks.push(held);
    let missing = std::mem::take(&mut attached.missing);
    let (volume, superblock) = (&attached.volume, attached.superblock);
    // A recovery keeps all that is durable, whatever is missing before it.
    let session = (superblock.store, superblock.epoch);
    let through = synced_mark::synced_through(file_system, path, session)?;
    let told = Superblock {
        synced_through: superblock.synced_through.max(through),
        ..superblock
    };
    let scan = || recovery::recover(environment, volume, &told, &tuning, progress);
    let recovered = mirror::load_alike(volume, &superblock, &tuning, true, scan)?;
    let mut report = CheckReport {
        findings: recovered.findings.clone(),
        bytes: recovered.bytes,
        files: volume.readable().count() as u64,
        ..CheckReport::default()
    };
    report
        .findings
        .retain(|finding| finding.kind == FindingKind::Damage);
    if let Some(damage) = damage {
        report.note_mended(damage, "it is made anew")?;
    }
    // Recovery misses no entry where the newest superblock, or the newest entries, are lost too.
    if let Some(error) = attached.cut_off.take() {
        report.take(error)?;
    }
    if let Some(member) = attached.behind {
        let what = "this member is stale, and stands for the store now that a blank one is in place of the one that had every entry: what was written without it is lost";
        report.findings.push(Finding {
            kind: FindingKind::Damage,
            file: volume.member_path(member).to_path_buf(),
            offset: 128,
            what: what.to_string(),
        });
    }
    let dead = recovered.dead.clone();
    let core = assemble(environment, path, tuning, attached, recovered, true);
    if let Some(damage) = core.mend_consumers()? {
        report.note_mended(damage, "the consumers of changes are gone")?;
    }
    let lost = find_lost(&core, &mut report, progress)?;
    if !report.is_sound() {
        keep_the_rest(&core, &lost, dead)?;
    } else if told.synced_through > superblock.synced_through {
        // An entry may be missing that another has replaced: the next recovery stops there.
        let mut writer = lock(&core.writer);
        core.volume
            .write_again(superblock.first_block(), superblock.high_water)?;
        core.begin_session(&mut writer)?;
    }
    core.mend()?;
    let mut done = 0;
    while core.bring_up_to_date(u64::MAX)? == StepOutcome::Again {
        done += 1;
        progress.report(Progress {
            phase: "copying to the mirror",
            done,
            total: None,
        });
    }
    let mut writer = lock(&core.writer);
    core.keep_members(&mut writer)?;
    if writer.superblock.cut_off {
        // Last of all: until here another repair has to name the loss.
        writer.superblock.cut_off = false;
        core.write_superblock(&mut writer)?;
    }
    drop(writer);
    note_missing(&core, &missing, &mut report);
    Ok(report)
}

/// The marker; where it is damaged or missing, what it must have said, and the damage:
/// superblocks name the store too.
fn known_marker(
    file_system: &dyn FileSystem,
    path: &Path,
    tuning: &Tuning,
) -> Result<(Marker, Option<Error>)> {
    marker::marker_or_owner(file_system, path, ENGINE, FORMAT_VERSION, || {
        let superblocks = superblocks_named(file_system, path, tuning)?;
        let mut stores = superblocks.iter().map(|(_, superblock)| superblock.store);
        let first = stores.next();
        // The members belong to several stores: it is unknown which is meant.
        let only = first.filter(|first| stores.all(|other| other == *first));
        Ok(only.map(|store| (store, FORMAT_VERSION)))
    })
}

/// Says which members could not be made whole, and why.
fn note_missing(core: &Core, missing: &[(usize, Error)], report: &mut CheckReport) {
    let volume = &core.volume;
    for member in 0..volume.member_count() {
        if volume.state(member) == MemberState::Current {
            continue;
        }
        let why = match missing.iter().find(|(known, _)| *known == member) {
            Some((_, error)) => mirror::missing_text(error),
            None => "this member has failed while everything was copied there".to_string(),
        };
        report.findings.push(Finding {
            kind: FindingKind::Degraded,
            file: volume.member_path(member).to_path_buf(),
            offset: 0,
            what: format!("{why}; `repair` copies everything to one that is there, long enough, and this store's, or blank in its first 128 KiB"),
        });
    }
}

/// Takes lost entries out, with all that could come back in their place. It can be killed
/// anywhere: a later repair finds the same entries lost.
fn keep_the_rest(core: &Core, lost: &[(SlotKey, Place)], dead: Vec<u32>) -> Result<()> {
    {
        let mut state = write(&core.state);
        for &(slot, place) in lost {
            if state.index.remove(slot, place.slot()) {
                state.live_digest ^= format::digest_of(slot, place);
            }
        }
    }
    let mut writer = lock(&core.writer);
    let last = writer.next_sequence - 1;
    for &(_, place) in lost {
        // Its blocks are found to be free by the next opening.
        _ = writer.packs.lose(place, last);
    }
    let mut older = dead;
    older.extend(writer.stale.iter().map(|(_, block)| block));
    let lost: Vec<u32> = lost.iter().map(|(_, place)| place.block).collect();
    // Erased extents leave gaps in the numbers. The superblock must say before that
    // everything up to the end is durable, or a later recovery stops at a gap.
    let superblock = &writer.superblock;
    core.volume
        .write_again(superblock.first_block(), superblock.high_water)?;
    writer.superblock.image_id = 0;
    // What the writes before made of the store is not what is left.
    let history_lost = &mut writer.superblock.history_lost;
    *history_lost = history_lost.map(|_| last);
    if core.has_bug(SeededBug::RepairErasesFirst) {
        older.extend(lost);
        erase(core, &writer, older)?;
        return core.begin_session(&mut writer);
    }
    core.begin_session(&mut writer)?;
    // While the header of a lost entry is there, nothing older of its key counts.
    erase(core, &writer, older.clone())?;
    drop(writer);
    empty_packs(core, older)?;
    let writer = lock(&core.writer);
    erase(core, &writer, lost)
}

/// Moves what counts out of packs that hold older entries too, and erases their headers.
fn empty_packs(core: &Core, mut blocks: Vec<u32>) -> Result<()> {
    let mut writer = lock(&core.writer);
    blocks.retain(|&block| writer.packs.holds(block));
    if blocks.is_empty() {
        return Ok(());
    }
    let moved = || core.counters.moved.load(Ordering::Relaxed);
    loop {
        let before = moved();
        blocks.iter().for_each(|&block| writer.packs.want(block));
        drop(writer);
        while core.clean_some(u64::MAX)? == StepOutcome::Again {}
        writer = lock(&core.writer);
        core.settle(&mut writer)?;
        if moved() == before {
            break;
        }
    }
    // Moved entries have overwritten the other headers.
    blocks.retain(|&block| writer.stale.is_at(block));
    if let Some(&block) = blocks.iter().find(|&&block| writer.packs.holds(block)) {
        return Err(Error::NoSpace {
            path: core.volume.path(),
            what: format!(
                "entries at offset {} have to move for this repair: make the store larger, or delete something",
                core.volume.offset(block)
            ),
        });
    }
    erase(core, &writer, blocks)
}

/// Erases headers, durably; not those of packs with entries that count.
fn erase(core: &Core, writer: &Writer, mut blocks: Vec<u32>) -> Result<()> {
    blocks.retain(|&block| !writer.packs.holds(block));
    blocks.sort_unstable();
    blocks.dedup();
    upkeep::erase_blocks(&core.volume, &blocks)?;
    core.volume.sync()
}

/// Reads every live entry; answers those that are not what was written.
fn find_lost(
    core: &Core,
    report: &mut CheckReport,
    progress: &dyn ProgressSink,
) -> Result<Vec<(SlotKey, Place)>> {
    let mut lost = Vec::new();
    let mut from = Some(0);
    while let Some(at) = from {
        let (page, next) = crate::core::read(&core.state).live_page(at);
        from = next;
        let mut places: Vec<_> = page
            .into_iter()
            .map(|(_, slot, place)| (slot, place))
            .collect();
        // Sorted, so that the entries of a pack are read together.
        places.sort_unstable_by_key(|(_, place)| *place);
        for some in places.chunks(READ_TOGETHER) {
            for (&(slot, place), entry) in some.iter().zip(core.read_entries(some)?) {
                match entry {
                    Ok(_) => report.entries += 1,
                    Err(Error::Corruption { file, offset, what }) => {
                        report.findings.push(Finding {
                            kind: FindingKind::Damage,
                            file,
                            offset,
                            what: format!("{what}: the entry is lost"),
                        });
                        lost.push((slot, place));
                    }
                    Err(error) => return Err(error),
                }
            }
            progress.report(Progress {
                phase: "repairing",
                done: report.entries,
                total: None,
            });
        }
    }
    Ok(lost)
}
