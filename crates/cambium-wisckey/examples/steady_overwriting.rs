//! What garbage collection costs under steady overwriting, and the space that it keeps
//! to: random keys are put again until ten times the data was written
//! (`docs/benchmarks.md`).
//!
//! ```text
//! cargo run --release -p cambium-wisckey --example steady_overwriting -- FOLDER [MIB] [VALUE_BYTES] [ROW]
//! ```
//!
//! With `ROW`, that row of `ROWS` alone, counted from 0.
//! `FOLDER` is made, and removed again for each row. Space is that of all files, by the
//! bytes of live keys and values: mean and most, sampled four times a pass, from the
//! third pass on.

use std::error::Error;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use cambium_api::{Durability, EngineKind, OptionValues};
use cambium_io::Environment;
use cambium_wisckey::Wisckey;

type Outcome<T> = Result<T, Box<dyn Error>>;

const KEY_BYTES: usize = 16;
const PASSES: u64 = 10;
/// Passes before the samples that count.
const WARM_PASSES: u64 = 2;
/// `collection=off` first: others are compared with it.
const ROWS: [&[(&str, &str)]; 6] = [
    &[("collection", "off")],
    &[("space_limit", "200")],
    &[("space_limit", "180")],
    &[("space_limit", "160")],
    &[("space_limit", "140")],
    &[("space_limit", "130")],
];

/// A well-spread number for each number.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
}

fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&mix(number).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Bytes on the device of all files below; one that goes meanwhile counts nothing.
fn space(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => space(&entry.path()),
        Ok(found) => found.blocks() * 512,
        Err(_) => 0,
    });
    bytes.sum()
}

/// Megabytes a second, and space by live bytes: mean and most.
fn run(folder: &Path, row: &[(&'static str, &str)], live: u64, value: usize) -> Outcome<[f64; 3]> {
    let mut options = OptionValues::default();
    for (name, setting) in row {
        options.set(name, setting);
    }
    let store = Wisckey.create(&Environment::real(), folder, &options)?;
    let mut value: Vec<u8> = (0..value as u64).map(|place| mix(place) as u8).collect();
    let keys = live / (KEY_BYTES + value.len()) as u64;
    let mut put = |number: u64, write: u64| {
        value[..8].copy_from_slice(&write.to_le_bytes());
        store.put(&key(number), &value, Durability::Written)
    };
    for number in 0..keys {
        put(number, number)?;
    }
    let mut samples = Vec::new();
    let started = Instant::now();
    for write in 0..keys * PASSES {
        put(mix(write) % keys, write)?;
        if write % (keys / 4) == 0 && write >= keys * WARM_PASSES {
            samples.push(space(folder) as f64 / live as f64);
        }
    }
    let rate = (live * PASSES) as f64 / started.elapsed().as_secs_f64() / 1e6;
    store.close()?;
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    let most = samples.iter().copied().fold(0.0, f64::max);
    Ok([rate, mean, most])
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("name a folder that is not there")?);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let live = number(96)? << 20;
    let value = number(1024)?.max(8) as usize;
    let only = number(u64::MAX)?;
    println!("| options | MB/s | of no collection | space, mean | space, most |");
    println!("|---|---:|---:|---:|---:|");
    let mut without = None;
    let chosen = (0u64..)
        .zip(ROWS)
        .filter(|&(row, _)| only == u64::MAX || row == only);
    for (_, row) in chosen {
        let [rate, mean, most] = run(&folder, row, live, value)?;
        std::fs::remove_dir_all(&folder)?;
        let share = rate / *without.get_or_insert(rate);
        let words: Vec<String> = row
            .iter()
            .map(|(name, it)| format!("{name}={it}"))
            .collect();
        let words = words.join(" ");
        println!("| `{words}` | {rate:.0} | {share:.2} | {mean:.2} | {most:.2} |");
    }
    Ok(())
}
