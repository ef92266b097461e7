//! Rows of a table, as iterators.

use std::fmt;
use std::marker::PhantomData;

use cambium_api::{Entry, Result};

use super::keys::Key;
use super::values::TableValue;
use super::{decode_key, decode_value};
use crate::entries::Entries;

/// Keys and values of a table, as of a moment. Decoding errors stand between the rows:
/// the next call goes on behind.
pub struct Rows<K, V, I = Entries> {
    entries: I,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K, V, I> Rows<K, V, I> {
    pub(super) fn new(entries: I) -> Self {
        Rows {
            entries,
            types: PhantomData,
        }
    }
}

fn decode<K: Key, V: TableValue>(entry: Result<Entry>) -> Result<(K, V::Item)> {
    let entry = entry?;
    let value = decode_value::<V>(&entry.key, entry.value)?;
    Ok((decode_key(&entry.key)?, value))
}

impl<K: Key, V: TableValue, I: Iterator<Item = Result<Entry>>> Iterator for Rows<K, V, I> {
    type Item = Result<(K, V::Item)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.next().map(decode::<K, V>)
    }
}

impl<K, V, I> DoubleEndedIterator for Rows<K, V, I>
where
    K: Key,
    V: TableValue,
    I: DoubleEndedIterator<Item = Result<Entry>>,
{
    fn next_back(&mut self) -> Option<Self::Item> {
        self.entries.next_back().map(decode::<K, V>)
    }
}

impl<K, V, I: fmt::Debug> fmt::Debug for Rows<K, V, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rows({:?})", self.entries)
    }
}
