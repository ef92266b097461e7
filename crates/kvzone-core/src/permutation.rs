//! A random order of `0..count` that takes no memory.
//!
//! A [`Permutation`] is one-to-one, so an order made with it reaches every
//! number exactly once. A hash would not: of n keys chosen by n hashes, 37 % are
//! never met.
//!
//! Each round is one-to-one on as many bits as the count needs: an odd factor,
//! an addend, and a shift by half the bits can each be undone. Results that
//! are not below the count go through the rounds again until one is ("cycle
//! walking": Black and Rogaway, "Ciphers with Arbitrary Finite Domains", RSA
//! 2002, section 3), which takes fewer than two passes on average, since the
//! count is more than half of the power of two.

use crate::random::Random;

const ROUNDS: usize = 3;

#[derive(Clone, Copy, Debug)]
struct Round {
    factor: u64,
    inverse: u64,
    addend: u64,
}

/// A one-to-one map of `0..count` onto itself.
///
/// ```
/// use kvzone_core::permutation::Permutation;
/// let order = Permutation::new(1_000_003, 42);
/// let number = order.apply(17);
/// assert!(number < 1_000_003);
/// assert_eq!(order.invert(number), 17);
/// ```
#[derive(Clone, Debug)]
pub struct Permutation {
    count: u64,
    mask: u64,
    shift: u32,
    rounds: [Round; ROUNDS],
}

impl Permutation {
    pub fn new(count: u64, seed: u64) -> Self {
        let count = count.clamp(1, 1 << 63);
        let bits = (u64::BITS - (count - 1).leading_zeros()).max(1);
        let mut random = Random::stream(seed, count);
        let rounds = std::array::from_fn(|_| {
            let factor = random.next_u64() | 1;
            Round {
                factor,
                inverse: inverse(factor),
                addend: random.next_u64(),
            }
        });
        Permutation {
            count,
            mask: u64::MAX >> (u64::BITS - bits),
            shift: bits.div_ceil(2),
            rounds,
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    #[inline]
    pub fn apply(&self, position: u64) -> u64 {
        debug_assert!(position < self.count);
        let mut number = position;
        loop {
            for round in &self.rounds {
                number = number.wrapping_mul(round.factor).wrapping_add(round.addend) & self.mask;
                number ^= number >> self.shift;
            }
            if number < self.count {
                return number;
            }
        }
    }

    #[inline]
    pub fn invert(&self, number: u64) -> u64 {
        debug_assert!(number < self.count);
        let mut position = number;
        loop {
            for round in self.rounds.iter().rev() {
                // The shift is at least half of the bits: it undoes itself.
                position ^= position >> self.shift;
                position = position
                    .wrapping_sub(round.addend)
                    .wrapping_mul(round.inverse)
                    & self.mask;
            }
            if position < self.count {
                return position;
            }
        }
    }
}

/// The inverse of an odd factor modulo 2^64, by Newton's iteration: each step
/// doubles the bits that are right, beginning with three.
fn inverse(factor: u64) -> u64 {
    let mut found = factor;
    for _ in 0..5 {
        found = found.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(found)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_met_once_whatever_the_count() {
        for count in [1, 2, 3, 5, 7, 64, 65, 1000, 4097, 99_991] {
            for seed in 0..4 {
                let order = Permutation::new(count, seed);
                let mut seen = vec![false; count as usize];
                for position in 0..count {
                    let number = order.apply(position);
                    assert!(!seen[number as usize], "{number} of {count} twice");
                    seen[number as usize] = true;
                    assert_eq!(order.invert(number), position);
                }
            }
        }
    }

    #[test]
    fn large_counts_are_inverted_too() {
        for count in [(1 << 40) + 7, 1 << 63] {
            let order = Permutation::new(count, 3);
            for position in [0, 1, 12_345_678, count - 1] {
                assert_eq!(order.invert(order.apply(position)), position);
            }
        }
    }

    #[test]
    fn the_order_looks_random_and_depends_on_the_seed() {
        let count = 100_000;
        let order = Permutation::new(count, 1);
        let numbers: Vec<u64> = (0..count).map(|position| order.apply(position)).collect();
        let rising = numbers.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((49_000..51_000).contains(&rising), "{rising} steps go up");
        // Of the first tenth of positions, a tenth of the numbers is in each tenth.
        let mut tenths = [0_u32; 10];
        for number in &numbers[..10_000] {
            tenths[(number / 10_000) as usize] += 1;
        }
        assert!(
            tenths.iter().all(|part| (850..1150).contains(part)),
            "{tenths:?}"
        );
        let other = Permutation::new(count, 2);
        let same = (0..count)
            .filter(|&position| other.apply(position) == numbers[position as usize])
            .count();
        assert!(same < 20, "{same} positions agree");
    }
}
