//! The key patterns of ForestDB 2016: those of its table 2, and keys made to the sizes
//! of the data sets of its table 3.
//!
//! | pattern | keys | mean length |
//! |---|---|---|
//! | `random` | random bytes, nothing shared: the best case of an HB+-trie | fixed, 8 to 256 |
//! | `worst` | 20 nested prefixes, each with two branches | 198 |
//! | `small` | 100 prefixes, a random rest | 65 |
//! | `2-level` | two nested prefixes, each with 192 branches, a random rest | 64 |
//!
//! Prefixes have 10 bytes on the average. The paper does not say how their lengths are
//! distributed; here they are 8 bytes and as many more as there are heads in four tosses
//! of a coin. So the first prefix fills the first chunk of 8 bytes and the second prefix
//! shows in the second, as the paper reckons: in `2-level` "every third chunk has only
//! 1,000,000 / 192² ≈ 27 branches" (section 4.1).
//!
//! The sizes of `small` and `2-level` can also be fixed ([`Keys::of_bytes`]), as the
//! paper's section 4.2.1 does from 16 to 1,024 bytes: the rest is then longer or
//! shorter, and the prefixes are cut where less than eight bytes were left for it.
//!
//! Every key is a function of pattern, seed and number, and distinct: nothing is stored,
//! any key can be made again, and its number found from it ([`Keys::number_of`]). Numbers are spread over all branches evenly, so the
//! first `n` keys of a pattern have its shape, whatever `n` is.
//!
//! ```
//! use kvzone_core::key_patterns::{KeyPattern, Keys};
//! let keys = Keys::new(KeyPattern::Small, 7);
//! assert_eq!(keys.key(3)[..8], keys.key(103)[..8], "one of a hundred prefixes");
//! assert_ne!(keys.key(3), keys.key(103));
//! ```

mod invert;
mod published;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::job::SizeChoice;
use crate::random::{Random, mix, mix_two};

pub use published::DataSet;

/// Branches of each level of `2-level`.
pub const TWO_LEVEL_BRANCHES: u64 = 192;

/// Prefixes of `small`.
pub const SMALL_PREFIXES: u64 = 100;

/// Levels of `worst` that a million keys need.
pub const WORST_LEVELS: u32 = 20;

const PREFIX_BYTES: (usize, usize) = (8, 12);

/// Bytes that tell a key from all others.
const UNIQUE_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyPattern {
    /// Random bytes, so many of them; at least 8.
    Random(usize),
    /// Nested prefixes of two branches each, and nothing else.
    Worst,
    /// A hundred prefixes.
    Small,
    /// Two levels of 192 prefixes.
    TwoLevel,
    /// Keys made to the sizes of a published data set.
    Published(DataSet),
}

impl fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyPattern::Random(bytes) => write!(f, "random-{bytes}"),
            KeyPattern::Worst => f.write_str("worst"),
            KeyPattern::Small => f.write_str("small"),
            KeyPattern::TwoLevel => f.write_str("2-level"),
            KeyPattern::Published(data) => f.write_str(data.name()),
        }
    }
}

impl KeyPattern {
    /// From the fewest to the most bytes of its keys, where no size is asked
    /// for; the mean of both is the mean of many keys.
    pub fn sizes(self) -> SizeChoice {
        let prefixes = |levels: u64, rest: (u64, u64)| {
            let (least, most) = (PREFIX_BYTES.0 as u64, PREFIX_BYTES.1 as u64);
            SizeChoice::Uniform(levels * least + rest.0, levels * most + rest.1)
        };
        match self {
            KeyPattern::Random(bytes) => SizeChoice::Fixed(bytes.max(UNIQUE_BYTES) as u64),
            KeyPattern::Worst => prefixes(u64::from(WORST_LEVELS), (0, 0)),
            KeyPattern::Small => prefixes(1, (SMALL_REST as u64, SMALL_REST as u64 + 16)),
            KeyPattern::TwoLevel => {
                prefixes(2, (TWO_LEVEL_REST as u64, TWO_LEVEL_REST as u64 + 16))
            }
            KeyPattern::Published(data) => data.key_sizes(),
        }
    }

    /// The fewest bytes to which its keys can be cut or grown; None if their
    /// sizes are their own.
    pub fn least_fixed_bytes(self) -> Option<u64> {
        match self {
            KeyPattern::Random(_) => Some(UNIQUE_BYTES as u64),
            KeyPattern::Small | KeyPattern::TwoLevel => Some(2 * UNIQUE_BYTES as u64),
            KeyPattern::Worst | KeyPattern::Published(_) => None,
        }
    }

    fn levels(self) -> usize {
        match self {
            KeyPattern::Random(_) | KeyPattern::Published(_) => 0,
            KeyPattern::Small => 1,
            KeyPattern::TwoLevel => 2,
            KeyPattern::Worst => WORST_LEVELS as usize,
        }
    }
}

/// Fewest bytes behind the prefixes of `small` and `2-level`.
const SMALL_REST: usize = 47;
const TWO_LEVEL_REST: usize = 36;

#[derive(Clone, Copy, Debug)]
pub struct Keys {
    pattern: KeyPattern,
    seed: u64,
    /// Bytes of each key, where that is not the pattern's own business.
    bytes: Option<usize>,
}

/// Purposes of the seed.
const PREFIX: u64 = 0x7072_6566;
const REST: u64 = 0x7265_7374;

impl Keys {
    pub fn new(pattern: KeyPattern, seed: u64) -> Self {
        Keys {
            pattern,
            seed,
            bytes: None,
        }
    }

    /// The same with `bytes` bytes each, at least
    /// [`KeyPattern::least_fixed_bytes`]; of a pattern without that, its own.
    /// Prefixes are cut where they leave less than eight bytes for what tells
    /// keys apart.
    pub fn of_bytes(pattern: KeyPattern, seed: u64, bytes: usize) -> Self {
        let least = pattern.least_fixed_bytes();
        Keys {
            pattern,
            seed,
            bytes: least.map(|least| bytes.max(least as usize)),
        }
    }

    pub fn key(&self, number: u64) -> Vec<u8> {
        let mut key = Vec::with_capacity(256);
        self.append(number, &mut key);
        key
    }

    pub fn append(&self, number: u64, keys: &mut Vec<u8>) -> usize {
        let start = keys.len();
        match self.pattern {
            KeyPattern::Random(bytes) => {
                let bytes = self.bytes.unwrap_or(bytes.max(UNIQUE_BYTES));
                self.append_rest(keys, number, bytes);
            }
            KeyPattern::Worst => self.append_nested(keys, number),
            KeyPattern::Small => {
                self.append_prefix(keys, number % SMALL_PREFIXES);
                self.append_spread_rest(keys, start, number, SMALL_REST);
            }
            KeyPattern::TwoLevel => {
                let first = number % TWO_LEVEL_BRANCHES;
                let second = number / TWO_LEVEL_BRANCHES % TWO_LEVEL_BRANCHES;
                self.append_prefix(keys, first);
                self.append_prefix(keys, (1 + first) << 32 | second);
                self.append_spread_rest(keys, start, number, TWO_LEVEL_REST);
            }
            KeyPattern::Published(data) => data.append(self.seed, number, keys),
        }
        keys.len() - start
    }

    /// The most bytes of a prefix.
    fn prefix_limit(&self) -> usize {
        match self.bytes {
            Some(bytes) => (bytes - UNIQUE_BYTES) / self.pattern.levels().max(1),
            None => PREFIX_BYTES.1,
        }
    }

    /// Prefix `which`: 8 to 12 bytes, fewer where keys are short.
    fn append_prefix(&self, key: &mut Vec<u8>, which: u64) {
        let mut random = Random::stream(mix_two(self.seed, PREFIX), which);
        let bytes = PREFIX_BYTES.0 + (random.next_u64() & 15).count_ones() as usize;
        append_random(key, &mut random, bytes.min(self.prefix_limit()));
    }

    /// Which prefix of `worst` stands at a level above key `number`.
    fn nested_prefix(level: u32, number: u64) -> u64 {
        let path = number & (u64::MAX >> (63 - level));
        mix_two(u64::from(level), path)
    }

    /// One branch of two at each level; the number's bits choose, its low bits at the
    /// top, so that any range of numbers fills the levels evenly.
    fn append_nested(&self, key: &mut Vec<u8>, number: u64) {
        let needed = u64::BITS - number.leading_zeros();
        for level in 0..needed.max(WORST_LEVELS) {
            self.append_prefix(key, Self::nested_prefix(level, number));
        }
    }

    /// A random rest of `least` to `least` + 16 bytes, or what is left of a
    /// key that begins at `start`.
    fn append_spread_rest(&self, key: &mut Vec<u8>, start: usize, number: u64, least: usize) {
        let bytes = match self.bytes {
            Some(bytes) => bytes - (key.len() - start),
            None => least + (mix_two(self.seed, number) % 17) as usize,
        };
        self.append_rest(key, number, bytes);
    }

    /// Random bytes, the first eight of them different for each number.
    fn append_rest(&self, key: &mut Vec<u8>, number: u64, bytes: usize) {
        let seed = self.rest_seed();
        let first = mix(number.wrapping_add(seed));
        let end = key.len() + bytes;
        key.extend_from_slice(&first.to_be_bytes());
        let mut random = Random::stream(seed, number);
        append_random(key, &mut random, bytes.saturating_sub(UNIQUE_BYTES));
        key.truncate(end);
    }

    fn rest_seed(&self) -> u64 {
        mix_two(self.seed, REST)
    }
}

fn append_random(key: &mut Vec<u8>, random: &mut Random, bytes: usize) {
    let end = key.len() + bytes;
    while key.len() < end {
        key.extend_from_slice(&random.next_u64().to_be_bytes());
    }
    key.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    const COUNT: u64 = 40_000;

    fn made(pattern: KeyPattern) -> BTreeSet<Vec<u8>> {
        let keys = Keys::new(pattern, 11);
        let made: BTreeSet<Vec<u8>> = (0..COUNT).map(|number| keys.key(number)).collect();
        assert_eq!(made.len() as u64, COUNT, "{pattern}: keys are distinct");
        made
    }

    fn mean_bytes(keys: &BTreeSet<Vec<u8>>) -> f64 {
        keys.iter().map(Vec::len).sum::<usize>() as f64 / keys.len() as f64
    }

    fn shares(keys: &BTreeSet<Vec<u8>>, bytes: usize) -> BTreeMap<Vec<u8>, u64> {
        let mut shares = BTreeMap::new();
        for key in keys {
            *shares.entry(key[..bytes].to_vec()).or_insert(0) += 1;
        }
        shares
    }

    #[test]
    fn random_keys_have_their_length_and_share_nothing() {
        for bytes in [8, 9, 64, 256] {
            let keys = made(KeyPattern::Random(bytes));
            assert!(keys.iter().all(|key| key.len() == bytes));
            assert_eq!(shares(&keys, 8).len() as u64, COUNT);
        }
    }

    #[test]
    fn small_keys_have_a_hundred_prefixes_of_equal_share() {
        let keys = made(KeyPattern::Small);
        assert!(
            (mean_bytes(&keys) - 65.0).abs() < 1.0,
            "{}",
            mean_bytes(&keys)
        );
        let shares = shares(&keys, 8);
        assert_eq!(shares.len() as u64, SMALL_PREFIXES);
        assert!(
            shares
                .values()
                .all(|&share| share == COUNT / SMALL_PREFIXES)
        );
    }

    #[test]
    fn two_level_keys_branch_192_times_twice() {
        let keys = made(KeyPattern::TwoLevel);
        assert!(
            (mean_bytes(&keys) - 64.0).abs() < 1.0,
            "{}",
            mean_bytes(&keys)
        );
        let first = shares(&keys, 8);
        assert_eq!(first.len() as u64, TWO_LEVEL_BRANCHES);
        let (least, most) = (first.values().min(), first.values().max());
        assert!(
            least >= Some(&208) && most <= Some(&209),
            "{least:?} {most:?}"
        );
        let one = Keys::new(KeyPattern::TwoLevel, 11);
        // Numbers that agree modulo 192² agree in both prefixes, of 16 bytes at least.
        let (a, b) = (one.key(5), one.key(5 + TWO_LEVEL_BRANCHES.pow(2)));
        assert_eq!(a[..16], b[..16]);
    }

    #[test]
    fn worst_keys_branch_in_two_at_every_level() {
        let keys = made(KeyPattern::Worst);
        assert!(
            (mean_bytes(&keys) - 198.0).abs() < 4.0,
            "{}",
            mean_bytes(&keys)
        );
        let halves = shares(&keys, 8);
        assert_eq!(halves.len(), 2);
        assert!(halves.values().all(|&half| half == COUNT / 2));
        let one = Keys::new(KeyPattern::Worst, 11);
        let longer = (1..=15).map(|level| {
            let (a, b) = (one.key(0), one.key(1 << level));
            a.iter().zip(&b).take_while(|(a, b)| a == b).count()
        });
        let longer: Vec<usize> = longer.collect();
        assert!(
            longer.windows(2).all(|pair| pair[0] < pair[1]),
            "{longer:?}"
        );
    }

    #[test]
    fn keys_of_a_size_have_it_and_keep_their_shape() {
        for bytes in [16, 17, 32, 1024] {
            let keys = Keys::of_bytes(KeyPattern::TwoLevel, 11, bytes);
            let made: BTreeSet<Vec<u8>> = (0..COUNT).map(|number| keys.key(number)).collect();
            assert_eq!(made.len() as u64, COUNT, "{bytes}: keys are distinct");
            assert!(made.iter().all(|key| key.len() == bytes));
            let first = shares(&made, 4);
            assert_eq!(first.len() as u64, TWO_LEVEL_BRANCHES);
        }
        let short = Keys::of_bytes(KeyPattern::Small, 11, 3).key(7);
        assert_eq!(short.len(), 16, "the fewest that can be");
        let own = Keys::of_bytes(KeyPattern::Worst, 11, 16).key(7);
        assert_eq!(own, Keys::new(KeyPattern::Worst, 11).key(7));
    }

    #[test]
    fn stated_sizes_are_those_of_the_keys() {
        for pattern in [
            KeyPattern::Random(9),
            KeyPattern::Worst,
            KeyPattern::Small,
            KeyPattern::TwoLevel,
        ] {
            let sizes = pattern.sizes();
            let keys = made(pattern);
            let within = |key: &Vec<u8>| {
                let bytes = key.len() as u64;
                sizes.smallest() <= bytes && bytes <= sizes.largest()
            };
            assert!(keys.iter().all(within), "{pattern}");
            let off = mean_bytes(&keys) / sizes.mean() - 1.0;
            assert!(off.abs() < 0.02, "{pattern}: {off}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_keys_and_another_does_not() {
        for pattern in [
            KeyPattern::Random(16),
            KeyPattern::Worst,
            KeyPattern::TwoLevel,
        ] {
            let keys = |seed| Keys::new(pattern, seed).key(17);
            assert_eq!(keys(1), keys(1));
            assert_ne!(keys(1), keys(2));
        }
    }
}
