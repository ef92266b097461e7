//! Defects that can be switched on, so that the test suites prove that they
//! find them: a checker that finds nothing proves nothing. They are reached by
//! the option `seeded_bug`, which `cambium options` does not list.

use cambium_api::OptionValues;
use cambium_base::{Error, Result};

/// Defects that the test suites must find; never set outside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// Documents are returned without looking at their checksums.
    NoChecksum,
    /// Recovery keeps documents behind a gap.
    TornTailKept,
    /// Recovery keeps part of a batch.
    BatchSplit,
    /// A synced write is not synced.
    CommitUnsynced,
    /// The superblock points to a header before its nodes are synced.
    HeaderAheadOfNodes,
    /// Replay begins at the header instead of where the buffer was sealed.
    ReplayFromHeader,
    /// A recovery raises neither session nor sequence numbers: what it cut off
    /// and what comes after look the same.
    EpochReused,
    /// Deletes are not logged.
    DeleteUnlogged,
    /// Writes go on after a failed sync.
    SyncRetried,
    /// A flush forgets the writes that came while it ran.
    FlushDropsActive,
    /// A flush leaves what is known of addresses as it was.
    FlushKeepsAddresses,
    /// Buffers that are packed lose what they removed.
    PackLosesRemovals,
    /// A get takes a version that is kept for a snapshot, where the one that it looked for
    /// has been overwritten meanwhile.
    PassedVersionsFound,
    /// A writer's sync goes on beside one of a flush that fails, and is believed.
    SyncsApart,
    /// A flush whose buffer goes straight into the tries keeps the place of an older one.
    PackedPlaceKept,
    /// A flush that fails takes new space with each attempt.
    FlushLeavesRuns,
    /// Writers go on behind the record of a run that a failed flush did not leave out.
    WritesBehindLostRun,
    /// A flush that meets damage is tried again and again.
    FlushRetriesDamage,
    /// A write that a compaction slows waits for no more than a small one's time.
    LongDelaysCut,
    /// The first scan of a write buffer holds writers until it has sorted all keys.
    ScanHoldsWriters,
    /// A call of `compact` takes back a cancellation of calls that began before it.
    CancellationCleared,
    /// Compaction forgets what was written while it ran.
    CompactionWithoutCatchUp,
    /// Compaction removes the old file before the new one counts.
    OldFileRemovedEarly,
    /// Compaction points to its file before that is on the device.
    CompactionUnsynced,
    /// Compaction leaves out a document, as one that could not be read.
    CompactionDropsDocument,
    /// A compaction lets go what named snapshots keep.
    CompactionDropsSnapshots,
    /// A named snapshot that is made while a compaction runs has what was written when
    /// the compaction came to look.
    CompactionPassesSnapshot,
    /// A named snapshot is kept in memory alone.
    SnapshotUnwritten,
    /// A rollback leaves what is in the write buffer.
    RollbackKeepsBuffer,
    /// Replay goes on before a rollback: a crash brings back what it undid.
    RollbackReplayed,
    /// A namespace that is made is not logged.
    NamespaceUnlogged,
    /// A recovery does not know that a namespace was dropped.
    DropForgotten,
    /// A rollback does not bring back a namespace that was dropped.
    RollbackLosesDropped,
    /// The log says that something is synced before it is.
    MarkBeforeSync,
    /// After a recovery, writes of all namespaces are the default one's.
    NamespacesMixed,
}

impl SeededBug {
    /// Every one, with its name.
    pub const ALL: [(SeededBug, &'static str); 35] = [
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
    ];
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
        .ok_or_else(|| Error::InvalidArgument(format!("engine forest has no seeded bug {name:?}")))
}
