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
}

impl Claim {
    /// A claim that was measured, or not, if `found` is none.
    pub(super) fn new(paper: impl Into<Cow<'static, str>>, found: Option<(String, bool)>) -> Claim {
        let (here, holds) = found.unzip();
        Claim {
            paper: paper.into(),
            here,
            holds: holds.unwrap_or(false),
        }
    }

    fn verdict(&self) -> &'static str {
        match (&self.here, self.holds) {
            (None, _) => "not measured",
            (_, true) => "holds here",
            (_, false) => "does not hold here",
        }
    }

    fn line(&self) -> String {
        let here = self.here.as_deref().unwrap_or("-");
        format!("{}: {}; here {here}", self.verdict(), self.paper)
    }
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
                vec![claim.paper.to_string(), here, claim.verdict().to_string()]
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
