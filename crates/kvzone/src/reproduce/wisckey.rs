//! Figures of WiscKey (FAST 2016) that compare stores: who takes part, at which
//! points, what of it is shown, and what sections 2 to 4 say of it.
//!
//! The paper's setup, and ours where the paper leaves something open or a small machine
//! cannot follow:
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

use kvzone_core::adapter::DurabilityName;

use super::claims::{
    Claim, Found, above, after, any, at_points, below, each, first_is_least, first_is_most,
};
use super::columns::{
    LOAD_AMPLIFICATION, MEDIAN, MEGABYTES, OF_FILE, PROCESSOR, RATE, RATIO, READ_AMPLIFICATION,
    READS_PER_GET, SPACE_AMPLIFICATION, WAITING, WRITE_AMPLIFICATION,
};
use super::figure::{
    Column, Contestant, Defaults, Figure, How, Named, Paper, Point, Scan, Setting, Takes, store,
    variant,
};
use super::measured::Measured;
use super::runner::{Size, entry_bytes};

/// Name of the engine among the stores.
pub(super) const WISCKEY: &str = "wisckey";
/// The paper's other store.
const LEVELDB: &str = "leveldb";

/// The paper's data set.
pub(super) const DATA: f64 = 100e9;
/// Memory by data, in the paper.
const MEMORY_BY_DATA: f64 = 0.64;
/// Least memory of a worker.
const LEAST_MEMORY: u64 = 96 << 20;

/// A share of the data that takes minutes, and one round, not an hour. A claim takes 5.
pub(super) const DEFAULTS: Defaults = Defaults {
    scale: 0.002,
    rounds: 1,
    takes: Takes::All,
};

/// LevelDB's own, in all stores.
const BUFFER: Named = ("write_buffer_bytes", Setting::Bytes(4 << 20));

static PAPER: Paper = Paper {
    defaults: DEFAULTS,
    conditions: "Writes are handed to the operating system, not synced; write buffers of 4 MiB, \
        caches of 8 MiB, filters of 10 bits a key; no compression; no value compresses; one \
        thread.\n",
    durability: DurabilityName::Written,
    cache: Setting::Bytes(8 << 20),
    settings: &[
        (
            &[LEVELDB, "rocksdb", "rocksdb-blob"],
            &[("bloom_bits", Setting::Is("10")), BUFFER],
        ),
        (&[WISCKEY], &[("filter_bits", Setting::Is("10")), BUFFER]),
    ],
    compressible: 0.0,
    size: |point, asked| {
        let data = point.full_bytes * asked.scale;
        let keys = ((data / entry_bytes(point)) as u64).max(64);
        let memory = ((data * MEMORY_BY_DATA) as u64).max(LEAST_MEMORY);
        Ok(Size::made_up(point, keys, Some(memory)))
    },
    operations: |_, workload, keys, _| {
        let each_once = workload.starts_with("fill-") || workload == "overwrite";
        each_once.then_some(keys)
    },
    steps: |_| Vec::new(),
};

const TWO: &[Contestant] = &[store(WISCKEY), store(LEVELDB), store("rocksdb")];

/// A scan visits a twenty-fifth of the entries, as 4 GB are of 100.
const fn point(label: &'static str, workloads: &'static [&'static str], value_bytes: u64) -> Point {
    Point {
        label,
        workloads,
        value_bytes,
        full_bytes: DATA,
        scan: match workloads[0].as_bytes() {
            [b's', b'c', b'a', b'n', ..] => Some(Scan::Part(25)),
            _ => None,
        },
        ..Point::PLAIN
    }
}

/// The sizes of figures 7 to 12.
const fn sizes(workloads: &'static [&'static str]) -> [Point; 7] {
    [
        point("64 B", workloads, 64),
        point("256 B", workloads, 256).extra(),
        point("1 KB", workloads, 1 << 10),
        point("4 KB", workloads, 4 << 10),
        point("16 KB", workloads, 16 << 10).extra(),
        point("64 KB", workloads, 64 << 10).extra(),
        point("256 KB", workloads, 256 << 10),
    ]
}

const fn cold_sizes(workloads: &'static [&'static str]) -> [Point; 7] {
    let mut points = sizes(workloads);
    let mut place = 0;
    while place < points.len() {
        points[place] = points[place].cold();
        place += 1;
    }
    points
}

const LOADS: &[Column] = &[
    RATE,
    MEGABYTES,
    OF_FILE,
    RATIO,
    WRITE_AMPLIFICATION,
    PROCESSOR,
];
const READS: &[Column] = &[RATE, MEGABYTES, RATIO, READ_AMPLIFICATION, PROCESSOR];

const SIZES: Figure = Figure {
    axis: "value",
    stores: TWO,
    columns: LOADS,
    ..Figure::plain(How::Campaigns(&PAPER))
};

/// Figures 2, 7 to 12, 14 and 15, and table 1.
pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "wisckey/fig2",
        title: "WiscKey paper, figure 2: write and read amplification of LevelDB",
        axis: "data",
        what: "random load of 1 KB values, then random lookups, at two sizes of the data",
        stores: &[store(LEVELDB), store("rocksdb"), store(WISCKEY)],
        points: &[
            Point {
                full_bytes: DATA / 100.0,
                ..point("1 GB", &["read-random"], 1 << 10).cold()
            },
            point("100 GB", &["read-random"], 1 << 10).cold(),
        ],
        columns: &[LOAD_AMPLIFICATION, READ_AMPLIFICATION, RATE],
        claims: amplification,
        ..SIZES
    },
    Figure {
        name: "wisckey/fig7",
        title: "WiscKey paper, figure 7: sequential load",
        what: "every key put once, in key order",
        points: &sizes(&["fill-sequential"]),
        columns: LOADS,
        claims: sequential_load,
        ..SIZES
    },
    Figure {
        name: "wisckey/fig8",
        title: "WiscKey paper, figure 8: where time goes in sequential load",
        what: "every key put once, in key order; what is beyond the median put is waiting",
        stores: &[store(LEVELDB), store(WISCKEY)],
        points: &sizes(&["fill-sequential"]),
        columns: &[MEGABYTES, MEDIAN, WAITING, PROCESSOR],
        claims: waiting,
        ..SIZES
    },
    Figure {
        name: "wisckey/fig9",
        title: "WiscKey paper, figure 9: random load",
        what: "every key put once, in random order",
        points: &sizes(&["fill-random"]),
        columns: LOADS,
        claims: random_load,
        ..SIZES
    },
    Figure {
        name: "wisckey/fig10",
        title: "WiscKey paper, figure 10: write amplification of random load",
        what: "every key put once, in random order",
        points: &sizes(&["fill-random"]),
        columns: &[WRITE_AMPLIFICATION, SPACE_AMPLIFICATION],
        claims: write_amplification,
        ..SIZES
    },
    Figure {
        name: "wisckey/fig11",
        title: "WiscKey paper, figure 11: random lookups",
        what: "gets of random keys from randomly loaded data, from an empty page cache",
        points: &cold_sizes(&["read-random"]),
        columns: &[RATE, MEGABYTES, RATIO, READS_PER_GET, READ_AMPLIFICATION],
        claims: lookups,
        ..SIZES
    },
    Figure {
        name: "wisckey/fig12",
        title: "WiscKey paper, figure 12: range queries",
        axis: "load and value",
        what: "one scan of a twenty-fifth of the data after the other, from an empty page cache",
        points: &[
            point("random, 64 B", &["scan-random"], 64).cold(),
            point("random, 256 B", &["scan-random"], 256).extra().cold(),
            point("random, 1 KB", &["scan-random"], 1 << 10)
                .extra()
                .cold(),
            point("random, 4 KB", &["scan-random"], 4 << 10).cold(),
            point("random, 16 KB", &["scan-random"], 16 << 10)
                .extra()
                .cold(),
            point("random, 64 KB", &["scan-random"], 64 << 10).cold(),
            point("random, 256 KB", &["scan-random"], 256 << 10)
                .extra()
                .cold(),
            point("sequential, 64 B", &["scan-sorted"], 64).cold(),
            point("sequential, 1 KB", &["scan-sorted"], 1 << 10)
                .extra()
                .cold(),
            point("sequential, 4 KB", &["scan-sorted"], 4 << 10).cold(),
            point("sequential, 64 KB", &["scan-sorted"], 64 << 10)
                .extra()
                .cold(),
        ],
        columns: READS,
        claims: ranges,
        ..SIZES
    },
    Figure {
        name: "wisckey/fig14",
        title: "WiscKey paper, figure 14: space amplification",
        what: "as many puts of random keys as there are, on randomly loaded data; \
            without garbage collection and with it, to 110 % of what is live",
        stores: &[
            variant("wisckey-gc", WISCKEY, &[("space_limit", "110")]),
            variant("wisckey", WISCKEY, &[("collection", "off")]),
            store(LEVELDB),
        ],
        points: &sizes(&["overwrite"]),
        columns: &[SPACE_AMPLIFICATION, RATE, RATIO, WRITE_AMPLIFICATION],
        claims: space,
        ..SIZES
    },
    Figure {
        name: "wisckey/fig15",
        title: "WiscKey paper, figure 15: YCSB",
        axis: "workload and value",
        what: "load, and YCSB A to F on what was loaded; wisckey-gc collects garbage, wisckey not",
        stores: &[
            store(LEVELDB),
            store("rocksdb"),
            store("rocksdb-blob"),
            variant("wisckey-gc", WISCKEY, &[]),
            variant("wisckey", WISCKEY, &[("collection", "off")]),
        ],
        points: &[
            point("load, 1 KB", &["fill-random"], 1 << 10),
            point("A, 1 KB", &["ycsb-a"], 1 << 10),
            point("B, 1 KB", &["ycsb-b"], 1 << 10).extra(),
            point("C, 1 KB", &["ycsb-c"], 1 << 10).extra(),
            point("D, 1 KB", &["ycsb-d"], 1 << 10).extra(),
            point("E, 1 KB", &["ycsb-e"], 1 << 10),
            point("F, 1 KB", &["ycsb-f"], 1 << 10).extra(),
            point("load, 16 KB", &["fill-random"], 16 << 10),
            point("A, 16 KB", &["ycsb-a"], 16 << 10).extra(),
            point("B, 16 KB", &["ycsb-b"], 16 << 10).extra(),
            point("C, 16 KB", &["ycsb-c"], 16 << 10).extra(),
            point("D, 16 KB", &["ycsb-d"], 16 << 10).extra(),
            point("E, 16 KB", &["ycsb-e"], 16 << 10).extra(),
            point("F, 16 KB", &["ycsb-f"], 16 << 10).extra(),
        ],
        columns: &[RATE, RATIO, PROCESSOR],
        claims: ycsb,
        ..SIZES
    },
    Figure {
        name: "wisckey/table1",
        title: "WiscKey paper, table 1: processor time",
        axis: "workload",
        what: "1 KB values; loads, then lookups and scans of what was loaded at random",
        stores: &[store(WISCKEY), store(LEVELDB)],
        points: &[
            point("Seq-Load", &["fill-sequential"], 1 << 10),
            point("Rand-Load", &["fill-random"], 1 << 10),
            point("Rand-Lookup", &["read-random"], 1 << 10).cold(),
            point("Range-Query", &["scan-random"], 1 << 10).cold(),
        ],
        columns: &[PROCESSOR, RATE],
        claims: processor,
        ..SIZES
    },
];

const OURS: (&str, &str) = (WISCKEY, LEVELDB);

/// The number of a column of one store divided by another's, at each point that is chosen.
fn by(
    it: &Measured,
    column: Column,
    (one, other): (&str, &str),
    choose: impl Fn(&str) -> bool,
) -> Found {
    at_points(it, choose, |label| {
        Some(it.figure(label, one, column)? / it.figure(label, other, column)?)
    })
}

fn amplification(it: &Measured) -> Vec<Claim> {
    let sizes = |column| each(&["1 GB", "100 GB"], |size| it.figure(size, LEVELDB, column));
    vec![
        Claim::on(
            "LevelDB's write amplification grows from 3.1 with 1 GB to 14 with 100 GB",
            sizes(LOAD_AMPLIFICATION),
            first_is_least,
        ),
        Claim::on(
            "its read amplification grows from 8.2 to 327",
            sizes(READ_AMPLIFICATION),
            first_is_least,
        ),
    ]
}

fn sequential_load(it: &Measured) -> Vec<Claim> {
    let found = by(it, RATE, OURS, any);
    vec![Claim::on(
        "sequential load is faster than LevelDB's at every size, 3 times with small values",
        found,
        above(1.0),
    )]
}

fn waiting(it: &Measured) -> Vec<Claim> {
    let waiting = |size: &str| it.figure(size, LEVELDB, WAITING);
    let ends = it.ends();
    vec![Claim::on(
        "with large values waiting for memtables to be flushed is LevelDB's bottleneck, with small ones writing to the log",
        ends.and_then(|(small, large)| after("percent", each(&[large, small], waiting))),
        first_is_most,
    )]
}

fn random_load(it: &Measured) -> Vec<Claim> {
    let at = |size: &'static str| by(it, RATE, OURS, move |label| label == size);
    vec![
        Claim::on(
            "random load is faster than LevelDB's at every size",
            by(it, RATE, OURS, any),
            above(1.0),
        ),
        Claim::on("46 times as fast at 1 KB", at("1 KB"), above(1.0)),
        Claim::on("111 times as fast at 4 KB", at("4 KB"), above(1.0)),
    ]
}

fn write_amplification(it: &Measured) -> Vec<Claim> {
    let sizes: Vec<&str> = it.labels().filter(|&label| label != "64 B").collect();
    let ours = each(&sizes, |size| it.figure(size, WISCKEY, WRITE_AMPLIFICATION));
    vec![
        Claim::on(
            "WiscKey's write amplification falls to nearly 1 from values of 1 KB on",
            ours.filter(|_| !sizes.is_empty()),
            below(1.4),
        ),
        Claim::on(
            "LevelDB's is always more than 12, so more than WiscKey's",
            by(it, WRITE_AMPLIFICATION, (LEVELDB, WISCKEY), any),
            above(1.0),
        ),
    ]
}

fn lookups(it: &Measured) -> Vec<Claim> {
    vec![Claim::on(
        "random lookups are faster than LevelDB's, 12 times at 1 KB",
        by(it, RATE, OURS, any),
        above(1.0),
    )]
}

fn ranges(it: &Measured) -> Vec<Claim> {
    let of = |kind: &'static str, small: bool| {
        by(it, RATE, OURS, move |label| {
            label.starts_with(kind) && label.ends_with(" B") == small
        })
    };
    vec![
        Claim::on(
            "on randomly loaded data, 64-byte values are scanned 12 times slower than by LevelDB",
            of("random", true),
            below(1.0),
        ),
        Claim::on(
            "and larger ones up to 8.4 times faster",
            by(it, RATE, OURS, |label| {
                label.starts_with("random") && label.ends_with("KB")
            }),
            above(1.0),
        ),
        Claim::on(
            "on sequentially loaded data 64-byte values are 25 % slower",
            of("sequential", true),
            below(1.0),
        ),
        Claim::on(
            "and large ones up to 2.8 times faster",
            of("sequential", false),
            above(1.0),
        ),
    ]
}

fn space(it: &Measured) -> Vec<Claim> {
    let column = SPACE_AMPLIFICATION;
    vec![
        Claim::on(
            "garbage collection brings the size close to that of the data: less than without it",
            by(it, column, ("wisckey-gc", WISCKEY), any),
            below(1.0),
        ),
        Claim::on(
            "LevelDB's space is more than that of WiscKey with garbage collection",
            by(it, column, (LEVELDB, "wisckey-gc"), any),
            above(1.0),
        ),
    ]
}

fn ycsb(it: &Measured) -> Vec<Claim> {
    let gc = ("wisckey-gc", LEVELDB);
    let of = |begins: &'static str| by(it, RATE, gc, move |label| label.starts_with(begins));
    vec![
        Claim::on(
            "load is at least 45 times as fast as LevelDB's, garbage collection on",
            of("load"),
            above(1.0),
        ),
        Claim::on(
            "A, B, C, D and F are ahead of LevelDB at both sizes",
            by(it, RATE, gc, |label| {
                !label.starts_with("load") && !label.starts_with('E')
            }),
            above(1.0),
        ),
        Claim::on(
            "E, short scans, is ahead even with 1 KB values",
            of("E"),
            above(1.0),
        ),
    ]
}

fn processor(it: &Measured) -> Vec<Claim> {
    let of = |point: &'static str| by(it, PROCESSOR, OURS, move |label| label == point);
    vec![
        Claim::on(
            "sequential load takes less of the processors than LevelDB's",
            of("Seq-Load"),
            below(1.0),
        ),
        Claim::on(
            "range queries take much more, by the 32 threads that prefetch",
            of("Range-Query"),
            above(1.0),
        ),
    ]
}
