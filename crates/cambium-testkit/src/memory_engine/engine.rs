//! The open store.

use cambium_io::sync::atomic::{AtomicBool, Ordering};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use cambium_io::sync::{Mutex, MutexGuard, RwLock};

use cambium_api::{
    Capabilities, CheckReport, CompactOptions, CompactReport, Cursor, Direction, Durability,
    Engine, EngineKind, Error, IterationOrder, KeyKind, KeyRange, Operation, OptionValues,
    Precondition, ProgressSink, ReadSet, Reader, RecentWrites, Result, ResumeToken, SequenceNumber,
    Snapshot, Statistics, Value, WriteBatch, Written, limits,
};
use cambium_io::{Environment, FileLock, StepOutcome};
use cambium_storage::health::Health;

use super::Bug;
use super::cursor::{InsertionCursor, KeyCursor};
use super::log::Log;
use super::open::{ENGINE, MemoryKind, report};
use super::state::{Change, Moment, bounds};

/// What the store, its snapshots and cursors share.
#[derive(Debug)]
pub(super) struct Core {
    environment: Environment,
    path: PathBuf,
    bug: Option<Bug>,
    moment: RwLock<Moment>,
    recent: RecentWrites,
    writer: Mutex<Writer>,
    closed: AtomicBool,
}

/// What only one writer at a time has.
#[derive(Debug)]
struct Writer {
    log: Log,
    lock: Option<Box<dyn FileLock>>,
    writable: bool,
    poison: Option<Error>,
    history: Vec<Change>,
}

/// An open `memory` store.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    core: Arc<Core>,
}

#[derive(Debug)]
struct MemorySnapshot {
    core: Arc<Core>,
    moment: Moment,
}

impl Core {
    pub(super) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        Ok(())
    }

    fn now(&self) -> Result<Moment> {
        self.check_open()?;
        let moment = self.moment.read().unwrap_or_else(PoisonError::into_inner);
        Ok(moment.clone())
    }

    /// The writer, unless the store is closed.
    fn writer(&self) -> Result<MutexGuard<'_, Writer>> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_open()?;
        Ok(writer)
    }

    fn publish(&self, moment: Moment) {
        *self.moment.write().unwrap_or_else(PoisonError::into_inner) = moment;
    }
}

impl Writer {
    /// Refuses writes after a failure, and to a store that was opened for reading alone.
    fn check_sound(&self) -> Result<()> {
        Health::of(ENGINE, self.writable).check_sound()?;
        match &self.poison {
            Some(error) => Err(Error::poisoned_by(error)),
            None => Ok(()),
        }
    }

    /// Keeps the failure that ends this store's writes.
    fn poison(&mut self, error: Error, bug: Option<Bug>) -> Error {
        if bug != Some(Bug::SyncRetried) {
            self.poison = Some(error.clone());
        }
        error
    }

    /// Brings what is buffered as far as `durability` asks. `keep` is how much
    /// of the buffer was there before this write, which a full disk refuses.
    fn secure(&mut self, durability: Durability, keep: usize, bug: Option<Bug>) -> Result<()> {
        if durability == Durability::Buffered {
            return Ok(());
        }
        if let Err(error) = self.log.flush() {
            if !error.is_no_space() {
                return Err(self.poison(error, bug));
            }
            self.log.forget_from(keep);
            return match self.log.cut_back() {
                Ok(()) => Err(error),
                Err(second) => Err(self.poison(second, bug)),
            };
        }
        if durability == Durability::Synced {
            if let Err(error) = self.log.sync() {
                return Err(self.poison(error, bug));
            }
        }
        Ok(())
    }
}

impl MemoryStore {
    pub(super) fn new(
        environment: &Environment,
        path: &Path,
        (log, moment): (Log, Moment),
        (lock, writable): (Box<dyn FileLock>, bool),
        bug: Option<Bug>,
    ) -> Self {
        let writer = Writer {
            log,
            lock: Some(lock),
            writable,
            poison: None,
            history: Vec::new(),
        };
        MemoryStore {
            core: Arc::new(Core {
                environment: environment.clone(),
                path: path.to_path_buf(),
                bug,
                moment: RwLock::new(moment),
                recent: RecentWrites::default(),
                writer: Mutex::new(writer),
                closed: AtomicBool::new(false),
            }),
        }
    }

    /// Keeps everything ever put, for one of the seeded bugs.
    pub(super) fn remember(&self, history: Vec<Change>) {
        if let Ok(mut writer) = self.core.writer() {
            writer.history = history;
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
        batch.check_limits()?;
        for (namespace, _) in batch.operations() {
            if let Some(name) = namespace {
                cambium_api::engine::default_namespace_only(ENGINE, name)?;
            }
        }
        let bug = self.core.bug;
        let mut writer = self.core.writer()?;
        writer.check_sound()?;
        let mut moment = self.core.now()?;
        for (index, precondition) in preconditions.iter().enumerate() {
            let current = moment.map.get(precondition.key());
            if !precondition.holds(current.map(|slot| slot.value.as_slice())) {
                return Err(Error::PreconditionFailed { index });
            }
        }
        if let Some(reads) = unchanged {
            self.core.recent.check(&self.compared(&reads, &batch))?;
        }
        let mut changes = Vec::new();
        for (_, operation) in batch.into_operations() {
            moment.resolve(operation, &mut changes);
        }
        let keep = writer.log.buffered();
        if !changes.is_empty() {
            writer.log.append(moment.sequence.next(), &changes);
        }
        for change in &changes {
            moment.apply(change);
        }
        let sequence = moment.sequence;
        let keys = changes.iter().map(|change| Written::Key(0, &change.key));
        self.core.recent.note(keys.map(|key| (sequence.0, key)));
        let secured = writer.secure(durability, keep, bug);
        if bug == Some(Bug::CompactionRevives) {
            writer.history.extend(changes);
        }
        secured?;
        self.core.publish(moment);
        Ok(sequence)
    }

    /// A transaction's reads, without those that a seeded bug ignores.
    fn compared(&self, reads: &ReadSet, batch: &WriteBatch) -> ReadSet {
        let keeps_keys = self.core.bug != Some(Bug::UpdateLost);
        let keeps_ranges = keeps_keys && self.core.bug != Some(Bug::Phantom);
        let writes = |full: &[u8]| {
            let mut operations = batch.operations().iter();
            operations.any(|(_, operation)| match operation {
                Operation::Put { key, .. } | Operation::Delete { key } => *key == full[2..],
                Operation::DeleteRange { .. } => false,
            })
        };
        let mut left = ReadSet::new(reads.since);
        for key in reads.keys().filter(|_| keeps_keys) {
            if self.core.bug != Some(Bug::WriteSkew) || writes(key) {
                left.add_key(key.to_vec());
            }
        }
        for (from, to) in reads.ranges().iter().filter(|_| keeps_ranges) {
            left.add_range(from.clone(), to.clone());
        }
        left
    }

    fn unsupported<T>(&self) -> Result<T> {
        self.core.check_open()?;
        Err(Error::Unsupported {
            engine: ENGINE,
            what: "named snapshots and rollback",
            instead: "use snapshot() while the store is open",
        })
    }
}

impl Moment {
    fn value(&self, key: &[u8]) -> Option<Value> {
        self.map.get(key).map(|slot| slot.value.clone())
    }
}

fn iterate_at(
    core: &Arc<Core>,
    moment: Moment,
    order: IterationOrder,
    resume: Option<&ResumeToken>,
) -> Result<Box<dyn Cursor>> {
    let core = core.clone();
    Ok(match (order, resume) {
        (IterationOrder::Insertion, resume) => {
            Box::new(InsertionCursor::new(core, &moment, resume)?)
        }
        (_, Some(token)) => Box::new(KeyCursor::resumed(core, moment, token)?),
        (_, None) => Box::new(KeyCursor::new(
            core,
            moment,
            KeyRange::all(),
            Direction::Forward,
        )),
    })
}

macro_rules! read_from_a_moment {
    ($moment:ident) => {
        fn get(&self, key: &[u8]) -> Result<Option<Value>> {
            limits::check_key(key)?;
            Ok(self.$moment()?.value(key))
        }

        fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
            let moment = self.$moment()?;
            Ok(keys.iter().map(|key| moment.value(key)).collect())
        }

        fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
            range.check_limits()?;
            let (core, moment) = (self.core.clone(), self.$moment()?);
            let cursor = KeyCursor::new(core, moment, range.clone(), direction);
            Ok(Box::new(cursor))
        }

        fn iterate(
            &self,
            order: IterationOrder,
            resume: Option<&ResumeToken>,
        ) -> Result<Box<dyn Cursor>> {
            iterate_at(&self.core, self.$moment()?, order, resume)
        }
    };
}

impl MemoryStore {
    fn read_moment(&self) -> Result<Moment> {
        self.core.now()
    }
}

impl MemorySnapshot {
    fn read_moment(&self) -> Result<Moment> {
        self.core.check_open()?;
        Ok(self.moment.clone())
    }
}

impl Reader for MemoryStore {
    read_from_a_moment!(read_moment);
}

impl Reader for MemorySnapshot {
    read_from_a_moment!(read_moment);
}

impl Snapshot for MemorySnapshot {
    fn sequence(&self) -> SequenceNumber {
        self.moment.sequence
    }
}

impl Engine for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            engine: ENGINE,
            keys: KeyKind::Bytes,
            ordered: true,
            insertion_order: true,
            named_snapshots: false,
            namespaces: false,
            droppable_namespaces: false,
            native_submit: false,
            changes: false,
        }
    }

    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<SequenceNumber> {
        self.write_checked(&[], None, batch, durability)
    }

    fn write_if(
        &self,
        preconditions: &[Precondition],
        batch: WriteBatch,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        self.write_checked(preconditions, None, batch, durability)
    }

    fn track_writes(&self) -> Result<()> {
        self.core.recent.start(|| drop(self.core.writer()));
        self.core.check_open()
    }

    fn check_unchanged(&self, reads: &ReadSet) -> Result<SequenceNumber> {
        self.core.check_open()?;
        // The write compares all of them.
        Ok(reads.since)
    }

    fn write_unchanged(
        &self,
        reads: Arc<ReadSet>,
        batch: WriteBatch,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        self.write_checked(&[], Some(reads), batch, durability)
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let (core, moment) = (self.core.clone(), self.core.now()?);
        Ok(Arc::new(MemorySnapshot { core, moment }))
    }

    fn create_named_snapshot(&self, _name: &str) -> Result<()> {
        self.unsupported()
    }

    fn list_named_snapshots(&self) -> Result<Vec<(String, SequenceNumber)>> {
        self.unsupported()
    }

    fn drop_named_snapshot(&self, _name: &str) -> Result<()> {
        self.unsupported()
    }

    fn rollback(&self, _name: &str) -> Result<()> {
        self.unsupported()
    }

    fn namespace(&self, name: &str) -> Result<Arc<dyn Engine>> {
        self.core.check_open()?;
        cambium_api::engine::default_namespace_only(ENGINE, name)?;
        Ok(Arc::new(self.clone()))
    }

    fn approximate_size(&self, range: &KeyRange) -> Result<u64> {
        let moment = self.core.now()?;
        let Some(bounds) = bounds(range) else {
            return Ok(0);
        };
        let entries = moment.map.range::<[u8], _>(bounds);
        Ok(entries
            .map(|(key, slot)| (key.len() + slot.value.len()) as u64)
            .sum())
    }

    fn sync(&self) -> Result<()> {
        self.write(WriteBatch::new(), Durability::Synced)
            .map(|_| ())
    }

    fn compact(
        &self,
        _options: &CompactOptions,
        _progress: &dyn ProgressSink,
    ) -> Result<CompactReport> {
        let core = &self.core;
        let mut writer = core.writer()?;
        writer.check_sound()?;
        let mut moment = core.now()?;
        if core.bug == Some(Bug::CompactionRevives) {
            let sequence = moment.sequence;
            for change in writer
                .history
                .iter()
                .filter(|change| change.value.is_some())
            {
                if moment.value(&change.key).is_none() {
                    moment.apply(change);
                }
            }
            moment.sequence = moment.sequence.max(sequence);
            core.publish(moment.clone());
        }
        // Until the new log is live the old one is whole: a failure before
        // the rename leaves the store as it was.
        let log = Log::create(
            &core.environment,
            &core.path,
            Some(&writer.log),
            &moment,
            core.bug,
        )
        .inspect_err(|_| discard_new(core))?;
        if let Err(error) = log.install(&core.environment, &core.path) {
            // Which of the two names holds is not known any more.
            return Err(writer.poison(error, None));
        }
        let report = CompactReport {
            bytes_written: log.end(),
            documents: moment.map.len() as u64,
            ..CompactReport::default()
        };
        writer.log = log;
        Ok(report)
    }

    fn cancel(&self) {}

    fn check(&self, _progress: &dyn ProgressSink) -> Result<CheckReport> {
        let core = &self.core;
        let mut writer = core.writer()?;
        if writer.poison.is_none() {
            let keep = writer.log.buffered();
            writer.secure(Durability::Written, keep, core.bug)?;
        }
        let recovered = Log::read(&core.environment, &core.path, false, None)?;
        Ok(report(&core.path, &recovered))
    }

    fn dump(&self, to: &mut dyn Write) -> Result<()> {
        write_moment(&self.core.now()?, &self.core.path, to)
    }

    fn stats(&self) -> Result<Statistics> {
        let moment = self.core.now()?;
        let mut statistics = Statistics::default();
        statistics.count("entries", moment.map.len() as u64, "keys that are there");
        statistics.count("sequence", moment.sequence.0, "the last write");
        Ok(statistics)
    }

    fn backup(&self, destination: &Path, _progress: &dyn ProgressSink) -> Result<()> {
        let moment = self.core.now()?;
        let options = OptionValues::default();
        let copy = MemoryKind.create(&self.core.environment, destination, &options)?;
        let mut batch = WriteBatch::new();
        for (key, slot) in moment.map.iter() {
            batch.put(key, &slot.value);
        }
        copy.write(batch, Durability::Synced)?;
        copy.close()
    }

    fn step(&self, _budget: u64) -> Result<StepOutcome> {
        self.core.check_open()?;
        Ok(StepOutcome::Idle)
    }

    fn close(&self) -> Result<()> {
        let Ok(mut writer) = self.core.writer() else {
            return Ok(());
        };
        let keep = writer.log.buffered();
        let synced = match writer.check_sound() {
            // After a failure the content of the device is unknown: recovery finds it out.
            Err(_) => Ok(()),
            Ok(()) => writer.secure(Durability::Synced, keep, self.core.bug),
        };
        self.core.closed.store(true, Ordering::Release);
        writer.lock.take();
        synced
    }
}

/// Gives back the space of a log that could not be finished. A failure leaves
/// a file that the next one overwrites.
fn discard_new(core: &Core) {
    let path = core.path.join(super::log::NEW_NAME);
    _ = core.environment.file_system.remove(&path);
}

/// One line for each entry, as text for people.
pub(super) fn write_moment(moment: &Moment, path: &Path, to: &mut dyn Write) -> Result<()> {
    let mut text = format!("{} entries through {}\n", moment.map.len(), moment.sequence);
    for (key, slot) in moment.map.iter() {
        let key = cambium_base::hexdump::readable(key);
        text.push_str(&format!(
            "{} {key} {} bytes\n",
            slot.sequence,
            slot.value.len()
        ));
    }
    to.write_all(text.as_bytes())
        .map_err(|error| Error::io("write", path, error))
}
