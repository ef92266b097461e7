//! Figures 3 and 6: what the disk gives, without a store.
//!
//! - Figure 3: reads of one file, from start to end through the page cache, and
//!   at random places past it: by one thread, by 32 threads, and 32 at once by
//!   io_uring.
//! - Figure 6: a file written from start to end by calls of one size, and synced.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cambium_io::{
    Advice, AlignedBuffer, BatchOptions, Environment, File, OpenOptions, ReadBackend, ReadPool,
    ReadQueue, ReadRequest,
};
use kvzone_core::error::Result;
use kvzone_core::random::Random;
use kvzone_core::report::text::{bytes, three_digits};
use kvzone_core::statistics::median;
use serde_json::{Value, json};

use super::super::ReproduceArguments;
use super::super::grid::{Claim, Grid};
use super::super::shown::Shown;
use super::measure::Asked;
use super::present::rounds;
use crate::place::RunFolder;

/// Threads of the paper.
const THREADS: usize = 32;
/// Bytes of the file that is read, in the paper, and least here.
const READ_FILE: (f64, u64) = (100e9, 4 << 20);
/// Bytes of the file that is written.
const WRITTEN_FILE: (f64, u64) = (10e9, 1 << 20);
/// Longest measurement of one cell of figure 3.
const SECONDS: f64 = 1.0;
const READ_SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10];
const WRITE_SIZES: [usize; 6] = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10];
/// Written at once while the file to be read is made.
const CHUNK: usize = 1 << 20;

fn scaled((full, least): (f64, u64), asked: Asked) -> u64 {
    ((full * asked.scale) as u64).max(least)
}

/// How figure 3 reads.
#[derive(Clone, Copy, Debug)]
enum Way {
    Sequential,
    OneThread,
    Threads,
    IoUring,
}

const WAYS: [(Way, &str); 4] = [
    (Way::Sequential, "sequential"),
    (Way::OneThread, "random, 1 thread"),
    (Way::Threads, "random, 32 threads"),
    (Way::IoUring, "random, io_uring 32"),
];

/// Figure 3.
pub(super) fn reads(arguments: &ReproduceArguments, asked: Asked) -> Result<(Shown, Value)> {
    let folder = RunFolder::create(&arguments.dir, "reads")?;
    let environment = Environment::real();
    let path = folder.path().join("file");
    let length = scaled(READ_FILE, asked);
    make_file(&environment, &path, length)?;
    let mut grid = Grid {
        heads: vec!["request".to_string()],
        words: 1,
        rows: Vec::new(),
    };
    grid.heads
        .extend(WAYS.iter().map(|(_, name)| format!("{name}, MB/s")));
    let mut all = Vec::new();
    let mut rates = Vec::new();
    for size in READ_SIZES {
        let mut row = vec![bytes(size as f64)];
        let mut found = [0.0; WAYS.len()];
        for (rate, (way, name)) in found.iter_mut().zip(WAYS) {
            *rate = read_rate(&environment, &path, (way, size, length), arguments, asked)?;
            row.push(three_digits(*rate));
            all.push(json!({"request_bytes": size, "way": name, "megabytes_per_second": *rate}));
        }
        grid.rows.push(row);
        rates.push(found);
    }
    let shown = Shown {
        grids: vec![("", grid)],
        claims: read_claims(&rates),
        conditions: rounds(
            asked,
            "one file, sequential reads through the page cache (dropped before), random ones past it",
        ) + &format!("The file has {}.\n", bytes(length as f64)),
    };
    Ok((shown, json!({"schema": "kvzone-device/1", "rows": all})))
}

fn read_claims(rates: &[[f64; 4]]) -> Vec<Claim> {
    let (Some(small), Some(large)) = (rates.first(), rates.last()) else {
        return Vec::new();
    };
    let share = |rates: &[f64; 4], way: usize| rates[way] / rates[0];
    let percent = |share: f64| format!("{} %", three_digits(share * 100.0));
    vec![
        Claim::new(
            "one thread's random reads reach half of the sequential rate at 256 KB",
            Some((percent(share(large, 1)), share(large, 1) > 0.4)),
        ),
        Claim::new(
            "with 32 threads random reads from 16 KB on are as fast as sequential ones",
            Some((percent(share(large, 2)), share(large, 2) > 0.9)),
        ),
        Claim::new(
            "at small requests random reads are slower, also with 32 threads",
            Some((percent(share(small, 2)), share(small, 2) < 1.0)),
        ),
    ]
}

fn make_file(environment: &Environment, path: &Path, length: u64) -> Result<()> {
    let file = environment
        .file_system
        .open(path, OpenOptions::CREATE_NEW)?;
    let mut random = Random::new(length);
    let chunk: Vec<u8> = (0..CHUNK / 8)
        .flat_map(|_| random.next_u64().to_le_bytes())
        .collect();
    let mut position = 0;
    while position < length {
        file.write_at(&chunk, position)?;
        position += chunk.len() as u64;
    }
    file.sync_data()?;
    Ok(())
}

/// Megabytes (10^6) a second.
fn read_rate(
    environment: &Environment,
    path: &Path,
    (way, size, length): (Way, usize, u64),
    arguments: &ReproduceArguments,
    asked: Asked,
) -> Result<f64> {
    let direct = !matches!(way, Way::Sequential);
    let options = match direct {
        true => OpenOptions::READ.direct(),
        false => OpenOptions::READ,
    };
    let file = environment.file_system.open(path, options)?;
    let mut queue: Box<dyn ReadQueue> = match way {
        Way::Threads => ReadPool::new(&*environment.executor, THREADS).queue(THREADS)?,
        Way::IoUring => environment.file_system.read_queue(BatchOptions {
            backend: ReadBackend::IoUring,
            depth: THREADS,
        })?,
        Way::Sequential | Way::OneThread => environment.file_system.read_queue(BatchOptions {
            backend: ReadBackend::Sync,
            depth: 1,
        })?,
    };
    if !direct {
        file.advise(0, 0, Advice::DontNeed);
        file.advise(0, 0, Advice::Sequential);
    }
    let mut places = Places {
        random: direct.then(|| Random::stream(asked.seed, size as u64)),
        next: 0,
        count: (length / size as u64).max(1),
    };
    let limit = Duration::from_secs_f64(arguments.seconds.min(SECONDS));
    let most = arguments.operations.unwrap_or(u64::MAX);
    let began = Instant::now();
    let mut done = 0;
    let mut begun = 0;
    let mut completions = Vec::new();
    loop {
        let ended = begin_ended(begun, most, began, limit) || places.ended();
        while !ended && begun < most && queue.pending() < queue.depth() {
            let Some(place) = places.take() else {
                break;
            };
            queue.submit(request(&file, place * size as u64, size));
            begun += 1;
        }
        if queue.pending() == 0 {
            break;
        }
        queue.wait(1, &mut completions)?;
        for completion in completions.drain(..) {
            done += completion.result? as u64;
        }
    }
    Ok(done as f64 / began.elapsed().as_secs_f64() / 1e6)
}

fn begin_ended(begun: u64, most: u64, began: Instant, limit: Duration) -> bool {
    begun >= most || began.elapsed() >= limit
}

/// Where reads go, in units of their size.
struct Places {
    /// None: one after the other, once.
    random: Option<Random>,
    next: u64,
    count: u64,
}

impl Places {
    fn ended(&self) -> bool {
        self.random.is_none() && self.next >= self.count
    }

    fn take(&mut self) -> Option<u64> {
        if self.ended() {
            return None;
        }
        self.next += 1;
        match &mut self.random {
            Some(random) => Some(random.below(self.count)),
            None => Some(self.next - 1),
        }
    }
}

fn request(file: &Arc<dyn File>, offset: u64, size: usize) -> ReadRequest {
    ReadRequest {
        file: file.clone(),
        offset,
        buffer: AlignedBuffer::new(size, file.alignment().memory.max(8)),
        tag: 0,
    }
}

/// Figure 6.
pub(super) fn writes(arguments: &ReproduceArguments, asked: Asked) -> Result<(Shown, Value)> {
    let folder = RunFolder::create(&arguments.dir, "writes")?;
    let environment = Environment::real();
    let length = scaled(WRITTEN_FILE, asked);
    let mut grid = Grid {
        heads: ["write", "seconds", "MB/s"].map(String::from).to_vec(),
        words: 1,
        rows: Vec::new(),
    };
    let mut all = Vec::new();
    let mut times = Vec::new();
    for size in WRITE_SIZES {
        let path = folder.path().join("file");
        let seconds = write_seconds(&environment, &path, (size, length), true)?;
        let rate = length as f64 / seconds / 1e6;
        grid.rows.push(vec![
            bytes(size as f64),
            three_digits(seconds),
            three_digits(rate),
        ]);
        all.push(json!({"write_bytes": size, "seconds": seconds}));
        times.push(seconds);
    }
    let smallest = times.first().copied().unwrap_or(0.0);
    let largest = times.last().copied().unwrap_or(0.0);
    let words = format!(
        "{} s with 64 bytes, {} s with 64 KiB",
        three_digits(smallest),
        three_digits(largest)
    );
    let shown = Shown {
        grids: vec![("", grid)],
        claims: vec![Claim::new(
            "small writes take long by the overhead of each system call; from 4 KB on the device is the limit",
            Some((words, smallest > largest)),
        )],
        conditions: rounds(asked, "a file written from start to end, then synced")
            + &format!("The file has {}.\n", bytes(length as f64)),
    };
    Ok((shown, json!({"schema": "kvzone-device/1", "rows": all})))
}

/// Bytes a second that one thread writes to one file in writes of 1 MiB, handed to
/// the operating system and not synced: the median of three.
pub(super) fn file_rate(arguments: &ReproduceArguments, length: u64) -> Result<Option<f64>> {
    let folder = RunFolder::create(&arguments.dir, "writes")?;
    let environment = Environment::real();
    let path = folder.path().join("file");
    let rate = || -> Result<f64> {
        let seconds = write_seconds(&environment, &path, (CHUNK, length), false)?;
        Ok(length as f64 / seconds)
    };
    Ok(median(&[rate()?, rate()?, rate()?]))
}

/// Writes `length` bytes from start to end in writes of `size`.
fn write_seconds(
    environment: &Environment,
    path: &Path,
    (size, length): (usize, u64),
    synced: bool,
) -> Result<f64> {
    let file_system = &environment.file_system;
    let file = file_system.open(path, OpenOptions::CREATE_NEW)?;
    let mut random = Random::new(size as u64);
    let buffer: Vec<u8> = (0..size / 8)
        .flat_map(|_| random.next_u64().to_le_bytes())
        .collect();
    let began = Instant::now();
    let mut position = 0;
    while position < length {
        let part = &buffer[..buffer.len().min((length - position) as usize)];
        file.write_at(part, position)?;
        position += size as u64;
    }
    if synced {
        file.sync_data()?;
    }
    let seconds = began.elapsed().as_secs_f64();
    file_system.remove(path)?;
    Ok(seconds)
}
