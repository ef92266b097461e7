//! Compression, expiry and merging of values, above every engine.
//!
//! An engine stores the bytes that it is given. This layer stands between a store's users
//! and its engine, gives compressed and expiring values a [form] in those
//! bytes, and takes it off where they are read. So all engines have the same, and a store
//! that uses none of it writes and reads the values themselves, without a copy.
//!
//! | module | what it holds |
//! |---|---|
//! | [`form`] | the bytes that are stored for a value |
//! | `kind` | [`ValueLayer`]: an engine's kind with the layer above |
//! | `store` | an open store with the layer above |
//! | `read` | snapshots and cursors |
//! | `dictionary` | the bytes that a store's values have in common, for zstd |
//! | `decompressed` | values after decompression, in memory |
//! | `changes` | the change feed |
//! | `write` | batches, preconditions, merges |
//! | `expiry` | the clock of entries, and the marker's word on them |
//! | `sweep` | taking expired entries away |
//! | [`seeded_bug`] | defects that suites switch on |
//!
//! - *Compression* is an option of each opening. Each value says how it was compressed, so
//!   the option can change at any time; what was written before stays readable.
//! - *Expiry* is kept with each value. An expired entry is not there for reads, scans,
//!   snapshots (which judge by their own moment), transactions and preconditions, from that
//!   moment on; a background pass deletes it later. An engine's own statistics count it
//!   until then. A change feed shows it with its moment, and that pass as deletes.
//! - *Merging* reads, lets the operator make the next value, and writes, as a transaction:
//!   what is stored is always a whole value, so nothing depends on an operator being known
//!   when a store is read, repaired or copied.
#![forbid(unsafe_code)]

mod changes;
mod decompressed;
mod dictionary;
mod expiry;
pub mod form;
mod kind;
mod read;
pub mod seeded_bug;
mod store;
mod sweep;
mod write;

pub use kind::ValueLayer;
