//! Starts a worker process, watches it, and makes a report of whatever becomes
//! of it.
//!
//! A store may fail, crash, or never come back; the others of the run go on.
//! So a worker is judged from outside:
//!
//! - It ends without its last word: it *crashed*, and the signal or exit
//!   status, the last lines it printed, and a memory limit that was met are
//!   the reason.
//! - It *hangs* if no operation ended for the length of `patience`. While it opens,
//!   closes, or waits for background work there are no operations: then it
//!   hangs if the kernel counts neither processor time nor bytes for as long,
//!   or if it is busy for [`BUSY_FACTOR`] times that.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use kvzone_core::error::{Error, Result};
use kvzone_core::job::Job;
use kvzone_core::protocol::{Event, LAST_WRITES};
use kvzone_core::record::{Phase, Run, Status};
use kvzone_core::workload;

use crate::counters::ticks;
use crate::device_reads::counting_group;
use crate::limits::{Hierarchy, MemoryGroup};
use crate::place::Disk;
use crate::run::Stage;

/// How much longer a stage without operations may keep a process busy.
const BUSY_FACTOR: u32 = 30;

/// SIGKILL.
const KILL: i32 = 9;

/// Tells the C library's allocator, which all stores share, to have one arena for all
/// threads: what others keep for later would count against the store that freed it.
pub(crate) const ONE_ARENA: (&str, &str) = ("MALLOC_ARENA_MAX", "1");

/// How often a silent worker is looked at.
const GLANCE: Duration = Duration::from_millis(200);

/// Between two looks it is we who stood still: the machine slept, or we were stopped. The
/// worker is not to blame for that time.
const OURS: Duration = Duration::from_secs(2);

/// Bytes kept of what a worker printed.
const LAST_WORDS_BYTES: usize = 4096;

#[derive(Debug)]
pub(crate) struct Outcome {
    /// A run for each phase that ended, and one for what did not.
    pub(crate) runs: Vec<Run>,
    pub(crate) notes: Vec<String>,
    /// The worker was ended because somebody wanted the end.
    pub(crate) stopped: bool,
    /// It ended itself while it wrote, as its job said.
    pub(crate) killed: bool,
}

/// Runs one job in a process of its own. An error is one of KVZone's: the
/// worker could not be started. It has stood still for too long when there is no sign of
/// life for `patience`.
pub(crate) fn supervise(job: &Job, patience: Duration, watcher: &mut Stage) -> Result<Outcome> {
    let mut job = job.clone();
    let mut notes = Vec::new();
    let group = memory_group(&mut job, &mut notes);
    let mut worker = Worker::start(job.memory_limit_bytes.is_some())?;
    if let Some(limited) = &group {
        if let Err(reason) = limited.group.admit(worker.child.id()) {
            unlimited(&mut job, &mut notes, &reason);
        }
    }
    let counted = counting_group(&Disk::of(&job.folder));
    if let Some(counted) = &counted {
        // A worker that is not in it counts nothing, and says so.
        let _ = counted.admit(worker.child.id());
    }
    worker.hand_over(&job)?;
    let mut story = Story::new(&job);
    let ending = worker.watch(&mut story, patience, watcher);
    let (status, last_words) = worker.end(matches!(ending, Ending::Stopped));
    drop(counted);
    let usage = group.as_ref().map(MemoryGroup::usage).unwrap_or_default();
    let killed_for_memory = usage.killed > 0;
    let stopped = matches!(ending, Ending::Stopped);
    let by_kill = status.is_some_and(|status| status.signal() == Some(KILL));
    let killed = story.kills && by_kill && !killed_for_memory && matches!(ending, Ending::Gone);
    match ending {
        Ending::Gone if killed => {}
        // Phases that ended before are whole, and stay.
        Ending::Done | Ending::Stopped => {}
        Ending::Failed(status, error) => story.broken(status, error),
        Ending::Gone => story.broken(
            Status::Crashed,
            crash_reason(status, &last_words, killed_for_memory, &job),
        ),
        Ending::Hung(reason) => story.broken(Status::Hung, reason),
    }
    if let Some(variant) = &job.variant {
        for run in &mut story.runs {
            run.tell("variant", variant);
        }
    }
    if let Some(peak) = usage.peak_bytes {
        for run in &mut story.runs {
            run.tell("memory_group_peak_bytes", peak);
        }
    }
    notes.append(&mut story.notes);
    Ok(Outcome {
        runs: story.runs,
        notes,
        stopped,
        killed,
    })
}

/// The group that the job's limit asks for, if it can be had; otherwise the
/// job is marked unlimited.
fn memory_group(job: &mut Job, notes: &mut Vec<String>) -> Option<MemoryGroup> {
    let bytes = job.memory_limit_bytes?;
    match Hierarchy::detect().and_then(|found| MemoryGroup::create(&found, bytes)) {
        Ok(group) => Some(group),
        Err(reason) => {
            unlimited(job, notes, &reason);
            None
        }
    }
}

fn unlimited(job: &mut Job, notes: &mut Vec<String>, reason: &str) {
    job.memory_limit_bytes = None;
    notes.push(format!(
        "memory is NOT limited, the runs are marked so: {reason}"
    ));
}

fn crash_reason(status: Option<ExitStatus>, last_words: &str, memory: bool, job: &Job) -> String {
    let mut reason = match status.map(|status| (status.signal(), status.code())) {
        Some((Some(signal), _)) => format!("its process was ended by {}", signal_name(signal)),
        Some((_, Some(code))) => format!("its process ended with exit status {code}"),
        _ => "its process went away".to_string(),
    };
    if let (true, Some(bytes)) = (memory, job.memory_limit_bytes) {
        let limit = kvzone_core::size::display(bytes);
        reason += &format!(": it needed more than the memory limit of {limit}");
    }
    if !last_words.is_empty() {
        reason += &format!("; its last words: {last_words}");
    }
    reason
}

fn signal_name(number: i32) -> String {
    let name = match number {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        _ => return format!("signal {number}"),
    };
    format!("{name} (signal {number})")
}

/// How a worker's events ended.
enum Ending {
    Done,
    Failed(Status, String),
    Gone,
    Hung(String),
    Stopped,
}

#[derive(Default)]
struct Story {
    job: Job,
    version: Option<String>,
    settings: std::collections::BTreeMap<String, String>,
    stage: String,
    counted: bool,
    operations: u64,
    /// It is about to end itself.
    kills: bool,
    runs: Vec<Run>,
    notes: Vec<String>,
}

impl Story {
    fn new(job: &Job) -> Story {
        Story {
            job: job.clone(),
            stage: "start".to_string(),
            ..Story::default()
        }
    }

    /// Takes an event; answers how it ended if it was the last.
    fn take(&mut self, event: Event) -> Option<Ending> {
        match event {
            Event::Started { version, settings } => {
                self.version = version;
                self.settings = settings;
            }
            Event::Stage { stage, counted } => {
                self.stage = stage;
                self.counted = counted;
                self.operations = 0;
            }
            Event::Kills => self.kills = true,
            Event::Progress { operations } => self.operations = operations,
            Event::Finished { run } => self.runs.push(*run),
            Event::Note { text } => self.notes.push(format!("{}: {text}", self.job.store)),
            Event::Failed { status, error } => return Some(Ending::Failed(status, error)),
            Event::Done => return Some(Ending::Done),
        }
        None
    }

    /// Adds a run without figures for the phase that did not end. A phase
    /// that already told of its own failure is not told twice.
    fn broken(&mut self, status: Status, error: String) {
        if self.runs.last().is_some_and(|run| run.status != Status::Ok) {
            return;
        }
        let measured = workload::find(&self.job.load.workload)
            .map_or(Phase::Run, |workload| workload.measured_phase());
        let mut phases = Phase::ALL.into_iter();
        let phase = match self.stage.as_str() {
            LAST_WRITES => Phase::Reopen,
            stage => phases.find(|it| it.name() == stage).unwrap_or(measured),
        };
        let during = match status {
            Status::Crashed | Status::Hung => format!(" (during {})", self.stage),
            _ => String::new(),
        };
        // A phase with figures is not reported twice: its figures stay, and
        // its status tells that the store did not live through it.
        let told = self.runs.iter_mut().find(|run| run.phase == phase);
        let error = Some(error + &during);
        if let Some(run) = told {
            run.status = status;
            run.error = error;
            return;
        }
        self.runs.push(Run {
            version: self.version.clone(),
            settings: self.settings.clone(),
            status,
            error,
            ..Run::blank(&self.job, phase)
        });
    }
}

struct Worker {
    child: Child,
    events: Receiver<String>,
    last_words: Option<thread::JoinHandle<String>>,
}

impl Worker {
    fn start(is_memory_limited: bool) -> Result<Worker> {
        let program = std::env::current_exe()
            .map_err(|error| Error::machine("find", "kvzone's own program", error))?;
        let mut child = Command::new(&program)
            .arg("worker")
            // A Ctrl-C is for us, who end it in order.
            .process_group(0)
            .envs(is_memory_limited.then_some(ONE_ARENA))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Error::machine("start", &program, error))?;
        let (sender, events) = channel();
        if let Some(out) = child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(|line| line.ok()) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        let last_words = child
            .stderr
            .take()
            .map(|words| thread::spawn(move || last_words_of(words)));
        Ok(Worker {
            child,
            events,
            last_words,
        })
    }

    /// Writes the job, and ends the worker's standard input.
    fn hand_over(&mut self, job: &Job) -> Result<()> {
        let text = serde_json::to_string(job)
            .map_err(|error| Error::Usage(format!("a job that is no JSON: {error}")))?;
        if let Some(mut input) = self.child.stdin.take() {
            // A worker that is gone already is noticed where it is watched.
            let _ = input.write_all(text.as_bytes());
        }
        Ok(())
    }

    fn watch(&mut self, story: &mut Story, patience: Duration, watcher: &mut Stage) -> Ending {
        let mut life = Life::new(self.child.id());
        loop {
            match self.events.recv_timeout(GLANCE) {
                Ok(line) => match Event::parse(&line) {
                    Ok(event) => {
                        if let Some(ending) = story.take(event) {
                            return ending;
                        }
                        watcher.progress(&story.stage, story.operations);
                    }
                    Err(error) => return Ending::Failed(Status::Failed, error.to_string()),
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ending::Gone,
            }
            if watcher.is_stopped() {
                return Ending::Stopped;
            }
            if let Some(reason) = life.judge(story, patience) {
                return Ending::Hung(reason);
            }
        }
    }

    /// Ends the process if it has not ended, and answers how, with what it
    /// printed last.
    fn end(mut self, at_once: bool) -> (Option<ExitStatus>, String) {
        // A worker that closed its output is about to go; one that hangs is
        // not, and one that told its last word may take its time.
        let grace = Duration::from_secs(if at_once { 0 } else { 2 });
        let patience = Instant::now() + grace;
        let mut status = self.child.try_wait().ok().flatten();
        while status.is_none() && Instant::now() < patience {
            thread::sleep(Duration::from_millis(5));
            status = self.child.try_wait().ok().flatten();
        }
        if status.is_none() {
            let _ = self.child.kill();
            status = self.child.wait().ok();
        }
        let words = self.last_words.take().and_then(|thread| thread.join().ok());
        (status, words.unwrap_or_default())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last few lines of a stream, as one.
fn last_words_of(mut stream: impl Read) -> String {
    let mut kept: Vec<u8> = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..count]);
        let surplus = kept.len().saturating_sub(LAST_WORDS_BYTES);
        kept.drain(..surplus);
    }
    let text = String::from_utf8_lossy(&kept);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    lines[lines.len().saturating_sub(3)..].join(" / ")
}

/// When a worker last showed that it lives, and that it gets on.
struct Life {
    process: u32,
    looked: Instant,
    stage: String,
    operations: u64,
    got_on: Instant,
    effort: u64,
    lived: Instant,
}

impl Life {
    fn new(process: u32) -> Life {
        let now = Instant::now();
        Life {
            process,
            looked: now,
            stage: String::new(),
            operations: 0,
            got_on: now,
            effort: 0,
            lived: now,
        }
    }

    /// The reason, if it hangs.
    fn judge(&mut self, story: &Story, patience: Duration) -> Option<String> {
        let now = Instant::now();
        let slept = now - std::mem::replace(&mut self.looked, now);
        if slept > OURS {
            self.got_on += slept;
            self.lived += slept;
        }
        if (&self.stage, self.operations) != (&story.stage, story.operations) {
            self.stage.clone_from(&story.stage);
            self.operations = story.operations;
            self.got_on = now;
            self.lived = now;
            return None;
        }
        let still = now - self.got_on;
        if story.counted {
            let hangs = still >= patience;
            return hangs.then(|| format!("no operation ended for {} s", still.as_secs()));
        }
        let effort = effort_of(self.process);
        if effort != self.effort {
            self.effort = effort;
            self.lived = now;
        }
        if now - self.lived >= patience {
            let idle = (now - self.lived).as_secs();
            return Some(format!("no sign of life for {idle} s"));
        }
        let hangs = still >= patience * BUSY_FACTOR;
        hangs.then(|| format!("busy without an end for {} s", still.as_secs()))
    }
}

/// Processor time and bytes moved by a process, as one number that only grows
/// while it does something.
fn effort_of(process: u32) -> u64 {
    let read =
        |name: &str| fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default();
    let io = read("io");
    let bytes = io.lines().filter_map(|line| line.split_once(": "));
    let bytes = bytes.filter_map(|(_, number)| number.trim().parse::<u64>().ok());
    let ticks = ticks(&read("stat")).into_iter();
    ticks.chain(bytes).fold(0, u64::wrapping_add)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn story() -> Story {
        let job = Job::new("memory", "", kvzone_core::job::Load::default());
        Story {
            counted: true,
            ..Story::new(&job)
        }
    }

    #[test]
    fn a_worker_hangs_for_the_time_in_which_we_looked_and_no_other() {
        let patience = Duration::from_secs(1);
        let (story, long) = (story(), Duration::from_secs(3));
        let mut life = Life::new(std::process::id());
        life.stage.clone_from(&story.stage);
        life.got_on -= long;
        life.looked -= long;
        assert_eq!(life.judge(&story, patience), None, "the machine slept");
        life.got_on -= long;
        let hangs = life.judge(&story, patience).unwrap();
        assert!(hangs.contains("no operation ended for 3 s"), "{hangs}");
    }

    #[test]
    fn last_words_are_the_last_three_lines() {
        let long = "x".repeat(10_000) + "\na\n\nb\nc  \n";
        assert_eq!(last_words_of(long.as_bytes()), "a / b / c");
        assert_eq!(last_words_of(&b""[..]), "");
    }

    #[test]
    fn work_of_a_process_is_seen_from_outside() {
        let before = effort_of(std::process::id());
        assert!(before > 0);
        let mut sum = 0_u64;
        while effort_of(std::process::id()) == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert_eq!(effort_of(u32::MAX), 0, "a process that is none");
    }
}
