//! Figures 12 and 13: index structures side by side, in files that are read
//! with direct I/O.

use cambium_base::Error as IndexError;
use kvzone_core::error::{Error, Result};
use kvzone_core::index_shape::on_disk::{OnDisk, measure};
use kvzone_core::index_shape::{Experiment, STRUCTURES};
use kvzone_core::key_patterns::KeyPattern;
use kvzone_core::report::text::{bytes, duration, grouped, three_digits};
use serde_json::{Value, json};

use super::super::grid::{Claim, Grid};
use super::super::shown::Shown;
use super::measure::Asked;
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

/// Places of the structures in [`STRUCTURES`].
const PLAIN: usize = 0;
const PREFIX: usize = 1;
const NAIVE: usize = 2;
const MENDED: usize = 4;

/// A figure about indexes.
#[derive(Debug)]
pub(super) struct IndexFigure {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    patterns: &'static [KeyPattern],
    claims: fn(&[Row]) -> Vec<Claim>,
}

/// Both of them.
pub(super) const FIGURES: &[IndexFigure] = &[
    IndexFigure {
        name: "forestdb/fig12",
        title: "ForestDB paper, figure 12: index structures, random keys",
        patterns: &[
            KeyPattern::Random(8),
            KeyPattern::Random(16),
            KeyPattern::Random(32),
            KeyPattern::Random(64),
            KeyPattern::Random(128),
            KeyPattern::Random(256),
        ],
        claims: random_claims,
    },
    IndexFigure {
        name: "forestdb/fig13",
        title: "ForestDB paper, figure 13: index structures, keys with prefixes",
        patterns: &[KeyPattern::Worst, KeyPattern::Small, KeyPattern::TwoLevel],
        claims: pattern_claims,
    },
];

/// One structure with one pattern.
#[derive(Clone, Copy, Debug)]
struct Row {
    pattern: KeyPattern,
    structure: usize,
    found: OnDisk,
}

/// Builds and looks up everything; the rows as JSON are for `--json`.
pub(super) fn show(figure: &'static IndexFigure, asked: Asked<'_>) -> Result<(Shown, Value)> {
    let arguments = asked.arguments;
    let keys = ((KEYS * asked.scale) as u64).max(1);
    let directory = place::prepare(&arguments.dir)?;
    let folder = RunFolder::create(&directory, "index")?;
    let wanted = |pattern: &&KeyPattern| {
        arguments.points.is_empty() || arguments.points.contains(&pattern.to_string())
    };
    let mut rows = Vec::new();
    for &pattern in figure.patterns.iter().filter(wanted) {
        for (structure, (_, shape)) in STRUCTURES.into_iter().enumerate() {
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
            let lookups = arguments.operations.unwrap_or(LOOKUPS);
            let found = measure(&experiment, &path, lookups).map_err(index_failed)?;
            rows.push(Row {
                pattern,
                structure,
                found,
            });
        }
    }
    if rows.is_empty() {
        let all: Vec<String> = figure.patterns.iter().map(ToString::to_string).collect();
        let all = all.join(", ");
        return Err(Error::Usage(format!(
            "{} has the points {all}",
            figure.name
        )));
    }
    if rows.iter().any(|row| !row.found.direct) {
        output::complain("kvzone: this file system has no direct I/O: latencies are of its cache");
    }
    let shown = Shown {
        grids: vec![("", grid(&rows, keys))],
        claims: (figure.claims)(&rows),
        conditions: format!(
            "{} keys, put in random order in batches of {BATCH}; nodes of {NODE_BYTES} bytes, chunks \
             of {CHUNK_BYTES}, seed {}. Space is that of live nodes, in a file of nothing else; \
             {} random lookups, each node read from the device with O_DIRECT and counted.\n",
            grouped(keys as f64),
            arguments.seed,
            grouped(rows[0].found.lookups as f64),
        ),
    };
    Ok((shown, to_json(&rows, keys)))
}

fn index_failed(error: IndexError) -> Error {
    Error::Cambium(error)
}

fn grid(rows: &[Row], keys: u64) -> Grid {
    let heads = [
        "keys",
        "index",
        "space",
        "bytes/key",
        "node reads",
        "height",
        "latency",
    ];
    let row = |row: &Row| {
        let found = row.found;
        vec![
            row.pattern.to_string(),
            STRUCTURES[row.structure].0.to_string(),
            bytes(found.file_bytes as f64),
            three_digits(found.file_bytes as f64 / keys as f64),
            three_digits(found.reads),
            found.shape.height.to_string(),
            duration(found.nanoseconds),
        ]
    };
    Grid {
        heads: heads.map(str::to_string).to_vec(),
        words: 2,
        rows: rows.iter().map(row).collect(),
    }
}

fn to_json(rows: &[Row], keys: u64) -> Value {
    let row = |row: &Row| {
        json!({
            "pattern": row.pattern.to_string(),
            "index": STRUCTURES[row.structure].0,
            "keys": keys,
            "space_bytes": row.found.file_bytes,
            "node_reads": row.found.reads,
            "height": row.found.shape.height,
            "lookups": row.found.lookups,
            "latency_ns": row.found.nanoseconds,
            "direct": row.found.direct,
        })
    };
    json!({"schema": "kvzone-index/1", "rows": rows.iter().map(row).collect::<Vec<Value>>()})
}

fn found(rows: &[Row], pattern: KeyPattern, structure: usize) -> Option<OnDisk> {
    let row = rows
        .iter()
        .find(|row| row.pattern == pattern && row.structure == structure);
    row.map(|row| row.found)
}

/// One structure by another.
fn ratio(
    rows: &[Row],
    pattern: KeyPattern,
    (above, below): (usize, usize),
    figure: fn(&OnDisk) -> f64,
) -> Option<f64> {
    let (above, below) = (found(rows, pattern, above)?, found(rows, pattern, below)?);
    Some(figure(&above) / figure(&below))
}

fn space(found: &OnDisk) -> f64 {
    found.file_bytes as f64
}

fn reads(found: &OnDisk) -> f64 {
    found.reads
}

fn random_claims(rows: &[Row]) -> Vec<Claim> {
    let (short, long) = (KeyPattern::Random(8), KeyPattern::Random(256));
    let growth = |structure: usize, figure: fn(&OnDisk) -> f64| {
        let (short, long) = (
            found(rows, short, structure)?,
            found(rows, long, structure)?,
        );
        Some(figure(&long) / figure(&short))
    };
    let three = |figure: fn(&OnDisk) -> f64| {
        let of = |structure| growth(structure, figure);
        Some((of(PLAIN)?, of(PREFIX)?, of(MENDED)?))
    };
    let words = |(plain, prefix, trie): (f64, f64, f64)| {
        format!(
            "from 8 to 256 bytes {} times for the B+-tree, {} for the prefix B+-tree, {} for the trie",
            three_digits(plain),
            three_digits(prefix),
            three_digits(trie)
        )
    };
    vec![
        Claim::new(
            "space of B+-tree and prefix B+-tree grows with the key length, that of the HB+-trie does not",
            three(space).map(|all| (words(all), all.0 > 2.0 && all.1 > 2.0 && all.2 < 1.1)),
        ),
        Claim::new(
            "lookups of the B+-tree need more reads with longer keys, those of the trie hardly more",
            three(reads).map(|all| (words(all), all.0 > all.2 && all.2 < 1.1)),
        ),
        Claim::new(
            "the prefix B+-tree's reads stay nearly steady below 256 bytes",
            three(reads).map(|all| (words(all), all.1 <= all.0)),
        ),
    ]
}

fn pattern_claims(rows: &[Row]) -> Vec<Claim> {
    let of = |pattern, pair, figure: fn(&OnDisk) -> f64| ratio(rows, pattern, pair, figure);
    let both = |pattern, pair| Some((of(pattern, pair, space)?, of(pattern, pair, reads)?));
    let words = |(space, reads): (f64, f64)| {
        format!(
            "{} of the space, {} of the reads",
            three_digits(space),
            three_digits(reads)
        )
    };
    let worst = KeyPattern::Worst;
    vec![
        Claim::new(
            "worst: without the optimization the trie takes more space than the B+-tree, and 2.8 times its latency",
            both(worst, (NAIVE, PLAIN)).map(|found| (words(found), found.0 > 1.0 && found.1 > 1.0)),
        ),
        Claim::new(
            "worst: with it, space and latency are like those of the prefix B+-tree",
            both(worst, (MENDED, PREFIX))
                .map(|found| (words(found), found.0 < 1.1 && found.1 < 1.1)),
        ),
        Claim::new(
            "small: the trie is better than the prefix B+-tree, with and without the optimization",
            both(KeyPattern::Small, (NAIVE, PREFIX))
                .zip(both(KeyPattern::Small, (MENDED, PREFIX)))
                .map(|(naive, mended)| {
                    let better = |(space, reads): (f64, f64)| space < 1.0 && reads <= 1.0;
                    let text = format!("with: {}; without: {}", words(mended), words(naive));
                    (text, better(naive) && better(mended))
                }),
        ),
        Claim::new(
            "2-level: without the optimization the trie takes more space than the B+-tree, with fewer reads",
            both(KeyPattern::TwoLevel, (NAIVE, PLAIN))
                .map(|found| (words(found), found.0 > 1.0 && found.1 < 1.0)),
        ),
        Claim::new(
            "2-level: with it, its space is no more than that of the prefix B+-tree",
            both(KeyPattern::TwoLevel, (MENDED, PREFIX)).map(|found| (words(found), found.0 < 1.1)),
        ),
    ]
}
