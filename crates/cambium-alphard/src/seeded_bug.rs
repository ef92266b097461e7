//! Defects that tests switch on. The suites must find each of them, which proves that
//! the suites find something. The option `seeded_bug` selects one; `cambium options`
//! does not list it.

cambium_base::named! {
    /// The defects; only tests set one.
    pub enum SeededBug {
        /// Entries are returned without looking at their checksums.
        NoChecksum = "no_checksum",
        /// Recovery keeps entries after a gap.
        TornTailKept = "torn_tail_kept",
        /// Recovery keeps part of a batch.
        BatchSplit = "batch_split",
        /// A synced write is not synced.
        NoSync = "no_sync",
        /// A synced write counts as a sync of earlier writes too.
        SyncedForOthers = "synced_for_others",
        /// Writes go on after a failed sync.
        SyncRetried = "sync_retried",
        /// Freed extents are reused at once.
        FreedTooEarly = "freed_too_early",
        /// Freed extents are reused when their replacements are durable, but before a durable
        /// entry says so.
        ReleasedUnmarked = "released_unmarked",
        /// Deletes write no tombstone: the published design, which erases the newest
        /// entry only.
        NoTombstone = "no_tombstone",
        /// Tombstones retire while older entries of their keys are still there.
        TombstoneTooEarly = "tombstone_too_early",
        /// Recovery does not erase the entries that it cuts off.
        CutNotErased = "cut_not_erased",
        /// The blocks of a pack are free when the first of its entries is obsolete.
        PackFreedEarly = "pack_freed_early",
        /// Cleaning takes what lies on the device for what is on its way there.
        CleansOldBytes = "cleans_old_bytes",
        /// Entries are written beyond the high-water mark before it is raised.
        HighWaterLate = "high_water_late",
        /// An index image is used although the store was written to since.
        StaleImage = "stale_image",
        /// An opening leaves the differences between two members after a crash.
        MembersDiffer = "members_differ",
        /// A member that was away counts as current without the writes that it missed.
        StaleBelieved = "stale_believed",
        /// Writes that a lost member lacks are acknowledged, and nothing says that it
        /// lacks them.
        LossUnsaid = "loss_unsaid",
        /// Zeros are written ahead to blocks that a writer may take at the same time.
        ZeroesFreed = "zeroes_freed",
        /// The cache keeps an extent's bytes when another entry is written to the extent.
        CacheServesOverwritten = "cache_serves_overwritten",
        /// The cache takes bytes that were read before another entry overwrote them.
        CacheTakesLateReads = "cache_takes_late_reads",
        /// A write that finds no space answers `NoSpace`, but readers have seen its entries.
        FullWriteForgiven = "full_write_forgiven",
        /// No space is taken for entries that come to holes.
        HolesUnreserved = "holes_unreserved",
        /// An opening takes the bytes of the page cache for those of the device.
        CacheBelieved = "cache_believed",
        /// A repair erases lost entries before it writes down the kept ones.
        RepairErasesFirst = "repair_erases_first",
        /// A writer syncs its group after a close has returned.
        SyncsAfterClose = "syncs_after_close",
        /// A feed of synced changes shows others too.
        ChangesUnsynced = "changes_unsynced",
        /// Changes are lost although consumers need them.
        HistoryDroppedEarly = "history_dropped_early",
        /// Blocks are given out again while changes are read from them.
        HistoryReused = "history_reused",
        /// Recovery takes replaced entries for history whatever their checksums say.
        HistoryUnverified = "history_unverified",
    }
}
