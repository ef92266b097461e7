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

use super::super::ReproduceArguments;
use super::super::grid::{Claim, Grid};
use super::super::shown::Shown;
use super::figures::WISCKEY;
use super::measure::Asked;
use super::present::rounds;
use crate::place::RunFolder;

/// Deleted, percent.
const SHARES: [u64; 4] = [25, 50, 75, 100];
const VALUE_BYTES: usize = 4 << 10;
const KEY_BYTES: usize = 16;
/// Of data in the paper.
const DATA: f64 = 100e9;
/// Segments of the data, so that there is something to choose from.
const SEGMENTS: u64 = 32;

/// What one run met.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    puts_a_second: f64,
    /// Known garbage at the start, percent of the log.
    garbage: f64,
    freed_bytes: u64,
    moved_bytes: u64,
}

/// The figure.
pub(super) fn show(arguments: &ReproduceArguments, asked: Asked) -> Result<(Shown, Value)> {
    let keys = ((DATA * asked.scale) as u64 / (VALUE_BYTES + KEY_BYTES) as u64).max(64);
    let puts = arguments.operations.unwrap_or(keys);
    let heads = [
        "deleted",
        "known garbage",
        "ops/s without",
        "ops/s with",
        "with : without",
        "freed",
        "moved",
    ];
    let mut grid = Grid {
        heads: heads.map(String::from).to_vec(),
        words: 1,
        rows: Vec::new(),
    };
    let mut all = Vec::new();
    let mut ratios = Vec::new();
    for share in SHARES {
        let run = |collection: &str| {
            let folder = RunFolder::create(&arguments.dir, "collection")?;
            let path = folder.path().join("store");
            prepare(&path, keys, share, asked.seed)?;
            load(&path, (keys, puts), collection, asked.seed)
        };
        let (without, with) = (run("off")?, run("live")?);
        let ratio = with.puts_a_second / without.puts_a_second;
        grid.rows.push(vec![
            format!("{share} %"),
            format!("{} %", three_digits(with.garbage)),
            grouped(without.puts_a_second),
            grouped(with.puts_a_second),
            three_digits(ratio),
            bytes(with.freed_bytes as f64),
            bytes(with.moved_bytes as f64),
        ]);
        all.push(json!({
            "deleted_percent": share, "known_garbage_percent": with.garbage,
            "without": without.puts_a_second, "with": with.puts_a_second,
            "freed_bytes": with.freed_bytes, "moved_bytes": with.moved_bytes,
        }));
        ratios.push(ratio);
    }
    let shown = Shown {
        grids: vec![("", grid)],
        claims: claims(&ratios),
        conditions: rounds(
            asked,
            "new keys with 4 KB values, put in random order beside garbage collection to 110 % of what is live",
        ) + &format!(
            "{} keys before, {} put; in this process, without a memory limit; not synced.\n",
            grouped(keys as f64),
            grouped(puts as f64)
        ),
    };
    Ok((shown, json!({"schema": "kvzone-collection/1", "rows": all})))
}

fn claims(ratios: &[f64]) -> Vec<Claim> {
    let Some((&last, others)) = ratios.split_last() else {
        return Vec::new();
    };
    let words: Vec<String> = others.iter().map(|&ratio| three_digits(ratio)).collect();
    vec![
        Claim::new(
            "where everything is free, throughput is 10 % lower",
            Some((three_digits(last), last > 0.85)),
        ),
        Claim::new(
            "elsewhere it drops by about 35 %",
            Some((words.join(", "), others.iter().all(|&ratio| ratio > 0.6))),
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
