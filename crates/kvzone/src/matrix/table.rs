//! The matrix, worked out: in each cell our best engine beside the best peer.

use kvzone_core::record::Status;
use kvzone_core::statistics::verdict::{Comparison, Verdict, compare_rounds};
use kvzone_core::statistics::{median, relative_spread};

use super::programs::{CELLS, Cell};
use super::results::Results;

/// The engine that a store has unless another is named.
pub(super) const DEFAULT: &str = "forest";
/// The store that does nothing: it shows the harness's own cost.
pub(super) const NULL: &str = "null";
/// Below this a cell is listed as one where another is ahead.
pub(super) const BEHIND: f64 = 0.9;
/// Rounds that differ by more of their median are measured again, and then marked.
pub(super) const UNSTEADY: f64 = 0.3;

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) cell: &'static Cell,
    pub(super) value_bytes: u64,
    /// In the order of the stores.
    pub(super) entries: Vec<Entry>,
    /// Store, of ours.
    pub(super) best: Option<usize>,
    /// Store, of the others.
    pub(super) peer: Option<usize>,
    /// How many times as good our best is; above 1 it is ahead, also where less is better.
    pub(super) against_peer: Option<Comparison>,
    /// The default engine, likewise.
    pub(super) default_against_peer: Option<f64>,
    /// The best store is within twice of what the harness itself reaches.
    pub(super) is_harness_bound: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) median: Option<f64>,
    pub(super) rounds: Vec<(u32, f64)>,
    pub(super) failure: Option<(Status, String)>,
}

impl Entry {
    pub(super) fn is_unsteady(&self) -> bool {
        let values: Vec<f64> = self.rounds.iter().map(|round| round.1).collect();
        relative_spread(&values).is_some_and(|spread| spread > UNSTEADY)
    }
}

impl Row {
    /// The two that are compared differ from round to round by more than they should.
    pub(super) fn is_unsteady(&self) -> bool {
        let both = [self.best, self.peer].into_iter().flatten();
        both.into_iter().any(|at| self.entries[at].is_unsteady())
    }

    pub(super) fn ratio(&self) -> Option<f64> {
        Some(self.against_peer.as_ref()?.ratio)
    }

    pub(super) fn is_behind(&self) -> bool {
        self.ratio().is_some_and(|ratio| ratio < BEHIND)
    }

    /// In words; empty where too few rounds allow none.
    pub(super) fn verdict(&self) -> &'static str {
        let Some(found) = &self.against_peer else {
            return "";
        };
        if self.is_harness_bound {
            return "harness";
        }
        match found.verdict {
            Verdict::Higher => "ahead",
            Verdict::Lower => "behind",
            Verdict::Equal => "equal",
            Verdict::Noise => "open",
            Verdict::Unknown => "",
        }
    }
}

/// Every cell that was measured, in the order of sizes and cells.
pub(super) fn rows(results: &Results, ours: &[&str]) -> Vec<Row> {
    let sizes = results.head.conditions.sizes.iter();
    sizes
        .flat_map(|&(size, _)| CELLS.iter().map(move |cell| row(results, ours, cell, size)))
        .filter(|row| row.entries.iter().any(|entry| entry.median.is_some()))
        .collect()
}

fn row(results: &Results, ours: &[&str], cell: &'static Cell, size: u64) -> Row {
    let stores = &results.head.conditions.stores;
    let entry = |store: &String| {
        let rounds = results.figures(cell, size, store);
        let values: Vec<f64> = rounds.iter().map(|round| round.1).collect();
        Entry {
            median: median(&values),
            failure: results.failure(cell, size, store),
            rounds,
        }
    };
    let entries: Vec<Entry> = stores.iter().map(entry).collect();
    let is_ours = |at: usize| ours.contains(&stores[at].as_str());
    let is_null = |at: usize| stores[at] == NULL;
    let best_of = |among: &dyn Fn(usize) -> bool| {
        let whole = |&at: &usize| among(at) && entries[at].failure.is_none();
        let candidates = (0..entries.len()).filter(whole);
        let figures = candidates.filter_map(|at| Some((at, entries[at].median?)));
        let ordered = figures.min_by(|a, b| match cell.figure.is_cost() {
            true => a.1.total_cmp(&b.1),
            false => b.1.total_cmp(&a.1),
        });
        ordered.map(|(at, _)| at)
    };
    let best = best_of(&is_ours);
    let peer = best_of(&|at| !is_ours(at) && !is_null(at));
    let against = |at: Option<usize>| ratio(cell, &entries[at?], &entries[peer?]);
    let default = (0..stores.len()).find(|&at| stores[at] == DEFAULT);
    let harness = (0..stores.len()).find(|&at| is_null(at));
    let reached = [best, peer]
        .into_iter()
        .flatten()
        .filter_map(|at| entries[at].median);
    let is_harness_bound = match harness.and_then(|at| entries[at].median) {
        Some(limit) if !cell.figure.is_cost() && limit > 0.0 => {
            reached.fold(0.0, f64::max) > limit / 2.0
        }
        _ => false,
    };
    Row {
        against_peer: against(best),
        default_against_peer: against(default).map(|found| found.ratio),
        is_harness_bound: is_harness_bound && cell.figure == super::programs::Figure::Rate,
        cell,
        value_bytes: size,
        best,
        peer,
        entries,
    }
}

/// Rounds of one against the same rounds of the other.
fn ratio(cell: &Cell, this: &Entry, other: &Entry) -> Option<Comparison> {
    match cell.figure.is_cost() {
        true => compare_rounds(&other.rounds, &this.rounds),
        false => compare_rounds(&this.rounds, &other.rounds),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::programs::{Figure, Program};
    use super::*;

    fn entry(values: &[f64]) -> Entry {
        Entry {
            median: median(values),
            rounds: (0..).zip(values.iter().copied()).collect(),
            failure: None,
        }
    }

    #[test]
    fn less_is_better_of_costs() {
        let of = |figure| Cell {
            name: "",
            program: Program::Main,
            step: "load",
            figure,
        };
        let (small, large) = (entry(&[1.0; 5]), entry(&[2.0; 5]));
        let rate = ratio(&of(Figure::Rate), &small, &large).unwrap();
        assert_eq!((rate.ratio, rate.verdict), (0.5, Verdict::Lower));
        let cost = ratio(&of(Figure::Space), &small, &large).unwrap();
        assert_eq!((cost.ratio, cost.verdict), (2.0, Verdict::Higher));
    }

    #[test]
    fn rounds_that_differ_are_unsteady() {
        assert!(entry(&[1.0, 1.0, 1.4]).is_unsteady());
        assert!(!entry(&[1.0, 1.1, 1.2]).is_unsteady());
    }
}
