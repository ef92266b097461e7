//! Keys: numbers in order of insertion, and the bytes that stand for them.
//!
//! ```text
//!  number ──order──▶ place ──form──▶ bytes
//!  0, 1, 2 ...       among all        in key order
//!  as inserted       keys, sorted     as places are
//! ```
//!
//! Bytes always sort as places do; whether keys arrive in key order is decided
//! by the first step alone. [`FillOrder::Sequential`] makes place and number
//! the same; [`FillOrder::Random`] takes the places in the order of a seeded
//! [`Permutation`], so that each is met exactly once, and a pass in key order
//! needs no sorting and no memory.
//!
//! Bytes of a key, by its size:
//!
//! ```text
//!  1 to 8   the place, a big-endian integer: dense from 0, as stores of
//!           integers expect; keys inserted after the load go on where it ended
//!  9 on     0..8   a big-endian integer in the place's own stripe of all 64-bit
//!                  numbers, at a random point of it: random to look at, distinct,
//!                  in order; keys inserted later fall between the loaded ones
//!           8..    letters a to p that the seed and the place decide
//! ```

use crate::error::{Error, Result};
use crate::job::{Load, SizeChoice};
use crate::permutation::Permutation;
use crate::random::{below, mix_two};
use crate::workload::FillOrder;

/// The largest key, in bytes, that is an integer.
pub const INTEGER_BYTES: u64 = 8;
/// The largest key at all.
pub const MOST_BYTES: u64 = 1 << 20;

/// Room for keys that a phase bounded by time inserts.
const UNBOUNDED_ROOM: u64 = 1 << 36;

/// Purposes of the seed.
const ORDER: u64 = 0x6F72_6465;
const POINT: u64 = 0x706F_696E;
const LETTERS: u64 = 0x6C65_7474;
const SIZE: u64 = 0x7369_7A65;

/// All keys of a job.
#[derive(Clone, Debug)]
pub struct KeySpace {
    loaded: u64,
    room: u64,
    sizes: SizeChoice,
    order: Option<Permutation>,
    /// Width of a place's stripe; 0 for integers.
    stripe: u64,
    seed: u64,
}

impl KeySpace {
    /// The keys of a load, filled in an order, with room for keys that are
    /// inserted later (`None`: as many as there is time for). A usage error if
    /// keys of that size cannot tell so many apart.
    pub fn new(load: &Load, fill: FillOrder, inserted: Option<u64>) -> Result<Self> {
        let (smallest, largest) = (load.key_bytes.smallest(), load.key_bytes.largest());
        check_sizes(smallest, largest)?;
        if load.keys == 0 {
            return Err(Error::Usage("keys: there must be at least one".to_string()));
        }
        let integers = largest <= INTEGER_BYTES;
        let possible = if largest < INTEGER_BYTES {
            1_u64 << (8 * largest)
        } else {
            1 << 62
        };
        let later = inserted.unwrap_or(UNBOUNDED_ROOM.min(possible.saturating_sub(load.keys)));
        let room = load.keys.saturating_add(later);
        if room > possible {
            return Err(Error::Usage(format!(
                "{room} keys of {largest} bytes: only {possible} differ; give longer keys or fewer"
            )));
        }
        let ordered = if integers { load.keys } else { room };
        let order = Permutation::new(ordered, mix_two(load.seed, ORDER));
        Ok(KeySpace {
            loaded: load.keys,
            room,
            sizes: load.key_bytes,
            order: (fill == FillOrder::Random).then_some(order),
            stripe: if integers { 0 } else { u64::MAX / room },
            seed: load.seed,
        })
    }

    /// Keys that the load puts: numbers below it.
    pub fn loaded(&self) -> u64 {
        self.loaded
    }

    /// Numbers are below it, those of keys inserted later too.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// Where a key stands among all keys, sorted.
    #[inline]
    pub fn place_of(&self, number: u64) -> u64 {
        match &self.order {
            Some(order) if number < order.count() => order.apply(number),
            _ => number,
        }
    }

    /// The key that stands at a place.
    #[inline]
    pub fn number_at(&self, place: u64) -> u64 {
        match &self.order {
            Some(order) if place < order.count() => order.invert(place),
            _ => place,
        }
    }

    /// Appends the bytes of a key, and answers how many they are.
    #[inline]
    pub fn append(&self, number: u64, keys: &mut Vec<u8>) -> usize {
        let place = self.place_of(number);
        let size = self.key_bytes(number);
        if self.stripe == 0 {
            let bytes = place.to_be_bytes();
            keys.extend_from_slice(&bytes[bytes.len() - size..]);
        } else {
            let point = below(mix_two(self.seed ^ POINT, place), self.stripe);
            let start = place * self.stripe + point;
            keys.extend_from_slice(&start.to_be_bytes());
            append_letters(self.seed, place, size - INTEGER_BYTES as usize, keys);
        }
        size
    }

    /// Bytes of a key.
    #[inline]
    pub fn key_bytes(&self, number: u64) -> usize {
        match self.sizes {
            SizeChoice::Fixed(bytes) => bytes as usize,
            sizes => sizes.pick(mix_two(self.seed ^ SIZE, number)) as usize,
        }
    }

    /// The number of a key that a store returned; none if it is no key of
    /// this job.
    pub fn number_of(&self, key: &[u8]) -> Option<u64> {
        let head = key.len().min(INTEGER_BYTES as usize);
        let start = key[..head]
            .iter()
            .fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
        let place = start.checked_div(self.stripe).unwrap_or(start);
        if place >= self.room {
            return None;
        }
        let number = self.number_at(place);
        let mut expected = Vec::with_capacity(key.len());
        self.append(number, &mut expected);
        (expected == key).then_some(number)
    }
}

fn check_sizes(smallest: u64, largest: u64) -> Result<()> {
    let refused = if smallest > largest {
        "a range goes from the smaller to the larger"
    } else if smallest == 0 {
        "a key has at least 1 byte"
    } else if largest > MOST_BYTES {
        "a key has at most 1 MiB"
    } else if smallest <= INTEGER_BYTES && smallest != largest {
        "keys up to 8 bytes are integers of one size; a range of sizes begins at 9 or more"
    } else {
        return Ok(());
    };
    Err(Error::Usage(format!(
        "key size from {smallest} to {largest}: {refused}"
    )))
}

/// Sixteen letters stand for four bits each: eight of them a random number.
fn append_letters(seed: u64, place: u64, count: usize, keys: &mut Vec<u8>) {
    let mut left = count;
    let mut part = LETTERS;
    while left > 0 {
        let bits = mix_two(seed ^ part, place) & 0x0F0F_0F0F_0F0F_0F0F;
        let letters = (bits + 0x6161_6161_6161_6161).to_le_bytes();
        let taken = left.min(letters.len());
        keys.extend_from_slice(&letters[..taken]);
        left -= taken;
        part += 1;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::job::tests::load;

    fn space(bytes: SizeChoice, keys: u64, fill: FillOrder, inserted: u64) -> KeySpace {
        let load = Load {
            keys,
            key_bytes: bytes,
            ..load("fill-random")
        };
        KeySpace::new(&load, fill, Some(inserted)).unwrap()
    }

    fn bytes_of(space: &KeySpace, number: u64) -> Vec<u8> {
        let mut key = Vec::new();
        space.append(number, &mut key);
        key
    }

    fn all_forms() -> Vec<KeySpace> {
        let mut found = Vec::new();
        for fill in [FillOrder::Sequential, FillOrder::Random] {
            for bytes in [
                SizeChoice::Fixed(4),
                SizeChoice::Fixed(8),
                SizeChoice::Fixed(9),
                SizeChoice::Fixed(16),
                SizeChoice::Uniform(9, 70),
            ] {
                found.push(space(bytes, 1_001, fill, 300));
            }
        }
        found
    }

    #[test]
    fn bytes_sort_as_places_do_and_are_distinct() {
        for space in all_forms() {
            let keys: Vec<Vec<u8>> = (0..space.room())
                .map(|place| bytes_of(&space, space.number_at(place)))
                .collect();
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{space:?}");
        }
    }

    #[test]
    fn a_key_gives_its_number_back() {
        for space in all_forms() {
            for number in 0..space.room() {
                let mut key = bytes_of(&space, number);
                assert_eq!(space.number_of(&key), Some(number));
                assert_eq!(space.number_at(space.place_of(number)), number);
                key.push(b'x');
                assert_eq!(space.number_of(&key), None);
            }
            assert_eq!(space.number_of(&[]), None);
            assert_eq!(space.number_of(&[0xFF; 16]), None);
        }
    }

    #[test]
    fn sequential_keys_arrive_in_key_order_and_random_ones_do_not() {
        for (fill, expected) in [
            (FillOrder::Sequential, 999..1000),
            (FillOrder::Random, 450..550),
        ] {
            for bytes in [SizeChoice::Fixed(8), SizeChoice::Fixed(16)] {
                let space = space(bytes, 1_000, fill, 0);
                let rising = (1..1_000)
                    .filter(|&number| bytes_of(&space, number - 1) < bytes_of(&space, number))
                    .count();
                assert!(expected.contains(&rising), "{rising} steps go up");
            }
        }
    }

    #[test]
    fn integers_are_dense_and_inserts_go_on_at_the_end() {
        let space = space(SizeChoice::Fixed(4), 100, FillOrder::Random, 10);
        let mut loaded: Vec<u32> = (0..100)
            .map(|number| u32::from_be_bytes(bytes_of(&space, number).try_into().unwrap()))
            .collect();
        loaded.sort_unstable();
        assert_eq!(loaded, (0..100).collect::<Vec<u32>>());
        assert_eq!(bytes_of(&space, 100), 100_u32.to_be_bytes());
    }

    #[test]
    fn sizes_are_kept() {
        let space = space(SizeChoice::Uniform(9, 40), 1_000, FillOrder::Random, 0);
        let sizes: Vec<usize> = (0..1_000).map(|n| bytes_of(&space, n).len()).collect();
        assert!((0..1_000).all(|n| sizes[n] == space.key_bytes(n as u64)));
        assert_eq!(sizes.iter().min(), Some(&9));
        assert_eq!(sizes.iter().max(), Some(&40));
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        for (bytes, keys, inserted, words) in [
            (SizeChoice::Fixed(0), 10, 0, "at least 1"),
            (SizeChoice::Fixed(2 << 20), 10, 0, "at most 1 MiB"),
            (SizeChoice::Uniform(4, 8), 10, 0, "begins at 9"),
            (SizeChoice::Uniform(30, 20), 10, 0, "to the larger"),
            (SizeChoice::Fixed(1), 257, 0, "only 256 differ"),
            (SizeChoice::Fixed(2), 65_000, 1_000, "only 65536 differ"),
            (SizeChoice::Fixed(4), 0, 0, "at least one"),
        ] {
            let load = Load {
                keys,
                key_bytes: bytes,
                ..load("fill-random")
            };
            let error = KeySpace::new(&load, FillOrder::Random, Some(inserted)).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
