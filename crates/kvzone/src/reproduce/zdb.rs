//! Tables I to III of the ZDB paper: writing by one thread, by four, and
//! random reading; ZDB beside LevelDB and Kyoto Cabinet.
//!
//! What the paper leaves open, and what is done here:
//!
//! - Keys are 4 bytes, integers. In which order they were written is not said;
//!   the paper speaks of auto-incremented keys, so they are written in key
//!   order here, four writers taking turns in it.
//! - 100 million entries of 100 KB are 10 TB, more than the paper's disk held.
//!   Here the number of entries is bounded by bytes too, and stated.
//! - How durable writes were is not said. Here each store hands every write to
//!   the operating system, or does the nearest that it can (its settings say
//!   what), and nothing is synced.
//! - Reads are of what was loaded before by the same process, and every key is
//!   read once before the measured phase: what a store, or the operating
//!   system, keeps in memory is there.
//!
//! Batches of 100 entries are a row of ours: the one cell that ZDB lost in the
//! paper is that of 4-byte values by one writer, where a call costs more than
//! the entry.

use kvzone_core::job::{Load, SizeChoice, Until};

/// Ours first, then the paper's two.
pub(super) const STORES: [&str; 3] = ["zdb", "leveldb", "kyotocabinet"];

/// Entries in the paper.
const PAPER_ENTRIES: f64 = 100_000_000.0;

/// Bytes written to a store at a scale of 1, at most; 128 MiB at 0.01.
const MOST_BYTES: f64 = 12.5 * (1_u64 << 30) as f64;

/// Bytes read from a store at a scale of 1, at most; 1 GiB at 0.01.
const MOST_BYTES_READ: f64 = 100.0 * (1_u64 << 30) as f64;

/// A row of what is printed, a column of the paper's.
#[derive(Debug)]
pub(super) struct Column {
    /// `4 bytes`.
    pub(super) title: &'static str,
    /// Of a value.
    pub(super) bytes: u64,
    /// Entries a call.
    pub(super) batch: u32,
    /// Operations a second of [`STORES`] in the paper; none for rows of ours.
    pub(super) published: Option<[f64; 3]>,
}

/// A table of the paper.
#[derive(Debug)]
pub(super) struct Published {
    /// As on the command line.
    pub(super) name: &'static str,
    /// `ZDB paper, table I: one writing thread`.
    pub(super) title: &'static str,
    /// What it measures.
    pub(super) workload: &'static str,
    /// Threads that issue operations.
    pub(super) threads: u32,
    /// In the paper's order.
    pub(super) columns: &'static [Column],
}

const fn column(title: &'static str, bytes: u64, published: [f64; 3]) -> Column {
    Column {
        title,
        bytes,
        batch: 1,
        published: Some(published),
    }
}

const BATCHES: Column = Column {
    title: "4 bytes, in batches of 100",
    bytes: 4,
    batch: 100,
    published: None,
};

/// All of them. Figures are in the order of [`STORES`].
pub(super) const TABLES: &[Published] = &[
    Published {
        name: "zdb/table1",
        title: "ZDB paper, table I: one writing thread",
        workload: "fill-sequential",
        threads: 1,
        columns: &[
            column("4 bytes", 4, [294_796.0, 347_246.0, 343_348.0]),
            column("1 KB", 1024, [108_790.0, 5_360.0, 10_268.0]),
            column("100 KB", 102_400, [4_132.0, 61.0, 1_872.0]),
            BATCHES,
        ],
    },
    Published {
        name: "zdb/table2",
        title: "ZDB paper, table II: four writing threads",
        workload: "fill-sequential",
        threads: 4,
        columns: &[
            column("4 bytes", 4, [537_204.0, 369_760.0, 241_800.0]),
            column("1 KB", 1024, [128_220.0, 15_004.0, 80_420.0]),
            column("100 KB", 102_400, [5_248.0, 90.0, 1_920.0]),
            BATCHES,
        ],
    },
    Published {
        name: "zdb/table3",
        title: "ZDB paper, table III: random reading",
        workload: "read-random",
        threads: 1,
        columns: &[
            column("4 bytes", 4, [1_326_205.0, 304_448.0, 1_176_300.0]),
            column("1 KB", 1024, [60_325.0, 4_629.0, 45_234.0]),
            column("100 KB", 102_400, [6_232.0, 62.0, 5_075.0]),
        ],
    },
];

impl Published {
    /// What is issued for a column.
    pub(super) fn load(&self, column: &Column, scale: f64, seed: u64) -> Load {
        let keys = entries(column, scale, MOST_BYTES).max(u64::from(self.threads));
        let operations = match self.workload {
            "read-random" => entries(column, scale, MOST_BYTES_READ),
            _ => keys,
        };
        Load {
            workload: self.workload.to_string(),
            seed,
            keys,
            key_bytes: SizeChoice::Fixed(4),
            value_bytes: SizeChoice::Fixed(column.bytes),
            until: Until::Operations(operations),
            threads: self.threads,
            batch: column.batch,
            rate: None,
            popularity: None,
            verify_every: 64,
            compressible: 0.5,
            ..Load::default()
        }
    }
}

/// The paper's entries to scale, as long as they take no more bytes than
/// `most` to scale.
fn entries(column: &Column, scale: f64, most: f64) -> u64 {
    let by_bytes = most / (column.bytes + 4) as f64;
    ((PAPER_ENTRIES.min(by_bytes) * scale).round() as u64).clamp(1, u64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_follow_the_scale_and_large_values_their_bytes() {
        let load = |table: usize, column: usize, scale| {
            TABLES[table].load(&TABLES[table].columns[column], scale, 1)
        };
        assert_eq!(load(0, 0, 1.0).keys, 100_000_000);
        assert_eq!(load(0, 0, 0.01).keys, 1_000_000);
        let large = load(0, 2, 0.01);
        assert!((1_300..1_320).contains(&large.keys), "{}", large.keys);
        assert_eq!(load(1, 2, 1e-9).keys, 4, "a key for each thread");
        let reads = load(2, 2, 0.01);
        assert!(matches!(reads.until, Until::Operations(n) if n > 5 * reads.keys));
    }

    #[test]
    fn the_papers_order_of_stores_is_kept() {
        // In each table of the paper ZDB leads but in one cell.
        let lost: usize = TABLES
            .iter()
            .flat_map(|table| table.columns)
            .filter_map(|column| column.published)
            .filter(|[zdb, leveldb, kyoto]| zdb < leveldb || zdb < kyoto)
            .count();
        assert_eq!(lost, 1);
    }
}
