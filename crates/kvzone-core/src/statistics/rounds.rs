//! In which order stores take turns.
//!
//! Machines drift: a neighbour wakes up, a disk fills its cache, a processor
//! grows warm. If one store always ran after another, the drift would be taken
//! for a difference between them. So all stores run once in each round, in an
//! order that the seed and the round decide.

use crate::random::Random;

/// The stores of a round, by their places in the list: a permutation of
/// `0..count` (Fisher and Yates), the same from the same seed.
///
/// ```
/// use kvzone_core::statistics::rounds::order;
/// let mut stores = order(42, 0, 3);
/// stores.sort_unstable();
/// assert_eq!(stores, [0, 1, 2]);
/// assert_eq!(order(42, 7, 5), order(42, 7, 5));
/// ```
pub fn order(seed: u64, round: u32, count: usize) -> Vec<usize> {
    // Rounds are far apart in the generator's cycle, so that neighbours do not
    // share numbers.
    let mut draw = Random::new(seed ^ (u64::from(round) << 32 | 0x5eed));
    let mut stores: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        stores.swap(last, draw.below(last as u64 + 1) as usize);
    }
    stores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_every_store_once_and_orders_differ() {
        let mut seen = std::collections::BTreeSet::new();
        for round in 0..200 {
            let stores = order(1, round, 4);
            let mut sorted = stores.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
            seen.insert(stores);
        }
        assert_eq!(seen.len(), 24, "all orders of four come up in 200 rounds");
    }

    #[test]
    fn no_store_has_a_place_of_its_own() {
        let mut first = [0_u32; 3];
        for round in 0..3000 {
            first[order(9, round, 3)[0]] += 1;
        }
        assert!(first.iter().all(|&count| count.abs_diff(1000) < 150));
    }

    #[test]
    fn the_seed_decides() {
        let of = |seed| {
            (0..20)
                .map(|round| order(seed, round, 5))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
        assert_eq!(order(1, 1, 0), Vec::<usize>::new());
        assert_eq!(order(1, 1, 1), [0]);
    }
}
