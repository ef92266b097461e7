//! The writes of a round that the store does not have yet.
//!
//! Commands read through the overlay, so each sees the writes of those before it. At the end
//! of the round all of it becomes one batch.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use cambium::{
    Direction, Entries, KeyRange, Operation, Result, Snapshot, Store, Value, WriteBatch,
};

use super::fetching::Fetched;

/// Pending writes by key; `None` deletes.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    entries: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Ranges that are deleted before the entries are written.
    emptied: Vec<KeyRange>,
    /// Entries that are deleted because a key has expired. Such a key is gone for its readers
    /// even if the batch is refused, so their answers do not depend on it.
    expired: BTreeSet<Vec<u8>>,
    /// Deletes of this moment are those of expired keys.
    pub is_expiring: bool,
    bytes: usize,
    /// How often something was written, since the server began.
    writes: u64,
    /// Keys that are fetched at the moment.
    pub fetched: Fetched,
}

impl Overlay {
    /// True if nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.emptied.is_empty()
    }

    /// True if answers may depend on what is pending for any key.
    pub fn is_awaited(&self) -> bool {
        self.entries.len() > self.expired.len() || !self.emptied.is_empty()
    }

    /// True if a key's entry is deleted because the key has expired.
    pub fn has_expired(&self, key: &[u8]) -> bool {
        self.expired.contains(key)
    }

    /// Bytes of keys and values that were put since the last batch.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How often something was written.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    fn note_write(&mut self, key: &[u8]) {
        self.writes += 1;
        self.fetched.forget(key);
    }

    /// What is pending for a key: a value, a deletion (`Some(None)`) or nothing.
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        if let Some(pending) = self.entries.get(key) {
            return Some(pending.as_deref());
        }
        let emptied = self.emptied.iter().any(|range| range.contains(key));
        emptied.then_some(None)
    }

    /// Gives a key a value.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.bytes += key.len() + value.len();
        self.note_write(&key);
        self.expired.remove(&key);
        self.entries.insert(key, Some(value));
    }

    /// Takes a key away.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.bytes += key.len();
        self.note_write(&key);
        let is_pending = self.entries.insert(key.clone(), None).is_some();
        match self.is_expiring && !is_pending {
            true => _ = self.expired.insert(key),
            false => _ = self.expired.remove(&key),
        }
    }

    /// Takes all keys of a range away.
    pub fn empty(&mut self, range: KeyRange) {
        self.writes += 1;
        self.fetched.forget_range(&range);
        self.entries.retain(|key, _| !range.contains(key));
        self.expired.retain(|key| !range.contains(key));
        self.emptied.push(range);
    }

    /// Everything as one batch; the overlay is empty then.
    pub fn take_batch(&mut self) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for range in std::mem::take(&mut self.emptied) {
            batch.delete_range(range);
        }
        for (key, pending) in std::mem::take(&mut self.entries) {
            let operation = match pending {
                Some(value) => Operation::Put { key, value },
                None => Operation::Delete { key },
            };
            batch.push(None, operation);
        }
        self.expired.clear();
        self.bytes = 0;
        batch
    }

    /// What is pending in a range.
    pub fn range(
        &self,
        range: &KeyRange,
    ) -> impl DoubleEndedIterator<Item = (&[u8], Option<&[u8]>)> {
        let from = range
            .from
            .as_deref()
            .map_or(Bound::Unbounded, Bound::Included);
        let to = range
            .to
            .as_deref()
            .map_or(Bound::Unbounded, Bound::Excluded);
        let is_empty = range
            .from
            .as_deref()
            .zip(range.to.as_deref())
            .is_some_and(|(from, to)| from >= to);
        let entries = (!is_empty).then(|| self.entries.range::<[u8], _>((from, to)));
        let entries = entries.into_iter().flatten();
        entries.map(|(key, value)| (key.as_slice(), value.as_deref()))
    }
}

/// What lies below an overlay.
#[derive(Debug)]
pub enum Source {
    /// The store as it is.
    Store(Store),
    /// The store as it was.
    Snapshot(Snapshot),
}

impl Source {
    fn scan(&self, range: &KeyRange) -> Result<Entries> {
        match self {
            Source::Store(store) => store.scan(range),
            Source::Snapshot(snapshot) => snapshot.scan(range),
        }
    }
}

/// Whether a walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// It does.
    On,
    /// It has seen enough.
    Enough,
}

/// What a walk reads of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Keys alone: values are empty.
    Keys,
    /// Keys and values.
    Entries,
}

impl Read {
    /// The next key, and its value if values are read.
    pub fn forward(self, entries: &mut Entries) -> Result<Option<(Value, Value)>> {
        let next = match self {
            Read::Entries => {
                Iterator::next(entries).map(|entry| entry.map(|entry| (entry.key, entry.value)))
            }
            Read::Keys => entries.next_key().map(without_value),
        };
        next.transpose()
    }
}

/// Shows the entries of a range in order to `visit`, those of the overlay in place of the
/// source's.
pub fn walk(
    source: &Source,
    overlay: &Overlay,
    range: &KeyRange,
    direction: Direction,
    read: Read,
    mut visit: impl FnMut(&[u8], &[u8]) -> Walk,
) -> Result<()> {
    let mut stored = source.scan(range)?;
    let mut next_stored = || -> Result<Option<(Value, Value)>> {
        loop {
            let entry = match (direction, read) {
                (Direction::Forward, _) => read.forward(&mut stored)?,
                (_, Read::Keys) => stored.next_key_back().map(without_value).transpose()?,
                (_, Read::Entries) => {
                    let entry = stored.next_back().transpose()?;
                    entry.map(|entry| (entry.key, entry.value))
                }
            };
            match entry {
                Some((key, _)) if overlay.get(&key).is_some() => {}
                entry => return Ok(entry),
            }
        }
    };
    let mut pending = overlay.range(range);
    let mut next_pending = || loop {
        if let (key, Some(value)) = direction.advance(&mut pending)? {
            break Some((key, value));
        }
    };
    let (mut left, mut right) = (next_stored()?, next_pending());
    loop {
        let stored_is_first = match (&left, &right) {
            (None, None) => return Ok(()),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some((stored, _)), Some((pending, _))) => match direction {
                Direction::Forward => stored.as_slice() < *pending,
                Direction::Reverse => stored.as_slice() > *pending,
            },
        };
        let walk = match (&left, right) {
            (Some((key, value)), _) if stored_is_first => visit(key, value),
            (_, Some((key, value))) => visit(key, value),
            (_, None) => Walk::Enough,
        };
        if walk == Walk::Enough {
            return Ok(());
        }
        match stored_is_first {
            true => left = next_stored()?,
            false => right = next_pending(),
        }
    }
}

fn without_value(key: Result<Value>) -> Result<(Value, Value)> {
    Ok((key?, Value::copy_of(b"")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on has failed
mod tests {
    use super::*;

    fn seen(source: &Source, overlay: &Overlay, direction: Direction) -> String {
        let mut seen = String::new();
        let range = KeyRange::from("a".."z");
        walk(
            source,
            overlay,
            &range,
            direction,
            Read::Entries,
            |key, value| {
                seen += &format!("{}={} ", key.escape_ascii(), value.escape_ascii());
                Walk::On
            },
        )
        .unwrap();
        seen
    }

    #[test]
    fn a_walk_sees_what_the_batch_will_make() {
        let folder = tempfile::tempdir().unwrap();
        let store = cambium::create(folder.path(), "forest", &cambium::Options::new()).unwrap();
        for key in ["b", "d", "f", "h", "z"] {
            store.put(key, "old").unwrap();
        }
        let source = Source::Store(store.clone());
        let mut overlay = Overlay::default();
        overlay.put(b"c".to_vec(), b"lost".to_vec());
        overlay.empty(KeyRange::from("c".."e"));
        overlay.put(b"d".to_vec(), b"new".to_vec());
        overlay.put(b"a".to_vec(), b"new".to_vec());
        overlay.put(b"zz".to_vec(), b"new".to_vec());
        overlay.delete(b"f".to_vec());
        assert_eq!(overlay.get(b"c"), Some(None));
        assert_eq!(overlay.get(b"b"), None);
        let forward = seen(&source, &overlay, Direction::Forward);
        assert_eq!(forward, "a=new b=old d=new h=old ");
        assert_eq!(
            seen(&source, &overlay, Direction::Reverse),
            "h=old d=new b=old a=new "
        );
        store.write(overlay.take_batch()).unwrap();
        assert!(overlay.is_empty());
        assert_eq!(seen(&source, &overlay, Direction::Forward), forward);
        store.close().unwrap();
    }
}
