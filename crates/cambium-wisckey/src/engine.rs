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

use crate::changes::LogFeed;
use crate::core::{Core, lock};
use crate::cursor::EntryCursor;
use crate::format::{FORMAT_VERSION, full_key};
use crate::names::{NO_NAMESPACE, Names};
use crate::options::{ENGINE, OPTIONS};
use crate::pin::Pin;
use crate::write::WriteRequest;

/// Engine `wisckey` as a kind of store, for the facade's list of engines.
#[allow(non_upper_case_globals)] // it is used as a unit struct is
pub const Wisckey: Kind = Kind {
    name: ENGINE,
    format_version: FORMAT_VERSION,
    summary: "keys in an LSM-tree, values in a log of their own: heavy loading, large values, little written twice",
    options: OPTIONS,
    owns_file: |name| {
        crate::format::TREE_FOLDERS.contains(&name) || crate::format::segment_number(name).is_some()
    },
    kept_options: &[],
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
        let core = crate::open::open_read_only(environment, path, options, progress)?;
        // Without background tasks: all that they do writes.
        let core = Owner::new(core);
        Ok(Arc::new(WisckeyStore { core, namespace: 0 }))
    },
    check: crate::check::check,
    inspect: crate::dump::inspect,
    repair: crate::repair::repair,
};

/// An open `wisckey` store, or a namespace of it.
#[derive(Debug)]
pub struct WisckeyStore {
    core: Owner<Core>,
    namespace: u16,
}

/// A kept moment of a namespace.
#[derive(Debug)]
struct WisckeySnapshot {
    pin: Pin,
    /// Namespaces of its moment.
    names: Arc<Names>,
    namespace: u16,
    /// The number whose keys it reads: another one where the namespace was made later.
    read_as: u16,
}

/// Bytes a background step may move before it looks around again.
const STEP_BYTES: u64 = 8 << 20;
/// The same of the tree's: a flush that came meanwhile waits for the end of a step.
const TREE_STEP_BYTES: u64 = 1 << 20;

/// Starts the background work: two tasks for the tree, so that a flush need not
/// wait for a compaction, and one for garbage collection.
pub(crate) fn run(core: Arc<Core>) -> Arc<dyn Engine> {
    let core = Owner::new(core);
    let spawn = |name: &str, step: fn(&Arc<Core>) -> Result<StepOutcome>| {
        // A failure has poisoned the store, or will come again; either way the next
        // write or close tells the user.
        let task = core.task(move |core| {
            let stepped = core.step_while_open(step);
            stepped.unwrap_or(StepOutcome::Idle)
        });
        core.environment.executor.spawn(name, task)
    };
    let tasks = vec![
        spawn("wisckey flush", |core| core.tree_step(TREE_STEP_BYTES)),
        spawn("wisckey tree", |core| {
            core.tree_or_log_step(TREE_STEP_BYTES)
        }),
        spawn("wisckey collect", |core| {
            core.background_collection(STEP_BYTES)
        }),
    ];
    _ = core.background.set(tasks);
    Arc::new(WisckeyStore { core, namespace: 0 })
}

fn scan_at(
    pin: Pin,
    namespace: u16,
    range: &KeyRange,
    direction: Direction,
) -> Result<Box<dyn Cursor>> {
    Ok(Box::new(EntryCursor::new(pin, namespace, range, direction)))
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
        None => EntryCursor::new(pin, namespace, &KeyRange::all(), Direction::Forward),
        Some(token) => EntryCursor::resumed(pin, namespace, token)?,
    }))
}

fn multi_get_at(pin: &Pin, namespace: u16, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
    let full_keys: Vec<Vec<u8>> = keys.iter().map(|key| full_key(namespace, key)).collect();
    pin.core.multi_get_at(pin, &full_keys)
}

impl WisckeyStore {
    /// The state now, of all namespaces.
    pub(crate) fn newest_state(&self) -> Result<Arc<dyn Snapshot>> {
        let (pin, names) = self.core.pin_with_names()?;
        Ok(Arc::new(WisckeySnapshot {
            pin,
            names,
            namespace: 0,
            read_as: 0,
        }))
    }

    /// A pin of a moment at which the namespace is there.
    fn pin(&self) -> Result<Pin> {
        let pin = self.core.pin()?;
        self.core.check_namespace(self.namespace)?;
        Ok(pin)
    }
}

impl Reader for WisckeyStore {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.core.check_open()?;
        check_key(key)?;
        let value = self.core.get_latest(&full_key(self.namespace, key))?;
        self.core.check_namespace(self.namespace)?;
        Ok(value)
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        multi_get_at(&self.pin()?, self.namespace, keys)
    }

    fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        scan_at(self.pin()?, self.namespace, range, direction)
    }

    fn iterate(
        &self,
        order: IterationOrder,
        resume: Option<&ResumeToken>,
    ) -> Result<Box<dyn Cursor>> {
        iterate_at(self.pin()?, self.namespace, order, resume)
    }
}

impl Reader for WisckeySnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let core = &self.pin.core;
        core.check_open()?;
        core.get_at(&self.pin, &full_key(self.read_as, key))
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        self.pin.core.check_open()?;
        multi_get_at(&self.pin, self.read_as, keys)
    }

    fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        scan_at(self.pin.again()?, self.read_as, range, direction)
    }

    fn iterate(
        &self,
        order: IterationOrder,
        resume: Option<&ResumeToken>,
    ) -> Result<Box<dyn Cursor>> {
        iterate_at(self.pin.again()?, self.read_as, order, resume)
    }
}

impl Snapshot for WisckeySnapshot {
    fn sequence(&self) -> SequenceNumber {
        SequenceNumber(self.pin.moment)
    }

    fn namespace_number(&self) -> u16 {
        self.namespace
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        self.pin.core.check_open()?;
        Ok(names_of(&self.names))
    }

    fn namespace(&self, name: &str) -> Result<Option<Arc<dyn Snapshot>>> {
        let known = self.names.number(name);
        let made_later = || self.pin.core.names.load().number(name);
        let Some(namespace) = known.or_else(made_later) else {
            return Ok(None);
        };
        Ok(Some(Arc::new(WisckeySnapshot {
            pin: self.pin.again()?,
            names: self.names.clone(),
            namespace,
            read_as: known.unwrap_or(NO_NAMESPACE),
        })))
    }
}

fn names_of(names: &Names) -> Vec<String> {
    names.all().map(|(name, _)| name.to_string()).collect()
}

impl Engine for WisckeyStore {
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
            readers_beside_writer: false,
        }
    }

    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<SequenceNumber> {
        self.core.check_open()?;
        check_key(key)?;
        check_stored_value(value)?;
        self.core.put(self.namespace, key, value, durability)
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
        let mut operations: Vec<(u16, Operation)> = Vec::with_capacity(batch.len());
        for (name, operation) in batch.into_operations() {
            let namespace = match name {
                None => self.namespace,
                Some(name) => self.core.namespace_number(&name)?,
            };
            operations.push((namespace, operation));
        }
        let request = WriteRequest::new(operations, durability);
        let request = request.with_preconditions(self.namespace, preconditions, unchanged);
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
        let (pin, names) = self.core.pin_with_names()?;
        if !names.has(self.namespace) {
            return Err(names.was_dropped(self.namespace));
        }
        Ok(Arc::new(WisckeySnapshot {
            pin,
            names,
            namespace: self.namespace,
            read_as: self.namespace,
        }))
    }

    fn changes(
        &self,
        after: SequenceNumber,
        options: ChangeOptions,
    ) -> Result<Box<dyn ChangeFeed>> {
        Ok(Box::new(LogFeed::new(&self.core, after, options)?))
    }

    fn list_consumers(&self) -> Result<Vec<(String, SequenceNumber)>> {
        self.core.check_open()?;
        Ok(self.core.consumers.list())
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
        let (pin, kept) = self.core.pin_named(name)?;
        Ok(Arc::new(WisckeySnapshot {
            pin,
            names: Arc::new(Names::of_numbers(&kept.namespaces)),
            namespace: 0,
            read_as: 0,
        }))
    }

    fn drop_named_snapshot(&self, name: &str) -> Result<()> {
        self.core.drop_named_snapshot(name)
    }

    fn rollback(&self, name: &str) -> Result<()> {
        self.core.rollback(name)
    }

    fn namespace(&self, name: &str) -> Result<Arc<dyn Engine>> {
        Ok(Arc::new(WisckeyStore {
            namespace: self.core.namespace_number(name)?,
            core: self.core.clone(),
        }))
    }

    fn list_namespaces(&self) -> Result<Vec<String>> {
        self.core.check_open()?;
        Ok(names_of(&self.core.names.load()))
    }

    fn drop_namespace(&self, name: &str) -> Result<()> {
        self.core.drop_namespace(name)
    }

    fn approximate_size(&self, range: &KeyRange) -> Result<u64> {
        self.core.check_namespace(self.namespace)?;
        self.core.approximate_size(self.namespace, range)
    }

    fn sync(&self) -> Result<()> {
        self.core
            .write_request(WriteRequest::new([], Durability::Synced))
            .map(|_| ())
    }

    fn compact(
        &self,
        options: &CompactOptions,
        progress: &dyn ProgressSink,
    ) -> Result<CompactReport> {
        self.core.compact(options, progress)
    }

    fn cancel(&self) {
        self.core.cancels.fetch_add(1, Ordering::AcqRel);
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
        crate::backup::back_up(self, &self.core, destination, progress)
    }

    fn step(&self, budget: u64) -> Result<StepOutcome> {
        self.core.step_while_open(|core| core.step(budget))
    }

    fn close(&self) -> Result<()> {
        self.core.close()
    }
}
