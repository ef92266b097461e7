//! Strings that were written lately: that they are there, and when they expire.
//!
//! A SET has to know whether it makes a key or replaces one, but not what it replaces. A
//! table of a fixed size answers that without a read of the store. A key's hash chooses one
//! of its sets of places; where all of a set are taken, a new key takes one over. The table
//! is told of every change, so it never says what was true once.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

/// Sets of the table. Full, it takes about 25 MiB.
const SETS: usize = 1 << 16;
/// Places of a set.
const WAYS: usize = 4;
/// Longer keys are not remembered.
const MOST_KEY_BYTES: usize = 64;

/// A table of strings that are stored.
#[derive(Debug, Default)]
pub struct RecentStrings {
    /// Empty until the first string is noted.
    places: Vec<Option<Known>>,
    /// By place, a part of the key's hash: most keys that are not searched for are told by it
    /// alone, and the tags of a set lie side by side.
    tags: Vec<u32>,
    hasher: RandomState,
}

#[derive(Clone, Debug)]
struct Known {
    database: u8,
    key: Box<[u8]>,
    expires: Option<u64>,
}

impl RecentStrings {
    /// The first place of a key's set, and its tag.
    fn set(&self, database: u8, key: &[u8]) -> (usize, u32) {
        let hash = self.hasher.hash_one((database, key));
        (hash as usize % SETS * WAYS, (hash >> 32) as u32)
    }

    fn find(&self, database: u8, key: &[u8]) -> Option<usize> {
        let (first, tag) = self.set(database, key);
        let tags = self.tags.get(first..first + WAYS)?;
        let mut places = (first..).zip(tags);
        let found = places.find(|&(place, of)| {
            let known = || self.places[place].as_ref();
            *of == tag
                && known().is_some_and(|known| known.database == database && *known.key == *key)
        });
        found.map(|(place, _)| place)
    }

    /// Tells when a string expires that is known to be there; `None` where nothing is known.
    pub fn get(&self, database: u8, key: &[u8]) -> Option<Option<u64>> {
        let known = self.places[self.find(database, key)?].as_ref();
        known.map(|known| known.expires)
    }

    /// A string was written.
    pub fn note(&mut self, database: u8, key: &[u8], expires: Option<u64>) {
        if key.len() > MOST_KEY_BYTES {
            return;
        }
        if let Some(known) = self
            .find(database, key)
            .and_then(|place| self.places[place].as_mut())
        {
            known.expires = expires;
            return;
        }
        if self.places.is_empty() {
            self.places.resize(SETS * WAYS, None);
            self.tags.resize(SETS * WAYS, 0);
        }
        let (first, tag) = self.set(database, key);
        let mut set = first..first + WAYS;
        let free = set.find(|&place| self.places[place].is_none());
        let place = free.unwrap_or(first + tag as usize % WAYS);
        let key = key.into();
        self.places[place] = Some(Known {
            database,
            key,
            expires,
        });
        self.tags[place] = tag;
    }

    /// A key has no string any more.
    pub fn forget(&mut self, database: u8, key: &[u8]) {
        if let Some(place) = self.find(database, key) {
            self.places[place] = None;
        }
    }

    /// Many keys may have changed.
    pub fn forget_all(&mut self) {
        self.places = Vec::new();
        self.tags = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_the_last_that_was_told() {
        let mut recent = RecentStrings::default();
        assert_eq!(recent.get(0, b"key"), None);
        recent.note(0, b"key", None);
        assert_eq!(recent.get(0, b"key"), Some(None));
        recent.note(0, b"key", Some(7));
        assert_eq!(recent.get(0, b"key"), Some(Some(7)));
        recent.forget(0, b"other");
        recent.forget(1, b"key");
        assert_eq!(recent.get(1, b"key"), None);
        recent.note(0, &[b'k'; MOST_KEY_BYTES + 1], None);
        assert_eq!(recent.get(0, &[b'k'; MOST_KEY_BYTES + 1]), None);
        recent.forget(0, b"key");
        assert_eq!(recent.get(0, b"key"), None);
        recent.note(0, b"key", None);
        recent.forget_all();
        assert_eq!(recent.get(0, b"key"), None);
        let many = 2 * (SETS * WAYS) as u64;
        for number in 0..many {
            recent.note(0, &number.to_be_bytes(), Some(number));
        }
        let known = |number: &u64| recent.get(0, &number.to_be_bytes()) == Some(Some(*number));
        let left = (0..many).filter(known).count() as u64;
        assert!((many / 4..=many / 2).contains(&left), "{left}");
    }
}
