//! Figures 14 to 19 of ForestDB 2016: who is compared, at which points, and
//! what of it is shown.
//!
//! What the paper does, and what is done here where it leaves something open
//! or a small machine cannot follow:
//!
//! - 200 million documents of 1,024 bytes, data 6 times the memory: here the
//!   bytes to scale, with a memory limit of a sixth of them (page cache
//!   included), but not below what the programs need.
//! - Keys of the 2-level pattern, cut or grown to the length of figure 14; 32
//!   bytes elsewhere, which is the length of section 4.2.2.
//! - Updates go in batches of 10 to 100 with a sync each; reads between them.
//! - Write amplification is measured apart, while half of the documents are
//!   updated, so that merges and compactions have a reason to begin.
//! - Couchstore is `forest-couchstore`, a likeness (see its adapter).
//! - The real data sets of figure 19 were never published: sets made to their
//!   sizes, and real ones that this machine has.

use kvzone_core::job::Popularity;

use super::super::chosen;
use super::super::grid::Claim;
use super::claims;
use super::measure::Measured;

/// Name of engine forest among the stores.
pub(super) const FOREST: &str = "forest";
/// Name of the likeness of Couchstore.
pub(super) const COUCHSTORE: &str = "forest-couchstore";

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
    /// Tables: the workload whose cells they show, and a title.
    pub(super) parts: &'static [(&'static str, &'static str)],
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
    /// Compacted before it is measured.
    pub(super) compact: bool,
}

/// A place on the axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    /// What rows call it.
    pub(super) label: &'static str,
    /// Left out unless all points are asked for.
    pub(super) extra: bool,
    /// Bytes of a key of the 2-level pattern, or a data set's name.
    pub(super) keys: KeyKind,
    /// Bytes of a value; those of a data set are its own.
    pub(super) value_bytes: u64,
    /// Workloads, each with a load of its own; the first is the point.
    pub(super) workloads: &'static [&'static str],
    /// Of workload mixed.
    pub(super) update_percent: Option<u32>,
    /// Threads that count.
    pub(super) threads: u32,
    /// Updates a second of one writer beside them.
    pub(super) writer_rate: Option<f64>,
    /// Entries of a scan.
    pub(super) scan_entries: Option<u64>,
    /// Exponent of the law over groups.
    pub(super) skew: Option<f64>,
}

/// Where keys come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyKind {
    /// The 2-level pattern.
    TwoLevel(u64),
    /// A data set.
    Set(&'static str),
}

impl chosen::Contestant for Contestant {
    fn plain(store: &'static str) -> Self {
        Contestant {
            label: store,
            store,
            options: &[],
            compact: false,
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
    /// Entries that scans visited, a second.
    Entries,
    /// Updates a second of the writers.
    WriterRate,
    /// Bytes sent to the device by user bytes written.
    WriteAmplification,
    /// Device reads for each get.
    ReadsPerGet,
    /// Bytes on the disk by live user bytes.
    SpaceAmplification,
    /// Processor time for each operation, in microseconds.
    Cpu,
}

impl Column {
    /// The head of its column.
    pub(super) fn head(self) -> &'static str {
        match self {
            Column::Rate => "ops/s",
            Column::Ratio => "ratio",
            Column::Entries => "entries/s",
            Column::WriterRate => "written/s",
            Column::WriteAmplification => "write amp",
            Column::ReadsPerGet => "reads/get",
            Column::SpaceAmplification => "space amp",
            Column::Cpu => "CPU µs/op",
        }
    }
}

impl Point {
    /// How keys are chosen.
    pub(super) fn popularity(&self) -> Option<Popularity> {
        self.skew.map(|exponent| Popularity::Groups {
            exponent,
            groups: 20_000,
        })
    }
}

const fn store(label: &'static str) -> Contestant {
    Contestant {
        label,
        store: label,
        options: &[],
        compact: false,
    }
}

const ALL: &[Contestant] = &[
    store(FOREST),
    store("leveldb"),
    store("rocksdb"),
    store(COUCHSTORE),
];

const fn compacted(label: &'static str, of: &'static str) -> Contestant {
    Contestant {
        label,
        store: of,
        options: &[],
        compact: true,
    }
}

const fn variant(
    label: &'static str,
    options: &'static [(&'static str, &'static str)],
) -> Contestant {
    Contestant {
        label,
        store: FOREST,
        options,
        compact: false,
    }
}

/// The mix of sections 4.2.1 and 4.2.2: 20 % updates, one thread.
const MIX: Point = Point {
    label: "",
    extra: false,
    keys: KeyKind::TwoLevel(32),
    value_bytes: 1_024,
    workloads: &["mixed"],
    update_percent: Some(20),
    threads: 1,
    writer_rate: None,
    scan_entries: None,
    skew: None,
};

const fn length(label: &'static str, bytes: u64, extra: bool) -> Point {
    Point {
        label,
        extra,
        keys: KeyKind::TwoLevel(bytes),
        value_bytes: 512,
        workloads: &["mixed", "overwrite"],
        ..MIX
    }
}

const fn ratio(label: &'static str, percent: u32, extra: bool) -> Point {
    Point {
        label,
        extra,
        update_percent: Some(percent),
        ..MIX
    }
}

const fn readers(
    label: &'static str,
    threads: u32,
    writer_rate: Option<f64>,
    extra: bool,
) -> Point {
    Point {
        label,
        extra,
        workloads: &["read-random"],
        update_percent: None,
        threads,
        writer_rate,
        ..MIX
    }
}

const fn scan(label: &'static str, entries: u64) -> Point {
    Point {
        label,
        workloads: &["scan-random"],
        update_percent: None,
        scan_entries: Some(entries),
        ..MIX
    }
}

const fn skew(label: &'static str, exponent: f64, extra: bool) -> Point {
    Point {
        label,
        extra,
        skew: Some(exponent),
        ..MIX
    }
}

const fn set(label: &'static str, extra: bool) -> Point {
    Point {
        label,
        extra,
        keys: KeyKind::Set(label),
        ..MIX
    }
}

const MIXED_COLUMNS: &[Column] = &[
    Column::Rate,
    Column::Ratio,
    Column::ReadsPerGet,
    Column::WriteAmplification,
    Column::SpaceAmplification,
    Column::Cpu,
];

const NO_TITLE: &str = "";

const THROUGHPUT: (&str, &str) = ("mixed", "Throughput with 20 % updates");
const WRITES: (&str, &str) = (
    "overwrite",
    "Write amplification while half of the documents are updated",
);

const ONE_WRITER: Option<f64> = Some(2_000.0);

/// All of them.
pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "forestdb/fig14",
        title: "ForestDB paper, figure 14: key lengths",
        axis: "key bytes",
        what: "20 % updates, uniform; apart from that, updates alone",
        contestants: ALL,
        points: &[
            length("16", 16, false),
            length("32", 32, true),
            length("64", 64, true),
            length("128", 128, false),
            length("256", 256, true),
            length("512", 512, true),
            length("1024", 1024, false),
        ],
        parts: &[THROUGHPUT, WRITES],
        columns: MIXED_COLUMNS,
        claims: claims::key_lengths,
    },
    Figure {
        name: "forestdb/fig15",
        title: "ForestDB paper, figure 15: (a) update ratios, (b) readers beside a writer",
        axis: "",
        what: "(a) reads and updates of one thread; (b) reads of so many threads, beside one \
            writer of 2,000 updates a second",
        contestants: ALL,
        points: &[
            ratio("0 % updates", 0, false),
            ratio("20 % updates", 20, false),
            ratio("40 % updates", 40, true),
            ratio("60 % updates", 60, true),
            ratio("80 % updates", 80, true),
            ratio("100 % updates", 100, false),
            readers("1 reader alone", 1, None, false),
            readers("1 reader, writer", 1, ONE_WRITER, false),
            readers("2 readers, writer", 2, ONE_WRITER, true),
            readers("4 readers, writer", 4, ONE_WRITER, false),
            readers("8 readers, writer", 8, ONE_WRITER, true),
        ],
        parts: &[
            ("mixed", "(a) Share of updates"),
            ("read-random", "(b) Reads beside a writer"),
        ],
        columns: &[
            Column::Rate,
            Column::Ratio,
            Column::WriterRate,
            Column::ReadsPerGet,
            Column::WriteAmplification,
            Column::Cpu,
        ],
        claims: claims::ratios_and_readers,
    },
    Figure {
        name: "forestdb/fig16",
        title: "ForestDB paper, figure 16: range scans",
        axis: "entries",
        what: "scans of so many entries from a random document on; (c): right after a compaction",
        contestants: &[
            compacted("forest (c)", FOREST),
            store(FOREST),
            store("leveldb"),
            store("rocksdb"),
            compacted("forest-couchstore (c)", COUCHSTORE),
            store(COUCHSTORE),
        ],
        points: &[scan("100", 100), scan("1000", 1_000)],
        parts: &[("scan-random", NO_TITLE)],
        columns: &[
            Column::Rate,
            Column::Entries,
            Column::Ratio,
            Column::SpaceAmplification,
            Column::Cpu,
        ],
        claims: claims::scans,
    },
    Figure {
        name: "forestdb/fig17",
        title: "ForestDB paper, figure 17: write buffer and HB+-trie, on and off",
        axis: "",
        what: "20 % updates, uniform; apart from that, updates alone",
        contestants: &[
            variant("HB+-trie + WB", &[]),
            variant("HB+-trie", &[("write_buffer_entries", "1")]),
            variant("B+-tree + WB", &[("index", "btree")]),
            variant(
                "B+-tree",
                &[("index", "btree"), ("write_buffer_entries", "1")],
            ),
        ],
        points: &[length("32-byte keys", 32, false)],
        parts: &[THROUGHPUT, WRITES],
        columns: MIXED_COLUMNS,
        claims: claims::ablations,
    },
    Figure {
        name: "forestdb/fig18",
        title: "ForestDB paper, figure 18: locality",
        axis: "s",
        what: "20 % updates; 20,000 groups of random documents, chosen by Zipf's law with exponent s",
        contestants: ALL,
        points: &[
            skew("0", 0.0, false),
            skew("0.25", 0.25, true),
            skew("0.5", 0.5, false),
            skew("0.75", 0.75, true),
            skew("1", 1.0, false),
            skew("1.25", 1.25, true),
        ],
        parts: &[("mixed", NO_TITLE)],
        columns: MIXED_COLUMNS,
        claims: claims::locality,
    },
    Figure {
        name: "forestdb/fig19",
        title: "ForestDB paper, figure 19: data sets",
        axis: "data set",
        what: "20 % updates, uniform; the limit is the memory that the paper had for url, to scale, \
            for all sets: the small ones fit",
        contestants: ALL,
        points: &[
            set("profile", false),
            set("playlist", true),
            set("history", false),
            set("status", true),
            set("url", false),
            set("paths-of-usr", false),
            set("words-of-texts", true),
            set("files-of-packages", true),
        ],
        parts: &[("mixed", NO_TITLE)],
        columns: MIXED_COLUMNS,
        claims: claims::data_sets,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_unique_and_every_part_is_issued() {
        for figure in FIGURES {
            let unique = |mut labels: Vec<&str>| {
                let all = labels.len();
                labels.sort_unstable();
                labels.dedup();
                assert_eq!(labels.len(), all, "{}", figure.name);
            };
            unique(figure.points.iter().map(|point| point.label).collect());
            unique(figure.contestants.iter().map(|one| one.label).collect());
            for (workload, _) in figure.parts {
                let issued = figure
                    .points
                    .iter()
                    .any(|point| point.workloads.contains(workload));
                assert!(issued, "{}: {workload}", figure.name);
            }
            assert!(figure.points.iter().any(|point| !point.extra));
        }
    }
}
