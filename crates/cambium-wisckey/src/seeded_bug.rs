//! Defects that can be switched on, so that the test suites prove that they
//! find them: a checker that finds nothing proves nothing. They are reached by
//! the option `seeded_bug`, which `cambium options` does not list.

/// Defects that the test suites must find; never set outside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// Recovery keeps writes after a gap.
    TornTailKept,
    /// Recovery keeps part of a batch.
    BatchSplit,
    /// A synced write is not synced.
    CommitUnsynced,
    /// A synced write syncs its own segment and not the ones before it.
    OlderSegmentsUnsynced,
    /// Tables point to values that no sync covers.
    TablesAheadOfLog,
    /// Deletes are not logged.
    DeleteUnlogged,
    /// Writes go on after a failed sync.
    SyncRetried,
    /// A recovery raises neither session nor sequence numbers.
    EpochReused,
    /// Values are moved whether or not the tree still points to them, as new
    /// writes of their keys.
    CollectionReinserts,
    /// A collected segment is removed before its moved values are synced.
    MovedUnsynced,
    /// A collected segment is removed before the tables point elsewhere.
    SegmentRemovedEarly,
    /// The note of an empty write buffer is committed ahead of those that wait for their
    /// flush: later they replace the newer state of a segment by an older one.
    NotesReversed,
    /// A synced write does not wait for a flush that syncs the same segments, and misses its
    /// failure.
    FailedSyncMissed,
    /// A close does not wait for steps and compactions.
    CloseOutrun,
    /// A close of a store without writes leaves out what collection noted.
    CloseUnnoted,
    /// A segment whose header is damaged counts as never synced.
    DamagedHeaderIgnored,
    /// The space of deletes does not come back while writers are idle.
    DeletesRest,
    /// A hole takes the blocks that it shares with its neighbours.
    HoleTooWide,
    /// Holes are made where a cursor or snapshot from before may be led to.
    HoleUnderPin,
    /// A change feed shows what it has of a batch where a piece of the log ends.
    ChangeBatchSplit,
    /// A change feed for synced batches shows others.
    ChangesUnsynced,
    /// Consumers hold no history.
    HistoryDroppedEarly,
    /// Holes are made in segments that a checkpoint has too.
    HoleInShared,
    /// Named snapshots hold no segments.
    SnapshotSegmentDropped,
    /// The manifest is not told that a namespace was dropped.
    NamespaceDropUnnoted,
}

impl SeededBug {
    /// Every one, with its name.
    pub const ALL: [(SeededBug, &'static str); 25] = [
        (SeededBug::TornTailKept, "torn_tail_kept"),
        (SeededBug::BatchSplit, "batch_split"),
        (SeededBug::CommitUnsynced, "commit_unsynced"),
        (SeededBug::OlderSegmentsUnsynced, "older_segments_unsynced"),
        (SeededBug::TablesAheadOfLog, "tables_ahead_of_log"),
        (SeededBug::DeleteUnlogged, "delete_unlogged"),
        (SeededBug::SyncRetried, "sync_retried"),
        (SeededBug::EpochReused, "epoch_reused"),
        (SeededBug::CollectionReinserts, "collection_reinserts"),
        (SeededBug::MovedUnsynced, "moved_unsynced"),
        (SeededBug::SegmentRemovedEarly, "segment_removed_early"),
        (SeededBug::NotesReversed, "notes_reversed"),
        (SeededBug::FailedSyncMissed, "failed_sync_missed"),
        (SeededBug::CloseOutrun, "close_outrun"),
        (SeededBug::CloseUnnoted, "close_unnoted"),
        (SeededBug::DamagedHeaderIgnored, "damaged_header_ignored"),
        (SeededBug::DeletesRest, "deletes_rest"),
        (SeededBug::HoleTooWide, "hole_too_wide"),
        (SeededBug::HoleUnderPin, "hole_under_pin"),
        (SeededBug::ChangeBatchSplit, "change_batch_split"),
        (SeededBug::ChangesUnsynced, "changes_unsynced"),
        (SeededBug::HistoryDroppedEarly, "history_dropped_early"),
        (SeededBug::HoleInShared, "hole_in_shared"),
        (
            SeededBug::SnapshotSegmentDropped,
            "snapshot_segment_dropped",
        ),
        (SeededBug::NamespaceDropUnnoted, "namespace_drop_unnoted"),
    ];
}
