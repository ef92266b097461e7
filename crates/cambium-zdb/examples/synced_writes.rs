//! How many synced writes a second one thread and many threads get: group
//! commit through one log (`docs/benchmarks.md`).
//!
//! ```text
//! cargo run --release -p cambium-zdb --example synced_writes -- [DIR] [THREADS] [SECONDS] [ROUNDS]
//! ```
//!
//! Rounds are interleaved, so that a drift of the machine meets both sides;
//! medians and the median of the rounds' ratios are printed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cambium_api::{Durability, Engine, EngineKind, OptionValues, Result};
use cambium_io::Environment;
use cambium_zdb::Zdb;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| ".".into()));
    let mut number = |default: u64| {
        let argument = arguments.next();
        argument
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let (threads, seconds, rounds) = (number(16), number(2), number(5));
    let mut ratios = Vec::new();
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let one = run(&folder, 1, seconds)?;
        let many = run(&folder, threads, seconds)?;
        println!(
            "round {round}: 1 thread {one:.0}/s, {threads} threads {many:.0}/s, ratio {:.2}",
            many / one
        );
        alone.push(one);
        together.push(many);
        ratios.push(many / one);
    }
    println!(
        "median: 1 thread {:.0}/s, {threads} threads {:.0}/s, ratio {:.2}",
        median(&mut alone),
        median(&mut together),
        median(&mut ratios)
    );
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Synced puts of 100 bytes over all data files of a fresh store, a second.
fn run(folder: &Path, threads: u64, seconds: u64) -> Result<f64> {
    let path = folder.join(format!("synced-writes-{}", std::process::id()));
    let environment = Environment::real();
    let mut options = OptionValues::default();
    options.set("keys", "integer");
    let store = Zdb.create(&environment, &path, &options)?;
    let done = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let started = Instant::now();
    let workers: Vec<_> = (0..threads)
        .map(|worker| {
            let (store, done, stop): (Arc<dyn Engine>, _, _) =
                (store.clone(), done.clone(), stop.clone());
            std::thread::spawn(move || -> Result<()> {
                let mut key = worker;
                while !stop.load(Ordering::Relaxed) {
                    store.put(
                        &(key % 1_000_000).to_be_bytes(),
                        &[7; 100],
                        Durability::Synced,
                    )?;
                    key += threads;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        })
        .collect();
    std::thread::sleep(Duration::from_secs(seconds));
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join().expect("a writer does not panic")?;
    }
    let rate = done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
    store.close()?;
    std::fs::remove_dir_all(&path).expect("the store's folder can be removed");
    Ok(rate)
}
