//! How fast a store opens: after a clean close by its index image, after a crash by a
//! scan, beside fio reading the same file from start to end with the same reads:
//!
//! ```text
//! cargo run --release -p cambium-alphard --example recovery_rate FOLDER [KEYS] [VALUE_BYTES]
//! ```

#![allow(clippy::unwrap_used)] // a measurement that cannot go on says where

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use cambium_alphard::Alphard;
use cambium_api::{Durability, Engine, EngineKind, OptionValues};
use cambium_io::Environment;

/// The scan's reads: bytes of each, and how many are under way.
const READ_BYTES: u64 = 1 << 20;
const DEPTH: u64 = 8;
/// Openings of each kind, and runs of fio; medians are printed.
const ROUNDS: usize = 3;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("a folder to measure in");
    let mut number = |default: u64| {
        let text = arguments.next();
        text.map_or(default, |text| text.replace('_', "").parse().unwrap())
    };
    let (keys, value_bytes) = (number(10_000_000), number(100));
    let path = Path::new(&folder).join("recovery-rate-store");
    _ = std::fs::remove_dir_all(&path);
    let size = keys * (value_bytes + 76).next_multiple_of(512) + (64 << 20);
    let options = OptionValues::from([
        ("size", size.to_string().as_str()),
        ("block_bytes", "512"),
        ("extend_bytes", "64MiB"),
    ]);
    let store = Alphard
        .create(&Environment::real(), &path, &options)
        .unwrap();
    let value = vec![7; value_bytes as usize];
    for key in 0..keys {
        store
            .put(&key.to_be_bytes()[1..], &value, Durability::Buffered)
            .unwrap();
    }
    let in_use = store.stats().unwrap().number("in_use_bytes").unwrap();
    store.close().unwrap();
    drop(store);
    let clean: Vec<f64> = (0..ROUNDS).map(|_| open(&path).0).collect();
    println!("keys                           {keys}");
    println!("open after a clean close, s    {:.3}", median(clean));
    let mut scans = Vec::new();
    let mut reads = Vec::new();
    for round in 0..ROUNDS {
        // Written to and dropped: what is left is what a crash leaves.
        let (_, store) = open(&path);
        let key = round.to_be_bytes();
        store.put(&key[1..], &value, Durability::Synced).unwrap();
        drop(store);
        let (seconds, store) = open(&path);
        drop(store);
        scans.push(in_use as f64 / seconds);
        reads.push(of_fio(&path.join("data"), in_use));
    }
    let (scan, read) = (median(scans), median(reads));
    println!("open by a scan, s              {:.3}", in_use as f64 / scan);
    println!("scanned, MB/s                  {:.1}", scan / 1e6);
    println!("fio, MB/s                      {:.1}", read / 1e6);
    println!("scan : fio                     {:.2}", scan / read);
    _ = std::fs::remove_dir_all(&path);
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Seconds that an opening takes.
fn open(path: &Path) -> (f64, std::sync::Arc<dyn Engine>) {
    let begin = Instant::now();
    let options = OptionValues::default();
    let store = Alphard
        .open(&Environment::real(), path, &options, &())
        .unwrap();
    (begin.elapsed().as_secs_f64(), store)
}

/// Bytes that fio reads in a second.
fn of_fio(file: &Path, bytes: u64) -> f64 {
    let output = Command::new("fio")
        .args(["--name=reads", "--rw=read", "--direct=1", "--readonly"])
        .arg("--ioengine=io_uring")
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--size={}", bytes / READ_BYTES * READ_BYTES))
        .arg(format!("--bs={READ_BYTES}"))
        .arg(format!("--iodepth={DEPTH}"))
        .args(["--output-format=terse", "--terse-version=3"])
        .output()
        .expect("fio runs");
    let text = String::from_utf8_lossy(&output.stdout);
    // Field 7 of the third format: KiB a second read.
    let mut lines = text.lines().filter(|line| line.starts_with("3;"));
    let rate = lines.find_map(|line| line.split(';').nth(6)?.parse::<f64>().ok());
    rate.expect("fio says how much it read") * 1024.0
}
