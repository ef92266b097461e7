//! Defects that can be switched on, so that the test suites prove that they
//! find them: a checker that finds nothing proves nothing. They are reached by
//! the option `seeded_bug`, which `cambium options` does not list.

cambium_base::named! {
    /// Defects that the test suites must find; never set outside them.
    pub enum SeededBug {
        /// Recovery keeps writes after a gap.
        TornTailKept = "torn_tail_kept",
        /// Recovery keeps part of a batch.
        BatchSplit = "batch_split",
        /// A synced write is not synced.
        CommitUnsynced = "commit_unsynced",
        /// A synced write syncs its own segment and not the ones before it.
        OlderSegmentsUnsynced = "older_segments_unsynced",
        /// Tables point to values that no sync covers.
        TablesAheadOfLog = "tables_ahead_of_log",
        /// Deletes are not logged.
        DeleteUnlogged = "delete_unlogged",
        /// Writes go on after a failed sync.
        SyncRetried = "sync_retried",
        /// A recovery raises neither session nor sequence numbers.
        EpochReused = "epoch_reused",
        /// Values are moved whether or not the tree still points to them, as new
        /// writes of their keys.
        CollectionReinserts = "collection_reinserts",
        /// A collected segment is removed before its moved values are synced.
        MovedUnsynced = "moved_unsynced",
        /// A collected segment is removed before the tables point elsewhere.
        SegmentRemovedEarly = "segment_removed_early",
        /// The note of an empty write buffer is committed ahead of those that wait for their
        /// flush: later they replace the newer state of a segment by an older one.
        NotesReversed = "notes_reversed",
        /// A synced write does not wait for a flush that syncs the same segments, and misses its
        /// failure.
        FailedSyncMissed = "failed_sync_missed",
        /// A close does not wait for steps and compactions.
        CloseOutrun = "close_outrun",
        /// A close of a store without writes leaves out what collection noted.
        CloseUnnoted = "close_unnoted",
        /// A segment whose header is damaged counts as never synced.
        DamagedHeaderIgnored = "damaged_header_ignored",
        /// The space of deletes does not come back while writers are idle.
        DeletesRest = "deletes_rest",
        /// A hole takes the blocks that it shares with its neighbours.
        HoleTooWide = "hole_too_wide",
        /// Holes are made where a cursor or snapshot from before may be led to.
        HoleUnderPin = "hole_under_pin",
        /// A change feed shows what it has of a batch where a piece of the log ends.
        ChangeBatchSplit = "change_batch_split",
        /// A change feed for synced batches shows others.
        ChangesUnsynced = "changes_unsynced",
        /// Consumers hold no history.
        HistoryDroppedEarly = "history_dropped_early",
        /// Holes are made in segments that a checkpoint has too.
        HoleInShared = "hole_in_shared",
        /// Named snapshots hold no segments.
        SnapshotSegmentDropped = "snapshot_segment_dropped",
        /// The manifest is not told that a namespace was dropped.
        NamespaceDropUnnoted = "namespace_drop_unnoted",
    }
}
