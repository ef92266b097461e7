//! Figures 2 and 4 to 10 of the P-Fetch paper: one compaction of `forest`, by the back end
//! of its reads, their number under way, their order, and how far the kernel reads ahead.
//!
//! Each measurement is a process with a store of its own: filled, half as many documents
//! overwritten at random, closed, its page cache emptied, opened, compacted. Questions that
//! the paper leaves open, and our answers:
//!
//! - The share of the file that is stale is not said. Here it is the third that the
//!   overwriting leaves.
//! - Its two devices (SATA, NVMe) are one here, so figures 4 and 5, and 6 and 7, are the
//!   same measurement beside another column of the paper.
//! - Each document is its own read (`coalesce_bytes=0`), offsets are sorted within a quarter
//!   of the memory limit, and phases follow one another (`overlap=off`), as published. Rows
//!   "as it comes" have both as the engine's defaults say.
//! - The size of a store is the paper's to scale, at least 16 MB.

use std::fs;
use std::path::{Path, PathBuf};

use kvzone_core::adapter::DurabilityName;
use kvzone_core::error::{Error, Result};
use kvzone_core::job::{Act, Load, Step, Until};
use kvzone_core::report::text::{bytes, grouped, three_digits};

use super::claims::{Claim, Found, above, below, percent, times};
use super::columns::{RATE, RATIO};
use super::figure::{
    Column, Contestant, Defaults, Figure, How, PageCache, Paper, Point, Setting, Takes, variant,
};
use super::measured::{Measured, Round};
use super::runner::{MEASURED, Size, entry_bytes};
use crate::output;
use crate::place::Disk;

/// Bytes of a value: with its key a document has 4 KiB.
const VALUE_BYTES: u64 = 4_080;
/// The smallest store that is made.
const LEAST_BYTES: f64 = 16e6;
/// Memory of a process by its data, and least.
const MEMORY_BY_DATA: f64 = 0.1;
const LEAST_MEMORY: u64 = 128 << 20;
/// The paper's operations for each byte of data, figure 8.
const OPERATIONS_A_BYTE: f64 = 2e6 / 3e9;

/// One compaction.
const PAPER: Paper = Paper {
    defaults: Defaults {
        scale: 0.03,
        rounds: 3,
        takes: Takes::All,
    },
    conditions: "Documents of 4 KiB, half as many overwritten at random; from an empty page \
        cache; seconds of each phase.\n",
    durability: DurabilityName::Written,
    cache: Setting::OfMemory(1, 8),
    settings: &[(
        &["forest"],
        &[
            ("compaction_threshold", Setting::Is("100")),
            ("cache_bytes", Setting::OfMemory(1, 8)),
            ("write_buffer_bytes", Setting::OfMemory(1, 32)),
            ("preallocate_bytes", Setting::OfMemory(1, 32)),
            ("compaction_memory_bytes", Setting::OfMemory(1, 4)),
        ],
    )],
    compressible: 0.0,
    size: |point, asked| {
        let data = (point.full_bytes * asked.scale).max(LEAST_BYTES);
        let memory = ((data * MEMORY_BY_DATA) as u64).max(LEAST_MEMORY);
        let keys = (data / entry_bytes(point)) as u64;
        Ok(Size::made_up(point, keys, Some(memory)))
    },
    operations: |_, _, _, _| None,
    steps: |load| steps(load, Act::Compact),
};

/// A workload with one compaction inside.
const THROUGHPUT: Paper = Paper {
    steps: |load| {
        let data = load.keys as f64 * (load.key_bytes.mean() + load.value_bytes.mean());
        let work = Load {
            workload: "ycsb-a".to_string(),
            until: Until::Operations((data * OPERATIONS_A_BYTE) as u64),
            threads: 4,
            batch: 1,
            ..load.clone()
        };
        steps(load, Act::Compacting(Box::new(work)))
    },
    ..PAPER
};

fn steps(load: &Load, measured: Act) -> Vec<Step> {
    let overwrite = Load {
        workload: "overwrite".to_string(),
        until: Until::Operations((load.keys / 2).max(1)),
        ..load.clone()
    };
    let step = |name: &str, act| Step {
        name: name.to_string(),
        act,
    };
    vec![
        step("overwrite", Act::Work(Box::new(overwrite))),
        step("reopen", Act::Reopen),
        step(MEASURED, measured),
    ]
}

/// Published: documents one by one, phase after phase.
const ONE_BY_ONE: (&str, &str) = ("coalesce_bytes", "0");
/// Likewise, and the kernel may read ahead.
const AHEAD: (&str, &str) = ("coalesce_bytes", "1");
const IN_TURN: (&str, &str) = ("overlap", "off");
const DIRECT_IO: (&str, &str) = ("direct", "on");
const SYNC: (&str, &str) = ("io", "sync");
const AIO: (&str, &str) = ("io", "aio");
const IO_URING: (&str, &str) = ("io", "io_uring");
const GLOBAL: (&str, &str) = ("sort", "global");
const UNSORTED: (&str, &str) = ("sort", "none");

/// A way to compact.
const fn way(label: &'static str, options: &'static [(&'static str, &'static str)]) -> Contestant {
    variant(label, "forest", options)
}

const fn size(label: &'static str, full_bytes: f64) -> Point {
    Point {
        label,
        workloads: &["fill-random"],
        value_bytes: VALUE_BYTES,
        full_bytes,
        batch: (256, 256),
        cache: PageCache::Cold,
        ..Point::PLAIN
    }
}

/// The paper's middle size, for what else varies.
const MIDDLE: Point = size("7.5 GB", 7.5e9);
const SIZES: &[Point] = &[size("3 GB", 3e9), MIDDLE, size("15 GB", 15e9)];

const fn batch(label: &'static str, options: &'static [(&'static str, &'static str)]) -> Point {
    Point {
        label,
        options,
        ..MIDDLE
    }
}

const fn ahead(label: &'static str, kibibytes: u32) -> Point {
    Point {
        label,
        read_ahead: Some(kibibytes),
        ..MIDDLE
    }
}

const WHOLE: Column = Column::new("whole, s", three_digits, |round| round.number("/seconds"));
const TREE_SEARCH: Column = Column::new("tree search", three_digits, |round| {
    round.number("/extra/compaction_seconds_tree_search")
});
const READ: Column = Column::new("read", three_digits, read);
const SPEED: Column = Column::of_cells("speed of reading", three_digits, |it, cell| {
    Some(1.0 / it.gain(cell, read)?)
});
const READ_SIZE: Column = Column::new("mean read of the device", bytes, |round| {
    let reads = round.number("/extra/device_reads")?.max(1.0);
    Some(round.number("/device_read_bytes")? / reads)
});

fn read(round: &Round) -> Option<f64> {
    round.number("/extra/compaction_seconds_read")
}

/// The columns of a compaction, behind others.
macro_rules! columns {
    ($($before:expr),*) => {
        &[
            $($before,)*
            WHOLE,
            TREE_SEARCH,
            Column::new("sort", three_digits, |round| {
                round.number("/extra/compaction_seconds_sort")
            }),
            READ,
            Column::new("write", three_digits, |round| {
                round.number("/extra/compaction_seconds_write")
            }),
            Column::new("flush and commit", three_digits, |round| {
                round.number("/extra/compaction_seconds_flush_and_commit")
            }),
            Column::new("reads", grouped, |round| {
                round.number("/extra/compaction_read_operations")
            }),
            SPEED,
        ]
    };
}

const COMPACTION: Figure = Figure {
    axis: "data",
    who: "compaction",
    columns: columns!(),
    points: SIZES,
    ..Figure::plain(How::Campaigns(&PAPER))
};

const DIRECT: Figure = Figure {
    stores: &[
        way("sync", &[SYNC, DIRECT_IO, ONE_BY_ONE, IN_TURN]),
        way("aio", &[AIO, DIRECT_IO, ONE_BY_ONE, IN_TURN]),
        way("io_uring", &[IO_URING, DIRECT_IO, ONE_BY_ONE, IN_TURN]),
        way("io_uring, as it comes", &[IO_URING, DIRECT_IO]),
    ],
    claims: |it| {
        let faster = [
            (
                "reading is faster by aio than by sync: 8 to 10 times",
                READ,
                "aio",
                "sync",
            ),
            (
                "the whole is faster by aio than by sync",
                WHOLE,
                "aio",
                "sync",
            ),
        ];
        all_faster(it, faster.iter().chain(&BY_IO_URING))
    },
    ..COMPACTION
};

const BUFFERED: Figure = Figure {
    stores: &[
        way("sync", &[SYNC, ONE_BY_ONE, IN_TURN]),
        way("aio", &[AIO, ONE_BY_ONE, IN_TURN]),
        way("io_uring", &[IO_URING, ONE_BY_ONE, IN_TURN]),
        way("io_uring, as it comes", &[IO_URING]),
    ],
    claims: |it| {
        let though = "reading is faster by aio than by sync, though it is not asynchronous then";
        let faster = [
            (though, READ, "aio", "sync"),
            (
                "reading is faster by io_uring than by aio",
                READ,
                "io_uring",
                "aio",
            ),
        ];
        all_faster(it, faster.iter().chain(&BY_IO_URING))
    },
    ..COMPACTION
};

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "p-fetch/fig2",
        title: "P-Fetch, figure 2: share of each phase, with sorted offsets and without",
        what: "in the paper: reading is 45 % of a compaction on either SSD, tree search under 1 %, and sorting makes no difference there",
        stores: &[
            way(
                "all sorted",
                &[SYNC, DIRECT_IO, ONE_BY_ONE, IN_TURN, GLOBAL],
            ),
            way(
                "not sorted",
                &[SYNC, DIRECT_IO, ONE_BY_ONE, IN_TURN, UNSORTED],
            ),
        ],
        points: &[size("6 GB", 1.5e6 * 4096.0)],
        claims: sorting,
        ..COMPACTION
    },
    Figure {
        name: "p-fetch/fig4",
        title: "P-Fetch, figure 4: compaction by direct I/O (SATA SSD there)",
        what: "in the paper: reading 8 to 10 times as fast by aio and io_uring as by sync, the whole 2 to 3.5 times",
        ..DIRECT
    },
    Figure {
        name: "p-fetch/fig5",
        title: "P-Fetch, figure 5: compaction by direct I/O (NVMe SSD there)",
        what: "in the paper: reading 8 to 10 times as fast by aio and io_uring as by sync, the whole 1.4 to 2 times",
        ..DIRECT
    },
    Figure {
        name: "p-fetch/fig6",
        title: "P-Fetch, figure 6: compaction by buffered I/O (SATA SSD there)",
        what: "in the paper: reading more than 6 times as fast by io_uring as by sync, the whole 1.7 to 3.1 times",
        ..BUFFERED
    },
    Figure {
        name: "p-fetch/fig7",
        title: "P-Fetch, figure 7: compaction by buffered I/O (NVMe SSD there)",
        what: "in the paper: reading 5.2 to 6.3 times as fast by io_uring as by sync, the whole 1.3 to 1.7 times",
        ..BUFFERED
    },
    Figure {
        name: "p-fetch/fig8",
        title: "P-Fetch, figure 8: throughput of an update-heavy workload (YCSB A) with one compaction inside",
        what: "the time is that of both; in the paper: more by aio and io_uring with direct I/O, and by io_uring alone with buffered I/O",
        how: How::Campaigns(&THROUGHPUT),
        stores: &[
            way("sync, direct", &[SYNC, DIRECT_IO, ONE_BY_ONE, IN_TURN]),
            way("aio, direct", &[AIO, DIRECT_IO, ONE_BY_ONE, IN_TURN]),
            way(
                "io_uring, direct",
                &[IO_URING, DIRECT_IO, ONE_BY_ONE, IN_TURN],
            ),
            way("sync, buffered", &[SYNC, ONE_BY_ONE, IN_TURN]),
            way("aio, buffered", &[AIO, ONE_BY_ONE, IN_TURN]),
            way("io_uring, buffered", &[IO_URING, ONE_BY_ONE, IN_TURN]),
        ],
        columns: columns!(RATE, RATIO),
        claims: throughput,
        ..COMPACTION
    },
    Figure {
        name: "p-fetch/fig9",
        title: "P-Fetch, figure 9: reading by direct I/O and submission batch",
        axis: "batch",
        what: "in the paper: a batch of 256 is up to ten times as fast as one of 1 by aio and io_uring, and no faster by sync",
        points: &[
            batch("1", &[("compaction_batch", "1")]),
            batch("2", &[("compaction_batch", "2")]).extra(),
            batch("4", &[("compaction_batch", "4")]),
            batch("8", &[("compaction_batch", "8")]).extra(),
            batch("16", &[("compaction_batch", "16")]),
            batch("32", &[("compaction_batch", "32")]).extra(),
            batch("64", &[("compaction_batch", "64")]),
            batch("128", &[("compaction_batch", "128")]).extra(),
            batch("256", &[("compaction_batch", "256")]),
        ],
        claims: batches,
        ..DIRECT
    },
    Figure {
        name: "p-fetch/fig10",
        title: "P-Fetch, figure 10: buffered reading and how far the kernel reads ahead",
        axis: "ahead",
        what: "in the paper: at 512 KiB the reads that the device sees are three times as large by aio as by sync, and reading 2.7 times as fast as at 4 KiB",
        stores: &[
            way("sync", &[SYNC, AHEAD, IN_TURN]),
            way("aio", &[AIO, AHEAD, IN_TURN]),
            way("io_uring", &[IO_URING, AHEAD, IN_TURN]),
        ],
        points: &[
            ahead("4 KiB", 4),
            ahead("16 KiB", 16).extra(),
            ahead("64 KiB", 64),
            ahead("128 KiB", 128).extra(),
            ahead("256 KiB", 256).extra(),
            ahead("512 KiB", 512),
        ],
        columns: columns!(READ_SIZE),
        claims: read_ahead,
        ..COMPACTION
    },
];

/// Two that differ by no more than this make no difference.
fn is_alike(ratios: &[f64]) -> bool {
    const ALIKE: f64 = 1.1;
    let is_alike = |ratio: &f64| *ratio < ALIKE && *ratio > 1.0 / ALIKE;
    ratios.iter().all(is_alike)
}

/// The figure at the last point, the largest data.
fn last(it: &Measured, title: &str, column: Column) -> Option<f64> {
    it.figure(it.labels().last()?, title, column)
}

/// A sentence, a phase, and two ways of which the first takes less of it.
type Faster = (&'static str, Column, &'static str, &'static str);

const BY_IO_URING: [Faster; 2] = [
    (
        "reading is faster by io_uring than by sync: 5 to 10 times",
        READ,
        "io_uring",
        "sync",
    ),
    (
        "the whole is faster by io_uring than by sync: 1.3 to 3.5 times",
        WHOLE,
        "io_uring",
        "sync",
    ),
];

fn all_faster<'a>(it: &Measured, all: impl Iterator<Item = &'a Faster>) -> Vec<Claim> {
    let claim = |&(paper, phase, one, other): &Faster| {
        let ratio = || Some(last(it, other, phase)? / last(it, one, phase)?);
        Claim::on(paper, times(ratio()), above(1.0))
    };
    all.map(claim).collect()
}

fn sorting(it: &Measured) -> Vec<Claim> {
    let all = "all sorted";
    let share = |column| Some(last(it, all, column)? / last(it, all, WHOLE)?);
    let (search, read) = (share(TREE_SEARCH), share(READ));
    let unsorted = || Some(last(it, "not sorted", READ)? / last(it, all, READ)?);
    vec![
        Claim::on(
            "tree search is under 1 % of a compaction",
            percent(search),
            below(0.01),
        ),
        Claim::on(
            "reading takes longer than tree search: 45 % of it",
            search.and(percent(read)),
            |read| search.is_some_and(|search| read[0] > search),
        ),
        Claim::on(
            "sorting offsets makes no difference to reading",
            times(unsorted()),
            is_alike,
        ),
    ]
}

fn throughput(it: &Measured) -> Vec<Claim> {
    let more = |paper, which, than| {
        let ratio = || Some(last(it, which, RATE)? / last(it, than, RATE)?);
        Claim::on(paper, times(ratio()), above(1.0))
    };
    let (direct, buffered) = ("sync, direct", "sync, buffered");
    vec![
        more("direct: more by aio than by sync", "aio, direct", direct),
        more(
            "direct: more by io_uring than by sync",
            "io_uring, direct",
            direct,
        ),
        more(
            "buffered: more by io_uring than by sync",
            "io_uring, buffered",
            buffered,
        ),
    ]
}

/// How many times as fast reading is at one point as at another.
fn gain(it: &Measured, way: &str, [point, other]: [&str; 2]) -> Found {
    times(Some(
        it.figure(other, way, READ)? / it.figure(point, way, READ)?,
    ))
}

fn batches(it: &Measured) -> Vec<Claim> {
    let ends = ["256", "1"];
    vec![
        Claim::on(
            "aio: a batch of 256 reads faster than one of 1, up to ten times",
            gain(it, "aio", ends),
            above(1.0),
        ),
        Claim::on(
            "io_uring: a batch of 256 reads faster than one of 1, up to ten times",
            gain(it, "io_uring", ends),
            above(1.0),
        ),
        Claim::on(
            "sync: the batch makes no difference",
            gain(it, "sync", ends),
            is_alike,
        ),
    ]
}

fn read_ahead(it: &Measured) -> Vec<Claim> {
    let size = |way| it.figure("512 KiB", way, READ_SIZE);
    let larger = || Some(size("aio")? / size("sync")?);
    vec![
        Claim::on(
            "at 512 KiB the device sees larger reads by aio than by sync: three times",
            times(larger()),
            above(1.0),
        ),
        Claim::on(
            "aio: reading is faster at 512 KiB than at 4 KiB: 2.7 times",
            gain(it, "aio", ["512 KiB", "4 KiB"]),
            above(1.0),
        ),
    ]
}

/// The kernel's read-ahead, brought back when dropped.
pub(super) struct ReadAhead {
    file: PathBuf,
    before: String,
}

impl ReadAhead {
    /// Sets that of a folder's disk.
    pub(super) fn set(directory: &Path, kibibytes: u32) -> Result<ReadAhead> {
        let Some(file) = Disk::of(directory).read_ahead_file() else {
            let reason = "this disk has no read-ahead to set";
            return Err(Error::machine("set the read-ahead of", directory, reason));
        };
        let failed = |error| Error::machine("set the read-ahead (root may) in", &file, error);
        let before = fs::read_to_string(&file).map_err(failed)?;
        fs::write(&file, kibibytes.to_string()).map_err(failed)?;
        Ok(ReadAhead { file, before })
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.file, self.before.trim()) {
            let path = self.file.display();
            output::complain(&format!("kvzone: {path} is not as it was: {error}"));
        }
    }
}
