//! One measurement in a process of its own: a store is opened, its page cache
//! empty, and compacted, while nobody or a workload uses it.
//!
//! The task comes as one line of JSON on standard input, after the process was
//! put into its control group; the answer is one line on standard output.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use cambium::{CompactOptions, CompactReport, Options, Store};
use kvzone_core::error::{Error, Result};
use kvzone_core::random::{Random, below, mix_two};
use serde::{Deserialize, Serialize};

use super::store::{KEY_BYTES, key_of, value_of};
use crate::cold::drop_caches;
use crate::counters::Counters;
use crate::place::{Disk, files_below};

/// What is to be done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) path: PathBuf,
    /// `sync`, `aio` or `io_uring`.
    pub(super) io: String,
    pub(super) batch: usize,
    pub(super) direct: bool,
    /// Options of the opening, `name=value`.
    pub(super) opening: Vec<String>,
    /// Further options of the compaction.
    pub(super) settings: Vec<String>,
    /// What uses the store meanwhile.
    pub(super) workload: Option<Workload>,
    /// Nothing but the workload; `settings` are of the opening.
    pub(super) steady: bool,
}

/// Reads and updates, half and half, by popularity as in YCSB A.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Workload {
    pub(super) keys: u64,
    pub(super) operations: u64,
    pub(super) threads: u64,
    pub(super) seed: u64,
}

/// What was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) error: Option<String>,
    pub(super) tree_search: f64,
    pub(super) sort: f64,
    pub(super) read: f64,
    pub(super) write: f64,
    pub(super) flush_and_commit: f64,
    pub(super) total: f64,
    pub(super) read_operations: u64,
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
    pub(super) documents: u64,
    /// The back end that served.
    pub(super) io: String,
    pub(super) peak_memory_bytes: Option<u64>,
    /// Of the whole disk meanwhile: reads completed and bytes of them.
    pub(super) device_reads: u64,
    pub(super) device_read_bytes: u64,
    /// Of the workload, if there was one.
    pub(super) operations_per_second: Option<f64>,
    /// Of an operation of it, where each was measured.
    pub(super) p50_seconds: f64,
    pub(super) p999_seconds: f64,
    pub(super) longest_seconds: f64,
    /// That began by themselves.
    pub(super) compactions: u64,
    /// Writes that were held back for one, and those that had to flush.
    pub(super) delays: u64,
    pub(super) stalls: u64,
    /// Largest space amplification with one database file, and with any.
    pub(super) space_between: f64,
    pub(super) space_peak: f64,
}

/// The hidden command.
pub(crate) fn run() -> Result<()> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(|error| Error::machine("read", "standard input", error))?;
    let task: Task = serde_json::from_str(&line)
        .map_err(|error| Error::machine("understand", "the task", error))?;
    let answer = perform(&task).unwrap_or_else(|error| Answer {
        error: Some(error.to_string()),
        ..Answer::default()
    });
    let text = serde_json::to_string(&answer)
        .map_err(|error| Error::machine("write", "the answer", error))?;
    let written = writeln!(std::io::stdout(), "{text}");
    written.map_err(|error| Error::machine("write", "standard output", error))
}

fn perform(task: &Task) -> Result<Answer> {
    let disk = Disk::of(&task.path);
    drop_caches(&files_below(std::slice::from_ref(&task.path)))?;
    let mut options = Options::new();
    for assignment in &task.opening {
        options = options.assign(assignment)?;
    }
    if task.steady {
        for assignment in &task.settings {
            options = options.assign(assignment)?;
        }
    } else {
        options = options.set("compaction_threshold", 100);
    }
    let store = options.open(&task.path)?;
    let before = Counters::now(&disk);
    let reads_before = disk.reads().unwrap_or(0);
    let mut answer = match &task.workload {
        None => answer_of(&compact(&store, task)?),
        Some(workload) if task.steady => super::steady::run(&store, &task.path, workload)?,
        Some(workload) => beside(&store, task, workload)?,
    };
    let cost = Counters::now(&disk).since(&before);
    answer.peak_memory_bytes = cost.peak_memory_bytes;
    answer.device_reads = disk.reads().unwrap_or(0).saturating_sub(reads_before);
    answer.device_read_bytes = cost.disk.map_or(0, |traffic| traffic.0);
    store.close()?;
    Ok(answer)
}

fn compact(store: &Store, task: &Task) -> Result<CompactReport> {
    let mut options = CompactOptions {
        backend: Some(task.io.parse().map_err(Error::from)?),
        batch: Some(task.batch),
        direct: task.direct,
        ..CompactOptions::default()
    };
    for assignment in &task.settings {
        options.settings.set_assignment(assignment)?;
    }
    Ok(store.compact(&options, &())?)
}

fn answer_of(report: &CompactReport) -> Answer {
    Answer {
        tree_search: report.phases.tree_search,
        sort: report.phases.sort,
        read: report.phases.read,
        write: report.phases.write,
        flush_and_commit: report.phases.flush_and_commit,
        total: report.total_seconds,
        read_operations: report.read_operations,
        bytes_read: report.bytes_read,
        bytes_written: report.bytes_written,
        documents: report.documents,
        io: report.backend.to_string(),
        ..Answer::default()
    }
}

/// The workload with one compaction inside, begun when a quarter of it is done:
/// the whole takes as long as both need.
fn beside(store: &Store, task: &Task, workload: &Workload) -> Result<Answer> {
    let done = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let began = Instant::now();
    let mut outcome = None;
    let ends: Vec<Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workload.threads)
            .map(|thread| {
                let (done, failed) = (&done, &failed);
                scope.spawn(move || {
                    let end = work(store, workload, thread, done);
                    failed.fetch_or(end.is_err(), Ordering::Relaxed);
                    end
                })
            })
            .collect();
        while done.load(Ordering::Relaxed) < workload.operations / 4
            && !failed.load(Ordering::Relaxed)
        {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        outcome = Some(compact(store, task));
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(panicked())))
            .collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    ends.into_iter().collect::<Result<()>>()?;
    let report = outcome.unwrap_or_else(|| Err(panicked()))?;
    Ok(Answer {
        operations_per_second: Some(workload.operations as f64 / seconds),
        ..answer_of(&report)
    })
}

fn panicked() -> Error {
    Error::machine("run", "a thread of the workload", "it panicked")
}

fn work(store: &Store, workload: &Workload, thread: u64, done: &AtomicU64) -> Result<()> {
    let mut random = Random::stream(workload.seed, 100 + thread);
    let popular = Popularity::new(workload.keys);
    let share = workload.operations / workload.threads;
    let extra = u64::from(thread < workload.operations % workload.threads);
    for number in 0..share + extra {
        let key = key_of(popular.pick(&mut random));
        if random.below(2) == 0 {
            if store.get(key)?.is_none() {
                return Err(Error::machine("read", "the store", "a key is not there"));
            }
        } else {
            let version = mix_two(thread + 1, number + 1);
            let value = value_of(version);
            store.put(key, &value[..value.len() - KEY_BYTES])?;
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Zipfian popularity (exponent 0.99), after Gray and others (1994), as YCSB
/// draws it; ranks are scattered over the keys.
pub(super) struct Popularity {
    keys: u64,
    zeta: f64,
    eta: f64,
}

const EXPONENT: f64 = 0.99;

impl Popularity {
    pub(super) fn new(keys: u64) -> Self {
        let zeta_of = |count: u64| {
            (1..=count)
                .map(|rank| (rank as f64).powf(-EXPONENT))
                .sum::<f64>()
        };
        let zeta = zeta_of(keys);
        let eta = (1.0 - (2.0 / keys as f64).powf(1.0 - EXPONENT)) / (1.0 - zeta_of(2) / zeta);
        Popularity { keys, zeta, eta }
    }

    /// The number of a key.
    pub(super) fn pick(&self, random: &mut Random) -> u64 {
        let drawn = random.fraction();
        let scaled = drawn * self.zeta;
        let rank = if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5_f64.powf(EXPONENT) {
            1
        } else {
            let base = self.eta * drawn - self.eta + 1.0;
            (self.keys as f64 * base.powf(1.0 / (1.0 - EXPONENT))) as u64
        };
        below(kvzone_core::random::mix(rank.min(self.keys - 1)), self.keys)
    }
}
