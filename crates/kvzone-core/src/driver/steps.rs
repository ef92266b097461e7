//! Steps: parts of a job that follow the load on the same open store, in order.
//!
//! Each is a phase of its own, told apart by `step` in its `extra`. A capability that the
//! store lacks is told as unsupported, and the next step follows; a failure ends the job. A
//! step that only reads puts nothing off, so no sync and no wait follow it. Answers are
//! compared with the values written, as in any phase; no hash is told, since steps before
//! may have been bounded by time.

use std::sync::Arc;

use super::clock::Clock;
use super::plan::Plan;
use super::result::PhaseResult;
use super::{Runner, add_counters};
use crate::adapter::OpenStore;
use crate::error::{Error, Result};
use crate::job::{Act, Load, Step};
use crate::record::Phase;
use crate::workload::Mix;

/// Nanoseconds between two signs of life of a pause.
const GLANCE: u64 = 100_000_000;

pub(super) fn check(plan: &Plan, steps: &[Step]) -> Result<()> {
    for (place, step) in steps.iter().enumerate() {
        let is_last = place + 1 == steps.len();
        match &step.act {
            Act::Work(load) | Act::Compacting(load) => drop(plan.step(load, is_last)?),
            Act::Idle(seconds) if !(0.0..=86_400.0).contains(seconds) => {
                let words = format!("step {}: {seconds} seconds, from 0 to a day", step.name);
                return Err(Error::Usage(words));
            }
            Act::Idle(_) | Act::Compact | Act::Reopen => {}
        }
    }
    Ok(())
}

impl Runner<'_> {
    pub(super) fn steps(
        &self,
        mut store: Arc<dyn OpenStore>,
        mut phases: Vec<PhaseResult>,
    ) -> Result<Vec<PhaseResult>> {
        let plan = self.plan.drawn()?;
        for step in &self.job.steps {
            let result = match &step.act {
                Act::Work(load) | Act::Compacting(load) => {
                    self.work_step(plan, step, load, &store)?
                }
                Act::Compact => self.compact_step(step, &store)?,
                Act::Idle(seconds) => self.pause(step, *seconds, &store)?,
                Act::Reopen => {
                    let (result, opened) = self.reopen_step(step, store)?;
                    let failed = result.failure.is_some();
                    phases.push(result);
                    match opened {
                        Some(opened) if !failed => store = opened,
                        _ => return Ok(phases),
                    }
                    continue;
                }
            };
            let ended = result.failure.as_ref().is_some_and(|error| !is_lack(error));
            phases.push(result);
            if ended {
                return Ok(phases);
            }
        }
        self.close_after(&mut phases, store);
        // A capability that is lacking was told with its step, and fails no job.
        if let Some(last) = phases.last_mut() {
            last.failure = last.failure.take().filter(|error| !is_lack(error));
        }
        Ok(phases)
    }

    fn work_step(
        &self,
        plan: &Plan,
        step: &Step,
        load: &Load,
        store: &Arc<dyn OpenStore>,
    ) -> Result<PhaseResult> {
        let is_last = self.job.steps.last() == Some(step);
        let plan = plan.step(load, is_last)?;
        self.observer.phase_starts(Phase::Run)?;
        let work = self.work(&plan, Phase::Run, load);
        if plan.mix.needs_order() && !work.ordered {
            return self.tell_lack(Phase::Run, step, "it keeps no key order");
        }
        let progress = |operations| self.observer.progress(Phase::Run, operations);
        let compacts = matches!(step.act, Act::Compacting(_));
        if compacts && !self.adapter.capabilities_for(&self.request).compacts {
            return self.tell_lack(Phase::Run, step, "it has no compaction to ask for");
        }
        let mut result = match compacts {
            true => work.run_compacting(store, &progress)?,
            false => work.run(store, &progress)?,
        };
        result.result_hash = None;
        name(&mut result, step);
        let reads_alone = !plan.mix.writes() && load.beside.is_none() && !compacts;
        if reads_alone || result.failure.is_some() {
            return self.tell(result);
        }
        self.end_phase(store, result)
    }

    fn compact_step(&self, step: &Step, store: &Arc<dyn OpenStore>) -> Result<PhaseResult> {
        self.observer.phase_starts(Phase::Compact)?;
        if !self.adapter.capabilities_for(&self.request).compacts {
            return self.tell_lack(Phase::Compact, step, "it has no compaction to ask for");
        }
        let mut result = self.compacted(&**store);
        name(&mut result, step);
        self.end_phase(store, result)
    }

    fn pause(&self, step: &Step, seconds: f64, store: &Arc<dyn OpenStore>) -> Result<PhaseResult> {
        self.observer.phase_starts(Phase::Idle)?;
        let clock = Clock::start();
        let end = (seconds * 1e9) as u64;
        while clock.now() < end {
            clock.wait_for(end.min(clock.now() + GLANCE), u64::MAX, || false);
            self.observer.progress(Phase::Idle, 0);
        }
        let mut result = self.one_operation(Phase::Idle, clock.seconds());
        name(&mut result, step);
        add_counters(&**store, &mut result);
        self.tell(result)
    }

    fn reopen_step(
        &self,
        step: &Step,
        store: Arc<dyn OpenStore>,
    ) -> Result<(PhaseResult, Option<Arc<dyn OpenStore>>)> {
        self.observer.phase_starts(Phase::Reopen)?;
        let closed = self.close(store);
        let opened = closed.and_then(|closed| {
            if self.job.cold {
                self.observer.store_closed()?;
            }
            Ok((closed, self.open()?))
        });
        let (mut result, store) = match opened {
            Ok((closed, (store, seconds))) => {
                let mut result = self.one_operation(Phase::Reopen, seconds);
                result.tell("close_seconds", closed);
                (result, Some(store))
            }
            Err(error) => {
                let mut result = PhaseResult::empty(Phase::Reopen);
                result.failure = Some(error);
                (result, None)
            }
        };
        name(&mut result, step);
        Ok((self.tell(result)?, store))
    }

    fn tell_lack(&self, phase: Phase, step: &Step, what: &str) -> Result<PhaseResult> {
        let mut result = PhaseResult::empty(phase);
        name(&mut result, step);
        result.failure = Some(Error::unsupported(
            self.adapter.name(),
            format!("{}: {what}", step.name),
        ));
        self.tell(result)
    }

    /// Tells of a phase that put nothing off.
    fn tell(&self, result: PhaseResult) -> Result<PhaseResult> {
        self.observer.work_ended(result.phase)?;
        self.observer.phase_ended(&result)?;
        Ok(result)
    }
}

fn is_lack(error: &Error) -> bool {
    matches!(error, Error::Unsupported { .. })
}

fn name(result: &mut PhaseResult, step: &Step) {
    result.tell("step", &step.name);
}
