//! The sentences of section 4.2 that can be held against a measurement.

use super::super::claims::{Claim, above, after, below, each, first_is_least, first_is_most};
use super::super::columns::{RATE, WRITE_AMPLIFICATION};
use super::super::measured::Measured;
use super::{COUCHSTORE, FOREST, LEVELDB, ROCKSDB};

const FOUR: [&str; 4] = [FOREST, LEVELDB, ROCKSDB, COUCHSTORE];
/// Those that write to a log first.
const LOGS: [&str; 3] = [FOREST, LEVELDB, ROCKSDB];

/// Figure 14.
pub(super) fn key_lengths(it: &Measured) -> Vec<Claim> {
    let change = |workload: &str, column, label: &str| {
        let (first, last) = it.ends()?;
        let at = |point| it.figure_of(workload, point, label, column);
        Some(at(last)? / at(first)?)
    };
    let fall = |label: &str| change("mixed", RATE, label).map(f64::recip);
    let growth = |label: &str| change("overwrite", WRITE_AMPLIFICATION, label);
    let last =
        |workload, column| move |label: &str| it.figure_of(workload, it.ends()?.1, label, column);
    let lost = change("mixed", RATE, FOREST).map(|kept| 1.0 - kept);
    vec![
        Claim::on(
            "with longer keys LevelDB, RocksDB and Couchstore lose throughput by factors of 3 to 11.3, ForestDB least",
            after("shortest by longest", each(&FOUR, fall)),
            first_is_least,
        ),
        Claim::new(
            "ForestDB loses 37 % from 16 to 1,024 bytes",
            lost.map(|lost| (format!("{:.0} %", 100.0 * lost), lost <= 0.37)),
        ),
        Claim::on(
            "with the longest keys ForestDB's throughput is the highest",
            each(&FOUR, last("mixed", RATE)),
            first_is_most,
        ),
        Claim::on(
            "write amplification grows with the key length in the others, ForestDB's hardly changes",
            after("longest by shortest", each(&FOUR, growth)),
            first_is_least,
        ),
        Claim::on(
            "LevelDB writes far more than the others",
            each(
                &[LEVELDB, ROCKSDB, FOREST, COUCHSTORE],
                last("overwrite", WRITE_AMPLIFICATION),
            ),
            first_is_most,
        ),
    ]
}

/// Figure 15.
pub(super) fn ratios_and_readers(it: &Measured) -> Vec<Claim> {
    let rate = |point: &'static str| move |label: &str| it.figure(point, label, RATE);
    let by = |above, below| move |label: &str| Some(rate(above)(label)? / rate(below)(label)?);
    let updates = by("100 % updates", "20 % updates");
    let writer = by("1 reader, writer", "1 reader alone");
    vec![
        Claim::on(
            "the more updates, the more throughput of LevelDB, RocksDB and ForestDB",
            after("100 % by 20 %", each(&LOGS, updates)),
            above(1.0),
        ),
        Claim::on(
            "Couchstore's throughput hardly depends on the share of updates",
            after("100 % by 20 %", each(&[FOREST, COUCHSTORE], updates)),
            first_is_most,
        ),
        Claim::on(
            "ForestDB reads faster than LevelDB and RocksDB with Bloom filters",
            each(&LOGS, rate("0 % updates")),
            first_is_most,
        ),
        Claim::on(
            "a writer hardly slows the reads of ForestDB and Couchstore down",
            after(
                "with a writer by without",
                each(&[FOREST, COUCHSTORE], writer),
            ),
            |shares| shares.iter().all(|share| *share >= 0.9),
        ),
        Claim::on(
            "a writer slows the reads of LevelDB and RocksDB down",
            after(
                "with a writer by without",
                each(&[LEVELDB, ROCKSDB], writer),
            ),
            below(0.9),
        ),
        Claim::on(
            "more readers read more, in all stores",
            after(
                "4 by 1",
                each(&FOUR, by("4 readers, writer", "1 reader, writer")),
            ),
            above(1.0),
        ),
    ]
}

/// Figure 16.
pub(super) fn scans(it: &Measured) -> Vec<Claim> {
    let compacted = "forest (c)";
    let rates = |names: &[&str]| each(names, |label| it.figure("1000", label, RATE));
    vec![
        Claim::on(
            "LevelDB scans fastest",
            rates(&[LEVELDB, compacted, FOREST, COUCHSTORE]),
            first_is_most,
        ),
        Claim::on(
            "after a compaction ForestDB scans almost as fast as LevelDB",
            rates(&[compacted, LEVELDB]),
            |rates| rates[0] >= 0.8 * rates[1],
        ),
        Claim::on(
            "a compaction makes ForestDB's scans faster",
            rates(&[compacted, FOREST]),
            first_is_most,
        ),
        Claim::on(
            "Couchstore scans slowly even after a compaction",
            rates(&[compacted, "forest-couchstore (c)"]),
            first_is_most,
        ),
    ]
}

/// Figure 17.
pub(super) fn ablations(it: &Measured) -> Vec<Claim> {
    let more = |paper, workload, column, names: [&str; 2]| {
        let figure = |label: &str| it.figure_of(workload, "32-byte keys", label, column);
        Claim::on(paper, each(&names, figure), first_is_most)
    };
    vec![
        more(
            "the trie raises throughput, with a write buffer",
            "mixed",
            RATE,
            ["HB+-trie + WB", "B+-tree + WB"],
        ),
        more(
            "the trie raises throughput, without one",
            "mixed",
            RATE,
            ["HB+-trie", "B+-tree"],
        ),
        more(
            "the write buffer lessens write amplification of the trie",
            "overwrite",
            WRITE_AMPLIFICATION,
            ["HB+-trie", "HB+-trie + WB"],
        ),
        more(
            "the write buffer lessens write amplification of the B+-tree",
            "overwrite",
            WRITE_AMPLIFICATION,
            ["B+-tree", "B+-tree + WB"],
        ),
    ]
}

/// Figure 18.
pub(super) fn locality(it: &Measured) -> Vec<Claim> {
    let rate = |point, label: &str| it.figure(point, label, RATE);
    let gains = each(&FOUR, |label| Some(rate("1", label)? / rate("0", label)?));
    vec![
        Claim::on(
            "throughput of all stores rises with locality",
            after("s = 1 by s = 0", gains.clone()),
            above(1.0),
        ),
        Claim::on("that of ForestDB rises most", gains, first_is_most),
    ]
}

/// Figure 19.
pub(super) fn data_sets(it: &Measured) -> Vec<Claim> {
    let rate = |point, label: &str| it.figure(point, label, RATE);
    let is_ahead = |point| {
        let rates = each(&FOUR, |label| rate(point, label));
        rates.map(|(_, rates)| first_is_most(&rates))
    };
    let ahead: Option<Vec<bool>> = it.labels().map(is_ahead).collect();
    let ahead = ahead.filter(|all| !all.is_empty()).map(|ahead| {
        let count = ahead.iter().filter(|ahead| **ahead).count();
        (
            format!("in {count} of {}", ahead.len()),
            count == ahead.len(),
        )
    });
    vec![
        Claim::new("ForestDB is ahead of the others in all data sets", ahead),
        Claim::on(
            "RocksDB is ahead of LevelDB where data exceed memory (url)",
            each(&[ROCKSDB, LEVELDB], |label| rate("url", label)),
            first_is_most,
        ),
        Claim::on(
            "sets that fit into memory are much faster than url",
            after(
                "profile by url",
                each(&LOGS, |label| {
                    Some(rate("profile", label)? / rate("url", label)?)
                }),
            ),
            above(1.0),
        ),
    ]
}
