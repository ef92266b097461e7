//! Strings that were written lately: that they are there, and when they expire.
//!
//! A SET has to know whether it makes a key or replaces one, but not what it replaces. A
//! table of a fixed size answers that without a read of the store. A key's hash of 128 bits
//! chooses a set of places and stands for the key: two keys of one hash are as likely as a
//! fault of the memory that holds them. Where all places of a set are taken, a new key takes
//! one over. Every change of a key reaches the table, so the table has no stale keys.

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Sets of the table; it takes 32 MiB, and half as much again once strings expire.
const SETS: usize = 1 << 19;
/// Places of a set: the hashes of one lie side by side in a line of the processor's cache.
const WAYS: usize = 4;
/// The bit of a stored hash that says whether the string expires.
const EXPIRES: u128 = 1;

/// A table of strings that are stored.
#[derive(Debug, Default)]
pub struct RecentStrings {
    /// Hashes; 0 is a free place. Empty until the first string is noted.
    places: Vec<u128>,
    /// By place, the moment at which a string expires. Empty until one does.
    moments: Vec<u64>,
    seed: u64,
}

impl RecentStrings {
    /// An empty table; `seed` makes its hashes differ from those of other runs.
    pub fn new(seed: u64) -> RecentStrings {
        RecentStrings {
            seed,
            ..RecentStrings::default()
        }
    }

    /// A key's hash without the bit, and the first place of its set.
    fn hash(&self, database: u8, key: &[u8]) -> (u128, usize) {
        let seed = self.seed.wrapping_add(u64::from(database));
        // Never 0, and the set comes from other bits than the mark.
        let hash = xxh3_128_with_seed(key, seed) & !EXPIRES | 2;
        (hash, (hash >> 64) as usize % SETS * WAYS)
    }

    fn find(&self, hash: u128, first: usize) -> Option<usize> {
        let set = self.places.get(first..first + WAYS)?;
        let found = set.iter().position(|place| place & !EXPIRES == hash);
        found.map(|way| first + way)
    }

    /// Tells when a string expires that is known to be there; `None` where nothing is known.
    pub fn get(&self, database: u8, key: &[u8]) -> Option<Option<u64>> {
        let (hash, first) = self.hash(database, key);
        let place = self.find(hash, first)?;
        match self.places[place] & EXPIRES {
            0 => Some(None),
            _ => Some(Some(*self.moments.get(place)?)),
        }
    }

    /// A string was written.
    pub fn note(&mut self, database: u8, key: &[u8], expires: Option<u64>) {
        let (hash, first) = self.hash(database, key);
        if self.places.is_empty() {
            self.places.resize(SETS * WAYS, 0);
        }
        let place = self
            .find(hash, first)
            .or_else(|| self.find(0, first))
            .unwrap_or(first + (hash >> 32) as usize % WAYS);
        self.places[place] = hash | u128::from(expires.is_some());
        if let Some(moment) = expires {
            if self.moments.is_empty() {
                self.moments.resize(SETS * WAYS, 0);
            }
            self.moments[place] = moment;
        }
    }

    /// A key has no string any more.
    pub fn forget(&mut self, database: u8, key: &[u8]) {
        let (hash, first) = self.hash(database, key);
        if let Some(place) = self.find(hash, first) {
            self.places[place] = 0;
        }
    }

    /// Many keys may have changed.
    pub fn forget_all(&mut self) {
        *self = RecentStrings::new(self.seed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_the_last_that_was_told() {
        let mut recent = RecentStrings::new(7);
        assert_eq!(recent.get(0, b"key"), None);
        recent.note(0, b"key", None);
        assert_eq!(recent.get(0, b"key"), Some(None));
        recent.note(0, b"key", Some(7));
        assert_eq!(recent.get(0, b"key"), Some(Some(7)));
        recent.forget(0, b"other");
        recent.forget(1, b"key");
        assert_eq!(recent.get(0, b"key"), Some(Some(7)));
        assert_eq!(recent.get(1, b"key"), None);
        recent.note(0, b"key", None);
        assert_eq!(recent.get(0, b"key"), Some(None));
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
