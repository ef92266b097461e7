//! Figures 2 and 4 to 10 of the P-Fetch paper: what is measured for each.
//!
//! What the paper leaves open, and what is done here:
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

pub(super) const BACKENDS: [&str; 3] = ["sync", "aio", "io_uring"];

/// A figure of the paper.
#[derive(Debug)]
pub(super) struct Figure {
    /// As on the command line.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// What the paper says came out.
    pub(super) published: &'static str,
    pub(super) kind: Kind,
    /// Bytes of the data sets.
    sizes: &'static [f64],
}

/// What varies.
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
    /// No compaction at all: `fio` reads the store's file.
    pub(super) by_fio: bool,
}

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "p-fetch/fig2",
        title: "P-Fetch, figure 2: share of each phase, with sorted offsets and without",
        published: "reading is 45 % of a compaction on either SSD, tree search under 1 %, and sorting makes no difference there",
        kind: Kind::Sorting,
        sizes: FIGURE_2,
    },
    Figure {
        name: "p-fetch/fig4",
        title: "P-Fetch, figure 4: compaction by direct I/O (SATA SSD there)",
        published: "reading 8 to 10 times as fast by aio and io_uring as by sync, the whole 2 to 3.5 times",
        kind: Kind::Backends { direct: true },
        sizes: &SIZES,
    },
    Figure {
        name: "p-fetch/fig5",
        title: "P-Fetch, figure 5: compaction by direct I/O (NVMe SSD there)",
        published: "reading 8 to 10 times as fast by aio and io_uring as by sync, the whole 1.4 to 2 times",
        kind: Kind::Backends { direct: true },
        sizes: &SIZES,
    },
    Figure {
        name: "p-fetch/fig6",
        title: "P-Fetch, figure 6: compaction by buffered I/O (SATA SSD there)",
        published: "reading more than 6 times as fast by io_uring as by sync, the whole 1.7 to 3.1 times",
        kind: Kind::Backends { direct: false },
        sizes: &SIZES,
    },
    Figure {
        name: "p-fetch/fig7",
        title: "P-Fetch, figure 7: compaction by buffered I/O (NVMe SSD there)",
        published: "reading 5.2 to 6.3 times as fast by io_uring as by sync, the whole 1.3 to 1.7 times",
        kind: Kind::Backends { direct: false },
        sizes: &SIZES,
    },
    Figure {
        name: "p-fetch/fig8",
        title: "P-Fetch, figure 8: throughput of an update-heavy workload (YCSB A) with one compaction inside",
        published: "more by aio and io_uring with direct I/O, and by io_uring alone with buffered I/O",
        kind: Kind::Throughput,
        sizes: &SIZES,
    },
    Figure {
        name: "p-fetch/fig9",
        title: "P-Fetch, figure 9: reading by direct I/O and submission batch",
        published: "a batch of 256 is up to ten times as fast as one of 1 by aio and io_uring, and no faster by sync",
        kind: Kind::Batch,
        sizes: MIDDLE,
    },
    Figure {
        name: "p-fetch/fig10",
        title: "P-Fetch, figure 10: buffered reading and how far the kernel reads ahead",
        published: "at 512 KiB the reads that the device sees are three times as large by aio as by sync, and reading 2.7 times as fast as at 4 KiB",
        kind: Kind::ReadAhead,
        sizes: MIDDLE,
    },
    Figure {
        name: "p-fetch/fio",
        title: "Reading in a compaction by direct I/O, with one read under way and with 128, beside fio",
        published: "nothing of this kind",
        kind: Kind::Fio,
        sizes: MIDDLE,
    },
    Figure {
        name: "p-fetch/steady",
        title: "Steady overwriting for ten times the size of the data, with the store compacting itself and without",
        published: "nothing of this kind",
        kind: Kind::Steady,
        sizes: &[15e9],
    },
];

impl Figure {
    /// Bytes of each store at a scale.
    pub(super) fn bytes(&self, scale: f64) -> Vec<f64> {
        let scaled = |size: &f64| (size * scale).max(LEAST_BYTES);
        self.sizes.iter().map(scaled).collect()
    }

    /// Operations of the workload beside, for a store of so many bytes.
    pub(super) fn operations(&self, bytes: f64) -> Option<u64> {
        match self.kind {
            Kind::Throughput => Some((bytes * OPERATIONS_A_BYTE) as u64),
            // Half of them write.
            Kind::Steady => Some((bytes / 4096.0 * 20.0) as u64),
            _ => None,
        }
    }

    /// Everything that is compared at one size.
    pub(super) fn cases(&self) -> Vec<Case> {
        match self.kind {
            Kind::Sorting => [
                ("all sorted (as published)", "global"),
                ("sorted by windows", "window"),
                ("not sorted", "none"),
            ]
            .map(|(title, sort)| Case {
                settings: with(&[&format!("sort={sort}")]),
                ..case(title, "sync", true)
            })
            .into(),
            Kind::Backends { direct } => backends(direct),
            Kind::Throughput => {
                let title = |io: &str, direct| format!("{io}, {}", mode(direct));
                [true, false]
                    .into_iter()
                    .flat_map(|direct| BACKENDS.map(|io| case(&title(io, direct), io, direct)))
                    .collect()
            }
            Kind::Batch => [1, 2, 4, 8, 16, 32, 64, 128, 256]
                .into_iter()
                .flat_map(|batch| {
                    BACKENDS.map(|io| Case {
                        batch,
                        ..case(&format!("{io}, batch {batch}"), io, true)
                    })
                })
                .collect(),
            Kind::Fio => beside_fio(),
            Kind::Steady => [("never compacted", "100"), ("compacted by itself", "30")]
                .map(|(title, percent)| Case {
                    settings: vec![format!("compaction_threshold={percent}")],
                    ..case(title, "io_uring", false)
                })
                .into(),
            Kind::ReadAhead => [4, 16, 64, 128, 256, 512]
                .into_iter()
                .flat_map(|kibibytes| {
                    BACKENDS.map(|io| Case {
                        read_ahead: Some(kibibytes),
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

    #[test]
    fn every_figure_of_the_task_is_there_and_compares_something() {
        let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        let numbers = [2, 4, 5, 6, 7, 8, 9, 10];
        assert_eq!(
            names[..8],
            numbers.map(|number| format!("p-fetch/fig{number}"))
        );
        for figure in FIGURES {
            let cases = figure.cases();
            assert!(cases.len() >= 2, "{}", figure.name);
            let mut titles: Vec<&str> = cases.iter().map(|case| case.title.as_str()).collect();
            titles.sort_unstable();
            titles.dedup();
            assert_eq!(titles.len(), cases.len(), "{}", figure.name);
            assert!(figure.bytes(1e-9).iter().all(|&bytes| bytes == LEAST_BYTES));
        }
        assert_eq!(FIGURES[1].bytes(1.0), SIZES);
        let throughput = &FIGURES[5];
        assert_eq!(throughput.operations(3e9), Some(2_000_000));
    }
}
