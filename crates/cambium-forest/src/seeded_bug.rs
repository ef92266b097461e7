//! Defects that tests switch on. The suites must find each of them, which proves that
//! the suites find something. The option `seeded_bug` selects one; `cambium options`
//! does not list it.

cambium_base::named! {
    /// The defects; only tests set one.
    pub enum SeededBug {
        /// Documents are returned without looking at their checksums.
        NoChecksum = "no_checksum",
        /// Recovery keeps documents after a gap.
        TornTailKept = "torn_tail_kept",
        /// Recovery keeps part of a batch.
        BatchSplit = "batch_split",
        /// A synced write is not synced.
        CommitUnsynced = "commit_unsynced",
        /// The superblock points to a header before its nodes are synced.
        HeaderAheadOfNodes = "header_ahead_of_nodes",
        /// Replay begins at the header instead of where the buffer was sealed.
        ReplayFromHeader = "replay_from_header",
        /// A recovery raises neither session nor sequence numbers: documents that it cut off
        /// look like later ones.
        EpochReused = "epoch_reused",
        /// Deletes are not logged.
        DeleteUnlogged = "delete_unlogged",
        /// Writes go on after a failed sync.
        SyncRetried = "sync_retried",
        /// A flush forgets the writes that came while it ran.
        FlushDropsActive = "flush_drops_active",
        /// A flush leaves the cached addresses of documents as they were.
        FlushKeepsAddresses = "flush_keeps_addresses",
        /// A flush leaves one entry out of the tries, and counts it nowhere.
        FlushLosesEntry = "flush_loses_entry",
        /// A flush leaves the keys of deleted ranges in the tries.
        FlushForgetsRanges = "flush_forgets_ranges",
        /// Buffers that are packed lose what they removed.
        PackLosesRemovals = "pack_loses_removals",
        /// A get returns a version that is kept for a snapshot, if a writer overwrites the right
        /// version during the lookup.
        PassedVersionsFound = "passed_versions_found",
        /// A writer trusts its own sync while a flush's sync of the same file fails.
        SyncsApart = "syncs_apart",
        /// A flush that puts its buffer straight into the tries keeps an older buffer's place.
        PackedPlaceKept = "packed_place_kept",
        /// A flush that fails takes new space with each attempt.
        FlushLeavesRuns = "flush_leaves_runs",
        /// Writers append after the record of a run that a failed flush did not write.
        WritesBehindLostRun = "writes_behind_lost_run",
        /// The store repeats a flush that has met damage, without end.
        FlushRetriesDamage = "flush_retries_damage",
        /// A write that a compaction slows waits for no more than a small one's time.
        LongDelaysCut = "long_delays_cut",
        /// The first scan of a write buffer holds writers until it has sorted all keys.
        ScanHoldsWriters = "scan_holds_writers",
        /// A call of `compact` takes back a cancellation of calls that began before it.
        CancellationCleared = "cancellation_cleared",
        /// A compaction loses writes that came while it ran.
        CompactionWithoutCatchUp = "compaction_without_catch_up",
        /// A compaction removes the old file before the superblock names the new one.
        OldFileRemovedEarly = "old_file_removed_early",
        /// A compaction points the superblock to its file before it syncs the file.
        CompactionUnsynced = "compaction_unsynced",
        /// A compaction leaves out a document, as if it could not read it.
        CompactionDropsDocument = "compaction_drops_document",
        /// A compaction drops documents that named snapshots need.
        CompactionDropsSnapshots = "compaction_drops_snapshots",
        /// A named snapshot that is made during a compaction gets the state at the compaction's
        /// next look.
        CompactionPassesSnapshot = "compaction_passes_snapshot",
        /// A named snapshot is kept in memory alone.
        SnapshotUnwritten = "snapshot_unwritten",
        /// A rollback leaves the content of the write buffer.
        RollbackKeepsBuffer = "rollback_keeps_buffer",
        /// Replay does not stop at a rollback: a crash brings undone writes back.
        RollbackReplayed = "rollback_replayed",
        /// The creation of a namespace is not logged.
        NamespaceUnlogged = "namespace_unlogged",
        /// A recovery ignores that a namespace was dropped.
        DropForgotten = "drop_forgotten",
        /// A rollback does not bring back a namespace that was dropped.
        RollbackLosesDropped = "rollback_loses_dropped",
        /// The log says that a write is synced before it is.
        MarkBeforeSync = "mark_before_sync",
        /// A recovery puts the writes of all namespaces into the default one.
        NamespacesMixed = "namespaces_mixed",
        /// The change feed shows the first two entries of a batch as a batch.
        ChangesHalveBatch = "changes_halve_batch",
        /// A change feed of synced batches shows those that are not, too.
        ChangesBeforeSync = "changes_before_sync",
        /// A compaction keeps only what the fastest consumer needs.
        HistoryDroppedEarly = "history_dropped_early",
        /// A compaction keeps the old file for consumers without a sync of it.
        HistoryUnsynced = "history_unsynced",
        /// The beginning of a kept file is given back while another process reads it.
        HistoryFreedBesideReaders = "history_freed_beside_readers",
        /// A cleaning leaves out the first document of those that it reads together.
        CleaningLosesMove = "cleaning_loses_move",
        /// One copy of the superblock alone names the header of a cleaning.
        CleaningNamedOnce = "cleaning_named_once",
        /// A cleaned tail is given back while readers hold views that reach it.
        TailFreedBesideReaders = "tail_freed_beside_readers",
        /// A cleaned tail is given back before the header of the cleaning is named.
        TailFreedEarly = "tail_freed_early",
        /// A flush writes over nodes that views from before the last flush reach.
        NodesReusedBesideReaders = "nodes_reused_beside_readers",
        /// A flush writes over nodes that the older superblock leads to.
        NodesReusedEarly = "nodes_reused_early",
        /// A reader replays writes behind a rollback onto the roots before it.
        ReaderPassesRollback = "reader_passes_rollback",
        /// A refresh drops versions that a snapshot of the reader needs.
        RefreshDropsPinned = "refresh_drops_pinned",
        /// A sync leaves the names of new segments as they are.
        SegmentNamesUnsynced = "segment_names_unsynced",
        /// Segments are written that a checkpoint has too.
        SharedSegmentsWritten = "shared_segments_written",
        /// A sync counts writes that came while it ran.
        SyncTakesLaterWrites = "sync_takes_later_writes",
    }
}
