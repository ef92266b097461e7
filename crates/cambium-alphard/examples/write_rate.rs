//! What the engine writes in a second, beside fio with direct writes of the same size
//! and the same number in flight, in turns in one folder:
//!
//! ```text
//! cargo run --release -p cambium-alphard --example write_rate FOLDER [ROUNDS] [SECONDS]
//! ```
//!
//! The engine gets its requests by `submit`, `Synced`: each is answered when it is durable,
//! and one sync serves as many as have been written by then. fio is asked for three policies:
//!
//! - `as often`: a sync for as many writes as the engine had in the same round;
//! - `by depth`: a sync for as many writes as are in flight, which is less often;
//! - `each`: every write synced by itself (`O_DSYNC`), so that it is durable when it is
//!   answered, as the engine's are. With the others fio answers a write before its sync.
//!
//! All begin with a file that was allocated and never written. Printed are medians of the
//! rates, and of the rounds' ratios with the least and the most.

#![allow(clippy::unwrap_used)] // a measurement that cannot go on says where

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use cambium_alphard::Alphard;
use cambium_api::{Durability, EngineKind, OptionValues, Request};
use cambium_io::Environment;

/// Bytes of a value, requests in flight, bytes that one takes on the device.
const CASES: [(usize, usize, usize); 3] = [
    (256 << 10, 8, 262_656),
    (256 << 10, 32, 262_656),
    (4 << 10, 32, 4_608),
];
const FILE_BYTES: u64 = 4 << 30;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("a folder to measure in");
    let rounds: usize = arguments.next().map_or(3, |text| text.parse().unwrap());
    let seconds: u64 = arguments.next().map_or(5, |text| text.parse().unwrap());
    let folder = Path::new(&folder);
    for case in CASES {
        let (value, depth, bytes) = case;
        let mut ours = Vec::new();
        let mut syncs = Vec::new();
        let mut fio = [const { Vec::new() }; 3];
        for _ in 0..rounds {
            let (rate, synced) = of_engine(folder, case, seconds);
            let writes_a_sync = (rate / bytes as f64 / synced).round().max(1.0);
            ours.push(rate);
            syncs.push(writes_a_sync);
            let as_often = format!("--fdatasync={writes_a_sync}");
            let by_depth = format!("--fdatasync={depth}");
            let policies = [as_often.as_str(), by_depth.as_str(), "--sync=dsync"];
            for (policy, rates) in policies.into_iter().zip(&mut fio) {
                rates.push(of_fio(folder, case, policy, seconds));
            }
        }
        println!(
            "values of {value} bytes, {depth} in flight: {:.1} MB/s, {} writes a sync",
            median(ours.clone()) / 1e6,
            median(syncs)
        );
        for (policy, rates) in ["as often", "by depth", "each"].into_iter().zip(fio) {
            let mut ratios: Vec<f64> = ours.iter().zip(&rates).map(|(a, b)| a / b).collect();
            ratios.sort_by(f64::total_cmp);
            println!(
                "  fio, synced {policy:<8}  {:>7.1} MB/s  ours : fio {:.2} [{:.2}, {:.2}]",
                median(rates) / 1e6,
                median(ratios.clone()),
                ratios[0],
                ratios[ratios.len() - 1],
            );
        }
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Device bytes and syncs a second.
fn of_engine(
    folder: &Path,
    (value, depth, bytes): (usize, usize, usize),
    seconds: u64,
) -> (f64, f64) {
    let path = folder.join("write-rate-store");
    _ = std::fs::remove_dir_all(&path);
    let size = FILE_BYTES.to_string();
    let options = OptionValues::from([
        ("size", size.as_str()),
        ("extend_bytes", "4GiB"),
        ("block_bytes", "512"),
    ]);
    let store = Alphard
        .create(&Environment::real(), &path, &options)
        .unwrap();
    store.put(b"first", b"", Durability::Synced).unwrap();
    let (done, answers) = sync_channel(depth);
    let most = (FILE_BYTES - (64 << 20)) / bytes as u64;
    let limit = Duration::from_secs(seconds);
    let mut sent = 0;
    let mut submit = || {
        let done = done.clone();
        let request = Request::Put {
            key: u64::to_be_bytes(sent)[1..].to_vec(),
            value: vec![sent as u8; value],
            durability: Durability::Synced,
        };
        sent += 1;
        let tell = move |answer: cambium_base::Result<_>| _ = done.send(answer.is_ok());
        store.submit(request, Box::new(tell));
    };
    let syncs_before = store.stats().unwrap().number("syncs").unwrap();
    let begin = Instant::now();
    for _ in 0..depth {
        submit();
    }
    let mut finished = 0;
    while finished + (depth as u64) < most && begin.elapsed() < limit {
        assert!(answers.recv().unwrap(), "a write failed");
        finished += 1;
        submit();
    }
    for _ in 0..depth {
        assert!(answers.recv().unwrap(), "a write failed");
        finished += 1;
    }
    let elapsed = begin.elapsed().as_secs_f64();
    let syncs = store.stats().unwrap().number("syncs").unwrap() - syncs_before;
    drop(store);
    _ = std::fs::remove_dir_all(&path);
    let bytes = finished as f64 * bytes as f64;
    (bytes / elapsed, syncs as f64 / elapsed)
}

/// Device bytes a second.
fn of_fio(
    folder: &Path,
    (_, depth, bytes): (usize, usize, usize),
    policy: &str,
    seconds: u64,
) -> f64 {
    let file = folder.join("write-rate-fio");
    _ = std::fs::remove_file(&file);
    let output = Command::new("fio")
        .args([
            "--name=writes",
            "--rw=write",
            "--direct=1",
            "--ioengine=io_uring",
        ])
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--size={FILE_BYTES}"))
        .arg(format!("--bs={bytes}"))
        .arg(format!("--iodepth={depth}"))
        .arg(policy)
        .arg(format!("--runtime={seconds}"))
        .args([
            "--output-format=terse",
            "--terse-version=3",
            "--fallocate=posix",
        ])
        .output()
        .expect("fio runs");
    _ = std::fs::remove_file(&file);
    let text = String::from_utf8_lossy(&output.stdout);
    // Field 48 of the third format: KiB a second written.
    let rate = text
        .lines()
        .find(|line| line.starts_with("3;"))
        .and_then(|line| line.split(';').nth(47)?.parse::<f64>().ok());
    rate.expect("fio says how much it wrote") * 1024.0
}
