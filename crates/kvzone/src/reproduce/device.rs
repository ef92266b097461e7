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

use super::ReproduceArguments;
use super::claims::{Claim, above, below, each, percent};
use super::figure::{Column, Contestant, Defaults, Figure, How, Layout, Point, Takes, store};
use super::measured::{Cell, Measured, PointUsed};
use super::runner::Asked;
use super::wisckey::DEFAULTS;
use crate::place::RunFolder;

/// Threads of the paper.
const THREADS: usize = 32;
/// Bytes of the file that is read, in the paper, and least here.
const READ_FILE: (f64, u64) = (100e9, 4 << 20);
/// Bytes of the file that is written.
const WRITTEN_FILE: (f64, u64) = (10e9, 1 << 20);
/// Longest measurement of one cell of figure 3.
const SECONDS: f64 = 1.0;
/// Written at once while the file to be read is made.
const CHUNK: usize = 1 << 20;

/// A size of requests.
const fn of(label: &'static str, value_bytes: u64) -> Point {
    Point {
        label,
        value_bytes,
        ..Point::PLAIN
    }
}

const RATE: Column = Column::new("MB/s", three_digits, |row| {
    row.number("/megabytes_per_second")
});
const SECONDS_TAKEN: Column = Column::new("seconds", three_digits, |row| row.number("/seconds"));

const SEQUENTIAL: &str = "sequential";
const ONE_THREAD: &str = "random, 1 thread";
const MANY_THREADS: &str = "random, 32 threads";
const IO_URING: &str = "random, io_uring 32";

const ONCE: Defaults = Defaults {
    takes: Takes::Nothing,
    ..DEFAULTS
};

/// Both of them.
pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "wisckey/fig3",
        title: "WiscKey paper, figure 3: sequential and random reads of the device",
        axis: "request",
        what: "one file, sequential reads through the page cache (dropped before), random ones past it",
        stores: WAYS,
        points: &[
            of("4 KiB", 4 << 10),
            of("16 KiB", 16 << 10),
            of("64 KiB", 64 << 10),
            of("128 KiB", 128 << 10),
            of("256 KiB", 256 << 10),
        ],
        layout: Layout::Beside,
        columns: &[RATE],
        claims: read_claims,
        ..Figure::plain(How::Cells(ONCE, reads))
    },
    Figure {
        name: "wisckey/fig6",
        title: "WiscKey paper, figure 6: impact of the size of writes",
        axis: "write",
        what: "a file written from start to end, then synced",
        stores: &[store("")],
        points: &[
            of("64 B", 64),
            of("256 B", 256),
            of("1 KiB", 1 << 10),
            of("4 KiB", 4 << 10),
            of("16 KiB", 16 << 10),
            of("64 KiB", 64 << 10),
        ],
        layout: Layout::Beside,
        columns: &[SECONDS_TAKEN, RATE],
        claims: |it| {
            let seconds = |size: &str| it.figure(size, "", SECONDS_TAKEN);
            vec![Claim::on(
                "small writes take long by the overhead of each system call; from 4 KB on the device is the limit",
                each(&["64 B", "64 KiB"], seconds).map(|(words, seconds)| (words + " s", seconds)),
                |seconds| seconds[0] > seconds[1],
            )]
        },
        ..Figure::plain(How::Cells(ONCE, writes))
    },
];

/// How figure 3 reads.
const WAYS: &[Contestant] = &[
    store(SEQUENTIAL),
    store(ONE_THREAD),
    store(MANY_THREADS),
    store(IO_URING),
];

fn scaled((full, least): (f64, u64), asked: Asked<'_>) -> u64 {
    ((full * asked.scale) as u64).max(least)
}

/// A point that was measured; the first says how large the file was.
fn point_used(place: usize, point: &Point, length: u64) -> PointUsed {
    let conditions = match place {
        0 => format!("The file has {}.\n", bytes(length as f64)),
        _ => String::new(),
    };
    PointUsed::at(point.label, conditions)
}

fn rows(rows: Vec<Value>) -> Value {
    json!({"schema": "kvzone-device/1", "rows": rows})
}

fn reads(figure: &'static Figure, asked: Asked<'_>) -> Result<(Measured, Value)> {
    let folder = RunFolder::create(&asked.arguments.dir, "reads")?;
    let environment = Environment::real();
    let path = folder.path().join("file");
    let length = scaled(READ_FILE, asked);
    make_file(&environment, &path, length)?;
    let mut measured = asked.nothing(figure.stores.to_vec());
    let mut all = Vec::new();
    for (place, point) in figure.points.iter().enumerate() {
        measured.points.push(point_used(place, point, length));
        for way in WAYS {
            let read = (way.label, point.value_bytes as usize, length);
            let rate = read_rate(&environment, &path, read, asked.arguments)?;
            let row = json!({
                "request_bytes": point.value_bytes, "way": way.label, "megabytes_per_second": rate,
            });
            measured
                .cells
                .push(Cell::once(place, way.label, row.clone()));
            all.push(row);
        }
    }
    Ok((measured, rows(all)))
}

fn read_claims(it: &Measured) -> Vec<Claim> {
    let share = |size, way| {
        let (rate, whole) = (
            it.figure(size, way, RATE)?,
            it.figure(size, SEQUENTIAL, RATE)?,
        );
        percent(Some(rate / whole))
    };
    vec![
        Claim::on(
            "one thread's random reads reach half of the sequential rate at 256 KB",
            share("256 KiB", ONE_THREAD),
            above(0.4),
        ),
        Claim::on(
            "with 32 threads random reads from 16 KB on are as fast as sequential ones",
            share("256 KiB", MANY_THREADS),
            above(0.9),
        ),
        Claim::on(
            "at small requests random reads are slower, also with 32 threads",
            share("4 KiB", MANY_THREADS),
            below(1.0),
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
    (way, size, length): (&str, usize, u64),
    arguments: &ReproduceArguments,
) -> Result<f64> {
    let direct = way != SEQUENTIAL;
    let options = match direct {
        true => OpenOptions::READ.direct(),
        false => OpenOptions::READ,
    };
    let file = environment.file_system.open(path, options)?;
    let mut queue: Box<dyn ReadQueue> = match way {
        MANY_THREADS => ReadPool::new(&*environment.executor, THREADS).queue(THREADS)?,
        IO_URING => environment.file_system.read_queue(BatchOptions {
            backend: ReadBackend::IoUring,
            depth: THREADS,
        })?,
        _ => environment.file_system.read_queue(BatchOptions {
            backend: ReadBackend::Sync,
            depth: 1,
        })?,
    };
    if !direct {
        file.advise(0, 0, Advice::DontNeed);
        file.advise(0, 0, Advice::Sequential);
    }
    let mut places = Places {
        random: direct.then(|| Random::stream(arguments.seed, size as u64)),
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

/// The places that are read, in units of a read's size.
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

fn writes(figure: &'static Figure, asked: Asked<'_>) -> Result<(Measured, Value)> {
    let folder = RunFolder::create(&asked.arguments.dir, "writes")?;
    let environment = Environment::real();
    let length = scaled(WRITTEN_FILE, asked);
    let mut measured = asked.nothing(figure.stores.to_vec());
    let mut all = Vec::new();
    for (place, point) in figure.points.iter().enumerate() {
        let path = folder.path().join("file");
        let size = point.value_bytes as usize;
        let seconds = write_seconds(&environment, &path, (size, length), true)?;
        let row = json!({
            "write_bytes": size, "seconds": seconds,
            "megabytes_per_second": length as f64 / seconds / 1e6,
        });
        measured.points.push(point_used(place, point, length));
        measured.cells.push(Cell::once(place, "", row.clone()));
        all.push(row);
    }
    Ok((measured, rows(all)))
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
