//! A table with its claims, for a terminal and for a document.

use std::borrow::Cow;

use comfy_table::{CellAlignment, presets};

/// Stands above claims on a terminal.
pub(super) const HELD: &str = "The paper, and whether its direction held:";

/// Heads and rows; the first columns are words, the others numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Grid {
    pub(super) heads: Vec<String>,
    /// Columns of words.
    pub(super) words: usize,
    pub(super) rows: Vec<Vec<String>>,
}

/// A sentence of a paper, held against what was measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claim {
    /// As the paper says it, shortened.
    pub(super) paper: Cow<'static, str>,
    /// What it was here; none where it was not measured.
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

impl Grid {
    /// For a terminal.
    pub(super) fn terminal(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED);
        table.set_header(&self.heads);
        for row in &self.rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(self.words) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{table}\n")
    }

    /// For a document.
    pub(super) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let numbers = self.heads.len().saturating_sub(self.words);
        let mut text = line(&self.heads);
        text += &format!(
            "|{}{}\n",
            "---|".repeat(self.words),
            "---:|".repeat(numbers)
        );
        for row in &self.rows {
            text += &line(row);
        }
        text
    }
}

/// Claims for a terminal, a line each.
pub(super) fn claims_terminal(claims: &[Claim]) -> String {
    let line = |claim: &Claim| format!("  {}\n", claim.line());
    claims.iter().map(line).collect()
}

/// Claims as a table of a document.
pub(super) fn claims_markdown(claims: &[Claim]) -> String {
    if claims.is_empty() {
        return String::new();
    }
    let grid = Grid {
        heads: ["the paper", "here", ""].map(str::to_string).to_vec(),
        words: 3,
        rows: claims
            .iter()
            .map(|claim| {
                let here = claim.here.clone().unwrap_or_else(|| "-".to_string());
                vec![claim.paper.to_string(), here, claim.verdict()]
            })
            .collect(),
    };
    grid.markdown()
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
        let expected = "  holds here: a is faster than b; here 1.2 times\n  \
            does not hold here: b grows; here it shrinks\n  not measured: c; here -\n";
        assert_eq!(text, expected);
        let table = claims_markdown(&claims);
        assert!(
            table.contains("| b grows | it shrinks | does not hold here |"),
            "{table}"
        );
        assert_eq!(claims_markdown(&[]), "");
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

    #[test]
    fn numbers_stand_to_the_right() {
        let grid = Grid {
            heads: ["store", "ops/s"].map(str::to_string).to_vec(),
            words: 1,
            rows: vec![["a", "7"].map(str::to_string).to_vec()],
        };
        assert_eq!(
            grid.markdown(),
            "| store | ops/s |\n|---|---:|\n| a | 7 |\n"
        );
        assert!(grid.terminal().contains("ops/s"));
    }
}
