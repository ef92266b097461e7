//! Engine `memory`: an ordered map in memory over a log of batches.
//!
//! It is the smallest engine that keeps every promise of `cambium-api`, and
//! stands in three places: as the model that other engines are compared with,
//! as the first user of the suites (which must pass on it, and must fail on it
//! once a bug is switched on), and as an example of an engine.
//!
//! # Files
//!
//! ```text
//! LOCK        held while the store is open
//! data.log    a header, then one record for each batch
//! data.new    the next data.log while it is written
//! CONSUMERS   positions of readers of changes
//! ```
//!
//! A batch is one record under one checksum, so it survives whole or not at
//! all; records are appended in the order of their sequence numbers, so what
//! survives is a prefix; the first record that does not verify ends the log,
//! and opening cuts the file there before anything is appended. A compaction
//! writes a new log beside the old one, syncs it, renames it over the old one
//! and syncs the folder. The new log has the entries at the position of the slowest consumer
//! of changes, and the batches behind it.
//!
//! Hidden option `seeded_bug=NAME` breaks one of these rules, see [`Bug`].

mod cursor;
mod engine;
mod history;
mod log;
mod open;
mod state;
mod writer;

pub use engine::MemoryStore;
pub use open::MemoryKind;

cambium_base::named! {
    /// Rules that can be broken to see whether the suites notice.
    pub enum Bug {
        /// Records are believed without their checksum.
        NoChecksum = "no_checksum",
        /// Appending goes on behind a torn tail instead of in its place.
        TornTailKept = "torn_tail_kept",
        /// Each operation of a batch is a record of its own.
        BatchSplit = "batch_split",
        /// A synced write is not synced.
        SyncSkipped = "sync_skipped",
        /// A delete is not logged.
        DeleteUnlogged = "delete_unlogged",
        /// A compaction renames its file before syncing it.
        RenameBeforeSync = "rename_before_sync",
        /// A new or renamed file's folder is not synced.
        FolderUnsynced = "folder_unsynced",
        /// Sequence numbers begin at 1 after each opening.
        SequenceReused = "sequence_reused",
        /// Writes go on after a failed sync.
        SyncRetried = "sync_retried",
        /// A compaction forgets deletes: what it carries over is all ever written.
        CompactionRevives = "compaction_revives",
        /// An opening takes what it reads for durable.
        CacheTrusted = "cache_trusted",
        /// An opening for reading alone cuts a torn tail off.
        ReaderCuts = "reader_cuts",
        /// A transaction commits whatever was written since it read.
        UpdateLost = "update_lost",
        /// Only keys that a transaction also writes are compared.
        WriteSkew = "write_skew",
        /// Ranges that a transaction read are not compared.
        Phantom = "phantom",
        /// A feed shows a batch in pieces.
        FeedSplitsBatches = "feed_splits_batches",
        /// A feed of synced batches shows others too.
        FeedShowsUnsynced = "feed_shows_unsynced",
        /// A compaction does not mind consumers of changes.
        HistoryDropped = "history_dropped",
    }
}

impl Bug {
    /// Those that only transactions meet: the conformance suite finds them.
    pub const OF_TRANSACTIONS: [&'static str; 3] = ["update_lost", "write_skew", "phantom"];

    /// Those that only readers of changes meet: the conformance suite finds them.
    pub const OF_FEEDS: [&'static str; 3] = [
        "feed_splits_batches",
        "feed_shows_unsynced",
        "history_dropped",
    ];
}
