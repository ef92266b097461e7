//! `kvzone worker`: one store, one workload, one repeat, in a process of its
//! own. Nobody types it; `kvzone run` starts it (see [`kvzone_core::protocol`]).
//!
//! Standard output is duplicated first, and then made the same as standard
//! error: what a library prints cannot come between two events. Should the
//! process that started it die, the kernel ends this one too.

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use kvzone_core::adapter::{Availability, OpenStore};
use kvzone_core::driver::{Observer, PhaseResult, open_request, run_job};
use kvzone_core::error::{Error, Result};
use kvzone_core::job::Job;
use kvzone_core::protocol::{Event, LAST_WRITES, status_of};
use kvzone_core::record::{Phase, Run, Status};
use kvzone_core::trace::Recorded;
use kvzone_core::workload;
use serde_json::json;

use crate::cold::{self, Dropped};
use crate::counters::Counters;
use crate::place::{self, Disk};
use crate::stores;

/// Reads a job from standard input, does it, and tells how it went on standard
/// output. An error is one of the pipe; what went wrong with the store is an
/// event.
pub(crate) fn run() -> Result<()> {
    let mut out = take_standard_output()?;
    let parent_ends_us =
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    parent_ends_us.map_err(|error| pipe_failed("prctl", error))?;
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| pipe_failed("read", error))?;
    let job: Job = serde_json::from_str(&text)
        .map_err(|error| Error::Usage(format!("a job that is none: {error}")))?;
    let last = match work(&job, &mut out) {
        Ok(()) => Event::Done,
        Err(error) => Event::Failed {
            status: status_of(&error),
            error: error.to_string(),
        },
    };
    send(&mut out, &last)
}

/// A descriptor that only this module knows; standard output is standard error
/// from here on.
fn take_standard_output() -> Result<File> {
    let copy = rustix::io::dup(rustix::stdio::stdout()).map_err(|e| pipe_failed("dup", e))?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr()).map_err(|e| pipe_failed("dup2", e))?;
    Ok(File::from(copy))
}

fn pipe_failed(operation: &'static str, error: impl ToString) -> Error {
    Error::machine(operation, "the pipe to kvzone run", error)
}

fn send(out: &mut File, event: &Event) -> Result<()> {
    let line = event.line()?;
    out.write_all(line.as_bytes())
        .map_err(|error| pipe_failed("write", error))
}

fn work(job: &Job, out: &mut File) -> Result<()> {
    let adapter = stores::find(&job.store)?;
    let request = open_request(job);
    let version = match adapter.probe_for(&request) {
        Availability::Found { version, .. } => Some(version),
        Availability::Missing { what, remedy } => {
            return Err(Error::Missing {
                store: job.store.clone(),
                what,
                remedy,
            });
        }
    };
    let settings = adapter.settings(&request)?;
    let started = Event::Started {
        version: version.clone(),
        settings: settings.clone(),
    };
    send(out, &started)?;
    let reporter = Reporter {
        recorded: job.record.as_deref().map(Recorded::new).transpose()?,
        job,
        version,
        settings,
        paths: adapter.data_paths(&request),
        disk: Disk::of(&job.folder),
        state: Mutex::new(State {
            out: out.try_clone().map_err(|error| pipe_failed("dup", error))?,
            started: Counters::default(),
            samples: Samples::new(),
            foreground: None,
            dropped: None,
        }),
    };
    reporter.stage("open", false)?;
    let phases = run_job(adapter.as_ref(), job, &reporter)?;
    if let Some(recorded) = &reporter.recorded {
        recorded.finish()?;
    }
    // A failure of a phase was told with it, and is not told twice; what went
    // wrong when the store was closed after it is known only now.
    match phases.into_iter().next_back().and_then(|last| last.failure) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Counts between the parts of a job, and tells the parent.
struct Reporter<'a> {
    recorded: Option<Recorded>,
    job: &'a Job,
    version: Option<String>,
    settings: std::collections::BTreeMap<String, String>,
    paths: Vec<PathBuf>,
    disk: Disk,
    state: Mutex<State>,
}

struct State {
    out: File,
    /// When the phase began.
    started: Counters,
    /// Since then, a second each.
    samples: Samples,
    /// What its operations cost, before the store was waited for.
    foreground: Option<Counters>,
    /// Set before a cold phase.
    dropped: Option<Dropped>,
}

/// What the process cost in each second of a phase: `samples` in the report, each
/// with `second` (at its end), `write_bytes`, `read_bytes`, `cpu_seconds` in it,
/// and `memory_bytes`, `space_bytes` and `descriptors` then.
struct Samples {
    began: Instant,
    second: u64,
    last: Option<Counters>,
    taken: Vec<serde_json::Value>,
}

impl Samples {
    fn new() -> Samples {
        Samples {
            began: Instant::now(),
            second: 0,
            last: None,
            taken: Vec::new(),
        }
    }

    /// Takes a sample if another second is over.
    fn take(&mut self, started: &Counters, disk: &Disk, paths: &[PathBuf]) {
        let second = self.began.elapsed().as_secs();
        if second <= self.second {
            return;
        }
        let now = Counters::now(disk);
        let spent = now.since(self.last.as_ref().unwrap_or(started));
        // Where the machine held us up, the bytes are those of several seconds.
        let seconds = (second - self.second) as f64;
        let rate = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / seconds);
        self.taken.push(json!({
            "second": second,
            "write_bytes": rate(spent.write_bytes),
            "read_bytes": rate(spent.read_bytes),
            "cpu_seconds": spent.cpu_seconds / seconds,
            "memory_bytes": now.memory_bytes,
            "space_bytes": place::space_of(paths),
            "descriptors": descriptors(),
        }));
        self.second = second;
        self.last = Some(now);
    }
}

impl Reporter<'_> {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        // Poisoned means that a callback panicked; the process is ending.
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        act(&mut state)
    }

    fn stage(&self, stage: &str, counted: bool) -> Result<()> {
        let event = Event::Stage {
            stage: stage.to_string(),
            counted,
        };
        self.with(|state| send(&mut state.out, &event))
    }
}

impl Observer for Reporter<'_> {
    fn phase_starts(&self, phase: Phase) -> Result<()> {
        let counted = matches!(phase, Phase::Load | Phase::Run);
        self.stage(phase.name(), counted)?;
        if let Some(recorded) = &self.recorded {
            let measured = workload::find(&self.job.load.workload)?.measured_phase();
            recorded.set_loading(phase == Phase::Load && measured != Phase::Load);
        }
        self.with(|state| {
            state.foreground = None;
            state.started = Counters::now(&self.disk);
            state.samples = Samples::new();
            Ok(())
        })
    }

    fn opened(&self, store: Arc<dyn OpenStore>) -> Arc<dyn OpenStore> {
        match &self.recorded {
            Some(recorded) => recorded.around(store),
            None => store,
        }
    }

    fn progress(&self, _: Phase, operations: u64) {
        // A parent that went away has no use for it; the kernel ends us.
        let _ = self.with(|state| {
            state.samples.take(&state.started, &self.disk, &self.paths);
            send(&mut state.out, &Event::Progress { operations })
        });
    }

    fn work_ended(&self, _: Phase) -> Result<()> {
        self.with(|state| {
            state.foreground = Some(Counters::now(&self.disk).since(&state.started));
            Ok(())
        })?;
        self.stage("settle", false)
    }

    fn phase_ended(&self, result: &PhaseResult) -> Result<()> {
        self.with(|state| {
            let spent = Counters::now(&self.disk).since(&state.started);
            let mut run = self.run_of(result, &spent);
            let samples = std::mem::take(&mut state.samples.taken);
            if !samples.is_empty() {
                run.tell("samples", samples);
            }
            if let Some(foreground) = state.foreground.take() {
                run.tell("foreground_cpu_seconds", foreground.cpu_seconds);
                let per_lookup = reads_per_lookup(&foreground, result);
                run.tell("device_reads_per_lookup", per_lookup);
            }
            if let Some(dropped) = state.dropped.take() {
                run.tell("cold", dropped);
            }
            let finished = Event::Finished { run: Box::new(run) };
            send(&mut state.out, &finished)
        })?;
        self.stage("close", false)
    }

    fn last_writes(&self) -> Result<()> {
        self.stage(LAST_WRITES, true)
    }

    fn kill(&self) {
        let told = self.with(|state| send(&mut state.out, &Event::Kills));
        // A parent that went away ends us itself.
        if told.is_ok() {
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        }
    }

    fn store_closed(&self) -> Result<()> {
        self.stage("drop caches", false)?;
        let dropped = cold::drop_caches(&self.paths)?;
        self.with(|state| {
            state.dropped = Some(dropped);
            match dropped.note() {
                Some(text) => send(&mut state.out, &Event::Note { text }),
                None => Ok(()),
            }
        })?;
        self.stage("open", false)
    }
}

impl Reporter<'_> {
    /// Joins what the driver measured with what the kernel counted.
    fn run_of(&self, result: &PhaseResult, spent: &Counters) -> Run {
        // A store without files here runs elsewhere: only its answers can be measured.
        let is_here = !self.paths.is_empty();
        let space_bytes = is_here.then(|| place::space_of(&self.paths));
        let spent = if is_here { spent } else { &Counters::default() };
        let status = result.failure.as_ref().map_or(Status::Ok, status_of);
        let mut run = Run {
            version: self.version.clone(),
            operations: result.operations,
            seconds: result.seconds,
            ops_per_second: result.operations_per_second(),
            user_bytes: result.user_bytes_written + result.user_bytes_read,
            status,
            error: result.failure.as_ref().map(ToString::to_string),
            settings: self.settings.clone(),
            latency_ns: result.latency,
            native_latency_ns: result.native_latency,
            device_write_bytes: spent.write_bytes,
            device_read_bytes: spent.read_bytes,
            write_amplification: ratio(spent.write_bytes, result.user_bytes_written),
            read_amplification: ratio(spent.read_bytes, result.user_bytes_read),
            space_bytes,
            space_amplification: ratio(space_bytes, result.live_user_bytes),
            cpu_seconds: is_here.then_some(spent.cpu_seconds),
            peak_memory_bytes: spent.peak_memory_bytes,
            result_hash: result.result_hash.clone(),
            timeline: result.timeline.clone(),
            extra: result.extra.clone(),
            ..Run::blank(self.job, result.phase)
        };
        run.tell("user_bytes_written", result.user_bytes_written);
        run.tell("user_bytes_read", result.user_bytes_read);
        run.tell("live_user_bytes", result.live_user_bytes);
        run.tell("device_reads", spent.reads);
        run.tell("descriptors", descriptors());
        let (disk_read, disk_written) = spent.disk.unzip();
        run.tell("whole_disk_read_bytes", disk_read);
        run.tell("whole_disk_write_bytes", disk_written);
        run
    }
}

/// Descriptors that this process has open.
fn descriptors() -> Option<u64> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?;
    // Not the one that lists them.
    Some((open.count() as u64).saturating_sub(1))
}

/// Device reads in the foreground's time, those of flushes and compactions
/// beside it included, for each get.
fn reads_per_lookup(spent: &Counters, result: &PhaseResult) -> Option<f64> {
    let calls = |kind: &str| result.extra.get(&format!("calls_{kind}"))?.as_u64();
    let lookups = calls("read").unwrap_or(0) + calls("read-modify-write").unwrap_or(0);
    ratio(spent.reads, lookups)
}

fn ratio(bytes: Option<u64>, of: u64) -> Option<f64> {
    (of > 0).then(|| bytes.map(|bytes| bytes as f64 / of as f64))?
}
