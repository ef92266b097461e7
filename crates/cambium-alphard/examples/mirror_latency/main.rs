//! What a mirror costs: synced writes at half of the rate that one device alone can do, on
//! one device alone, and on a pair of others:
//!
//! ```text
//! cargo run --release -p cambium-alphard --example mirror_latency ALONE DEVICE MIRROR [VALUE_BYTES] [ROUNDS] [MILLISECONDS]
//! cargo run --release -p cambium-alphard --example mirror_latency model MICROSECONDS - [VALUE_BYTES] [ROUNDS] [MILLISECONDS]
//! ```
//!
//! The second form has devices in this program's memory that answer each write after so many
//! microseconds ([`model`]): there a write takes time and next to no processor, as with flash,
//! where the system's own devices in memory take nothing but processor.
//!
//! WHATEVER THE THREE DEVICES HOLD IS LOST. The paper's devices are not what limits; here
//! those are that lie in memory, such as three of `zram`, or loop devices over files of a
//! `tmpfs`. Puts over keys that are there are submitted in an open loop, at even distances,
//! and a write's latency ends when its completion is called. The peak is that of as many
//! in flight as [`IN_FLIGHT`]. Both stores are open throughout and take turns in short
//! rounds; printed are each round, and medians of the rounds' ratios.

#![allow(clippy::unwrap_used)] // a measurement that cannot go on says where

use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cambium_alphard::Alphard;
use cambium_api::{Durability, Engine, EngineKind, OptionValues, Request};
use cambium_io::Environment;

mod model;

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
    let alone = arguments.next().expect("a device, which is written over");
    let device = arguments.next().expect("another one");
    let mirror = arguments.next().expect("a third");
    let value: usize = arguments.next().map_or(4096, |text| text.parse().unwrap());
    let rounds: usize = arguments.next().map_or(15, |text| text.parse().unwrap());
    let millis: u64 = arguments.next().map_or(400, |text| text.parse().unwrap());
    let limit = Duration::from_millis(millis);

    let (alone, pair) = match &*alone {
        "model" => {
            let micros = device.parse().expect("microseconds");
            let environment = model::environment(Duration::from_micros(micros));
            let create = |device, mirror| Store::create(&environment, device, mirror, value);
            (
                create("/device-0", None),
                create("/device-1", Some("/device-2")),
            )
        }
        _ => {
            let environment = Environment::real();
            let create = |device, mirror| Store::create(&environment, device, mirror, value);
            (create(&alone, None), create(&device, Some(&mirror)))
        }
    };
    let mut peaks: Vec<f64> = (0..3).map(|_| peak(&*alone.open, value, limit)).collect();
    let peak_pair = median((0..3).map(|_| peak(&*pair.open, value, limit)).collect());
    peaks.sort_by(f64::total_cmp);
    let peak = median(peaks);
    println!("peak, writes a second of {value} bytes: one device {peak:.0}, two {peak_pair:.0}");
    println!("asked for: half of the first");
    println!(
        "round  writes/s  mean us   p50 us   p99 us  with a mirror: writes/s  mean us   p50 us   p99 us  mean : mean"
    );
    let (mut of_alone, mut of_pair) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let run = |store: &Store| at_rate(&*store.open, value, peak / 2.0, limit);
        let (one, two) = match round % 2 {
            0 => {
                let one = run(&alone);
                (one, run(&pair))
            }
            _ => {
                let two = run(&pair);
                (run(&alone), two)
            }
        };
        println!(
            "{round:>5}  {:>8.0}  {:>7.1}  {:>7.1}  {:>7.1}                 {:>8.0}  {:>7.1}  {:>7.1}  {:>7.1}  {:>11.2}",
            one.rate,
            one.mean,
            one.median,
            one.tail,
            two.rate,
            two.mean,
            two.median,
            two.tail,
            two.mean / one.mean
        );
        of_alone.push(one);
        of_pair.push(two);
    }
    let ratio = |of: fn(&Measured) -> f64| {
        let ratios = of_pair.iter().zip(&of_alone);
        let mut all: Vec<f64> = ratios.map(|(two, one)| of(two) / of(one)).collect();
        all.sort_by(f64::total_cmp);
        format!(
            "{:.2} [{:.2}, {:.2}]",
            all[all.len() / 2],
            all[0],
            all[all.len() - 1]
        )
    };
    println!(
        "with a mirror : without, of each round, median [least, most]: writes/s {}, mean latency {}, p50 {}, p99 {}",
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

/// An open store in a folder that goes with it.
struct Store {
    open: Arc<dyn Engine>,
    folder: PathBuf,
}

impl Drop for Store {
    fn drop(&mut self) {
        _ = self.open.close();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Store {
    /// Makes a store that has all keys.
    fn create(environment: &Environment, device: &str, mirror: Option<&str>, value: usize) -> Self {
        let members = 1 + usize::from(mirror.is_some());
        let name = format!("mirror-latency-{}-{members}", std::process::id());
        let folder = std::env::temp_dir().join(name);
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
        let open = Alphard.create(environment, &folder, &options).unwrap();
        let bytes = noise(value);
        for key in 0..DATA_BYTES / value {
            let key = (key as u64).to_be_bytes();
            open.put(&key[1..], &bytes, Durability::Buffered).unwrap();
        }
        open.sync().unwrap();
        Store { open, folder }
    }
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
