//! Defects that can be switched on, so that the tree's tests prove that they find
//! them: a checker that finds nothing proves nothing.

use crate::options::Options;

/// Defects that the tests must find; never set outside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// A table counts before it is synced.
    TableUnsynced,
    /// A table counts before its name is.
    FolderUnsynced,
    /// An edit counts before it is synced.
    EditUnsynced,
    /// The inputs of a compaction go before its edit counts.
    InputsRemovedEarly,
    /// A compaction leaves out what its tables overlap of the level below.
    OverlapForgotten,
    /// A tombstone goes though a table below may hold the key.
    TombstoneDroppedEarly,
    /// Jobs drop the tombstones of ranges.
    RangeForgotten,
    /// Jobs keep what is visible now, and forget older moments.
    SnapshotForgotten,
    /// Some keys of a table are not in its filter.
    FilterForgetsKeys,
    /// An opening forgets which tables hold several versions of a key.
    VersionsForgotten,
    /// A new manifest goes again where a full disk fails the superblock that names it.
    NamedManifestRemoved,
    /// An edit that lack of space stops for good is answered as one that changed nothing.
    PoisonAnsweredRaw,
}

impl SeededBug {
    /// Every one.
    pub const ALL: [SeededBug; 12] = [
        SeededBug::TableUnsynced,
        SeededBug::FolderUnsynced,
        SeededBug::EditUnsynced,
        SeededBug::InputsRemovedEarly,
        SeededBug::OverlapForgotten,
        SeededBug::TombstoneDroppedEarly,
        SeededBug::RangeForgotten,
        SeededBug::SnapshotForgotten,
        SeededBug::FilterForgetsKeys,
        SeededBug::VersionsForgotten,
        SeededBug::NamedManifestRemoved,
        SeededBug::PoisonAnsweredRaw,
    ];
}

impl Options {
    pub(crate) fn has_bug(&self, bug: SeededBug) -> bool {
        self.seeded_bug == Some(bug)
    }
}
