//! Keys in the order of a comparator that the program brings.
//!
//! Engines keep keys in the order of their bytes. A database that is opened
//! with a comparator keeps all its keys in memory as well, sorted by it
//! ([`sorted_keys`](crate::sorted_keys)), read from the store when it is opened. So
//! memory and the time to open grow with the number of keys. What lies on the disk
//! is the same as without a comparator; its name lies beside it in the file
//! `COMPARATOR`, and opening with another one is refused, as LevelDB does.
//!
//! Keys that differ but compare equal are one key: the bytes last put count.
//! A comparator that contradicts itself gives a wrong order, never a crash. One
//! that asks a database while it compares gets an error: it is called under the
//! lock of the sorted keys.

use std::cell::Cell;
use std::cmp::Ordering;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use cambium::{Error, Options, Result, Value, comparator};

/// What LevelDB calls the order of bytes.
pub const BYTEWISE_NAME: &str = "leveldb.BytewiseComparator";

/// An order of keys.
pub trait Comparator: Send + Sync {
    /// Its name, the same for as long as the order is the same.
    fn name(&self) -> &str;

    /// How two keys stand to each other.
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering;
}

/// Refuses to open a store by another comparator than it was made with; without one, `wanted`
/// is [`BYTEWISE_NAME`].
///
/// # Errors
/// `InvalidArgument`; those of [`comparator::stored_name`].
pub fn check_stored(options: &Options, store: &Path, wanted: &str) -> Result<()> {
    let file_system = &*options.environment_used().file_system;
    let found = comparator::stored_name(file_system, store)?;
    let found = found.unwrap_or_else(|| BYTEWISE_NAME.to_string());
    if found == wanted {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "comparator {wanted:?} does not match the one that {} was made with, {found:?}",
        store.display()
    )))
}

/// Refuses to make a store with a comparator by an engine that cannot have one: its keys have
/// no order that they can be read in.
///
/// # Errors
/// `Unsupported`; `InvalidArgument` for an engine that does not exist.
pub fn refuse_engine_without(options: &Options, engine: &str) -> Result<()> {
    match options.engines_used().find(engine)?.name() {
        engine @ ("zdb" | "alphard") => Err(Error::Unsupported {
            engine,
            what: "a comparator",
            instead: "engines forest and wisckey do",
        }),
        _ => Ok(()),
    }
}

/// A key that knows its order.
#[derive(Clone)]
pub struct OrderedKey {
    /// The key.
    pub key: Value,
    order: Arc<dyn Comparator>,
}

impl OrderedKey {
    /// A key in an order.
    pub fn new(key: Value, order: &Arc<dyn Comparator>) -> Self {
        OrderedKey {
            key,
            order: order.clone(),
        }
    }
}

impl fmt::Debug for OrderedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.key)
    }
}

impl PartialEq for OrderedKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for OrderedKey {}

impl PartialOrd for OrderedKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedKey {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.order, &self.key, &other.key)
    }
}

/// Calls the program's comparator.
pub fn compare(order: &Arc<dyn Comparator>, left: &[u8], right: &[u8]) -> Ordering {
    let before = COMPARING.replace(true);
    let ordering = order.compare(left, right);
    COMPARING.set(before);
    ordering
}

thread_local! {
    /// True while this thread is within a comparator of the program's.
    static COMPARING: Cell<bool> = const { Cell::new(false) };
}

/// Refuses what a comparator asks of a database, or of an iterator.
///
/// # Errors
/// `InvalidArgument` within a comparator.
pub fn refuse_within_comparator() -> Result<()> {
    match COMPARING.get() {
        false => Ok(()),
        true => Err(Error::InvalidArgument(
            "a comparator may only compare: it asks a database with a comparator, or an iterator"
                .to_string(),
        )),
    }
}
