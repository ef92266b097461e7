//! Durable byte structures that every engine is built from.
//!
//! | module | what it holds |
//! |---|---|
//! | [`marker`] | the file `CAMBIUM` that names a store's engine and format |
//! | [`consumers`] | how far each reader of the store's changes has come |
//! | [`creation`] | from an empty folder to a store, and back where that fails |
//! | [`file_header`] | the first bytes of every file: magic, version, feature bits, identity |
//! | [`record`] | checksummed records that identify themselves |
//! | [`log`] | an append-only file of records: buffer, preallocation, padding |
//! | [`replay`] | which records behind a checkpoint count |
//! | [`scan`] | reading a log from start to end: records, torn tail, damage |
//! | [`sharing`] | files that a store and its checkpoint have in common |
//! | [`superblock`] | a small root in two copies, written in turn |
//! | [`allocator`] | free blocks of a device: a bitmap, and extents that wait to become free |
//! | [`compression`] | of blocks and values, by LZ4 or Zstandard |
//! | [`commit_queue`] | group commit: many writers, one leader, one sync |
//!
//! Nothing here knows an engine. Formats are described by [`layouts`], from
//! which `docs/format/` is generated.
#![forbid(unsafe_code)]

pub mod allocator;
pub mod commit_queue;
pub mod compression;
pub mod consumers;
pub mod creation;
pub mod file_header;
pub mod health;
pub mod log;
pub mod marker;
pub mod record;
pub mod replay;
pub mod room;
pub mod scan;
pub mod sharing;
pub mod store_lock;
pub mod superblock;
pub mod synced_mark;

use cambium_base::layout::Layout;

/// The layouts of this crate, in the order of the format document.
pub fn layouts() -> Vec<&'static Layout> {
    vec![&file_header::LAYOUT, &record::LAYOUT, &superblock::LAYOUT]
}
