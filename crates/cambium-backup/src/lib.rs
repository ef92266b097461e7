//! Incremental backups: a folder with full copies of a store, and archives of what was
//! written since.
//!
//! ```text
//! BACKUPS                     which store's backups these are, and the newest one's number
//! 0001-full/                  a store: the state at sequence number 1024
//! 0001-full.backup            says so; without it the folder counts for nothing
//! 0002-1024-2048.changes      the batches after 1024, through 2048
//! 0003-2048-2060.changes      …
//! 0004-full/                  the next chain
//! ```
//!
//! A full backup and the archives behind it are a *chain*: each archive begins where the one
//! before it ends. The batches come from the store's change feed, so an archive costs what
//! was written since the last one. A consumer named after place and backup keeps that history in
//! the store; where it is lost all the same, a new chain begins with a full backup.
//!
//! `BACKUPS` says nothing that the backups do not say: each description of a full backup has the
//! ids too. So its loss does no harm, and a newest backup of which the files are missing is
//! noticed.
//!
//! Each backup comes to be by the rename of one file, after everything that it needs is
//! durable. A process that is killed leaves a draft, or a folder without its description;
//! the next backup removes both.
//!
//! | module | what it holds |
//! |---|---|
//! | [`place`] | the folder: what is in it, what a crash left, what is to be kept |
//! | [`mod@take`] | taking a backup |
//! | [`restore`] | making a store of one, and verifying all |
//! | [`archive`] | the file of batches |
//! | [`text`] | small files of lines with a checksum |
#![forbid(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links)] // the essays of private modules are for readers of the code

mod archive;
mod place;
mod restore;
mod take;
mod text;

pub use place::{Backup, BackupKind, Place, is_place};
pub use restore::Stores;
pub use take::Taken;

/// The layouts of this crate's files, in the order of the format document.
pub fn layouts() -> Vec<&'static cambium_base::layout::Layout> {
    vec![&archive::HEADER, &archive::BATCH, &archive::END]
}
