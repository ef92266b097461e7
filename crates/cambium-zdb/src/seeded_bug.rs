//! Defects that tests switch on. The suites must find each of them, which proves that
//! the suites find something. The option `seeded_bug` selects one; `cambium options`
//! does not list it.

/// The defects; only tests set one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// Entries are returned without looking at their checksums.
    NoChecksum,
    /// Recovery keeps records after a gap.
    TornTailKept,
    /// Recovery keeps part of a batch.
    BatchSplit,
    /// A checkpoint counts before the log it points into is synced.
    IndexAheadOfLog,
    /// The commit log is not synced.
    CommitLogUnsynced,
    /// No frame says that data files were synced.
    SyncUnpromised,
    /// Recovery ignores the commit log.
    CommitLogIgnored,
    /// A recovery raises neither session nor sequence numbers: records that it cut off
    /// look like later ones.
    EpochReused,
    /// A new table's files are not made durable with their names.
    TableUnregistered,
    /// Deletes are not logged.
    DeleteUnlogged,
    /// A checkpoint overwrites the copy of a piece that is in use.
    PieceInPlace,
    /// Writes go on after a failed sync.
    SyncRetried,
    /// A compaction loses writes that came while it ran.
    CompactionWithoutCatchUp,
    /// A reader reports damage if checkpoints overwrite an index piece during the read and
    /// another thread has loaded the piece.
    LoadRaceIsDamage,
    /// A table is closed while a thread still uses it.
    TableClosedInUse,
    /// A checkpoint writes counts that include later entries.
    CountsOfLater,
    /// A new table is named by one copy of the superblock.
    TableInOneCopy,
    /// A sync of a data file answers Ok while another thread's sync of the file fails.
    SyncErrorTaken,
    /// A rebuilt index is named before it holds anything.
    EmptyIndexNamed,
    /// A batch changes cached values before and after it changes the slots,
    /// without the locks of their pieces.
    CacheOutsideLocks,
    /// `seek` leaves the cursor outside the scan's bounds.
    SeekUnbounded,
    /// A second compaction of a file begins although no checkpoint has named the
    /// result of the first one.
    SuccessorForgotten,
    /// A recovery appends over accepted records after a hole before its checkpoint.
    HoleOverwritten,
    /// A change feed shows each entry as a batch of its own.
    ChangesSplit,
    /// A change feed of what is synced shows all batches.
    UnsyncedChangesShown,
    /// A compaction does not keep the old file for the consumers that need it.
    ConsumersForgotten,
    /// A change feed shows entries that a recovery cut off.
    CutChangesShown,
    /// A compaction leaves out the removals of ranges.
    CompactionWithoutRanges,
}

impl SeededBug {
    /// All defects, with their names.
    pub const ALL: [(SeededBug, &'static str); 28] = [
        (SeededBug::NoChecksum, "no_checksum"),
        (SeededBug::TornTailKept, "torn_tail_kept"),
        (SeededBug::BatchSplit, "batch_split"),
        (SeededBug::IndexAheadOfLog, "index_ahead_of_log"),
        (SeededBug::CommitLogUnsynced, "commit_log_unsynced"),
        (SeededBug::SyncUnpromised, "sync_unpromised"),
        (SeededBug::CommitLogIgnored, "commit_log_ignored"),
        (SeededBug::EpochReused, "epoch_reused"),
        (SeededBug::TableUnregistered, "table_unregistered"),
        (SeededBug::DeleteUnlogged, "delete_unlogged"),
        (SeededBug::PieceInPlace, "piece_in_place"),
        (SeededBug::SyncRetried, "sync_retried"),
        (
            SeededBug::CompactionWithoutCatchUp,
            "compaction_without_catch_up",
        ),
        (SeededBug::LoadRaceIsDamage, "load_race_is_damage"),
        (SeededBug::TableClosedInUse, "table_closed_in_use"),
        (SeededBug::CountsOfLater, "counts_of_later"),
        (SeededBug::TableInOneCopy, "table_in_one_copy"),
        (SeededBug::SyncErrorTaken, "sync_error_taken"),
        (SeededBug::EmptyIndexNamed, "empty_index_named"),
        (SeededBug::CacheOutsideLocks, "cache_outside_locks"),
        (SeededBug::SeekUnbounded, "seek_unbounded"),
        (SeededBug::SuccessorForgotten, "successor_forgotten"),
        (SeededBug::HoleOverwritten, "hole_overwritten"),
        (SeededBug::ChangesSplit, "changes_split"),
        (SeededBug::UnsyncedChangesShown, "unsynced_changes_shown"),
        (SeededBug::ConsumersForgotten, "consumers_forgotten"),
        (SeededBug::CutChangesShown, "cut_changes_shown"),
        (
            SeededBug::CompactionWithoutRanges,
            "compaction_without_ranges",
        ),
    ];
}
