//! Values of options: counts, sizes, batches, laws, patterns.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use kvzone_core::adapter::Profile;
use kvzone_core::job::{Popularity, SizeChoice};
use kvzone_core::key_patterns::KeyPattern;
use kvzone_core::names::unknown;
use kvzone_core::size;
use kvzone_core::sizes::{Histogram, Normal, Pareto};
use kvzone_core::workload::OperationKind;

/// A value that is one of some words, as in the JSON.
pub(crate) fn word<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: serde::de::DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| serde_json::from_value(word.into()))
}

/// How far settings go from a store's own.
pub(crate) fn profile_word() -> impl TypedValueParser<Value = Profile> {
    word(&["default", "equal", "tuned"])
}

/// A whole number, with `_` between digits if that helps, or with k, M or G.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    let (digits, factor) = match digits.trim_end_matches(['k', 'K', 'M', 'G']) {
        stem if stem.len() == digits.len() => (stem, 1),
        stem => match &digits[stem.len()..] {
            "k" | "K" => (stem, 1_000),
            "M" => (stem, 1_000_000),
            "G" => (stem, 1_000_000_000),
            _ => return Err("expected a number, such as 1000000, 1_000_000 or 1M".to_string()),
        },
    };
    let count: Option<u64> = digits.parse().ok();
    match count.and_then(|count| count.checked_mul(factor)) {
        Some(0) => Err("expected at least 1".to_string()),
        Some(count) => Ok(count),
        None => Err("expected a number, such as 1000000, 1_000_000 or 1M".to_string()),
    }
}

/// The largest size of a law that goes on for ever, unless it is given.
const MOST_OF_A_LAW: u64 = 1 << 20;

/// `100`, `4KiB`, `16-64`, or a law with its numbers.
pub(crate) fn parse_sizes(text: &str) -> Result<SizeChoice, String> {
    if let Some((law, numbers)) = text.split_once(':') {
        return parse_law(law, numbers);
    }
    let one = |text: &str| size::parse(text).map_err(|error| error.to_string());
    match text.split_once('-') {
        None => Ok(SizeChoice::Fixed(one(text)?)),
        Some((from, to)) => {
            let (from, to) = (one(from)?, one(to)?);
            if from > to {
                return Err(format!("the smallest, {from}, is above the largest, {to}"));
            }
            Ok(SizeChoice::Uniform(from, to))
        }
    }
}

fn parse_law(law: &str, numbers: &str) -> Result<SizeChoice, String> {
    if law == "histogram" {
        let read = std::fs::read_to_string(numbers);
        let text = read.map_err(|error| format!("{numbers}: {error}"))?;
        let found = Histogram::parse(&text).map_err(|error| format!("{numbers}: {error}"))?;
        return Ok(SizeChoice::Histogram(found));
    }
    let parts: Vec<&str> = numbers.split(':').collect();
    let number = |at: usize| match parts[at].parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(format!("{:?} is no number", parts[at])),
    };
    let bytes = |at: usize| parse_bytes(parts[at]);
    let sizes = match (law, parts.len()) {
        ("normal", 2 | 4) => {
            let (mean, deviation) = (number(0)?, number(1)?);
            let (least, most) = match parts.len() {
                4 => (bytes(2)?, bytes(3)?),
                // Nothing lies beyond that in a lifetime.
                _ => (1, (mean + 10.0 * deviation).max(1.0) as u64),
            };
            SizeChoice::Normal(Normal {
                mean,
                deviation,
                least,
                most,
            })
        }
        ("pareto", 3 | 4) => SizeChoice::Pareto(Pareto {
            location: number(0)?,
            scale: number(1)?,
            shape: number(2)?,
            most: match parts.len() {
                4 => bytes(3)?,
                _ => MOST_OF_A_LAW,
            },
        }),
        _ => {
            return Err(
                "expected SIZE, FROM-TO, normal:MEAN:DEVIATION[:LEAST:MOST], \
                 pareto:LOCATION:SCALE:SHAPE[:MOST] or histogram:FILE"
                    .to_string(),
            );
        }
    };
    sizes.check().map_err(|error| error.to_string())?;
    Ok(sizes)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mix(pub(crate) Vec<(OperationKind, u32)>);

const KINDS: [OperationKind; 7] = [
    OperationKind::Read,
    OperationKind::Update,
    OperationKind::Insert,
    OperationKind::Delete,
    OperationKind::Scan,
    OperationKind::ReadMissing,
    OperationKind::ReadModifyWrite,
];

/// `read=70,update=30`.
pub(crate) fn parse_mix(text: &str) -> Result<Mix, String> {
    let one = |part: &str| {
        let (name, weight) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?}: write KIND=WEIGHT, such as read=70"))?;
        let kind = KINDS.into_iter().find(|kind| kind.name() == name);
        let kind =
            kind.ok_or_else(|| unknown("operation", name, KINDS.map(OperationKind::name)))?;
        let weight = weight
            .parse()
            .map_err(|_| format!("{weight:?} is no weight"))?;
        Ok((kind, weight))
    };
    let mix: Result<Vec<_>, String> = text.split(',').map(one).collect();
    Ok(Mix(mix?))
}

/// Threads: so many for everything, or for each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// That each issue all kinds; several numbers, one after the other.
    Alike(Vec<u32>),
    /// That each issue one.
    Kinds(Vec<(OperationKind, u32)>),
}

impl Threads {
    pub(crate) fn each(&self) -> Vec<Threads> {
        match self {
            Threads::Alike(counts) => {
                let one = |&count: &u32| Threads::Alike(vec![count]);
                counts.iter().map(one).collect()
            }
            kinds => vec![kinds.clone()],
        }
    }

    pub(crate) fn sum(&self) -> u32 {
        match self {
            Threads::Alike(counts) => counts.first().copied().unwrap_or(0),
            Threads::Kinds(kinds) => kinds
                .iter()
                .fold(0, |sum: u32, &(_, count)| sum.saturating_add(count)),
        }
    }

    pub(crate) fn kinds(&self) -> Option<Vec<(OperationKind, u32)>> {
        match self {
            Threads::Alike(_) => None,
            Threads::Kinds(kinds) => Some(kinds.clone()),
        }
    }
}

/// `4`, `1,2,4`, or `read=3,update=1`.
pub(crate) fn parse_threads(text: &str) -> Result<Threads, String> {
    if text.contains('=') {
        return parse_mix(text).map(|Mix(kinds)| Threads::Kinds(kinds));
    }
    let counts: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
    counts
        .map(Threads::Alike)
        .map_err(|_| "expected a number, such as 4, several, or read=3,update=1".to_string())
}

pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    size::parse(text).map_err(|error| error.to_string())
}

/// A size that is not 0.
pub(crate) fn parse_amount(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err("expected at least 1".to_string()),
        bytes => Ok(bytes),
    }
}

/// The shares of less bound nothing: a flush of `forest` alone works in 256 KiB.
const LEAST_BUDGET: u64 = 1 << 20;

pub(crate) fn parse_budget(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes >= LEAST_BUDGET => Ok(bytes),
        _ => Err("expected 1MiB at least: stores use more than their shares of less".to_string()),
    }
}

pub(crate) fn parse_positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 1e12 => Ok(value),
        _ => Err("expected a number above 0".to_string()),
    }
}

/// `5ms` or `99.9:5ms`: the percentile, and nanoseconds.
pub(crate) fn parse_latency(text: &str) -> Result<(f64, u64), String> {
    let (percentile, latency) = text.split_once(':').unwrap_or(("99", text));
    let units = [
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
    ];
    let found = units.iter().find_map(|(unit, factor)| {
        let number: f64 = latency.strip_suffix(unit)?.trim().parse().ok()?;
        (number > 0.0 && number * factor < 1e13).then_some((number * factor) as u64)
    });
    match (percentile.parse::<f64>(), found) {
        (Ok(percentile), Some(latency)) if percentile > 0.0 && percentile < 100.0 => {
            Ok((percentile, latency))
        }
        _ => Err("expected a latency with its unit, such as 500us, 5ms, 99.9:5ms".to_string()),
    }
}

pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("expected a number from 0 to 1".to_string()),
    }
}

pub(crate) fn parse_popularity(text: &str) -> Result<Popularity, String> {
    let exponent = |text: &str| match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 10.0 => Ok(Popularity::Zipfian(value)),
        _ => Err(format!(
            "the exponent {text:?} is no number above 0 and at most 10"
        )),
    };
    match text.split_once(':') {
        Some(("zipfian", number)) => exponent(number),
        Some(("groups", numbers)) => parse_groups(numbers),
        Some(("hot-set", numbers)) => parse_hot_set(numbers),
        None => match text {
            "uniform" => Ok(Popularity::Uniform),
            "zipfian" => Ok(Popularity::Zipfian(0.99)),
            "ycsb-zipfian" => Ok(Popularity::YcsbZipfian),
            "latest" => Ok(Popularity::Latest),
            "sequential" => Ok(Popularity::Sequential),
            _ => Err(unknown_law(text)),
        },
        Some(_) => Err(unknown_law(text)),
    }
}

/// `KEYS:CHOICES`, two shares.
fn parse_hot_set(text: &str) -> Result<Popularity, String> {
    let shares = text.split_once(':').unwrap_or((text, ""));
    match (shares.0.parse::<f64>(), shares.1.parse::<f64>()) {
        (Ok(keys), Ok(choices)) if keys > 0.0 && keys <= 1.0 && (0.0..=1.0).contains(&choices) => {
            Ok(Popularity::HotSet { keys, choices })
        }
        _ => Err(format!(
            "{text:?}: write hot-set:KEYS:CHOICES, two shares from 0 to 1, such as hot-set:0.1:0.9"
        )),
    }
}

/// `EXPONENT` or `EXPONENT:GROUPS`; 20,000 groups as in the ForestDB paper.
fn parse_groups(text: &str) -> Result<Popularity, String> {
    let (exponent, groups) = text.split_once(':').unwrap_or((text, "20000"));
    match (exponent.parse::<f64>(), groups.parse::<u64>()) {
        (Ok(exponent), Ok(groups)) if (0.0..=10.0).contains(&exponent) && groups > 0 => {
            Ok(Popularity::Groups { exponent, groups })
        }
        _ => Err(format!(
            "{text:?}: write groups:EXPONENT or groups:EXPONENT:GROUPS, with an exponent from 0 to 10"
        )),
    }
}

fn unknown_law(text: &str) -> String {
    let laws = "uniform zipfian ycsb-zipfian latest sequential groups hot-set";
    unknown("law", text, laws.split(' '))
}

/// `100` or `10-100`: the fewest and the most.
pub(crate) fn parse_batch(text: &str) -> Result<(u32, u32), String> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    match (least.parse::<u32>(), most.parse::<u32>()) {
        (Ok(least), Ok(most)) if least <= most => Ok((least, most)),
        _ => Err("expected a number, such as 100, or two, such as 10-100".to_string()),
    }
}

/// A pattern of keys as the command line names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PatternName(KeyPattern);

/// Bytes of random keys, unless a size is given.
const RANDOM_BYTES: u64 = 16;

const PATTERNS: [KeyPattern; 4] = [
    KeyPattern::Random(RANDOM_BYTES as usize),
    KeyPattern::Worst,
    KeyPattern::Small,
    KeyPattern::TwoLevel,
];

fn pattern_name(pattern: KeyPattern) -> String {
    match pattern {
        KeyPattern::Random(_) => "random".to_string(),
        other => other.to_string(),
    }
}

pub(crate) fn parse_pattern(text: &str) -> Result<PatternName, String> {
    let found = PATTERNS.into_iter().find(|&one| pattern_name(one) == text);
    found.map(PatternName).ok_or_else(|| {
        let names = PATTERNS.map(pattern_name);
        unknown("pattern", text, names.iter().map(String::as_str))
    })
}

impl PatternName {
    pub(crate) fn pattern(self, bytes: Option<SizeChoice>) -> KeyPattern {
        match (self.0, bytes) {
            (KeyPattern::Random(_), Some(sizes)) => KeyPattern::Random(sizes.largest() as usize),
            (pattern, _) => pattern,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_sizes_and_laws_are_read_and_nonsense_is_not() {
        assert_eq!(parse_count("1_000"), Ok(1000));
        assert_eq!(parse_count("2M"), Ok(2_000_000));
        for text in ["", "0", "-1", "1.5", "M", "kM", "99999999999G"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
        assert_eq!(parse_sizes("4KiB"), Ok(SizeChoice::Fixed(4096)));
        assert_eq!(parse_sizes("16-64"), Ok(SizeChoice::Uniform(16, 64)));
        for text in ["64-16", "-", "16-", "x"] {
            assert!(parse_sizes(text).is_err(), "{text}");
        }
        assert_eq!(
            parse_popularity("zipfian:0.8"),
            Ok(Popularity::Zipfian(0.8))
        );
        assert!(parse_popularity("zipfain").unwrap_err().contains("zipfian"));
        let groups = Popularity::Groups {
            exponent: 0.5,
            groups: 20_000,
        };
        assert_eq!(parse_popularity("groups:0.5"), Ok(groups));
        assert_eq!(parse_popularity("groups:0.5:20000"), Ok(groups));
        for text in ["groups:x", "groups:1:0", "groups:1:2:3", "groups:-1"] {
            assert!(parse_popularity(text).is_err(), "{text}");
        }
        assert!(parse_popularity("zipfian:nan").is_err());
    }

    #[test]
    fn laws_of_sizes_and_mixes_are_read_and_nonsense_is_not() {
        let law = parse_sizes("normal:400:50").unwrap();
        assert!((law.mean() - 400.0).abs() < 0.5);
        assert_eq!(
            parse_sizes("normal:400:50:300:1KiB").unwrap().largest(),
            1024
        );
        let law = parse_sizes("pareto:0:25.45:0.2615:1KiB").unwrap();
        assert!((law.mean() - 34.5).abs() < 0.5);
        for text in [
            "normal:1",
            "normal:x:1",
            "normal:5:1:9:2",
            "pareto:1:2",
            "pareto:9:1:1:5",
            "gauss:1:2",
            "histogram:/nowhere",
        ] {
            assert!(parse_sizes(text).is_err(), "{text}");
        }
        let mix = parse_mix("read=70,read-modify-write=30").unwrap();
        let expected = [
            (OperationKind::Read, 70),
            (OperationKind::ReadModifyWrite, 30),
        ];
        assert_eq!(mix.0, expected);
        assert!(parse_mix("raed=1").unwrap_err().contains("near it: read"));
        for text in ["", "read", "read=x", "read=-1", "read=1,"] {
            assert!(parse_mix(text).is_err(), "{text}");
        }
        let hot = Popularity::HotSet {
            keys: 0.1,
            choices: 0.9,
        };
        assert_eq!(parse_popularity("hot-set:0.1:0.9"), Ok(hot));
        for text in ["hot-set:0:1", "hot-set:0.1", "hot-set:2:1", "hot-set:x:y"] {
            assert!(parse_popularity(text).is_err(), "{text}");
        }
    }

    #[test]
    fn latencies_have_a_unit_and_a_percentile() {
        assert_eq!(parse_latency("5ms"), Ok((99.0, 5_000_000)));
        assert_eq!(parse_latency("99.9:500us"), Ok((99.9, 500_000)));
        for text in ["5", "ms", "-1ms", "100:5ms", "0:5ms", "x:5ms", "nanms"] {
            assert!(parse_latency(text).is_err(), "{text}");
        }
    }

    #[test]
    fn threads_are_a_number_or_one_for_each_kind() {
        assert_eq!(parse_threads("4"), Ok(Threads::Alike(vec![4])));
        let found = parse_threads("read=3,update=1").unwrap();
        assert_eq!((found.sum(), found.kinds().unwrap().len()), (4, 2));
        for text in ["", "x", "-1", "read=", "raed=1"] {
            assert!(parse_threads(text).is_err(), "{text}");
        }
    }

    #[test]
    fn batches_are_a_number_or_two() {
        assert_eq!(parse_batch("7"), Ok((7, 7)));
        assert_eq!(parse_batch("10-100"), Ok((10, 100)));
        for text in ["", "x", "5-", "9-3", "-1", "5000000000"] {
            assert!(parse_batch(text).is_err(), "{text}");
        }
    }

    #[test]
    fn patterns_have_names_and_the_nearest_is_offered() {
        let pattern = |text: &str| parse_pattern(text).unwrap();
        let size = Some(SizeChoice::Fixed(40));
        assert_eq!(pattern("2-level").pattern(size), KeyPattern::TwoLevel);
        assert_eq!(pattern("random").pattern(size), KeyPattern::Random(40));
        assert_eq!(pattern("random").pattern(None), KeyPattern::Random(16));
        assert!(parse_pattern("2-levle").unwrap_err().contains("2-level"));
    }
}
