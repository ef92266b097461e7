//! Defects that tests switch on. The suites must find each of them, which proves that
//! the suites find something. The option `seeded_bug` selects one; `cambium options`
//! does not list it.

cambium_base::named! {
    /// The defects; only tests set one.
    pub enum SeededBug {
        /// Entries are returned without looking at their checksums.
        NoChecksum = "no_checksum",
        /// Recovery keeps records after a gap.
        TornTailKept = "torn_tail_kept",
        /// Recovery keeps part of a batch.
        BatchSplit = "batch_split",
        /// A checkpoint counts before the log it points into is synced.
        IndexAheadOfLog = "index_ahead_of_log",
        /// The commit log is not synced.
        CommitLogUnsynced = "commit_log_unsynced",
        /// No frame says that data files were synced.
        SyncUnpromised = "sync_unpromised",
        /// Recovery ignores the commit log.
        CommitLogIgnored = "commit_log_ignored",
        /// A full commit log is written anew while the data files are not synced.
        CommitLogEmptiedEarly = "commit_log_emptied_early",
        /// A recovery raises neither session nor sequence numbers: records that it cut off
        /// look like later ones.
        EpochReused = "epoch_reused",
        /// A new table's files are not made durable with their names.
        TableUnregistered = "table_unregistered",
        /// Deletes are not logged.
        DeleteUnlogged = "delete_unlogged",
        /// A checkpoint overwrites the copy of a piece that is in use.
        PieceInPlace = "piece_in_place",
        /// Writes go on after a failed sync.
        SyncRetried = "sync_retried",
        /// A compaction loses writes that came while it ran.
        CompactionWithoutCatchUp = "compaction_without_catch_up",
        /// A reader reports damage if checkpoints overwrite an index piece during the read and
        /// another thread has loaded the piece.
        LoadRaceIsDamage = "load_race_is_damage",
        /// A table is closed while a thread still uses it.
        TableClosedInUse = "table_closed_in_use",
        /// A checkpoint writes counts that include later entries.
        CountsOfLater = "counts_of_later",
        /// A new table is named by one copy of the superblock.
        TableInOneCopy = "table_in_one_copy",
        /// A sync of a data file answers Ok while another thread's sync of the file fails.
        SyncErrorTaken = "sync_error_taken",
        /// A rebuilt index is named before it holds anything.
        EmptyIndexNamed = "empty_index_named",
        /// A batch changes cached values before and after it changes the slots,
        /// without the locks of their pieces.
        CacheOutsideLocks = "cache_outside_locks",
        /// `seek` leaves the cursor outside the scan's bounds.
        SeekUnbounded = "seek_unbounded",
        /// A second compaction of a file begins although no checkpoint has named the
        /// result of the first one.
        SuccessorForgotten = "successor_forgotten",
        /// A recovery appends over accepted records after a hole before its checkpoint.
        HoleOverwritten = "hole_overwritten",
        /// A change feed shows each entry as a batch of its own.
        ChangesSplit = "changes_split",
        /// A change feed of what is synced shows all batches.
        UnsyncedChangesShown = "unsynced_changes_shown",
        /// A compaction does not keep the old file for the consumers that need it.
        ConsumersForgotten = "consumers_forgotten",
        /// A change feed shows entries that a recovery cut off.
        CutChangesShown = "cut_changes_shown",
        /// A compaction leaves out the removals of ranges.
        CompactionWithoutRanges = "compaction_without_ranges",
    }
}
