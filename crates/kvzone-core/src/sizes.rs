//! How many bytes a key or a value has, or how many entries a scan visits.
//!
//! | choice | drawn as |
//! |---|---|
//! | fixed, uniform | says itself |
//! | [`Normal`] | Box and Muller, "A Note on the Generation of Random Normal Deviates", Annals of Mathematical Statistics 1958; kept inside its bounds |
//! | [`Pareto`] | the generalized Pareto law, by its inverse: θ + σ(u^(-k) - 1)/k, as Cao et al. (FAST 2020) and Atikoglu et al. (SIGMETRICS 2012) fitted it to production; cut at its largest |
//! | [`Histogram`] | bars of sizes with weights, of one's own data |
//!
//! A size is a function of one random 64-bit number: the same number is the
//! same size, on every machine.

use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::random::below;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SizeChoice {
    Fixed(u64),
    /// Any from the first to the second, inclusive, equally likely.
    Uniform(u64, u64),
    Normal(Normal),
    Pareto(Pareto),
    Histogram(Histogram),
}

/// The normal law, rounded, and held between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normal {
    /// Of the law without bounds.
    pub mean: f64,
    pub deviation: f64,
    pub least: u64,
    pub most: u64,
}

/// The generalized Pareto law, rounded, and cut at its largest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pareto {
    /// θ: none is smaller.
    pub location: f64,
    /// σ.
    pub scale: f64,
    /// k; 0 is the exponential law.
    pub shape: f64,
    pub most: u64,
}

/// Sizes with weights. A histogram lives as long as the process, so that a
/// choice of sizes stays a small value that can be copied; the same bars are
/// kept once.
#[derive(Clone, Copy, Debug)]
pub struct Histogram(&'static Bars);

#[derive(Debug, PartialEq)]
struct Bars {
    bars: Vec<Bar>,
    /// Where each bar ends, of all weight; the last is 1.
    ends: Vec<f64>,
}

/// One bar: sizes from one to another, inclusive, equally likely.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bar {
    pub from: u64,
    pub to: u64,
    /// How often, beside the other bars.
    pub weight: f64,
}

static HISTOGRAMS: Mutex<Vec<&'static Bars>> = Mutex::new(Vec::new());

/// Bars of a histogram at most.
const MOST_BARS: usize = 1 << 20;

/// A number in (0, 1), from the upper 53 bits.
fn fraction(random: u64) -> f64 {
    ((random >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

impl Normal {
    fn pick(self, random: u64) -> u64 {
        let scale = 1.0 / (1_u64 << 32) as f64;
        let radius = (-2.0 * (((random >> 32) as f64 + 0.5) * scale).ln()).sqrt();
        let angle = std::f64::consts::TAU * ((random as u32) as f64 * scale);
        self.bounded(radius * angle.cos())
    }

    fn bounded(self, deviations: f64) -> u64 {
        let size = (self.mean + self.deviation * deviations).round().max(0.0);
        (size as u64).clamp(self.least, self.most)
    }

    fn mean(self) -> f64 {
        const STEPS: i32 = 1_200;
        let points = (-STEPS..=STEPS).map(|step| f64::from(step) * 6.0 / f64::from(STEPS));
        let (mut sum, mut weights) = (0.0, 0.0);
        for point in points {
            let weight = (-point * point / 2.0).exp();
            sum += weight * self.bounded(point) as f64;
            weights += weight;
        }
        sum / weights
    }
}

impl Pareto {
    /// The size that so large a share of all sizes lies above.
    fn above(self, share: f64) -> u64 {
        let grown = if self.shape.abs() < 1e-9 {
            -share.ln()
        } else {
            (share.powf(-self.shape) - 1.0) / self.shape
        };
        let size = (self.location + self.scale * grown).round().max(0.0);
        (size as u64).min(self.most)
    }

    fn mean(self) -> f64 {
        const POINTS: u32 = 10_000;
        let shares = (0..POINTS).map(|point| (f64::from(point) + 0.5) / f64::from(POINTS));
        shares.map(|share| self.above(share) as f64).sum::<f64>() / f64::from(POINTS)
    }

    /// As bars that have `weight` together: so many with the same share each,
    /// but for the last, which is halved again and again: it goes on to the
    /// largest, where nearly nothing lies.
    pub fn bars(self, count: u32, weight: f64) -> Vec<Bar> {
        const HALVINGS: i32 = 20;
        let part = 1.0 / f64::from(count);
        let even = (0..count).map(|number| 1.0 - f64::from(number) * part);
        let tail = (1..=HALVINGS).map(|halving| part * 0.5_f64.powi(halving));
        let above: Vec<f64> = even.chain(tail).collect();
        let bar = |edge: &[f64]| {
            let (from, next) = (self.above(edge[0]), self.above(edge[1]));
            Bar {
                from,
                to: next.saturating_sub(1).max(from),
                weight: weight * (edge[0] - edge[1]),
            }
        };
        above.windows(2).map(bar).collect()
    }
}

impl Histogram {
    /// Of bars; a usage error if there are none, or one cannot be.
    pub fn new(bars: Vec<Bar>) -> Result<Histogram> {
        if bars.is_empty() || bars.len() > MOST_BARS {
            let count = bars.len();
            return Err(Error::Usage(format!(
                "a histogram of {count} bars: from 1 to {MOST_BARS}"
            )));
        }
        let possible =
            |bar: &&Bar| bar.from > bar.to || !(bar.weight.is_finite() && bar.weight > 0.0);
        if let Some(bar) = bars.iter().find(possible) {
            return Err(Error::Usage(format!(
                "a histogram's bar from {} to {} with weight {}: the smaller first, and a weight above 0",
                bar.from, bar.to, bar.weight
            )));
        }
        let all: f64 = bars.iter().map(|bar| bar.weight).sum();
        let mut sum = 0.0;
        let mut ends: Vec<f64> = bars
            .iter()
            .map(|bar| {
                sum += bar.weight;
                sum / all
            })
            .collect();
        if let Some(last) = ends.last_mut() {
            *last = 1.0;
        }
        let made = Bars { bars, ends };
        // Poisoned means that another thread panicked over a push: the list is
        // whole all the same.
        let mut known = HISTOGRAMS.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(same) = known.iter().find(|bars| ***bars == made) {
            return Ok(Histogram(same));
        }
        let kept: &'static Bars = Box::leak(Box::new(made));
        known.push(kept);
        Ok(Histogram(kept))
    }

    /// Reads `SIZE` or `SIZE WEIGHT` or `FROM-TO WEIGHT`, one a line; what
    /// follows a `#` is left out. Sizes alone count once each, so that a list of
    /// sizes is a histogram.
    pub fn parse(text: &str) -> Result<Histogram> {
        let mut bars: Vec<Bar> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let bar = parse_bar(line).ok_or_else(|| {
                Error::Usage(format!(
                    "line {}: {line:?}; write SIZE, SIZE WEIGHT or FROM-TO WEIGHT",
                    number + 1
                ))
            })?;
            match bars.last_mut() {
                Some(last) if (last.from, last.to) == (bar.from, bar.to) => {
                    last.weight += bar.weight;
                }
                _ => bars.push(bar),
            }
        }
        Histogram::new(bars)
    }

    fn pick(self, random: u64) -> u64 {
        let share = fraction(random);
        let place = self.0.ends.partition_point(|&end| end <= share);
        let place = place.min(self.0.bars.len() - 1);
        let bar = &self.0.bars[place];
        let begin = if place == 0 {
            0.0
        } else {
            self.0.ends[place - 1]
        };
        let inside = (share - begin) / (self.0.ends[place] - begin);
        let sizes = (bar.to - bar.from + 1) as f64;
        bar.from + ((inside * sizes) as u64).min(bar.to - bar.from)
    }

    fn mean(self) -> f64 {
        let all: f64 = self.0.bars.iter().map(|bar| bar.weight).sum();
        let middle = |bar: &Bar| f64::midpoint(bar.from as f64, bar.to as f64) * bar.weight;
        self.0.bars.iter().map(middle).sum::<f64>() / all
    }
}

fn parse_bar(line: &str) -> Option<Bar> {
    let mut words = line.split_whitespace();
    let size = words.next()?;
    let weight = words.next().map_or(Some(1.0), |word| word.parse().ok())?;
    let (from, to) = size.split_once('-').unwrap_or((size, size));
    let one = |text: &str| crate::size::parse(text).ok();
    words.next().is_none().then_some(())?;
    Some(Bar {
        from: one(from)?,
        to: one(to)?,
        weight,
    })
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        self.0.bars.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        Histogram::new(Vec::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

impl SizeChoice {
    /// The mean of many.
    ///
    /// ```
    /// use kvzone_core::job::SizeChoice;
    /// assert_eq!(SizeChoice::Uniform(16, 64).mean(), 40.0);
    /// ```
    pub fn mean(self) -> f64 {
        match self {
            SizeChoice::Fixed(bytes) => bytes as f64,
            SizeChoice::Uniform(from, to) => f64::midpoint(from as f64, to as f64),
            SizeChoice::Normal(law) => law.mean(),
            SizeChoice::Pareto(law) => law.mean(),
            SizeChoice::Histogram(bars) => bars.mean(),
        }
    }

    pub fn smallest(self) -> u64 {
        match self {
            SizeChoice::Fixed(bytes) | SizeChoice::Uniform(bytes, _) => bytes,
            SizeChoice::Normal(law) => law.least,
            SizeChoice::Pareto(law) => law.above(1.0),
            SizeChoice::Histogram(Histogram(found)) => {
                found.bars.iter().map(|bar| bar.from).min().unwrap_or(0)
            }
        }
    }

    pub fn largest(self) -> u64 {
        match self {
            SizeChoice::Fixed(bytes) | SizeChoice::Uniform(_, bytes) => bytes,
            SizeChoice::Normal(law) => law.most,
            SizeChoice::Pareto(law) => law.most,
            SizeChoice::Histogram(Histogram(found)) => {
                found.bars.iter().map(|bar| bar.to).max().unwrap_or(0)
            }
        }
    }

    #[inline]
    pub fn pick(self, random: u64) -> u64 {
        match self {
            SizeChoice::Fixed(bytes) => bytes,
            SizeChoice::Uniform(from, to) => {
                let choices = to.saturating_sub(from).saturating_add(1);
                from + below(random, choices)
            }
            SizeChoice::Normal(law) => law.pick(random),
            SizeChoice::Pareto(law) => law.above(fraction(random)),
            SizeChoice::Histogram(bars) => bars.pick(random),
        }
    }

    /// A usage error if the numbers of a law cannot be.
    pub fn check(self) -> Result<()> {
        let (wrong, expected) = match self {
            SizeChoice::Fixed(_) | SizeChoice::Histogram(_) => return Ok(()),
            SizeChoice::Uniform(from, to) => (from > to, "the smaller size first"),
            SizeChoice::Normal(law) => (
                !(law.mean.is_finite() && law.deviation.is_finite())
                    || law.mean < 0.0
                    || law.deviation < 0.0
                    || law.least > law.most,
                "a mean and a deviation of at least 0, and the smaller bound first",
            ),
            SizeChoice::Pareto(law) => {
                let numbers = [law.location, law.scale, law.shape];
                (
                    numbers.iter().any(|number| !number.is_finite())
                        || law.location < 0.0
                        || law.scale < 0.0
                        || law.location > law.most as f64,
                    "a location and a scale of at least 0, and a largest size above the location",
                )
            }
        };
        match wrong {
            true => Err(Error::Usage(format!(
                "these sizes cannot be: expected {expected}"
            ))),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::random::mix;

    fn drawn(sizes: SizeChoice) -> Vec<f64> {
        let mut found: Vec<f64> = (0..100_000).map(|n| sizes.pick(mix(n)) as f64).collect();
        found.sort_by(f64::total_cmp);
        found
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn sizes_are_equally_likely_and_both_ends_are_reached() {
        let sizes = SizeChoice::Uniform(3, 5);
        assert_eq!(sizes.pick(0), 3);
        assert_eq!(sizes.pick(u64::MAX), 5);
        assert_eq!(sizes.pick(u64::MAX / 2), 4);
        assert_eq!(sizes.mean(), 4.0);
        assert_eq!(SizeChoice::Fixed(7).pick(99), 7);
    }

    #[test]
    fn a_normal_law_has_its_mean_its_deviation_and_its_bounds() {
        let law = Normal {
            mean: 400.0,
            deviation: 50.0,
            least: 300,
            most: 1_000,
        };
        let sizes = SizeChoice::Normal(law);
        let found = drawn(sizes);
        // 2.275 % lie below two deviations, and are lifted to the bound.
        assert_eq!(found[0], 300.0);
        let lifted = found.iter().filter(|&&size| size == 300.0).count();
        assert!((2_100..2_500).contains(&lifted), "{lifted}");
        assert!(
            (mean(&found) - sizes.mean()).abs() < 0.7,
            "{}",
            mean(&found)
        );
        let within = found
            .iter()
            .filter(|&&size| (size - 400.0).abs() <= 50.0)
            .count();
        assert!((67_500..69_500).contains(&within), "{within}");
    }

    #[test]
    fn the_pareto_law_has_the_quantiles_of_its_inverse() {
        // mixgraph's values: mean 34.5 as published (Cao et al., FAST 2020).
        let law = Pareto {
            location: 0.0,
            scale: 25.45,
            shape: 0.2615,
            most: 1_024,
        };
        let sizes = SizeChoice::Pareto(law);
        let found = drawn(sizes);
        assert!((sizes.mean() - 34.5).abs() < 0.5, "{}", sizes.mean());
        assert!((mean(&found) - sizes.mean()).abs() < 0.6);
        for share in [0.1_f64, 0.5, 0.9, 0.99] {
            let expected = 25.45 * ((1.0 - share).powf(-0.2615) - 1.0) / 0.2615;
            let at = found[(share * 100_000.0) as usize];
            assert!(
                (at - expected).abs() < 1.0 + expected * 0.03,
                "{share}: {at}, {expected}"
            );
        }
        let exponential = Pareto { shape: 0.0, ..law };
        assert!(
            (exponential.mean() - 25.45).abs() < 0.3,
            "{}",
            exponential.mean()
        );
    }

    #[test]
    fn a_histogram_gives_each_bar_its_weight() {
        let bars = Histogram::parse("10 1 # one\n\n20-29 2\n1KiB\n1KiB\n").unwrap();
        let sizes = SizeChoice::Histogram(bars);
        let found = drawn(sizes);
        let share = |from: f64, to: f64| {
            let within = |size: &&f64| (from..=to).contains(*size);
            found.iter().filter(within).count() as f64 / found.len() as f64
        };
        assert!((share(10.0, 10.0) - 0.2).abs() < 0.01);
        assert!((share(20.0, 29.0) - 0.4).abs() < 0.01);
        assert!((share(20.0, 20.0) - 0.04).abs() < 0.005);
        assert!((share(1024.0, 1024.0) - 0.4).abs() < 0.01);
        assert_eq!((sizes.smallest(), sizes.largest()), (10, 1024));
        assert_eq!(sizes.mean(), (10.0 + 2.0 * 24.5 + 2.0 * 1024.0) / 5.0);
        let text = serde_json::to_string(&sizes).unwrap();
        let back: SizeChoice = serde_json::from_str(&text).unwrap();
        assert_eq!(back, sizes, "the same bars are one histogram");
    }

    #[test]
    fn what_is_no_histogram_is_refused_with_its_line() {
        for (text, words) in [
            ("", "0 bars"),
            ("1\nx\n", "line 2"),
            ("1 2 3", "line 1"),
            ("5-2 1", "the smaller first"),
            ("5 0", "above 0"),
            ("5 -1", "above 0"),
            ("5 nan", "above 0"),
        ] {
            let error = Histogram::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text:?}: {error}");
        }
        let law = Normal {
            mean: -1.0,
            deviation: 1.0,
            least: 0,
            most: 9,
        };
        assert!(SizeChoice::Normal(law).check().is_err());
        let law = Pareto {
            location: 9.0,
            scale: 1.0,
            shape: f64::NAN,
            most: 10,
        };
        assert!(SizeChoice::Pareto(law).check().is_err());
    }
}
