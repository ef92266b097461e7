//! A store as LevelDB's interface has it: opened by flags, read by keys of any
//! length, walked both ways, in the order of bytes or of a comparator.
//!
//! A write goes to the store as it is, but for two cases: keys too long for an
//! engine are put into their groups ([`long_keys`]), and where the program has
//! brought a comparator, a key that it holds equal to another takes its place
//! ([`order`]). Both read before they write, so such writes take
//! turns.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use cambium::{
    CompactOptions, Durability, Error, KeyRange, Operation, Options, Precondition, Result,
    Snapshot, Store, Value, WriteBatch, comparator, limits,
};

use crate::long_keys::{self, Group};
use crate::order::{self, OrderedKey};
use crate::properties;
use crate::reader::Reader;
use crate::remove::remove;
use crate::settings::Settings;
use crate::sorted_keys::SortedKeys;
use crate::view::View;
use crate::walker::{Bounds, Shape, Walker};
use cambium_io::sync::atomic::{AtomicBool, Ordering};
use cambium_io::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, lock, read, write};

/// An open database.
///
/// ```
/// use cambium_bindings::{Database, Settings};
/// use cambium::Durability;
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// let settings = Settings { create_if_missing: true, ..Settings::default() };
/// let database = Database::open(folder.path(), &settings)?;
/// database.put(b"oak", b"Quercus", Durability::Written)?;
/// let then = database.view()?;
/// database.delete(b"oak", Durability::Written)?;
/// assert_eq!(then.get(b"oak")?.as_deref(), Some(&b"Quercus"[..]));
/// # database.close()
/// # }
/// ```
#[derive(Debug)]
pub struct Database {
    store: Store,
    /// Writers of long keys take turns.
    groups: Arc<Mutex<()>>,
    sorted: Option<RwLock<SortedKeys>>,
    reader: Arc<Reader>,
    closed: Arc<AtomicBool>,
}

impl Database {
    /// Opens, or makes, a database.
    ///
    /// # Errors
    /// `NotAStore` where none is and none is to be made; `AlreadyExists` where
    /// one is and none may be; `InvalidArgument` for another comparator than the
    /// one it was made with; and those of [`Options::open`].
    pub fn open(path: impl AsRef<Path>, settings: &Settings) -> Result<Database> {
        let path = path.as_ref();
        // Whatever calls itself LevelDB's order of bytes is the engines' own.
        let order = settings.comparator.as_ref();
        let order = order.filter(|order| order.name() != order::BYTEWISE_NAME);
        let wanted = order.map_or(order::BYTEWISE_NAME, |order| order.name());
        comparator::check_name(wanted)?;
        let file_system = &*settings.options.environment_used().file_system;
        let store = match settings.options.marker(path) {
            Ok(marker) => {
                if settings.error_if_exists {
                    return Err(Error::AlreadyExists {
                        path: path.to_path_buf(),
                        what: "there is a store already: open it, or choose another folder"
                            .to_string(),
                    });
                }
                order::check_stored(&settings.options, path, wanted)?;
                let options = settings.for_engine(&marker.engine);
                match settings.read_only {
                    true => options.open_read_only(path)?,
                    false => options.open(path)?,
                }
            }
            Err(Error::NotAStore { path, what }) => {
                if settings.read_only || !settings.create_if_missing {
                    let what = format!("{what}; it would be made if create_if_missing were set");
                    return Err(Error::NotAStore { path, what });
                }
                if wanted != order::BYTEWISE_NAME {
                    order::refuse_engine_without(&settings.options, &settings.engine)?;
                }
                let options = settings.for_engine(&settings.engine);
                let store = match options.create(&path, &settings.engine) {
                    // Another program made it since.
                    Err(Error::AlreadyExists { .. })
                        if !settings.error_if_exists && options.marker(&path).is_ok() =>
                    {
                        return Database::open(path, settings);
                    }
                    made => made?,
                };
                if wanted != order::BYTEWISE_NAME {
                    let named = comparator::store_name(file_system, &path, wanted);
                    if let Err(error) = named {
                        // In no order but its own may anybody write into it.
                        store.close()?;
                        drop(store);
                        remove(&options, path.as_ref())?;
                        return Err(error);
                    }
                }
                store
            }
            Err(other) => return Err(other),
        };
        let sorted = match order {
            None => None,
            Some(order) => {
                let mut keys = SortedKeys::new(order.clone());
                let all = &Bounds::default();
                let mut walker = Walker::by_bytes(store.snapshot()?, all, Shape::KeysInGroups);
                walker.seek_to_first()?;
                while let Some(key) = walker.key() {
                    keys.insert(key);
                    walker.next()?;
                }
                Some(RwLock::new(keys))
            }
        };
        Ok(Database {
            store,
            groups: Arc::default(),
            sorted,
            reader: Reader::new(&settings.options.environment_used().executor),
            closed: Arc::default(),
        })
    }

    /// The sorted keys, where there is a comparator, for reading.
    fn sorted(&self) -> Result<Option<RwLockReadGuard<'_, SortedKeys>>> {
        let Some(sorted) = &self.sorted else {
            return Ok(None);
        };
        order::refuse_within_comparator()?;
        Ok(Some(read(sorted)))
    }

    /// True if the program has brought a comparator.
    pub fn has_comparator(&self) -> bool {
        self.sorted.is_some()
    }

    /// The store itself.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The value of a key, or `None`.
    ///
    /// # Errors
    /// `Closed`, `Corruption`, `Io`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        if let Some(keys) = self.sorted()? {
            let Some(key) = keys.find(key) else {
                // A closed database says so whatever the key.
                return self.store.get(b"").map(|_| None);
            };
            return long_keys::find(key, |key| self.store.get(key));
        }
        long_keys::find(key, |key| self.store.get(key))
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// Those of [`Store::put`].
    pub fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        if self.sorted.is_none() && !long_keys::may_share(key) {
            return self.store.engine().put(key, value, durability).map(drop);
        }
        let mut batch = WriteBatch::new();
        batch.put(key, value);
        self.write(batch, durability)
    }

    /// Makes a call of the store that takes a key as it is: for entries that expire, and merges.
    ///
    /// # Errors
    /// `Unsupported` with a comparator, whose keys are kept in memory beside the entries;
    /// `LimitExceeded` for a key that shares its entry with others; those of the call.
    pub fn on_store<T>(&self, key: &[u8], call: impl FnOnce(&Store) -> Result<T>) -> Result<T> {
        if self.sorted.is_some() {
            return Err(self.no_special_values());
        }
        let _turn = long_keys::may_share(key).then(|| self.turn());
        long_keys::check_single(key, |key| self.store.get(key))?;
        call(&self.store)
    }

    /// Holds other writers of long keys off, for as long as what this answers lives.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.groups)
    }

    fn no_special_values(&self) -> Error {
        self.not_compared("expiry and merging with a comparator")
    }

    fn not_compared(&self, what: &'static str) -> Error {
        Error::Unsupported {
            engine: self.store.capabilities().engine,
            what,
            instead: "open the database without one",
        }
    }

    /// Takes a key away; no error if it is not there.
    ///
    /// # Errors
    /// Those of [`Store::put`].
    pub fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        if self.sorted.is_none() && !long_keys::may_share(key) {
            return self.store.engine().delete(key, durability).map(drop);
        }
        let mut batch = WriteBatch::new();
        batch.delete(key);
        self.write(batch, durability)
    }

    /// Writes a batch, whole or not at all.
    ///
    /// # Errors
    /// Those of [`Store::write`]; `InvalidArgument` for the deletion of a range, and
    /// `Unsupported` for entries that expire and merges, with a comparator.
    pub fn write(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        self.write_if(&[], batch, durability)
    }

    /// Writes a batch if all conditions hold.
    ///
    /// # Errors
    /// `PreconditionFailed` with the first that did not hold; `Unsupported` for conditions
    /// with a comparator; `LimitExceeded` for one on a key that may share its entry with
    /// others; those of [`Database::write`].
    pub fn write_if(
        &self,
        conditions: &[Precondition],
        batch: WriteBatch,
        durability: Durability,
    ) -> Result<()> {
        for condition in conditions {
            limits::check_key(condition.key())?;
            if long_keys::may_share(condition.key()) {
                return Err(long_keys::shared_entry("a condition names such a key"));
            }
        }
        let Some(sorted) = &self.sorted else {
            return self.write_stored(conditions, batch, durability);
        };
        if !conditions.is_empty() {
            return Err(self.not_compared("conditions with a comparator"));
        }
        order::refuse_within_comparator()?;
        let mut keys = write(sorted);
        let mut batch = batch;
        if !batch.take_special().is_empty() {
            return Err(self.no_special_values());
        }
        let mut stored = WriteBatch::new();
        // What the batch makes of each key it names: the bytes it then has.
        let mut changes: BTreeMap<OrderedKey, Option<Vec<u8>>> = BTreeMap::new();
        for (namespace, operation) in batch.operations() {
            if let Some(name) = namespace {
                return Err(no_namespaces(name));
            }
            let key = match operation {
                Operation::Put { key, .. } | Operation::Delete { key } => key,
                Operation::DeleteRange { .. } => return Err(no_ranges()),
            };
            let ordered = keys.ordered(key);
            let before = match changes.get(&ordered) {
                Some(change) => change.clone(),
                None => keys.find(key).map(|found| found.to_vec()),
            };
            if let Some(before) = before.filter(|before| before != key) {
                stored.delete(&before);
            }
            // An entry of the map keeps the key it was made with; take it out first.
            changes.remove(&ordered);
            match operation {
                Operation::Put { value, .. } => {
                    stored.put(key, value);
                    changes.insert(ordered, Some(key.clone()));
                }
                _ => {
                    stored.delete(key);
                    changes.insert(ordered, None);
                }
            }
        }
        self.write_stored(&[], stored, durability)?;
        for (ordered, change) in changes {
            match change {
                Some(key) => keys.insert(&key),
                None => keys.remove(&ordered.key),
            }
        }
        Ok(())
    }

    /// Writes a batch, the long keys of it into their groups.
    fn write_stored(
        &self,
        conditions: &[Precondition],
        mut batch: WriteBatch,
        durability: Durability,
    ) -> Result<()> {
        let engine = self.store.engine();
        let write = |batch| match conditions {
            [] => engine.write(batch, durability).map(drop),
            _ => engine.write_if(conditions, batch, durability).map(drop),
        };
        let may_share = |operation: &Operation| match operation {
            Operation::Put { key, .. } | Operation::Delete { key } => long_keys::may_share(key),
            Operation::DeleteRange { .. } => false,
        };
        let is_range = |operation: &Operation| matches!(operation, Operation::DeleteRange { .. });
        let any = |is: &dyn Fn(&Operation) -> bool| {
            let mut operations = batch.operations().iter();
            operations.any(|(_, operation)| is(operation))
        };
        let (has_long, has_ranges) = (any(&may_share), any(&is_range));
        // A range may take groups away, which their writers would write anew.
        let _turn = (has_long || has_ranges).then(|| self.turn());
        if !has_long {
            return write(batch);
        }
        if has_ranges {
            return Err(long_keys::shared_entry("its batch deletes a range"));
        }
        let mut special = batch.take_special().into_iter().peekable();
        type Place = (Option<Arc<str>>, Vec<u8>);
        // Each with what it is now, and whether it differs from what is stored.
        let mut groups: BTreeMap<Place, (Group, bool)> = BTreeMap::new();
        let mut stored = WriteBatch::new();
        for (place, (namespace, operation)) in batch.into_operations().into_iter().enumerate() {
            let special = special.next_if(|(of, _)| *of == place);
            let (key, value) = match &operation {
                Operation::Put { key, value } if long_keys::may_share(key) => (key, Some(value)),
                Operation::Delete { key } if long_keys::may_share(key) => (key, None),
                _ => {
                    stored.push(namespace, operation);
                    if let Some((_, special)) = special {
                        stored.make_special(special);
                    }
                    continue;
                }
            };
            if special.is_some() {
                return Err(long_keys::shared_entry("write it outside of a batch"));
            }
            let place = (namespace, long_keys::stored_key(key).to_vec());
            if !groups.contains_key(&place) {
                let found = self.store_in(place.0.as_deref())?.get(&place.1)?;
                let group = found.map_or_else(Group::default, |value| Group::of(&value));
                groups.insert(place.clone(), (group, false));
            }
            if let Some((group, is_changed)) = groups.get_mut(&place) {
                *is_changed |= group.set(key, value.map(Vec::as_slice));
            }
        }
        for ((namespace, key), (group, is_changed)) in groups {
            if !is_changed {
                continue;
            }
            if !group.is_single() {
                let store = self.store_in(namespace.as_deref())?;
                if store.expires_at(&key)?.is_some() {
                    return Err(long_keys::shared_entry("it is there, and expires"));
                }
            }
            let operation = match group.is_empty() {
                true => Operation::Delete { key },
                false => Operation::Put {
                    key,
                    value: group.encode(),
                },
            };
            stored.push(namespace, operation);
        }
        write(stored)
    }

    fn store_in(&self, namespace: Option<&str>) -> Result<Store> {
        match namespace {
            Some(name) => self.store.namespace(name),
            None => Ok(self.store.clone()),
        }
    }

    /// The state now.
    ///
    /// # Errors
    /// `Closed`.
    pub fn view(&self) -> Result<View> {
        let keys = self.sorted()?;
        // The snapshot is of the moment at which the keys stand still.
        let snapshot = self.store.snapshot()?;
        Ok(self.view_of(snapshot, keys.map(|keys| keys.clone())))
    }

    fn view_of(&self, snapshot: Snapshot, keys: Option<SortedKeys>) -> View {
        View {
            snapshot,
            keys,
            reader: self.reader.clone(),
            closed: self.closed.clone(),
        }
    }

    /// The state that was kept under a name.
    ///
    /// # Errors
    /// Those of [`Store::named_snapshot`]; `Unsupported` with a comparator, which orders the
    /// keys of now.
    pub fn named_view(&self, name: &str) -> Result<View> {
        if self.sorted.is_some() {
            return Err(self.not_compared("reading a named snapshot with a comparator"));
        }
        Ok(self.view_of(self.store.named_snapshot(name)?, None))
    }

    /// About how many bytes on disk the entries from `from` up to `to` take.
    ///
    /// # Errors
    /// `Closed`, `Io`. In the order of a comparator only the whole is known,
    /// and it is answered for any range that is not empty.
    pub fn approximate_size(&self, from: &[u8], to: &[u8]) -> Result<u64> {
        let range = match self.sorted()? {
            None if from >= to => return Ok(0),
            None => long_keys::stored_range(&KeyRange::between(from, to)),
            Some(keys) => {
                let first = keys.first(Bound::Included(from));
                let inside = |key: &Value| keys.compare(key, to).is_lt();
                if !first.is_some_and(inside) {
                    return Ok(0);
                }
                KeyRange::all()
            }
        };
        self.store.approximate_size(&range)
    }

    /// Keys of their own in the same store, made if they are not there. Closing this
    /// database closes them.
    ///
    /// # Errors
    /// `Unsupported` where the engine has none; `InvalidArgument` in a database
    /// with a comparator, which is for the keys of the default namespace alone.
    pub fn namespace(&self, name: &str) -> Result<Database> {
        if self.sorted.is_some() {
            return Err(no_namespaces(name));
        }
        Ok(Database {
            store: self.store.namespace(name)?,
            groups: self.groups.clone(),
            sorted: None,
            reader: self.reader.clone(),
            closed: self.closed.clone(),
        })
    }

    /// Brings the store back to a state that was kept under a name.
    ///
    /// # Errors
    /// Those of [`Store::rollback`]; `InvalidArgument` in a database with a
    /// comparator.
    pub fn rollback(&self, name: &str) -> Result<()> {
        if self.sorted.is_some() {
            return Err(Error::InvalidArgument(format!(
                "rollback to {name:?} in a database with a comparator: open the store without it"
            )));
        }
        self.store.rollback(name)
    }

    /// Gives space back. Engines compact what pays, so a range is a hint that
    /// none of them takes.
    ///
    /// # Errors
    /// Those of [`Store::compact`].
    pub fn compact(&self) -> Result<()> {
        self.store
            .compact(&CompactOptions::default(), &())
            .map(drop)
    }

    /// A property by LevelDB's name for it; see [`properties::property`].
    ///
    /// # Errors
    /// What the store answers.
    pub fn property(&self, name: &str) -> Result<Option<String>> {
        properties::property(&self.store, name)
    }

    /// Closes it; whatever is asked of it or of its views answers `Closed`.
    ///
    /// # Errors
    /// What the last sync answered.
    pub fn close(&self) -> Result<()> {
        self.closed.store(true, Ordering::Release);
        self.store.close()
    }

    /// True once it was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// How many entries there are, where that is known without a pass over them: by
    /// engines that keep their keys' places in memory, and by the order of a
    /// comparator.
    ///
    /// # Errors
    /// What the store answers.
    pub fn count(&self) -> Result<Option<u64>> {
        if let Some(keys) = self.sorted()? {
            return Ok(Some(keys.len() as u64));
        }
        match self.store.capabilities().engine {
            "zdb" | "alphard" => Ok(self.store.stats()?.number("entries")),
            _ => Ok(None),
        }
    }

    /// Copies the state now into a folder that is empty or not there, durable when it
    /// returns, with the comparator's name.
    ///
    /// # Errors
    /// Those of [`Store::backup`].
    pub fn backup(&self, destination: &Path) -> Result<()> {
        self.store.backup(destination, &())
    }
}

/// Brings a damaged database back to what can be read.
///
/// # Errors
/// Those of [`Options::repair`].
pub fn repair(options: &Options, path: &Path) -> Result<()> {
    options.repair(path).map(drop)
}

pub(crate) fn no_namespaces(name: &str) -> Error {
    Error::InvalidArgument(format!(
        "namespace {name:?} in a database with a comparator, which orders the default one alone"
    ))
}

fn no_ranges() -> Error {
    Error::InvalidArgument(
        "a range deleted in a database with a comparator: delete its keys one by one".to_string(),
    )
}
