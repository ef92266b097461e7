//! Defects that can be switched on, so that the tree's tests prove that they find
//! them: a checker that finds nothing proves nothing.

use crate::options::Options;

cambium_base::named! {
    /// Defects that the tests must find; never set outside them.
    pub enum SeededBug {
        /// A table counts before it is synced.
        TableUnsynced = "table_unsynced",
        /// A table counts before its name is.
        FolderUnsynced = "folder_unsynced",
        /// An edit counts before it is synced.
        EditUnsynced = "edit_unsynced",
        /// The inputs of a compaction go before its edit counts.
        InputsRemovedEarly = "inputs_removed_early",
        /// A compaction leaves out what its tables overlap of the level below.
        OverlapForgotten = "overlap_forgotten",
        /// A tombstone goes though a table below may hold the key.
        TombstoneDroppedEarly = "tombstone_dropped_early",
        /// Jobs drop the tombstones of ranges.
        RangeForgotten = "range_forgotten",
        /// Jobs keep what is visible now, and forget older moments.
        SnapshotForgotten = "snapshot_forgotten",
        /// Some keys of a table are not in its filter.
        FilterForgetsKeys = "filter_forgets_keys",
        /// An opening forgets which tables hold several versions of a key.
        VersionsForgotten = "versions_forgotten",
        /// A new manifest goes again where a full disk fails the superblock that names it.
        NamedManifestRemoved = "named_manifest_removed",
        /// An edit that lack of space stops for good is answered as one that changed nothing.
        PoisonAnsweredRaw = "poison_answered_raw",
    }
}

impl Options {
    pub(crate) fn has_bug(&self, bug: SeededBug) -> bool {
        self.seeded_bug == Some(bug)
    }
}
