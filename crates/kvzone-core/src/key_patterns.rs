//! The key patterns of ForestDB 2016, table 2: what its index experiments are made of.
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
//! Every key is a function of pattern, seed and number, and distinct: nothing is stored,
//! and any key can be made again. Numbers are spread over all branches evenly, so the
//! first `n` keys of a pattern have its shape, whatever `n` is.
//!
//! ```
//! use kvzone_core::key_patterns::{KeyPattern, Keys};
//! let keys = Keys::new(KeyPattern::Small, 7);
//! assert_eq!(keys.key(3)[..8], keys.key(103)[..8], "one of a hundred prefixes");
//! assert_ne!(keys.key(3), keys.key(103));
//! ```

use std::fmt;

use crate::random::{Random, mix, mix_two};

/// Branches of each level of `2-level`.
pub const TWO_LEVEL_BRANCHES: u64 = 192;

/// Prefixes of `small`.
pub const SMALL_PREFIXES: u64 = 100;

/// Levels of `worst` that a million keys need.
pub const WORST_LEVELS: u32 = 20;

/// How keys look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPattern {
    /// Random bytes, so many of them; at least 8.
    Random(usize),
    /// Nested prefixes of two branches each, and nothing else.
    Worst,
    /// A hundred prefixes.
    Small,
    /// Two levels of 192 prefixes.
    TwoLevel,
}

impl fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyPattern::Random(bytes) => write!(f, "random-{bytes}"),
            KeyPattern::Worst => f.write_str("worst"),
            KeyPattern::Small => f.write_str("small"),
            KeyPattern::TwoLevel => f.write_str("2-level"),
        }
    }
}

/// All keys of a pattern.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    pattern: KeyPattern,
    seed: u64,
}

/// Purposes of the seed.
const PREFIX: u64 = 0x7072_6566;
const REST: u64 = 0x7265_7374;

impl Keys {
    /// The keys of a pattern and a seed.
    pub fn new(pattern: KeyPattern, seed: u64) -> Self {
        Keys { pattern, seed }
    }

    /// Key number `number`.
    pub fn key(&self, number: u64) -> Vec<u8> {
        let mut key = Vec::with_capacity(256);
        match self.pattern {
            KeyPattern::Random(bytes) => self.append_rest(&mut key, number, bytes.max(8)),
            KeyPattern::Worst => self.append_nested(&mut key, number),
            KeyPattern::Small => {
                self.append_prefix(&mut key, number % SMALL_PREFIXES);
                self.append_spread_rest(&mut key, number, 47);
            }
            KeyPattern::TwoLevel => {
                let first = number % TWO_LEVEL_BRANCHES;
                let second = number / TWO_LEVEL_BRANCHES % TWO_LEVEL_BRANCHES;
                self.append_prefix(&mut key, first);
                self.append_prefix(&mut key, (1 + first) << 32 | second);
                self.append_spread_rest(&mut key, number, 36);
            }
        }
        key
    }

    /// Prefix `which`: 8 to 12 bytes.
    fn append_prefix(&self, key: &mut Vec<u8>, which: u64) {
        let mut random = Random::stream(mix_two(self.seed, PREFIX), which);
        let bytes = 8 + (random.next_u64() & 15).count_ones() as usize;
        append_random(key, &mut random, bytes);
    }

    /// One branch of two at each level; the number's bits choose, its low bits at the
    /// top, so that any range of numbers fills the levels evenly.
    fn append_nested(&self, key: &mut Vec<u8>, number: u64) {
        let needed = u64::BITS - number.leading_zeros();
        for level in 0..needed.max(WORST_LEVELS) {
            let path = number & (u64::MAX >> (63 - level));
            self.append_prefix(key, mix_two(u64::from(level), path));
        }
    }

    /// A random rest of `least` to `least` + 16 bytes.
    fn append_spread_rest(&self, key: &mut Vec<u8>, number: u64, least: usize) {
        let more = mix_two(self.seed, number) % 17;
        self.append_rest(key, number, least + more as usize);
    }

    /// Random bytes, the first eight of them different for each number.
    fn append_rest(&self, key: &mut Vec<u8>, number: u64, bytes: usize) {
        let seed = mix_two(self.seed, REST);
        let first = mix(number.wrapping_add(seed));
        let end = key.len() + bytes;
        key.extend_from_slice(&first.to_be_bytes());
        let mut random = Random::stream(seed, number);
        append_random(key, &mut random, bytes.saturating_sub(8));
        key.truncate(end);
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

    /// Keys by their first bytes.
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
