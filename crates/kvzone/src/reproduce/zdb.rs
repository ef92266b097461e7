//! Tables I to III of the ZDB paper: writing by one thread, by four, and
//! random reading; ZDB beside LevelDB and Kyoto Cabinet.
//!
//! Questions that the paper leaves open, and our answers:
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

use kvzone_core::adapter::DurabilityName;
use kvzone_core::report::text::three_digits;
use kvzone_core::statistics::verdict::Verdict;

use super::claims::Claim;
use super::columns::{PUBLISHED, RATE, RATIO};
use super::figure::{
    Defaults, Figure, How, KeyKind, Layout, PageCache, Paper, Point, Setting, Takes, store,
};
use super::measured::{Cell, Measured};
use super::present::ratio_text;
use super::runner::{Size, entry_bytes};

/// Entries in the paper.
const PAPER_ENTRIES: f64 = 100_000_000.0;
/// Bytes written to a store at a scale of 1, at most; 128 MiB at 0.01.
const MOST_BYTES: f64 = 12.5 * (1_u64 << 30) as f64;
/// Bytes read from a store at a scale of 1, at most; 1 GiB at 0.01.
const MOST_BYTES_READ: f64 = 100.0 * (1_u64 << 30) as f64;

static PAPER: Paper = Paper {
    defaults: Defaults {
        scale: 0.01,
        rounds: 5,
        // The paper's ratios are of its stores.
        takes: Takes::Rounds,
    },
    conditions: "Durability written, caches of 256 MiB, ratios with their 95 % intervals.\n",
    durability: DurabilityName::Written,
    // Enough for all that is read, as the paper's machine had memory for what it read.
    cache: Setting::Bytes(256 << 20),
    settings: &[],
    compressible: 0.5,
    size: |point, asked| {
        let keys = entries(point, asked.scale, MOST_BYTES).max(u64::from(point.threads));
        Ok(Size::made_up(point, keys, None))
    },
    operations: |point, workload, keys, scale| match workload {
        "read-random" => Some(entries(point, scale, MOST_BYTES_READ)),
        _ => Some(keys),
    },
    steps: |_| Vec::new(),
};

/// The paper's entries to scale, as long as they take no more bytes than
/// `most` to scale.
fn entries(point: &Point, scale: f64, most: f64) -> u64 {
    let entries = PAPER_ENTRIES.min(most / entry_bytes(point));
    ((entries * scale).round() as u64).clamp(1, u64::from(u32::MAX))
}

/// Four-byte keys, one writing thread.
const fn values(label: &'static str, value_bytes: u64, published: &'static [f64]) -> Point {
    Point {
        label,
        workloads: &["fill-sequential"],
        keys: KeyKind::Spread(4),
        value_bytes,
        published,
        ..Point::PLAIN
    }
}

const BATCHES: Point = Point {
    batch: (100, 100),
    ..values("4 bytes, in batches of 100", 4, &[])
};

const fn by_four(point: Point) -> Point {
    Point {
        threads: 4,
        ..point
    }
}

/// The paper read what it had just written, from memory.
const fn read(point: Point) -> Point {
    Point {
        workloads: &["read-random"],
        cache: PageCache::Warm,
        ..point
    }
}

const TABLE: Figure = Figure {
    axis: "values of",
    what: "workload fill-sequential",
    stores: &[store("zdb"), store("leveldb"), store("kyotocabinet")],
    layout: Layout::Beside,
    columns: &[RATE, RATIO, PUBLISHED],
    claims: orders,
    ..Figure::plain(How::Campaigns(&PAPER))
};

/// All of them. What is published is in the order of the stores.
pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "zdb/table1",
        title: "ZDB paper, table I: one writing thread",
        points: &[
            values("4 bytes", 4, &[294_796.0, 347_246.0, 343_348.0]),
            values("1 KB", 1024, &[108_790.0, 5_360.0, 10_268.0]),
            values("100 KB", 102_400, &[4_132.0, 61.0, 1_872.0]),
            BATCHES,
        ],
        ..TABLE
    },
    Figure {
        name: "zdb/table2",
        title: "ZDB paper, table II: four writing threads",
        points: &[
            by_four(values("4 bytes", 4, &[537_204.0, 369_760.0, 241_800.0])),
            by_four(values("1 KB", 1024, &[128_220.0, 15_004.0, 80_420.0])),
            by_four(values("100 KB", 102_400, &[5_248.0, 90.0, 1_920.0])),
            by_four(BATCHES),
        ],
        ..TABLE
    },
    Figure {
        name: "zdb/table3",
        title: "ZDB paper, table III: random reading",
        what: "workload read-random",
        points: &[
            read(values("4 bytes", 4, &[1_326_205.0, 304_448.0, 1_176_300.0])),
            read(values("1 KB", 1024, &[60_325.0, 4_629.0, 45_234.0])),
            read(values("100 KB", 102_400, &[6_232.0, 62.0, 5_075.0])),
        ],
        ..TABLE
    },
];

/// The paper's order of stores at each size of values.
fn orders(it: &Measured) -> Vec<Claim> {
    it.cells.iter().filter_map(|cell| order(it, cell)).collect()
}

fn order(it: &Measured, cell: &Cell) -> Option<Claim> {
    if cell.label == it.first() {
        return None;
    }
    let published = it.published(cell)?;
    let order = if published > 1.0 { "faster" } else { "slower" };
    let paper = format!(
        "values of {}: zdb is {order} than {}, {} times its rate",
        it.points[cell.point].label,
        cell.label,
        three_digits(published)
    );
    let ratio = it.ratio(cell);
    let verdict = ratio.as_ref().map(|found| found.verdict);
    let here = ratio.map(|found| {
        let holds = (found.ratio > 1.0) == (published > 1.0);
        (format!("{} times", ratio_text(Some(found))), holds)
    });
    Some(Claim {
        is_doubtful: matches!(verdict, Some(Verdict::Noise | Verdict::Equal)),
        ..Claim::new(paper, here)
    })
}

#[cfg(test)]
mod tests {
    use super::super::measured::{PointUsed, Round};
    use super::super::present::show;
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn entries_follow_the_scale_and_large_values_their_bytes() {
        let point = |table: usize, place: usize| &FIGURES[table].points[place];
        assert_eq!(entries(point(0, 0), 1.0, MOST_BYTES), 100_000_000);
        assert_eq!(entries(point(0, 0), 0.01, MOST_BYTES), 1_000_000);
        let large = entries(point(0, 2), 0.01, MOST_BYTES);
        assert!((1_300..1_320).contains(&large), "{large}");
        let reads = (PAPER.operations)(point(2, 2), "read-random", large, 0.01);
        assert!(reads.is_some_and(|reads| reads > 5 * large));
    }

    #[test]
    fn the_papers_order_of_stores_is_kept() {
        // In each table of the paper ZDB leads but in one cell.
        let points = FIGURES.iter().flat_map(|table| table.points);
        let lost = points.filter(|point| match point.published {
            [zdb, others @ ..] => others.iter().any(|other| zdb < other),
            [] => false,
        });
        assert_eq!(lost.count(), 1);
    }
    #[test]
    fn ratios_stand_beside_the_papers_and_decide_the_claims() {
        let cell = |label, rates: [f64; 3]| {
            let round = |(repeat, rate): (usize, &f64)| Round {
                repeat: repeat as u32,
                found: json!({"ops_per_second": rate}),
                ..Round::default()
            };
            Cell {
                version: Some("1.23".to_string()),
                rounds: rates.iter().enumerate().map(round).collect(),
                ..Cell::once(0, label, Value::Null)
            }
        };
        let table = &FIGURES[0];
        let measured = Measured {
            points: vec![PointUsed {
                published: table.points[0].published,
                ..PointUsed::at("4 bytes", String::new())
            }],
            stores: table.stores.to_vec(),
            cells: vec![
                cell("zdb", [1900.0, 2000.0, 2100.0]),
                cell("leveldb", [1000.0; 3]),
            ],
            repeat: 3,
            seed: 1,
            ..Measured::default()
        };
        let shown = show(table, &measured);
        let markdown = shown.grids[0].1.markdown();
        let expected = "| 4 bytes | 2,000 | 1,000 | 2.00 [1.90, 2.10] | 0.85 | - | - | - |";
        assert!(markdown.contains(expected), "{markdown}");
        let heads = "| leveldb 1.23, ops/s | zdb : leveldb | in the paper | kyotocabinet, ops/s |";
        assert!(markdown.contains(heads), "{markdown}");
        let [claim] = shown.claims.as_slice() else {
            panic!("{:?}", shown.claims);
        };
        assert!(
            claim
                .paper
                .contains("zdb is slower than leveldb, 0.85 times")
        );
        assert!(!claim.holds && !claim.is_within_noise());
    }
}
