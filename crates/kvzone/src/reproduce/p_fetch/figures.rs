//! Figures 2 and 4 to 10 of the P-Fetch paper: what is measured for each.
//!
//! Questions that the paper leaves open, and our answers:
//!
//! - What share of the file is stale is not said. Here every key is written
//!   once, and then a random half of them again.
//! - Its two devices (SATA, NVMe) are one here, so figures 4 and 5, and 6 and
//!   7, are the same measurement beside another column of the paper.
//! - Each document is its own read (`coalesce_bytes=0`), offsets are sorted
//!   within a memory of 64 MiB (less where the process may take less than four
//!   times that), and phases follow one another (`overlap=off`), as published.
//!   Two rows of ours show what joining reads and overlapping phases give beyond
//!   that.
//! - `p-fetch/fio` is ours: how much a full queue gives reads, beside `fio`.
//! - `p-fetch/steady` is ours: compactions that begin by themselves.
//! - The size of a store is the paper's to scale, at least 16 MiB.

use kvzone_core::report::text::{bytes, grouped, three_digits};

use super::super::figure::{Column, Defaults, Figure, How, Takes};
use super::super::measured::Round;
use super::{claims, measure};

/// Bytes of the paper's smallest, middle and largest data set.
const SIZES: [f64; 3] = [3e9, 7.5e9, 15e9];
/// The paper's middle one, for figures of one size.
const MIDDLE: &[f64] = &[SIZES[1]];
/// Documents of figure 2.
const FIGURE_2: &[f64] = &[1.5e6 * 4096.0];
/// The smallest store that is made.
const LEAST_BYTES: f64 = 16e6;
/// The paper's operations for each gigabyte, figure 8.
const OPERATIONS_A_BYTE: f64 = 2e6 / 3e9;

/// Reads under way at once, where nothing else is compared.
const FULL_QUEUE: usize = 128;

const BACKENDS: [&str; 3] = ["sync", "aio", "io_uring"];

/// The parameter that varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The order of reading.
    Sorting,
    /// The back end, direct or not.
    Backends { direct: bool },
    /// The same while a workload runs.
    Throughput,
    /// The submission batch.
    Batch,
    /// How far the kernel reads ahead.
    ReadAhead,
    /// The submission batch, beside `fio` at the same depth.
    Fio,
    /// Whether the store compacts itself.
    Steady,
}

/// One row: a way to compact.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Case {
    pub(super) title: String,
    pub(super) io: &'static str,
    pub(super) batch: usize,
    pub(super) direct: bool,
    pub(super) settings: Vec<String>,
    /// KiB that the kernel reads ahead; `None` as it is.
    pub(super) read_ahead: Option<u32>,
    /// Whose measurement its ratios are of.
    pub(super) against: String,
    /// No compaction at all: `fio` reads the store's file.
    pub(super) by_fio: bool,
}

const DEFAULTS: Defaults = Defaults {
    scale: 0.03,
    rounds: 3,
    takes: Takes::Rounds,
};

/// A phase, or the whole, in seconds.
macro_rules! seconds {
    ($head:literal, $path:literal) => {
        Column::new($head, three_digits, |answer| answer.number($path))
    };
}

pub(super) const WHOLE: Column = seconds!("whole, s", "/total");
pub(super) const TREE_SEARCH: Column = seconds!("tree search", "/tree_search");
pub(super) const READ: Column = seconds!("read", "/read");
/// The phases of a compaction, one after the other.
pub(super) const PHASES: [Column; 5] = [
    TREE_SEARCH,
    seconds!("sort", "/sort"),
    READ,
    seconds!("write", "/write"),
    seconds!("flush and commit", "/flush_and_commit"),
];
const READS: Column = Column::new("reads", grouped, |answer| answer.number("/read_operations"));
const SPEED_OF_READING: Column = Column::of_cells("speed of reading", three_digits, |it, cell| {
    let slower = it.gain(cell, |answer| answer.number("/read"))?;
    Some(1.0 / slower)
});
const SPEED_OF_THE_WHOLE: Column = Column::of_cells("of the whole", three_digits, |it, cell| {
    let slower = it.gain(cell, |answer| answer.number("/total"))?;
    Some(1.0 / slower)
});
pub(super) const READ_SIZE: Column = Column::new("mean read of the device", bytes, |answer| {
    let reads = answer.number("/device_reads")?.max(1.0);
    Some(answer.number("/device_read_bytes")? / reads)
});
pub(super) const RATE: Column = Column::new("operations/s", grouped, rate);
const TAIL: Column = Column::new("99.9 %, ms", three_digits, tail);

fn rate(answer: &Round) -> Option<f64> {
    answer.number("/operations_per_second")
}

fn tail(answer: &Round) -> Option<f64> {
    Some(answer.number("/p999_seconds")? * 1e3)
}

/// Documents read, or blocks, in the time that reads were under way.
fn reads_a_second(answer: &Round) -> Option<f64> {
    Some(answer.number("/read_operations")? / answer.number("/read")?.max(1e-9))
}

/// The columns of a compaction, with others before and behind them.
macro_rules! compactions {
    ([$($before:expr),*], [$($behind:expr),*]) => {
        &[
            $($before,)*
            WHOLE,
            PHASES[0],
            PHASES[1],
            PHASES[2],
            PHASES[3],
            PHASES[4],
            READS,
            SPEED_OF_READING,
            SPEED_OF_THE_WHOLE,
            $($behind,)*
        ]
    };
}

const COLUMNS: &[Column] = compactions!([], []);
const TO_SYNC: Column = Column::of_cells("to sync", three_digits, |it, cell| it.gain(cell, rate));
const THROUGHPUT: &[Column] = compactions!([RATE, TO_SYNC], []);
const READ_AHEAD: &[Column] = compactions!([], [READ_SIZE]);
/// Columns of a workload beside compactions.
const STEADY: &[Column] = &[
    RATE,
    Column::of_cells("to none", three_digits, |it, cell| it.gain(cell, rate)),
    Column::new("50 %, ms", three_digits, |answer| {
        Some(answer.number("/p50_seconds")? * 1e3)
    }),
    TAIL,
    Column::of_cells("to none", three_digits, |it, cell| it.gain(cell, tail)),
    Column::new("longest, ms", three_digits, |answer| {
        Some(answer.number("/longest_seconds")? * 1e3)
    }),
    Column::new("compactions", three_digits, |answer| {
        answer.number("/compactions")
    }),
    Column::new("space between", three_digits, |answer| {
        answer.number("/space_between")
    }),
    Column::new("space at most", three_digits, |answer| {
        answer.number("/space_peak")
    }),
];
/// Columns of reading beside `fio`.
const FIO: &[Column] = &[
    Column::new("reads/s", grouped, reads_a_second),
    Column::of_cells("to one under way", three_digits, |it, cell| {
        it.gain(cell, reads_a_second)
    }),
    Column::of_cells("of fio's ratio", three_digits, |it, cell| {
        let ours = cell.label.trim_start_matches("fio, ");
        let theirs = it.cell(cell.point, &format!("fio, {ours}"))?;
        Some(it.gain(cell, reads_a_second)? / it.gain(theirs, reads_a_second)?)
    }),
];

const COMPACTION: Figure = Figure {
    axis: "data",
    who: "compaction",
    columns: COLUMNS,
    ..Figure::plain(How::Cells(DEFAULTS, |_, asked| {
        measure(Kind::Sorting, MIDDLE, asked)
    }))
};

/// Back ends by direct I/O.
const DIRECT: Figure = Figure {
    how: How::Cells(DEFAULTS, |_, asked| {
        measure(Kind::Backends { direct: true }, &SIZES, asked)
    }),
    claims: claims::direct,
    ..COMPACTION
};

/// Back ends by buffered I/O.
const BUFFERED: Figure = Figure {
    how: How::Cells(DEFAULTS, |_, asked| {
        measure(Kind::Backends { direct: false }, &SIZES, asked)
    }),
    claims: claims::buffered,
    ..COMPACTION
};

pub(in super::super) const FIGURES: &[Figure] = &[
    Figure {
        name: "p-fetch/fig2",
        title: "P-Fetch, figure 2: share of each phase, with sorted offsets and without",
        what: "speeds are against all sorted; in the paper: reading is 45 % of a compaction on either SSD, tree search under 1 %, and sorting makes no difference there",
        how: How::Cells(DEFAULTS, |_, asked| measure(Kind::Sorting, FIGURE_2, asked)),
        claims: claims::sorting,
        ..COMPACTION
    },
    Figure {
        name: "p-fetch/fig4",
        title: "P-Fetch, figure 4: compaction by direct I/O (SATA SSD there)",
        what: "speeds are against sync; in the paper: reading 8 to 10 times as fast by aio and io_uring as by sync, the whole 2 to 3.5 times",
        ..DIRECT
    },
    Figure {
        name: "p-fetch/fig5",
        title: "P-Fetch, figure 5: compaction by direct I/O (NVMe SSD there)",
        what: "speeds are against sync; in the paper: reading 8 to 10 times as fast by aio and io_uring as by sync, the whole 1.4 to 2 times",
        ..DIRECT
    },
    Figure {
        name: "p-fetch/fig6",
        title: "P-Fetch, figure 6: compaction by buffered I/O (SATA SSD there)",
        what: "speeds are against sync; in the paper: reading more than 6 times as fast by io_uring as by sync, the whole 1.7 to 3.1 times",
        ..BUFFERED
    },
    Figure {
        name: "p-fetch/fig7",
        title: "P-Fetch, figure 7: compaction by buffered I/O (NVMe SSD there)",
        what: "speeds are against sync; in the paper: reading 5.2 to 6.3 times as fast by io_uring as by sync, the whole 1.3 to 1.7 times",
        ..BUFFERED
    },
    Figure {
        name: "p-fetch/fig8",
        title: "P-Fetch, figure 8: throughput of an update-heavy workload (YCSB A) with one compaction inside",
        what: "speeds are against sync; in the paper: more by aio and io_uring with direct I/O, and by io_uring alone with buffered I/O",
        how: How::Cells(DEFAULTS, |_, asked| {
            measure(Kind::Throughput, &SIZES, asked)
        }),
        columns: THROUGHPUT,
        claims: claims::throughput,
        ..COMPACTION
    },
    Figure {
        name: "p-fetch/fig9",
        title: "P-Fetch, figure 9: reading by direct I/O and submission batch",
        what: "speeds are against the same back end with a batch of 1; in the paper: a batch of 256 is up to ten times as fast as one of 1 by aio and io_uring, and no faster by sync",
        how: How::Cells(DEFAULTS, |_, asked| measure(Kind::Batch, MIDDLE, asked)),
        claims: claims::batches,
        ..COMPACTION
    },
    Figure {
        name: "p-fetch/fig10",
        title: "P-Fetch, figure 10: buffered reading and how far the kernel reads ahead",
        what: "speeds are against sync; in the paper: at 512 KiB the reads that the device sees are three times as large by aio as by sync, and reading 2.7 times as fast as at 4 KiB",
        how: How::Cells(DEFAULTS, |_, asked| measure(Kind::ReadAhead, MIDDLE, asked)),
        columns: READ_AHEAD,
        claims: claims::read_ahead,
        ..COMPACTION
    },
    Figure {
        name: "p-fetch/fio",
        title: "Reading in a compaction by direct I/O, with one read under way and with 128, beside fio",
        what: "speeds are against one under way; in the paper: nothing of this kind",
        how: How::Cells(DEFAULTS, |_, asked| measure(Kind::Fio, MIDDLE, asked)),
        columns: FIO,
        ..COMPACTION
    },
    Figure {
        name: "p-fetch/steady",
        title: "Steady overwriting for ten times the size of the data, with the store compacting itself and without",
        what: "speeds are against never compacted; in the paper: nothing of this kind",
        how: How::Cells(DEFAULTS, |_, asked| measure(Kind::Steady, &[15e9], asked)),
        columns: STEADY,
        ..COMPACTION
    },
];

/// Bytes of a store at a scale.
pub(super) fn scaled(size: f64, scale: f64) -> f64 {
    (size * scale).max(LEAST_BYTES)
}

impl Kind {
    /// Operations of the workload beside, for a store of so many bytes.
    pub(super) fn operations(self, bytes: f64) -> Option<u64> {
        match self {
            Kind::Throughput => Some((bytes * OPERATIONS_A_BYTE) as u64),
            // Half of them write.
            Kind::Steady => Some((bytes / 4096.0 * 20.0) as u64),
            _ => None,
        }
    }

    /// Everything that is compared at one size.
    pub(super) fn cases(&self) -> Vec<Case> {
        match self {
            Kind::Sorting => [
                ("all sorted (as published)", "global"),
                ("sorted by windows", "window"),
                ("not sorted", "none"),
            ]
            .map(|(title, sort)| Case {
                settings: with(&[&format!("sort={sort}")]),
                against: "all sorted (as published)".to_string(),
                ..case(title, "sync", true)
            })
            .into(),
            Kind::Backends { direct } => backends(*direct),
            Kind::Throughput => {
                let title = |io: &str, direct| format!("{io}, {}", mode(direct));
                [true, false]
                    .into_iter()
                    .flat_map(|direct| {
                        BACKENDS.map(|io| Case {
                            against: title(BACKENDS[0], direct),
                            ..case(&title(io, direct), io, direct)
                        })
                    })
                    .collect()
            }
            Kind::Batch => [1, 2, 4, 8, 16, 32, 64, 128, 256]
                .into_iter()
                .flat_map(|batch| {
                    BACKENDS.map(|io| Case {
                        batch,
                        against: format!("{io}, batch 1"),
                        ..case(&format!("{io}, batch {batch}"), io, true)
                    })
                })
                .collect(),
            Kind::Fio => beside_fio(),
            Kind::Steady => [("never compacted", "100"), ("compacted by itself", "30")]
                .map(|(title, percent)| Case {
                    settings: vec![format!("compaction_threshold={percent}")],
                    against: "never compacted".to_string(),
                    ..case(title, "io_uring", false)
                })
                .into(),
            Kind::ReadAhead => [4, 16, 64, 128, 256, 512]
                .into_iter()
                .flat_map(|kibibytes| {
                    BACKENDS.map(|io| Case {
                        read_ahead: Some(kibibytes),
                        against: format!("{}, ahead {kibibytes} KiB", BACKENDS[0]),
                        settings: vec!["coalesce_bytes=1".into(), "overlap=off".into()],
                        ..case(&format!("{io}, ahead {kibibytes} KiB"), io, false)
                    })
                })
                .collect(),
        }
    }
}

fn mode(direct: bool) -> &'static str {
    if direct { "direct" } else { "buffered" }
}

/// The three back ends as published, and what goes beyond.
fn backends(direct: bool) -> Vec<Case> {
    let mut cases: Vec<Case> = BACKENDS.map(|io| case(io, io, direct)).into();
    for io in BACKENDS {
        cases.push(Case {
            settings: vec!["overlap=off".to_string()],
            ..case(&format!("{io}, reads joined"), io, direct)
        });
        cases.push(Case {
            settings: Vec::new(),
            ..case(&format!("{io}, joined and overlapped"), io, direct)
        });
    }
    cases
}

/// Each asynchronous back end without and with a full queue: ours, then `fio`'s.
fn beside_fio() -> Vec<Case> {
    let mut cases = Vec::new();
    for io in ["aio", "io_uring"] {
        for by_fio in [true, false] {
            for batch in [1, FULL_QUEUE] {
                let who = if by_fio { "fio, " } else { "" };
                cases.push(Case {
                    batch,
                    by_fio,
                    against: format!("{who}{io}, 1 under way"),
                    ..case(&format!("{who}{io}, {batch} under way"), io, true)
                });
            }
        }
    }
    cases
}

/// As published.
fn case(title: &str, io: &'static str, direct: bool) -> Case {
    Case {
        title: title.to_string(),
        io,
        batch: FULL_QUEUE,
        direct,
        settings: with(&[]),
        read_ahead: None,
        against: BACKENDS[0].to_string(),
        by_fio: false,
    }
}

fn with(more: &[&str]) -> Vec<String> {
    let published = ["coalesce_bytes=0", "overlap=off"];
    let all = published.iter().chain(more);
    all.map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 8] = [
        Kind::Sorting,
        Kind::Backends { direct: true },
        Kind::Backends { direct: false },
        Kind::Throughput,
        Kind::Batch,
        Kind::ReadAhead,
        Kind::Fio,
        Kind::Steady,
    ];

    #[test]
    fn every_figure_of_the_task_is_there_and_compares_something() {
        let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        let numbers = [2, 4, 5, 6, 7, 8, 9, 10];
        assert_eq!(
            names[..8],
            numbers.map(|number| format!("p-fetch/fig{number}"))
        );
        for kind in KINDS {
            let cases = kind.cases();
            assert!(cases.len() >= 2, "{kind:?}");
            let mut titles: Vec<&str> = cases.iter().map(|case| case.title.as_str()).collect();
            titles.sort_unstable();
            titles.dedup();
            assert_eq!(titles.len(), cases.len(), "{kind:?}");
            for case in &cases {
                let is_there = titles.contains(&case.against.as_str());
                assert!(is_there, "{kind:?}: {}", case.against);
            }
        }
        assert_eq!(scaled(SIZES[0], 1e-9), LEAST_BYTES);
        assert_eq!(Kind::Throughput.operations(3e9), Some(2_000_000));
    }
}
