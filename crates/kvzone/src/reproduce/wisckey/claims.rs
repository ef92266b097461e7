//! Sentences of sections 2 to 4 that can be held against a measurement.
//!
//! What is judged is the direction: who is ahead, what grows and what shrinks.

use kvzone_core::report::text::three_digits;

use super::super::grid::Claim;
use super::figures::{Column, LEVELDB, WISCKEY};
use super::measure::Measured;

/// `64 B 1.20, 1 KB 3.40`: what a store has of a column by what another has, at
/// each point where both were measured.
fn by_point(
    measured: &Measured,
    column: Column,
    (one, other): (&str, &str),
    choose: impl Fn(&str) -> bool,
) -> Option<(String, Vec<f64>)> {
    let found: Vec<(&str, f64)> = measured
        .labels()
        .filter(|label| choose(label))
        .filter_map(|label| {
            let one = measured.figure(label, one, column)?;
            let other = measured.figure(label, other, column)?;
            (other > 0.0).then_some((label, one / other))
        })
        .collect();
    let words: Vec<String> = found
        .iter()
        .map(|(label, ratio)| format!("{label}: {} times", three_digits(*ratio)))
        .collect();
    let ratios: Vec<f64> = found.iter().map(|&(_, ratio)| ratio).collect();
    (!ratios.is_empty()).then(|| (words.join(", "), ratios))
}

/// A claim on all those ratios.
fn on_ratios(
    paper: &'static str,
    found: Option<(String, Vec<f64>)>,
    holds: impl Fn(&[f64]) -> bool,
) -> Claim {
    Claim::new(paper, found.map(|(words, ratios)| (words, holds(&ratios))))
}

const OURS: (&str, &str) = (WISCKEY, LEVELDB);

fn all_above(bound: f64) -> impl Fn(&[f64]) -> bool {
    move |ratios| ratios.iter().all(|&ratio| ratio > bound)
}

fn any(_: &str) -> bool {
    true
}

/// Figure 2.
pub(super) fn amplification(measured: &Measured) -> Vec<Claim> {
    let growth = |column| {
        let small = measured.figure("1 GB", LEVELDB, column)?;
        let large = measured.figure("100 GB", LEVELDB, column)?;
        let words = format!("{} and {}", three_digits(small), three_digits(large));
        Some((words, large > small))
    };
    vec![
        Claim::new(
            "LevelDB's write amplification grows from 3.1 with 1 GB to 14 with 100 GB",
            growth(Column::WriteAmplification),
        ),
        Claim::new(
            "its read amplification grows from 8.2 to 327",
            growth(Column::ReadAmplification),
        ),
    ]
}

/// Figure 7.
pub(super) fn sequential_load(measured: &Measured) -> Vec<Claim> {
    let found = by_point(measured, Column::Rate, OURS, any);
    vec![on_ratios(
        "sequential load is faster than LevelDB's at every size, 3 times with small values",
        found,
        all_above(1.0),
    )]
}

/// Figure 8.
pub(super) fn waiting(measured: &Measured) -> Vec<Claim> {
    let ends = || {
        let mut labels = measured.labels();
        let first = labels.next()?;
        let last = labels.last()?;
        let at = |label| measured.figure(label, LEVELDB, Column::Waiting);
        Some((at(first)?, at(last)?))
    };
    vec![Claim::new(
        "with large values waiting for memtables to be flushed is LevelDB's bottleneck, with small ones writing to the log",
        ends().map(|(small, large)| {
            let words = format!("{} % and {} %", three_digits(large), three_digits(small));
            (words, large > small)
        }),
    )]
}

/// Figure 9.
pub(super) fn random_load(measured: &Measured) -> Vec<Claim> {
    let at =
        |size: &'static str| by_point(measured, Column::Rate, OURS, move |label| label == size);
    vec![
        on_ratios(
            "random load is faster than LevelDB's at every size",
            by_point(measured, Column::Rate, OURS, any),
            all_above(1.0),
        ),
        on_ratios("46 times as fast at 1 KB", at("1 KB"), all_above(1.0)),
        on_ratios("111 times as fast at 4 KB", at("4 KB"), all_above(1.0)),
    ]
}

/// Figure 10.
pub(super) fn write_amplification(measured: &Measured) -> Vec<Claim> {
    let of = |label: &str, size: &str| measured.figure(size, label, Column::WriteAmplification);
    let sizes: Vec<&str> = measured.labels().filter(|&label| label != "64 B").collect();
    let falling =
        |label: &str| -> Option<Vec<f64>> { sizes.iter().map(|size| of(label, size)).collect() };
    let words = |values: &[f64]| {
        let words: Vec<String> = values.iter().map(|value| three_digits(*value)).collect();
        words.join(", ")
    };
    vec![
        Claim::new(
            "WiscKey's write amplification falls to nearly 1 from values of 1 KB on",
            falling(WISCKEY)
                .filter(|values| !values.is_empty())
                .map(|values| (words(&values), values.iter().all(|value| *value < 1.4))),
        ),
        on_ratios(
            "LevelDB's is always more than 12, so more than WiscKey's",
            by_point(
                measured,
                Column::WriteAmplification,
                (LEVELDB, WISCKEY),
                any,
            ),
            all_above(1.0),
        ),
    ]
}

/// Figure 11.
pub(super) fn lookups(measured: &Measured) -> Vec<Claim> {
    vec![on_ratios(
        "random lookups are faster than LevelDB's, 12 times at 1 KB",
        by_point(measured, Column::Rate, OURS, any),
        all_above(1.0),
    )]
}

/// Figure 12.
pub(super) fn ranges(measured: &Measured) -> Vec<Claim> {
    let of = |kind: &'static str, small: bool| {
        by_point(measured, Column::Rate, OURS, move |label| {
            label.starts_with(kind) && label.ends_with(" B") == small
        })
    };
    vec![
        on_ratios(
            "on randomly loaded data, 64-byte values are scanned 12 times slower than by LevelDB",
            of("random", true),
            |ratios| ratios.iter().all(|&ratio| ratio < 1.0),
        ),
        on_ratios(
            "and larger ones up to 8.4 times faster",
            by_point(measured, Column::Rate, OURS, |label| {
                label.starts_with("random") && label.ends_with("KB")
            }),
            all_above(1.0),
        ),
        on_ratios(
            "on sequentially loaded data 64-byte values are 25 % slower",
            of("sequential", true),
            |ratios| ratios.iter().all(|&ratio| ratio < 1.0),
        ),
        on_ratios(
            "and large ones up to 2.8 times faster",
            of("sequential", false),
            all_above(1.0),
        ),
    ]
}

/// Figure 14.
pub(super) fn space(measured: &Measured) -> Vec<Claim> {
    let column = Column::SpaceAmplification;
    vec![
        on_ratios(
            "garbage collection brings the size close to that of the data: less than without it",
            by_point(measured, column, ("wisckey-gc", WISCKEY), any),
            |ratios| ratios.iter().all(|&ratio| ratio < 1.0),
        ),
        on_ratios(
            "LevelDB's space is more than that of WiscKey with garbage collection",
            by_point(measured, column, (LEVELDB, "wisckey-gc"), any),
            all_above(1.0),
        ),
    ]
}

/// Figure 15.
pub(super) fn ycsb(measured: &Measured) -> Vec<Claim> {
    let gc = ("wisckey-gc", LEVELDB);
    let of = |begins: &'static str| {
        by_point(measured, Column::Rate, gc, move |label| {
            label.starts_with(begins)
        })
    };
    vec![
        on_ratios(
            "load is at least 45 times as fast as LevelDB's, garbage collection on",
            of("load"),
            all_above(1.0),
        ),
        on_ratios(
            "A, B, C, D and F are ahead of LevelDB at both sizes",
            by_point(measured, Column::Rate, gc, |label| {
                !label.starts_with("load") && !label.starts_with('E')
            }),
            all_above(1.0),
        ),
        on_ratios(
            "E, short scans, is ahead even with 1 KB values",
            of("E"),
            all_above(1.0),
        ),
    ]
}

/// Table 1.
pub(super) fn processor(measured: &Measured) -> Vec<Claim> {
    let of = |point: &'static str| {
        by_point(measured, Column::Processor, OURS, move |label| {
            label == point
        })
    };
    vec![
        on_ratios(
            "sequential load takes less of the processors than LevelDB's",
            of("Seq-Load"),
            |ratios| ratios.iter().all(|&ratio| ratio < 1.0),
        ),
        on_ratios(
            "range queries take much more, by the 32 threads that prefetch",
            of("Range-Query"),
            all_above(1.0),
        ),
    ]
}
