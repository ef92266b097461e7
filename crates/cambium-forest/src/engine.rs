//! The engine traits over [`Core`].

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use cambium_api::limits::{check_key, check_stored_value};
use cambium_api::{
    Capabilities, ChangeFeed, ChangeOptions, CheckReport, CompactOptions, CompactReport, Cursor,
    Direction, Engine, IterationOrder, KeyKind, KeyRange, Kind, Operation, Precondition,
    ProgressSink, ReadSet, Reader, ResumeToken, Snapshot, Statistics, WriteBatch,
};
use cambium_base::{Durability, Error, Result, SequenceNumber, Value};
use cambium_io::StepOutcome;
use cambium_io::step::Owner;
use cambium_io::sync::atomic::Ordering;

use crate::core::{Core, lock};
use crate::cursor::EntryCursor;
use crate::format::FORMAT_VERSION;
use crate::options::{ENGINE, OPTIONS};
use crate::view::{Pin, View};
use crate::write::WriteRequest;

/// Engine `forest` as a kind of store, for the facade's list of engines.
#[allow(non_upper_case_globals)] // it is used as a unit struct is
pub const Forest: Kind = Kind {
    name: ENGINE,
    format_version: FORMAT_VERSION,
    summary: "HB+-trie over an append-only file: ordered keys of any length and number, mixed work, snapshots, namespaces",
    options: OPTIONS,
    owns_file: crate::format::is_database_or_scratch,
    kept_options: &["compaction_threshold"],
    create: |environment, path, options| {
        Ok(run(
            crate::open::make(environment, path, options)?.conclude()?
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
        let core = crate::reader::open_read_only(environment, path, options, progress)?;
        // Without a background task: there is nothing to do in it.
        let core = Owner::new(core);
        Ok(Arc::new(ForestStore { core, namespace: 0 }))
    },
    check: crate::check::check,
    inspect: crate::dump::inspect,
    repair: crate::repair::repair,
};

/// An open `forest` store, or a namespace of it.
#[derive(Debug)]
pub struct ForestStore {
    core: Owner<Core>,
    namespace: u16,
}

/// A kept moment of a namespace.
#[derive(Debug)]
struct ForestSnapshot {
    pin: Pin,
    namespace: u16,
}

/// A moment of the whole store, to read.
pub(crate) fn snapshot_of(pin: Pin) -> Arc<dyn Snapshot> {
    Arc::new(ForestSnapshot { pin, namespace: 0 })
}

/// Bytes a background step may move before it looks around again.
const STEP_BYTES: u64 = 4 << 20;

pub(crate) fn run(core: Arc<Core>) -> Arc<dyn Engine> {
    let core = Owner::letting_go(core, Core::forget_compaction);
    // A failure has poisoned the store, or will come again; either way the next
    // write or close tells the user.
    let step = core.task(|core| {
        core.background_step(STEP_BYTES)
            .unwrap_or(StepOutcome::Idle)
    });
    let task = core.environment.executor.spawn("forest", step);
    _ = core.background.set(task);
    Arc::new(ForestStore { core, namespace: 0 })
}

impl ForestStore {
    fn check_preconditions(&self, preconditions: &[Precondition]) -> Result<()> {
        for (index, precondition) in preconditions.iter().enumerate() {
            check_key(precondition.key())?;
            let current = self.core.get_latest(self.namespace, precondition.key())?;
            if !precondition.holds(current.as_deref()) {
                return Err(Error::PreconditionFailed { index });
            }
        }
        Ok(())
    }
}

fn scan_at(
    pin: Pin,
    namespace: u16,
    range: &KeyRange,
    direction: Direction,
) -> Result<Box<dyn Cursor>> {
    let cursor = EntryCursor::new(pin, namespace, range.clone(), direction);
    Ok(Box::new(cursor))
}

fn iterate_at(
    pin: Pin,
    namespace: u16,
    order: IterationOrder,
    resume: Option<&ResumeToken>,
) -> Result<Box<dyn Cursor>> {
    if order == IterationOrder::Insertion {
        return Err(Error::Unsupported {
            engine: ENGINE,
            what: "iterating in insertion order",
            instead: "iterate by key, or use engine zdb with integer keys",
        });
    }
    Ok(Box::new(match resume {
        None => EntryCursor::new(pin, namespace, KeyRange::all(), Direction::Forward),
        Some(token) => EntryCursor::resumed(pin, namespace, token)?,
    }))
}

impl Reader for ForestStore {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.core.check_open()?;
        check_key(key)?;
        self.core.get_latest(self.namespace, key)
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        let pin = self.core.pin()?.of(self.namespace)?;
        self.core.multi_get_at(&pin, self.namespace, keys)
    }

    fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        scan_at(
            self.core.pin()?.of(self.namespace)?,
            self.namespace,
            range,
            direction,
        )
    }

    fn iterate(
        &self,
        order: IterationOrder,
        resume: Option<&ResumeToken>,
    ) -> Result<Box<dyn Cursor>> {
        iterate_at(
            self.core.pin()?.of(self.namespace)?,
            self.namespace,
            order,
            resume,
        )
    }
}

impl Reader for ForestSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let core = &self.pin.core;
        core.check_open()?;
        core.get_at(&self.pin, self.namespace, key)
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        let core = &self.pin.core;
        core.check_open()?;
        core.multi_get_at(&self.pin, self.namespace, keys)
    }

    fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        scan_at(self.pin.again()?, self.namespace, range, direction)
    }

    fn iterate(
        &self,
        order: IterationOrder,
        resume: Option<&ResumeToken>,
    ) -> Result<Box<dyn Cursor>> {
        iterate_at(self.pin.again()?, self.namespace, order, resume)
    }
}

impl Snapshot for ForestSnapshot {
    fn sequence(&self) -> SequenceNumber {
        SequenceNumber(self.pin.sequence)
    }

    fn namespace_number(&self) -> u16 {
        self.namespace
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        self.pin.core.check_open()?;
        Ok(names_of(&self.pin.view))
    }

    fn namespace(&self, name: &str) -> Result<Option<Arc<dyn Snapshot>>> {
        let Some(namespace) = self.pin.view.names.number(name) else {
            return Ok(None);
        };
        Ok(Some(Arc::new(ForestSnapshot {
            pin: self.pin.again()?,
            namespace,
        })))
    }
}

fn names_of(view: &View) -> Vec<String> {
    view.names
        .iter()
        .map(|(name, _)| name.to_string())
        .collect()
}

impl Engine for ForestStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            engine: ENGINE,
            keys: KeyKind::Bytes,
            ordered: true,
            insertion_order: false,
            named_snapshots: true,
            namespaces: true,
            droppable_namespaces: true,
            native_submit: false,
            changes: true,
            readers_beside_writer: true,
        }
    }

    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<SequenceNumber> {
        self.core.check_open()?;
        check_key(key)?;
        check_stored_value(value)?;
        let operation = Operation::Put {
            key: key.to_vec(),
            value: value.to_vec(),
        };
        let mut request = WriteRequest::new(vec![(self.namespace, operation)], durability);
        request.user_bytes = (key.len() + value.len()) as u64;
        self.core.write_request(request)
    }

    fn write_checked(
        &self,
        preconditions: &[Precondition],
        unchanged: Option<Arc<ReadSet>>,
        batch: WriteBatch,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        self.core.check_open()?;
        batch.check_limits()?;
        let user_bytes = batch.bytes();
        if !preconditions.is_empty() {
            // Before a namespace is made for the batch: a write that is refused
            // leaves none. The writer asks again when its turn comes.
            self.check_preconditions(preconditions)?;
        }
        let mut operations: Vec<(u16, Operation)> = Vec::with_capacity(batch.len());
        for (name, operation) in batch.into_operations() {
            let namespace = match name {
                None => self.namespace,
                Some(name) => self.core.namespace_number(&name)?,
            };
            operations.push((namespace, operation));
        }
        let mut request = WriteRequest::new(operations, durability);
        request.user_bytes = user_bytes;
        request.unchanged = unchanged;
        request.preconditions = preconditions
            .iter()
            .map(|precondition| (self.namespace, precondition.clone()))
            .collect();
        self.core.write_request(request)
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
        Ok(Arc::new(ForestSnapshot {
            pin: self.core.pin()?.of(self.namespace)?,
            namespace: self.namespace,
        }))
    }

    fn changes(
        &self,
        after: SequenceNumber,
        options: ChangeOptions,
    ) -> Result<Box<dyn ChangeFeed>> {
        Ok(Box::new(self.core.changes(after.0, options)?))
    }

    fn list_consumers(&self) -> Result<Vec<(String, SequenceNumber)>> {
        self.core.list_consumers()
    }

    fn move_consumer(&self, name: &str, to: Option<SequenceNumber>) -> Result<()> {
        self.core.move_consumer(name, to)
    }

    fn create_named_snapshot(&self, name: &str) -> Result<()> {
        self.core.create_named_snapshot(name)
    }

    fn list_named_snapshots(&self) -> Result<Vec<(String, SequenceNumber)>> {
        self.core.list_named_snapshots()
    }

    fn named_snapshot(&self, name: &str) -> Result<Arc<dyn Snapshot>> {
        let pin = self.core.pin_named(name)?;
        Ok(snapshot_of(pin))
    }

    fn drop_named_snapshot(&self, name: &str) -> Result<()> {
        self.core.drop_named_snapshot(name)
    }

    fn rollback(&self, name: &str) -> Result<()> {
        self.core.rollback(name)
    }

    fn namespace(&self, name: &str) -> Result<Arc<dyn Engine>> {
        Ok(Arc::new(ForestStore {
            namespace: self.core.namespace_number(name)?,
            core: self.core.clone(),
        }))
    }

    fn list_namespaces(&self) -> Result<Vec<String>> {
        self.core.check_open()?;
        Ok(names_of(&self.core.view.load()))
    }

    fn drop_namespace(&self, name: &str) -> Result<()> {
        self.core.drop_namespace(name)
    }

    fn approximate_size(&self, range: &KeyRange) -> Result<u64> {
        self.core.approximate_size(self.namespace, range)
    }

    fn refresh(&self) -> Result<()> {
        self.core.refresh()
    }

    fn sync(&self) -> Result<()> {
        self.core.sync_written()
    }

    fn compact(
        &self,
        options: &CompactOptions,
        progress: &dyn ProgressSink,
    ) -> Result<CompactReport> {
        self.core.compact(options, progress)
    }

    fn cancel(&self) {
        self.core.cancellations.fetch_add(1, Ordering::AcqRel);
    }

    fn note_refused(&self, kept_free: u64) {
        self.core.note_refused_by_caller(kept_free);
    }

    fn poison(&self, failure: &Error) {
        self.core.health.poison(failure.clone());
    }

    fn check(&self, progress: &dyn ProgressSink) -> Result<CheckReport> {
        crate::check::check_open_store(&self.core, progress)
    }

    fn dump(&self, to: &mut dyn Write) -> Result<()> {
        crate::dump::dump(&self.core, to)
    }

    fn stats(&self) -> Result<Statistics> {
        self.core.statistics()
    }

    fn backup(&self, destination: &Path, progress: &dyn ProgressSink) -> Result<SequenceNumber> {
        crate::backup::back_up(&self.core, destination, progress)
    }

    fn step(&self, budget: u64) -> Result<StepOutcome> {
        self.core.step(budget)
    }

    fn close(&self) -> Result<()> {
        self.core.close()
    }
}
