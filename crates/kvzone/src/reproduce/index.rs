//! Figures 12 and 13: index structures side by side, in files that are read
//! with direct I/O.

use kvzone_core::error::{Error, Result};
use kvzone_core::index_shape::on_disk::measure;
use kvzone_core::index_shape::{Experiment, STRUCTURES};
use kvzone_core::key_patterns::KeyPattern;
use kvzone_core::report::text::{bytes, duration, grouped, three_digits};
use serde_json::{Value, json};

use super::chosen;
use super::claims::{Claim, Found};
use super::figure::{Column, Contestant, Defaults, Figure, How, KeyKind, Point, Takes, variant};
use super::measured::{Cell, Measured, PointUsed};
use super::runner::{Asked, key_bytes};
use crate::output;
use crate::place::{self, RunFolder};

/// Keys at a scale of 1, as in the paper.
const KEYS: f64 = 1e6;

/// Lookups for each index.
const LOOKUPS: u64 = 5_000;

/// Keys of a batch: the paper's write buffer.
const BATCH: u64 = 4_096;

const NODE_BYTES: usize = 4_096;
const CHUNK_BYTES: usize = 8;

const PLAIN: &str = STRUCTURES[0].0;
const PREFIX: &str = STRUCTURES[1].0;
const NAIVE: &str = STRUCTURES[2].0;
const MENDED: &str = STRUCTURES[4].0;

/// A pattern of keys by its name.
const fn pattern(label: &'static str) -> Point {
    Point {
        label,
        ..Point::PLAIN
    }
}

/// Keys of so many random bytes.
const fn random(label: &'static str, bytes: u64) -> Point {
    Point {
        keys: KeyKind::Spread(bytes),
        ..pattern(label)
    }
}

/// Random keys, or a pattern with a name of its own.
fn pattern_of(point: &Point) -> KeyPattern {
    match point.label {
        "worst" => KeyPattern::Worst,
        "small" => KeyPattern::Small,
        "2-level" => KeyPattern::TwoLevel,
        _ => KeyPattern::Random(key_bytes(point) as usize),
    }
}

const fn index(place: usize) -> Contestant {
    variant(STRUCTURES[place].0, "", &[])
}

const SPACE: Column = Column::new("space", bytes, |row| row.number("/space_bytes"));
const READS: Column = Column::new("node reads", three_digits, |row| row.number("/node_reads"));

const INDEXES: Figure = Figure {
    axis: "keys",
    who: "index",
    what: "keys put in random order in batches of 4,096; nodes of 4,096 bytes, chunks of 8. Space is \
        that of live nodes, in a file of nothing else; random lookups, each node read from the \
        device with O_DIRECT and counted",
    stores: &[index(0), index(1), index(2), index(3), index(4)],
    columns: &[
        SPACE,
        Column::new("bytes/key", three_digits, |row| {
            Some(row.number("/space_bytes")? / row.number("/keys")?)
        }),
        READS,
        Column::new("height", grouped, |row| row.number("/height")),
        Column::new("latency", duration, |row| row.number("/latency_ns")),
    ],
    ..Figure::plain(How::Cells(
        Defaults {
            scale: 1.0,
            rounds: 1,
            takes: Takes::Points,
        },
        build,
    ))
};

/// Both of them.
pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "forestdb/fig12",
        title: "ForestDB paper, figure 12: index structures, random keys",
        points: &[
            random("random-8", 8),
            random("random-16", 16),
            random("random-32", 32),
            random("random-64", 64),
            random("random-128", 128),
            random("random-256", 256),
        ],
        claims: random_claims,
        ..INDEXES
    },
    Figure {
        name: "forestdb/fig13",
        title: "ForestDB paper, figure 13: index structures, keys with prefixes",
        points: &[pattern("worst"), pattern("small"), pattern("2-level")],
        claims: pattern_claims,
        ..INDEXES
    },
];

/// Builds and looks up everything.
fn build(figure: &'static Figure, asked: Asked<'_>) -> Result<(Measured, Value)> {
    let arguments = asked.arguments;
    let keys = ((KEYS * asked.scale) as u64).max(1);
    let lookups = arguments.operations.unwrap_or(LOOKUPS);
    let points = chosen::points(figure.name, figure.points, (&arguments.points, true))?;
    let directory = place::prepare(&arguments.dir)?;
    let folder = RunFolder::create(&directory, "index")?;
    // Space and reads are the same in every round.
    let mut measured = Measured {
        repeat: 0,
        ..asked.nothing(figure.stores.to_vec())
    };
    let mut rows = Vec::new();
    for point in points {
        let pattern = pattern_of(point);
        for (name, shape) in STRUCTURES {
            let experiment = Experiment {
                pattern,
                keys,
                shape,
                node_bytes: NODE_BYTES,
                chunk_bytes: CHUNK_BYTES,
                batch: BATCH,
                seed: arguments.seed,
            };
            let path = folder.path().join("nodes");
            let found = measure(&experiment, &path, lookups).map_err(Error::Cambium)?;
            let row = json!({
                "pattern": point.label,
                "index": name,
                "keys": keys,
                "space_bytes": found.file_bytes,
                "node_reads": found.reads,
                "height": found.shape.height,
                "lookups": found.lookups,
                "latency_ns": found.nanoseconds,
                "direct": found.direct,
            });
            let place = measured.points.len();
            measured.cells.push(Cell::once(place, name, row.clone()));
            rows.push(row);
        }
        measured
            .points
            .push(PointUsed::at(point.label, String::new()));
    }
    if let Some(last) = measured.points.last_mut() {
        let (keys, lookups) = (grouped(keys as f64), grouped(lookups as f64));
        last.conditions = format!("{keys} keys of each pattern, {lookups} lookups.\n");
    }
    if rows.iter().any(|row| row["direct"] == false) {
        output::complain("kvzone: this file system has no direct I/O: latencies are of its cache");
    }
    Ok((measured, json!({"schema": "kvzone-index/1", "rows": rows})))
}

/// One structure by another with a pattern.
fn ratio(
    it: &Measured,
    pattern: &str,
    column: Column,
    (above, below): (&str, &str),
) -> Option<f64> {
    Some(it.figure(pattern, above, column)? / it.figure(pattern, below, column)?)
}

/// How much more of something the longest keys take, in the plain and the prefix B+-tree
/// and in the trie.
fn growth(it: &Measured, column: Column) -> Found {
    let of = |index: &str| {
        let (long, short) = ("random-256", "random-8");
        Some(it.figure(long, index, column)? / it.figure(short, index, column)?)
    };
    let all = [of(PLAIN)?, of(PREFIX)?, of(MENDED)?];
    let [plain, prefix, trie] = all.map(three_digits);
    let words = format!(
        "from 8 to 256 bytes {plain} times for the B+-tree, {prefix} for the prefix B+-tree, {trie} for the trie"
    );
    Some((words, all.to_vec()))
}

fn random_claims(it: &Measured) -> Vec<Claim> {
    vec![
        Claim::on(
            "space of B+-tree and prefix B+-tree grows with the key length, that of the HB+-trie does not",
            growth(it, SPACE),
            |all| all[0] > 2.0 && all[1] > 2.0 && all[2] < 1.1,
        ),
        Claim::on(
            "lookups of the B+-tree need more reads with longer keys, those of the trie hardly more",
            growth(it, READS),
            |all| all[0] > all[2] && all[2] < 1.1,
        ),
        Claim::on(
            "the prefix B+-tree's reads stay nearly steady below 256 bytes",
            growth(it, READS),
            |all| all[1] <= all[0],
        ),
    ]
}

fn pattern_claims(it: &Measured) -> Vec<Claim> {
    let both = |pattern, pair| -> Found {
        let (space, reads) = (
            ratio(it, pattern, SPACE, pair)?,
            ratio(it, pattern, READS, pair)?,
        );
        let [of_space, of_reads] = [space, reads].map(three_digits);
        let words = format!("{of_space} of the space, {of_reads} of the reads");
        Some((words, vec![space, reads]))
    };
    let small = both("small", (NAIVE, PREFIX)).zip(both("small", (MENDED, PREFIX)));
    vec![
        Claim::on(
            "worst: without the optimization the trie takes more space than the B+-tree, and 2.8 times its latency",
            both("worst", (NAIVE, PLAIN)),
            |found| found[0] > 1.0 && found[1] > 1.0,
        ),
        Claim::on(
            "worst: with it, space and latency are like those of the prefix B+-tree",
            both("worst", (MENDED, PREFIX)),
            |found| found[0] < 1.1 && found[1] < 1.1,
        ),
        Claim::new(
            "small: the trie is better than the prefix B+-tree, with and without the optimization",
            small.map(|((without, naive), (with, mended))| {
                let better = |found: &[f64]| found[0] < 1.0 && found[1] <= 1.0;
                let text = format!("with: {with}; without: {without}");
                (text, better(&naive) && better(&mended))
            }),
        ),
        Claim::on(
            "2-level: without the optimization the trie takes more space than the B+-tree, with fewer reads",
            both("2-level", (NAIVE, PLAIN)),
            |found| found[0] > 1.0 && found[1] < 1.0,
        ),
        Claim::on(
            "2-level: with it, its space is no more than that of the prefix B+-tree",
            both("2-level", (MENDED, PREFIX)),
            |found| found[0] < 1.1,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_called_as_their_patterns() {
        for point in FIGURES.iter().flat_map(|figure| figure.points) {
            assert_eq!(pattern_of(point).to_string(), point.label);
        }
    }
}
