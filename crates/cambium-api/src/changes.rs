//! The change feed: the batches that a store committed, in order, read from its own log.
//!
//! A store is a log of records and an index over it, so what was written is already there to
//! be read. [`Engine::changes`](crate::Engine::changes) reads the log from a sequence number
//! on, also far behind the writers; nothing is written twice for it.
//!
//! What reaches a feed:
//!
//! - **Whole batches, in order.** Each committed batch comes once, with the numbers of its
//!   first and last entry; [`ChangeBatch::last`] of one is below [`ChangeBatch::first`] of the
//!   next. Numbers of batches that no crash left behind, and of entries that the engine wrote
//!   for itself, are missing. An `after` within a batch begins with that batch.
//! - **Without a gap behind a snapshot.** A snapshot's sequence number, given as `after`, makes
//!   the feed begin with the first batch that the snapshot does not see.
//! - **The same end.** Applying all batches to the state at `after` gives the store's state. An
//!   engine may report a deleted range as deletions of its keys, a dropped namespace as a
//!   deletion of everything in it, and a deletion of a key that was not there not at all.
//! - **What survives.** With [`ChangeOptions::synced_only`] a feed shows no batch that a
//!   crash could take back. Without, [`ChangeBatch::synced`] tells.
//!
//! History ends where the engine has given the log's space back, and where the store was rolled
//! back to a named snapshot: a feed that is behind answers `HistoryLost` with the number from
//! which history is whole. A *consumer* is a position under a name, kept in the store through
//! crashes; the engine keeps the history behind it, up to the option `history_bytes`.

use cambium_base::{Result, SequenceNumber};

use crate::batch::{Namespace, Operation};
use crate::expiry::UnixMillis;
use crate::options::OptionSpec;

/// The option that bounds history, the same in every engine that has consumers.
pub const HISTORY_BYTES: OptionSpec = OptionSpec {
    name: "history_bytes",
    unit: "bytes, 0 to 1024TiB",
    default: "1GiB",
    effect: "The most log that is kept only because consumers of the change feed have not read it yet. More lets consumers fall further behind and takes more disk space; beyond it the oldest log goes, and consumers that still need it begin again with a snapshot. Without consumers it does nothing.",
    at_creation: false,
};

/// Which batches a feed shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeOptions {
    /// Only batches that survive any crash; a batch that is not synced yet comes when it is.
    pub synced_only: bool,
}

/// One operation of a committed batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The namespace it was made in; `None` is the default one.
    pub namespace: Namespace,
    /// What was done.
    pub operation: Operation,
    /// When the entry that was put expires.
    pub expires: Option<UnixMillis>,
}

/// One committed batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeBatch {
    /// The number of its first entry.
    pub first: SequenceNumber,
    /// The number of its last entry: where a feed goes on behind this batch.
    pub last: SequenceNumber,
    /// True if the batch survives any crash.
    pub synced: bool,
    /// What was done. Changes of one key are in order: later ones win.
    pub changes: Vec<Change>,
}

/// A reader of a store's log.
pub trait ChangeFeed: Send {
    /// The next committed batch; `None` if there is none yet. Asked again later, it goes on.
    ///
    /// # Errors
    /// `HistoryLost` where the log was given back before the feed read it; `Corruption` where
    /// it is damaged; `Closed`.
    fn next(&mut self) -> Result<Option<ChangeBatch>>;

    /// True if the next call looks how far the log goes now. Each such look slows the writers
    /// down, since it reads memory that they write.
    fn looks_again(&self) -> bool {
        false
    }
}
