//! The engine traits over [`Core`].

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use cambium_api::{
    Capabilities, ChangeFeed, ChangeOptions, CheckReport, CompactOptions, CompactReport,
    Completion, Cursor, Direction, Engine, IterationOrder, KeyKind, KeyRange, Kind, Operation,
    Precondition, ProgressSink, ReadSet, Reader, Request, ResumeToken, Snapshot, Statistics,
    WriteBatch, limits,
};
use cambium_base::{Durability, Error, Result, SequenceNumber, Value};
use cambium_io::StepOutcome;
use cambium_io::step::{BackgroundTask, Owner};
use cambium_io::sync::atomic::Ordering;
use cambium_storage::consumers::Consumers;

use crate::changes::LogFeed;
use crate::core::{Core, Pin, lock};
use crate::cursor::HashCursor;
use crate::format::{DATA_NAME, FORMAT_VERSION, IMAGE_NAME, MEMBERS_NAME};
use crate::options::{ENGINE, OPTIONS};
use crate::write::WriteRequest;

/// Engine `alphard` as a kind of store, for the facade's list of engines.
#[allow(non_upper_case_globals)] // it is used as a unit struct is
pub const Alphard: Kind = Kind {
    name: ENGINE,
    format_version: FORMAT_VERSION,
    summary: "cuckoo index in memory over a device or preallocated file: unordered keys, one device access an operation",
    options: OPTIONS,
    owns_file: |name| [DATA_NAME, MEMBERS_NAME, IMAGE_NAME].contains(&name),
    kept_options: &[],
    create: |environment, path, options| {
        Ok(run(
            crate::create::make(environment, path, options, 0)?.conclude()?
        ))
    },
    open: |environment, path, options, progress| {
        Ok(run(crate::open::open(
            environment,
            path,
            options,
            progress,
        )?))
    },
    open_read_only: |environment, path, options, progress| {
        let core = crate::open::open_read_only(environment, path, options, progress)?;
        Ok(run(core))
    },
    check: crate::check::check,
    inspect: crate::dump::inspect,
    repair: crate::repair::repair,
};

/// An open `alphard` store.
#[derive(Debug)]
pub struct AlphardStore {
    core: Owner<Core>,
}

/// A kept moment.
#[derive(Debug)]
struct AlphardSnapshot {
    pin: Arc<Pin>,
}

/// Bytes a background step may erase before it looks around again.
const STEP_BYTES: u64 = 1 << 20;

pub(crate) fn run(core: Arc<Core>) -> Arc<dyn Engine> {
    let core = Owner::new(core);
    if !core.health.is_of_reader() {
        keep_up(&core);
    }
    if core.environment.executor.runs_tasks() {
        let task = core.task(|core| {
            core.answer_all();
            StepOutcome::Asleep
        });
        let replier = core.environment.executor.spawn("alphard answers", task);
        _ = core.replier.set(replier);
        let workers = (0..core.submissions.count()).map(|at| worker(&core, at));
        _ = core.workers.set(workers.collect());
    }
    Arc::new(AlphardStore { core })
}

/// Starts the tasks that write: upkeep, and zeros ahead of writers.
fn keep_up(core: &Owner<Core>) {
    // A failure has poisoned the store, or will come again; either way the next
    // write or close tells the user.
    let step = core.task(|core| {
        core.step_in_background(STEP_BYTES)
            .unwrap_or(StepOutcome::Idle)
    });
    let task = core.environment.executor.spawn(ENGINE, step);
    if core.volume.stale().is_some() {
        task.notify();
    }
    _ = core.background.set(task);
    if core.begin_ahead() && core.environment.executor.runs_tasks() {
        let task = core.task(|core| core.zero_and_pause());
        let zeros = core.environment.executor.spawn("alphard zeros", task);
        _ = core.zeros.set(zeros);
    }
}

/// What works on one of the queues of submitted requests.
fn worker(core: &Owner<Core>, at: usize) -> Box<dyn BackgroundTask> {
    let task = core.task(move |core| {
        core.drain(at);
        StepOutcome::Idle
    });
    core.environment.executor.spawn("alphard requests", task)
}

/// What an engine without an order answers.
pub(crate) fn unordered(what: &'static str) -> Error {
    Error::Unsupported {
        engine: ENGINE,
        what,
        instead: "engines forest and wisckey keep keys in order; a full pass, which Rust and C have, visits every entry",
    }
}

/// The last operation of each key, in order: what comes before it in a batch is
/// never seen.
pub(crate) fn last_operations(batch: WriteBatch) -> Result<Vec<Operation>> {
    let mut operations = Vec::with_capacity(batch.len());
    let mut last = std::collections::HashMap::new();
    for (name, operation) in batch.into_operations() {
        if let Some(name) = name {
            cambium_api::engine::default_namespace_only(ENGINE, &name)?;
        }
        let key = match &operation {
            Operation::Put { key, .. } | Operation::Delete { key } => key.clone(),
            Operation::DeleteRange { .. } => return Err(unordered("delete_range")),
        };
        if let Some(earlier) = last.insert(key, operations.len()) {
            operations[earlier] = None;
        }
        operations.push(Some(operation));
    }
    Ok(operations.into_iter().flatten().collect())
}

impl AlphardStore {
    /// The consumers of a store that was made with `history=on`.
    fn consumers(&self) -> Result<&Consumers> {
        self.core.check_open()?;
        let consumers = self.core.consumers.get();
        consumers.ok_or_else(|| self.without_changes())
    }
}

fn iterate(
    pin: Arc<Pin>,
    order: IterationOrder,
    resume: Option<&ResumeToken>,
) -> Result<Box<dyn Cursor>> {
    if order != IterationOrder::Any {
        return Err(unordered("iterating in an order"));
    }
    Ok(Box::new(match resume {
        None => HashCursor::new(pin),
        Some(token) => HashCursor::resumed(pin, token)?,
    }))
}

impl Reader for AlphardStore {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        limits::check_key(key)?;
        self.core.get(key)
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        keys.iter().try_for_each(|key| limits::check_key(key))?;
        let pin = self.core.pin()?;
        self.core.multi_get_at(keys, pin.moment)
    }

    fn scan(&self, _range: &KeyRange, _direction: Direction) -> Result<Box<dyn Cursor>> {
        self.core.check_open()?;
        Err(unordered("scanning a range"))
    }

    fn iterate(
        &self,
        order: IterationOrder,
        resume: Option<&ResumeToken>,
    ) -> Result<Box<dyn Cursor>> {
        iterate(Arc::new(self.core.pin()?), order, resume)
    }
}

impl Reader for AlphardSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.pin.core.check_open()?;
        limits::check_key(key)?;
        self.pin.core.get_at(key, self.pin.moment)
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        self.pin.core.check_open()?;
        keys.iter().try_for_each(|key| limits::check_key(key))?;
        self.pin.core.multi_get_at(keys, self.pin.moment)
    }

    fn scan(&self, _range: &KeyRange, _direction: Direction) -> Result<Box<dyn Cursor>> {
        self.pin.core.check_open()?;
        Err(unordered("scanning a range"))
    }

    fn iterate(
        &self,
        order: IterationOrder,
        resume: Option<&ResumeToken>,
    ) -> Result<Box<dyn Cursor>> {
        self.pin.core.check_open()?;
        iterate(self.pin.clone(), order, resume)
    }
}

impl Snapshot for AlphardSnapshot {
    fn sequence(&self) -> SequenceNumber {
        SequenceNumber(self.pin.moment)
    }
}

impl Engine for AlphardStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            engine: ENGINE,
            keys: KeyKind::Bytes,
            ordered: false,
            insertion_order: false,
            named_snapshots: false,
            namespaces: false,
            droppable_namespaces: false,
            native_submit: true,
            changes: self.core.consumers.get().is_some(),
            readers_beside_writer: false,
        }
    }

    fn write_checked(
        &self,
        preconditions: &[Precondition],
        unchanged: Option<Arc<ReadSet>>,
        batch: WriteBatch,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        self.core.check_open()?;
        self.core.write_request(WriteRequest {
            preconditions: preconditions.to_vec(),
            unchanged,
            ..WriteRequest::new(batch, durability)?
        })
    }

    fn track_writes(&self) -> Result<()> {
        self.core.check_open()?;
        self.core.recent.start(|| drop(lock(&self.core.writer)));
        Ok(())
    }

    fn check_unchanged(&self, reads: &ReadSet) -> Result<SequenceNumber> {
        self.core.check_open()?;
        self.core.recent.check(reads)
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        Ok(Arc::new(AlphardSnapshot {
            pin: Arc::new(self.core.pin()?),
        }))
    }

    fn changes(
        &self,
        after: SequenceNumber,
        options: ChangeOptions,
    ) -> Result<Box<dyn ChangeFeed>> {
        self.consumers()?;
        Ok(Box::new(LogFeed::new(&self.core, after, options)?))
    }

    fn list_consumers(&self) -> Result<Vec<(String, SequenceNumber)>> {
        Ok(self.consumers()?.list())
    }

    fn move_consumer(&self, name: &str, to: Option<SequenceNumber>) -> Result<()> {
        self.core.move_consumer(self.consumers()?, name, to)
    }

    fn namespace(&self, name: &str) -> Result<Arc<dyn Engine>> {
        self.core.check_open()?;
        cambium_api::engine::default_namespace_only(ENGINE, name)?;
        Ok(Arc::new(AlphardStore {
            core: self.core.clone(),
        }))
    }

    fn approximate_size(&self, range: &KeyRange) -> Result<u64> {
        self.core.check_open()?;
        if !range.is_all() {
            return Err(unordered("the size of a range"));
        }
        let writer = lock(&self.core.writer);
        let given_out = writer.allocator.limit() - writer.superblock.first_block();
        let blocks = u64::from(given_out) - writer.allocator.free_blocks();
        Ok(blocks * u64::from(self.core.block_bytes))
    }

    fn sync(&self) -> Result<()> {
        self.write(WriteBatch::new(), Durability::Synced)?;
        self.core.mark_synced();
        Ok(())
    }

    fn compact(
        &self,
        options: &CompactOptions,
        progress: &dyn ProgressSink,
    ) -> Result<CompactReport> {
        self.core.compact(options, progress)
    }

    fn cancel(&self) {
        self.core.cancelled.store(true, Ordering::Release);
    }

    fn poison(&self, failure: &Error) {
        self.core.health.poison(failure.clone());
    }

    fn check(&self, progress: &dyn ProgressSink) -> Result<CheckReport> {
        crate::check::check_open_store(&self.core.pin()?, progress)
    }

    fn dump(&self, to: &mut dyn Write) -> Result<()> {
        self.core.check_open()?;
        crate::dump::dump(&self.core, to)
    }

    fn stats(&self) -> Result<Statistics> {
        self.core.statistics()
    }

    fn backup(&self, destination: &Path, progress: &dyn ProgressSink) -> Result<SequenceNumber> {
        let pin = Arc::new(self.core.pin()?);
        let last = SequenceNumber(pin.moment);
        crate::backup::back_up(&self.core, HashCursor::new(pin), destination, progress)?;
        Ok(last)
    }

    fn step(&self, budget: u64) -> Result<StepOutcome> {
        if self.core.environment.is_background_ahead() {
            return Ok(StepOutcome::WaitIo);
        }
        let is_reader = self.core.health.is_of_reader();
        match self.core.step(budget, false)? {
            // Where tasks run, one of them does it.
            StepOutcome::Idle if !is_reader && !self.core.environment.executor.runs_tasks() => {
                Ok(self.core.zero_ahead())
            }
            outcome => Ok(outcome),
        }
    }

    fn submit(&self, request: Request, completion: Completion) {
        self.core.submit(request, completion);
    }

    fn close(&self) -> Result<()> {
        self.core.drain_all();
        self.core.close()
    }
}
