//! An embeddable, persistent key-value store: a log of records and an index
//! over it.
//!
//! A store is a folder. Which engine made it stands in the file `CAMBIUM`
//! there, so opening one needs no more than its path:
//!
//! ```
//! use cambium::prelude::*;
//!
//! # fn main() -> cambium::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder for the example");
//! # let path = folder.path().join("trees");
//! let store = cambium::open_or_create(&path)?;
//! store.put("oak", "Quercus")?;
//! store.put("elm", "Ulmus")?;
//! assert_eq!(store.get("oak")?.as_deref(), Some(&b"Quercus"[..]));
//! for entry in store.scan("a".."f")? {
//!     let entry = entry?;
//!     println!("{:?} = {:?}", entry.key, entry.value);
//! }
//! store.with_durability(Durability::Synced).delete("elm")?; // on the device
//! store.close()
//! # }
//! ```
//!
//! What every store promises (order, atomicity, prefix, isolation, corruption,
//! I/O errors) stands at [`cambium_api::engine`]; what one engine cannot do is
//! in [`Store::capabilities`] and answers [`Error::Unsupported`].
//!
//! | module | what it holds |
//! |---|---|
//! | [`store`] | [`Store`], the handle of an open store |
//! | [`entries`] | [`Entries`], cursors as iterators |
//! | [`snapshot`] | [`Snapshot`], one moment of a store |
//! | [`options`] | [`Options`]: making, opening and mending stores |
//! | [`table`] | [`Table`], keys and values of Rust types |
//! | [`changes`] | [`Changes`] and [`Consumer`]: following what is written |
//! | [`asynchronous`] | requests as futures |
//! | [`comparator`] | the name of a store's order of keys, where a program brought one |
//! | [`engines`](mod@engines) | [`Engines`], the list of engines; more can be added |
//!
//! The facade knows engines by their trait alone: it adds no behaviour of its
//! own between a caller and an engine, writes no bytes but a comparator's name, and
//! holds no locks.
#![forbid(unsafe_code)]

pub mod asynchronous;
mod backups;
pub mod changes;
pub mod comparator;
pub mod engines;
pub mod entries;
mod namespaces;
pub mod options;
pub mod prelude;
pub mod snapshot;
pub mod store;
pub mod table;
mod transactions;
mod upkeep;
mod values;

/// The guides' examples run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/backup.md")]
#[doc = include_str!("../../../docs/changes.md")]
#[doc = include_str!("../../../docs/moving/rocksdb.md")]
#[doc = include_str!("../../../docs/rust.md")]
#[doc = include_str!("../../../docs/start/rust.md")]
#[doc = include_str!("../../../docs/transactions.md")]
#[doc = include_str!("../../../docs/values.md")]
struct Guides;

use std::io::Write;
use std::path::Path;

pub use cambium_api::{
    Capabilities, Change, ChangeBatch, ChangeOptions, CheckReport, CompactOptions, CompactReport,
    Completion, Conflict, Direction, Durability, Engine, EngineKind, Entry, Error, Expiry, Finding,
    FindingKind, IterationOrder, KeyKind, KeyRange, MergeOperator, Operation, OptionSpec,
    OptionValues, PhaseSeconds, Precondition, Progress, ProgressSink, Request, Response, Result,
    ResumeToken, Savepoint, SequenceNumber, Special, Statistic, StatisticValue, Statistics,
    Summary, Transaction, TransactionEntries, TransactionView, UnixMillis, Value, WriteBatch,
    limits, options::parse_bytes,
};
pub use cambium_backup::{Backup, BackupKind, Taken};
pub use cambium_base::{StoreId, checksum, error::ErrorClass, hash, hexdump};
pub use cambium_io::{BackgroundLimits, Environment, ReadBackend};
pub use cambium_storage::marker::{MARKER_NAME, Marker, UNFINISHED_NAME, read_unfinished};
pub use changes::{Changes, Consumer};
pub use comparator::COMPARATOR_NAME;
#[cfg(feature = "alphard")]
pub use engines::ALPHARD;
#[cfg(feature = "forest")]
pub use engines::FOREST;
#[cfg(feature = "wisckey")]
pub use engines::WISCKEY;
#[cfg(feature = "zdb")]
pub use engines::ZDB;
pub use engines::{DEFAULT_ENGINE, Engines, engines};
pub use entries::Entries;
pub use options::{MEMORY_BUDGET, Options};
pub use snapshot::Snapshot;
pub use store::Store;
pub use table::Table;

/// Opens the store in a folder for reading and writing, with every option at
/// its default; see [`Options::open`] for the errors.
///
/// ```
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// # let path = folder.path().join("store");
/// # cambium::create(&path, "forest", &cambium::Options::new())?.close()?;
/// let store = cambium::open(&path)?;
/// assert_eq!(store.get("elm")?, None);
/// # store.close()
/// # }
/// ```
pub fn open(path: impl AsRef<Path>) -> Result<Store> {
    Options::new().open(path)
}

/// Opens the store in a folder, whichever engine made it, or makes one with
/// [`DEFAULT_ENGINE`] if there is none; see [`Options::open_or_create`] for the errors.
///
/// ```
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// # let path = folder.path().join("store");
/// let store = cambium::open_or_create(&path)?;
/// store.put("oak", "Quercus")?;
/// # store.close()
/// # }
/// ```
pub fn open_or_create(path: impl AsRef<Path>) -> Result<Store> {
    let options = Options::new();
    match options.open(&path) {
        Err(Error::NotAStore { .. }) => options.open_or_create(path, DEFAULT_ENGINE),
        opened => opened,
    }
}

/// Makes a store and opens it; see [`Options::create`] for the errors.
///
/// ```
/// use cambium::{KeyKind, Options};
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// # let path = folder.path().join("store");
/// let options = Options::new().set("keys", "integer");
/// let store = cambium::create(&path, "zdb", &options)?;
/// assert_eq!(store.capabilities().keys, KeyKind::Integer);
/// # store.close()
/// # }
/// ```
pub fn create(path: impl AsRef<Path>, engine: &str, options: &Options) -> Result<Store> {
    options.create(path, engine)
}

/// Verifies a store that nobody has open, writing nothing; see
/// [`Options::check`].
///
/// ```
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// # let path = folder.path().join("store");
/// # cambium::create(&path, "forest", &cambium::Options::new())?.close()?;
/// let report = cambium::check(&path)?;
/// assert!(report.is_sound(), "{:?}", report.findings);
/// # Ok(()) }
/// ```
pub fn check(path: impl AsRef<Path>) -> Result<CheckReport> {
    Options::new().check(path)
}

/// Describes a store's files for people, writing nothing to the store; see
/// [`Options::inspect`].
///
/// ```
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// # let path = folder.path().join("store");
/// # cambium::create(&path, "forest", &cambium::Options::new())?.close()?;
/// let mut text = Vec::new();
/// cambium::inspect(&path, &mut text)?;
/// assert!(!text.is_empty());
/// # Ok(()) }
/// ```
pub fn inspect(path: impl AsRef<Path>, to: &mut dyn Write) -> Result<()> {
    Options::new().inspect(path, to)
}

/// Brings a damaged store back to what can be read; see [`Options::repair`].
///
/// ```
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// # let path = folder.path().join("store");
/// # cambium::create(&path, "forest", &cambium::Options::new())?.close()?;
/// let losses = cambium::repair(&path)?;
/// assert!(losses.is_sound());
/// # Ok(()) }
/// ```
pub fn repair(path: impl AsRef<Path>) -> Result<CheckReport> {
    Options::new().repair(path)
}

/// Copies a store that nobody has open into a folder that is empty or not
/// there; see [`Options::backup`].
///
/// ```
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// # let (path, copy) = (folder.path().join("store"), folder.path().join("copy"));
/// # let store = cambium::create(&path, "forest", &cambium::Options::new())?;
/// # store.put("oak", "Quercus")?;
/// # store.close()?;
/// cambium::backup(&path, &copy)?;
/// assert_eq!(cambium::open(&copy)?.get("oak")?.as_deref(), Some(&b"Quercus"[..]));
/// # Ok(()) }
/// ```
pub fn backup(path: impl AsRef<Path>, destination: impl AsRef<Path>) -> Result<()> {
    Options::new().backup(path, destination)
}
