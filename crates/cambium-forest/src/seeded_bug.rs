//! Defects that tests switch on. The suites must find each of them, which proves that
//! the suites find something. The option `seeded_bug` selects one; `cambium options`
//! does not list it.

/// The defects; only tests set one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// Documents are returned without looking at their checksums.
    NoChecksum,
    /// Recovery keeps documents after a gap.
    TornTailKept,
    /// Recovery keeps part of a batch.
    BatchSplit,
    /// A synced write is not synced.
    CommitUnsynced,
    /// The superblock points to a header before its nodes are synced.
    HeaderAheadOfNodes,
    /// Replay begins at the header instead of where the buffer was sealed.
    ReplayFromHeader,
    /// A recovery raises neither session nor sequence numbers: documents that it cut off
    /// look like later ones.
    EpochReused,
    /// Deletes are not logged.
    DeleteUnlogged,
    /// Writes go on after a failed sync.
    SyncRetried,
    /// A flush forgets the writes that came while it ran.
    FlushDropsActive,
    /// A flush leaves the cached addresses of documents as they were.
    FlushKeepsAddresses,
    /// A flush leaves one entry out of the tries, and counts it nowhere.
    FlushLosesEntry,
    /// A flush leaves the keys of deleted ranges in the tries.
    FlushForgetsRanges,
    /// Buffers that are packed lose what they removed.
    PackLosesRemovals,
    /// A get returns a version that is kept for a snapshot, if a writer overwrites the right
    /// version during the lookup.
    PassedVersionsFound,
    /// A writer trusts its own sync while a flush's sync of the same file fails.
    SyncsApart,
    /// A flush that puts its buffer straight into the tries keeps an older buffer's place.
    PackedPlaceKept,
    /// A flush that fails takes new space with each attempt.
    FlushLeavesRuns,
    /// Writers append after the record of a run that a failed flush did not write.
    WritesBehindLostRun,
    /// The store repeats a flush that has met damage, without end.
    FlushRetriesDamage,
    /// A write that a compaction slows waits for no more than a small one's time.
    LongDelaysCut,
    /// The first scan of a write buffer holds writers until it has sorted all keys.
    ScanHoldsWriters,
    /// A call of `compact` takes back a cancellation of calls that began before it.
    CancellationCleared,
    /// A compaction loses writes that came while it ran.
    CompactionWithoutCatchUp,
    /// A compaction removes the old file before the superblock names the new one.
    OldFileRemovedEarly,
    /// A compaction points the superblock to its file before it syncs the file.
    CompactionUnsynced,
    /// A compaction leaves out a document, as if it could not read it.
    CompactionDropsDocument,
    /// A compaction drops documents that named snapshots need.
    CompactionDropsSnapshots,
    /// A named snapshot that is made during a compaction gets the state at the compaction's
    /// next look.
    CompactionPassesSnapshot,
    /// A named snapshot is kept in memory alone.
    SnapshotUnwritten,
    /// A rollback leaves the content of the write buffer.
    RollbackKeepsBuffer,
    /// Replay does not stop at a rollback: a crash brings undone writes back.
    RollbackReplayed,
    /// The creation of a namespace is not logged.
    NamespaceUnlogged,
    /// A recovery ignores that a namespace was dropped.
    DropForgotten,
    /// A rollback does not bring back a namespace that was dropped.
    RollbackLosesDropped,
    /// The log says that a write is synced before it is.
    MarkBeforeSync,
    /// A recovery puts the writes of all namespaces into the default one.
    NamespacesMixed,
    /// The change feed shows the first two entries of a batch as a batch.
    ChangesHalveBatch,
    /// A change feed of synced batches shows those that are not, too.
    ChangesBeforeSync,
    /// A compaction keeps only what the fastest consumer needs.
    HistoryDroppedEarly,
    /// A compaction keeps the old file for consumers without a sync of it.
    HistoryUnsynced,
    /// The beginning of a kept file is given back while another process reads it.
    HistoryFreedBesideReaders,
    /// A cleaning leaves out the first document of those that it reads together.
    CleaningLosesMove,
    /// One copy of the superblock alone names the header of a cleaning.
    CleaningNamedOnce,
    /// A cleaned tail is given back while readers hold views that reach it.
    TailFreedBesideReaders,
    /// A cleaned tail is given back before the header of the cleaning is named.
    TailFreedEarly,
    /// A flush writes over nodes that views from before the last flush reach.
    NodesReusedBesideReaders,
    /// A flush writes over nodes that the older superblock leads to.
    NodesReusedEarly,
    /// A reader replays writes behind a rollback onto the roots before it.
    ReaderPassesRollback,
    /// A refresh drops versions that a snapshot of the reader needs.
    RefreshDropsPinned,
    /// A sync leaves the names of new segments as they are.
    SegmentNamesUnsynced,
    /// Segments are written that a checkpoint has too.
    SharedSegmentsWritten,
    /// A sync counts writes that came while it ran.
    SyncTakesLaterWrites,
}

impl SeededBug {
    /// All defects, with their names.
    pub const ALL: [(SeededBug, &'static str); 53] = [
        (SeededBug::NoChecksum, "no_checksum"),
        (SeededBug::TornTailKept, "torn_tail_kept"),
        (SeededBug::BatchSplit, "batch_split"),
        (SeededBug::CommitUnsynced, "commit_unsynced"),
        (SeededBug::HeaderAheadOfNodes, "header_ahead_of_nodes"),
        (SeededBug::ReplayFromHeader, "replay_from_header"),
        (SeededBug::EpochReused, "epoch_reused"),
        (SeededBug::DeleteUnlogged, "delete_unlogged"),
        (SeededBug::SyncRetried, "sync_retried"),
        (SeededBug::FlushDropsActive, "flush_drops_active"),
        (SeededBug::FlushKeepsAddresses, "flush_keeps_addresses"),
        (SeededBug::FlushLosesEntry, "flush_loses_entry"),
        (SeededBug::FlushForgetsRanges, "flush_forgets_ranges"),
        (SeededBug::PackLosesRemovals, "pack_loses_removals"),
        (SeededBug::PassedVersionsFound, "passed_versions_found"),
        (SeededBug::SyncsApart, "syncs_apart"),
        (SeededBug::PackedPlaceKept, "packed_place_kept"),
        (SeededBug::FlushLeavesRuns, "flush_leaves_runs"),
        (SeededBug::WritesBehindLostRun, "writes_behind_lost_run"),
        (SeededBug::FlushRetriesDamage, "flush_retries_damage"),
        (SeededBug::LongDelaysCut, "long_delays_cut"),
        (SeededBug::ScanHoldsWriters, "scan_holds_writers"),
        (SeededBug::CancellationCleared, "cancellation_cleared"),
        (
            SeededBug::CompactionWithoutCatchUp,
            "compaction_without_catch_up",
        ),
        (SeededBug::OldFileRemovedEarly, "old_file_removed_early"),
        (SeededBug::CompactionUnsynced, "compaction_unsynced"),
        (
            SeededBug::CompactionDropsDocument,
            "compaction_drops_document",
        ),
        (
            SeededBug::CompactionDropsSnapshots,
            "compaction_drops_snapshots",
        ),
        (
            SeededBug::CompactionPassesSnapshot,
            "compaction_passes_snapshot",
        ),
        (SeededBug::SnapshotUnwritten, "snapshot_unwritten"),
        (SeededBug::RollbackKeepsBuffer, "rollback_keeps_buffer"),
        (SeededBug::RollbackReplayed, "rollback_replayed"),
        (SeededBug::NamespaceUnlogged, "namespace_unlogged"),
        (SeededBug::DropForgotten, "drop_forgotten"),
        (SeededBug::RollbackLosesDropped, "rollback_loses_dropped"),
        (SeededBug::MarkBeforeSync, "mark_before_sync"),
        (SeededBug::NamespacesMixed, "namespaces_mixed"),
        (SeededBug::ChangesHalveBatch, "changes_halve_batch"),
        (SeededBug::ChangesBeforeSync, "changes_before_sync"),
        (SeededBug::HistoryDroppedEarly, "history_dropped_early"),
        (SeededBug::HistoryUnsynced, "history_unsynced"),
        (
            SeededBug::HistoryFreedBesideReaders,
            "history_freed_beside_readers",
        ),
        (SeededBug::CleaningLosesMove, "cleaning_loses_move"),
        (SeededBug::CleaningNamedOnce, "cleaning_named_once"),
        (
            SeededBug::TailFreedBesideReaders,
            "tail_freed_beside_readers",
        ),
        (SeededBug::TailFreedEarly, "tail_freed_early"),
        (
            SeededBug::NodesReusedBesideReaders,
            "nodes_reused_beside_readers",
        ),
        (SeededBug::NodesReusedEarly, "nodes_reused_early"),
        (SeededBug::ReaderPassesRollback, "reader_passes_rollback"),
        (SeededBug::RefreshDropsPinned, "refresh_drops_pinned"),
        (SeededBug::SegmentNamesUnsynced, "segment_names_unsynced"),
        (SeededBug::SharedSegmentsWritten, "shared_segments_written"),
        (SeededBug::SyncTakesLaterWrites, "sync_takes_later_writes"),
    ];
}
