//! What a short scan costs of a processor, once values lie in the order of their keys and
//! all is in memory: for profiles (`docs/benchmarks.md` compares stores).
//!
//! ```text
//! cargo run --release -p cambium-wisckey --example short_scans -- FOLDER [KEYS] [VALUE_BYTES] [SECONDS] [MOST] [AGAIN]
//! ```
//!
//! `FOLDER` is made and removed again. Keys are put in random order, then compacted, then
//! `AGAIN` of them are put again, none unless told; each scan begins at a random key and
//! visits 1 to `MOST` entries, 100 unless told. A line for each second.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cambium_api::{
    CompactOptions, Direction, Durability, Engine, EngineKind, KeyRange, OptionValues,
};
use cambium_io::Environment;
use cambium_wisckey::Wisckey;

/// A well-spread number for each number.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
}

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(number).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("name a folder that is not there")?);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let keys = number(100_000)?.max(1);
    let mut value: Vec<u8> = (0..number(1024)?).map(|place| mix(place) as u8).collect();
    let seconds = number(5)?;
    let most = number(100)?.max(1);
    let again = number(0)?;

    let store = Wisckey.create(&Environment::real(), &folder, &OptionValues::default())?;
    for number in 0..keys {
        let count = value.len().min(8);
        value[..count].copy_from_slice(&number.to_le_bytes()[..count]);
        store.put(&key(number), &value, Durability::Written)?;
    }
    store.compact(&CompactOptions::default(), &())?;
    for number in 0..again {
        let key = key(mix(number ^ 0xa9a1) % keys);
        store.put(&key, &value, Durability::Written)?;
    }

    for _ in 0..seconds {
        scan_for_a_second(&*store, keys, most)?;
    }
    store.close()?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

fn scan_for_a_second(store: &dyn Engine, keys: u64, most: u64) -> Result<(), Box<dyn Error>> {
    let (mut scans, mut entries, mut bytes) = (0u64, 0u64, 0u64);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(1) {
        for _ in 0..100 {
            let chosen = mix(scans ^ 0x5eed);
            let range = KeyRange {
                from: Some(key(chosen % keys).to_vec()),
                to: None,
            };
            let mut cursor = store.scan(&range, Direction::Forward)?;
            for _ in 0..=(chosen >> 40) % most {
                let Some(entry) = cursor.next()? else {
                    break;
                };
                bytes += (entry.key.len() + entry.value.len()) as u64;
                entries += 1;
            }
            scans += 1;
        }
    }
    let microseconds = started.elapsed().as_secs_f64() * 1e6;
    println!(
        "{:.2} µs a scan of {:.1} entries and {:.0} bytes",
        microseconds / scans as f64,
        entries as f64 / scans as f64,
        bytes as f64 / scans as f64
    );
    Ok(())
}
