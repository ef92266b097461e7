//! The sentences of section 4.2 that can be held against a measurement.
//!
//! What is judged is the direction: who is ahead, what grows and what shrinks.

use kvzone_core::report::text::three_digits;

use super::super::grid::Claim;
use super::figures::{COUCHSTORE, Column, FOREST};
use super::measure::Measured;

const OTHERS: [&str; 3] = ["leveldb", "rocksdb", COUCHSTORE];
const MERGING: [&str; 2] = ["leveldb", "rocksdb"];

/// `a 1.20, b 3.40`; none if any is missing.
fn listed(names: &[&str], figure: impl Fn(&str) -> Option<f64>) -> Option<(String, Vec<f64>)> {
    let values: Option<Vec<f64>> = names.iter().map(|name| figure(name)).collect();
    let values = values?;
    let words: Vec<String> = names
        .iter()
        .zip(&values)
        .map(|(name, value)| format!("{name} {}", three_digits(*value)))
        .collect();
    Some((words.join(", "), values))
}

fn with_forest<'a>(others: &[&'a str]) -> Vec<&'a str> {
    std::iter::once(FOREST)
        .chain(others.iter().copied())
        .collect()
}

/// The first of the values is above all others.
fn first_is_most(values: &[f64]) -> bool {
    values.iter().skip(1).all(|value| values[0] > *value)
}

/// Figure 14.
pub(super) fn key_lengths(measured: &Measured) -> Vec<Claim> {
    let ends = measured.ends("mixed");
    let change = |workload: &'static str, column, label: &str| {
        let (first, last) = ends?;
        let at = |point| measured.figure(point, label, workload, column);
        Some(at(last)? / at(first)?)
    };
    let all = with_forest(&OTHERS);
    let falls = listed(&all, |label| {
        change("mixed", Column::Rate, label).map(|ratio| 1.0 / ratio)
    });
    let forest_fall = change("mixed", Column::Rate, FOREST);
    let growth = listed(&all, |label| {
        change("overwrite", Column::WriteAmplification, label)
    });
    let last = |column, workload: &'static str| {
        move |label: &str| measured.figure(ends?.1, label, workload, column)
    };
    vec![
        Claim::new(
            "with longer keys LevelDB, RocksDB and Couchstore lose throughput by factors of 3 to 11.3, ForestDB least",
            falls.map(|(words, falls)| {
                let least = falls.iter().skip(1).all(|fall| falls[0] < *fall);
                (format!("shortest by longest: {words}"), least)
            }),
        ),
        Claim::new(
            "ForestDB loses 37 % from 16 to 1,024 bytes",
            forest_fall.map(|ratio| (format!("{:.0} %", 100.0 * (1.0 - ratio)), ratio >= 0.63)),
        ),
        Claim::new(
            "with the longest keys ForestDB's throughput is the highest",
            listed(&all, last(Column::Rate, "mixed"))
                .map(|(words, rates)| (words, first_is_most(&rates))),
        ),
        Claim::new(
            "write amplification grows with the key length in the others, ForestDB's hardly changes",
            growth.map(|(words, growth)| {
                let least = growth.iter().skip(1).all(|other| growth[0] < *other);
                (format!("longest by shortest: {words}"), least)
            }),
        ),
        Claim::new(
            "LevelDB writes far more than the others",
            listed(
                &["leveldb", "rocksdb", FOREST, COUCHSTORE],
                last(Column::WriteAmplification, "overwrite"),
            )
            .map(|(words, writes)| (words, first_is_most(&writes))),
        ),
    ]
}

/// Figure 15.
pub(super) fn ratios_and_readers(measured: &Measured) -> Vec<Claim> {
    let rate = |point: &'static str, workload: &'static str| {
        move |label: &str| measured.rate(point, label, workload)
    };
    let by = |above: &'static str, below: &'static str, workload: &'static str| {
        move |label: &str| Some(rate(above, workload)(label)? / rate(below, workload)(label)?)
    };
    let logs = with_forest(&MERGING);
    let own = [FOREST, COUCHSTORE];
    vec![
        Claim::new(
            "the more updates, the more throughput of LevelDB, RocksDB and ForestDB",
            listed(&logs, by("100 % updates", "20 % updates", "mixed")).map(|(words, gains)| {
                let all = gains.iter().all(|gain| *gain > 1.0);
                (format!("100 % by 20 %: {words}"), all)
            }),
        ),
        Claim::new(
            "Couchstore's throughput hardly depends on the share of updates",
            listed(
                &with_forest(&[COUCHSTORE]),
                by("100 % updates", "20 % updates", "mixed"),
            )
            .map(|(words, gains)| (format!("100 % by 20 %: {words}"), gains[1] < gains[0])),
        ),
        Claim::new(
            "ForestDB reads faster than LevelDB and RocksDB with Bloom filters",
            listed(&logs, rate("0 % updates", "mixed"))
                .map(|(words, rates)| (words, first_is_most(&rates))),
        ),
        Claim::new(
            "a writer hardly slows the reads of ForestDB and Couchstore down",
            listed(
                &own,
                by("1 reader, writer", "1 reader alone", "read-random"),
            )
            .map(|(words, shares)| {
                let all = shares.iter().all(|share| *share >= 0.9);
                (format!("with a writer by without: {words}"), all)
            }),
        ),
        Claim::new(
            "a writer slows the reads of LevelDB and RocksDB down",
            listed(
                &MERGING,
                by("1 reader, writer", "1 reader alone", "read-random"),
            )
            .map(|(words, shares)| {
                let all = shares.iter().all(|share| *share < 0.9);
                (format!("with a writer by without: {words}"), all)
            }),
        ),
        Claim::new(
            "more readers read more, in all stores",
            listed(
                &with_forest(&OTHERS),
                by("4 readers, writer", "1 reader, writer", "read-random"),
            )
            .map(|(words, gains)| {
                (
                    format!("4 by 1: {words}"),
                    gains.iter().all(|gain| *gain > 1.0),
                )
            }),
        ),
    ]
}

/// Figure 16.
pub(super) fn scans(measured: &Measured) -> Vec<Claim> {
    let compacted = "forest (c)";
    let rate = |label: &str| measured.rate("1000", label, "scan-random");
    let several = |names: &[&str]| listed(names, rate);
    vec![
        Claim::new(
            "LevelDB scans fastest",
            several(&["leveldb", compacted, FOREST, COUCHSTORE])
                .map(|(words, rates)| (words, first_is_most(&rates))),
        ),
        Claim::new(
            "after a compaction ForestDB scans almost as fast as LevelDB",
            several(&[compacted, "leveldb"])
                .map(|(words, rates)| (words, rates[0] >= 0.8 * rates[1])),
        ),
        Claim::new(
            "a compaction makes ForestDB's scans faster",
            several(&[compacted, FOREST]).map(|(words, rates)| (words, first_is_most(&rates))),
        ),
        Claim::new(
            "Couchstore scans slowly even after a compaction",
            several(&[compacted, "forest-couchstore (c)"])
                .map(|(words, rates)| (words, first_is_most(&rates))),
        ),
    ]
}

/// Figure 17.
pub(super) fn ablations(measured: &Measured) -> Vec<Claim> {
    let point = "32-byte keys";
    let rate = |label: &str| measured.rate(point, label, "mixed");
    let writes =
        |label: &str| measured.named(point, label, "overwrite", Column::WriteAmplification);
    let two = |a: &'static str, b: &'static str, figure: &dyn Fn(&str) -> Option<f64>| {
        listed(&[a, b], figure).map(|(words, values)| (words, first_is_most(&values)))
    };
    vec![
        Claim::new(
            "the trie raises throughput, with a write buffer",
            two("HB+-trie + WB", "B+-tree + WB", &rate),
        ),
        Claim::new(
            "the trie raises throughput, without one",
            two("HB+-trie", "B+-tree", &rate),
        ),
        Claim::new(
            "the write buffer lessens write amplification of the trie",
            two("HB+-trie", "HB+-trie + WB", &writes),
        ),
        Claim::new(
            "the write buffer lessens write amplification of the B+-tree",
            two("B+-tree", "B+-tree + WB", &writes),
        ),
    ]
}

/// Figure 18.
pub(super) fn locality(measured: &Measured) -> Vec<Claim> {
    let gain = |label: &str| {
        let at = |point| measured.rate(point, label, "mixed");
        Some(at("1")? / at("0")?)
    };
    let gains = listed(&with_forest(&OTHERS), gain);
    vec![
        Claim::new(
            "throughput of all stores rises with locality",
            gains.clone().map(|(words, gains)| {
                let all = gains.iter().all(|gain| *gain > 1.0);
                (format!("s = 1 by s = 0: {words}"), all)
            }),
        ),
        Claim::new(
            "that of ForestDB rises most",
            gains.map(|(words, gains)| (words, first_is_most(&gains))),
        ),
    ]
}

/// Figure 19.
pub(super) fn data_sets(measured: &Measured) -> Vec<Claim> {
    let points: Vec<&str> = measured.points.iter().map(|point| point.label).collect();
    let ahead: Option<Vec<bool>> = points
        .iter()
        .map(|point| {
            let rate = |label: &str| measured.rate(point, label, "mixed");
            listed(&with_forest(&OTHERS), rate).map(|(_, rates)| first_is_most(&rates))
        })
        .collect();
    let url = |label: &str| measured.rate("url", label, "mixed");
    let in_memory = |label: &str| measured.rate("profile", label, "mixed");
    vec![
        Claim::new(
            "ForestDB is ahead of the others in all data sets",
            ahead.filter(|all| !all.is_empty()).map(|ahead| {
                let count = ahead.iter().filter(|ahead| **ahead).count();
                (
                    format!("in {count} of {}", ahead.len()),
                    count == ahead.len(),
                )
            }),
        ),
        Claim::new(
            "RocksDB is ahead of LevelDB where data exceed memory (url)",
            listed(&["rocksdb", "leveldb"], url)
                .map(|(words, rates)| (words, first_is_most(&rates))),
        ),
        Claim::new(
            "sets that fit into memory are much faster than url",
            listed(&[FOREST, "leveldb", "rocksdb"], |label| {
                Some(in_memory(label)? / url(label)?)
            })
            .map(|(words, gains)| {
                (
                    format!("profile by url: {words}"),
                    gains.iter().all(|gain| *gain > 1.0),
                )
            }),
        ),
    ]
}
