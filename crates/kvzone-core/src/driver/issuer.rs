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

/// When operations are due.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// When the thread's first operation is due.
    pub first: f64,
    /// Nanoseconds from one operation of the thread to its next.
    pub interval: f64,
}

impl Schedule {
    /// When an operation of the thread is due, after so many before it.
    fn due(self, before: u64) -> u64 {
        (self.first + before as f64 * self.interval) as u64
    }
}

/// What a thread needs besides its session and its stream.
#[derive(Clone, Copy, Debug)]
pub struct Issue<'a> {
    /// When the phase ends, in its nanoseconds; `u64::MAX` if operations end it.
    pub deadline: u64,
    /// Of the open loop.
    pub schedule: Option<Schedule>,
    /// Nanoseconds that an open loop may be behind before its rate is given up.
    pub give_up: u64,
    /// Set when it is.
    pub given_up: &'a AtomicBool,
    /// Of an open loop whose rate a latency decides.
    pub governor: Option<&'a Governor>,
    /// Changes a call.
    pub batch: SizeChoice,
    /// Whether changes are gathered between reads.
    pub gathers: bool,
    /// Requests in flight, where they are submitted and not waited for one by one.
    pub in_flight: usize,
    /// What decides the number of changes of each call, where it varies.
    pub batch_seed: u64,
    /// Bytes of the longest key.
    pub key_bytes: u64,
    /// Where values come from.
    pub values: &'a Values,
    /// Versions of loaded keys.
    pub versions: &'a Versions,
    /// Set when some thread has failed.
    pub stop: &'a AtomicBool,
    /// Set when there is nothing any more that this thread accompanies.
    pub enough: Option<&'a AtomicBool>,
    /// Operations of this thread so far.
    pub progress: &'a AtomicU64,
}

/// What became of a thread.
#[derive(Debug)]
pub struct Issued {
    /// What it measured.
    pub recorder: Recorder,
    /// Hash of what its reads returned, with their number.
    pub hash: u64,
    /// Reads that were compared with what was written.
    pub verified: u64,
    /// Bytes of keys and values put, and of keys deleted.
    pub bytes_written: u64,
    /// Bytes of keys and values read.
    pub bytes_read: u64,
    /// Entries that scans visited.
    pub scanned: u64,
    /// Keys inserted after the load.
    pub inserted: u64,
    /// Their bytes of keys and values.
    pub inserted_bytes: u64,
    /// When its last operation ended.
    pub ended: u64,
    /// Operations of an open loop that were due before the deadline, and not
    /// issued by then.
    pub overdue: u64,
    /// Why it ended early.
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

/// A thread that issues operations.
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
    recorder: Recorder,
    bytes_written: u64,
    scanned: u64,
    inserted: u64,
    inserted_bytes: u64,
    ended: u64,
    overdue: u64,
    /// Changes that went in batches.
    issued: u64,
}

impl<'a> Issuer<'a> {
    /// Ready to begin; everything that takes time to set up is set up.
    pub fn new(
        issue: Issue<'a>,
        session: Box<dyn Session>,
        stream: Stream<'a>,
        witness: Witness<'a>,
        recorder: Recorder,
    ) -> Self {
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
            block_operations: block_operations(issue.batch.largest() as usize, issue.key_bytes),
            recorder,
            bytes_written: 0,
            scanned: 0,
            inserted: 0,
            inserted_bytes: 0,
            ended: 0,
            overdue: 0,
            issued: 0,
        }
    }

    /// Submits to this, in place of calling its session.
    pub fn through(mut self, queue: Box<dyn Queue>) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Issues operations until they, or the time, or the store's health end.
    /// The clock started when the phase did.
    pub fn run(mut self, clock: Clock) -> Issued {
        self.clock = clock;
        let failure = self.run_loop().err();
        if failure.is_some() {
            self.issue.stop.store(true, Ordering::Relaxed);
        }
        self.issued(failure)
    }

    fn run_loop(&mut self) -> Result<()> {
        if let Some(mut queue) = self.queue.take() {
            return self.run_queued(&mut *queue, self.issue.in_flight);
        }
        match (self.issue.schedule, self.issue.batch) {
            _ if self.issue.governor.is_some() => self.run_governed(),
            _ if self.issue.gathers => self.run_gathering(),
            (None, SizeChoice::Fixed(1)) => self.run_closed(),
            (Some(schedule), SizeChoice::Fixed(1)) => self.run_open(schedule),
            (_, SizeChoice::Fixed(batch)) => self.run_batches(batch as usize),
            _ => self.run_gathering(),
        }
    }

    fn issued(self, failure: Option<Error>) -> Issued {
        Issued {
            hash: self.witness.hash(),
            verified: self.witness.verified(),
            bytes_read: self.witness.bytes_read(),
            recorder: self.recorder,
            bytes_written: self.bytes_written,
            scanned: self.scanned,
            inserted: self.inserted,
            inserted_bytes: self.inserted_bytes,
            ended: self.ended,
            overdue: self.overdue,
            failure,
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
        self.ended = self.clock.now();
        true
    }

    #[inline]
    fn done(&mut self, now: u64) -> bool {
        self.ended = now;
        let operations = self.recorder.operations();
        self.issue.progress.store(operations, Ordering::Relaxed);
        now >= self.issue.deadline || self.is_stopped()
    }

    #[inline]
    fn is_stopped(&self) -> bool {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        is_set(self.issue.stop) || self.issue.enough.is_some_and(is_set)
    }

    fn run_closed(&mut self) -> Result<()> {
        while self.next_block()? {
            let mut start = self.clock.now();
            for at in 0..self.block.operations.len() {
                let operation = self.block.operations[at];
                let entries = self.call(&operation)?;
                let end = self.clock.now();
                self.recorder
                    .record(operation.kind, end - start, end, entries);
                start = if self.look(&operation)? {
                    self.clock.now()
                } else {
                    end
                };
                if self.done(end) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn run_open(&mut self, schedule: Schedule) -> Result<()> {
        let mut issued = 0_u64;
        while self.next_block()? {
            for at in 0..self.block.operations.len() {
                let operation = self.block.operations[at];
                let due = schedule.due(issued);
                if !self.wait_for(due) {
                    return Ok(());
                }
                let start = self.clock.now();
                let entries = self.call(&operation)?;
                let end = self.clock.now();
                self.recorder
                    .record(operation.kind, end - due, end, entries);
                self.recorder.record_parts(start - due, end - start);
                self.look(&operation)?;
                issued += 1;
                if self.gives_up(start - due) || self.done(end) {
                    self.overdue = self.overdue_at(schedule, issued, end);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// An open loop whose rate changes: what was due under the old one is
    /// forgiven.
    fn run_governed(&mut self) -> Result<()> {
        let Some(governor) = self.issue.governor else {
            return Ok(());
        };
        let (mut due, mut epoch) = (self.clock.now(), governor.epoch());
        while self.next_block()? {
            for at in 0..self.block.operations.len() {
                let operation = self.block.operations[at];
                if governor.epoch() != epoch {
                    epoch = governor.epoch();
                    due = due.max(self.clock.now());
                }
                due += governor.interval();
                if !self.wait_for(due) {
                    return Ok(());
                }
                let start = self.clock.now();
                let entries = self.call(&operation)?;
                let end = self.clock.now();
                governor.count(end - due);
                self.recorder
                    .record(operation.kind, end - due, end, entries);
                self.recorder.record_parts(start - due, end - start);
                self.look(&operation)?;
                if self.done(end) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Batches of one size, in a closed or an open loop.
    fn run_batches(&mut self, size: usize) -> Result<()> {
        let mut batch = Batch::default();
        while self.next_block()? {
            let block = std::mem::take(&mut self.block);
            for operations in block.operations.chunks(size) {
                if self.write_batch(&mut batch, &block, operations)? {
                    return Ok(());
                }
            }
            self.block = block;
        }
        Ok(())
    }

    /// Changes are gathered until they make a batch; what is read between them
    /// is read at once.
    fn run_gathering(&mut self) -> Result<()> {
        let mut batch = Batch::default();
        let mut gathered = Block::default();
        let mut sizes = Random::new(self.issue.batch_seed);
        let mut size = self.issue.batch.pick(sizes.next_u64());
        while self.next_block()? {
            for at in 0..self.block.operations.len() {
                let operation = self.block.operations[at];
                if operation.kind.writes() {
                    gathered.take(&self.block, &operation);
                    if (gathered.operations.len() as u64) < size {
                        continue;
                    }
                    let ended = self.write_batch(&mut batch, &gathered, &gathered.operations)?;
                    gathered.clear();
                    if ended {
                        return Ok(());
                    }
                    size = self.issue.batch.pick(sizes.next_u64());
                } else {
                    let start = self.clock.now();
                    let entries = self.call(&operation)?;
                    let end = self.clock.now();
                    self.recorder
                        .record(operation.kind, end - start, end, entries);
                    self.look(&operation)?;
                    if self.done(end) {
                        return Ok(());
                    }
                }
            }
        }
        if !gathered.operations.is_empty() {
            self.write_batch(&mut batch, &gathered, &gathered.operations)?;
        }
        Ok(())
    }

    /// Writes some operations of a block in one call; true if the phase ends.
    fn write_batch(
        &mut self,
        batch: &mut Batch,
        block: &Block,
        operations: &[Operation],
    ) -> Result<bool> {
        let Issue {
            values,
            versions,
            schedule,
            ..
        } = self.issue;
        batch.compose(operations, values, versions);
        let (changes, bytes) = batch.changes(block, operations);
        let due = schedule.map(|schedule| schedule.due(self.issued));
        if due.is_some_and(|due| !self.wait_for(due)) {
            return Ok(true);
        }
        let start = self.clock.now();
        self.session.write(&changes)?;
        let end = self.clock.now();
        let latency = end - due.unwrap_or(start);
        let entries = operations.len() as u64;
        self.recorder
            .record(operations[0].kind, latency, end, entries);
        let waited = due.map_or(0, |due| start - due);
        self.recorder.record_parts(waited, end - start);
        self.bytes_written += bytes;
        for operation in operations {
            versions.end(operation.number);
        }
        self.issued += entries;
        if !self.gives_up(waited) && !self.done(end) {
            return Ok(false);
        }
        let overdue = |schedule| self.overdue_at(schedule, self.issued, end);
        self.overdue = schedule.map_or(0, overdue);
        Ok(true)
    }

    /// Operations that were due by `now` or the deadline, but for those issued.
    fn overdue_at(&self, schedule: Schedule, issued: u64, now: u64) -> u64 {
        let until = now.min(self.issue.deadline) as f64;
        let due = ((until - schedule.first) / schedule.interval).floor() as u64 + 1;
        due.saturating_sub(issued)
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
                self.scanned += self.witness.scan(session, key, operation)?;
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
        self.bytes_written += bytes;
        if operation.number < self.loaded {
            self.issue.versions.end(operation.number);
            return;
        }
        match operation.kind {
            OperationKind::Insert => {
                self.inserted += 1;
                self.inserted_bytes += bytes;
            }
            OperationKind::Delete => {
                // Inserted by this thread, with its one version, and deleted once.
                let value_bytes = self.issue.values.value_bytes(operation.number, 1);
                self.inserted -= 1;
                self.inserted_bytes -= (key_bytes + value_bytes) as u64;
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

/// Whole batches that make a block.
fn block_operations(batch: usize, key_bytes: u64) -> usize {
    let fitting = BLOCK.min((BLOCK_BYTES / key_bytes.max(1)) as usize).max(1);
    fitting.div_ceil(batch) * batch
}
