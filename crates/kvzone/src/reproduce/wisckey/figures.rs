//! Figures of WiscKey (FAST 2016) that compare stores: who takes part, at which
//! points, and what of it is shown.
//!
//! What the paper does, and what is done here where it leaves something open or
//! a small machine cannot follow:
//!
//! - 100 GB of data at every value size, keys of 16 bytes: here the bytes to
//!   scale. The paper's machine had 64 GB of memory; the limit of a worker, page
//!   cache included, is the same share of the data, but not below what the
//!   programs need.
//! - LevelDB as it comes has a write buffer of 4 MB. All stores have that here,
//!   and filters of 10 bits a key; nothing is compressed, and no value compresses.
//! - Writes are handed to the operating system and not synced, as in db_bench.
//! - Figure 8 splits LevelDB's time by its parts, which no interface of it tells.
//!   What can be seen from outside is shown: the time of puts beyond the median
//!   one is time in which writers waited.
//! - Random load puts each key once. For figure 14 as many keys are put again,
//!   chosen at random, so that there is garbage.

use super::super::chosen;
use super::super::grid::Claim;
use super::claims;
use super::measure::Measured;

/// Name of the engine among the stores.
pub(super) const WISCKEY: &str = "wisckey";
/// The paper's other store.
pub(super) const LEVELDB: &str = "leveldb";

/// A figure of the paper.
pub(super) struct Figure {
    /// As on the command line.
    pub(super) name: &'static str,
    /// One line for people.
    pub(super) title: &'static str,
    /// Head of the column of points.
    pub(super) axis: &'static str,
    /// What is issued, for the conditions.
    pub(super) what: &'static str,
    /// The first is compared with the others.
    pub(super) contestants: &'static [Contestant],
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
    /// What is issued.
    pub(super) workload: &'static str,
    /// Of a value.
    pub(super) value_bytes: u64,
    /// Bytes of data in the paper.
    pub(super) paper_bytes: f64,
    /// From an empty page cache.
    pub(super) cold: bool,
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
    /// User bytes a second, in units of 10^6.
    MegaBytes,
    /// User bytes a second, in percent of what one thread writes to one file.
    OfFile,
    /// Of the first store's rate and this one's.
    Ratio,
    /// Bytes sent to the device by user bytes, of the load.
    WriteAmplification,
    /// Bytes read from the device by user bytes.
    ReadAmplification,
    /// Device reads for each lookup.
    ReadsPerGet,
    /// Bytes on the disk by live user bytes.
    SpaceAmplification,
    /// Of the median operation, microseconds.
    Median,
    /// Share of time in operations beyond the median one, percent.
    Waiting,
    /// Processor time by time, percent of one processor.
    Processor,
}

impl Column {
    /// The head of its column.
    pub(super) fn head(self) -> &'static str {
        match self {
            Column::Rate => "ops/s",
            Column::MegaBytes => "MB/s",
            Column::OfFile => "of a file %",
            Column::Ratio => "ratio",
            Column::WriteAmplification => "write amp",
            Column::ReadAmplification => "read amp",
            Column::ReadsPerGet => "reads/get",
            Column::SpaceAmplification => "space amp",
            Column::Median => "p50 µs",
            Column::Waiting => "beyond p50 %",
            Column::Processor => "CPU %",
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

const fn variant(
    label: &'static str,
    options: &'static [(&'static str, &'static str)],
) -> Contestant {
    Contestant {
        label,
        store: WISCKEY,
        options,
    }
}

const TWO: &[Contestant] = &[store(WISCKEY), store(LEVELDB), store("rocksdb")];

/// The paper's data set.
const DATA: f64 = 100e9;

const fn point(label: &'static str, workload: &'static str, value_bytes: u64) -> Point {
    Point {
        label,
        extra: false,
        workload,
        value_bytes,
        paper_bytes: DATA,
        cold: false,
    }
}

const fn extra(point: Point) -> Point {
    Point {
        extra: true,
        ..point
    }
}

const fn cold(point: Point) -> Point {
    Point {
        cold: true,
        ..point
    }
}

/// The sizes of figures 7 to 12.
const fn sizes(workload: &'static str) -> [Point; 7] {
    [
        point("64 B", workload, 64),
        extra(point("256 B", workload, 256)),
        point("1 KB", workload, 1 << 10),
        point("4 KB", workload, 4 << 10),
        extra(point("16 KB", workload, 16 << 10)),
        extra(point("64 KB", workload, 64 << 10)),
        point("256 KB", workload, 256 << 10),
    ]
}

const SEQUENTIAL: &[Point] = &sizes("fill-sequential");
const RANDOM: &[Point] = &sizes("fill-random");
const OVERWRITTEN: &[Point] = &sizes("overwrite");

const LOADS: &[Column] = &[
    Column::Rate,
    Column::MegaBytes,
    Column::OfFile,
    Column::Ratio,
    Column::WriteAmplification,
    Column::Processor,
];
const READS: &[Column] = &[
    Column::Rate,
    Column::MegaBytes,
    Column::Ratio,
    Column::ReadAmplification,
    Column::Processor,
];

/// All of them.
pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "wisckey/fig2",
        title: "WiscKey paper, figure 2: write and read amplification of LevelDB",
        axis: "data",
        what: "random load of 1 KB values, then random lookups, at two sizes of the data",
        contestants: &[store(LEVELDB), store("rocksdb"), store(WISCKEY)],
        points: &[
            Point {
                paper_bytes: DATA / 100.0,
                ..cold(point("1 GB", "read-random", 1 << 10))
            },
            cold(point("100 GB", "read-random", 1 << 10)),
        ],
        columns: &[
            Column::WriteAmplification,
            Column::ReadAmplification,
            Column::Rate,
        ],
        claims: claims::amplification,
    },
    Figure {
        name: "wisckey/fig7",
        title: "WiscKey paper, figure 7: sequential load",
        axis: "value",
        what: "every key put once, in key order",
        contestants: TWO,
        points: SEQUENTIAL,
        columns: LOADS,
        claims: claims::sequential_load,
    },
    Figure {
        name: "wisckey/fig8",
        title: "WiscKey paper, figure 8: where time goes in sequential load",
        axis: "value",
        what: "every key put once, in key order; what is beyond the median put is waiting",
        contestants: &[store(LEVELDB), store(WISCKEY)],
        points: SEQUENTIAL,
        columns: &[
            Column::MegaBytes,
            Column::Median,
            Column::Waiting,
            Column::Processor,
        ],
        claims: claims::waiting,
    },
    Figure {
        name: "wisckey/fig9",
        title: "WiscKey paper, figure 9: random load",
        axis: "value",
        what: "every key put once, in random order",
        contestants: TWO,
        points: RANDOM,
        columns: LOADS,
        claims: claims::random_load,
    },
    Figure {
        name: "wisckey/fig10",
        title: "WiscKey paper, figure 10: write amplification of random load",
        axis: "value",
        what: "every key put once, in random order",
        contestants: TWO,
        points: RANDOM,
        columns: &[Column::WriteAmplification, Column::SpaceAmplification],
        claims: claims::write_amplification,
    },
    Figure {
        name: "wisckey/fig11",
        title: "WiscKey paper, figure 11: random lookups",
        axis: "value",
        what: "gets of random keys from randomly loaded data, from an empty page cache",
        contestants: TWO,
        points: &LOOKUPS,
        columns: &[
            Column::Rate,
            Column::MegaBytes,
            Column::Ratio,
            Column::ReadsPerGet,
            Column::ReadAmplification,
        ],
        claims: claims::lookups,
    },
    Figure {
        name: "wisckey/fig12",
        title: "WiscKey paper, figure 12: range queries",
        axis: "load and value",
        what: "one scan of a twenty-fifth of the data after the other, from an empty page cache",
        contestants: TWO,
        points: &[
            cold(point("random, 64 B", "scan-random", 64)),
            cold(extra(point("random, 256 B", "scan-random", 256))),
            cold(extra(point("random, 1 KB", "scan-random", 1 << 10))),
            cold(point("random, 4 KB", "scan-random", 4 << 10)),
            cold(extra(point("random, 16 KB", "scan-random", 16 << 10))),
            cold(point("random, 64 KB", "scan-random", 64 << 10)),
            cold(extra(point("random, 256 KB", "scan-random", 256 << 10))),
            cold(point("sequential, 64 B", "scan-sorted", 64)),
            cold(extra(point("sequential, 1 KB", "scan-sorted", 1 << 10))),
            cold(point("sequential, 4 KB", "scan-sorted", 4 << 10)),
            cold(extra(point("sequential, 64 KB", "scan-sorted", 64 << 10))),
        ],
        columns: READS,
        claims: claims::ranges,
    },
    Figure {
        name: "wisckey/fig14",
        title: "WiscKey paper, figure 14: space amplification",
        axis: "value",
        what: "as many puts of random keys as there are, on randomly loaded data; \
            without garbage collection and with it, to 110 % of what is live",
        contestants: &[
            variant("wisckey-gc", &[("space_limit", "110")]),
            variant("wisckey", &[("collection", "off")]),
            store(LEVELDB),
        ],
        points: OVERWRITTEN,
        columns: &[
            Column::SpaceAmplification,
            Column::Rate,
            Column::Ratio,
            Column::WriteAmplification,
        ],
        claims: claims::space,
    },
    Figure {
        name: "wisckey/fig15",
        title: "WiscKey paper, figure 15: YCSB",
        axis: "workload and value",
        what: "load, and YCSB A to F on what was loaded; wisckey-gc collects garbage, wisckey not",
        contestants: &[
            store(LEVELDB),
            store("rocksdb"),
            store("rocksdb-blob"),
            variant("wisckey-gc", &[]),
            variant("wisckey", &[("collection", "off")]),
        ],
        points: &[
            point("load, 1 KB", "fill-random", 1 << 10),
            point("A, 1 KB", "ycsb-a", 1 << 10),
            extra(point("B, 1 KB", "ycsb-b", 1 << 10)),
            extra(point("C, 1 KB", "ycsb-c", 1 << 10)),
            extra(point("D, 1 KB", "ycsb-d", 1 << 10)),
            point("E, 1 KB", "ycsb-e", 1 << 10),
            extra(point("F, 1 KB", "ycsb-f", 1 << 10)),
            point("load, 16 KB", "fill-random", 16 << 10),
            extra(point("A, 16 KB", "ycsb-a", 16 << 10)),
            extra(point("B, 16 KB", "ycsb-b", 16 << 10)),
            extra(point("C, 16 KB", "ycsb-c", 16 << 10)),
            extra(point("D, 16 KB", "ycsb-d", 16 << 10)),
            extra(point("E, 16 KB", "ycsb-e", 16 << 10)),
            extra(point("F, 16 KB", "ycsb-f", 16 << 10)),
        ],
        columns: &[Column::Rate, Column::Ratio, Column::Processor],
        claims: claims::ycsb,
    },
    Figure {
        name: "wisckey/table1",
        title: "WiscKey paper, table 1: processor time",
        axis: "workload",
        what: "1 KB values; loads, then lookups and scans of what was loaded at random",
        contestants: &[store(WISCKEY), store(LEVELDB)],
        points: &[
            point("Seq-Load", "fill-sequential", 1 << 10),
            point("Rand-Load", "fill-random", 1 << 10),
            cold(point("Rand-Lookup", "read-random", 1 << 10)),
            cold(point("Range-Query", "scan-random", 1 << 10)),
        ],
        columns: &[Column::Processor, Column::Rate],
        claims: claims::processor,
    },
];

const LOOKUPS: [Point; 7] = {
    let mut points = sizes("read-random");
    let mut place = 0;
    while place < points.len() {
        points[place] = cold(points[place]);
        place += 1;
    }
    points
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_unique_and_every_workload_is_known() {
        let unique = |mut labels: Vec<&str>, of: &str| {
            let all = labels.len();
            labels.sort_unstable();
            labels.dedup();
            assert_eq!(labels.len(), all, "{of}");
        };
        unique(
            FIGURES.iter().map(|figure| figure.name).collect(),
            "figures",
        );
        for figure in FIGURES {
            let points = figure.points.iter();
            unique(points.map(|point| point.label).collect(), figure.name);
            let contestants = figure.contestants.iter();
            unique(contestants.map(|one| one.label).collect(), figure.name);
            assert!(figure.points.iter().any(|point| !point.extra));
            for point in figure.points {
                assert!(kvzone_core::workload::find(point.workload).is_ok());
            }
        }
    }
}
