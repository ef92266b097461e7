//! Cambium's C interface.
//!
//! `include/cambium.h` is generated from this crate, with what each function says
//! here. `make install` puts `libcambium.so`, `libcambium.a`, the header and a file
//! for `pkg-config` where compilers look.
//!
//! A call goes through the same three steps everywhere:
//!
//! 1. Handles are looked up (`cambium_bindings::handles`): they are numbers, so a
//!    stale one, or one of something else, is found out.
//! 2. Pointers with lengths become slices, or an error (`cambium_bindings::c`).
//! 3. The facade does the work; its error, or a panic, becomes a code, and words
//!    that the thread can ask for (`error`).
//!
//! | module | exports |
//! |---|---|
//! | `error` | codes, `cambium_error_message` |
//! | `options` | `cambium_options_*` |
//! | `store` | opening, closing, reading, writing |
//! | `opened` | nothing: stores in the order of bytes, or of a comparator |
//! | `batch` | `cambium_batch_*`, `cambium_write` |
//! | `iterator` | snapshots and iterators |
//! | `transaction` | `cambium_transaction_*` |
//! | `changes` | `cambium_changes_*`, `cambium_consumer_*` |
//! | `values` | expiry and merging |
//! | `backups` | `cambium_backup`, `cambium_backup_*` |
//! | `upkeep` | sync, compaction, statistics, check, named snapshots |
//!
//! The unsafe code is what C's pointers need, each with the header's promise beside it.

// The names are those of C.
#![allow(non_camel_case_types)]

mod backups;
mod batch;
mod changes;
mod error;
mod iterator;
mod objects;
mod opened;
mod options;
mod requests;
mod store;
mod transaction;
mod upkeep;
mod values;
