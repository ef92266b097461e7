//! Engine `wisckey`: keys in an LSM-tree, values in a value log.
//!
//! The source is *WiscKey: Separating Keys from Values in SSD-conscious Storage* (Lu,
//! Pillai, Arpaci-Dusseau, Arpaci-Dusseau; FAST 2016). A tree that keeps its entries
//! sorted writes each of them again and again. If it holds keys and value pointers
//! only, that costs little, and values are written once, one after the other.
//!
//! ```text
//!  put ──▶ value log ────────▶ │ k v │ k v │ k v │ …      segments, the only log
//!   └────▶ tree's write buffer ──flush──▶ tables of (key → segment, offset, length)
//!  get ──▶ tree ──▶ one read of the value
//!  scan ─▶ tree's cursor ──▶ many reads at once
//! ```
//!
//! What the paper leaves open is settled here: a crash at any point leaves a prefix of
//! the writes ([`recovery`]), tables never point to values that a power cut can lose
//! ([`value_log`]), garbage is counted exactly and with the tables that make it
//! ([`ledger`]), and garbage collection moves values without writing their keys anew,
//! so that nothing deleted comes back ([`collect`]).
//!
//! ```
//! use cambium_api::{Durability, EngineKind, OptionValues};
//! # fn main() -> cambium_base::Result<()> {
//! let environment = cambium_io::Environment::memory();
//! let options = OptionValues::default();
//! let store = cambium_wisckey::Wisckey.create(&environment, "trees".as_ref(), &options)?;
//! store.put(b"oak", &[7; 4096], Durability::Synced)?;
//! let people = store.namespace("people")?;
//! people.put(b"oak", b"a surname too", Durability::Written)?;
//! assert_eq!(store.get(b"oak")?.unwrap(), [7; 4096]);
//! store.close()
//! # }
//! ```
#![forbid(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links)] // the essays of private modules are for readers of the code

mod ahead;
mod at_hand;
mod backup;
mod changes;
mod check;
mod choose;
mod collect;
mod compact;
mod core;
mod cursor;
mod dump;
mod engine;
pub mod format;
mod history;
mod holes;
mod kept;
mod ledger;
mod memory;
mod moving;
mod named;
mod names;
pub mod note;
pub mod note_layouts;
mod open;
mod open_files;
pub mod options;
mod pace;
mod pin;
mod read;
mod rebuild;
mod recovery;
mod repair;
mod reserve;
pub mod seeded_bug;
mod segment;
mod sorting;
mod stats;
mod upkeep;
mod value_log;
mod window;
mod write;

pub use engine::{Wisckey, WisckeyStore};

/// The layouts of this engine's files, in the order of the format document.
pub fn layouts() -> Vec<&'static cambium_base::layout::Layout> {
    vec![
        &format::ROOT_LAYOUT,
        &format::POINTER_LAYOUT,
        &note_layouts::HEAD_LAYOUT,
        &note_layouts::SEGMENT_LAYOUT,
        &note_layouts::GARBAGE_LAYOUT,
        &note_layouts::HOLE_LAYOUT,
        &note_layouts::TRAFFIC_LAYOUT,
    ]
}
