//! Figures 10 and 12 to 19 of ForestDB 2016: who is compared, at which points,
//! and what of it is shown; what section 4.2 says of it is in `claims`.
//!
//! The paper's setup, and ours where the paper leaves something open or a small machine
//! cannot follow:
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

mod claims;

use kvzone_core::adapter::DurabilityName;
use kvzone_core::error::Result;
use kvzone_core::key_patterns::DataSet;

use super::columns::{
    CPU, ENTRIES, RATE, RATIO, READS_PER_GET, SPACE_AMPLIFICATION, WRITE_AMPLIFICATION, WRITER_RATE,
};
use super::figure::{
    Column, Contestant, Defaults, Figure, How, KeyKind, Named, Paper, Point, Scan, Setting, Takes,
    store, variant,
};
use super::runner::{Asked, Size, entry_bytes};
use crate::datasets;

const FOREST: &str = "forest";
const LEVELDB: &str = "leveldb";
const ROCKSDB: &str = "rocksdb";
/// The likeness of Couchstore.
const COUCHSTORE: &str = "forest-couchstore";

/// Data by memory, in the paper, and the same for its largest data set: 112 GB and 32 GB.
const DATA_BY_MEMORY: f64 = 6.0;
const URL_BY_MEMORY: f64 = 3.5;
/// Least memory of a worker.
const LEAST_MEMORY: u64 = 48 << 20;
/// Keys of a data set, at least, if it has so many.
const LEAST_KEYS: u64 = 20_000;

const FILTERS: Named = ("bloom_bits", Setting::Is("10"));
/// Two write buffers take a sixteenth of the memory.
const BUFFER: Named = ("write_buffer_bytes", Setting::OfMemory(1, 32));

/// Filters, threshold, and as much memory for write buffers as the others have.
static PAPER: Paper = Paper {
    defaults: Defaults {
        scale: 0.0018,
        // Minutes, not an hour. A claim takes 5.
        rounds: 1,
        takes: Takes::All,
    },
    conditions: "Every write is synced; caches a quarter of the memory limit, write buffers a \
        sixteenth of it in all; Bloom filters of 10 bits a key in LevelDB and RocksDB; no \
        compression; forest compacts at 30 % stale; no value compresses.\n",
    durability: DurabilityName::Synced,
    cache: Setting::OfMemory(1, 4),
    settings: &[
        (&[LEVELDB], &[FILTERS, BUFFER]),
        (
            &[ROCKSDB, "rocksdb-blob"],
            &[FILTERS, BUFFER, ("write_buffers", Setting::Is("2"))],
        ),
        // While a flush runs there are two, and a quarter of one to work in. As the
        // others' compactions, its own gets by with what is left of the limit.
        // Couchstore's threshold is its own; it has no write buffer.
        (
            &[FOREST],
            &[
                ("compaction_threshold", Setting::Is("30")),
                // As published: the whole store is rewritten.
                ("cleaning", Setting::Is("off")),
                ("write_buffer_bytes", Setting::OfMemory(4, 144)),
                ("compaction_memory_bytes", Setting::OfMemory(1, 8)),
            ],
        ),
    ],
    compressible: 0.0,
    size,
    // Half of the documents are updated to measure write amplification.
    operations: |_, workload, keys, _| (workload == "overwrite").then_some((keys / 2).max(1)),
    steps: |_| Vec::new(),
};

fn size(point: &Point, asked: Asked<'_>) -> Result<Size> {
    let limited = |bytes: f64| Some((bytes as u64).max(LEAST_MEMORY));
    let KeyKind::Set(name) = point.keys else {
        let data = point.full_bytes * asked.scale;
        let count = (data / entry_bytes(point)) as u64;
        return Ok(Size::made_up(
            point,
            count.max(16),
            limited(data / DATA_BY_MEMORY),
        ));
    };
    let set = datasets::find(name)?;
    let url = DataSet::Url;
    let scaled = |documents: u64| (documents as f64 * asked.scale) as u64;
    let url_bytes = scaled(url.documents()) * (111 + url.document_bytes());
    // Sets of this machine take what it has, up to the size of url.
    let least = LEAST_KEYS.min(scaled(url.documents()).max(16));
    let count = match set {
        datasets::Set::Published(data) => scaled(data.documents()).max(least),
        datasets::Set::Real(real) => real.count(scaled(url.documents()).max(least))?,
    };
    Ok(Size {
        keys: set.keys(count, &asked.arguments.dir)?,
        count,
        memory: limited(url_bytes as f64 / URL_BY_MEMORY),
    })
}

const ALL: &[Contestant] = &[
    store(FOREST),
    store(LEVELDB),
    store(ROCKSDB),
    store(COUCHSTORE),
];

const fn compacted(label: &'static str, of: &'static str) -> Contestant {
    Contestant {
        compact: true,
        ..variant(label, of, &[])
    }
}

/// The mix of sections 4.2.1 and 4.2.2: 20 % updates, one thread.
const fn mix(label: &'static str) -> Point {
    Point {
        label,
        keys: KeyKind::TwoLevel(32),
        full_bytes: 200e6 * 1_056.0,
        workloads: &["mixed"],
        batch: (10, 100),
        update_percent: Some(20),
        ..Point::PLAIN
    }
}

const fn length(label: &'static str, bytes: u64) -> Point {
    Point {
        keys: KeyKind::TwoLevel(bytes),
        value_bytes: 512,
        workloads: &["mixed", "overwrite"],
        ..mix(label)
    }
}

const fn updates(label: &'static str, percent: u32) -> Point {
    Point {
        update_percent: Some(percent),
        ..mix(label)
    }
}

const fn readers(label: &'static str, threads: u32, writer_rate: Option<f64>) -> Point {
    Point {
        workloads: &["read-random"],
        threads,
        writer_rate,
        ..mix(label)
    }
}

const fn scan(label: &'static str, entries: u64) -> Point {
    Point {
        workloads: &["scan-random"],
        scan: Some(Scan::Entries(entries)),
        ..mix(label)
    }
}

const fn skew(label: &'static str, exponent: f64) -> Point {
    Point {
        skew: Some(exponent),
        ..mix(label)
    }
}

const fn set(label: &'static str) -> Point {
    Point {
        keys: KeyKind::Set(label),
        ..mix(label)
    }
}

const MIXED_COLUMNS: &[Column] = &[
    RATE,
    RATIO,
    READS_PER_GET,
    WRITE_AMPLIFICATION,
    SPACE_AMPLIFICATION,
    CPU,
];

const THROUGHPUT_AND_WRITES: &[(&str, &str)] = &[
    ("mixed", "Throughput with 20 % updates"),
    (
        "overwrite",
        "Write amplification while half of the documents are updated",
    ),
];

const ONE_WRITER: Option<f64> = Some(2_000.0);

const MIXED: Figure = Figure {
    what: "20 % updates, uniform; apart from that, updates alone",
    stores: ALL,
    columns: MIXED_COLUMNS,
    ..Figure::plain(How::Campaigns(&PAPER))
};

/// Figures 14 to 19.
pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "forestdb/fig14",
        title: "ForestDB paper, figure 14: key lengths",
        axis: "key bytes",
        points: &[
            length("16", 16),
            length("32", 32).extra(),
            length("64", 64).extra(),
            length("128", 128),
            length("256", 256).extra(),
            length("512", 512).extra(),
            length("1024", 1024),
        ],
        tables: THROUGHPUT_AND_WRITES,
        claims: claims::key_lengths,
        ..MIXED
    },
    Figure {
        name: "forestdb/fig15",
        title: "ForestDB paper, figure 15: (a) update ratios, (b) readers beside a writer",
        what: "(a) reads and updates of one thread; (b) reads of so many threads, beside one \
            writer of 2,000 updates a second",
        points: &[
            updates("0 % updates", 0),
            updates("20 % updates", 20),
            updates("40 % updates", 40).extra(),
            updates("60 % updates", 60).extra(),
            updates("80 % updates", 80).extra(),
            updates("100 % updates", 100),
            readers("1 reader alone", 1, None),
            readers("1 reader, writer", 1, ONE_WRITER),
            readers("2 readers, writer", 2, ONE_WRITER).extra(),
            readers("4 readers, writer", 4, ONE_WRITER),
            readers("8 readers, writer", 8, ONE_WRITER).extra(),
        ],
        tables: &[
            ("mixed", "(a) Share of updates"),
            ("read-random", "(b) Reads beside a writer"),
        ],
        columns: &[
            RATE,
            RATIO,
            WRITER_RATE,
            READS_PER_GET,
            WRITE_AMPLIFICATION,
            CPU,
        ],
        claims: claims::ratios_and_readers,
        ..MIXED
    },
    Figure {
        name: "forestdb/fig16",
        title: "ForestDB paper, figure 16: range scans",
        axis: "entries",
        what: "scans of so many entries from a random document on; (c): right after a compaction",
        stores: &[
            compacted("forest (c)", FOREST),
            store(FOREST),
            store(LEVELDB),
            store(ROCKSDB),
            compacted("forest-couchstore (c)", COUCHSTORE),
            store(COUCHSTORE),
        ],
        points: &[scan("100", 100), scan("1000", 1_000)],
        columns: &[RATE, ENTRIES, RATIO, SPACE_AMPLIFICATION, CPU],
        claims: claims::scans,
        ..MIXED
    },
    Figure {
        name: "forestdb/fig17",
        title: "ForestDB paper, figure 17: write buffer and HB+-trie, on and off",
        stores: &[
            variant("HB+-trie + WB", FOREST, &[]),
            variant("HB+-trie", FOREST, &[("write_buffer_entries", "1")]),
            variant("B+-tree + WB", FOREST, &[("index", "btree")]),
            variant(
                "B+-tree",
                FOREST,
                &[("index", "btree"), ("write_buffer_entries", "1")],
            ),
        ],
        points: &[length("32-byte keys", 32)],
        tables: THROUGHPUT_AND_WRITES,
        claims: claims::ablations,
        ..MIXED
    },
    Figure {
        name: "forestdb/fig18",
        title: "ForestDB paper, figure 18: locality",
        axis: "s",
        what: "20 % updates; 20,000 groups of random documents, chosen by Zipf's law with exponent s",
        points: &[
            skew("0", 0.0),
            skew("0.25", 0.25).extra(),
            skew("0.5", 0.5),
            skew("0.75", 0.75).extra(),
            skew("1", 1.0),
            skew("1.25", 1.25).extra(),
        ],
        claims: claims::locality,
        ..MIXED
    },
    Figure {
        name: "forestdb/fig19",
        title: "ForestDB paper, figure 19: data sets",
        axis: "data set",
        what: "20 % updates, uniform; the limit is the memory that the paper had for url, to scale, \
            for all sets: the small ones fit",
        points: &[
            set("profile"),
            set("playlist").extra(),
            set("history"),
            set("status").extra(),
            set("url"),
            set("paths-of-usr"),
            set("words-of-texts").extra(),
            set("files-of-packages").extra(),
        ],
        claims: claims::data_sets,
        ..MIXED
    },
];
