//! From a key back to its number: what a scan returned is held against what
//! was written without keeping any key.
//!
//! The eight bytes behind the prefixes are a number that `mix` spread, so
//! [`unmix`] finds it; since prefixes differ in length, each length is tried.
//! Of `worst`, the branch taken at each level is a bit. What comes out is
//! believed only if it makes the same key again.

use crate::random::unmix;

use super::{KeyPattern, Keys, PREFIX_BYTES, UNIQUE_BYTES};

impl Keys {
    /// The number below `count` of a key; none if no such number has this key.
    ///
    /// ```
    /// use kvzone_core::key_patterns::{KeyPattern, Keys};
    /// let keys = Keys::new(KeyPattern::TwoLevel, 7);
    /// assert_eq!(keys.number_of(&keys.key(41), 42), Some(41));
    /// assert_eq!(keys.number_of(&keys.key(42), 42), None);
    /// ```
    pub fn number_of(&self, key: &[u8], count: u64) -> Option<u64> {
        let is_it = |number: u64| number < count && self.key(number) == key;
        match self.pattern {
            KeyPattern::Worst => self.nested_number(key).filter(|&number| is_it(number)),
            KeyPattern::Published(data) => data
                .number_of(self.seed, key)
                .filter(|&number| is_it(number)),
            KeyPattern::Random(_) | KeyPattern::Small | KeyPattern::TwoLevel => {
                let limit = self.prefix_limit();
                let levels = self.pattern.levels();
                let least = levels * PREFIX_BYTES.0.min(limit);
                let most = levels * PREFIX_BYTES.1.min(limit);
                (least..=most)
                    .filter_map(|at| self.unique_at(key, at))
                    .find(|&number| is_it(number))
            }
        }
    }

    /// The number that the eight bytes from `at` on stand for.
    fn unique_at(&self, key: &[u8], at: usize) -> Option<u64> {
        let bytes: [u8; UNIQUE_BYTES] = key.get(at..at + UNIQUE_BYTES)?.try_into().ok()?;
        Some(unmix(u64::from_be_bytes(bytes)).wrapping_sub(self.rest_seed()))
    }

    /// Follows a key of `worst` down its levels.
    fn nested_number(&self, key: &[u8]) -> Option<u64> {
        let (mut number, mut at, mut prefix) = (0, 0, Vec::new());
        for level in 0..u64::BITS {
            if at >= key.len() {
                break;
            }
            let taken = [0, 1_u64 << level].into_iter().find(|bit| {
                prefix.clear();
                self.append_prefix(&mut prefix, Self::nested_prefix(level, number | bit));
                key[at..].starts_with(&prefix)
            });
            number |= taken?;
            at += prefix.len();
        }
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_patterns::DataSet;

    fn all() -> Vec<Keys> {
        let patterns = [
            KeyPattern::Random(8),
            KeyPattern::Random(40),
            KeyPattern::Worst,
            KeyPattern::Small,
            KeyPattern::TwoLevel,
        ];
        let published = DataSet::ALL.map(KeyPattern::Published);
        let own = patterns.into_iter().chain(published);
        let fixed = [16, 20, 32, 1024].map(|bytes| Keys::of_bytes(KeyPattern::TwoLevel, 3, bytes));
        own.map(|pattern| Keys::new(pattern, 3))
            .chain(fixed)
            .collect()
    }

    #[test]
    fn every_key_leads_back_to_its_number() {
        for keys in all() {
            for number in (0..3_000).chain([99_999, 2_000_003]) {
                let key = keys.key(number);
                assert_eq!(keys.number_of(&key, u64::MAX), Some(number), "{keys:?}");
                assert_eq!(
                    keys.number_of(&key, number),
                    None,
                    "{keys:?}: above the count"
                );
            }
        }
    }

    #[test]
    fn what_is_no_key_has_no_number() {
        for keys in all() {
            let key = keys.key(77);
            let mut longer = key.clone();
            longer.push(b'x');
            let mut damaged = key.clone();
            damaged[key.len() / 2] ^= 0x10;
            for wrong in [
                &b""[..],
                b"x",
                &key[1..],
                &key[..key.len() - 1],
                &longer,
                &damaged,
            ] {
                assert_eq!(keys.number_of(wrong, 1 << 20), None, "{keys:?}");
            }
        }
    }
}
