//! What a mirror costs: synced writes at half of the rate that one device alone can do, on
//! the first of two devices, and on both:
//!
//! ```text
//! cargo run --release -p cambium-alphard --example mirror_latency DEVICE MIRROR [VALUE_BYTES] [ROUNDS] [SECONDS]
//! ```
//!
//! WHATEVER THE TWO DEVICES HOLD IS LOST. The paper's devices are not what limits; here
//! those are that lie in memory, such as two of `zram`, or loop devices over files of a
//! `tmpfs`. Puts over keys that are there are submitted in an open loop, at even distances,
//! and a write's latency ends when its completion is called. The peak is that of as many
//! in flight as [`IN_FLIGHT`]. The two take turns; printed are each round and medians.

#![allow(clippy::unwrap_used)] // a measurement that cannot go on says where

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cambium_alphard::Alphard;
use cambium_api::{Durability, Engine, EngineKind, OptionValues, Request};
use cambium_io::Environment;

/// Requests under way when the peak is looked for.
const IN_FLIGHT: usize = 32;
/// Bytes of all values.
const DATA_BYTES: usize = 128 << 20;

/// What was asked for in a round, and what came of it.
struct Measured {
    rate: f64,
    mean: f64,
    median: f64,
    tail: f64,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let device = arguments.next().expect("a device, which is written over");
    let mirror = arguments.next().expect("another one");
    let value: usize = arguments.next().map_or(4096, |text| text.parse().unwrap());
    let rounds: usize = arguments.next().map_or(3, |text| text.parse().unwrap());
    let seconds: u64 = arguments.next().map_or(3, |text| text.parse().unwrap());
    let limit = Duration::from_secs(seconds);

    let peak = on_store(&device, None, value, |store| peak(store, value, limit));
    println!("peak of one device: {peak:.0} writes a second of {value} bytes");
    println!("asked for: half of that");
    println!("devices  writes/s  mean us   p50 us   p99 us");
    let (mut alone, mut pair) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for (mirror, all) in [(None, &mut alone), (Some(mirror.as_str()), &mut pair)] {
            let found = on_store(&device, mirror, value, |store| {
                at_rate(store, value, peak / 2.0, limit)
            });
            println!(
                "{:>7}  {:>8.0}  {:>7.1}  {:>7.1}  {:>7.1}",
                1 + usize::from(mirror.is_some()),
                found.rate,
                found.mean,
                found.median,
                found.tail,
            );
            all.push(found);
        }
    }
    let ratio = |of: fn(&Measured) -> f64| {
        median(pair.iter().map(of).collect()) / median(alone.iter().map(of).collect())
    };
    println!(
        "with a mirror : without, medians: writes/s {:.2}, mean latency {:.2}, p50 {:.2}, p99 {:.2}",
        ratio(|found| found.rate),
        ratio(|found| found.mean),
        ratio(|found| found.median),
        ratio(|found| found.tail),
    );
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Bytes that no device can compress.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = (0..bytes.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(bytes).collect()
}

/// A put over one of the keys.
fn put(number: usize, value: &[u8]) -> Request {
    let keys = DATA_BYTES / value.len();
    // Any order that comes to all of them.
    let key = (number * 7919 % keys) as u64;
    Request::Put {
        key: key.to_be_bytes()[1..].to_vec(),
        value: value.to_vec(),
        durability: Durability::Synced,
    }
}

/// Makes a store that has all keys, and measures it.
fn on_store<T>(
    device: &str,
    mirror: Option<&str>,
    value: usize,
    measure: impl FnOnce(&dyn Engine) -> T,
) -> T {
    let folder = std::env::temp_dir().join(format!("mirror-latency-{}", std::process::id()));
    _ = std::fs::remove_dir_all(&folder);
    let size = (4 * DATA_BYTES).to_string();
    let mut options = OptionValues::from([
        ("device", device),
        ("size", size.as_str()),
        ("extend_bytes", size.as_str()),
        ("force", "on"),
    ]);
    if let Some(mirror) = mirror {
        options.set("mirror", mirror);
    }
    let store = Alphard
        .create(&Environment::real(), &folder, &options)
        .unwrap();
    let bytes = noise(value);
    for key in 0..DATA_BYTES / value {
        let key = (key as u64).to_be_bytes();
        store.put(&key[1..], &bytes, Durability::Buffered).unwrap();
    }
    store.sync().unwrap();
    let measured = measure(&*store);
    drop(store);
    _ = std::fs::remove_dir_all(&folder);
    measured
}

/// Writes a second, with so many in flight at all times.
fn peak(store: &dyn Engine, value: usize, limit: Duration) -> f64 {
    let (done, answers) = sync_channel(IN_FLIGHT);
    let value = noise(value);
    let submit = |number: usize| {
        let done = done.clone();
        let tell = move |answer: cambium_base::Result<_>| _ = done.send(answer.is_ok());
        store.submit(put(number, &value), Box::new(tell));
    };
    (0..IN_FLIGHT).for_each(submit);
    let begin = Instant::now();
    let mut finished = 0;
    while begin.elapsed() < limit {
        assert!(answers.recv().unwrap(), "a write failed");
        finished += 1;
        submit(IN_FLIGHT + finished);
    }
    let elapsed = begin.elapsed().as_secs_f64();
    for _ in 0..IN_FLIGHT {
        assert!(answers.recv().unwrap(), "a write failed");
    }
    finished as f64 / elapsed
}

/// Submits so many writes a second, and sees how long each takes.
fn at_rate(store: &dyn Engine, value: usize, rate: f64, limit: Duration) -> Measured {
    let value = noise(value);
    let count = (rate * limit.as_secs_f64()) as usize;
    let latencies = Arc::new(Mutex::new(Vec::with_capacity(count)));
    let begin = Instant::now();
    for number in 0..count {
        let due = Duration::from_secs_f64(number as f64 / rate);
        let early = due.saturating_sub(begin.elapsed());
        if !early.is_zero() {
            std::thread::sleep(early);
        }
        let request = put(number, &value);
        let latencies = latencies.clone();
        let submitted = Instant::now();
        let tell = move |answer: cambium_base::Result<_>| {
            assert!(answer.is_ok(), "a write failed");
            let micros = submitted.elapsed().as_secs_f64() * 1e6;
            latencies.lock().unwrap().push(micros);
        };
        store.submit(request, Box::new(tell));
    }
    store.sync().unwrap();
    let elapsed = begin.elapsed().as_secs_f64();
    let mut all = std::mem::take(&mut *latencies.lock().unwrap());
    all.sort_by(f64::total_cmp);
    Measured {
        rate: all.len() as f64 / elapsed,
        mean: all.iter().sum::<f64>() / all.len() as f64,
        median: all[all.len() / 2],
        tail: all[all.len() * 99 / 100],
    }
}
