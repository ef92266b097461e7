//! Space and rates of JSON values under each compression, beside none, in turns.
//! `cargo run --release --package cambium --features zstd --example compression_rate -- forest`
#![forbid(unsafe_code)]

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use cambium::prelude::*;

const KEYS: u64 = 50_000;
const SAMPLES: u64 = 2_000;
const ROUNDS: usize = 5;
const KINDS: [&str; 3] = ["none", "lz4", "zstd"];

/// The next of a row of numbers that look random.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005);
    *state = state.wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// About 1 KB: an order with its customer and lines, as a shop's interface answers it.
fn document(state: &mut u64) -> String {
    let words = [
        "oak", "maple", "table", "chair", "walnut", "lamp", "shelf", "drawer", "beech", "bench",
    ];
    let mut pick = |of: u64| next(state) % of;
    let mut text = format!(
        "{{\"id\":{},\"created_at\":\"2026-{:02}-{:02}T{:02}:{:02}:{:02}Z\",\"status\":\"{}\",\
         \"customer\":{{\"id\":{},\"name\":\"{} {}\",\"email\":\"user{}@example.com\",\
         \"verified\":{}}},\"lines\":[",
        pick(1 << 40),
        pick(12) + 1,
        pick(28) + 1,
        pick(24),
        pick(60),
        pick(60),
        ["paid", "open", "shipped", "returned"][pick(4) as usize],
        pick(1 << 32),
        words[pick(10) as usize],
        words[pick(10) as usize],
        pick(100_000),
        pick(2) == 0,
    );
    while text.len() < 960 {
        text += &format!(
            "{{\"sku\":\"{:08x}\",\"title\":\"{} {}\",\"quantity\":{},\"price\":{}.{:02},\
             \"currency\":\"EUR\"}},",
            pick(1 << 32),
            words[pick(10) as usize],
            words[pick(10) as usize],
            pick(9) + 1,
            pick(900),
            pick(100),
        );
    }
    text.pop();
    text + "]}"
}

struct Measured {
    bytes: u64,
    writes: f64,
    reads: f64,
}

/// Bytes that a folder takes on the device.
fn space(folder: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => space(&entry.path())?,
            false => entry.metadata()?.blocks() * 512,
        };
    }
    Ok(bytes)
}

fn measure(engine: &str, kind: &str, folder: &Path) -> cambium::Result<Measured> {
    let store = Options::new()
        .set("compression", kind)
        .create(folder, engine)?;
    let mut state = 7;
    let documents: Vec<String> = (0..KEYS).map(|_| document(&mut state)).collect();
    // The first values are the samples of a dictionary, which a background step trains.
    for (key, document) in (0..SAMPLES).zip(&documents) {
        store.put(key.to_be_bytes(), document)?;
    }
    std::thread::sleep(Duration::from_secs(1));
    let began = Instant::now();
    for (key, document) in (0..KEYS).zip(&documents) {
        store.put(key.to_be_bytes(), document)?;
    }
    store.sync()?;
    let writes = KEYS as f64 / began.elapsed().as_secs_f64();
    let read_all = |state: &mut u64| -> cambium::Result<()> {
        for _ in 0..KEYS {
            let key = next(state) % KEYS;
            let value = store.get(key.to_be_bytes())?;
            assert_eq!(value.as_deref(), Some(documents[key as usize].as_bytes()));
        }
        Ok(())
    };
    read_all(&mut state)?;
    let began = Instant::now();
    read_all(&mut state)?;
    let reads = KEYS as f64 / began.elapsed().as_secs_f64();
    store.compact(&cambium::CompactOptions::default(), &())?;
    store.close()?;
    let bytes = space(folder).map_err(|error| cambium::Error::io("list", folder, error))?;
    Ok(Measured {
        bytes,
        writes,
        reads,
    })
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() -> cambium::Result<()> {
    let engine = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "forest".to_string());
    let folder = std::env::temp_dir().join(format!("cambium-rate-{}", std::process::id()));
    let mut ratios: [[Vec<f64>; 3]; 3] = Default::default();
    for _ in 0..ROUNDS {
        let mut first = None;
        for (kind, ratios) in KINDS.into_iter().zip(&mut ratios) {
            let now = measure(&engine, kind, &folder)?;
            // The next one makes a store of its own there.
            _ = std::fs::remove_dir_all(&folder);
            let base = first.get_or_insert((now.bytes, now.writes, now.reads));
            ratios[0].push(now.bytes as f64 / base.0 as f64);
            ratios[1].push(now.writes / base.1);
            ratios[2].push(now.reads / base.2);
        }
    }
    println!("{engine}: space, writing, reading beside no compression");
    for (kind, [space, writes, reads]) in KINDS.into_iter().zip(ratios) {
        let (space, writes, reads) = (median(space), median(writes), median(reads));
        println!("{kind:>6}: {space:.2} {writes:.2} {reads:.2}");
    }
    Ok(())
}
