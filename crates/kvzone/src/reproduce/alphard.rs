//! Table 1, figures 3 and 4 of "KVZone and the Search for a Write-Optimized
//! Key-Value Store": who is compared, at which points, what of it is shown, and
//! what sections 1 and 4 say of it.
//!
//! The paper's setup, and ours where the paper leaves something open or a small machine
//! cannot follow:
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

use kvzone_core::adapter::DurabilityName;

use super::claims::{Claim, Found, above, any, at_points, below};
use super::columns::{
    CPU, MEGABYTES, RATE, RATIO, READ_MEAN, WRITE_AMPLIFICATION, WRITE_DEVIATION, WRITE_MEAN,
    WRITE_TAIL,
};
use super::figure::{
    Column, Contestant, Defaults, Figure, How, KeyKind, Paper, Point, Rate, Setting, Takes, store,
    variant,
};
use super::measured::Measured;
use super::runner::{Size, entry_bytes};

/// Alphard in a file, as rows call it and as the adapter is named.
const FILE: &str = "alphard-file";
/// Alphard on a block device.
pub(super) const RAW: &str = "alphard-raw";
/// The paper's others.
const BERKELEY_DB: &str = "berkeleydb";
const TOKYO_CABINET: &str = "tokyocabinet";
const SQLITE: &str = "sqlite";

/// Label of the point without a rate.
const PEAK: &str = "peak";

/// Tokyo Cabinet's other kind.
const TREE: &str = "tokyocabinet tree";

/// Data by memory.
const DATA_BY_MEMORY: f64 = 6.0;
/// Least memory of a worker: each thread has a value, or a batch of them, under way.
const LEAST_MEMORY: u64 = 122 << 20;
/// Operations in flight.
const THREADS: u32 = 32;

static PAPER: Paper = Paper {
    defaults: Defaults {
        // Tokyo Cabinet takes minutes to load more than a gigabyte in a sixth of it of
        // memory, at each point.
        scale: 0.016,
        // Minutes, not an hour. A claim takes 5.
        rounds: 1,
        takes: Takes::All,
    },
    conditions: "Every write is synced; 32 operations in flight; caches a quarter of the memory \
        limit; no compression, and no value compresses.\n",
    durability: DurabilityName::Synced,
    cache: Setting::OfMemory(1, 4),
    settings: &[],
    compressible: 0.0,
    size: |point, asked| {
        let data = point.full_bytes * asked.scale;
        let keys = ((data / entry_bytes(point)) as u64).max(u64::from(THREADS) * 2);
        let memory = ((data / DATA_BY_MEMORY) as u64).max(LEAST_MEMORY);
        Ok(Size::made_up(point, keys, Some(memory)))
    },
    operations: |_, _, _, _| None,
    steps: |_| Vec::new(),
};

const CONTESTANTS: &[Contestant] = &[
    store(FILE),
    Contestant {
        may_miss: true,
        ..store(RAW)
    },
    store(BERKELEY_DB),
    store(TOKYO_CABINET),
    variant(TREE, TOKYO_CABINET, &[("type", "tree")]),
    store(SQLITE),
];

/// As fast as it goes; data 6 times the paper's 8 GB of memory.
const fn size(label: &'static str, kib: u64) -> Point {
    Point {
        label,
        keys: KeyKind::Spread(4),
        value_bytes: kib << 10,
        full_bytes: 48e9,
        threads: THREADS,
        ..Point::PLAIN
    }
}

const fn rate(label: &'static str, rate: f64) -> Point {
    Point {
        rate: Rate::Of(rate),
        ..size(label, 4)
    }
}

/// 70 % of each store's own peak, which is a point before.
const fn share(label: &'static str, kib: u64, of: &'static str) -> Point {
    Point {
        rate: Rate::Share(of, 0.7),
        ..size(label, kib).extra()
    }
}

/// Rates of 4 KB values, and sizes as fast as it goes; 4 KB is both. By default a rate that
/// all reach, one that is past what the others reach, and two sizes: each point loads every
/// store anew, and loading small values takes the others longest.
const fn points(workloads: &'static [&'static str]) -> [Point; 17] {
    let mut points = [
        rate("250/s", 250.0).extra(),
        rate("1000/s", 1_000.0),
        rate("2000/s", 2_000.0).extra(),
        rate("4000/s", 4_000.0).extra(),
        rate("8000/s", 8_000.0).extra(),
        rate("16000/s", 16_000.0),
        rate("24000/s", 24_000.0).extra(),
        size("1 KB peak", 1).extra(),
        share("1 KB 70 %", 1, "1 KB peak"),
        size("4 KB peak", 4),
        share("4 KB 70 %", 4, "4 KB peak"),
        size("16 KB peak", 16).extra(),
        share("16 KB 70 %", 16, "16 KB peak"),
        size("64 KB peak", 64).extra(),
        share("64 KB 70 %", 64, "64 KB peak"),
        size("256 KB peak", 256),
        share("256 KB 70 %", 256, "256 KB peak"),
    ];
    let mut place = 0;
    while place < points.len() {
        points[place].workloads = workloads;
        place += 1;
    }
    points
}

const CHURN: Figure = Figure {
    axis: "load",
    what: "50 % writes and 50 % deletes",
    stores: CONTESTANTS,
    ..Figure::plain(How::Campaigns(&PAPER))
};

/// Those that compare stores.
pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "alphard/table1",
        title: "KVZone paper, table 1: write performance of stores",
        what: "50 % writes and 50 % deletes, as fast as it goes",
        points: &[Point {
            workloads: &["churn"],
            ..size(PEAK, 64)
        }],
        columns: &[
            RATE,
            RATIO,
            MEGABYTES,
            WRITE_MEAN,
            WRITE_DEVIATION,
            WRITE_AMPLIFICATION,
            CPU,
        ],
        claims: table,
        ..CHURN
    },
    Figure {
        name: "alphard/fig3",
        title: "KVZone paper, figure 3: writes and as many deletes",
        points: &points(&["churn"]),
        columns: &[
            RATE,
            RATIO,
            MEGABYTES,
            WRITE_MEAN,
            WRITE_TAIL,
            WRITE_AMPLIFICATION,
            CPU,
        ],
        claims: writes,
        ..CHURN
    },
    Figure {
        name: "alphard/fig4",
        title: "KVZone paper, figure 4: reads, writes and as many deletes",
        what: "50 % reads, 25 % writes and 25 % deletes",
        points: &points(&["churn-read"]),
        columns: &[
            RATE, RATIO, MEGABYTES, WRITE_MEAN, WRITE_TAIL, READ_MEAN, CPU,
        ],
        claims: mixed,
        ..CHURN
    },
];

/// Alphard, in a file or on a device.
const OURS: &[&str] = &[FILE, RAW];
const OTHERS: &[&str] = &[BERKELEY_DB, TOKYO_CABINET, TREE, SQLITE];

/// The smaller or the larger of two.
type Pick = fn(f64, f64) -> f64;

/// Alphard's worse of the two by the best of the others, at each point that is
/// chosen; what is larger is better, or what is smaller.
fn against(
    it: &Measured,
    others: &[&str],
    (column, larger): (Column, bool),
    choose: impl Fn(&str) -> bool,
) -> Found {
    let (less, more): (Pick, Pick) = (f64::min, f64::max);
    let (worst, best) = if larger { (less, more) } else { (more, less) };
    at_points(it, choose, |label| {
        let of = |stores: &[&str], pick: Pick| {
            let all = stores
                .iter()
                .filter_map(|one| it.figure(label, one, column));
            all.reduce(pick)
        };
        Some(of(OURS, worst)? / of(others, best)?)
    })
}

fn is_peak(label: &str) -> bool {
    label.ends_with(PEAK)
}

/// More operations than the best of some others at their peak.
fn ahead(paper: &'static str, it: &Measured, others: &[&str]) -> Claim {
    let found = against(it, others, (RATE, true), is_peak);
    Claim::on(paper, found, above(1.0))
}

/// Inserts wait less than with the best of the others.
fn quicker(paper: &'static str, it: &Measured) -> Claim {
    let found = against(it, OTHERS, (WRITE_MEAN, false), any);
    Claim::on(paper, found, below(1.0))
}

fn table(it: &Measured) -> Vec<Claim> {
    vec![
        ahead(
            "Alphard writes 2.7 times as much a second as Tokyo Cabinet",
            it,
            &[TOKYO_CABINET, TREE],
        ),
        ahead("3.7 times as much as Berkeley DB", it, &[BERKELEY_DB]),
        ahead("27 times as much as SQLite", it, &[SQLITE]),
        quicker(
            "with an average latency of 0.8 ms, where the best of them has 38.4 ms",
            it,
        ),
    ]
}

fn writes(it: &Measured) -> Vec<Claim> {
    vec![
        ahead(
            "Alphard peaks at 8,000 operations a second, the best of the others at 6,500, and is ahead at every size",
            it,
            OTHERS,
        ),
        quicker(
            "it can achieve higher rates with a much lower latency than the others",
            it,
        ),
        Claim::on(
            "and stays at 10 ms where the best of the others has 4,000 ms: their tail is longer too",
            against(it, OTHERS, (WRITE_TAIL, false), any),
            below(1.0),
        ),
    ]
}

fn mixed(it: &Measured) -> Vec<Claim> {
    vec![
        ahead(
            "with reads in the mix Alphard outperforms the others in throughput",
            it,
            OTHERS,
        ),
        quicker("and in the latency of writes", it),
        Claim::on(
            "and of reads",
            against(it, OTHERS, (READ_MEAN, false), any),
            below(1.0),
        ),
    ]
}
