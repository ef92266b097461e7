//! An open store with the value layer above its engine.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::merge::{Add, Append, Maximum};
use cambium_api::{
    Capabilities, ChangeFeed, ChangeOptions, CheckReport, CompactOptions, CompactReport,
    Completion, Cursor, Direction, Engine, Expiry, IterationOrder, KeyRange, MergeOperator,
    Precondition, ProgressSink, ReadSet, Reader, Request, Response, ResumeToken, Snapshot,
    Statistics, UnixMillis, WriteBatch,
};
use cambium_base::{Durability, Error, Result, SequenceNumber, Value};
use cambium_io::step::{BackgroundTask, Owner};
use cambium_io::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use cambium_io::sync::{Mutex, RwLock, lock, read, write};
use cambium_io::{Environment, StepOutcome};

use crate::changes::FormedFeed;
use crate::decompressed::Decompressed;
use crate::dictionary::StoreDictionary;
use crate::expiry::ExpiryClock;
use crate::form::{self, Encoder};
use crate::read::{FormedCursor, FormedSnapshot, Moment};
use crate::seeded_bug::SeededBug;
use crate::sweep::Sweep;

/// Merges of one key wait for each other in one of so many places.
const MERGE_PLACES: usize = 64;

/// The state that all handles, snapshots and cursors of an open store share.
pub(crate) struct Shared {
    pub environment: Environment,
    pub path: PathBuf,
    pub engine: &'static str,
    pub encoder: Encoder,
    pub dictionary: StoreDictionary,
    /// Where values are compressed.
    pub decompressed: Option<Decompressed>,
    pub expiry: Arc<ExpiryClock>,
    operators: RwLock<BTreeMap<String, Arc<dyn MergeOperator>>>,
    /// Transactions of merges that conflicted often.
    pub starving: AtomicUsize,
    pub merging: [Mutex<()>; MERGE_PLACES],
    pub counters: Counters,
}

/// How the values of a store are compressed.
pub(crate) struct Values {
    pub encoder: Encoder,
    pub dictionary: StoreDictionary,
    pub decompressed: Option<Decompressed>,
}

/// Since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub plain_bytes: AtomicU64,
    pub stored_bytes: AtomicU64,
    pub swept: AtomicU64,
}

/// The store itself, which background steps hold for their length.
pub(crate) struct Base {
    pub shared: Arc<Shared>,
    pub engine: Arc<dyn Engine>,
    sweep: Mutex<Sweep>,
    task: Mutex<Option<Box<dyn BackgroundTask>>>,
}

/// A store, or a namespace of one, whose values have forms.
pub(crate) struct FormedStore {
    pub shared: Arc<Shared>,
    pub inner: Arc<dyn Engine>,
    base: Owner<Base>,
}

impl Shared {
    /// True if the store has this defect.
    #[inline(always)]
    pub fn seeded(&self, bug: SeededBug) -> bool {
        self.encoder.seeded_bug.is(bug)
    }

    /// The merge operator of a name.
    pub fn operator(&self, name: &str) -> Result<Arc<dyn MergeOperator>> {
        let operators = read(&self.operators);
        operators.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = operators.keys().map(String::as_str).collect();
            Error::InvalidArgument(format!(
                "merge operator {name:?} is not registered with this store; registered are {}",
                known.join(", ")
            ))
        })
    }
}

/// The result of writing a file of the store's folder. A sync that failed may have dropped
/// names of the engine's files too, and the engine's next sync of the folder may succeed.
pub(crate) fn or_poison<T>(engine: &dyn Engine, result: Result<T>) -> Result<T> {
    if let Err(failure @ Error::SyncFailed { .. }) = &result {
        engine.poison(failure);
    }
    result
}

impl Base {
    /// Trains the dictionary, or does a piece of the sweep, if one is due.
    fn background_step(&self, budget: u64) -> Result<StepOutcome> {
        let shared = &self.shared;
        let file_system = &*shared.environment.file_system;
        let level = shared.encoder.level;
        let trained = shared.dictionary.train(file_system, &shared.path, level);
        if or_poison(&*self.engine, trained)? {
            return Ok(StepOutcome::Again);
        }
        match self.sweep.try_lock() {
            Ok(mut sweep) => sweep.step(self, budget),
            Err(_) => Ok(StepOutcome::Idle),
        }
    }

    /// A whole sweep, if an entry may have expired since the last one.
    fn sweep_now(&self) -> Result<()> {
        let mut sweep = lock(&self.sweep);
        sweep.end_rest();
        while sweep.step(self, STEP_BYTES)? == StepOutcome::Again {}
        Ok(())
    }
}

/// Bytes that a step of the background task may read.
const STEP_BYTES: u64 = 256 << 10;

impl FormedStore {
    pub fn above(
        environment: &Environment,
        path: &Path,
        engine: Arc<dyn Engine>,
        values: Values,
        (expires, writable): (bool, bool),
    ) -> Self {
        let builtin: [Arc<dyn MergeOperator>; 3] =
            [Arc::new(Add), Arc::new(Append), Arc::new(Maximum)];
        let operators = builtin.map(|operator| (operator.name().to_string(), operator));
        let shared = Arc::new(Shared {
            environment: environment.clone(),
            path: path.to_path_buf(),
            engine: engine.capabilities().engine,
            encoder: values.encoder,
            dictionary: values.dictionary,
            decompressed: values.decompressed,
            expiry: Arc::new(ExpiryClock::new(
                environment,
                path.to_path_buf(),
                (expires, writable),
                values.encoder.seeded_bug,
            )),
            operators: RwLock::new(operators.into()),
            starving: AtomicUsize::new(0),
            merging: std::array::from_fn(|_| Mutex::new(())),
            counters: Counters::default(),
        });
        let base = Base {
            shared: shared.clone(),
            engine: engine.clone(),
            sweep: Mutex::new(Sweep::default()),
            task: Mutex::new(None),
        };
        FormedStore {
            shared,
            inner: engine,
            base: Owner::new(Arc::new(base)),
        }
    }

    /// Lets a background task train the dictionary and take expired entries away, if none
    /// does yet.
    pub fn work_from_now_on(&self) {
        let executor = &self.shared.environment.executor;
        let mut task = lock(&self.base.task);
        if task.is_some() || !executor.runs_tasks() {
            return;
        }
        let work = self.base.task(|base| {
            let outcome = base.background_step(STEP_BYTES);
            outcome.unwrap_or(StepOutcome::Idle)
        });
        *task = Some(executor.spawn("cambium-values", work));
    }
}

impl Reader for FormedStore {
    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        match self.inner.get(key)? {
            Some(stored) => self.shared.decode(key, stored, None),
            None => Ok(None),
        }
    }

    fn get_into(&self, key: &[u8], buffer: &mut Vec<u8>) -> Result<bool> {
        if !self.inner.get_into(key, buffer)? {
            return Ok(false);
        }
        if form::is_plain(buffer) {
            return Ok(true);
        }
        let stored = Value::from(std::mem::take(buffer));
        let value = self.shared.decode(key, stored, None)?;
        buffer.extend_from_slice(value.as_deref().unwrap_or_default());
        Ok(value.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        let stored = self.inner.multi_get(keys)?;
        self.shared.decode_all(keys, stored, None)
    }

    fn expires_at(&self, key: &[u8]) -> Result<Option<UnixMillis>> {
        let stored = self.inner.get(key)?;
        self.shared.expiry_of(key, stored.as_ref(), None)
    }

    fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        let moment = self.shared.expiry.now();
        let cursor = self.inner.scan(range, direction)?;
        Ok(FormedCursor::above(
            &self.shared,
            cursor,
            Moment::of_cursor(moment),
        ))
    }

    fn iterate(
        &self,
        order: IterationOrder,
        resume: Option<&ResumeToken>,
    ) -> Result<Box<dyn Cursor>> {
        let moment = self.shared.expiry.now();
        let cursor = self.inner.iterate(order, resume)?;
        Ok(FormedCursor::above(
            &self.shared,
            cursor,
            Moment::of_cursor(moment),
        ))
    }
}

impl Engine for FormedStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<SequenceNumber> {
        match self.shared.encoder.leaves(value) {
            true => self.inner.put(key, value, durability),
            false => self.put_formed(key, value, durability),
        }
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<SequenceNumber> {
        self.inner.delete(key, durability)
    }

    fn delete_range(&self, range: KeyRange, durability: Durability) -> Result<SequenceNumber> {
        self.inner.delete_range(range, durability)
    }

    fn write_checked(
        &self,
        preconditions: &[Precondition],
        unchanged: Option<Arc<ReadSet>>,
        mut batch: WriteBatch,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        if unchanged.is_none() {
            return match preconditions {
                [] => self.write_formed(batch, durability),
                _ => self.write_formed_if(preconditions, batch, durability),
            };
        }
        self.encode_batch(&mut batch)?;
        let inner = &self.inner;
        inner.write_checked(preconditions, unchanged, batch, durability)
    }

    fn track_writes(&self) -> Result<()> {
        self.inner.track_writes()
    }

    fn check_unchanged(&self, reads: &ReadSet) -> Result<SequenceNumber> {
        self.inner.check_unchanged(reads)
    }

    fn set_expiry(
        &self,
        key: &[u8],
        expiry: Option<Expiry>,
        durability: Durability,
    ) -> Result<bool> {
        self.change_expiry(key, expiry, durability)
    }

    fn register_operator(&self, operator: Arc<dyn MergeOperator>) -> Result<()> {
        write(&self.shared.operators).insert(operator.name().to_string(), operator);
        Ok(())
    }

    fn apply_operator(
        &self,
        operator: &str,
        key: &[u8],
        current: Option<&[u8]>,
        operand: &[u8],
    ) -> Result<Vec<u8>> {
        let operator = self.shared.operator(operator)?;
        operator.merge(key, current, operand)
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let now = self.shared.expiry.now();
        let inner = self.inner.snapshot()?;
        Ok(Arc::new(FormedSnapshot::new(&self.shared, inner, now)))
    }

    fn changes(
        &self,
        after: SequenceNumber,
        options: ChangeOptions,
    ) -> Result<Box<dyn ChangeFeed>> {
        Ok(Box::new(FormedFeed {
            inner: self.inner.changes(after, options)?,
            shared: self.shared.clone(),
            undecoded: None,
        }))
    }

    fn list_consumers(&self) -> Result<Vec<(String, SequenceNumber)>> {
        self.inner.list_consumers()
    }

    fn move_consumer(&self, name: &str, to: Option<SequenceNumber>) -> Result<()> {
        self.inner.move_consumer(name, to)
    }

    fn create_named_snapshot(&self, name: &str) -> Result<()> {
        self.inner.create_named_snapshot(name)
    }

    fn list_named_snapshots(&self) -> Result<Vec<(String, SequenceNumber)>> {
        self.inner.list_named_snapshots()
    }

    fn named_snapshot(&self, name: &str) -> Result<Arc<dyn Snapshot>> {
        let now = self.shared.expiry.now();
        let inner = self.inner.named_snapshot(name)?;
        Ok(Arc::new(FormedSnapshot::new(&self.shared, inner, now)))
    }

    fn drop_named_snapshot(&self, name: &str) -> Result<()> {
        self.inner.drop_named_snapshot(name)
    }

    fn rollback(&self, name: &str) -> Result<()> {
        self.inner.rollback(name)?;
        self.shared.expiry.forget();
        Ok(())
    }

    fn namespace(&self, name: &str) -> Result<Arc<dyn Engine>> {
        Ok(Arc::new(FormedStore {
            shared: self.shared.clone(),
            inner: self.inner.namespace(name)?,
            base: self.base.clone(),
        }))
    }

    fn list_namespaces(&self) -> Result<Vec<String>> {
        self.inner.list_namespaces()
    }

    fn drop_namespace(&self, name: &str) -> Result<()> {
        self.inner.drop_namespace(name)
    }

    fn approximate_size(&self, range: &KeyRange) -> Result<u64> {
        self.inner.approximate_size(range)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn refresh(&self) -> Result<()> {
        self.inner.refresh()?;
        self.shared.expiry.refresh()
    }

    fn compact(
        &self,
        options: &CompactOptions,
        progress: &dyn ProgressSink,
    ) -> Result<CompactReport> {
        // Expired entries are garbage for the compaction only when they are deleted.
        self.base.sweep_now()?;
        self.inner.compact(options, progress)
    }

    fn cancel(&self) {
        self.inner.cancel();
    }

    fn note_refused(&self, kept_free: u64) {
        self.inner.note_refused(kept_free);
    }

    fn poison(&self, failure: &Error) {
        self.inner.poison(failure);
    }

    fn check(&self, progress: &dyn ProgressSink) -> Result<CheckReport> {
        self.inner.check(progress)
    }

    fn dump(&self, to: &mut dyn Write) -> Result<()> {
        self.inner.dump(to)
    }

    fn stats(&self) -> Result<Statistics> {
        let mut statistics = self.inner.stats()?;
        let counters = &self.shared.counters;
        let plain = counters.plain_bytes.load(Ordering::Relaxed);
        if plain > 0 {
            let stored = counters.stored_bytes.load(Ordering::Relaxed);
            statistics.bytes(
                "values_before_compression",
                plain,
                "values that were compressed, before it, since the store was opened",
            );
            statistics.bytes(
                "values_after_compression",
                stored,
                "the same values after it",
            );
        }
        if let Some(kept) = &self.shared.decompressed {
            let meaning = "memory for values after decompression, at most, which the store has \
                           reserved beside its engine";
            statistics.bytes("decompressed_cache_limit_bytes", kept.capacity(), meaning);
            let (hits, misses) = kept.hits_and_misses();
            let meaning = "values that did not have to be decompressed, since the store was opened";
            statistics.count("decompressed_hits", hits, meaning);
            let meaning = "values that were decompressed, since the store was opened";
            statistics.count("decompressed_misses", misses, meaning);
        }
        if self.shared.expiry.is_used() {
            statistics.count(
                "expired_entries_deleted",
                counters.swept.load(Ordering::Relaxed),
                "expired entries that background work has deleted since the store was opened",
            );
        }
        Ok(statistics)
    }

    fn backup(&self, destination: &Path, progress: &dyn ProgressSink) -> Result<SequenceNumber> {
        self.inner.backup(destination, progress)
    }

    fn step(&self, budget: u64) -> Result<StepOutcome> {
        match self.inner.step(budget)? {
            outcome @ (StepOutcome::Idle | StepOutcome::Asleep) => {
                match self.base.background_step(budget)? {
                    StepOutcome::Again => Ok(StepOutcome::Again),
                    _ => Ok(outcome),
                }
            }
            outcome => Ok(outcome),
        }
    }

    fn submit(&self, request: Request, completion: Completion) {
        match request {
            Request::Get { key } => {
                let (shared, of) = (self.shared.clone(), key.clone());
                let decoded = move |answer| {
                    completion(match answer {
                        Ok(Response::Value(Some(stored))) => {
                            shared.decode(&of, stored, None).map(Response::Value)
                        }
                        other => other,
                    });
                };
                self.inner.submit(Request::Get { key }, Box::new(decoded));
            }
            Request::Put {
                key,
                mut value,
                durability,
            } => {
                if let Err(error) = self.shared.encode(&mut value, None) {
                    return completion(Err(error));
                }
                let request = Request::Put {
                    key,
                    value,
                    durability,
                };
                self.inner.submit(request, completion);
            }
            Request::Write {
                mut batch,
                durability,
            } => {
                if batch.has_merges() {
                    return completion(self.write(batch, durability).map(Response::Written));
                }
                if let Err(error) = self.encode_batch(&mut batch) {
                    return completion(Err(error));
                }
                self.inner
                    .submit(Request::Write { batch, durability }, completion);
            }
            request @ (Request::Delete { .. } | Request::Sync) => {
                self.inner.submit(request, completion);
            }
        }
    }

    fn close(&self) -> Result<()> {
        let task = lock(&self.base.task).take();
        // It waits for the step that is under way.
        drop(task);
        if let Some(kept) = &self.shared.decompressed {
            kept.give_back();
        }
        self.inner.close()
    }
}
