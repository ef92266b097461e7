//! Issues a job's operations to a store, and measures them.
//!
//! [`run_job`] opens the store, loads it, runs the workload's mix, and closes
//! it; [`Observer`] says in which order, and lets the caller count between.
//!
//! ```text
//!  Job ─▶ plan ─▶ phase ─▶ issuer ─────▶ Session     one a thread
//!                           ▲ │ │
//!                    stream ┘ │ └▶ witness            what reads returned
//!              (operations)   └──▶ recorder           how long calls took
//! ```
//!
//! **The same operations for every store.** Every random choice comes from the
//! job's seed and the thread's number, never from a clock: in a phase bounded
//! by operations, every store gets the same operations, however fast it is.
//!
//! **Load.** `fill-*` measure it: as many threads, as large batches, and the
//! loop that the job says; it puts each key once, so it ends after as many
//! operations as there are keys, or earlier if time bounds it. Before all other
//! workloads it is a preparation: a closed loop in batches of up to 1,000
//! entries or 1 MiB, then synced and settled.
//!
//! **Compaction.** Where the job asks for it, the store is compacted between load
//! and run, as a phase of one operation.
//!
//! **Steps.** Where the job lists them, they follow the load on the same open store:
//! other workloads, a compaction, a pause, a reopening ([`steps`]).
//!
//! **Kill.** Where the job asks for it, the process is ended while it writes, and
//! another opens the store and looks for all that was acknowledged ([`last_writes`],
//! [`survivors`]).
//!
//! **Results.** Reads are hashed where what they return depends on the job
//! alone: the phase is bounded by operations, and each thread reads only keys
//! that it alone writes, or that nobody does (one thread always; several if the
//! workload only reads). Threads are combined in their order, operations in
//! theirs. All stores must agree. One read in `verify_every` is also compared
//! with what was written; the first that is wrong ends the job.
//!
//! **Cost.** About a hundred nanoseconds an operation beside the store's own
//! time, of which 23 are the clock's; the `null` store shows it.

mod batch;
mod block;
pub mod clock;
mod governor;
mod issuer;
mod last_writes;
mod ledger;
mod lives;
mod observer;
mod phase;
mod plan;
mod recorder;
mod refusals;
mod replay;
mod result;
mod steps;
mod stream;
mod survivors;
mod witness;
mod workers;

use std::sync::Arc;

use cambium_io::Environment;

pub use observer::Observer;
pub use plan::{Plan, open_request};
pub use refusals::mix;
pub use result::PhaseResult;

use self::clock::Clock;
use self::phase::Work;
use self::replay::Replay;
use self::survivors::Survivors;
use crate::adapter::{Adapter, OpenRequest, OpenStore, Session};
use crate::error::{Error, Result};
use crate::job::{After, Job, Load, Step};
use crate::record::Phase;
use crate::workload::Mix;

/// Runs a job in this process, and answers its phases in their order. An
/// error is what kept it from starting, or the observer's; what went wrong
/// with the store later stands in the last phase's [`PhaseResult::failure`].
///
/// The job's folder must be there; the store's own folder inside of it is made.
///
/// ```no_run
/// # fn tell(job: &kvzone_core::job::Job) -> kvzone_core::error::Result<()> {
/// use kvzone_core::calibration::Memory;
/// use kvzone_core::driver::run_job;
///
/// for phase in run_job(&Memory, job, &())? {
///     println!("{:?}: {} operations", phase.phase, phase.operations);
/// }
/// # Ok(()) }
/// ```
pub fn run_job(
    adapter: &dyn Adapter,
    job: &Job,
    observer: &dyn Observer,
) -> Result<Vec<PhaseResult>> {
    let plan = Operations::of(&job.load, &job.steps)?;
    let request = open_request(job);
    check_capabilities(adapter, job, &request, &plan)?;
    make_folder(&request)?;
    let runner = Runner {
        adapter,
        job,
        observer,
        plan,
        request,
    };
    match job.after_kill {
        true => Ok(vec![runner.survivors()?]),
        false => runner.run(),
    }
}

pub fn check(load: &Load, steps: &[Step], reopen: Option<After>) -> Result<()> {
    let plan = Operations::of(load, steps)?;
    if !steps.is_empty() {
        steps::check(plan.drawn()?, steps)?;
    }
    if reopen == Some(After::Kill) {
        plan.drawn()?;
    }
    Ok(())
}

enum Operations<'a> {
    Drawn(Box<Plan>),
    Traced(Replay<'a>),
}

impl<'a> Operations<'a> {
    fn of(load: &'a Load, steps: &[Step]) -> Result<Operations<'a>> {
        Ok(match &load.trace {
            Some(trace) => Operations::Traced(Replay::new(load, trace)?),
            None => Operations::Drawn(Box::new(Plan::before(load, steps)?)),
        })
    }

    /// The plan of a job whose process is killed, or which has steps.
    fn drawn(&self) -> Result<&Plan> {
        match self {
            Operations::Drawn(plan) => Ok(plan),
            Operations::Traced(_) => Err(Error::Usage(
                "a kill, or steps: of a workload that draws its keys, and not of a trace"
                    .to_string(),
            )),
        }
    }

    fn needs_order(&self) -> bool {
        match self {
            Operations::Drawn(plan) => plan.mix.needs_order(),
            Operations::Traced(replay) => replay.needs_order(),
        }
    }

    fn is_load_alone(&self) -> bool {
        match self {
            Operations::Drawn(plan) => plan.workload.mix.is_empty(),
            Operations::Traced(_) => false,
        }
    }

    /// What the store should hold: bytes and entries.
    fn live(&self, phase: Phase) -> (u64, u64) {
        match self {
            Operations::Drawn(plan) => plan.live(),
            Operations::Traced(replay) => {
                let contents = replay.contents(phase);
                (contents.bytes, contents.entries)
            }
        }
    }
}

fn check_capabilities(
    adapter: &dyn Adapter,
    job: &Job,
    request: &OpenRequest,
    plan: &Operations<'_>,
) -> Result<()> {
    let capabilities = adapter.capabilities_for(request);
    let lacks = if job.compact && !capabilities.compacts {
        "a compaction: it has none to ask for".to_string()
    } else if plan.needs_order() && !capabilities.ordered {
        format!("{}: it keeps no key order", job.load.workload)
    } else if !capabilities.durabilities.contains(&job.durability) {
        format!("{} writes", job.durability)
    } else if (job.cold || job.reopen.is_some()) && !capabilities.persistent {
        "a cold run or a reopen: it keeps nothing when it is closed".to_string()
    } else {
        return Ok(());
    };
    Err(Error::unsupported(adapter.name(), lacks))
}

fn make_folder(request: &OpenRequest) -> Result<()> {
    let files = Environment::real().file_system;
    if files.metadata(&request.folder)?.is_none() {
        files.create_directory(&request.folder)?;
    }
    Ok(())
}

/// Reads of a warming pass between two signs of life.
const WARM_REPORT: u64 = 4096;

struct Runner<'a> {
    adapter: &'a dyn Adapter,
    job: &'a Job,
    observer: &'a dyn Observer,
    plan: Operations<'a>,
    request: OpenRequest,
}

impl Runner<'_> {
    fn run(&self) -> Result<Vec<PhaseResult>> {
        let mut phases = Vec::new();
        let (mut store, seconds) = self.open()?;
        let load = self.phase(Phase::Load, &store, seconds)?;
        let mut failed = load.failure.is_some();
        phases.push(load);
        if !self.job.steps.is_empty() && !failed {
            return self.steps(store, phases);
        }
        if self.job.compact && !failed {
            let compacted = self.compact(&store)?;
            failed = compacted.failure.is_some();
            phases.push(compacted);
        }
        if !failed && !self.plan.is_load_alone() {
            let mut seconds = 0.0;
            if self.job.cold {
                self.close(store)?;
                self.observer.store_closed()?;
                (store, seconds) = self.open()?;
            }
            let warmed = match self.job.warm {
                true => Some(self.warm(&store)?),
                false => None,
            };
            let mut run = self.phase(Phase::Run, &store, seconds)?;
            if let Some(seconds) = warmed {
                run.tell("warm_seconds", seconds);
            }
            failed = run.failure.is_some();
            phases.push(run);
        }
        if failed {
            // What a failed store does when it is closed is nobody's business
            // any more, and it might never return.
            return Ok(phases);
        }
        if self.job.reopen == Some(After::Kill) {
            self.write_until_killed(&store, &phases)?;
            return Ok(phases);
        }
        let is_closed = self.close_after(&mut phases, store);
        if is_closed && self.job.reopen.is_some() {
            phases.push(self.reopen()?);
        }
        Ok(phases)
    }

    /// Closes the store: how long that took, or why it failed, is the last phase's. True
    /// if it is closed.
    fn close_after(&self, phases: &mut [PhaseResult], store: Arc<dyn OpenStore>) -> bool {
        let closed = self.close(store);
        if let Some(last) = phases.last_mut() {
            match &closed {
                Ok(seconds) => last.tell("close_seconds", seconds),
                Err(error) => last.failure = Some(error.clone()),
            }
        }
        closed.is_ok()
    }

    /// Reads every loaded key once, in key order; answers how long it took.
    fn warm(&self, store: &Arc<dyn OpenStore>) -> Result<f64> {
        let Operations::Drawn(plan) = &self.plan else {
            let words = "a trace says itself what is read: it is not warmed";
            return Err(Error::Usage(words.to_string()));
        };
        let clock = Clock::start();
        let mut session = store.clone().session()?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for place in 0..plan.keys.loaded() {
            key.clear();
            plan.keys.append(plan.keys.number_at(place), &mut key);
            session.get(&key, &mut value)?;
            if place % WARM_REPORT == 0 {
                self.observer.progress(Phase::Load, place);
            }
        }
        Ok(clock.seconds())
    }

    fn open(&self) -> Result<(Arc<dyn OpenStore>, f64)> {
        let clock = Clock::start();
        let store = self.adapter.open(&self.request)?;
        let seconds = clock.seconds();
        Ok((self.observer.opened(store), seconds))
    }

    fn close(&self, store: Arc<dyn OpenStore>) -> Result<f64> {
        let clock = Clock::start();
        store.close()?;
        Ok(clock.seconds())
    }

    fn phase(
        &self,
        phase: Phase,
        store: &Arc<dyn OpenStore>,
        open_seconds: f64,
    ) -> Result<PhaseResult> {
        self.observer.phase_starts(phase)?;
        let progress = |operations| self.observer.progress(phase, operations);
        let mut result = match (&self.plan, phase) {
            (Operations::Drawn(plan), _) => self
                .work(plan, phase, &self.job.load)
                .run(store, &progress)?,
            (Operations::Traced(replay), Phase::Load) => {
                replay.load(self.adapter, store, &progress)?
            }
            (Operations::Traced(replay), _) => replay.run(self.adapter, store, &progress)?,
        };
        if open_seconds > 0.0 {
            result.tell("open_seconds", open_seconds);
        }
        self.end_phase(store, result)
    }

    /// Waits for what the phase put off, and tells of it.
    fn end_phase(
        &self,
        store: &Arc<dyn OpenStore>,
        mut result: PhaseResult,
    ) -> Result<PhaseResult> {
        self.observer.work_ended(result.phase)?;
        if result.failure.is_none() {
            result.failure = pay_debt(&**store, &mut result).err();
        }
        add_counters(&**store, &mut result);
        self.observer.phase_ended(&result)?;
        Ok(result)
    }

    fn work<'a>(&'a self, plan: &'a Plan, phase: Phase, load: &'a Load) -> Work<'a> {
        Work {
            phase,
            adapter: self.adapter,
            ordered: self.adapter.capabilities_for(&self.request).ordered,
            load,
            plan,
        }
    }

    fn write_until_killed(&self, store: &Arc<dyn OpenStore>, phases: &[PhaseResult]) -> Result<()> {
        let work = self.work(self.plan.drawn()?, Phase::Run, &self.job.load);
        let run = phases.iter().find(|phase| phase.phase == Phase::Run);
        let issued = run.map_or(&[][..], |run| &run.issued);
        last_writes::note_all(&work, issued, &self.job.folder)?;
        let place = (self.job.folder.as_path(), self.job.repeat);
        last_writes::write_until_killed(&work, place, store, self.observer)
    }

    /// Opens the store that was killed, which is timed, and looks at what it kept.
    fn survivors(&self) -> Result<PhaseResult> {
        let plan = self.plan.drawn()?;
        let later = survivors::known(plan, self.job.load.threads, &self.job.folder)?;
        let (mut result, store) = self.opened_again()?;
        let Some(store) = store else {
            self.observer.phase_ended(&result)?;
            return Ok(result);
        };
        let progress = |done| self.observer.progress(Phase::Reopen, done);
        let mut count = |session: &mut dyn Session| {
            let found = Survivors::count(plan, &later, session, &progress)?;
            result.tell("after_kill", &found);
            Ok(found.failure(self.adapter.name(), self.job.durability))
        };
        let session = store.clone().session();
        let counted = session.and_then(|mut session| count(&mut *session));
        result.failure = counted.unwrap_or_else(Some);
        self.observer.phase_ended(&result)?;
        let closed = self.close(store).err();
        result.failure = result.failure.take().or(closed);
        Ok(result)
    }

    fn compact(&self, store: &Arc<dyn OpenStore>) -> Result<PhaseResult> {
        self.observer.phase_starts(Phase::Compact)?;
        let result = self.compacted(&**store);
        self.end_phase(store, result)
    }

    /// The compaction alone, timed.
    fn compacted(&self, store: &dyn OpenStore) -> PhaseResult {
        let clock = Clock::start();
        let failure = store.compact().err();
        PhaseResult {
            failure,
            ..self.one_operation(Phase::Compact, clock.seconds())
        }
    }

    fn one_operation(&self, phase: Phase, seconds: f64) -> PhaseResult {
        let (live_user_bytes, live_keys) = self.plan.live(phase);
        PhaseResult {
            operations: 1,
            seconds,
            live_user_bytes,
            live_keys,
            ..PhaseResult::empty(phase)
        }
    }

    /// Opens the store again: one operation.
    fn reopen(&self) -> Result<PhaseResult> {
        let (mut result, store) = self.opened_again()?;
        self.observer.phase_ended(&result)?;
        if let Some(store) = store {
            result.failure = self.close(store).err();
        }
        Ok(result)
    }

    /// Opens the store, which is timed: what that gave, and the store unless it failed.
    fn opened_again(&self) -> Result<(PhaseResult, Option<Arc<dyn OpenStore>>)> {
        if self.job.cold {
            self.observer.store_closed()?;
        }
        self.observer.phase_starts(Phase::Reopen)?;
        let opened = self.open();
        self.observer.work_ended(Phase::Reopen)?;
        let mut result = self.one_operation(Phase::Reopen, 0.0);
        match opened {
            Ok((store, seconds)) => {
                result.seconds = seconds;
                Ok((result, Some(store)))
            }
            Err(error) => {
                (result.operations, result.failure) = (0, Some(error));
                Ok((result, None))
            }
        }
    }
}

/// Makes what was written durable, and waits for what was put off.
fn pay_debt(store: &dyn OpenStore, result: &mut PhaseResult) -> Result<()> {
    let clock = Clock::start();
    store.sync()?;
    let synced = clock.seconds();
    store.settle()?;
    let settled = clock.seconds() - synced;
    result.tell("sync_seconds", synced);
    result.tell("settle_seconds", settled);
    Ok(())
}

/// Puts the store's own counters beside the figures.
fn add_counters(store: &dyn OpenStore, result: &mut PhaseResult) {
    for (name, value) in store.counters() {
        result.tell(&name, value);
    }
}
