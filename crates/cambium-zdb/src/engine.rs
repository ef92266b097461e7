//! The engine traits over [`Core`]: keys come in as bytes, are integers or
//! strings from here on.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use cambium_api::limits::check_stored_value;
use cambium_api::{
    Capabilities, ChangeFeed, ChangeOptions, CheckReport, CompactOptions, CompactReport, Engine,
    KeyKind, KeyRange, Kind, Operation, Precondition, ProgressSink, ReadSet, Snapshot, Statistics,
    WriteBatch, gives_space_back,
};
use cambium_base::{Durability, Error, Result, SequenceNumber};
use cambium_io::StepOutcome;
use cambium_io::step::Owner;
use cambium_io::sync::atomic::Ordering;
use foldhash::fast::FixedState;

use crate::core::Core;
use crate::cursor::{integer_bounds, integer_key};
use crate::format::FORMAT_VERSION;
use crate::options::{ENGINE, Keys, OPTIONS};
use crate::read::Pin;
use crate::strings::unordered;
use crate::write::{Change, WriteRequest};

/// Engine `zdb` as a kind of store, for the facade's list of engines.
#[allow(non_upper_case_globals)] // it is used as a unit struct is
pub const Zdb: Kind = Kind {
    name: ENGINE,
    format_version: FORMAT_VERSION,
    summary: "flat index over append-only data files: dense integer keys at 4 to 8 bytes of memory each; string keys through hashed buckets",
    options: OPTIONS,
    owns_file: crate::open::is_of_zdb_alone,
    kept_options: &[],
    create: |environment, path, options| {
        let core = crate::open::make(environment, path, options)?.conclude()?;
        Ok(ZdbStore::run(core))
    },
    open: |environment, path, options, progress| {
        let core = crate::open::open(environment, path, options, progress)?;
        Ok(ZdbStore::run(core))
    },
    open_read_only: |environment, path, options, progress| {
        let core = crate::open::open_read_only(environment, path, options, progress)?;
        // Without a background task: all that it does writes.
        let core = Owner::new(core);
        Ok(Arc::new(ZdbStore { core }))
    },
    check: crate::check::check,
    inspect: crate::dump::inspect,
    repair: crate::repair::repair,
};

/// An open `zdb` store.
#[derive(Debug)]
pub struct ZdbStore {
    pub(crate) core: Owner<Core>,
}

/// A kept moment of a `zdb` store.
#[derive(Debug)]
pub(crate) struct ZdbSnapshot {
    pub pin: Pin,
}

/// Bytes a background step may move before it looks around again.
const STEP_BYTES: u64 = 4 << 20;

impl ZdbStore {
    pub(crate) fn run(core: Arc<Core>) -> Arc<dyn Engine> {
        let core = Owner::new(core);
        // A failure has poisoned the store, or will come again; either way the next
        // write or close tells the user.
        let step = core.task(|core| core.step(STEP_BYTES).unwrap_or(StepOutcome::Idle));
        let task = core.environment.executor.spawn("zdb", step);
        _ = core.background.set(task);
        Arc::new(ZdbStore { core })
    }

    fn integer_request(&self, batch: WriteBatch, durability: Durability) -> Result<WriteRequest> {
        let user_bytes = batch.bytes();
        let mut changes = Vec::with_capacity(batch.len());
        let mut ranges = false;
        for (_, operation) in batch.into_operations() {
            changes.push(match operation {
                Operation::Put { key, value } => Change::Put {
                    key: integer_key(&key)?,
                    value,
                },
                Operation::Delete { key } => Change::Delete {
                    key: integer_key(&key)?,
                    value: Vec::new(),
                },
                Operation::DeleteRange { range } => {
                    ranges = true;
                    match integer_bounds(&range) {
                        None => continue,
                        Some((from, last)) => Change::DeleteRange { from, last },
                    }
                }
            });
        }
        // Ranges are resolved, and with them repeated keys, by the writer.
        if changes.len() > 1 && !ranges {
            keep_last_of_each_key(&mut changes);
        }
        let mut request = WriteRequest::new(changes, durability);
        request.user_bytes = user_bytes;
        Ok(request)
    }
}

fn keep_last_of_each_key(changes: &mut Vec<Change>) {
    let key_of = |change: &Change| match change {
        Change::Put { key, .. } | Change::Delete { key, .. } => *key,
        Change::DeleteRange { from, .. } => *from,
    };
    let ascending = changes.windows(2).all(|pair| {
        let [first, second] = pair else { return true };
        key_of(first) < key_of(second)
    });
    if ascending {
        return;
    }
    let mut last: HashMap<u64, usize, FixedState> =
        HashMap::with_capacity_and_hasher(changes.len(), FixedState::default());
    for (place, change) in changes.iter().enumerate() {
        last.insert(key_of(change), place);
    }
    if last.len() < changes.len() {
        let mut place = 0;
        changes.retain(|change| {
            place += 1;
            last[&key_of(change)] == place - 1
        });
    }
}

impl Engine for ZdbStore {
    fn capabilities(&self) -> Capabilities {
        let integer = self.core.shape.keys == Keys::Integer;
        Capabilities {
            engine: ENGINE,
            keys: if integer {
                KeyKind::Integer
            } else {
                KeyKind::Bytes
            },
            ordered: integer,
            insertion_order: integer,
            named_snapshots: false,
            namespaces: false,
            droppable_namespaces: false,
            native_submit: false,
            changes: true,
            readers_beside_writer: false,
        }
    }

    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<SequenceNumber> {
        if self.core.shape.keys == Keys::String {
            let mut batch = WriteBatch::new();
            batch.put(key, value);
            return self.write(batch, durability);
        }
        self.core.check_open()?;
        check_stored_value(value)?;
        self.core.put(integer_key(key)?, value, durability)
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
        match self.core.shape.keys {
            Keys::Integer => {
                let operations = batch.operations().iter();
                let makes_room = gives_space_back(operations.map(|(_, operation)| operation));
                let mut request = self.integer_request(batch, durability)?;
                request.makes_room = makes_room;
                request.unchanged = unchanged;
                for precondition in preconditions {
                    let key = integer_key(precondition.key())?;
                    request.preconditions.push((key, precondition.clone()));
                }
                self.core.write_integers(request)
            }
            Keys::String if batch.is_empty() && preconditions.is_empty() && unchanged.is_none() => {
                self.core
                    .write_request(WriteRequest::new(Vec::new(), durability))
            }
            Keys::String => {
                let operations: Vec<Operation> = batch
                    .into_operations()
                    .into_iter()
                    .map(|(_, operation)| operation)
                    .collect();
                self.core
                    .string_write(preconditions, unchanged.as_deref(), &operations, durability)
            }
        }
    }

    fn track_writes(&self) -> Result<()> {
        self.core.check_open()?;
        self.core.recent.start(|| self.core.wait_for_writers());
        Ok(())
    }

    fn check_unchanged(&self, reads: &ReadSet) -> Result<SequenceNumber> {
        self.core.check_open()?;
        let newest = self.core.recent.check(reads)?;
        Ok(match self.core.shape.keys {
            Keys::Integer => newest,
            // Writers of string keys note their writes in any order: an older one may follow.
            Keys::String => reads.since,
        })
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        Ok(Arc::new(ZdbSnapshot {
            pin: self.core.pin()?,
        }))
    }

    fn changes(
        &self,
        after: SequenceNumber,
        options: ChangeOptions,
    ) -> Result<Box<dyn ChangeFeed>> {
        self.core.change_feed(after, options)
    }

    fn list_consumers(&self) -> Result<Vec<(String, SequenceNumber)>> {
        self.core.list_consumers()
    }

    fn move_consumer(&self, name: &str, to: Option<SequenceNumber>) -> Result<()> {
        self.core.move_consumer(name, to)
    }

    fn namespace(&self, name: &str) -> Result<Arc<dyn Engine>> {
        self.core.check_open()?;
        cambium_api::engine::default_namespace_only(ENGINE, name)?;
        Ok(Arc::new(ZdbStore {
            core: self.core.clone(),
        }))
    }

    fn approximate_size(&self, range: &KeyRange) -> Result<u64> {
        self.core.check_open()?;
        match self.core.shape.keys {
            Keys::Integer => self.core.approximate_bytes(integer_bounds(range)),
            Keys::String if range.is_all() => self.core.approximate_bytes(Some((0, u64::MAX))),
            Keys::String => Err(unordered("the size of a range")),
        }
    }

    fn sync(&self) -> Result<()> {
        self.core
            .write_request(WriteRequest::new(Vec::new(), Durability::Synced))
            .map(|_| ())
    }

    fn compact(
        &self,
        options: &CompactOptions,
        progress: &dyn ProgressSink,
    ) -> Result<CompactReport> {
        self.core.compact_all(options, progress)
    }

    fn cancel(&self) {
        self.core.cancelled.store(true, Ordering::Release);
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
