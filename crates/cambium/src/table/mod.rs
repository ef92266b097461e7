//! Typed tables: keys and values of Rust types over any store.
//!
//! A [`Table`] is a store handle, or a namespace of one, whose keys and values are encoded
//! and decoded on the way. Keys keep their order ([`keys`]), so that scans take ranges of
//! the type. The codings are part of the store's data and stay as they are; a store does
//! not know of them, so a table is opened with the types with which it was written.
//!
//! | where | how |
//! |---|---|
//! | a store, or a namespace handle | [`Table::new`], [`Store::table`] |
//! | a snapshot | [`Table::at`] |
//! | a transaction | [`Table::within`] |
//! | a batch | [`Table::put_into`], [`Table::delete_from`] |
//!
//! ```
//! use cambium::prelude::*;
//! use cambium::table::Table;
//! # fn main() -> cambium::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder for the example");
//! let store = cambium::open_or_create(folder.path().join("forestry"))?;
//! let planted: Table<(String, u32), u64> = store.table("planted")?;
//! planted.put(("oak".to_string(), 1905), 12)?;
//! planted.put(("oak".to_string(), 1871), 3)?;
//! planted.put(("elm".to_string(), 1954), 5)?;
//!
//! let years = planted.scan_first("oak")?.map(|row| row.map(|((_, year), _)| year));
//! assert_eq!(years.collect::<cambium::Result<Vec<_>>>()?, [1871, 1905]);
//!
//! let all: u64 = store.transact(|transaction| {
//!     let planted = planted.within(transaction)?;
//!     planted.scan(..)?.map(|row| row.map(|(_, count)| count)).sum()
//! })?;
//! assert_eq!(all, 20);
//! # store.close()
//! # }
//! ```

pub mod keys;
mod range;
mod rows;
pub mod values;

use std::any::type_name;
use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;

use cambium_api::{
    Error, Expiry, KeyRange, Operation, Result, SequenceNumber, Transaction, TransactionEntries,
    TransactionView, Value, WriteBatch,
};

use crate::entries::Entries;
use crate::snapshot::Snapshot;
use crate::store::Store;

pub use keys::{CompoundKey, Key};
pub use range::TableRange;
pub use rows::Rows;
#[cfg(feature = "serde")]
pub use values::Serde;
pub use values::TableValue;

/// A table of a store: keys of type `K`, values of type `V`. Cheap to clone.
pub struct Table<K, V> {
    store: Store,
    types: PhantomData<fn() -> (K, V)>,
}

/// A [`Table`] as of a moment: that of a snapshot, or of a transaction, where it also
/// writes.
pub struct TableAt<K, V, S> {
    source: S,
    types: PhantomData<fn() -> (K, V)>,
}

impl Store {
    /// The table that has a namespace of this name for itself, made if it is not there.
    /// An engine without namespaces has one table: [`Table::new`].
    ///
    /// # Errors
    /// As of [`Store::namespace`].
    pub fn table<K: Key, V: TableValue>(&self, name: &str) -> Result<Table<K, V>> {
        Ok(Table::new(&self.namespace(name)?))
    }
}

pub(crate) fn encode_key<K: Key>(key: &K::Borrowed) -> Vec<u8> {
    let mut encoded = Vec::new();
    K::encode_last(key, &mut encoded);
    encoded
}

fn encode_value<V: TableValue>(value: &V::Borrowed) -> Result<Vec<u8>> {
    let mut encoded = Vec::new();
    V::encode(value, &mut encoded).map_err(|what| {
        Error::InvalidArgument(format!("a value of {}: {what}", type_name::<V>()))
    })?;
    Ok(encoded)
}

fn decode_value<V: TableValue>(key: &[u8], value: Value) -> Result<V::Item> {
    let length = value.len();
    V::decode(value).ok_or_else(|| Error::WrongType {
        key: key.to_vec(),
        what: format!("its value, of {length} bytes, is no {}", type_name::<V>()),
    })
}

fn decode_key<K: Key>(key: &[u8]) -> Result<K> {
    let mut rest = key;
    let decoded = K::decode_last(&mut rest).filter(|_| rest.is_empty());
    decoded.ok_or_else(|| Error::WrongType {
        key: key.to_vec(),
        what: format!("it is no {}", type_name::<K>()),
    })
}

impl<K: Key, V: TableValue> Table<K, V> {
    /// The table whose entries are all those of a store handle. Writes have the handle's
    /// [durability](Store::with_durability).
    ///
    /// ```
    /// use cambium::{Options, table::Table};
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// let options = Options::new().set("keys", "integer");
    /// let store = options.create(folder.path(), "zdb")?;
    /// let rings: Table<u64, String> = Table::new(&store); // integer keys are `u64`
    /// rings.put(1905, "wide")?;
    /// assert_eq!(rings.get(1905)?.as_deref(), Some("wide"));
    /// # store.close()
    /// # }
    /// ```
    pub fn new(store: &Store) -> Self {
        Table {
            store: store.clone(),
            types: PhantomData,
        }
    }

    /// The store handle that the table is of.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The value of a key, or `None`.
    ///
    /// # Errors
    /// As of [`Store::get`]; `WrongType` for a value of another type.
    pub fn get(&self, key: impl Borrow<K::Borrowed>) -> Result<Option<V::Item>> {
        let key = encode_key::<K>(key.borrow());
        let value = self.store.get(&key)?;
        value
            .map(|value| decode_value::<V>(&key, value))
            .transpose()
    }

    /// The values of several keys, in the order of the keys; the reads go to the device
    /// together.
    ///
    /// # Errors
    /// As of [`Store::multi_get`]; `WrongType` for a value of another type.
    pub fn multi_get<B: Borrow<K::Borrowed>>(&self, keys: &[B]) -> Result<Vec<Option<V::Item>>> {
        let keys: Vec<Vec<u8>> = keys
            .iter()
            .map(|key| encode_key::<K>(key.borrow()))
            .collect();
        let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let values = self.store.multi_get(&borrowed)?;
        let decode = |(key, value): (&Vec<u8>, Option<_>)| {
            value.map(|value| decode_value::<V>(key, value)).transpose()
        };
        keys.iter().zip(values).map(decode).collect()
    }

    /// Gives a key a value that expires.
    ///
    /// # Errors
    /// As of [`Store::put_expiring`]; `InvalidArgument` for a value that cannot be encoded.
    pub fn put_expiring(
        &self,
        key: impl Borrow<K::Borrowed>,
        value: impl Borrow<V::Borrowed>,
        expiry: Expiry,
    ) -> Result<SequenceNumber> {
        let value = encode_value::<V>(value.borrow())?;
        let key = encode_key::<K>(key.borrow());
        self.store.put_expiring(key, value, expiry)
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// As of [`Store::put`]; `InvalidArgument` for a value that cannot be encoded.
    pub fn put(
        &self,
        key: impl Borrow<K::Borrowed>,
        value: impl Borrow<V::Borrowed>,
    ) -> Result<SequenceNumber> {
        let value = encode_value::<V>(value.borrow())?;
        self.store.put(encode_key::<K>(key.borrow()), value)
    }

    /// Takes a key away; no error if it is not there.
    ///
    /// # Errors
    /// As of [`Store::delete`].
    pub fn delete(&self, key: impl Borrow<K::Borrowed>) -> Result<SequenceNumber> {
        self.store.delete(encode_key::<K>(key.borrow()))
    }

    /// Takes all keys of a range away, atomically.
    ///
    /// # Errors
    /// As of [`Store::delete_range`].
    pub fn delete_range(&self, range: impl TableRange<K>) -> Result<SequenceNumber> {
        self.store.delete_range(range.into_key_range())
    }

    /// Rows of a range in the order of their keys, from both ends.
    ///
    /// # Errors
    /// As of [`Store::scan`].
    ///
    /// ```
    /// use cambium::table::Table;
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::open_or_create(folder.path())?;
    /// let heights: Table<i32, String> = store.table("heights")?;
    /// for height in [-400, -3, 0, 8848] {
    ///     heights.put(height, format!("at {height} m"))?;
    /// }
    /// let below: Vec<_> = heights.scan(..0)?.collect::<cambium::Result<_>>()?;
    /// assert_eq!(below, [(-400, "at -400 m".to_string()), (-3, "at -3 m".to_string())]);
    /// let highest = heights.scan(..)?.next_back().transpose()?;
    /// assert_eq!(highest.map(|(height, _)| height), Some(8848));
    /// # store.close()
    /// # }
    /// ```
    pub fn scan(&self, range: impl TableRange<K>) -> Result<Rows<K, V>> {
        Ok(Rows::new(self.store.scan(range.into_key_range())?))
    }

    /// Rows whose keys have this first part, in order.
    ///
    /// # Errors
    /// As of [`Store::scan`].
    pub fn scan_first(&self, first: impl Borrow<<K::First as Key>::Borrowed>) -> Result<Rows<K, V>>
    where
        K: CompoundKey,
    {
        Ok(Rows::new(
            self.store.scan(range_of_first::<K>(first.borrow()))?,
        ))
    }

    /// Every row, in the order that is cheapest for the engine; works on every engine.
    ///
    /// # Errors
    /// As of [`Store::iterate`].
    pub fn iterate(&self) -> Result<Rows<K, V>> {
        Ok(Rows::new(self.store.iterate()?))
    }

    /// The table at the moment of a snapshot of its store, of any of its namespaces.
    ///
    /// # Errors
    /// `NotFound` if the table's namespace was dropped; `InvalidArgument` of another store's
    /// snapshot.
    pub fn at(&self, snapshot: &Snapshot) -> Result<TableAt<K, V, Snapshot>> {
        if !snapshot.is_of(&self.store.open) {
            return Err(self.another_store("snapshot"));
        }
        let name = self.store.namespace_name();
        let source = snapshot.namespace(name)?.ok_or_else(|| Error::NotFound {
            kind: "namespace",
            name: name.to_string(),
        })?;
        Ok(TableAt::of(source))
    }

    /// The table in a transaction of its store.
    ///
    /// # Errors
    /// As of [`Transaction::namespace`]; `InvalidArgument` of another store's transaction.
    pub fn within(&self, transaction: &Transaction) -> Result<TableAt<K, V, TransactionView>> {
        let held = transaction.held().and_then(|held| held.downcast_ref());
        if !held.is_some_and(|open| self.store.open.is_part_of(open)) {
            return Err(self.another_store("transaction"));
        }
        Ok(TableAt::of(
            transaction.namespace(self.store.namespace_name())?,
        ))
    }

    fn another_store(&self, what: &str) -> Error {
        Error::InvalidArgument(format!(
            "the {what} is not of the table's store, {}: begin one there",
            self.store.path().display()
        ))
    }

    /// Adds a put of this table to a batch.
    ///
    /// # Errors
    /// `InvalidArgument` for a value that cannot be encoded.
    ///
    /// ```
    /// use cambium::{WriteBatch, table::Table};
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::open_or_create(folder.path())?;
    /// let names: Table<u32, String> = store.table("names")?;
    /// let numbers: Table<String, u32> = store.table("numbers")?;
    /// let mut batch = WriteBatch::new();
    /// names.put_into(&mut batch, 7, "oak")?;
    /// numbers.put_into(&mut batch, "oak", 7)?;
    /// store.write(batch)?; // both, or neither
    /// assert_eq!(numbers.get("oak")?, Some(7));
    /// # store.close()
    /// # }
    /// ```
    pub fn put_into(
        &self,
        batch: &mut WriteBatch,
        key: impl Borrow<K::Borrowed>,
        value: impl Borrow<V::Borrowed>,
    ) -> Result<()> {
        let key = encode_key::<K>(key.borrow());
        let value = encode_value::<V>(value.borrow())?;
        batch.push(
            self.store.open.namespace.clone(),
            Operation::Put { key, value },
        );
        Ok(())
    }

    /// Adds the deletion of a key of this table to a batch.
    pub fn delete_from(&self, batch: &mut WriteBatch, key: impl Borrow<K::Borrowed>) {
        let key = encode_key::<K>(key.borrow());
        batch.push(self.store.open.namespace.clone(), Operation::Delete { key });
    }
}

/// Keys with this first part.
fn range_of_first<K: CompoundKey>(first: &<K::First as Key>::Borrowed) -> KeyRange {
    let mut prefix = Vec::new();
    K::First::encode(first, &mut prefix);
    KeyRange::prefix(prefix)
}

impl<K, V, S> TableAt<K, V, S> {
    fn of(source: S) -> Self {
        TableAt {
            source,
            types: PhantomData,
        }
    }
}

macro_rules! reads_of_a_moment {
    ($source:ty, $entries:ty) => {
        impl<K: Key, V: TableValue> TableAt<K, V, $source> {
            /// The value of a key then, or `None`.
            ///
            /// # Errors
            /// As of [`Table::get`].
            pub fn get(&self, key: impl Borrow<K::Borrowed>) -> Result<Option<V::Item>> {
                let key = encode_key::<K>(key.borrow());
                let value = self.source.get(&key)?;
                value
                    .map(|value| decode_value::<V>(&key, value))
                    .transpose()
            }

            /// Rows of a range in the order of their keys, from both ends.
            ///
            /// # Errors
            /// As of [`Table::scan`].
            pub fn scan(&self, range: impl TableRange<K>) -> Result<Rows<K, V, $entries>> {
                Ok(Rows::new(self.source.scan(range.into_key_range())?))
            }

            /// Rows whose keys have this first part, in order.
            ///
            /// # Errors
            /// As of [`Table::scan`].
            pub fn scan_first(
                &self,
                first: impl Borrow<<K::First as Key>::Borrowed>,
            ) -> Result<Rows<K, V, $entries>>
            where
                K: CompoundKey,
            {
                let range = range_of_first::<K>(first.borrow());
                Ok(Rows::new(self.source.scan(range)?))
            }
        }
    };
}

reads_of_a_moment!(Snapshot, Entries);
reads_of_a_moment!(TransactionView, TransactionEntries);

impl<K: Key, V: TableValue> TableAt<K, V, TransactionView> {
    /// Gives a key a value when the transaction commits.
    ///
    /// # Errors
    /// As of [`TransactionView::put`]; `InvalidArgument` for a value that cannot be
    /// encoded.
    pub fn put(
        &self,
        key: impl Borrow<K::Borrowed>,
        value: impl Borrow<V::Borrowed>,
    ) -> Result<()> {
        let value = encode_value::<V>(value.borrow())?;
        self.source.put(encode_key::<K>(key.borrow()), value)
    }

    /// Takes a key away when the transaction commits; no error if it is not there.
    ///
    /// # Errors
    /// As of [`TransactionView::delete`].
    pub fn delete(&self, key: impl Borrow<K::Borrowed>) -> Result<()> {
        self.source.delete(encode_key::<K>(key.borrow()))
    }

    /// Takes all keys of a range away when the transaction commits.
    ///
    /// # Errors
    /// As of [`TransactionView::delete_range`].
    pub fn delete_range(&self, range: impl TableRange<K>) -> Result<()> {
        self.source.delete_range(range.into_key_range())
    }
}

impl<K, V> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Table {
            store: self.store.clone(),
            types: PhantomData,
        }
    }
}

impl<K, V> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types = type_name::<(K, V)>();
        write!(
            f,
            "Table({:?}, {:?}, {types})",
            self.store,
            self.store.namespace_name()
        )
    }
}

impl<K, V, S: fmt::Debug> fmt::Debug for TableAt<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableAt({:?}, {})", self.source, type_name::<(K, V)>())
    }
}
