//! Defects that tests switch on. The suites must find each of them, which proves that
//! the suites find something. The option `seeded_bug` selects one; `cambium options`
//! does not list it.

/// The defects; only tests set one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// Entries are returned without looking at their checksums.
    NoChecksum,
    /// Recovery keeps entries after a gap.
    TornTailKept,
    /// Recovery keeps part of a batch.
    BatchSplit,
    /// A synced write is not synced.
    NoSync,
    /// A synced write counts as a sync of earlier writes too.
    SyncedForOthers,
    /// Writes go on after a failed sync.
    SyncRetried,
    /// Freed extents are reused at once.
    FreedTooEarly,
    /// Freed extents are reused when their replacements are durable, but before a durable
    /// entry says so.
    ReleasedUnmarked,
    /// Deletes write no tombstone: the published design, which erases the newest
    /// entry only.
    NoTombstone,
    /// Tombstones retire while older entries of their keys are still there.
    TombstoneTooEarly,
    /// Recovery does not erase the entries that it cuts off.
    CutNotErased,
    /// Entries are written beyond the high-water mark before it is raised.
    HighWaterLate,
    /// An index image is used although the store was written to since.
    StaleImage,
    /// An opening leaves the differences between two members after a crash.
    MembersDiffer,
    /// A member that was away counts as current without the writes that it missed.
    StaleBelieved,
    /// Writes that a lost member lacks are acknowledged, and nothing says that it
    /// lacks them.
    LossUnsaid,
    /// Zeros are written ahead to blocks that a writer may take at the same time.
    ZeroesFreed,
    /// The cache keeps an extent's bytes when another entry is written to the extent.
    CacheServesOverwritten,
    /// The cache takes bytes that were read before another entry overwrote them.
    CacheTakesLateReads,
    /// A write that finds no space answers `NoSpace`, but readers have seen its entries.
    FullWriteForgiven,
    /// No space is taken for entries that come to holes.
    HolesUnreserved,
    /// An opening takes the bytes of the page cache for those of the device.
    CacheBelieved,
    /// A repair erases lost entries before it writes down the kept ones.
    RepairErasesFirst,
    /// A writer syncs its group after a close has returned.
    SyncsAfterClose,
    /// A feed of synced changes shows others too.
    ChangesUnsynced,
    /// Changes are lost although consumers need them.
    HistoryDroppedEarly,
    /// Blocks are given out again while changes are read from them.
    HistoryReused,
    /// Recovery takes replaced entries for history whatever their checksums say.
    HistoryUnverified,
}

impl SeededBug {
    /// All defects, with their names.
    pub const ALL: [(SeededBug, &'static str); 28] = [
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
        (SeededBug::ChangesUnsynced, "changes_unsynced"),
        (SeededBug::HistoryDroppedEarly, "history_dropped_early"),
        (SeededBug::HistoryReused, "history_reused"),
        (SeededBug::HistoryUnverified, "history_unverified"),
    ];
}
