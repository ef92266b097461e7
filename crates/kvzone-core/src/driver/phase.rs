//! One phase: its threads begun together, watched, and their results put
//! together.

mod beside;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};

use super::block::Block;
use super::clock::Clock;
use super::governor::Governor;
use super::issuer::{Issue, Issued, Issuer, Schedule};
use super::plan::Plan;
use super::recorder::Recorder;
use super::result::{PhaseResult, Together};
use super::stream::{SCAN_ENTRIES, Stream, StreamPlan};
use super::witness::{Expectation, Witness};
use super::workers::{WORKERS, Workers};
use crate::adapter::{Adapter, OpenStore};
use crate::error::{Error, Result};
use crate::job::{Load, SizeChoice, Until};
use crate::random::mix_two;
use crate::record::Phase;
use crate::workload::{Mix, OperationKind};

/// How often the caller hears how far the phase is.
const PROGRESS: Duration = Duration::from_millis(100);

/// Purpose of the seed: sizes of batches.
const BATCHES: u64 = 0x6261_7463;

/// Purpose of the seed: distances between operations.
const ARRIVALS: u64 = 0x6172_7276;

/// Operations that are drawn again at once.
const REDRAWN: u64 = 256;

pub struct Work<'a> {
    pub phase: Phase,
    pub adapter: &'a dyn Adapter,
    /// Whether the store, as it is open, keeps key order.
    pub ordered: bool,
    pub load: &'a Load,
    pub plan: &'a Plan,
}

/// What a thread does that has one kind of operation alone.
struct OwnKind<'a> {
    mix: &'a [(OperationKind, u32)],
    /// Among the threads of its kind.
    place: u64,
    threads: u64,
    /// Of all operations.
    share: f64,
}

impl OwnKind<'_> {
    /// The thread's part of so many operations of all kinds.
    fn operations(&self, all: u64) -> u64 {
        let own = (all as f64 * self.share).round() as u64;
        own / self.threads + u64::from(self.place < own % self.threads)
    }
}

/// A counter on a cache line of its own: each thread writes one, often.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(super) struct Counter(pub(super) AtomicU64);

impl Work<'_> {
    fn mix(&self) -> &[(OperationKind, u32)] {
        match self.phase {
            Phase::Load => &[],
            _ => &self.plan.mix,
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

    fn batch(&self) -> SizeChoice {
        match self.phase {
            Phase::Load => self.plan.load_batch,
            _ => self.plan.run_batch,
        }
    }

    /// Nanoseconds that an open loop may be behind.
    fn give_up(&self) -> u64 {
        let seconds = self.load.give_up.filter(|_| self.measured());
        seconds.map_or(u64::MAX, |seconds| (seconds * 1e9) as u64)
    }

    /// Requests that each thread has in flight; 0 where it waits for each.
    fn in_flight(&self) -> u32 {
        self.load.queue.filter(|_| self.measured()).unwrap_or(0)
    }

    /// The threads that call the store for requests in flight; none where it takes requests
    /// itself.
    fn workers(&self, store: &Arc<dyn OpenStore>) -> Result<Option<Workers>> {
        let count = self.load.workers;
        if self.in_flight() == 0 || count.is_none() && store.clone().queue()?.is_some() {
            return Ok(None);
        }
        Workers::new(store, self.adapter.name(), count.unwrap_or(WORKERS)).map(Some)
    }

    fn rate(&self) -> Option<f64> {
        self.load.rate.filter(|_| self.measured())
    }

    /// Whether what reads return depends on the job alone: see [`super`].
    fn hashes(&self) -> bool {
        let alone =
            self.load.beside.is_none() && (self.load.threads == 1 || !self.plan.mix.writes());
        let whole = self.load.latency_target.is_none();
        self.mix().reads()
            && alone
            && whole
            && self.operations().is_some()
            && self.adapter.keeps_data()
    }

    /// The kind of a thread that has one alone, how many such threads there are
    /// before it and in all, and the kind's share of the mix.
    fn own_kind(&self, thread: u64) -> Option<OwnKind<'_>> {
        let kinds = self.load.kind_threads.as_ref()?;
        let mix = Some(self.mix()).filter(|mix| !mix.is_empty())?;
        let mut first = 0;
        for one in kinds {
            let threads = u64::from(one.1);
            if thread < first + threads {
                let all: u32 = mix.iter().map(|of| of.1).sum();
                let of_kind = mix.iter().filter(|(kind, _)| *kind == one.0);
                let own: u32 = of_kind.map(|of| of.1).sum();
                return Some(OwnKind {
                    mix: std::slice::from_ref(one),
                    place: thread - first,
                    threads,
                    share: f64::from(own) / f64::from(all.max(1)),
                });
            }
            first += threads;
        }
        None
    }

    fn stream(&self, thread: u64) -> Stream<'_> {
        let own = self.own_kind(thread);
        let threads = u64::from(self.load.threads);
        let plan = StreamPlan {
            keys: &self.plan.keys,
            mix: own.as_ref().map_or(self.mix(), |own| own.mix),
            popularity: self.plan.popularity,
            seed: self.load.seed,
            threads,
            operations: match (&own, self.operations()) {
                // A stream takes its share of what all threads do.
                (Some(own), Some(all)) => Some(own.operations(all) * threads),
                (_, operations) => operations,
            },
            span: if self.ordered { SCAN_ENTRIES } else { 1 },
            scans: self.plan.scans,
            missing: self.plan.missing,
            lifetime: self.load.lifetime,
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
            alone: self.load.beside.is_none() && !self.plan.mix.writes(),
        })
    }

    fn schedule(&self, thread: u64) -> Option<Schedule> {
        let (place, threads, share) = match self.own_kind(thread) {
            Some(own) => (own.place, own.threads, own.share),
            None => (thread, u64::from(self.load.threads), 1.0),
        };
        self.rate().map(|rate| Schedule {
            first: place as f64 * 1e9 / (rate * share),
            interval: threads as f64 * 1e9 / (rate * share),
            poisson: self
                .load
                .poisson
                .then(|| mix_two(mix_two(self.load.seed, ARRIVALS), thread)),
        })
    }

    /// Issues the phase's operations; `progress` hears how many there were.
    /// What fails after the threads have begun is in the result.
    pub fn run(&self, store: &Arc<dyn OpenStore>, progress: &dyn Fn(u64)) -> Result<PhaseResult> {
        let signals = Signals::default();
        let target = self.load.latency_target.filter(|_| self.measured());
        // Of a phase that ends by operations nobody knows how long it takes.
        let length = Some(self.deadline()).filter(|&deadline| deadline < u64::MAX);
        let looks = length.map(|nanoseconds| nanoseconds / PROGRESS.as_nanos() as u64);
        let governor = target.map(|target| Governor::new(target, self.load.threads, looks));
        let counters: Vec<Counter> = (0..self.load.threads).map(|_| Counter::default()).collect();
        let workers = self.workers(store)?;
        let mut issuers = Vec::new();
        for (thread, counter) in counters.iter().enumerate() {
            let thread = thread as u64;
            let issue = Issue {
                schedule: self.schedule(thread),
                governor: governor.as_ref(),
                batch: if self.mix().is_empty() || self.mix().writes() {
                    self.batch()
                } else {
                    SizeChoice::Fixed(1)
                },
                in_flight: self.in_flight() as usize,
                ..self.issue(&signals, &counter.0, mix_two(self.phase as u64, thread))
            };
            let in_parts = self.rate().is_some() || target.is_some() || self.in_flight() > 0;
            let recorder = Recorder::new(&self.kinds(), in_parts)?;
            let session = store.clone().session()?;
            let (stream, witness) = (self.stream(thread), self.witness());
            let issuer = Issuer::new(issue, session, stream, witness, recorder);
            let queue = match &workers {
                Some(workers) => Some(workers.queue()),
                None if self.in_flight() > 0 => store.clone().queue()?,
                None => None,
            };
            issuers.push(issuer.through(queue));
        }
        let unwatched = Counter::default();
        let accompanying = self.beside(store, &signals, &unwatched.0)?;
        let sum = || counters.iter().map(|c| c.0.load(Ordering::Relaxed)).sum();
        let look = || {
            progress(sum());
            if let Some(governor) = &governor {
                governor.look(&signals.stop);
            }
        };
        let count = workers.as_ref().map_or(0, Workers::count);
        let (issued, accompanied) = std::thread::scope(|scope| {
            if let Some(workers) = workers {
                workers.begin(scope);
            }
            begin_together(issuers, accompanying, &signals, &look)
        });
        let mut result = self.result(issued)?;
        if self.in_flight() > 0 {
            result.tell("in_flight", self.in_flight());
            result.tell("workers", count);
        }
        if self.give_up() < u64::MAX && self.rate().is_some() {
            result.tell("rate_given_up", signals.given_up.load(Ordering::Relaxed));
        }
        if let Some(governor) = &governor {
            result.tell("latency_target", governor.to_json());
        }
        if let Some(beside) = self.accompanied() {
            beside::add(&mut result, self.adapter.name(), beside, accompanied)?;
        }
        Ok(result)
    }

    /// The same while the store is compacted; the time is that of the longer one.
    pub fn run_compacting(
        &self,
        store: &Arc<dyn OpenStore>,
        progress: &dyn Fn(u64),
    ) -> Result<PhaseResult> {
        let clock = Clock::start();
        std::thread::scope(|scope| {
            let compaction = scope.spawn(|| (store.compact(), clock.seconds()));
            let mut result = self.run(store, progress)?;
            let panicked = |_| {
                let words = "a compaction panicked";
                (
                    Err(Error::store(self.adapter.name(), "compact", words)),
                    0.0,
                )
            };
            let (compacted, seconds) = compaction.join().unwrap_or_else(panicked);
            result.seconds = result.seconds.max(seconds);
            result.failure = result.failure.take().or(compacted.err());
            Ok(result)
        })
    }

    /// What all threads of the phase have alike.
    fn issue<'b>(
        &'b self,
        signals: &'b Signals,
        progress: &'b AtomicU64,
        purpose: u64,
    ) -> Issue<'b> {
        Issue {
            deadline: self.deadline(),
            schedule: None,
            give_up: self.give_up(),
            given_up: &signals.given_up,
            governor: None,
            batch: SizeChoice::Fixed(1),
            in_flight: 0,
            batch_seed: mix_two(mix_two(self.load.seed, BATCHES), purpose),
            key_bytes: self.plan.keys.longest_bytes(),
            values: &self.plan.values,
            versions: &self.plan.versions,
            stop: &signals.stop,
            enough: None,
            progress,
        }
    }

    fn result(&self, issued: Vec<Option<Issued>>) -> Result<PhaseResult> {
        let mut found = Together::of(self.phase, self.adapter.name(), issued)?;
        let mut result = std::mem::take(&mut found.result);
        let (live_user_bytes, live_keys) = self.plan.live();
        result.live_user_bytes = live_user_bytes + found.inserted.1;
        result.live_keys = live_keys + found.inserted.0;
        let hashes = self.hashes() && result.failure.is_none();
        result.result_hash = hashes.then(|| format!("{:016x}", found.hash));
        result.tell("batch", batch_text(self.batch()));
        self.explain(&mut result, &found);
        Ok(result)
    }

    /// Keys inserted after the load, each with whether it is there still, where each
    /// thread issued so many operations: they are drawn again.
    pub(super) fn inserted_after_load(&self, issued: &[u64]) -> Result<BTreeMap<u64, bool>> {
        let mut found = BTreeMap::new();
        let loaded = self.plan.keys.loaded();
        if !self.kinds().contains(&OperationKind::Insert) || self.mix().is_empty() {
            return Ok(found);
        }
        let mut block = Block::default();
        for (thread, &count) in issued.iter().enumerate() {
            let mut stream = self.stream(thread as u64);
            let mut left = count;
            while left > 0 {
                stream.draw(&mut block, left.min(REDRAWN) as usize)?;
                for operation in &block.operations {
                    if operation.number >= loaded && operation.kind.writes() {
                        let is_there = operation.kind != OperationKind::Delete;
                        found.insert(operation.number, is_there);
                    }
                }
                // A thread has no more than it was given.
                left = left.saturating_sub((block.operations.len() as u64).max(1));
            }
        }
        Ok(found)
    }

    fn explain(&self, result: &mut PhaseResult, found: &Together) {
        let mix = self.mix();
        if mix.reads() {
            result.tell("reads_verified", found.verified);
        }
        if mix.has(OperationKind::Scan) {
            result.tell("entries_scanned", found.scanned);
        }
        if self.rate().is_some() {
            result.tell("operations_overdue", found.overdue);
        }
        if !mix.is_empty() {
            result.tell("popularity", self.plan.popularity);
        }
        if mix.has(OperationKind::ReadInOrder) {
            result.tell("access", if self.ordered { "scan" } else { "get" });
        }
    }
}

/// A number where all batches have the same size, else both ends.
fn batch_text(batch: SizeChoice) -> Value {
    match batch {
        SizeChoice::Fixed(entries) => json!(entries),
        sizes => json!(format!("{}-{}", sizes.smallest(), sizes.largest())),
    }
}

#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Some thread has failed.
    pub(super) stop: AtomicBool,
    /// The threads that count have ended.
    enough: AtomicBool,
    /// A rate was given up.
    given_up: AtomicBool,
}

pub(super) trait Issues: Send {
    /// From the phase's start to its end.
    fn run(self, clock: Clock) -> Issued;
}

impl Issues for Issuer<'_> {
    fn run(self, clock: Clock) -> Issued {
        Issuer::run(self, clock)
    }
}

type Joined = Vec<Option<Issued>>;

/// Runs each issuer in a thread; a thread that panicked gives none. Those that
/// accompany the others end when these have.
pub(super) fn begin_together<I: Issues>(
    issuers: Vec<I>,
    accompanying: Vec<I>,
    signals: &Signals,
    progress: &dyn Fn(),
) -> (Joined, Joined) {
    let barrier = Barrier::new(issuers.len() + accompanying.len());
    let clock = OnceLock::new();
    let (sender, ended) = channel::<()>();
    std::thread::scope(|scope| {
        let mut handles = Vec::new();
        let counting = issuers.len();
        for (at, issuer) in issuers.into_iter().chain(accompanying).enumerate() {
            let guard = Guard {
                stop: &signals.stop,
                _sender: (at < counting).then(|| sender.clone()),
            };
            let (barrier, clock) = (&barrier, &clock);
            handles.push(scope.spawn(move || {
                let _guard = guard;
                barrier.wait();
                issuer.run(*clock.get_or_init(Clock::start))
            }));
        }
        drop(sender);
        while ended.recv_timeout(PROGRESS) == Err(RecvTimeoutError::Timeout) {
            progress();
        }
        progress();
        signals.enough.store(true, Ordering::Relaxed);
        let mut joined: Joined = handles
            .into_iter()
            .map(|handle| handle.join().ok())
            .collect();
        let accompanied = joined.split_off(counting);
        (joined, accompanied)
    })
}

/// Ends the wait of the thread that watches, and where its thread panics, the
/// others.
struct Guard<'a> {
    stop: &'a AtomicBool,
    _sender: Option<Sender<()>>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}
