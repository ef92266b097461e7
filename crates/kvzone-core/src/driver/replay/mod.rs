//! A trace as a workload: its entries loaded, its operations issued again.
//!
//! ```text
//!  trace ─▶ reader ─▶ steps ─▶ player ─────▶ Session       one a thread
//!                      (ahead)   │ └──▶ recorder
//!                                └────▶ known: what keys should hold
//! ```
//!
//! **Load.** What the trace says was there, in batches of up to 256 entries or 1 MiB,
//! then synced and settled; it is not measured.
//!
//! **Run.** One thread issues the operations in the order of the trace. With more,
//! each operation goes to the thread that its key decides (a batch's first key), so
//! that the order of what happens to a key stays; which threads there were when it
//! was recorded does not matter. Each thread reads the whole trace and leaves out
//! what is others'.
//!
//! **Speed.** As fast as it goes: a closed loop. At a multiple of the recorded
//! speed: an open loop, in which every operation is due at its recorded moment,
//! divided by the speed, and latency counts from there.
//!
//! **Values** are made up, of the recorded sizes. The number of a value is the hash
//! of its key, its version the position of its write in the trace. Of one key in
//! `verify_every` it is known what it should hold, and every read of these is
//! compared. Reads are hashed where the operations alone decide what they answer:
//! with one thread; with more, if there are no batches and scans.

mod player;
mod steps;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use self::player::{Expected, Play, Player};
use self::steps::{Source, Steps};
use super::batch::Batch;
use super::clock::Clock;
use super::issuer::Issued;
use super::phase::{Counter, Signals, begin_together};
use super::recorder::Recorder;
use super::result::{PhaseResult, Together};
use crate::adapter::{Adapter, OpenStore};
use crate::error::{Error, Result};
use crate::job::{Load, Replayed, SizeChoice, Until};
use crate::record::Phase;
use crate::trace::summary::Contents;
use crate::values::{MOST_BYTES, Values};
use crate::workload::OperationKind;

/// A load goes in batches of about so many bytes, or of as many entries as are read
/// ahead.
const LOAD_BATCH_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Replay<'a> {
    load: &'a Load,
    trace: &'a Replayed,
    values: Values,
}

impl<'a> Replay<'a> {
    pub(super) fn new(load: &'a Load, trace: &'a Replayed) -> Result<Replay<'a>> {
        check(load, trace)?;
        let sizes = SizeChoice::Fixed(trace.summary.largest_value);
        let sized = Load {
            value_bytes: sizes,
            ..load.clone()
        };
        Ok(Replay {
            load,
            trace,
            values: Values::new(&sized)?,
        })
    }

    pub(super) fn needs_order(&self) -> bool {
        self.trace.summary.scans > 0
    }

    /// What the store should hold after a phase that ended well.
    pub(super) fn contents(&self, phase: Phase) -> Contents {
        match (phase, self.load.until) {
            (Phase::Load | Phase::Compact, _) => self.trace.summary.at_start(),
            (_, Until::Operations(_)) => self.trace.summary.at_end,
            // Nobody knows how far it came.
            (_, Until::Seconds(_)) => Contents::default(),
        }
    }

    pub(super) fn load(
        &self,
        adapter: &dyn Adapter,
        store: &Arc<dyn OpenStore>,
        progress: &dyn Fn(u64),
    ) -> Result<PhaseResult> {
        let mut session = store.clone().session()?;
        let mut recorder = Recorder::new(&[OperationKind::Insert], false)?;
        let clock = Clock::start();
        let mut batch = Batch::default();
        let mut written = 0;
        let mut failure = None;
        let (mut steps, mut source) = (Steps::default(), Source::loads(self.trace)?);
        while failure.is_none() && source.fill(&mut steps)? {
            let last = steps.all.len() - 1;
            let mut first = 0;
            for (at, step) in steps.all.iter().enumerate() {
                let (number, size) = (step.number, step.value_bytes as usize);
                batch.put(|all| self.values.append_of_size(number, step.version, size, all));
                if at < last && batch.value_bytes() < LOAD_BATCH_BYTES {
                    continue;
                }
                let own = steps.all[first..=at].iter();
                let (changes, bytes) = batch.changes(own.map(|step| &steps.keys[step.key.clone()]));
                let start = clock.now();
                failure = session.write(&changes).err();
                if failure.is_some() {
                    break;
                }
                let end = clock.now();
                let entries = changes.len() as u64;
                recorder.record(OperationKind::Insert, end - start, end, entries);
                written += bytes;
                first = at + 1;
                batch.clear();
            }
            progress(recorder.operations());
        }
        let issued = Issued {
            ended: clock.now(),
            bytes_written: written,
            failure,
            ..Issued::nothing(recorder)
        };
        let found = Together::of(Phase::Load, adapter.name(), vec![Some(issued)])?;
        Ok(self.described(found.result))
    }

    pub(super) fn run(
        &self,
        adapter: &dyn Adapter,
        store: &Arc<dyn OpenStore>,
        progress: &dyn Fn(u64),
    ) -> Result<PhaseResult> {
        let signals = Signals::default();
        let counters: Vec<Counter> = (0..self.load.threads).map(|_| Counter::default()).collect();
        let mut players = Vec::new();
        for (thread, counter) in counters.iter().enumerate() {
            let play = Play {
                store: adapter.name(),
                values: &self.values,
                began: self.trace.summary.began,
                speed: self.trace.speed,
                deadline: match self.load.until {
                    Until::Seconds(seconds) => (seconds * 1e9) as u64,
                    Until::Operations(_) => u64::MAX,
                },
                hashes: self.hashes(adapter),
                stop: &signals.stop,
                progress: &counter.0,
            };
            let source = Source::operations(self.trace, thread as u64, self.load.threads.into())?;
            let expected = Expected::new(match self.verifies(adapter) {
                true => self.load.verify_every,
                false => 0,
            });
            let recorder = Recorder::new(&self.kinds(), self.trace.speed.is_some())?;
            let session = store.clone().session()?;
            players.push(Player::new(play, source, expected, session, recorder));
        }
        let sum = || counters.iter().map(|c| c.0.load(Ordering::Relaxed)).sum();
        let (issued, _) = begin_together(players, Vec::new(), &signals, &|| progress(sum()));
        let found = Together::of(Phase::Run, adapter.name(), issued)?;
        let mut result = self.described(found.result);
        let hashed = self.hashes(adapter) && result.failure.is_none();
        result.result_hash = hashed.then(|| format!("{:016x}", found.hash));
        result.tell("reads_verified", found.verified);
        if self.needs_order() {
            result.tell("entries_scanned", found.scanned);
        }
        if self.trace.speed.is_some() {
            let behind = found.most_overdue as f64 / 1e9;
            result.tell("most_seconds_behind", behind);
        }
        Ok(result)
    }

    fn kinds(&self) -> Vec<OperationKind> {
        let summary = &self.trace.summary;
        let kinds = [
            (OperationKind::Read, summary.gets),
            (OperationKind::Update, summary.puts + summary.batches),
            (OperationKind::Delete, summary.deletes),
            (OperationKind::Scan, summary.scans),
        ];
        let there = kinds.into_iter().filter(|&(_, count)| count > 0);
        there.map(|(kind, _)| kind).collect()
    }

    /// Whether one thread alone writes a key, and it is known what that holds.
    fn verifies(&self, adapter: &dyn Adapter) -> bool {
        adapter.keeps_data() && (self.load.threads == 1 || self.trace.summary.batches == 0)
    }

    fn hashes(&self, adapter: &dyn Adapter) -> bool {
        let alone = self.load.threads == 1 || self.trace.summary.scans == 0;
        let whole = matches!(self.load.until, Until::Operations(_));
        self.verifies(adapter) && alone && whole && self.trace.summary.gets > 0
    }

    fn described(&self, mut result: PhaseResult) -> PhaseResult {
        let contents = self.contents(result.phase);
        (result.live_user_bytes, result.live_keys) = (contents.bytes, contents.entries);
        let speed = self.trace.speed.map_or(json!("full"), Value::from);
        result.tell("trace", &self.trace.path);
        result.tell("trace_speed", speed);
        result
    }
}

fn check(load: &Load, trace: &Replayed) -> Result<()> {
    let refused = if load.threads == 0 || load.threads > super::refusals::MOST_THREADS {
        format!(
            "threads {}: from 1 to {}",
            load.threads,
            super::refusals::MOST_THREADS
        )
    } else if trace
        .speed
        .is_some_and(|speed| !(speed.is_finite() && speed > 0.0))
    {
        "a speed is above 0".to_string()
    } else if trace.summary.largest_value > MOST_BYTES {
        format!(
            "a value of {} bytes; a value has at most 1 GiB",
            trace.summary.largest_value
        )
    } else if load.batch > 1 || load.rate.is_some() || load.latency_target.is_some() {
        "its batches and its rate are its own; --speed makes it faster".to_string()
    } else if load.kind_threads.is_some() || load.give_up.is_some() {
        "its threads are alike, and all of it is issued".to_string()
    } else if load.beside.is_some() || load.mix.is_some() || load.lifetime.is_some() {
        "its operations are its own".to_string()
    } else {
        return Ok(());
    };
    Err(Error::Usage(format!("{}: {refused}", trace.path.display())))
}
