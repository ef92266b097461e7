//! Steady overwriting for many times the size of the data, while the store
//! compacts itself or not: what writers and readers feel of it, and how much
//! space it takes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cambium::Store;
use kvzone_core::error::{Error, Result};
use kvzone_core::random::{Random, mix_two};

use super::child::{Answer, Popularity, Workload};
use super::store::{DOCUMENT_BYTES, KEY_BYTES, key_of, value_of};
use crate::place::{files_below, space_of};

/// Between two looks at the space.
const LOOK: Duration = Duration::from_millis(10);

/// Largest space amplification with one database file and with two.
#[derive(Clone, Copy, Debug, Default)]
struct Space {
    between: f64,
    peak: f64,
}

/// Runs the workload, half reads and half updates, and tells what it met.
pub(super) fn run(store: &Store, path: &Path, workload: &Workload) -> Result<Answer> {
    let ended = AtomicBool::new(false);
    let began = Instant::now();
    let mut ends: Vec<Result<Vec<u32>>> = Vec::new();
    let mut seconds = 0.0;
    let mut space = Space::default();
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(path, workload.keys, &ended));
        let threads: Vec<_> = (0..workload.threads)
            .map(|thread| scope.spawn(move || work(store, workload, thread)))
            .collect();
        for thread in threads {
            let end = thread.join();
            ends.push(end.unwrap_or_else(|_| {
                Err(Error::machine(
                    "run",
                    "a thread of the workload",
                    "it panicked",
                ))
            }));
        }
        seconds = began.elapsed().as_secs_f64();
        ended.store(true, Ordering::Relaxed);
        space = watcher.join().unwrap_or_default();
    });
    let mut latencies = Vec::new();
    for end in ends {
        latencies.extend(end?);
    }
    latencies.sort_unstable();
    let at = |share: f64| {
        let place = (latencies.len() as f64 * share) as usize;
        let found = latencies.get(place.min(latencies.len().saturating_sub(1)));
        f64::from(found.copied().unwrap_or(0)) / 1e6
    };
    let statistics = store.stats()?;
    Ok(Answer {
        operations_per_second: Some(latencies.len() as f64 / seconds),
        total: seconds,
        io: "io_uring".to_string(),
        p50_seconds: at(0.5),
        p999_seconds: at(0.999),
        longest_seconds: at(1.0),
        compactions: statistics.number("compactions").unwrap_or(0),
        delays: statistics.number("writer_delays").unwrap_or(0),
        stalls: statistics.number("writer_stalls").unwrap_or(0),
        space_between: space.between,
        space_peak: space.peak,
        ..Answer::default()
    })
}

/// Looks at the space that the store takes until all is done.
fn watch(path: &Path, keys: u64, ended: &AtomicBool) -> Space {
    let data = (keys * DOCUMENT_BYTES as u64) as f64;
    let paths = [path.to_path_buf()];
    let mut space = Space::default();
    while !ended.load(Ordering::Relaxed) {
        let files = files_below(&paths);
        let databases = files.iter().filter(|file| {
            let kind = file.extension();
            kind.is_some_and(|kind| kind == "forest")
        });
        let amplification = space_of(&paths) as f64 / data;
        if databases.count() == 1 {
            space.between = space.between.max(amplification);
        }
        space.peak = space.peak.max(amplification);
        std::thread::sleep(LOOK);
    }
    space
}

/// Answers how long each operation took, in microseconds.
fn work(store: &Store, workload: &Workload, thread: u64) -> Result<Vec<u32>> {
    let mut random = Random::stream(workload.seed, 100 + thread);
    let popular = Popularity::new(workload.keys);
    let operations = workload.operations / workload.threads;
    let mut latencies = Vec::with_capacity(operations as usize);
    // Made before: what is measured is the store.
    let values: Vec<Vec<u8>> = (0..64).map(|n| value_of(mix_two(thread + 1, n))).collect();
    for number in 0..operations {
        let key = key_of(popular.pick(&mut random));
        let write = random.below(2) == 0;
        let began = Instant::now();
        if write {
            let value = &values[number as usize % values.len()];
            store.put(key, &value[KEY_BYTES..])?;
        } else if store.get(key)?.is_none() {
            return Err(Error::machine("read", "the store", "a key is not there"));
        }
        let taken = began.elapsed().as_micros();
        latencies.push(u32::try_from(taken).unwrap_or(u32::MAX));
    }
    Ok(latencies)
}
