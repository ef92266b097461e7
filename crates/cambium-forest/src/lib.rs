//! Engine `forest`: an HB+-trie over an append-only file of documents, nodes and
//! headers.
//!
//! The source is *ForestDB: A Fast Key-Value Storage System for Variable-Length
//! String Keys* (Ahn, Seo, Mayuram, Yaseen, Kim, Maeng; IEEE Transactions on
//! Computers 2016). Keys are byte strings in order. Documents are appended to one
//! file; a *write-buffer index* in memory knows where those lie that are not yet in
//! the *trie*, which is on disk. When the buffer is full, it goes into the trie in
//! key order, and the changed nodes are appended to the same file.
//!
//! ```text
//!  put ──▶ log ──────────────▶ │ D1 │ D2 │ D3 │ nodes │ H │ D4 │ D5 │ …   one file
//!   └────▶ write-buffer index ─────flush──────▶ │
//!  get ──▶ write-buffer index, else trie ──▶ one read of the document
//! ```
//!
//! What the paper leaves open is settled here: a crash at any point leaves a prefix
//! of the writes ([`recovery`]), a flush stops neither readers nor writers
//! ([`flush`]), a snapshot sees one moment through flushes and compaction
//! ([`view`]), stale space comes back with flushes ([`cleaning`]), and a compaction goes on
//! beside readers and writers and proves that it lost nothing ([`compact`]).
//!
//! ```
//! use cambium_api::{Durability, EngineKind, OptionValues};
//! # fn main() -> cambium_base::Result<()> {
//! let environment = cambium_io::Environment::memory();
//! let options = OptionValues::default();
//! let store = cambium_forest::Forest.create(&environment, "trees".as_ref(), &options)?;
//! store.put(b"oak", b"Quercus", Durability::Synced)?;
//! let people = store.namespace("people")?;
//! people.put(b"oak", b"a surname too", Durability::Written)?;
//! assert_eq!(store.get(b"oak")?.unwrap(), b"Quercus");
//! store.close()
//! # }
//! ```
#![forbid(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links)] // the essays of private modules are for readers of the code

mod addresses;
mod agreement;
mod backup;
mod blocks;
mod buffer;
mod carrying;
mod changes;
mod check;
mod cleaning;
mod commit;
mod compact;
mod core;
mod counters;
mod cursor;
mod database;
pub mod document;
mod dump;
mod engine;
mod flush;
pub mod format;
mod index;
mod memory;
mod named;
mod node_space;
mod nodes;
mod open;
pub mod options;
mod pack;
pub mod packed_block;
mod packed_reads;
mod pieces;
mod planned;
mod ranges;
mod read;
mod reader;
mod record_runs;
mod recovery;
mod repair;
mod replay;
mod room;
pub mod seeded_bug;
mod sorted_run;
mod stats;
mod sync;
mod upkeep;
mod view;
mod write;

pub use engine::{Forest, ForestStore};

/// The layouts of this engine's files, in the order of the format document.
pub fn layouts() -> Vec<&'static cambium_base::layout::Layout> {
    vec![
        &format::ROOT_LAYOUT,
        &format::HEADER_LAYOUT,
        &packed_block::PACKED_LAYOUT,
        &format::NODE_TRAILER,
    ]
}
