//! Engine `alphard`: a cuckoo index in memory over extents on a device or in a
//! preallocated file.
//!
//! The source is the second half of *KVZone and the Search for a Write-Optimized
//! Key-Value Store* (Gokhale, Agrawal, Noonan, Ungureanu; HotStorage 2010). Every
//! key has 16 bytes in memory that say where its entry lies, so that a read and a
//! write cost one device access each; writes that wait are laid side by side and
//! share one. There is no order among keys, and no log: entries are written where
//! they stay, and a scan of their headers finds everything again.
//!
//! ```text
//!  put ──▶ queue ──▶ group: number, find space, encode ──▶ one write, one sync ──▶ device
//!   └────────────────────────▶ index: key ─▶ extent
//!  get ──▶ index ──▶ one read of the extent, verified
//! ```
//!
//! As published, deleted values come back after a crash: the older copies of an
//! overwritten key keep their headers. Here deletes leave tombstones, which stay
//! until the last older header is gone ([`stale`]); what is freed is not reused
//! before its replacement is safe whatever happens ([`space`]); and recovery proves
//! by a digest that nothing is missing and nothing came back ([`recovery`]).
//!
//! A store made with `history=on` shows its changes in order ([`changes`]): what was replaced keeps
//! its space until consumers have read the changes ([`history`]).
//!
//! ```
//! use cambium_api::{Durability, EngineKind, OptionValues};
//! # fn main() -> cambium_base::Result<()> {
//! let environment = cambium_io::Environment::memory();
//! let mut options = OptionValues::default();
//! options.set("size", "1MiB");
//! let store = cambium_alphard::Alphard.create(&environment, "hashes".as_ref(), &options)?;
//! store.put(b"oak", b"Quercus", Durability::Synced)?;
//! assert_eq!(store.get(b"oak")?.unwrap(), b"Quercus");
//! store.close()
//! # }
//! ```
#![forbid(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links)] // the essays of private modules are for readers of the code

mod ahead;
mod apply;
mod backup;
mod change_log;
mod changes;
mod check;
mod cleaning;
mod core;
mod create;
mod cursor;
mod discard;
mod dump;
mod engine;
mod flights;
pub mod format;
mod history;
mod image;
mod kept;
mod key_checks;
mod members;
mod memory;
mod mirror;
mod open;
pub mod options;
mod outgoing;
mod pack;
mod packs;
mod past;
mod place;
mod plan;
mod read;
mod recovery;
mod repair;
mod replies;
mod scan;
pub mod seeded_bug;
mod space;
mod stale;
mod state;
mod stats;
mod submit;
mod superblocks;
mod upkeep;
mod volume;
mod write;

pub use engine::{Alphard, AlphardStore};

/// The layouts of this engine, in the order of the format document.
pub fn layouts() -> Vec<&'static cambium_base::layout::Layout> {
    vec![
        &format::SUPERBLOCK_LAYOUT,
        &format::ENTRY_LAYOUT,
        &pack::ROW_LAYOUT,
        &image::IMAGE_LAYOUT,
    ]
}
