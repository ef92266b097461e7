//! Laws by which keys are chosen.
//!
//! | law | how it is drawn |
//! |---|---|
//! | [`Zipfian`] | exactly P(r) = r^(-s) / H(N, s), by rejection inversion: Hörmann and Derflinger, "Rejection-Inversion to Generate Variates from Monotone Discrete Distributions", ACM TOMACS 6(3), 1996 |
//! | [`YcsbZipfian`] | YCSB's `ScrambledZipfianGenerator`: Gray et al., "Quickly Generating Billion-Record Synthetic Databases", SIGMOD 1994, over 10^10 ranks, hashed by FNV modulo N |
//! | [`Groups`] | a group by the exact law, a key inside of it uniformly: ForestDB 2016, section 4.2.6 |
//! | [`HotSet`] | a share of the keys, anywhere among them, gets a share of the choices |
//!
//! The first two are not the same thing. Of a million keys, the law with s = 0.99 gives
//! the hottest 6.50 % of all choices, and the hottest hundredth 66 %; YCSB's
//! likeness 3.78 % and 39 %: its ranks are those of 10^10 keys, folded into a
//! million. It is kept because published figures were made with it, and the
//! report says which one a run used.

use crate::permutation::Permutation;
use crate::random::Random;

/// The exact law over ranks 0 to N-1; rank 0 is the most popular.
#[derive(Clone, Debug)]
pub struct Zipfian {
    count: u64,
    exponent: f64,
    /// Integral of the law from 1 to 1.5, less what rank 1 has for itself.
    from: f64,
    /// Integral of the law from 1 to N + 0.5.
    to: f64,
    /// Below this distance between the candidate and the drawn point, nothing
    /// need be computed to accept it.
    sure: f64,
}

impl Zipfian {
    /// The law over `count` ranks (at least 1) with an exponent above 0.
    pub fn new(count: u64, exponent: f64) -> Self {
        let count = count.max(1);
        let mut law = Zipfian {
            count,
            exponent,
            from: 0.0,
            to: 0.0,
            sure: 0.0,
        };
        law.from = law.integral(1.5) - 1.0;
        law.to = law.integral(count as f64 + 0.5);
        law.sure = 2.0 - law.inverse_integral(law.integral(2.5) - law.density(2.0));
        law
    }

    /// Draws a rank, from 0.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.to + random.fraction() * (self.from - self.to);
            let point = self.inverse_integral(area);
            let rank = ((point + 0.5) as u64).clamp(1, self.count);
            let center = rank as f64;
            if center - point <= self.sure
                || area >= self.integral(center + 0.5) - self.density(center)
            {
                return rank - 1;
            }
        }
    }

    /// x^(-s).
    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of the density from 1 to x; `exp_m1` keeps it exact where
    /// the exponent is near 1 and both halves of the quotient are near 0.
    fn integral(&self, x: f64) -> f64 {
        let logarithm = x.ln();
        let scaled = (1.0 - self.exponent) * logarithm;
        if scaled.abs() > 1e-8 {
            scaled.exp_m1() / (1.0 - self.exponent)
        } else {
            logarithm * (1.0 + scaled * 0.5)
        }
    }

    fn inverse_integral(&self, area: f64) -> f64 {
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        let logarithm = if scaled.abs() > 1e-8 {
            scaled.ln_1p() / (1.0 - self.exponent)
        } else {
            area * (1.0 - scaled * 0.5)
        };
        logarithm.exp()
    }
}

/// Keys in groups of equal size, filled at random; groups are chosen by the exact
/// law, keys inside of one uniformly.
#[derive(Clone, Debug)]
pub struct Groups {
    /// None where all groups are alike.
    law: Option<Zipfian>,
    groups: u64,
    scatter: Permutation,
}

impl Groups {
    /// Over `count` keys (at least 1) in so many groups, or in as many as there
    /// are keys if that is less; an exponent of 0 makes all alike.
    pub fn new(count: u64, exponent: f64, groups: u64, seed: u64) -> Self {
        let groups = groups.clamp(1, count.max(1));
        Groups {
            law: (exponent > 0.0).then(|| Zipfian::new(groups, exponent)),
            groups,
            scatter: Permutation::new(count.max(1), seed),
        }
    }

    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        let group = match &self.law {
            Some(law) => law.draw(random),
            None => random.below(self.groups),
        };
        let first = self.first(group);
        let inside = random.below(self.first(group + 1) - first);
        self.scatter.apply(first + inside)
    }

    /// Keys before a group.
    fn first(&self, group: u64) -> u64 {
        let keys = u128::from(self.scatter.count());
        (keys * u128::from(group) / u128::from(self.groups)) as u64
    }
}

/// A share of the keys gets a share of the choices; inside and outside of it
/// all are alike.
#[derive(Clone, Debug)]
pub struct HotSet {
    hot: u64,
    /// Random numbers below it choose a hot key.
    choices: f64,
    scatter: Permutation,
}

impl HotSet {
    /// Over `count` keys, at least 1; both shares from 0 to 1. At least one key
    /// is hot.
    pub fn new(count: u64, keys: f64, choices: f64, seed: u64) -> Self {
        let count = count.max(1);
        HotSet {
            hot: ((count as f64 * keys).round() as u64).clamp(1, count),
            choices,
            scatter: Permutation::new(count, seed),
        }
    }

    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        let cold = self.scatter.count() - self.hot;
        let drawn = match cold == 0 || random.fraction() < self.choices {
            true => random.below(self.hot),
            false => self.hot + random.below(cold),
        };
        self.scatter.apply(drawn)
    }
}

/// YCSB's likeness of a zipfian law with s = 0.99: numbers of keys, not ranks.
#[derive(Clone, Debug)]
pub struct YcsbZipfian {
    count: u64,
    eta: f64,
    /// Below it, rank 1.
    second: f64,
}

impl YcsbZipfian {
    const THETA: f64 = 0.99;
    /// Ranks that are drawn, whatever the number of keys.
    const RANKS: f64 = 10_000_000_000.0;
    /// H(10^10, 0.99), which YCSB carries as a constant.
    const ZETA: f64 = 26.469_028_201_783_02;

    pub fn new(count: u64) -> Self {
        let zeta_of_two = 1.0 + 0.5_f64.powf(Self::THETA);
        let eta =
            (1.0 - (2.0 / Self::RANKS).powf(1.0 - Self::THETA)) / (1.0 - zeta_of_two / Self::ZETA);
        YcsbZipfian {
            count: count.max(1),
            eta,
            second: zeta_of_two,
        }
    }

    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        fnv(self.rank(random.fraction())) % self.count
    }

    fn rank(&self, fraction: f64) -> u64 {
        let scaled = fraction * Self::ZETA;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.second {
            return 1;
        }
        // 1 / (1 - 0.99) is 100 but for the last digits, and a whole exponent
        // costs a fifth.
        let base = self.eta * fraction - self.eta + 1.0;
        (Self::RANKS * base.powi(100)) as u64
    }
}

/// YCSB's `fnvhash64`: FNV-1a over eight bytes, the lowest first, and then the
/// absolute value as a signed number.
fn fnv(number: u64) -> u64 {
    let hash = number
        .to_le_bytes()
        .iter()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211)
        });
    (hash as i64).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 1_000_000;
    const DRAWS: u32 = 4_000_000;

    fn counts(mut draw: impl FnMut(&mut Random) -> u64) -> Vec<u32> {
        let mut random = Random::new(99);
        let mut counts = vec![0_u32; KEYS as usize];
        for _ in 0..DRAWS {
            counts[draw(&mut random) as usize] += 1;
        }
        counts
    }

    fn share(counts: &[u32]) -> f64 {
        let sum: u64 = counts.iter().map(|&count| u64::from(count)).sum();
        100.0 * sum as f64 / f64::from(DRAWS)
    }

    fn harmonic(count: u64, exponent: f64) -> f64 {
        (1..=count).map(|rank| (rank as f64).powf(-exponent)).sum()
    }

    #[test]
    fn exact_shares_are_those_of_the_law() {
        for exponent in [0.5, 0.99, 1.0, 1.3] {
            let law = Zipfian::new(KEYS, exponent);
            let counts = counts(|random| law.draw(random));
            let whole = harmonic(KEYS, exponent);
            for top in [1, 2, 10, 1_000, 10_000, 500_000] {
                let expected = 100.0 * harmonic(top, exponent) / whole;
                let found = share(&counts[..top as usize]);
                assert!(
                    (found - expected).abs() < 0.12,
                    "s = {exponent}, top {top}: {found} %, not {expected} %"
                );
            }
        }
    }

    #[test]
    fn the_hottest_of_a_million_keys_gets_six_and_a_half_percent() {
        let law = Zipfian::new(KEYS, 0.99);
        let counts = counts(|random| law.draw(random));
        assert!((share(&counts[..1]) - 6.50).abs() < 0.1);
        assert!((share(&counts[..10_000]) - 66.0).abs() < 1.0);
    }

    #[test]
    fn ycsbs_likeness_is_as_flat_as_ycsbs() {
        let likeness = YcsbZipfian::new(KEYS);
        let mut counts = counts(|random| likeness.draw(random));
        counts.sort_unstable_by(|left, right| right.cmp(left));
        let hottest = share(&counts[..1]);
        let hundredth = share(&counts[..10_000]);
        assert!((hottest - 3.78).abs() < 0.1, "{hottest} %");
        assert!((hundredth - 39.0).abs() < 1.5, "{hundredth} %");
    }

    #[test]
    fn the_hottest_tenth_of_groups_gets_four_in_five_at_s_1_as_in_figure_18a() {
        // "Approximately 80 percent of the accesses are concentrated to 10 percent
        // of the total documents", with 20,000 groups and s = 1.
        let groups = Groups::new(KEYS, 1.0, 20_000, 7);
        let mut counts = counts(|random| groups.draw(random));
        counts.sort_unstable_by(|left, right| right.cmp(left));
        let tenth = share(&counts[..100_000]);
        assert!((tenth - 80.0).abs() < 3.0, "{tenth} %");
        let alike = Groups::new(KEYS, 0.0, 20_000, 7);
        let mut random = Random::new(3);
        let below = (0..10_000).filter(|_| alike.draw(&mut random) < KEYS / 10);
        assert!((900..1_100).contains(&below.count()));
    }

    #[test]
    fn a_hot_set_gets_its_share() {
        let law = HotSet::new(KEYS, 0.2, 0.8, 7);
        let mut counts = counts(|random| law.draw(random));
        counts.sort_unstable_by(|left, right| right.cmp(left));
        let fifth = share(&counts[..200_000]);
        // The luckiest of the cold keys may be among the first: not many.
        assert!((fifth - 80.0).abs() < 1.0, "{fifth} %");
        let mut random = Random::new(3);
        assert_eq!(HotSet::new(1, 0.5, 0.5, 7).draw(&mut random), 0);
    }

    #[test]
    fn keys_that_do_not_divide_into_groups_are_all_reached() {
        let groups = Groups::new(10, 0.5, 3, 7);
        let mut random = Random::new(3);
        let mut seen = [false; 10];
        for _ in 0..1_000 {
            seen[groups.draw(&mut random) as usize] = true;
        }
        assert_eq!(seen, [true; 10]);
        assert!(Groups::new(2, 1.0, 20_000, 7).draw(&mut random) < 2);
    }

    #[test]
    fn small_counts_are_kept_inside() {
        let mut random = Random::new(5);
        for count in 1..5 {
            let exact = Zipfian::new(count, 0.99);
            let likeness = YcsbZipfian::new(count);
            for _ in 0..1_000 {
                assert!(exact.draw(&mut random) < count);
                assert!(likeness.draw(&mut random) < count);
            }
        }
    }
}
