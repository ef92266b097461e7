//! Table 1, figures 3 and 4: who is compared, at which points, and what of it
//! is shown.
//!
//! What the paper does, and what is done here where it leaves something open or
//! a small machine cannot follow:
//!
//! - A device of 50 GB and 8 GB of memory: here data 6 times the memory limit
//!   (page cache included), to scale.
//! - Keys of 4 bytes, as in its tests.
//! - Every write is synced. The paper does not say what its stores promised; it
//!   ran Berkeley DB without transactions. Here Berkeley DB has them, Tokyo
//!   Cabinet and SQLite sync each write.
//! - As many deletes as writes, of the oldest keys. Reads are of keys that are
//!   there.
//! - The size of values is not said for the sweep of rates: 4 KB here, and for
//!   table 1 64 KB.
//! - So many threads issue operations, each waiting for its own: that is how
//!   many are in flight. A rate is an open loop over all of them, in which
//!   waiting for a thread counts as latency; `peak` is as fast as it goes, and `70 %` an
//!   open loop at so much of what each store had at its own peak, in the same run.
//! - Alphard on a raw device needs one, whose contents are lost:
//!   `kvzone reproduce alphard/fig3 --device /dev/...`; without, it is left
//!   out, and said so.

use super::super::chosen;
use super::super::grid::Claim;
use super::claims;
use super::measure::Measured;

/// Alphard in a file, as rows call it and as the adapter is named.
pub(super) const FILE: &str = "alphard-file";
/// Alphard on a block device.
pub(super) const RAW: &str = "alphard-raw";
/// The paper's others.
pub(super) const BERKELEY_DB: &str = "berkeleydb";
pub(super) const TOKYO_CABINET: &str = "tokyocabinet";
pub(super) const SQLITE: &str = "sqlite";

/// Of a point without a rate.
pub(super) const PEAK: &str = "peak";

/// A table or figure of the paper.
pub(super) struct Figure {
    /// As on the command line.
    pub(super) name: &'static str,
    /// One line for people.
    pub(super) title: &'static str,
    /// What is issued.
    pub(super) workload: &'static str,
    /// What that is, for the conditions.
    pub(super) what: &'static str,
    /// Along the axis.
    pub(super) points: &'static [Point],
    /// Columns behind point and store.
    pub(super) columns: &'static [Column],
    /// The paper's sentences, held against what was measured.
    pub(super) claims: fn(&Measured) -> Vec<Claim>,
}

/// A store as it takes part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contestant {
    /// What rows call it.
    pub(super) label: &'static str,
    /// The adapter's name.
    pub(super) store: &'static str,
    /// Settings of its own.
    pub(super) options: &'static [(&'static str, &'static str)],
}

/// A place on the axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    /// What rows call it.
    pub(super) label: &'static str,
    /// Left out unless all points are asked for.
    pub(super) extra: bool,
    /// Bytes of a value.
    pub(super) value_bytes: u64,
    /// Operations a second over all threads; none: as fast as it goes.
    pub(super) rate: Option<f64>,
    /// In place of a rate: so much of what each store had at another point.
    pub(super) share: Option<Share>,
}

/// A part of each store's own rate at a point that was measured before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// That point.
    pub(super) of: &'static str,
    /// From 0 to 1.
    pub(super) part: f64,
}

impl chosen::Contestant for Contestant {
    fn plain(store: &'static str) -> Self {
        Contestant {
            label: store,
            store,
            options: &[],
        }
    }

    fn store(&self) -> &'static str {
        self.store
    }
}

impl chosen::Labelled for Point {
    fn label(&self) -> &'static str {
        self.label
    }

    fn is_extra(&self) -> bool {
        self.extra
    }
}

/// What a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// Operations a second, or why there are none.
    Rate,
    /// Of the first store's rate and this one's.
    Ratio,
    /// Bytes of keys and values that were put, and of keys deleted, a second.
    MegaBytes,
    /// Mean, standard deviation and 99th percentile of inserts, in milliseconds.
    WriteMean,
    WriteDeviation,
    WriteTail,
    /// Mean of reads, in milliseconds.
    ReadMean,
    /// Bytes sent to the device by user bytes written.
    WriteAmplification,
    /// Processor time for each operation, in microseconds.
    Cpu,
}

impl Column {
    /// The head of its column.
    pub(super) fn head(self) -> &'static str {
        match self {
            Column::Rate => "ops/s",
            Column::Ratio => "ratio",
            Column::MegaBytes => "MB/s",
            Column::WriteMean => "write ms",
            Column::WriteDeviation => "stdev ms",
            Column::WriteTail => "write p99 ms",
            Column::ReadMean => "read ms",
            Column::WriteAmplification => "write amp",
            Column::Cpu => "CPU µs/op",
        }
    }
}

const fn store(label: &'static str) -> Contestant {
    Contestant {
        label,
        store: label,
        options: &[],
    }
}

/// Of all figures; the first is compared with the others.
pub(super) const CONTESTANTS: &[Contestant] = &[
    store(FILE),
    store(RAW),
    store(BERKELEY_DB),
    store(TOKYO_CABINET),
    Contestant {
        label: "tokyocabinet tree",
        store: TOKYO_CABINET,
        options: &[("type", "tree")],
    },
    store(SQLITE),
];

const fn rate(label: &'static str, rate: f64, extra: bool) -> Point {
    Point {
        label,
        extra,
        value_bytes: 4 << 10,
        rate: Some(rate),
        share: None,
    }
}

const fn size(label: &'static str, kib: u64, extra: bool) -> Point {
    Point {
        label,
        extra,
        value_bytes: kib << 10,
        rate: None,
        share: None,
    }
}

/// 70 % of each store's own peak, which is a point before.
const fn share(label: &'static str, kib: u64, of: &'static str) -> Point {
    Point {
        share: Some(Share { of, part: 0.7 }),
        ..size(label, kib, true)
    }
}

/// Rates of 4 KB values, and sizes as fast as it goes; 4 KB is both. By default a rate that
/// all reach, one that is past what the others reach, and two sizes: each point loads every
/// store anew, and loading small values takes the others longest.
const POINTS: &[Point] = &[
    rate("250/s", 250.0, true),
    rate("1000/s", 1_000.0, false),
    rate("2000/s", 2_000.0, true),
    rate("4000/s", 4_000.0, true),
    rate("8000/s", 8_000.0, true),
    rate("16000/s", 16_000.0, false),
    rate("24000/s", 24_000.0, true),
    size("1 KB peak", 1, true),
    share("1 KB 70 %", 1, "1 KB peak"),
    size("4 KB peak", 4, false),
    share("4 KB 70 %", 4, "4 KB peak"),
    size("16 KB peak", 16, true),
    share("16 KB 70 %", 16, "16 KB peak"),
    size("64 KB peak", 64, true),
    share("64 KB 70 %", 64, "64 KB peak"),
    size("256 KB peak", 256, false),
    share("256 KB 70 %", 256, "256 KB peak"),
];

/// All of them.
pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "alphard/table1",
        title: "KVZone paper, table 1: write performance of stores",
        workload: "churn",
        what: "50 % writes and 50 % deletes, as fast as it goes",
        points: &[size(PEAK, 64, false)],
        columns: &[
            Column::Rate,
            Column::Ratio,
            Column::MegaBytes,
            Column::WriteMean,
            Column::WriteDeviation,
            Column::WriteAmplification,
            Column::Cpu,
        ],
        claims: claims::table,
    },
    Figure {
        name: "alphard/fig3",
        title: "KVZone paper, figure 3: writes and as many deletes",
        workload: "churn",
        what: "50 % writes and 50 % deletes",
        points: POINTS,
        columns: &[
            Column::Rate,
            Column::Ratio,
            Column::MegaBytes,
            Column::WriteMean,
            Column::WriteTail,
            Column::WriteAmplification,
            Column::Cpu,
        ],
        claims: claims::writes,
    },
    Figure {
        name: "alphard/fig4",
        title: "KVZone paper, figure 4: reads, writes and as many deletes",
        workload: "churn-read",
        what: "50 % reads, 25 % writes and 25 % deletes",
        points: POINTS,
        columns: &[
            Column::Rate,
            Column::Ratio,
            Column::MegaBytes,
            Column::WriteMean,
            Column::WriteTail,
            Column::ReadMean,
            Column::Cpu,
        ],
        claims: claims::mixed,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_unique_and_workloads_are_known() {
        let unique = |mut labels: Vec<&str>| {
            let all = labels.len();
            labels.sort_unstable();
            labels.dedup();
            assert_eq!(labels.len(), all, "{labels:?}");
        };
        unique(CONTESTANTS.iter().map(|one| one.label).collect());
        for figure in FIGURES {
            unique(figure.points.iter().map(|point| point.label).collect());
            assert!(kvzone_core::workload::find(figure.workload).is_ok());
            assert!(figure.points.iter().any(|point| !point.extra));
            for (number, point) in figure.points.iter().enumerate() {
                let Some(share) = point.share else {
                    continue;
                };
                let before = figure.points[..number].iter();
                let peak = before.rev().find(|before| before.label == share.of);
                let peak = peak.expect("a share is of a point before it");
                assert_eq!(peak.value_bytes, point.value_bytes);
            }
        }
    }
}
