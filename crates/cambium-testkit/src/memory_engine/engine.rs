//! The open store.

use cambium_io::sync::atomic::{AtomicBool, Ordering};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use cambium_io::sync::{Mutex, MutexGuard, RwLock};

use cambium_api::{
    Capabilities, ChangeFeed, ChangeOptions, CheckReport, CompactOptions, CompactReport, Cursor,
    Direction, Durability, Engine, EngineKind, Error, IterationOrder, KeyKind, KeyRange, Operation,
    OptionValues, Precondition, ProgressSink, ReadSet, Reader, RecentWrites, Result, ResumeToken,
    SequenceNumber, Snapshot, Statistics, Value, WriteBatch, Written, limits,
};
use cambium_io::{Environment, FileLock, StepOutcome};
use cambium_storage::consumers::Consumers;

use super::Bug;
use super::cursor::{InsertionCursor, KeyCursor};
use super::history::{Feed, History};
use super::log::Log;
use super::open::{ENGINE, MemoryKind, report};
use super::state::{Moment, bounds};
use super::writer::Writer;

/// What the store, its snapshots and cursors share.
#[derive(Debug)]
pub(super) struct Core {
    environment: Environment,
    path: PathBuf,
    settings: Settings,
    moment: RwLock<Moment>,
    recent: RecentWrites,
    writer: Mutex<Writer>,
    /// Taken behind `writer`, by readers alone; held for no I/O.
    history: Mutex<History>,
    consumers: Consumers,
    closed: AtomicBool,
}

/// What an opening was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) bug: Option<Bug>,
    pub(super) history_bytes: u64,
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

    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn bug(&self) -> Option<Bug> {
        self.settings.bug
    }

    fn publish(&self, moment: Moment) {
        *self.moment.write().unwrap_or_else(PoisonError::into_inner) = moment;
    }
}

impl MemoryStore {
    pub(super) fn new(
        environment: &Environment,
        path: &Path,
        (log, moment, history): (Log, Moment, History),
        (lock, writable): (Box<dyn FileLock>, bool),
        settings: Settings,
    ) -> Result<Self> {
        let consumers = Consumers::read(&*environment.file_system, path, log.store())?;
        let writer = Writer {
            log,
            lock: Some(lock),
            writable,
            poison: None,
        };
        Ok(MemoryStore {
            core: Arc::new(Core {
                environment: environment.clone(),
                path: path.to_path_buf(),
                settings,
                moment: RwLock::new(moment),
                recent: RecentWrites::default(),
                writer: Mutex::new(writer),
                history: Mutex::new(history),
                consumers,
                closed: AtomicBool::new(false),
            }),
        })
    }

    /// A transaction's reads, without those that a seeded bug ignores.
    fn compared(&self, reads: &ReadSet, batch: &WriteBatch) -> ReadSet {
        let keeps_keys = self.core.bug() != Some(Bug::UpdateLost);
        let keeps_ranges = keeps_keys && self.core.bug() != Some(Bug::Phantom);
        let writes = |full: &[u8]| {
            let mut operations = batch.operations().iter();
            operations.any(|(_, operation)| match operation {
                Operation::Put { key, .. } | Operation::Delete { key } => *key == full[2..],
                Operation::DeleteRange { .. } => false,
            })
        };
        let mut left = ReadSet::new(reads.since);
        for key in reads.keys().filter(|_| keeps_keys) {
            if self.core.bug() != Some(Bug::WriteSkew) || writes(key) {
                left.add_key(key.to_vec());
            }
        }
        for (from, to) in reads.ranges().iter().filter(|_| keeps_ranges) {
            left.add_range(from.clone(), to.clone());
        }
        left
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
            changes: true,
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
        batch.check_limits()?;
        for (namespace, _) in batch.operations() {
            if let Some(name) = namespace {
                cambium_api::engine::default_namespace_only(ENGINE, name)?;
            }
        }
        let bug = self.core.bug();
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
        let first = moment.sequence.next();
        if !changes.is_empty() {
            writer.log.append(first, &changes);
        }
        for change in &changes {
            moment.apply(change);
        }
        let sequence = moment.sequence;
        let keys = changes.iter().map(|change| Written::Key(0, &change.key));
        self.core.recent.note(keys.map(|key| (sequence.0, key)));
        writer.secure(durability, keep, bug)?;
        self.core.publish(moment);
        let mut history = self.core.history();
        if !changes.is_empty() {
            history.add(first, changes);
        }
        if durability == Durability::Synced {
            history.synced = sequence;
        }
        Ok(sequence)
    }

    fn track_writes(&self) -> Result<()> {
        self.core.recent.start(|| drop(self.core.writer()));
        self.core.check_open()
    }

    /// No file of it is synced by its caller.
    fn poison(&self, _: &Error) {}

    fn check_unchanged(&self, reads: &ReadSet) -> Result<SequenceNumber> {
        self.core.check_open()?;
        // The write compares all of them.
        Ok(reads.since)
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let (core, moment) = (self.core.clone(), self.core.now()?);
        Ok(Arc::new(MemorySnapshot { core, moment }))
    }

    fn changes(
        &self,
        after: SequenceNumber,
        options: ChangeOptions,
    ) -> Result<Box<dyn ChangeFeed>> {
        let last = self.core.now()?.sequence;
        self.core.history().check(after, last)?;
        let core = self.core.clone();
        Ok(Box::new(Feed {
            core,
            after,
            options,
        }))
    }

    fn list_consumers(&self) -> Result<Vec<(String, SequenceNumber)>> {
        self.core.check_open()?;
        Ok(self.core.consumers.list())
    }

    fn move_consumer(&self, name: &str, to: Option<SequenceNumber>) -> Result<()> {
        let core = &self.core;
        // Held to the end, so that no compaction comes between.
        let mut writer = core.writer()?;
        writer.check_sound()?;
        if let Some(to) = to {
            let last = core.now()?.sequence;
            core.history().check(to, last)?;
            if to > core.history().synced {
                let keep = writer.log.buffered();
                writer.secure(Durability::Synced, keep, core.bug())?;
                core.history().synced = last;
            }
        }
        let files = &*core.environment.file_system;
        core.consumers.set(files, name, to)
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
        if core.bug() == Some(Bug::CompactionRevives) {
            let sequence = moment.sequence;
            let batches = core.history().batches.clone();
            let changes = batches.iter().flat_map(|batch| &batch.changes);
            for change in changes.filter(|change| change.value.is_some()) {
                if moment.value(&change.key).is_none() {
                    moment.apply(change);
                }
            }
            moment.sequence = moment.sequence.max(sequence);
            core.publish(moment.clone());
        }
        let oldest = core.consumers.oldest();
        let oldest = oldest.filter(|_| core.bug() != Some(Bug::HistoryDropped));
        let most_bytes = core.settings.history_bytes;
        let history = core.history().kept(&moment, oldest, most_bytes);
        // Until the new log is live the old one is whole: a failure before
        // the rename leaves the store as it was.
        let log = Log::create(
            &core.environment,
            &core.path,
            Some(&writer.log),
            &history,
            core.bug(),
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
        *core.history() = history;
        Ok(report)
    }

    fn cancel(&self) {}

    fn check(&self, _progress: &dyn ProgressSink) -> Result<CheckReport> {
        let core = &self.core;
        let mut writer = core.writer()?;
        if writer.poison.is_none() {
            let keep = writer.log.buffered();
            writer.secure(Durability::Written, keep, core.bug())?;
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
        let history = self.core.history();
        statistics.count(
            "oldest_change",
            history.start.sequence.0,
            "changes after this sequence number can be read",
        );
        statistics.bytes(
            "history_bytes",
            self.core.consumers.oldest().map_or(0, |_| history.bytes()),
            "log kept for consumers of changes",
        );
        Ok(statistics)
    }

    fn backup(&self, destination: &Path, _progress: &dyn ProgressSink) -> Result<SequenceNumber> {
        let moment = self.core.now()?;
        let options = OptionValues::default();
        let copy = MemoryKind.create(&self.core.environment, destination, &options)?;
        let mut batch = WriteBatch::new();
        for (key, slot) in moment.map.iter() {
            batch.put(key, &slot.value);
        }
        copy.write(batch, Durability::Synced)?;
        copy.close()?;
        Ok(moment.sequence)
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
            Ok(()) => writer.secure(Durability::Synced, keep, self.core.bug()),
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
