//! Writing until the process is killed.
//!
//! After everything else was measured, the job's threads go on writing: each puts
//! keys of its own that were loaded, one in ten it deletes, alone or in batches as
//! the job says, as fast as it goes. Before each call and after it, the ledger
//! ([`super::ledger`]) is told. At a moment that the seed and the repeat choose, so
//! that rounds differ, the observer ends the process
//! ([`Observer::kill`]): nothing is closed, no call is waited for.
//!
//! What was written earlier is in the ledger as well, keys inserted after the load
//! included: which those were is found out by drawing the phase's operations again.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::batch::Batch;
use super::block::Block;
use super::issuer::Issued;
use super::ledger::{self, Notes};
use super::phase::{Issues, Signals, Work, begin_together};
use super::plan::Plan;
use super::recorder::Recorder;
use super::{Observer, clock::Clock};
use crate::adapter::{Change, OpenStore, Session};
use crate::error::{Error, Result};
use crate::random::{Random, mix_two};
use crate::record::Phase;
use crate::versions::Versions;
use crate::workload::OperationKind;

/// Purpose of the seed.
const LAST: u64 = 0x6C61_7374;

/// The last writes go on for so many milliseconds ...
const LEAST_MILLISECONDS: u64 = 200;
/// ... and up to so many more.
const MORE_MILLISECONDS: u64 = 800;

/// One write in so many is a deletion.
const DELETES_ONE_IN: u64 = 10;

/// Notes what was acknowledged so far; `issued` is what each thread did after the
/// load.
pub(super) fn note_all(work: &Work<'_>, issued: &[u64], run: &Path) -> Result<()> {
    ledger::prepare(run)?;
    let mut notes = Notes::create(&ledger::before(run))?;
    let versions = &work.plan.versions;
    for number in 0..versions.count() {
        let known = versions.known(number);
        if known.was_written() {
            notes.add(number, known.bits())?;
        }
    }
    for (number, is_there) in work.inserted_after_load(issued)? {
        notes.add(number, Versions::once(is_there).bits())?;
    }
    notes.hand_over()
}

/// Writes until the observer has ended the process. It returns where an observer has
/// none to end, and when a call failed.
pub(super) fn write_until_killed(
    work: &Work<'_>,
    (run, repeat): (&Path, u32),
    store: &Arc<dyn OpenStore>,
    observer: &dyn Observer,
) -> Result<()> {
    observer.last_writes()?;
    let signals = Signals::default();
    let written = AtomicU64::new(0);
    let seed = mix_two(mix_two(work.load.seed, LAST), u64::from(repeat));
    let mut writers = Vec::new();
    for thread in 0..u64::from(work.load.threads) {
        writers.push(Writer {
            work,
            thread,
            stop: &signals.stop,
            written: &written,
            recorder: Recorder::new(&[], false)?,
            random: Random::stream(seed, thread),
            session: store.clone().session()?,
            notes: Notes::create(&ledger::of_thread(run, thread))?,
            block: Block::default(),
            batch: Batch::default(),
        });
    }
    let milliseconds = LEAST_MILLISECONDS + Random::stream(seed, u64::MAX).below(MORE_MILLISECONDS);
    let clock = Clock::start();
    let look = || {
        observer.progress(Phase::Reopen, written.load(Ordering::Relaxed));
        let is_time = clock.now() >= milliseconds * 1_000_000;
        if is_time && !signals.stop.load(Ordering::Relaxed) {
            observer.kill();
            signals.stop.store(true, Ordering::Relaxed);
        }
    };
    let (ended, _) = begin_together(writers, Vec::new(), &signals, &look);
    for writer in ended {
        let Some(writer) = writer else {
            let words = "a thread of the last writes panicked inside a call";
            return Err(Error::store(work.adapter.name(), "session", words));
        };
        if let Some(failure) = writer.failure {
            return Err(failure);
        }
    }
    Ok(())
}

/// One thread of the last writes.
struct Writer<'a> {
    work: &'a Work<'a>,
    thread: u64,
    /// Somebody has failed, or it is over.
    stop: &'a AtomicBool,
    /// By all threads.
    written: &'a AtomicU64,
    recorder: Recorder,
    random: Random,
    session: Box<dyn Session>,
    notes: Notes,
    block: Block,
    batch: Batch,
}

impl Issues for Writer<'_> {
    fn run(mut self, _: Clock) -> Issued {
        let failure = self.write().err();
        if failure.is_some() {
            self.stop.store(true, Ordering::Relaxed);
        }
        Issued {
            failure,
            ..Issued::nothing(self.recorder)
        }
    }
}

impl Writer<'_> {
    fn write(&mut self) -> Result<()> {
        let sizes = self.work.plan.run_batch;
        while !self.stop.load(Ordering::Relaxed) {
            let size = match sizes.largest() {
                1 => 1,
                _ => sizes.pick(self.random.next_u64()),
            };
            self.choose(size);
            let chosen = self.block.operations.len() as u64;
            self.written.fetch_add(chosen, Ordering::Relaxed);
            self.call()?;
        }
        Ok(())
    }

    /// Puts and deletions of keys of this thread; each key once.
    fn choose(&mut self, size: u64) {
        let plan = self.work.plan;
        let (keys, threads) = (plan.versions.count(), u64::from(self.work.load.threads));
        let own = keys / threads + u64::from(self.thread < keys % threads);
        let mut chosen = BTreeSet::new();
        self.block.clear();
        for _ in 0..size {
            let number = self.random.below(own) * threads + self.thread;
            let kind = match self.random.below(DELETES_ONE_IN) {
                0 => OperationKind::Delete,
                _ => OperationKind::Update,
            };
            if chosen.insert(number) {
                self.block.push(kind, number, 1, &plan.keys);
            }
        }
    }

    fn note(&mut self) -> Result<()> {
        for operation in &self.block.operations {
            let known = self.work.plan.versions.known(operation.number);
            self.notes.add(operation.number, known.bits())?;
        }
        self.notes.hand_over()
    }

    fn call(&mut self) -> Result<()> {
        let Plan {
            values, versions, ..
        } = self.work.plan;
        self.batch.compose(&self.block.operations, values, versions);
        self.note()?;
        let keys = self.block.operations.iter().map(|of| self.block.key(of));
        let (changes, _) = self.batch.changes(keys);
        match changes[..] {
            [Change::Put { key, value }] => self.session.put(key, value)?,
            [Change::Delete { key }] => self.session.delete(key)?,
            _ => self.session.write(&changes)?,
        }
        for operation in &self.block.operations {
            versions.end(operation.number);
        }
        self.note()
    }
}
