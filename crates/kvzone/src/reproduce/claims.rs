//! Sentences of papers, held against what was measured.
//!
//! A claim is judged by its direction: which store is ahead, which figure grows or shrinks.

use std::borrow::Cow;

use kvzone_core::report::grid::Grid;
use kvzone_core::report::text::three_digits;

use super::measured::Measured;

/// Stands above claims on a terminal.
const HELD: &str = "The paper, and whether its direction held:";

/// A sentence of a paper, held against what was measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claim {
    /// As the paper says it, shortened.
    pub(super) paper: Cow<'static, str>,
    /// The figure measured here; none where it was not measured.
    pub(super) here: Option<String>,
    /// Whether its direction held here.
    pub(super) holds: bool,
    /// In how many of how many rounds it held, each looked at by itself.
    pub(super) rounds: Option<(usize, usize)>,
    /// An interval around what was measured holds both directions.
    pub(super) is_doubtful: bool,
}

impl Claim {
    /// A claim that was measured, or not, if `found` is none.
    pub(super) fn new(paper: impl Into<Cow<'static, str>>, found: Option<(String, bool)>) -> Claim {
        let (here, holds) = found.unzip();
        Claim {
            paper: paper.into(),
            here,
            holds: holds.unwrap_or(false),
            rounds: None,
            is_doubtful: false,
        }
    }

    /// A sentence about numbers, and what they must be for it to hold.
    pub(super) fn on(paper: &'static str, found: Found, holds: impl Fn(&[f64]) -> bool) -> Claim {
        let judged = found.map(|(words, values)| {
            let holds = holds(&values);
            (words, holds)
        });
        Claim::new(paper, judged)
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

    fn line(&self) -> String {
        let here = self.here.as_deref().unwrap_or("-");
        format!("{}: {}; here {here}", self.verdict(), self.paper)
    }
}

/// Claims on the medians of rounds, each with how many rounds say the same by
/// themselves: one that only some say is within the noise.
pub(super) fn by_rounds(
    medians: Vec<Claim>,
    rounds: u32,
    of_round: impl Fn(u32) -> Vec<Claim>,
) -> Vec<Claim> {
    let alone: Vec<Vec<Claim>> = (0..rounds).map(of_round).collect();
    let with_rounds = |(place, claim): (usize, Claim)| {
        let same = alone.iter().filter_map(|claims| claims.get(place));
        let measured: Vec<bool> = same
            .filter(|claim| claim.here.is_some())
            .map(|claim| claim.holds)
            .collect();
        let held = measured.iter().filter(|&&holds| holds).count();
        Claim {
            rounds: Some((held, measured.len())).filter(|(_, all)| *all > 0),
            ..claim
        }
    };
    medians.into_iter().enumerate().map(with_rounds).collect()
}

/// Claims for a terminal, a line each.
pub(super) fn claims_terminal(claims: &[Claim]) -> String {
    if claims.is_empty() {
        return String::new();
    }
    let line = |claim: &Claim| format!("  {}\n", claim.line());
    format!("{HELD}\n") + &claims.iter().map(line).collect::<String>()
}

/// Claims as a table.
pub(super) fn claims_grid(claims: &[Claim]) -> Grid {
    let row = |claim: &Claim| {
        let here = claim.here.clone().unwrap_or_else(|| "-".to_string());
        vec![claim.paper.to_string(), here, claim.verdict()]
    };
    Grid {
        heads: ["the paper", "here", ""].map(str::to_string).to_vec(),
        words: 3,
        rows: claims.iter().map(row).collect(),
    }
}

/// Numbers that a sentence is about, and words that tell them; none where one of
/// them was not measured.
pub(super) type Found = Option<(String, Vec<f64>)>;

/// `a 1.20, b 3.40`: a number of each of these.
pub(super) fn each(names: &[&str], number: impl Fn(&str) -> Option<f64>) -> Found {
    let values: Option<Vec<f64>> = names.iter().map(|name| number(name)).collect();
    let values = values?;
    let words = names.iter().zip(&values);
    let words = words.map(|(name, value)| format!("{name} {}", three_digits(*value)));
    Some((words.collect::<Vec<String>>().join(", "), values))
}

/// `64 B: 1.20 times, 1 KB: 3.40 times`: a ratio at each point that is chosen and has
/// one; none where no point has.
pub(super) fn at_points(
    measured: &Measured,
    choose: impl Fn(&str) -> bool,
    ratio: impl Fn(&str) -> Option<f64>,
) -> Found {
    let chosen = measured.labels().filter(|label| choose(label));
    let (words, ratios): (Vec<String>, Vec<f64>) = chosen
        .filter_map(|label| {
            let ratio = ratio(label).filter(|ratio| ratio.is_finite())?;
            Some((format!("{label}: {} times", three_digits(ratio)), ratio))
        })
        .unzip();
    (!ratios.is_empty()).then(|| (words.join(", "), ratios))
}

/// `1.20 times`.
pub(super) fn times(ratio: Option<f64>) -> Found {
    let ratio = ratio.filter(|ratio| ratio.is_finite())?;
    Some((format!("{} times", three_digits(ratio)), vec![ratio]))
}

/// `12 %`.
pub(super) fn percent(share: Option<f64>) -> Found {
    let share = share?;
    Some((format!("{} %", three_digits(share * 100.0)), vec![share]))
}

/// The same with other words before.
pub(super) fn after(words: &str, found: Found) -> Found {
    found.map(|(rest, values)| (format!("{words}: {rest}"), values))
}

/// The first is above all others.
pub(super) fn first_is_most(values: &[f64]) -> bool {
    values.iter().skip(1).all(|value| values[0] > *value)
}

/// The first is below all others.
pub(super) fn first_is_least(values: &[f64]) -> bool {
    values.iter().skip(1).all(|value| values[0] < *value)
}

/// All are above a bound.
pub(super) fn above(bound: f64) -> impl Fn(&[f64]) -> bool {
    move |values| values.iter().all(|value| *value > bound)
}

/// All are below a bound.
pub(super) fn below(bound: f64) -> impl Fn(&[f64]) -> bool {
    move |values| values.iter().all(|value| *value < bound)
}

/// Every point.
pub(super) fn any(_: &str) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_says_what_was_found_and_whether_it_held() {
        let claims = [
            Claim::new("a is faster than b", Some(("1.2 times".to_string(), true))),
            Claim::new("b grows", Some(("it shrinks".to_string(), false))),
            Claim::new("c", None),
        ];
        let text = claims_terminal(&claims);
        let expected = "The paper, and whether its direction held:\n  holds here: a is faster than b; here 1.2 times\n  \
            does not hold here: b grows; here it shrinks\n  not measured: c; here -\n";
        assert_eq!(text, expected);
        let table = claims_grid(&claims).markdown();
        assert!(
            table.contains("| b grows | it shrinks | does not hold here |"),
            "{table}"
        );
        assert_eq!(claims_terminal(&[]), "");
    }

    #[test]
    fn what_only_some_rounds_say_is_within_the_noise() {
        let claim = |holds| vec![Claim::new("a grows", Some(("by 1.01".to_string(), holds)))];
        let told = |median, rounds: &[bool]| {
            let of_round = |round: u32| claim(rounds[round as usize]);
            let found = by_rounds(claim(median), rounds.len() as u32, of_round);
            (found[0].verdict(), found[0].is_within_noise())
        };
        assert_eq!(told(true, &[true; 3]), ("holds here".to_string(), false));
        let noise = "within the noise: holds in 2 of 3 rounds".to_string();
        assert_eq!(told(true, &[true, false, true]), (noise, true));
        let none = told(false, &[false; 5]);
        assert_eq!(none, ("does not hold here".to_string(), false));
        assert_eq!(told(true, &[true]).0, "holds here, in its one round");
        let unmeasured = by_rounds(vec![Claim::new("c", None)], 3, |_| Vec::new());
        assert_eq!(unmeasured[0].verdict(), "not measured");
    }
}
