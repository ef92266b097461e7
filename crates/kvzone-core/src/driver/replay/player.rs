//! One thread's part of a replay: issued, timed, compared.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::steps::{Act, Source, Step, Steps};
use crate::adapter::Session;
use crate::driver::batch::Batch;
use crate::driver::clock::Clock;
use crate::driver::issuer::Issued;
use crate::driver::phase::Issues;
use crate::driver::recorder::Recorder;
use crate::driver::witness::chain;
use crate::error::{Error, Result};
use crate::values::{Lender, Values, hexadecimal};
use crate::workload::OperationKind;

#[derive(Clone, Copy, Debug)]
pub(super) struct Play<'a> {
    pub(super) store: &'a str,
    pub(super) values: &'a Values,
    /// When the trace's first operation began.
    pub(super) began: u64,
    /// None: as fast as it goes.
    pub(super) speed: Option<f64>,
    pub(super) deadline: u64,
    pub(super) hashes: bool,
    /// Set when some thread has failed.
    pub(super) stop: &'a AtomicBool,
    pub(super) progress: &'a AtomicU64,
}

#[derive(Debug)]
pub(super) struct Expected {
    one_in: u64,
    entries: HashMap<u64, Option<(u64, u64)>>,
}

impl Expected {
    /// Of one key in so many; 0 for none.
    pub(super) fn new(one_in: u32) -> Expected {
        Expected {
            one_in: u64::from(one_in),
            entries: HashMap::new(),
        }
    }

    /// Another part of the hash than the one that decides the thread.
    fn knows(&self, number: u64) -> bool {
        self.one_in > 0 && (number >> 32) % self.one_in == 0
    }

    fn set(&mut self, number: u64, value: Option<(u64, u64)>) {
        if self.knows(number) {
            self.entries.insert(number, value);
        }
    }
}

pub(super) struct Player<'a> {
    play: Play<'a>,
    clock: Clock,
    source: Source,
    expected: Expected,
    session: Box<dyn Session>,
    lender: Lender<'a>,
    /// What the last get returned, and whether there was something.
    value: Vec<u8>,
    found: bool,
    batch: Batch,
    issued: Issued,
}

impl<'a> Player<'a> {
    pub(super) fn new(
        play: Play<'a>,
        source: Source,
        expected: Expected,
        session: Box<dyn Session>,
        recorder: Recorder,
    ) -> Player<'a> {
        Player {
            lender: play.values.lender(),
            play,
            clock: Clock::start(),
            source,
            expected,
            session,
            value: Vec::new(),
            found: false,
            batch: Batch::default(),
            issued: Issued::nothing(recorder),
        }
    }

    fn play(&mut self) -> Result<()> {
        let mut steps = Steps::default();
        while self.source.fill(&mut steps)? {
            let mut start = self.clock.now();
            for step in &steps.all {
                if step.act == Act::Loaded {
                    let value = (step.version, step.value_bytes);
                    self.expected.set(step.number, Some(value));
                    continue;
                }
                let changes = self.compose(step, &steps);
                let due = self.play.speed.map(|speed| self.due(step.at, speed));
                if due.is_some_and(|due| !self.wait_for(due)) {
                    return Ok(());
                }
                // In a closed loop a call begins where the last one ended, but for a batch
                // that was put together.
                if due.is_some() || changes > 0 {
                    start = self.clock.now();
                }
                self.call(step, &steps)?;
                let end = self.clock.now();
                self.record(step, (due, start, end), changes);
                self.look(step, &steps)?;
                start = self.clock.now();
                if end >= self.play.deadline || self.is_stopped() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn due(&self, at: u64, speed: f64) -> u64 {
        (at.saturating_sub(self.play.began) as f64 / speed) as u64
    }

    fn is_stopped(&self) -> bool {
        self.play.stop.load(Ordering::Relaxed)
    }

    fn wait_for(&self, due: u64) -> bool {
        let deadline = self.play.deadline;
        self.clock.wait_for(due, deadline, || self.is_stopped())
    }

    fn record(&mut self, step: &Step, (due, start, end): (Option<u64>, u64, u64), changes: usize) {
        let kind = match step.act {
            Act::Get => OperationKind::Read,
            Act::Delete => OperationKind::Delete,
            Act::Scan(_) => OperationKind::Scan,
            Act::Put | Act::Batch(_) | Act::Loaded => OperationKind::Update,
        };
        let issued = &mut self.issued;
        let from = due.unwrap_or(start);
        let operations = changes.max(1) as u64;
        issued.recorder.record(kind, end - from, end, operations);
        issued
            .recorder
            .record_parts(start.saturating_sub(from), end - start);
        issued.overdue = issued.overdue.max(start.saturating_sub(from));
        issued.ended = end;
        let operations = issued.recorder.operations();
        self.play.progress.store(operations, Ordering::Relaxed);
    }

    /// Puts the values of a batch together; answers how many changes it has.
    fn compose(&mut self, step: &Step, steps: &Steps) -> usize {
        let Act::Batch(changes) = &step.act else {
            return 0;
        };
        let values = self.play.values;
        self.batch.clear();
        for change in &steps.changes[changes.clone()] {
            let Some(bytes) = change.value_bytes else {
                self.batch.delete();
                continue;
            };
            let (number, version, size) = (change.number, change.version, bytes as usize);
            self.batch
                .put(|all| values.append_of_size(number, version, size, all));
        }
        changes.len()
    }

    fn call(&mut self, step: &Step, steps: &Steps) -> Result<()> {
        let key = &steps.keys[step.key.clone()];
        let issued = &mut self.issued;
        match &step.act {
            Act::Loaded => {}
            Act::Get => self.found = self.session.get(key, &mut self.value)?,
            Act::Put => {
                let size = step.value_bytes as usize;
                let value = self.lender.lend_of_size(step.number, step.version, size);
                self.session.put(key, value)?;
                issued.bytes_written += (key.len() + size) as u64;
            }
            Act::Delete => {
                self.session.delete(key)?;
                issued.bytes_written += key.len() as u64;
            }
            Act::Scan(limit) => {
                let (hashes, mut hash) = (self.play.hashes, issued.hash);
                let (mut bytes, mut last) = (key.len() as u64, key.to_vec());
                let mut in_order = true;
                issued.scanned += self.session.scan(key, *limit, &mut |key, value| {
                    bytes += (key.len() + value.len()) as u64;
                    in_order &= key >= last.as_slice();
                    last.clear();
                    last.extend_from_slice(key);
                    if hashes {
                        hash = chain(hash, key, Some(value));
                    }
                })?;
                issued.hash = hash;
                issued.bytes_read += bytes;
                if !in_order {
                    return Err(self.wrong(key, "a scan that keeps key order", "another order"));
                }
            }
            Act::Batch(changes) => {
                let keys = steps.changes[changes.clone()].iter();
                let keys = keys.map(|change| &steps.keys[change.key.clone()]);
                let (changes, bytes) = self.batch.changes(keys);
                issued.bytes_written += bytes;
                self.session.write(&changes)?;
            }
        }
        Ok(())
    }

    /// Remembers what was written, and looks at what was read.
    fn look(&mut self, step: &Step, steps: &Steps) -> Result<()> {
        match &step.act {
            Act::Put => {
                let value = (step.version, step.value_bytes);
                self.expected.set(step.number, Some(value));
            }
            Act::Delete => self.expected.set(step.number, None),
            Act::Batch(changes) => {
                for change in &steps.changes[changes.clone()] {
                    let value = change.value_bytes.map(|bytes| (change.version, bytes));
                    self.expected.set(change.number, value);
                }
            }
            Act::Get => return self.look_at_value(step, &steps.keys[step.key.clone()]),
            Act::Scan(_) | Act::Loaded => {}
        }
        Ok(())
    }

    fn look_at_value(&mut self, step: &Step, key: &[u8]) -> Result<()> {
        let value = self.found.then_some(self.value.as_slice());
        let issued = &mut self.issued;
        issued.bytes_read += (key.len() + value.map_or(0, <[u8]>::len)) as u64;
        if self.play.hashes {
            issued.hash = chain(issued.hash, key, value);
        }
        if !self.expected.knows(step.number) {
            return Ok(());
        }
        issued.verified += 1;
        let expected = self.expected.entries.get(&step.number).copied().flatten();
        let is_right = match (value, expected) {
            (None, None) => true,
            (Some(value), Some((version, bytes))) => {
                let values = self.play.values;
                value.len() as u64 == bytes && values.matches_of_size(value, step.number, version)
            }
            _ => false,
        };
        if is_right {
            return Ok(());
        }
        let expected = expected.map_or("nothing".to_string(), |(version, bytes)| {
            format!("{bytes} bytes, version {version}")
        });
        let came = value.map_or("nothing".to_string(), |value| {
            format!("{} bytes {}", value.len(), hexadecimal(value))
        });
        Err(self.wrong(key, &expected, &came))
    }

    fn wrong(&self, key: &[u8], expected: &str, came: &str) -> Error {
        let key = hexadecimal(key);
        Error::WrongData {
            store: self.play.store.to_string(),
            what: format!("key {key}: expected {expected}, came {came}"),
        }
    }
}

impl Issues for Player<'_> {
    fn run(mut self, clock: Clock) -> Issued {
        self.clock = clock;
        let failure = self.play().err();
        if failure.is_some() {
            self.play.stop.store(true, Ordering::Relaxed);
        }
        self.issued.failure = failure;
        self.issued
    }
}
