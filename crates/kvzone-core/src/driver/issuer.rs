//! One thread's loop: operations issued, timed, and what came back looked at.
//!
//! ```text
//!  draw a block │ call │ clock, record │ call │ clock, record │ ...
//!               └ start                └ the end before is the start of this
//! ```
//!
//! In a closed loop the clock is read once an operation. Where looking at the
//! answer takes long (a large value is hashed, a value verified, a batch put
//! together), it is read again, so that this is in no latency. In an open loop
//! it is read before and after each call, and the latency counts from the
//! moment at which the operation was due, whether or not the store was ready
//! for it: a stall is seen by all operations that were due in it, not by the
//! one that happened to meet it ("coordinated omission").

mod queued;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::batch::Batch;
use super::block::{Block, Operation};
use super::clock::Clock;
use super::governor::Governor;
use super::recorder::Recorder;
use super::stream::Stream;
use super::witness::Witness;
use crate::adapter::{Queue, Session};
use crate::error::{Error, Result};
use crate::job::SizeChoice;
use crate::random::Random;
use crate::values::{Lender, Values};
use crate::versions::Versions;
use crate::workload::OperationKind;

/// Operations of a block ...
const BLOCK: usize = 256;
/// ... and about the most bytes of its keys.
const BLOCK_BYTES: u64 = 4 << 20;
/// Longer values are looked at outside of all latencies.
const SHORT_VALUE: usize = 256;

#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// When the thread's first operation is due.
    pub first: f64,
    /// Nanoseconds from one operation of the thread to its next, in the mean.
    pub interval: f64,
    /// The seed of distances by the exponential law; none: all are equal.
    pub poisson: Option<u64>,
}

/// What a thread needs besides its session and its stream.
#[derive(Clone, Copy, Debug)]
pub struct Issue<'a> {
    /// When the phase ends, in its nanoseconds; `u64::MAX` if operations end it.
    pub deadline: u64,
    pub schedule: Option<Schedule>,
    /// Nanoseconds that an open loop may be behind before its rate is given up.
    pub give_up: u64,
    /// Set when it is.
    pub given_up: &'a AtomicBool,
    /// Of an open loop whose rate a latency decides.
    pub governor: Option<&'a Governor>,
    pub batch: SizeChoice,
    /// Requests in flight, where they are submitted and not waited for one by one.
    pub in_flight: usize,
    /// What decides the number of changes of each call, where it varies.
    pub batch_seed: u64,
    pub key_bytes: u64,
    pub values: &'a Values,
    pub versions: &'a Versions,
    /// Set when some thread has failed.
    pub stop: &'a AtomicBool,
    /// Set when there is nothing any more that this thread accompanies.
    pub enough: Option<&'a AtomicBool>,
    /// Operations of this thread so far.
    pub progress: &'a AtomicU64,
}

#[derive(Debug)]
pub struct Issued {
    pub recorder: Recorder,
    /// Hash of what its reads returned, with their number.
    pub hash: u64,
    /// Reads that were compared with what was written.
    pub verified: u64,
    /// Bytes of keys and values put, and of keys deleted.
    pub bytes_written: u64,
    pub bytes_read: u64,
    pub scanned: u64,
    pub inserted: u64,
    /// Their bytes of keys and values.
    pub inserted_bytes: u64,
    /// When its last operation ended.
    pub ended: u64,
    /// Operations of an open loop that were due before the deadline, and not
    /// issued by then.
    pub overdue: u64,
    pub failure: Option<Error>,
}

impl Issued {
    /// Of a thread that begins.
    pub fn nothing(recorder: Recorder) -> Issued {
        Issued {
            recorder,
            hash: 0,
            verified: 0,
            bytes_written: 0,
            bytes_read: 0,
            scanned: 0,
            inserted: 0,
            inserted_bytes: 0,
            ended: 0,
            overdue: 0,
            failure: None,
        }
    }
}

pub struct Issuer<'a> {
    issue: Issue<'a>,
    clock: Clock,
    session: Box<dyn Session>,
    queue: Option<Box<dyn Queue>>,
    stream: Stream<'a>,
    witness: Witness<'a>,
    lender: Lender<'a>,
    block: Block,
    block_operations: usize,
    loaded: u64,
    issued: Issued,
    /// Operations that were called, or submitted.
    begun: u64,
    /// An open loop: when the next operation is due after so many, and where distances
    /// come from.
    arrivals: Arrivals,
    /// A governed loop: when the last operation was due, and the rate's number then.
    governed: (u64, u64),
}

struct Arrivals {
    random: Option<Random>,
    due: f64,
    before: u64,
}

impl Arrivals {
    fn new(poisson: Option<u64>) -> Self {
        Arrivals {
            random: poisson.map(Random::new),
            due: 0.0,
            before: 0,
        }
    }

    /// When the next operation is due, after so many that have begun.
    #[inline]
    fn due(&mut self, schedule: Schedule, begun: u64) -> u64 {
        let Some(random) = &mut self.random else {
            return (schedule.first + begun as f64 * schedule.interval) as u64;
        };
        // A batch comes with the last of its operations.
        while self.before < begun + 1 {
            self.due -= (1.0 - random.fraction()).ln() * schedule.interval;
            self.before += 1;
        }
        self.due as u64
    }
}

/// Changes that wait until they make a batch.
struct Gathering {
    block: Block,
    batch: Batch,
    sizes: Random,
    /// The batch that is gathered.
    size: u64,
}

/// When a call was due in an open loop, began and ended.
type Times = (Option<u64>, u64, u64);

impl<'a> Issuer<'a> {
    /// Ready to begin; everything that takes time to set up is set up.
    pub fn new(
        issue: Issue<'a>,
        session: Box<dyn Session>,
        stream: Stream<'a>,
        witness: Witness<'a>,
        recorder: Recorder,
    ) -> Self {
        let fitting = (BLOCK_BYTES / issue.key_bytes.max(1)) as usize;
        Issuer {
            lender: issue.values.lender(),
            loaded: issue.versions.count(),
            issue,
            clock: Clock::start(),
            session,
            queue: None,
            stream,
            witness,
            block: Block::default(),
            block_operations: fitting.clamp(1, BLOCK),
            issued: Issued::nothing(recorder),
            begun: 0,
            arrivals: Arrivals::new(issue.schedule.and_then(|it| it.poisson)),
            governed: (0, 0),
        }
    }

    /// Submits to this, where there is one, in place of calling its session.
    pub fn through(self, queue: Option<Box<dyn Queue>>) -> Self {
        Issuer { queue, ..self }
    }

    /// Issues operations until they, or the time, or the store's health end.
    /// The clock started when the phase did.
    pub fn run(mut self, clock: Clock) -> Issued {
        self.clock = clock;
        let failure = match self.queue.take() {
            Some(mut queue) => self.run_queued(&mut *queue, self.issue.in_flight).err(),
            None => self.run_loop().err(),
        };
        if failure.is_some() {
            self.issue.stop.store(true, Ordering::Relaxed);
        }
        Issued {
            hash: self.witness.hash(),
            verified: self.witness.verified(),
            bytes_read: self.witness.bytes_read(),
            failure,
            ..self.issued
        }
    }

    fn next_block(&mut self) -> Result<bool> {
        self.stream.draw(&mut self.block, self.block_operations)?;
        for operation in &self.block.operations {
            if operation.kind.writes() && operation.number < self.loaded {
                self.issue.versions.touch(operation.number);
            }
        }
        Ok(!self.block.operations.is_empty())
    }

    /// True if a call that waited so long ends the phase: the rate is not reached.
    #[inline]
    fn gives_up(&mut self, waited: u64) -> bool {
        if waited <= self.issue.give_up {
            return false;
        }
        self.issue.given_up.store(true, Ordering::Relaxed);
        self.issue.stop.store(true, Ordering::Relaxed);
        self.issued.ended = self.clock.now();
        true
    }

    #[inline]
    fn done(&mut self, now: u64) -> bool {
        self.issued.ended = now;
        let operations = self.issued.recorder.operations();
        self.issue.progress.store(operations, Ordering::Relaxed);
        now >= self.issue.deadline || self.is_stopped()
    }

    #[inline]
    fn is_stopped(&self) -> bool {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        is_set(self.issue.stop) || self.issue.enough.is_some_and(is_set)
    }

    /// Issues operations: at once or when they are due, alone or, where changes go in
    /// batches, when enough are gathered. What is read between them is read at once.
    fn run_loop(&mut self) -> Result<()> {
        let gathers = self.issue.batch != SizeChoice::Fixed(1);
        let mut sizes = Random::new(self.issue.batch_seed);
        let mut gathering = Gathering {
            size: self.issue.batch.pick(sizes.next_u64()),
            sizes,
            block: Block::default(),
            batch: Batch::default(),
        };
        let epoch = self.issue.governor.map_or(0, Governor::epoch);
        self.governed = (self.clock.now(), epoch);
        while self.next_block()? {
            let mut start = self.clock.now();
            for at in 0..self.block.operations.len() {
                let operation = self.block.operations[at];
                if gathers && operation.kind.writes() {
                    gathering.block.take(&self.block, &operation);
                    if self.write_if_full(&mut gathering)? {
                        return Ok(());
                    }
                    continue;
                }
                let due = self.due();
                if due.is_some_and(|due| !self.wait_for(due)) {
                    return Ok(());
                }
                if gathers || due.is_some() {
                    start = self.clock.now();
                }
                let entries = self.call(&operation)?;
                let end = self.clock.now();
                let times = (due, start, end);
                self.record(operation.kind, times, entries);
                self.begun += 1;
                start = if self.look(&operation)? {
                    self.clock.now()
                } else {
                    end
                };
                if self.ends(times) {
                    return Ok(());
                }
            }
        }
        if !gathering.block.operations.is_empty() {
            self.write_batch(&mut gathering)?;
        }
        Ok(())
    }

    /// When the next operation is due; none in a closed loop. Where the rate changes, what
    /// was due under the old one is forgiven.
    #[inline]
    fn due(&mut self) -> Option<u64> {
        let Some(governor) = self.issue.governor else {
            let schedule = self.issue.schedule?;
            return Some(self.arrivals.due(schedule, self.begun));
        };
        let (due, epoch) = &mut self.governed;
        if governor.epoch() != *epoch {
            *epoch = governor.epoch();
            *due = (*due).max(self.clock.now());
        }
        *due += governor.interval();
        Some(*due)
    }

    #[inline]
    fn record(&mut self, kind: OperationKind, (due, start, end): Times, entries: u64) {
        let waited = due.map_or(0, |due| start - due);
        let recorder = &mut self.issued.recorder;
        recorder.record(kind, waited + (end - start), end, entries);
        recorder.record_parts(waited, end - start);
        if let Some(governor) = self.issue.governor {
            governor.count(waited + (end - start));
        }
    }

    /// True if the phase ends with a call.
    #[inline]
    fn ends(&mut self, (due, start, end): Times) -> bool {
        let waited = due.map_or(0, |due| start - due);
        let ends = self.gives_up(waited) || self.done(end);
        if ends && let Some(schedule) = self.issue.schedule {
            self.issued.overdue = self.overdue_at(schedule, end);
        }
        ends
    }

    fn write_if_full(&mut self, gathering: &mut Gathering) -> Result<bool> {
        if (gathering.block.operations.len() as u64) < gathering.size {
            return Ok(false);
        }
        let ends = self.write_batch(gathering)?;
        gathering.block.clear();
        gathering.size = self.issue.batch.pick(gathering.sizes.next_u64());
        Ok(ends)
    }

    /// Writes what was gathered in one call; true if the phase ends.
    fn write_batch(&mut self, gathering: &mut Gathering) -> Result<bool> {
        let Issue {
            values, versions, ..
        } = self.issue;
        let operations = &gathering.block.operations;
        gathering.batch.compose(operations, values, versions);
        let keys = operations.iter().map(|of| gathering.block.key(of));
        let (changes, bytes) = gathering.batch.changes(keys);
        let due = self.due();
        if due.is_some_and(|due| !self.wait_for(due)) {
            return Ok(true);
        }
        let start = self.clock.now();
        self.session.write(&changes)?;
        let times = (due, start, self.clock.now());
        let entries = operations.len() as u64;
        self.record(operations[0].kind, times, entries);
        self.issued.bytes_written += bytes;
        for operation in operations {
            versions.end(operation.number);
        }
        self.begun += entries;
        Ok(self.ends(times))
    }

    /// Operations that were due by `now` or the deadline, but for those begun.
    fn overdue_at(&self, schedule: Schedule, now: u64) -> u64 {
        let until = now.min(self.issue.deadline) as f64;
        let due = ((until - schedule.first) / schedule.interval).floor() as u64 + 1;
        due.saturating_sub(self.begun)
    }

    /// Waits for a moment; false if the phase ends before it.
    fn wait_for(&self, due: u64) -> bool {
        let deadline = self.issue.deadline;
        self.clock.wait_for(due, deadline, || self.is_stopped())
    }

    /// Calls the store; answers how many operations this was.
    #[inline]
    fn call(&mut self, operation: &Operation) -> Result<u64> {
        let key = self.block.key(operation);
        let session = &mut *self.session;
        match operation.kind {
            OperationKind::Read | OperationKind::ReadMissing => {
                self.witness.get(session, operation.number, key)?;
                Ok(1)
            }
            OperationKind::Insert | OperationKind::Update => {
                self.put(operation)?;
                Ok(1)
            }
            OperationKind::ReadModifyWrite => {
                self.witness.get(session, operation.number, key)?;
                self.put(operation)?;
                Ok(1)
            }
            OperationKind::Delete => {
                self.delete(operation)?;
                Ok(1)
            }
            OperationKind::Scan => {
                self.issued.scanned += self.witness.scan(session, key, operation)?;
                Ok(1)
            }
            OperationKind::ReadInOrder if operation.span == 1 => {
                self.witness.get(session, operation.number, key)?;
                Ok(1)
            }
            OperationKind::ReadInOrder => self.witness.scan(session, key, operation),
            OperationKind::Walk | OperationKind::WalkBackwards => {
                self.witness.walk(session, operation.kind)
            }
        }
    }

    fn delete(&mut self, operation: &Operation) -> Result<()> {
        let key = self.block.key(operation);
        self.begin(operation);
        self.session.delete(key)?;
        let key_bytes = key.len();
        self.wrote(operation, key_bytes, 0);
        Ok(())
    }

    #[inline]
    fn put(&mut self, operation: &Operation) -> Result<()> {
        let key = self.block.key(operation);
        let version = self.begin(operation);
        let value = self.lender.lend(operation.number, version);
        let (key_bytes, value_bytes) = (key.len(), value.len());
        self.session.put(key, value)?;
        self.wrote(operation, key_bytes, value_bytes);
        Ok(())
    }

    /// A write begins: the version that it writes. What is inserted after the load has
    /// one.
    #[inline]
    fn begin(&self, operation: &Operation) -> u64 {
        let number = operation.number;
        if number >= self.loaded {
            return 1;
        }
        match operation.kind {
            OperationKind::Delete => self.issue.versions.begin_delete(number),
            _ => self.issue.versions.begin_put(number),
        }
    }

    /// Counts a write that was answered.
    #[inline]
    fn wrote(&mut self, operation: &Operation, key_bytes: usize, value_bytes: usize) {
        let bytes = (key_bytes + value_bytes) as u64;
        self.issued.bytes_written += bytes;
        if operation.number < self.loaded {
            self.issue.versions.end(operation.number);
            return;
        }
        match operation.kind {
            OperationKind::Insert => {
                self.issued.inserted += 1;
                self.issued.inserted_bytes += bytes;
            }
            OperationKind::Delete => {
                // Inserted by this thread, with its one version, and deleted once.
                let value_bytes = self.issue.values.value_bytes(operation.number, 1);
                self.issued.inserted -= 1;
                self.issued.inserted_bytes -= (key_bytes + value_bytes) as u64;
            }
            _ => {}
        }
    }

    /// Looks at what a call returned; true if that took a while.
    #[inline]
    fn look(&mut self, operation: &Operation) -> Result<bool> {
        if !operation.kind.reads() {
            return Ok(false);
        }
        let key = self.block.key(operation);
        let verified = self.witness.look(operation, key)?;
        Ok(verified || self.witness.last_bytes() > SHORT_VALUE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_all_the_same_or_of_the_exponential_law() {
        let distances = |poisson| -> Vec<f64> {
            let schedule = Schedule {
                first: 0.0,
                interval: 1_000.0,
                poisson,
            };
            let mut arrivals = Arrivals::new(poisson);
            let due: Vec<u64> = (0..20_001).map(|it| arrivals.due(schedule, it)).collect();
            let between = due.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
            between.collect()
        };
        assert!(distances(None).iter().all(|&distance| distance == 1_000.0));
        let found = distances(Some(7));
        let mean = found.iter().sum::<f64>() / found.len() as f64;
        assert!((950.0..1_050.0).contains(&mean), "{mean}");
        // e^-1 of them are longer than the mean, e^-3 than three times that.
        for (times, share) in [(1.0_f64, 0.368), (3.0, 0.0498)] {
            let longer = found.iter().filter(|&&it| it > times * 1_000.0).count();
            let off = longer as f64 / found.len() as f64 - share;
            assert!(off.abs() < 0.01, "{times}: {off}");
        }
    }
}
