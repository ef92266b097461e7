//! The rates of a store through the facade and its value layer, beside those of the bare
//! engine, in turns: what stores pay for compression and expiry that they do not use.
//! `cargo run --release --package cambium --example facade_rate -- forest`
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Instant;

use cambium::prelude::*;
use cambium::{Engine, EngineKind, Environment, OptionValues};

const KEYS: u64 = 100_000;
const SCANNED: usize = 20;
const ROUNDS: usize = 9;

/// The next of a row of numbers that look random.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005);
    *state = state.wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Reads a byte of the value, which its caller wants.
fn read(entry: Option<Entry>) {
    std::hint::black_box(entry.and_then(|entry| entry.value.last().copied()));
}

fn bare(name: &str) -> Box<dyn EngineKind> {
    match name {
        "wisckey" => Box::new(cambium_wisckey::Wisckey),
        "zdb" => Box::new(cambium_zdb::Zdb),
        "alphard" => Box::new(cambium_alphard::Alphard),
        _ => Box::new(cambium_forest::Forest),
    }
}

/// How many times as long the second of two works takes, in turns of a thousand keys, so
/// that background work of both stores slows both.
fn ratio(
    count: u64,
    mut one: impl FnMut(&[u8; 8]) -> cambium::Result<()>,
    mut other: impl FnMut(&[u8; 8]) -> cambium::Result<()>,
) -> cambium::Result<f64> {
    let (mut state, mut seconds) = (7, [0.0; 2]);
    for turn in 0..count / 1_000 {
        for which in [turn % 2, 1 - turn % 2] {
            let began = Instant::now();
            for _ in 0..1_000 {
                let key = (next(&mut state) % KEYS).to_be_bytes();
                match which {
                    0 => one(&key)?,
                    _ => other(&key)?,
                }
            }
            seconds[which as usize] += began.elapsed().as_secs_f64();
        }
    }
    Ok(seconds[0] / seconds[1])
}

/// The ratios of puts, gets and scans.
fn ratios(below: &Arc<dyn Engine>, above: &Store, value: &[u8]) -> cambium::Result<[f64; 3]> {
    let put = ratio(
        KEYS,
        |key| below.put(key, value, Durability::Written).map(drop),
        |key| above.put(key, value).map(drop),
    )?;
    let get = ratio(
        KEYS,
        |key| below.get(key).map(drop),
        |key| above.get(key).map(drop),
    )?;
    if !below.capabilities().ordered {
        return Ok([put, get, 1.0]);
    }
    let scan = ratio(
        KEYS / 10,
        |key| {
            let range = KeyRange::from(&key[..]..);
            let mut cursor = below.scan(&range, cambium::Direction::Forward)?;
            for _ in 0..SCANNED {
                read(cursor.next()?);
            }
            Ok(())
        },
        |key| {
            let mut entries = above.scan(&key[..]..)?.take(SCANNED);
            entries.try_for_each(|entry| entry.map(|entry| read(Some(entry))))
        },
    )?;
    Ok([put, get, scan])
}

fn main() -> cambium::Result<()> {
    let engine = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "forest".to_string());
    let folder = std::env::temp_dir().join(format!("cambium-rate-{}", std::process::id()));
    std::fs::create_dir_all(&folder)
        .map_err(|error| cambium::Error::io("create", &folder, error))?;
    let (environment, options) = (Environment::real(), OptionValues::default());
    let below = bare(&engine).create(&environment, &folder.join("bare"), &options)?;
    let above = cambium::create(folder.join("facade"), &engine, &Options::new())?;
    let value = [7; 100];
    for number in 0..KEYS {
        below.put(&number.to_be_bytes(), &value, Durability::Written)?;
        above.put(number.to_be_bytes(), value)?;
    }
    let mut all: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        let round = ratios(&below, &above, &value)?;
        all.iter_mut()
            .zip(round)
            .for_each(|(all, one)| all.push(one));
    }
    for (what, mut ratios) in ["put", "get", "scan"].into_iter().zip(all) {
        ratios.sort_by(f64::total_cmp);
        println!("{engine} {what}: ratio {:.3}", ratios[ROUNDS / 2]);
    }
    above.close()?;
    below.close()?;
    // The program leaves nothing behind.
    _ = std::fs::remove_dir_all(&folder);
    Ok(())
}
