//! Engine `zdb`: a flat index of positions over append-only data files.
//!
//! The source is *ZDB-High performance key-value store* (Nguyen Trung and
//! Nguyen Hieu). Integer keys lie in *flat tables*: a table covers a range of
//! keys and has an array with one slot of 4 to 8 bytes a key, which holds the
//! position of the key's entry in one of the table's data files. A lookup is an
//! array access and one read; a write is an append; no key is held in memory.
//! String keys are hashed to buckets, which are values of integer keys.
//!
//! ```text
//! key 1000042 ─▶ table 1 ─▶ slot 42 ─▶ position 8192 in data file 42 mod 4
//!                                       └─▶ record: header │ time │ key │ value
//! ```
//!
//! What the paper leaves open is settled here: a crash at any point leaves a
//! prefix of the writes ([`recovery`]), a synced write costs one sync whatever
//! it touches ([`mod@write`]), the index on disk is never ahead of its log
//! ([`checkpoint`]), files are compacted while they are used ([`compact`]), and
//! readers see a moment, whole batches only ([`history`]). What was committed is read from
//! the data files, in order ([`changes`]).
//!
//! ```
//! use cambium_api::{Durability, EngineKind, OptionValues};
//! # fn main() -> cambium_base::Result<()> {
//! let environment = cambium_io::Environment::memory();
//! let mut options = OptionValues::default();
//! options.set("keys", "integer");
//! let store = cambium_zdb::Zdb.create(&environment, "trees".as_ref(), &options)?;
//! store.put(&7u64.to_be_bytes(), b"oak", Durability::Synced)?;
//! assert_eq!(store.get(&7u64.to_be_bytes())?.unwrap(), b"oak");
//! store.close()
//! # }
//! ```
#![forbid(unsafe_code)]

mod backup;
mod bucket;
mod cache;
mod catalog;
mod changes;
mod check;
mod checkpoint;
mod commit;
mod compact;
mod core;
mod cursor;
mod data_file;
mod dump;
mod engine;
pub mod format;
mod framed_keys;
mod history;
mod key_cache;
mod memory;
mod neighbours;
mod open;
pub mod options;
mod read;
mod reader;
mod rebuild;
mod recovery;
mod repair;
mod room;
pub mod seeded_bug;
mod small_values;
mod stats;
mod strings;
mod table;
mod tails;
mod upkeep;
mod write;

pub use engine::{Zdb, ZdbStore};

/// The layouts of this engine's files, in the order of the format document.
pub fn layouts() -> Vec<&'static cambium_base::layout::Layout> {
    vec![
        &format::ENTRY_LAYOUT,
        &format::FRAMED_KEY_LAYOUT,
        &format::PIECE_LAYOUT,
    ]
}
