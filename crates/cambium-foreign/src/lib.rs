//! Stores of others, read through their libraries, or over the network.
//!
//! No program is linked against a foreign store: its library is found and loaded
//! while the program runs ([`library`]), and named as missing where it is not.
//! Declarations of C functions stand here once, for KVZone, which measures these
//! stores, and for `cambium import`, which reads them ([`Reader`]).
//!
//! Nothing here knows a store of ours.
//!
//! | module | what it holds |
//! |---|---|
//! | [`library`] | finding and loading libraries, handles and bytes of C |
//! | [`log_structured`] | LevelDB and RocksDB: functions, reading |
//! | [`lmdb`] | LMDB: functions, reading |
//! | [`sqlite`] | SQLite: functions, connections, rows |
//! | [`redis`] | a client of Redis' protocol |
//! | `making` | small stores, for tests: feature `making` |
//! | [`registry`] | a cluster as it stands in etcd |
//! | [`error`] | what can go wrong |
#![deny(unsafe_code)]

pub mod access;
pub mod error;
pub mod etcd;
#[allow(unsafe_code)]
pub mod library;
#[allow(unsafe_code)]
pub mod lmdb;
#[allow(unsafe_code)]
pub mod log_structured;
#[cfg(feature = "making")]
#[allow(unsafe_code)]
pub mod making;
pub mod redis;
pub mod registry;
#[allow(unsafe_code)]
pub mod sqlite;

pub use error::{Error, Result};

/// Reads the entries of a store of keys and values, part by part, each in its own
/// order.
pub trait Reader {
    /// The names of its parts (column families, databases), sorted; the one without
    /// a name is the default one.
    fn parts(&self) -> &[String];

    /// Parts that cannot be read as keys with a value each, and why.
    fn unfit_parts(&self) -> &[String] {
        &[]
    }

    /// Goes to the start of a part, or behind a key of it, which need not be there
    /// any more.
    ///
    /// # Errors
    /// The store's own words.
    fn begin(&mut self, part: &str, behind: Option<&[u8]>) -> Result<()>;

    /// The next entry; `None` at the end of the part.
    ///
    /// # Errors
    /// The store's own words.
    fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>>;
}
