//! What a tree asks of whoever uses it.
//!
//! The tree knows neither snapshots nor the log its values point into. It asks
//! its [`Owner`] which moments count, tells an observer what a job drops, and
//! commits the owner's *note* with the very edit that makes it true: so a
//! value log's accounts can never be ahead of the tables, or behind them.

use std::fmt;

use cambium_base::Result;

use crate::entry::{EntryRef, Moment};

/// Which work drops entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// A sealed memtable becomes a table.
    Flush,
    /// Tables become tables of a lower level.
    Compaction,
}

/// Is told of each entry that one job drops. If the job fails, the observer is
/// dropped without a word, and the entries are still there.
pub trait DropObserver: Send + fmt::Debug {
    /// An entry is left out. Range tombstones are not told.
    fn dropped(&mut self, entry: EntryRef<'_>);

    /// The job commits: the note for its edit. `sealed` holds the notes that
    /// [`crate::Tree::seal`] was given for the memtables of a flush, oldest
    /// first; it is empty for a compaction.
    fn into_note(self: Box<Self>, sealed: &[Vec<u8>]) -> Vec<u8>;
}

/// Whose tree it is. Called from jobs and openings; it never calls the tree
/// from inside.
pub trait Owner: Send + Sync + fmt::Debug {
    /// Moments that must stay readable, ascending. The last one is what is
    /// visible now to a reader that pinned nothing; it is always there.
    ///
    /// Whoever pins takes the visible moment and pins it under one lock, the
    /// one that this call takes: a moment below the last one answered here is
    /// then never pinned later. Entries above the last are all kept.
    fn protected_moments(&self) -> Vec<Moment>;

    /// A flush or compaction begins.
    fn begin_job(&self, job: JobKind) -> Box<dyn DropObserver>;

    /// A flush is about to commit tables of memtables that were sealed with these
    /// notes, oldest first. Called outside of all locks of the tree: what the
    /// tables will point to must be durable when this returns.
    ///
    /// # Errors
    /// End the flush: for lack of space until it is tried again, others for good.
    fn before_flush(&self, sealed: &[Vec<u8>]) -> Result<()> {
        _ = sealed;
        Ok(())
    }

    /// An edit with this note is durable; called in the order of the edits and
    /// before their effect is visible. When a tree is opened it is called for
    /// every edit found: first with `full`, for the note that stands for
    /// everything before it.
    ///
    /// # Errors
    /// If the note makes no sense to the owner: opening fails, a job poisons
    /// the tree.
    fn committed(&self, note: &[u8], full: bool) -> Result<()>;

    /// All that the notes committed so far say, as one: a new manifest begins
    /// with it.
    fn full_note(&self) -> Vec<u8>;
}
