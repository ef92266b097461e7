//! Sentences of sections 1 and 4 that can be held against a measurement.
//!
//! What is judged is the direction: who is ahead. Against several others, the
//! best of them counts.

use kvzone_core::report::text::three_digits;

use super::super::grid::Claim;
use super::figures::{BERKELEY_DB, Column, FILE, RAW, SQLITE, TOKYO_CABINET};
use super::measure::{Cell, Measured};

/// Alphard, in a file or on a device.
const OURS: &[&str] = &[FILE, RAW];
const TREE: &str = "tokyocabinet tree";
const OTHERS: &[&str] = &[BERKELEY_DB, TOKYO_CABINET, TREE, SQLITE];

/// The smaller or the larger of two.
type Choose = fn(f64, f64) -> f64;

/// What the best of some stores has of a column at a point.
fn best(
    measured: &Measured,
    point: &str,
    stores: &[&str],
    (column, of): (Column, Choose),
) -> Option<f64> {
    let cells = stores
        .iter()
        .filter_map(|label| measured.cell(point, label));
    cells
        .filter_map(|cell: &Cell| cell.figure(column))
        .reduce(of)
}

/// Alphard's worse of the two by the best of the others, at each point that is
/// chosen; what is larger is better, or what is smaller.
fn against(
    measured: &Measured,
    others: &[&str],
    (column, larger): (Column, bool),
    choose: impl Fn(&str) -> bool,
) -> Option<(String, Vec<f64>)> {
    let (worst, best_of): (Choose, Choose) = match larger {
        true => (f64::min, f64::max),
        false => (f64::max, f64::min),
    };
    let ratio = |label: &'static str| {
        let ours = best(measured, label, OURS, (column, worst))?;
        let theirs = best(measured, label, others, (column, best_of))?;
        (theirs > 0.0).then_some((label, ours / theirs))
    };
    let labels = measured.points.iter().map(|used| used.point.label);
    let found: Vec<(&str, f64)> = labels
        .filter(|label| choose(label))
        .filter_map(ratio)
        .collect();
    let words: Vec<String> = found
        .iter()
        .map(|(label, ratio)| format!("{label}: {} times", three_digits(*ratio)))
        .collect();
    let ratios: Vec<f64> = found.iter().map(|&(_, ratio)| ratio).collect();
    (!ratios.is_empty()).then(|| (words.join("; "), ratios))
}

fn claim(
    paper: &'static str,
    found: Option<(String, Vec<f64>)>,
    holds: impl Fn(f64) -> bool,
) -> Claim {
    Claim::new(
        paper,
        found.map(|(words, ratios)| (words, ratios.into_iter().all(holds))),
    )
}

fn is_peak(label: &str) -> bool {
    label.ends_with(super::figures::PEAK)
}

fn any(_: &str) -> bool {
    true
}

/// More operations than the best of some others at their peak.
fn ahead(paper: &'static str, measured: &Measured, others: &[&str]) -> Claim {
    let found = against(measured, others, (Column::Rate, true), is_peak);
    claim(paper, found, |ratio| ratio > 1.0)
}

/// Inserts wait less than with the best of the others.
fn quicker(paper: &'static str, measured: &Measured) -> Claim {
    let found = against(measured, OTHERS, (Column::WriteMean, false), any);
    claim(paper, found, |ratio| ratio < 1.0)
}

/// Table 1.
pub(super) fn table(measured: &Measured) -> Vec<Claim> {
    vec![
        ahead(
            "Alphard writes 2.7 times as much a second as Tokyo Cabinet",
            measured,
            &[TOKYO_CABINET, TREE],
        ),
        ahead("3.7 times as much as Berkeley DB", measured, &[BERKELEY_DB]),
        ahead("27 times as much as SQLite", measured, &[SQLITE]),
        quicker(
            "with an average latency of 0.8 ms, where the best of them has 38.4 ms",
            measured,
        ),
    ]
}

/// Figure 3.
pub(super) fn writes(measured: &Measured) -> Vec<Claim> {
    vec![
        ahead(
            "Alphard peaks at 8,000 operations a second, the best of the others at 6,500, and is ahead at every size",
            measured,
            OTHERS,
        ),
        quicker(
            "it can achieve higher rates with a much lower latency than the others",
            measured,
        ),
        claim(
            "and stays at 10 ms where the best of the others has 4,000 ms: their tail is longer too",
            against(measured, OTHERS, (Column::WriteTail, false), any),
            |ratio| ratio < 1.0,
        ),
    ]
}

/// Figure 4.
pub(super) fn mixed(measured: &Measured) -> Vec<Claim> {
    vec![
        ahead(
            "with reads in the mix Alphard outperforms the others in throughput",
            measured,
            OTHERS,
        ),
        quicker("and in the latency of writes", measured),
        claim(
            "and of reads",
            against(measured, OTHERS, (Column::ReadMean, false), any),
            |ratio| ratio < 1.0,
        ),
    ]
}
