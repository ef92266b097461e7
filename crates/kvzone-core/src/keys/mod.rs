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
//!
//! So it is unless the load names a source of keys ([`KeySource`]): a published
//! pattern, whose keys are functions of their place and in no known order, or
//! the lines of a file, held in memory, sorted.

mod list;

use std::sync::Arc;

use self::list::KeyList;
use crate::error::{Error, Result};
use crate::job::{KeySource, Load, SizeChoice};
use crate::key_patterns::{KeyPattern, Keys};
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

#[derive(Clone, Debug)]
pub struct KeySpace {
    loaded: u64,
    room: u64,
    sizes: SizeChoice,
    order: Option<Permutation>,
    form: Form,
    seed: u64,
}

/// How the bytes of a place are made.
#[derive(Clone, Debug)]
enum Form {
    Integers,
    /// Each place has a stripe, so wide, of all 64-bit numbers.
    Stripes(u64),
    Pattern(Keys),
    List(Arc<KeyList>),
}

impl KeySpace {
    /// The keys of a load, filled in an order, with room for keys that are
    /// inserted later (`None`: as many as there is time for). A usage error if
    /// keys of that size cannot tell so many apart.
    pub fn new(load: &Load, fill: FillOrder, inserted: Option<u64>) -> Result<Self> {
        if load.keys == 0 {
            return Err(Error::Usage("keys: there must be at least one".to_string()));
        }
        match &load.key_source {
            KeySource::Spread => Self::spread(load, fill, inserted),
            KeySource::Pattern(pattern) => Self::of_pattern(load, *pattern, inserted),
            KeySource::File(path) => Self::of_list(load, fill, KeyList::read(path)?, inserted),
        }
    }

    fn spread(load: &Load, fill: FillOrder, inserted: Option<u64>) -> Result<Self> {
        let (smallest, largest) = (load.key_bytes.smallest(), load.key_bytes.largest());
        check_sizes(smallest, largest)?;
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
            form: if integers {
                Form::Integers
            } else {
                Form::Stripes(u64::MAX / room)
            },
            seed: load.seed,
        })
    }

    fn of_pattern(load: &Load, pattern: KeyPattern, inserted: Option<u64>) -> Result<Self> {
        let room = load.keys.saturating_add(inserted.unwrap_or(UNBOUNDED_ROOM));
        let own = pattern.sizes();
        let keys = match (load.key_bytes, pattern.least_fixed_bytes()) {
            (bytes, _) if bytes == own => Keys::new(pattern, load.seed),
            (SizeChoice::Fixed(bytes), Some(least)) if (least..=MOST_BYTES).contains(&bytes) => {
                Keys::of_bytes(pattern, load.seed, bytes as usize)
            }
            (bytes, least) => {
                let choices = match least {
                    Some(least) => format!("one size from {least} bytes to 1 MiB, or no size"),
                    None => "no size: it has its own".to_string(),
                };
                return Err(Error::Usage(format!(
                    "keys of pattern {pattern} of {} to {} bytes: give {choices}",
                    bytes.smallest(),
                    bytes.largest()
                )));
            }
        };
        Ok(KeySpace {
            loaded: load.keys,
            room,
            sizes: load.key_bytes,
            order: Some(Permutation::new(room, mix_two(load.seed, ORDER))),
            form: Form::Pattern(keys),
            seed: load.seed,
        })
    }

    fn of_list(load: &Load, fill: FillOrder, list: KeyList, inserted: Option<u64>) -> Result<Self> {
        let wanted = load.keys.saturating_add(inserted.unwrap_or(0));
        if inserted.is_none() || wanted > list.count() {
            let at_most = if inserted.is_none() { " or more" } else { "" };
            return Err(Error::Usage(format!(
                "{wanted} keys{at_most}: {} has {} that differ",
                list.name(),
                list.count()
            )));
        }
        let order = Permutation::new(wanted, mix_two(load.seed, ORDER));
        Ok(KeySpace {
            loaded: load.keys,
            room: wanted,
            sizes: load.key_bytes,
            order: (fill == FillOrder::Random).then_some(order),
            form: Form::List(Arc::new(list.evenly(wanted))),
            seed: load.seed,
        })
    }

    /// True if places are in key order; of a pattern's keys nobody knows.
    pub fn is_ordered(&self) -> bool {
        !matches!(self.form, Form::Pattern(_))
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
        match &self.form {
            Form::Integers => {
                let size = self.sizes.smallest() as usize;
                let bytes = place.to_be_bytes();
                keys.extend_from_slice(&bytes[bytes.len() - size..]);
                size
            }
            Form::Stripes(stripe) => {
                let size = self.spread_bytes(number);
                let point = below(mix_two(self.seed ^ POINT, place), *stripe);
                let start = place * stripe + point;
                keys.extend_from_slice(&start.to_be_bytes());
                append_letters(self.seed, place, size - INTEGER_BYTES as usize, keys);
                size
            }
            Form::Pattern(pattern) => pattern.append(place, keys),
            Form::List(list) => {
                let key = list.get(place);
                keys.extend_from_slice(key);
                key.len()
            }
        }
    }

    pub fn key_bytes(&self, number: u64) -> usize {
        match &self.form {
            Form::Integers | Form::Stripes(_) => self.spread_bytes(number),
            Form::Pattern(pattern) => pattern.append(self.place_of(number), &mut Vec::new()),
            Form::List(list) => list.get(self.place_of(number)).len(),
        }
    }

    /// Bytes of the longest key, or a bound of them.
    pub fn longest_bytes(&self) -> u64 {
        match &self.form {
            Form::List(list) => list.longest_bytes(),
            _ => self.sizes.largest(),
        }
    }

    #[inline]
    fn spread_bytes(&self, number: u64) -> usize {
        match self.sizes {
            SizeChoice::Fixed(bytes) => bytes as usize,
            sizes => sizes.pick(mix_two(self.seed ^ SIZE, number)) as usize,
        }
    }

    /// The number of a key that a store returned; none if it is no key of
    /// this job.
    pub fn number_of(&self, key: &[u8]) -> Option<u64> {
        let place = match &self.form {
            Form::Integers => leading_number(key),
            Form::Stripes(stripe) => leading_number(key) / stripe,
            Form::Pattern(pattern) => pattern.number_of(key, self.room)?,
            Form::List(list) => list.place_of(key)?,
        };
        if place >= self.room {
            return None;
        }
        let number = self.number_at(place);
        let mut expected = Vec::with_capacity(key.len());
        self.append(number, &mut expected);
        (expected == key).then_some(number)
    }
}

/// The integer that a key begins with.
fn leading_number(key: &[u8]) -> u64 {
    let head = key.len().min(INTEGER_BYTES as usize);
    key[..head]
        .iter()
        .fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
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
    fn keys_of_a_pattern_are_found_again_and_have_no_known_order() {
        let load = |bytes| Load {
            key_source: KeySource::Pattern(KeyPattern::TwoLevel),
            key_bytes: bytes,
            ..load("fill-random")
        };
        for bytes in [SizeChoice::Fixed(32), KeyPattern::TwoLevel.sizes()] {
            let space = KeySpace::new(&load(bytes), FillOrder::Random, Some(10)).unwrap();
            assert!(!space.is_ordered());
            for number in 0..1_010 {
                let key = bytes_of(&space, number);
                assert_eq!(key.len(), space.key_bytes(number));
                assert!((bytes.smallest()..=bytes.largest()).contains(&(key.len() as u64)));
                assert_eq!(space.number_of(&key), Some(number));
            }
        }
        for bytes in [SizeChoice::Fixed(15), SizeChoice::Uniform(20, 30)] {
            let error = KeySpace::new(&load(bytes), FillOrder::Random, Some(0)).unwrap_err();
            assert!(error.to_string().contains("one size from 16"), "{error}");
        }
    }

    #[test]
    fn keys_of_a_file_are_its_lines_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let lines: String = (0..2_000).map(|line| format!("key {line:04}\n")).collect();
        std::fs::write(&path, lines).unwrap();
        let load = |keys| Load {
            key_source: KeySource::File(path.clone()),
            keys,
            ..load("fill-random")
        };
        let space = KeySpace::new(&load(1_000), FillOrder::Random, Some(0)).unwrap();
        assert!(space.is_ordered());
        let mut last = Vec::new();
        for place in 0..1_000 {
            let key = bytes_of(&space, space.number_at(place));
            assert_eq!(space.number_of(&key), Some(space.number_at(place)));
            assert!(key > last, "in key order");
            last = key;
        }
        assert_eq!(last, b"key 1998", "taken evenly from the whole file");
        assert_eq!(
            space.number_of(b"key 0001"),
            None,
            "a line that was not taken"
        );
        let error = KeySpace::new(&load(2_001), FillOrder::Random, Some(0)).unwrap_err();
        assert!(error.to_string().contains("2000 that differ"), "{error}");
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
