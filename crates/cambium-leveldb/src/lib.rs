//! LevelDB's C interface on Cambium's engines.
//!
//! `libcambium_leveldb.so` exports the functions of `leveldb/c.h` (LevelDB 1.23)
//! with their meaning, so that a program written for them runs on Cambium
//! unchanged: linked with this library in the place of LevelDB's, or started
//! with `LD_PRELOAD=libcambium_leveldb.so`.
//!
//! The store is in Cambium's own format; databases of LevelDB itself are refused,
//! not converted. The engine is `wisckey`, or what the environment variable
//! `CAMBIUM_LEVELDB_ENGINE` names; `CAMBIUM_LEVELDB_OPTIONS` holds options of the
//! engine as `name=value`, separated by commas.
//!
//! What is not as in LevelDB:
//!
//! - Misuse is an error, or does nothing, in place of a crash: null handles,
//!   handles that were destroyed or are of another kind, iterators and snapshots
//!   of a database that is closed. A destroyed comparator or filter policy lives
//!   until the databases that use it are closed, and so does its destructor wait.
//! - A comparator other than the order of bytes keeps all keys in memory; see
//!   `cambium_bindings::order`.
//! - A filter policy that the program brings is asked about each key that was
//!   found, by a filter made of that key: it has no tables to be kept in.
//!   `leveldb_filterpolicy_create_bloom` sets the bits of the engine's own filters.
//! - What options mean is listed in `cambium_bindings::settings`.
//! - `leveldb_compact_range` compacts what pays, wherever it lies.
//!
//! | module | exports |
//! |---|---|
//! | `database` | `leveldb_open` to `leveldb_repair_db` |
//! | `iterator` | `leveldb_create_iterator`, `leveldb_iter_*` |
//! | `batch` | `leveldb_writebatch_*` |
//! | `options` | `leveldb_*options_*`, caches, environments, loggers |
//! | `callbacks` | comparators and filter policies |
//! | `utility` | `leveldb_free`, versions |
//!
//! The handles are numbers that are looked up (`cambium_bindings::handles`), so the
//! unsafe code left is what C's pointers and lengths need, and the calls back
//! into the program.

// The names are LevelDB's.
#![allow(non_camel_case_types)]

mod batch;
mod callbacks;
mod database;
mod iterator;
mod objects;
mod options;
mod report;
mod utility;
