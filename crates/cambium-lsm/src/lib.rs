//! An ordered store of small values: a log-structured merge-tree without a log.
//!
//! A [`Tree`] maps (key, sequence number) to a small value: in `wisckey`, where
//! the value lies in the value log (`wisckey-2016`, section 3.1). The caller's
//! log is the tree's log (section 3.4.2): what was not flushed when a process
//! died is written into the tree again by the caller.
//!
//! ```text
//!  put ─▶ active memtable ─seal─▶ sealed memtables ─flush─▶ level 0 ─compact─▶ level 1 ─▶ … level 6
//!              memory                  memory               tables               disjoint tables
//! ```
//!
//! # What it promises
//!
//! 1. **Newer lies above.** Of one key, every entry in a source (memtable,
//!    level-0 table, level) has a sequence number at least as high as every
//!    entry in the sources below. A lookup ends at the first source that has
//!    an entry old enough. Only a relocation writes an old number into a new
//!    source, and only while that entry is the newest of its key.
//! 2. **Tables are immutable** and believed only when the manifest names them:
//!    a table is synced, then its folder, then the edit that names it, then the
//!    tables it replaces go.
//! 3. **An edit is whole or not at all**, with the note of the caller in it.
//! 4. **What a protected moment sees stays**: the caller names the moments
//!    ([`Owner::protected_moments`]); of each key a job keeps the newest entry
//!    of each span between two of them.
//! 5. **Every byte is under a checksum** that holds store, file and offset.
//! 6. **A kept version stays** with all its tables, through flushes, compactions and
//!    reopening, until it is released ([`kept`]).
//! 7. Readers take no lock that a job holds across I/O; writers never do I/O.
//!
//! # Files
//!
//! | file | what it holds |
//! |---|---|
//! | `superblock-0`, `superblock-1` | which manifest counts, and how far it was seen synced |
//! | `manifest-N` | edits: tables added and removed, notes ([`manifest`]) |
//! | `table-N` | a sorted table ([`table`]) |
//!
//! # Where to begin reading
//!
//! [`memtable`], [`block`], [`table`], [`version`], [`manifest`], then
//! [`read`], [`flush`] and [`compact`], which the promises rest on.
#![forbid(unsafe_code)]

mod apply;
mod block;
mod check;
mod checkpoint;
mod compact;
mod cursor;
mod dump;
mod entry;
mod flush;
mod format;
mod job;
mod kept;
mod level_source;
mod manifest;
mod memtable;
mod merge;
mod multi_get;
mod open;
mod options;
mod owner;
mod pick;
mod properties;
mod read;
mod recovery;
mod relocate;
mod retain;
mod run;
mod salvage;
mod seeded_bug;
mod stats;
mod stored_block;
mod table;
mod table_cache;
mod table_cursor;
mod table_writer;
mod tombstones;
mod tree;
mod upkeep;
mod version;

pub use apply::Writer;
pub use cambium_storage::compression::Compression;
pub use check::CheckSummary;
pub use cursor::{Cursor, CursorEntry};
pub use dump::DumpItem;
pub use entry::{EntryKind, EntryRef, Lookup, Moment};
pub use format::layouts;
pub use kept::{JobsHeld, KeptSoon, KeptView};
pub use options::Options;
pub use owner::{DropObserver, JobKind, Owner};
pub use relocate::{Relocation, Replaced, Seen};
pub use salvage::Salvaged;
#[doc(hidden)]
pub use seeded_bug::SeededBug;
pub use stats::{LevelStatistics, TreePart, TreeStatistics};
pub use tree::{Tree, WritePressure};

/// Decoders, open to tests that feed them with bytes nobody wrote.
#[doc(hidden)]
pub mod decoders {
    pub use crate::block::decode_block_entries;
    pub use crate::format::decode_footer_bytes;
    pub use crate::manifest::decode_edit_bytes;
    pub use crate::properties::decode_properties_bytes;
}

/// First bytes of a manifest: what proves that a folder holds a tree.
pub const MANIFEST_MAGIC: [u8; 8] = format::MANIFEST_MAGIC;

/// True for the names of a tree's tables and manifests.
pub fn is_file_of_tree(name: &str) -> bool {
    format::number_in_name(name.as_ref()).is_some()
}
