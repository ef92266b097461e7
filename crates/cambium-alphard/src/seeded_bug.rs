//! Defects that can be switched on, so that the test suites prove that they
//! find them: a checker that finds nothing proves nothing. They are reached by
//! the option `seeded_bug`, which `cambium options` does not list.

use std::path::Path;

use cambium_api::{CheckReport, OptionValues};
use cambium_base::{Error, Result};
use cambium_io::Environment;

/// Defects that the test suites must find; never set outside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// Entries are returned without looking at their checksums.
    NoChecksum,
    /// Recovery keeps entries behind a gap.
    TornTailKept,
    /// Recovery keeps part of a batch.
    BatchSplit,
    /// A synced write is not synced.
    NoSync,
    /// A synced write is taken to make earlier writes durable.
    SyncedForOthers,
    /// Writes go on after a failed sync.
    SyncRetried,
    /// Freed extents are reused at once.
    FreedTooEarly,
    /// Freed extents are reused when what replaced them is durable, and no
    /// durable entry says so yet.
    ReleasedUnmarked,
    /// Deletes write no tombstone: the published design, which erases the newest
    /// entry only.
    NoTombstone,
    /// Tombstones retire while older entries of their keys are still there.
    TombstoneTooEarly,
    /// What recovery cut off stays on the device.
    CutNotErased,
    /// The high-water mark is not raised before entries lie behind it.
    HighWaterLate,
    /// An index image is used although the store was written to since.
    StaleImage,
    /// What a crash left different on two members stays so.
    MembersDiffer,
    /// A member that was away is taken for current without what it missed.
    StaleBelieved,
    /// Writes that a lost member lacks are acknowledged, and nothing says that it
    /// lacks them.
    LossUnsaid,
    /// Zeros are written ahead to blocks that others may take meanwhile.
    ZeroesFreed,
    /// What the cache holds of an extent stays there when another entry is written to it.
    CacheServesOverwritten,
    /// The cache takes what was read before another entry was written there.
    CacheTakesLateReads,
    /// A write of entries that finds no space answers `NoSpace`, and readers have seen it.
    FullWriteForgiven,
    /// No space is taken for entries that come to holes.
    HolesUnreserved,
    /// An opening takes what the operating system's cache holds for what the device holds.
    CacheBelieved,
    /// A repair erases what is lost before it writes down what it keeps.
    RepairErasesFirst,
    /// A writer whose group was written apart syncs it after a close has returned.
    SyncsAfterClose,
}

impl SeededBug {
    /// Every one, with its name.
    pub const ALL: [(SeededBug, &'static str); 24] = [
        (SeededBug::NoChecksum, "no_checksum"),
        (SeededBug::TornTailKept, "torn_tail_kept"),
        (SeededBug::BatchSplit, "batch_split"),
        (SeededBug::NoSync, "no_sync"),
        (SeededBug::SyncedForOthers, "synced_for_others"),
        (SeededBug::SyncRetried, "sync_retried"),
        (SeededBug::FreedTooEarly, "freed_too_early"),
        (SeededBug::ReleasedUnmarked, "released_unmarked"),
        (SeededBug::NoTombstone, "no_tombstone"),
        (SeededBug::TombstoneTooEarly, "tombstone_too_early"),
        (SeededBug::CutNotErased, "cut_not_erased"),
        (SeededBug::HighWaterLate, "high_water_late"),
        (SeededBug::StaleImage, "stale_image"),
        (SeededBug::MembersDiffer, "members_differ"),
        (SeededBug::StaleBelieved, "stale_believed"),
        (SeededBug::LossUnsaid, "loss_unsaid"),
        (SeededBug::ZeroesFreed, "zeroes_freed"),
        (
            SeededBug::CacheServesOverwritten,
            "cache_serves_overwritten",
        ),
        (SeededBug::CacheTakesLateReads, "cache_takes_late_reads"),
        (SeededBug::FullWriteForgiven, "full_write_forgiven"),
        (SeededBug::HolesUnreserved, "holes_unreserved"),
        (SeededBug::CacheBelieved, "cache_believed"),
        (SeededBug::RepairErasesFirst, "repair_erases_first"),
        (SeededBug::SyncsAfterClose, "syncs_after_close"),
    ];
}

/// A repair with options, such as a seeded bug.
///
/// # Errors
/// Those of a repair.
pub fn repair(
    environment: &Environment,
    path: &Path,
    options: OptionValues,
) -> Result<CheckReport> {
    crate::repair::repair_with(environment, path, options, &())
}

/// Takes the option out.
pub(crate) fn take(options: &mut OptionValues) -> Result<Option<SeededBug>> {
    let Some(name) = options.take("seeded_bug") else {
        return Ok(None);
    };
    SeededBug::ALL
        .iter()
        .find(|(_, known)| *known == name)
        .map(|(bug, _)| Some(*bug))
        .ok_or_else(|| Error::InvalidArgument(format!("engine alphard has no seeded bug {name:?}")))
}
