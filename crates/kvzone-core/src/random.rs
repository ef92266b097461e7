//! Random numbers from a seed: SplitMix64 (Steele, Lea, Flood: "Fast
//! Splittable Pseudorandom Number Generators", OOPSLA 2014).
//!
//! One addition and one [`mix`] a number, no state but a counter: enough for
//! choosing keys, and about a nanosecond. The same seed gives the same numbers
//! on every machine, for ever: a job's operations depend on it.

/// The golden ratio's fraction: the step of the counter.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Spreads a number over all 64 bits; one-to-one.
#[inline]
pub fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// The number that [`mix`] took to this one.
///
/// ```
/// use kvzone_core::random::{mix, unmix};
/// assert_eq!(unmix(mix(12_345)), 12_345);
/// ```
pub fn unmix(mixed: u64) -> u64 {
    let number = mixed ^ (mixed >> 31) ^ (mixed >> 62);
    let number = number.wrapping_mul(0x3196_42B2_D24D_8EC3);
    let number = number ^ (number >> 27) ^ (number >> 54);
    let number = number.wrapping_mul(0x96DE_1B17_3F11_9089);
    number ^ (number >> 30) ^ (number >> 60)
}

#[inline]
pub fn mix_two(first: u64, second: u64) -> u64 {
    mix(mix(first.wrapping_add(STEP)) ^ second.wrapping_mul(STEP))
}

/// Takes a random 64-bit number to one below `count`: the high half of their
/// product (Lemire 2019), without the rejection, since 2^64 is so much larger
/// than any count here that the bias cannot be measured.
#[inline]
pub fn below(random: u64, count: u64) -> u64 {
    ((u128::from(random) * u128::from(count)) >> 64) as u64
}

#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Random { state: seed }
    }

    /// The sequence of a seed that belongs to one of many purposes.
    pub fn stream(seed: u64, purpose: u64) -> Self {
        Random::new(mix_two(seed, purpose))
    }

    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// A number below `count`; 0 if that is 0.
    #[inline]
    pub fn below(&mut self, count: u64) -> u64 {
        below(self.next_u64(), count)
    }

    /// A fraction from 0, inclusive, to 1, exclusive.
    #[inline]
    pub fn fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_splitmix64() {
        let mut random = Random::new(1_234_567);
        let found: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        // The reference implementation's first outputs for this seed.
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn numbers_below_a_count_reach_all_and_nothing_else() {
        let mut random = Random::new(1);
        let mut seen = [0_u32; 7];
        for _ in 0..7_000 {
            seen[random.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&times| (850..1150).contains(&times)));
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn streams_of_one_seed_differ() {
        let mut one = Random::stream(7, 1);
        let mut other = Random::stream(7, 2);
        assert_ne!(one.next_u64(), other.next_u64());
    }
}
