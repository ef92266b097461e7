//! SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): enough for shuffling a
//! handful of stores, the same everywhere from the same seed.

#[derive(Clone, Debug)]
pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Draw(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `0..bound`; 0 for a bound of 0. The high half of a product is
    /// uneven by less than `bound / 2^64`, which no round will notice.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_first_numbers_come_out() {
        // The generator's reference output for seed 1234567.
        let mut draw = Draw::new(1_234_567);
        assert_eq!(draw.next(), 6_457_827_717_110_365_317);
        assert_eq!(draw.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn every_value_below_the_bound_comes_about_equally_often() {
        let mut draw = Draw::new(7);
        let mut seen = [0_u32; 5];
        for _ in 0..50_000 {
            seen[draw.below(5)] += 1;
        }
        assert!(seen.iter().all(|&count| count.abs_diff(10_000) < 500));
        assert_eq!(draw.below(0), 0);
    }
}
