//! Figure 13: random load beside garbage collection, at shares of free space.
//!
//! As in section 4.1.3: a store is loaded at random, a share of its keys is
//! deleted, and then new keys are put while garbage is collected. The paper's
//! collector asks the tree about every value that it reads; this one collects
//! what tables are known to hide, so what is known at the start is shown beside
//! the share that was deleted. The tree's buffers are small here, as its keys
//! are few: merges then find the deleted values soon.

use std::path::Path;
use std::time::Instant;

use cambium::{Options, Store};
use kvzone_core::error::Result;
use kvzone_core::random::{Random, mix};
use kvzone_core::report::text::{bytes, grouped, three_digits};
use serde_json::{Value, json};

use super::claims::{Claim, above, each};
use super::figure::{Column, Defaults, Figure, How, Layout, Point, Takes, store};
use super::measured::{Cell, Measured, PointUsed};
use super::runner::Asked;
use super::wisckey::{DATA, DEFAULTS, WISCKEY};
use crate::place::RunFolder;

/// Deleted, percent.
const SHARES: [u64; 4] = [25, 50, 75, 100];
const VALUE_BYTES: usize = 4 << 10;
const KEY_BYTES: usize = 16;
/// Segments of the data, so that there is something to choose from.
const SEGMENTS: u64 = 32;

/// Deleted, percent.
const fn deleted(label: &'static str) -> Point {
    Point {
        label,
        value_bytes: VALUE_BYTES as u64,
        full_bytes: DATA,
        ..Point::PLAIN
    }
}

const WITH_BY_WITHOUT: Column = Column::new("with : without", three_digits, |row| {
    Some(row.number("/with")? / row.number("/without")?)
});

/// The figure.
pub(super) const FIGURES: &[Figure] = &[Figure {
    name: "wisckey/fig13",
    title: "WiscKey paper, figure 13: random load beside garbage collection",
    axis: "deleted",
    what: "new keys with 4 KB values, put in random order beside garbage collection to 110 % of what is live",
    stores: &[store("")],
    points: &[
        deleted("25 %"),
        deleted("50 %"),
        deleted("75 %"),
        deleted("100 %"),
    ],
    layout: Layout::Beside,
    columns: &[
        Column::new("known garbage", percent, |row| {
            row.number("/known_garbage_percent")
        }),
        Column::new("ops/s without", grouped, |row| row.number("/without")),
        Column::new("ops/s with", grouped, |row| row.number("/with")),
        WITH_BY_WITHOUT,
        Column::new("freed", bytes, |row| row.number("/freed_bytes")),
        Column::new("moved", bytes, |row| row.number("/moved_bytes")),
    ],
    claims,
    ..Figure::plain(How::Cells(
        Defaults {
            takes: Takes::Nothing,
            ..DEFAULTS
        },
        measure,
    ))
}];

fn percent(value: f64) -> String {
    format!("{} %", three_digits(value))
}

/// The figures of one run.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    puts_a_second: f64,
    /// Known garbage at the start, percent of the log.
    garbage: f64,
    freed_bytes: u64,
    moved_bytes: u64,
}

fn measure(figure: &'static Figure, asked: Asked<'_>) -> Result<(Measured, Value)> {
    let arguments = asked.arguments;
    let keys = ((DATA * asked.scale) as u64 / (VALUE_BYTES + KEY_BYTES) as u64).max(64);
    let puts = arguments.operations.unwrap_or(keys);
    let mut measured = asked.nothing(figure.stores.to_vec());
    let mut rows = Vec::new();
    for (place, (point, share)) in figure.points.iter().zip(SHARES).enumerate() {
        let run = |collection: &str| {
            let folder = RunFolder::create(&arguments.dir, "collection")?;
            let path = folder.path().join("store");
            prepare(&path, keys, share, arguments.seed)?;
            load(&path, (keys, puts), collection, arguments.seed)
        };
        let (without, with) = (run("off")?, run("live")?);
        let row = json!({
            "deleted_percent": share, "known_garbage_percent": with.garbage,
            "without": without.puts_a_second, "with": with.puts_a_second,
            "freed_bytes": with.freed_bytes, "moved_bytes": with.moved_bytes,
        });
        measured
            .points
            .push(PointUsed::at(point.label, String::new()));
        measured.cells.push(Cell::once(place, "", row.clone()));
        rows.push(row);
    }
    measured.points[0].conditions = format!(
        "{} keys before, {} put; in this process, without a memory limit; not synced.\n",
        grouped(keys as f64),
        grouped(puts as f64)
    );
    Ok((
        measured,
        json!({"schema": "kvzone-collection/1", "rows": rows}),
    ))
}

fn claims(it: &Measured) -> Vec<Claim> {
    let ratios = |shares: &[&str]| {
        let ratio = |share: &str| it.figure(share, "", WITH_BY_WITHOUT);
        each(shares, ratio)
    };
    vec![
        Claim::on(
            "where everything is free, throughput is 10 % lower",
            ratios(&["100 %"]),
            above(0.85),
        ),
        Claim::on(
            "elsewhere it drops by about 35 %",
            ratios(&["25 %", "50 %", "75 %"]),
            above(0.6),
        ),
    ]
}

fn options(keys: u64, collection: &str) -> Options {
    let data = keys * (VALUE_BYTES + KEY_BYTES) as u64;
    Options::new()
        .set("collection", collection)
        .set("space_limit", 110)
        .set("segment_bytes", (data / SEGMENTS).max(64 << 10))
        .set("write_buffer_bytes", 256 << 10)
        .set("table_bytes", 1 << 20)
        .set("level_base_bytes", 256 << 10)
}

/// Each number has a key of its own, in no order.
fn key_of(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&mix(number).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Bytes that nothing compresses.
fn value(random: &mut Random) -> Vec<u8> {
    (0..VALUE_BYTES / 8)
        .flat_map(|_| random.next_u64().to_le_bytes())
        .collect()
}

fn put(store: &Store, number: u64, value: &mut [u8]) -> Result<()> {
    // No two values are the same.
    value[..8].copy_from_slice(&number.to_le_bytes());
    store.put(key_of(number), &*value)?;
    Ok(())
}

/// Loads a store, and deletes a share of its keys.
fn prepare(path: &Path, keys: u64, share: u64, seed: u64) -> Result<()> {
    let store = options(keys, "off").create(path, WISCKEY)?;
    let mut random = Random::stream(seed, 1);
    let mut value = value(&mut random);
    for number in 0..keys {
        put(&store, number, &mut value)?;
    }
    for number in 0..keys {
        if random.below(100) < share {
            store.delete(key_of(number))?;
        }
    }
    store.sync()?;
    store.close()?;
    Ok(())
}

/// Puts new keys.
fn load(path: &Path, (keys, puts): (u64, u64), collection: &str, seed: u64) -> Result<Met> {
    let store = options(keys, collection).open(path)?;
    let number = |name: &str| -> Result<u64> { Ok(store.stats()?.number(name).unwrap_or(0)) };
    let garbage = number("value_log_garbage_bytes")?;
    let live = number("value_log_live_bytes")?;
    let (freed, moved) = ("collection_bytes_freed", "collection_bytes_written");
    let before = (number(freed)?, number(moved)?);
    let mut value = value(&mut Random::stream(seed, 2));
    let began = Instant::now();
    for number in 0..puts {
        put(&store, keys + number, &mut value)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let met = Met {
        puts_a_second: puts as f64 / seconds,
        garbage: garbage as f64 * 100.0 / (garbage + live).max(1) as f64,
        freed_bytes: number(freed)? - before.0,
        moved_bytes: number(moved)? - before.1,
    };
    store.close()?;
    Ok(met)
}
