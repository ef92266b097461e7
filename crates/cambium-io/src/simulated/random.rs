//! Random numbers from a seed, the same on every machine and in every version.

use std::sync::{Mutex, PoisonError};

use crate::environment::Randomness;

/// SplitMix64 (Steele, Lea and Flood, 2014): small, fast, and good enough to
/// choose faults with. Not for secrets.
///
/// ```
/// use cambium_io::simulated::Generator;
/// let mut one = Generator::new(7);
/// let mut other = Generator::new(7);
/// assert_eq!(one.next_u64(), other.next_u64());
/// assert!(one.below(10) < 10);
/// ```
#[derive(Clone, Debug)]
pub struct Generator {
    state: u64,
}

impl Generator {
    /// A generator whose numbers follow from `seed` alone.
    pub fn new(seed: u64) -> Self {
        Generator { state: seed }
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number under `bound`; 0 where `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True in `part` of `whole` cases.
    pub fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }

    /// One of several.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// Random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            let number = self.next_u64().to_le_bytes();
            piece.copy_from_slice(&number[..piece.len()]);
        }
    }
}

/// An environment's randomness out of a seed.
#[derive(Debug)]
pub struct SeededRandomness(Mutex<Generator>);

impl SeededRandomness {
    /// The same seed gives the same bytes to the same calls.
    pub fn new(seed: u64) -> Self {
        SeededRandomness(Mutex::new(Generator::new(seed)))
    }
}

impl Randomness for SeededRandomness {
    fn fill(&self, bytes: &mut [u8]) {
        let mut generator = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        generator.fill(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_match_the_published_sequence() {
        // SplitMix64 from seed 1234567, as listed with its reference code.
        let mut generator = Generator::new(1_234_567);
        assert_eq!(generator.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(generator.next_u64(), 3_203_168_211_198_807_973);
    }
}
