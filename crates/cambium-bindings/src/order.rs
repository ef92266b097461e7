//! Keys in the order of a comparator that the program brings.
//!
//! Engines keep keys in the order of their bytes. A database that is opened
//! with a comparator keeps all its keys in memory as well, sorted by it, read
//! from the store when it is opened. So memory and the time to open grow with
//! the number of keys, and the first write after an iterator or snapshot was
//! made copies the sorted keys (not the values) once. What lies on the disk is
//! the same as without a comparator; its name lies beside it in the file
//! `COMPARATOR`, and opening with another one is refused, as LevelDB does.
//!
//! Keys that differ but compare equal are one key: the bytes last put count.
//! A comparator that contradicts itself gives a wrong order, never a crash. One
//! that asks a database while it compares gets an error: it is called under the
//! lock of the sorted keys.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use cambium::{Environment, Error, Result, Value};
use cambium_io::OpenOptions;

/// The file with the comparator's name, in the store's folder.
pub const COMPARATOR_FILE: &str = "COMPARATOR";
/// What LevelDB calls the order of bytes.
pub const BYTEWISE_NAME: &str = "leveldb.BytewiseComparator";
const MAX_NAME_BYTES: usize = 4096;

/// An order of keys.
pub trait Comparator: Send + Sync {
    /// Its name, the same for as long as the order is the same.
    fn name(&self) -> &str;

    /// How two keys stand to each other.
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering;
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
fn compare(order: &Arc<dyn Comparator>, left: &[u8], right: &[u8]) -> Ordering {
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

/// All keys of a database at one moment.
#[derive(Clone, Debug)]
pub struct SortedKeys {
    keys: Arc<BTreeSet<OrderedKey>>,
    order: ByOrder,
}

#[derive(Clone)]
struct ByOrder(Arc<dyn Comparator>);

impl fmt::Debug for ByOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl SortedKeys {
    /// No keys yet.
    pub fn new(order: Arc<dyn Comparator>) -> Self {
        SortedKeys {
            keys: Arc::default(),
            order: ByOrder(order),
        }
    }

    /// The comparator.
    pub fn order(&self) -> &Arc<dyn Comparator> {
        &self.order.0
    }

    /// How two keys stand to each other.
    pub fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        compare(&self.order.0, left, right)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key that is there and equal to this one.
    pub fn find(&self, key: &[u8]) -> Option<&Value> {
        let wanted = self.ordered(key);
        self.keys.get(&wanted).map(|found| &found.key)
    }

    /// Puts a key in the place of one that is equal to it.
    pub fn insert(&mut self, key: &[u8]) {
        let key = self.ordered(key);
        Arc::make_mut(&mut self.keys).replace(key);
    }

    /// Takes the key away that is equal to this one.
    pub fn remove(&mut self, key: &[u8]) {
        let key = self.ordered(key);
        Arc::make_mut(&mut self.keys).remove(&key);
    }

    /// The first key behind a bound.
    pub fn first(&self, from: Bound<&[u8]>) -> Option<&Value> {
        let from = from.map(|key| self.ordered(key));
        let mut keys = self.keys.range((from, Bound::Unbounded));
        keys.next().map(|found| &found.key)
    }

    /// The last key before a bound.
    pub fn last(&self, to: Bound<&[u8]>) -> Option<&Value> {
        let to = to.map(|key| self.ordered(key));
        let mut keys = self.keys.range((Bound::Unbounded, to));
        keys.next_back().map(|found| &found.key)
    }

    /// A key in this order.
    pub fn ordered(&self, key: &[u8]) -> OrderedKey {
        OrderedKey::new(Value::copy_of(key), &self.order.0)
    }
}

/// The name of the comparator that a store was made with.
///
/// # Errors
/// What the disk says.
pub fn stored_name(environment: &Environment, path: &Path) -> Result<String> {
    let file_system = &*environment.file_system;
    let path = path.join(COMPARATOR_FILE);
    if file_system.metadata(&path)?.is_none() {
        return Ok(BYTEWISE_NAME.to_string());
    }
    let file = file_system.open(&path, OpenOptions::READ)?;
    let mut name = vec![0; MAX_NAME_BYTES];
    let length = file.read_at(&mut name, 0)?;
    name.truncate(length);
    String::from_utf8(name).map_err(|error| {
        let at = error.utf8_error().valid_up_to() as u64;
        Error::corruption(&path, at, "expected the name of a comparator in UTF-8")
    })
}

/// Keeps the name of the comparator that a store is made with, durably.
///
/// # Errors
/// `LimitExceeded` for a name over 4,096 bytes, and what the disk says.
pub fn store_name(environment: &Environment, path: &Path, name: &str) -> Result<()> {
    check_name(name)?;
    let file_system = &*environment.file_system;
    let file = path.join(COMPARATOR_FILE);
    let file = file_system.open(&file, OpenOptions::CREATE)?;
    file.write_at(name.as_bytes(), 0)?;
    file.set_length(name.len() as u64)?;
    file.sync_data()?;
    file_system.sync_directory(path)
}

/// Refuses what cannot be kept as a comparator's name.
///
/// # Errors
/// `InvalidArgument` for an empty name, `LimitExceeded` for one over 4,096 bytes.
pub fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::InvalidArgument(
            "a comparator without a name: stores are told by it which order they have".to_string(),
        ));
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(Error::LimitExceeded(format!(
            "a comparator's name of {} bytes: names have up to {MAX_NAME_BYTES}",
            name.len()
        )));
    }
    Ok(())
}
