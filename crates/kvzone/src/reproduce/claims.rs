//! Sentences of papers, held against what was measured.
//!
//! A claim is judged by its direction: which store is ahead, which figure grows or shrinks.

use kvzone_core::report::grid::Grid;
use kvzone_core::report::text::three_digits;
use kvzone_core::statistics::verdict::Verdict;
use serde::Deserialize;

use super::columns::{self, Column, RATE};
use super::figure::Figure;
use super::measured::{Cell, Measured};
use super::present::ratio_text;

/// Two numbers that differ by no more than this make no difference.
const ALIKE: f64 = 1.1;

/// A sentence of a paper as data. Its numbers are those of a column, of each of `stores` at
/// each of `points`, divided by another number where `by`, `by_point` or `per` name one; its
/// test says what they must be for it to hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    paper: String,
    /// Words before the numbers.
    words: Option<String>,
    #[serde(default = "rate")]
    column: String,
    /// Another column to divide by.
    per: Option<String>,
    /// The workload of the cells; any where it is empty.
    #[serde(default)]
    workload: String,
    stores: Vec<String>,
    /// Stores to divide by: the one that makes it hardest for the test to hold.
    #[serde(default)]
    by: Vec<String>,
    /// Labels of points, `*` for any beginning or end, `first`, `last`; all where empty.
    #[serde(default)]
    points: Vec<String>,
    /// A point of the same store to divide by.
    by_point: Option<String>,
    test: Test,
}

fn rate() -> String {
    RATE.to_string()
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
enum Test {
    Above(f64),
    AtLeast(f64),
    Below(f64),
    /// The first, above all others.
    Most,
    /// The first, below all others.
    Least,
    /// All within a tenth of 1.
    Alike,
}

impl TryFrom<String> for Test {
    type Error = String;

    fn try_from(text: String) -> Result<Test, String> {
        let bound = |text: &str| {
            text.trim()
                .parse::<f64>()
                .map_err(|error| error.to_string())
        };
        match text.as_str() {
            "most" => Ok(Test::Most),
            "least" => Ok(Test::Least),
            "alike" => Ok(Test::Alike),
            text => match (text.strip_prefix(">="), text.split_at_checked(1)) {
                (Some(least), _) => Ok(Test::AtLeast(bound(least)?)),
                (None, Some((">", least))) => Ok(Test::Above(bound(least)?)),
                (None, Some(("<", most))) => Ok(Test::Below(bound(most)?)),
                _ => Err(format!("no test {text:?}")),
            },
        }
    }
}

impl Test {
    fn holds(self, values: &[f64]) -> bool {
        let all = |test: &dyn Fn(f64) -> bool| values.iter().all(|value| test(*value));
        let mut others = values.iter().skip(1);
        match self {
            Test::Above(bound) => all(&|value| value > bound),
            Test::AtLeast(bound) => all(&|value| value >= bound),
            Test::Below(bound) => all(&|value| value < bound),
            Test::Alike => all(&|value| value < ALIKE && value > 1.0 / ALIKE),
            Test::Most => others.all(|value| values[0] > *value),
            Test::Least => others.all(|value| values[0] < *value),
        }
    }

    /// The number by which dividing makes it hardest for the test to hold.
    fn hardest(self, one: f64, other: f64) -> f64 {
        match self {
            Test::Below(_) | Test::Least => one.min(other),
            _ => one.max(other),
        }
    }
}

/// True of a label that a pattern stands for.
fn matches(pattern: &str, label: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => label.ends_with(end),
        (None, Some(begin)) => label.starts_with(begin),
        (None, None) => pattern == label,
    }
}

impl Rule {
    /// Refuses names that the figure does not have.
    pub(super) fn check(&self, figure: &Figure) -> Result<(), String> {
        columns::find(&self.column)?;
        self.per.as_deref().map(columns::find).transpose()?;
        let is_store = |label: &&String| figure.says.stores.iter().any(|it| &it.label == *label);
        let is_point = |pattern: &&String| {
            let is_place = matches!(pattern.as_str(), "first" | "last");
            is_place
                || figure
                    .points
                    .iter()
                    .any(|point| matches(pattern, &point.label))
        };
        let unknown_store = self.stores.iter().chain(&self.by).find(|it| !is_store(it));
        let unknown_point = self
            .points
            .iter()
            .chain(&self.by_point)
            .find(|it| !is_point(it));
        match unknown_store.or(unknown_point) {
            Some(name) => Err(format!(
                "{}: {:?} names {name:?}",
                figure.says.name, self.paper
            )),
            None => Ok(()),
        }
    }

    fn judge(&self, it: &Measured) -> Claim {
        let found = self.numbers(it);
        let claim = Claim::new(&self.paper, None);
        let Some((words, values)) = found.filter(|(_, values)| !values.is_empty()) else {
            return claim;
        };
        let words = match &self.words {
            Some(before) => format!("{before}: {words}"),
            None => words,
        };
        Claim {
            here: Some(words),
            holds: self.test.holds(&values),
            ..claim
        }
    }

    /// The numbers that the sentence is about, and words that tell them; none where one of a
    /// store that it names was not measured.
    fn numbers(&self, it: &Measured) -> Option<(String, Vec<f64>)> {
        let column = columns::find(&self.column).ok()?;
        let per = self
            .per
            .as_deref()
            .and_then(|name| columns::find(name).ok());
        let number = |label: &str, point: usize, column: &Column| {
            it.value(it.cell(&self.workload, point, label)?, column)
        };
        let points = self.places(it);
        let mut values = Vec::new();
        let mut words = Vec::new();
        let may_miss = |label: &str| {
            let absent = it.figure.says.stores.iter().find(|one| one.label == label);
            absent.is_some_and(|one| one.may_miss) && it.stores.iter().all(|one| one.label != label)
        };
        for label in self.stores.iter().filter(|label| !may_miss(label)) {
            for &point in &points {
                let mut value = number(label, point, column)?;
                if let Some(per) = per {
                    value /= number(label, point, per)?;
                }
                if let Some(other) = &self.by_point {
                    value /= number(label, *self.place(it, other).first()?, column)?;
                }
                let others = self.by.iter().map(|other| number(other, point, column));
                let others: Option<Vec<f64>> = others.collect();
                let hardest = others?.into_iter().reduce(|a, b| self.test.hardest(a, b));
                value /= hardest.unwrap_or(1.0);
                if !value.is_finite() {
                    return None;
                }
                let ratio = if self.by.is_empty() && self.by_point.is_none() {
                    ""
                } else {
                    " times"
                };
                let name = match (points.len(), self.stores.len()) {
                    (1, _) => label.clone(),
                    (_, 1) => it.points[point].label.clone(),
                    _ => format!("{label} at {}", it.points[point].label),
                };
                words.push(format!("{name} {}{ratio}", three_digits(value)));
                values.push(value);
            }
        }
        Some((words.join(", "), values))
    }

    fn places(&self, it: &Measured) -> Vec<usize> {
        match self.points.is_empty() {
            true => (0..it.points.len()).collect(),
            false => self
                .points
                .iter()
                .flat_map(|pattern| self.place(it, pattern))
                .collect(),
        }
    }

    fn place(&self, it: &Measured, pattern: &str) -> Vec<usize> {
        let places = 0..it.points.len();
        match pattern {
            "first" => places.take(1).collect(),
            "last" => places.rev().take(1).collect(),
            _ => places
                .filter(|&at| matches(pattern, &it.points[at].label))
                .collect(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claim {
    pub(super) paper: String,
    /// The figure measured here; none where it was not measured.
    pub(super) here: Option<String>,
    pub(super) holds: bool,
    /// In how many of how many rounds it held, each looked at by itself.
    pub(super) rounds: Option<(usize, usize)>,
    /// An interval around what was measured holds both directions.
    is_doubtful: bool,
}

impl Claim {
    /// A claim that was measured, or not, if `found` is none.
    fn new(paper: &str, found: Option<(String, bool)>) -> Claim {
        let (here, holds) = found.unzip();
        Claim {
            paper: paper.to_string(),
            here,
            holds: holds.unwrap_or(false),
            rounds: None,
            is_doubtful: false,
        }
    }

    /// True where rounds, or the interval, say both that it holds and that it does not.
    pub(super) fn is_within_noise(&self) -> bool {
        let disagree = |(held, all)| held != if self.holds { all } else { 0 };
        self.here.is_some() && (self.is_doubtful || self.rounds.is_some_and(disagree))
    }

    fn verdict(&self) -> String {
        let word = match (&self.here, self.holds) {
            (None, _) => "not measured",
            _ if self.is_within_noise() => "within the noise",
            (_, true) => "holds here",
            (_, false) => "does not hold here",
        };
        match self.rounds {
            Some((held, all)) if self.is_within_noise() => {
                format!("{word}: holds in {held} of {all} rounds")
            }
            Some((_, 1)) if self.here.is_some() => format!("{word}, in its one round"),
            _ => word.to_string(),
        }
    }
}

/// All claims of a figure on the medians of rounds, each with how many rounds say the same by
/// themselves: one that only some say is within the noise.
pub(super) fn claims(measured: &Measured) -> Vec<Claim> {
    let alone = (0..measured.repeat).map(|round| judged(&measured.of_round(round)));
    by_rounds(judged(measured), &alone.collect::<Vec<_>>())
}

fn judged(measured: &Measured) -> Vec<Claim> {
    let rules = measured.figure.says.claims.iter();
    let orders = measured
        .cells
        .iter()
        .filter_map(|cell| order(measured, cell));
    rules
        .map(|rule| rule.judge(measured))
        .chain(orders)
        .collect()
}

/// The paper's order of two stores, where it published their rates.
fn order(it: &Measured, cell: &Cell) -> Option<Claim> {
    let published = it.published(cell).filter(|_| cell.label != it.first())?;
    let paper = format!(
        "values of {}: {} is {} than {}, {} times its rate",
        it.points[cell.point].label,
        it.first(),
        if published > 1.0 { "faster" } else { "slower" },
        cell.label,
        three_digits(published)
    );
    let ratio = it.ratio(cell);
    let verdict = ratio.as_ref().map(|found| found.verdict);
    let here = ratio.map(|found| {
        let holds = (found.ratio > 1.0) == (published > 1.0);
        (format!("{} times", ratio_text(Some(found))), holds)
    });
    Some(Claim {
        is_doubtful: matches!(verdict, Some(Verdict::Noise | Verdict::Equal)),
        ..Claim::new(&paper, here)
    })
}

fn by_rounds(medians: Vec<Claim>, alone: &[Vec<Claim>]) -> Vec<Claim> {
    let with_rounds = |(place, claim): (usize, Claim)| {
        let same = alone.iter().filter_map(|claims| claims.get(place));
        let measured: Vec<&Claim> = same.filter(|claim| claim.here.is_some()).collect();
        let held = measured.iter().filter(|claim| claim.holds).count();
        Claim {
            rounds: Some((held, measured.len())).filter(|(_, all)| *all > 0),
            ..claim
        }
    };
    medians.into_iter().enumerate().map(with_rounds).collect()
}

pub(super) fn claims_grid(claims: &[Claim]) -> Grid {
    let row = |claim: &Claim| {
        let here = claim.here.clone().unwrap_or_else(|| "-".to_string());
        vec![claim.paper.clone(), here, claim.verdict()]
    };
    Grid {
        heads: ["the paper", "here", ""].map(str::to_string).to_vec(),
        words: 3,
        rows: claims.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(paper: &str, found: Option<(&str, bool)>) -> Claim {
        Claim::new(
            paper,
            found.map(|(words, holds)| (words.to_string(), holds)),
        )
    }

    #[test]
    fn a_claim_says_what_was_found_and_whether_it_held() {
        let claims = [
            claim("a is faster than b", Some(("1.2 times", true))),
            claim("b grows", Some(("it shrinks", false))),
            claim("c", None),
        ];
        let table = claims_grid(&claims).markdown();
        for row in [
            "| a is faster than b | 1.2 times | holds here |",
            "| b grows | it shrinks | does not hold here |",
            "| c | - | not measured |",
        ] {
            assert!(table.contains(row), "{table}");
        }
    }

    #[test]
    fn what_only_some_rounds_say_is_within_the_noise() {
        let grows = |holds| vec![claim("a grows", Some(("by 1.01", holds)))];
        let told = |median, rounds: &[bool]| {
            let alone: Vec<Vec<Claim>> = rounds.iter().map(|holds| grows(*holds)).collect();
            let found = by_rounds(grows(median), &alone);
            (found[0].verdict(), found[0].is_within_noise())
        };
        assert_eq!(told(true, &[true; 3]), ("holds here".to_string(), false));
        let noise = "within the noise: holds in 2 of 3 rounds".to_string();
        assert_eq!(told(true, &[true, false, true]), (noise, true));
        let none = told(false, &[false; 5]);
        assert_eq!(none, ("does not hold here".to_string(), false));
        assert_eq!(told(true, &[true]).0, "holds here, in its one round");
    }

    #[test]
    fn tests_are_read_and_judge_every_number() {
        let holds =
            |test: &str, values: &[f64]| Test::try_from(test.to_string()).unwrap().holds(values);
        assert!(holds("> 1", &[1.1, 2.0]) && !holds("> 1", &[1.0, 2.0]));
        assert!(holds(">= 1", &[1.0]) && holds("< 1.4", &[1.3]) && !holds("< 1.4", &[1.4]));
        assert!(holds("most", &[3.0, 1.0, 2.0]) && !holds("most", &[2.0, 2.0]));
        assert!(holds("least", &[0.5, 1.0]) && !holds("least", &[1.0, 0.5]));
        assert!(holds("alike", &[0.95, 1.05]) && !holds("alike", &[1.2]));
        for wrong in ["", "about 1", ">x", "="] {
            assert!(Test::try_from(wrong.to_string()).is_err(), "{wrong:?}");
        }
        assert!(matches("* KB", "1 KB") && !matches("* KB", "64 B"));
        assert!(matches("A*", "A, 1 KB") && matches("1 KB", "1 KB") && !matches("1", "1 KB"));
    }
}
