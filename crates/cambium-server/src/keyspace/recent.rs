//! Strings that were written lately: that they are there, and when they expire.
//!
//! A SET has to know whether it makes a key or replaces one, but not what it replaces. A
//! table of a bounded size answers that without a read of the store. A key's hash of 128 bits
//! chooses a set of places and stands for the key: two keys of one hash are as likely as a
//! fault of the memory that holds them. Where all places of a set are taken, a new key takes
//! one over. The table grows while half of its places are taken, so that few keys lie in few
//! pages, and while the memory budget has room for it. Every change of a key reaches the table, so the table has no stale keys.

use cambium_io::environment::Reservation;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Sets of the table at first: 64 KiB.
const LEAST_SETS: usize = 1 << 10;
/// Sets of the table at most: 32 MiB, and half as much again once strings expire.
const MOST_SETS: usize = 1 << 19;
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
    /// Places that are taken.
    used: usize,
    seed: u64,
    /// Places at most.
    most: usize,
    /// Memory of the budget for the table; without one there is no bound but [`MOST_SETS`].
    reserved: Option<Reservation>,
}

impl RecentStrings {
    /// An empty table; `seed` makes its hashes differ from those of other runs.
    pub fn new(seed: u64, reserved: Option<Reservation>) -> RecentStrings {
        RecentStrings {
            seed,
            most: MOST_SETS * WAYS,
            reserved,
            ..RecentStrings::default()
        }
    }

    /// A key's hash without the bit, and never 0.
    fn hash(&self, database: u8, key: &[u8]) -> u128 {
        let seed = self.seed.wrapping_add(u64::from(database));
        xxh3_128_with_seed(key, seed) & !EXPIRES | 2
    }

    /// The first place of the set of a hash: by other bits than the mark.
    fn first(&self, hash: u128) -> usize {
        let sets = (self.places.len() / WAYS).max(1);
        (hash >> 64) as usize % sets * WAYS
    }

    /// The place of a hash, or with 0 in its stead a free one.
    fn find(&self, hash: u128, first: usize) -> Option<usize> {
        let set = self.places.get(first..first + WAYS)?;
        let found = set.iter().position(|place| place & !EXPIRES == hash);
        found.map(|way| first + way)
    }

    /// Tells when a string expires that is known to be there; `None` where nothing is known.
    pub fn get(&self, database: u8, key: &[u8]) -> Option<Option<u64>> {
        let hash = self.hash(database, key);
        let place = self.find(hash, self.first(hash))?;
        match self.places[place] & EXPIRES {
            0 => Some(None),
            _ => Some(Some(*self.moments.get(place)?)),
        }
    }

    /// A string was written.
    pub fn note(&mut self, database: u8, key: &[u8], expires: Option<u64>) {
        let hash = self.hash(database, key);
        if self.places.is_empty() {
            self.places.resize(LEAST_SETS * WAYS, 0);
        }
        let place = self.place_for(hash);
        self.places[place] = hash | u128::from(expires.is_some());
        if let Some(moment) = expires {
            if self.moments.is_empty() {
                self.moments.resize(self.places.len(), 0);
            }
            self.moments[place] = moment;
        }
    }

    fn place_for(&mut self, hash: u128) -> usize {
        loop {
            let first = self.first(hash);
            if let Some(known) = self.find(hash, first) {
                return known;
            }
            if let Some(free) = self.find(0, first) {
                self.used += 1;
                return free;
            }
            let may_grow = self.places.len() < self.most && self.used >= self.places.len() / 2;
            if may_grow && !self.reserve() {
                self.most = self.places.len();
            }
            if !may_grow || self.places.len() == self.most {
                return first + (hash >> 32) as usize % WAYS;
            }
            self.grow();
        }
    }

    /// Whether the budget has room for the table, the one of twice its size, and their moments.
    fn reserve(&mut self) -> bool {
        let bytes = 3 * self.places.len() * (size_of::<u128>() + size_of::<u64>());
        let reserved = self.reserved.as_mut();
        reserved.is_none_or(|reserved| reserved.resize(bytes as u64).is_ok())
    }

    /// Doubles the table: the keys of each set go to one of two.
    fn grow(&mut self) {
        let mut larger = RecentStrings {
            places: vec![0; self.places.len() * 2],
            moments: vec![0; self.moments.len() * 2],
            used: self.used,
            seed: self.seed,
            most: self.most,
            reserved: self.reserved.take(),
        };
        for (place, hash) in self.places.iter().enumerate() {
            let first = larger.first(*hash);
            if let Some(free) = larger.find(0, first).filter(|_| *hash != 0) {
                larger.places[free] = *hash;
                if let Some(moment) = self.moments.get(place) {
                    larger.moments[free] = *moment;
                }
            }
        }
        *self = larger;
    }

    /// A key has no string any more.
    pub fn forget(&mut self, database: u8, key: &[u8]) {
        let hash = self.hash(database, key);
        if let Some(place) = self.find(hash, self.first(hash)) {
            self.places[place] = 0;
            self.used -= 1;
        }
    }

    /// Many keys may have changed.
    pub fn forget_all(&mut self) {
        *self = RecentStrings::new(self.seed, self.reserved.take());
    }
}

#[cfg(test)]
mod tests {
    use cambium_io::environment::MemoryBudget;

    use super::*;

    #[test]
    fn what_is_known_is_the_last_that_was_told() {
        let mut recent = RecentStrings::new(7, None);
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
        for number in 0..100_000_u64 {
            recent.note(
                0,
                &number.to_be_bytes(),
                (number % 3 == 0).then_some(number),
            );
        }
        assert_eq!(recent.places.len(), 1 << 18);
        let expires = |number: u64| (number % 3 == 0).then_some(number);
        let known = (0..100_000_u64).filter_map(|number| {
            let found = recent.get(0, &number.to_be_bytes())?;
            assert_eq!(found, expires(number));
            Some(number)
        });
        assert!((90_000..100_000).contains(&known.count()));
        let many = 2 * (MOST_SETS * WAYS) as u64;
        for number in 0..many {
            recent.note(0, &number.to_be_bytes(), Some(number));
        }
        let known = |number: &u64| recent.get(0, &number.to_be_bytes()) == Some(Some(*number));
        let left = (0..many).filter(known).count() as u64;
        assert!((many / 4..=many / 2).contains(&left), "{left}");
    }

    #[test]
    fn the_table_stays_within_the_budget() {
        let budget = MemoryBudget::new(1 << 20);
        let mut recent = RecentStrings::new(7, budget.reserve(0).ok());
        for number in 0..100_000_u64 {
            recent.note(0, &number.to_be_bytes(), Some(number));
        }
        let bytes = recent.places.len() * 16 + recent.moments.len() * 8;
        assert!((1 << 18..1 << 20).contains(&bytes), "{bytes}");
        assert!(budget.used() >= bytes as u64);
        let known = |number: &u64| recent.get(0, &number.to_be_bytes()) == Some(Some(*number));
        assert!((0..100_000).filter(known).count() > 5_000);
    }
}
