//! One phase: its threads begun together, watched, and their results put
//! together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};

use super::clock::Clock;
use super::issuer::{Issue, Issued, Issuer, Schedule};
use super::plan::Plan;
use super::recorder::{Recorder, merge};
use super::result::PhaseResult;
use super::stream::{SCAN_ENTRIES, Stream, StreamPlan};
use super::witness::{Expectation, Witness};
use crate::adapter::{Adapter, OpenStore};
use crate::error::{Error, Result};
use crate::job::{Load, Until};
use crate::random::mix_two;
use crate::record::Phase;
use crate::workload::OperationKind;

/// How often the caller hears how far the phase is.
const PROGRESS: Duration = Duration::from_millis(100);

/// What a phase issues.
pub struct Work<'a> {
    /// Load or run.
    pub phase: Phase,
    /// Whose operations.
    pub adapter: &'a dyn Adapter,
    /// Whether the store, as it is open, keeps key order.
    pub ordered: bool,
    /// As the job says.
    pub load: &'a Load,
    /// Worked out.
    pub plan: &'a Plan,
}

/// A counter on a cache line of its own: each thread writes one, often.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Work<'_> {
    fn mix(&self) -> &'static [(OperationKind, u32)] {
        match self.phase {
            Phase::Load => &[],
            _ => self.plan.workload.mix,
        }
    }

    fn kinds(&self) -> Vec<OperationKind> {
        match self.mix() {
            [] => vec![OperationKind::Insert],
            mix => mix.iter().map(|&(kind, _)| kind).collect(),
        }
    }

    fn measured(&self) -> bool {
        self.phase == self.plan.workload.measured_phase()
    }

    fn operations(&self) -> Option<u64> {
        match (self.phase, self.load.until) {
            (Phase::Load, _) => Some(self.load.keys),
            (_, Until::Operations(count)) => Some(count),
            (_, Until::Seconds(_)) => None,
        }
    }

    /// Nanoseconds after which the phase ends.
    fn deadline(&self) -> u64 {
        match self.load.until {
            Until::Seconds(seconds) if self.measured() => (seconds * 1e9) as u64,
            _ => u64::MAX,
        }
    }

    fn batch(&self) -> u32 {
        match self.phase {
            Phase::Load => self.plan.load_batch,
            _ => self.plan.run_batch,
        }
    }

    fn rate(&self) -> Option<f64> {
        self.load.rate.filter(|_| self.measured())
    }

    /// Whether what reads return depends on the job alone: see [`super`].
    fn hashes(&self) -> bool {
        let reads = self.mix().iter().any(|(kind, _)| kind.reads());
        let alone = self.load.threads == 1 || self.plan.workload.only_reads();
        reads && alone && self.operations().is_some() && self.adapter.keeps_data()
    }

    fn stream(&self, thread: u64) -> Stream<'_> {
        let plan = StreamPlan {
            keys: &self.plan.keys,
            mix: self.mix(),
            popularity: self.plan.popularity,
            seed: self.load.seed,
            threads: u64::from(self.load.threads),
            operations: self.operations(),
            span: if self.ordered { SCAN_ENTRIES } else { 1 },
        };
        Stream::new(plan, self.phase as u64, thread)
    }

    fn witness(&self) -> Witness<'_> {
        Witness::new(Expectation {
            store: self.adapter.name(),
            keys: &self.plan.keys,
            values: &self.plan.values,
            versions: &self.plan.versions,
            verify_every: if self.adapter.keeps_data() {
                self.load.verify_every
            } else {
                0
            },
            hashes: self.hashes(),
        })
    }

    fn schedule(&self, thread: u64) -> Option<Schedule> {
        self.rate().map(|rate| Schedule {
            first: thread as f64 * 1e9 / rate,
            interval: f64::from(self.load.threads) * 1e9 / rate,
        })
    }

    /// Issues the phase's operations; `progress` hears how many there were.
    /// What fails after the threads have begun is in the result.
    pub fn run(&self, store: &Arc<dyn OpenStore>, progress: &dyn Fn(u64)) -> Result<PhaseResult> {
        let stop = AtomicBool::new(false);
        let counters: Vec<Counter> = (0..self.load.threads).map(|_| Counter::default()).collect();
        let mut issuers = Vec::new();
        for (thread, counter) in counters.iter().enumerate() {
            let thread = thread as u64;
            let issue = Issue {
                deadline: self.deadline(),
                schedule: self.schedule(thread),
                batch: self.batch() as usize,
                key_bytes: self.load.key_bytes.largest(),
                values: &self.plan.values,
                versions: &self.plan.versions,
                stop: &stop,
                progress: &counter.0,
            };
            let recorder = Recorder::new(&self.kinds(), self.rate().is_some())?;
            let session = store.clone().session()?;
            let (stream, witness) = (self.stream(thread), self.witness());
            issuers.push(Issuer::new(issue, session, stream, witness, recorder));
        }
        let sum = || counters.iter().map(|c| c.0.load(Ordering::Relaxed)).sum();
        let issued = begin_together(issuers, &stop, &|| progress(sum()));
        self.result(issued)
    }

    fn result(&self, issued: Vec<Option<Issued>>) -> Result<PhaseResult> {
        let mut failure = None;
        let (mut hash, mut verified, mut overdue, mut ended) = (0, 0, 0, 0);
        let (mut bytes_written, mut bytes_read) = (0, 0);
        let (mut live_user_bytes, mut live_keys) = self.plan.live();
        let mut recorders = Vec::new();
        for thread in issued {
            let Some(thread) = thread else {
                let words = "a thread of the load generator panicked inside a call";
                failure.get_or_insert(Error::store(self.adapter.name(), "session", words));
                continue;
            };
            hash = mix_two(hash, thread.hash);
            verified += thread.verified;
            overdue += thread.overdue;
            ended = ended.max(thread.ended);
            bytes_written += thread.bytes_written;
            bytes_read += thread.bytes_read;
            live_user_bytes += thread.inserted_bytes;
            live_keys += thread.inserted;
            recorders.push(thread.recorder);
            failure = failure.or(thread.failure);
        }
        let merged = merge(recorders)?;
        let mut extra = BTreeMap::new();
        extra.insert("batch".to_string(), json!(self.batch()));
        self.explain(&mut extra, verified, overdue);
        for (kind, calls) in &merged.calls {
            extra.insert(format!("calls_{}", kind.name()), json!(calls));
        }
        for (kind, latency) in &merged.by_kind {
            extra.insert(format!("latency_ns_{}", kind.name()), json!(latency));
        }
        Ok(PhaseResult {
            phase: self.phase,
            operations: merged.operations,
            seconds: ended as f64 / 1e9,
            user_bytes_written: bytes_written,
            user_bytes_read: bytes_read,
            live_user_bytes,
            live_keys,
            latency: merged.latency,
            native_latency: merged.native_latency,
            result_hash: (self.hashes() && failure.is_none()).then(|| format!("{hash:016x}")),
            timeline: merged.timeline,
            extra,
            failure,
        })
    }

    fn explain(&self, extra: &mut BTreeMap<String, Value>, verified: u64, overdue: u64) {
        if self.mix().iter().any(|(kind, _)| kind.reads()) {
            extra.insert("reads_verified".to_string(), json!(verified));
        }
        if self.rate().is_some() {
            extra.insert("operations_overdue".to_string(), json!(overdue));
        }
        if !self.mix().is_empty() {
            extra.insert("popularity".to_string(), json!(self.plan.popularity));
        }
        if self
            .mix()
            .iter()
            .any(|(kind, _)| *kind == OperationKind::ReadInOrder)
        {
            let access = if self.ordered { "scan" } else { "get" };
            extra.insert("access".to_string(), json!(access));
        }
    }
}

/// Runs each issuer in a thread; a thread that panicked gives none.
fn begin_together(
    issuers: Vec<Issuer<'_>>,
    stop: &AtomicBool,
    progress: &dyn Fn(),
) -> Vec<Option<Issued>> {
    let barrier = Barrier::new(issuers.len());
    let clock = OnceLock::new();
    let (sender, ended) = channel::<()>();
    std::thread::scope(|scope| {
        let handles: Vec<_> = issuers
            .into_iter()
            .map(|issuer| {
                let guard = Guard {
                    stop,
                    _sender: sender.clone(),
                };
                let (barrier, clock) = (&barrier, &clock);
                scope.spawn(move || {
                    let _guard = guard;
                    barrier.wait();
                    issuer.run(*clock.get_or_init(Clock::start))
                })
            })
            .collect();
        drop(sender);
        while ended.recv_timeout(PROGRESS) == Err(RecvTimeoutError::Timeout) {
            progress();
        }
        progress();
        handles
            .into_iter()
            .map(|handle| handle.join().ok())
            .collect()
    })
}

/// Ends the wait of the thread that watches, and where its thread panics, the
/// others.
struct Guard<'a> {
    stop: &'a AtomicBool,
    _sender: Sender<()>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}
