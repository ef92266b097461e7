//! The engine traits.
//!
//! # What a store promises
//!
//! **Order.** One sequence number, store-wide, 64 bits, dense, never reused.
//!
//! **Atomicity.** A batch is seen, and survives, whole or not at all.
//!
//! **Prefix.** After any crash the store equals the state after some prefix of
//! the writes in sequence order; every `Synced` write is in it.
//!
//! **Isolation.** Readers never wait for a writer; a cursor or snapshot sees
//! the state at its creation for as long as it lives.
//!
//! **Corruption.** Every byte is verified on the way in; damage answers
//! `Error::Corruption`, is never returned as data, and never panics.
//!
//! **I/O errors.** After a failed write or sync the store is poisoned: writes
//! answer the original error, reads go on. A write to a full disk is taken back and
//! answers `Error::NoSpace`, without poisoning. A failed sync, also one that failed for
//! lack of space, answers `Error::SyncFailed` and poisons.
//!
//! **Close.** After `close` every call answers `Error::Closed`.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use cambium_base::{Durability, Error, Result, SequenceNumber, Value};
use cambium_io::{Environment, StepOutcome};

use crate::batch::{Precondition, WriteBatch};
use crate::changes::{ChangeFeed, ChangeOptions};
use crate::conflicts::{FirstExpiry, ReadSet};
use crate::cursor::{Cursor, Direction, IterationOrder, KeyRange, ResumeToken};
use crate::expiry::{Expiry, UnixMillis};
use crate::merge::MergeOperator;
use crate::options::{OptionSpec, OptionValues};
use crate::report::{CheckReport, CompactOptions, CompactReport, ProgressSink, Statistics};

/// What keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Any bytes up to the limit.
    Bytes,
    /// Unsigned 64-bit integers as 8 bytes, big-endian.
    Integer,
}

/// What an engine, as configured, can do beyond the common part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The engine's name.
    pub engine: &'static str,
    /// What keys are.
    pub keys: KeyKind,
    /// `scan`, bounds and `delete_range` work.
    pub ordered: bool,
    /// `iterate` in insertion order works.
    pub insertion_order: bool,
    /// Named snapshots and `rollback` work.
    pub named_snapshots: bool,
    /// Namespaces other than the default one work.
    pub namespaces: bool,
    /// Namespaces can be dropped.
    pub droppable_namespaces: bool,
    /// `submit` is served natively, not by an adapter.
    pub native_submit: bool,
    /// `changes` and consumers work.
    pub changes: bool,
    /// Readers open the store beside a process that writes, and `refresh` takes what it has
    /// written.
    pub readers_beside_writer: bool,
}

/// Reading: a store, or a snapshot of it.
pub trait Reader: Send + Sync {
    /// The value of a key, or `None`.
    fn get(&self, key: &[u8]) -> Result<Option<Value>>;

    /// Puts the value of a key into the caller's buffer, replacing what was
    /// there; false, and an empty buffer, if there is none.
    fn get_into(&self, key: &[u8], buffer: &mut Vec<u8>) -> Result<bool> {
        buffer.clear();
        match self.get(key)? {
            Some(value) => {
                buffer.extend_from_slice(&value);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// The values of several keys as of one moment, in the order of the keys;
    /// the reads go to the device together.
    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>>;

    /// The moment at which a key's entry expires; `None` if it does not, or is not there.
    fn expires_at(&self, key: &[u8]) -> Result<Option<UnixMillis>> {
        self.get(key).map(|_| None)
    }

    /// Entries of a range in key order, where the engine keeps one.
    fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor>>;

    /// Every entry in an order of the engine's choosing (or the one asked
    /// for), from the start or from where an earlier cursor left off. Entries
    /// that are there throughout are visited at least once across resumes.
    fn iterate(
        &self,
        order: IterationOrder,
        resume: Option<&ResumeToken>,
    ) -> Result<Box<dyn Cursor>>;
}

/// The state at one moment, kept for as long as it is held.
pub trait Snapshot: Reader {
    /// The last write it sees.
    fn sequence(&self) -> SequenceNumber;

    /// The number by which conflicts name the snapshot's namespace; 0 is the default one.
    fn namespace_number(&self) -> u16 {
        0
    }

    /// Names of the store's namespaces, in order, the default one (`""`) first.
    /// One that was made later is empty here.
    fn namespaces(&self) -> Result<Vec<String>> {
        Ok(vec![String::new()])
    }

    /// The same moment of another namespace, or `None` if the store has none of
    /// that name. Engines without namespaces have none.
    fn namespace(&self, name: &str) -> Result<Option<Arc<dyn Snapshot>>> {
        _ = name;
        Ok(None)
    }

    /// The entry that expires first of those that were read from it, in any namespace.
    fn first_expiry(&self) -> Option<FirstExpiry> {
        None
    }
}

/// An open store.
pub trait Engine: Reader {
    /// What this store can do.
    fn capabilities(&self) -> Capabilities;

    /// Gives a key a value.
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<SequenceNumber> {
        let mut batch = WriteBatch::new();
        batch.put(key, value);
        self.write(batch, durability)
    }

    /// Takes a key away; no error if it is not there.
    fn delete(&self, key: &[u8], durability: Durability) -> Result<SequenceNumber> {
        let mut batch = WriteBatch::new();
        batch.delete(key);
        self.write(batch, durability)
    }

    /// Gives a key a value that expires.
    fn put_expiring(
        &self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        let mut batch = WriteBatch::new();
        batch.put_expiring(key, value, expiry);
        self.write(batch, durability)
    }

    /// Lets an entry expire at another moment, or never; false if the key is not there.
    fn set_expiry(
        &self,
        key: &[u8],
        expiry: Option<Expiry>,
        durability: Durability,
    ) -> Result<bool> {
        _ = (key, expiry, durability);
        Err(self.without_value_layer("expiring entries"))
    }

    /// Lets an operator make a key's next value of its current one and an operand,
    /// atomically against every other write. Costs a read, and a second one where another
    /// write of the key comes between.
    fn merge(
        &self,
        operator: &str,
        key: &[u8],
        operand: &[u8],
        durability: Durability,
    ) -> Result<SequenceNumber> {
        let mut batch = WriteBatch::new();
        batch.merge(operator, key, operand);
        self.write(batch, durability)
    }

    /// Knows a merge operator by its name from now on, in place of one of the same name.
    fn register_operator(&self, operator: Arc<dyn MergeOperator>) -> Result<()> {
        _ = operator;
        Err(self.without_value_layer("merging"))
    }

    /// What a registered operator makes of a key's current value and an operand; writes
    /// nothing.
    #[doc(hidden)]
    fn apply_operator(
        &self,
        operator: &str,
        key: &[u8],
        current: Option<&[u8]>,
        operand: &[u8],
    ) -> Result<Vec<u8>> {
        _ = (operator, key, current, operand);
        Err(self.without_value_layer("merging"))
    }

    /// The answer of an engine that was opened without the value layer.
    #[doc(hidden)]
    fn without_value_layer(&self, what: &'static str) -> Error {
        Error::Unsupported {
            engine: self.capabilities().engine,
            what,
            instead: "open the store through the facade, which puts the value layer above engines",
        }
    }

    /// Deletes all keys of a range, atomically.
    fn delete_range(&self, range: KeyRange, durability: Durability) -> Result<SequenceNumber> {
        let mut batch = WriteBatch::new();
        batch.delete_range(range);
        self.write(batch, durability)
    }

    /// Writes a batch, whole or not at all. Answers the sequence number of
    /// its last entry (or the last one given out, for a batch that changes
    /// nothing). With `Synced`, an empty batch still syncs what came before.
    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<SequenceNumber> {
        self.write_checked(&[], None, batch, durability)
    }

    /// Writes a batch if all preconditions hold at that moment, atomically
    /// against every other write; otherwise `Error::PreconditionFailed`.
    fn write_if(
        &self,
        preconditions: &[Precondition],
        batch: WriteBatch,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        self.write_checked(preconditions, None, batch, durability)
    }

    /// Remembers recent writes from now on, so that [`Engine::write_unchanged`] can
    /// compare them with what a transaction read. Takes at most
    /// [`MOST_BYTES`](crate::conflicts::MOST_BYTES) until the store is closed. Snapshots
    /// that are taken after it returns can be compared.
    fn track_writes(&self) -> Result<()>;

    /// Compares what a transaction read with the writes since its snapshot, without
    /// holding up writers. Answers the sequence number up to which nothing has changed.
    ///
    /// # Errors
    /// `Conflict`.
    fn check_unchanged(&self, reads: &ReadSet) -> Result<SequenceNumber>;

    /// Writes a batch if nothing that a transaction read was written since its snapshot,
    /// atomically against every other write; otherwise `Error::Conflict`. The set is
    /// [settled](ReadSet::settle). [`Transaction`](crate::Transaction) is how programs
    /// use it.
    fn write_unchanged(
        &self,
        reads: Arc<ReadSet>,
        batch: WriteBatch,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        self.write_checked(&[], Some(reads), batch, durability)
    }

    /// As [`Engine::write`], under the conditions of [`Engine::write_if`] and, where there is a
    /// set of reads, of [`Engine::write_unchanged`].
    fn write_checked(
        &self,
        preconditions: &[Precondition],
        unchanged: Option<Arc<ReadSet>>,
        batch: WriteBatch,
        durability: Durability,
    ) -> Result<SequenceNumber>;

    /// The state now, for as long as the answer is held.
    fn snapshot(&self) -> Result<Arc<dyn Snapshot>>;

    /// Takes the newest moment, where the store was opened for reading alone beside a process
    /// that writes. Snapshots and cursors keep their moments. Every other store shows its
    /// newest state already.
    ///
    /// # Errors
    /// Those of [`EngineKind::open_read_only`]; the store then keeps the moment that it has.
    fn refresh(&self) -> Result<()> {
        Ok(())
    }

    /// The batches that were committed after a sequence number, in order, from the log; 0
    /// begins with the store's first. Writers do not wait for it.
    ///
    /// # Errors
    /// `HistoryLost` where the log no longer has what came right after it;
    /// `InvalidArgument` for a number that the store has not given out yet.
    fn changes(
        &self,
        after: SequenceNumber,
        options: ChangeOptions,
    ) -> Result<Box<dyn ChangeFeed>> {
        _ = (after, options);
        Err(self.without_changes())
    }

    /// Names of consumers, with the last change that each is done with.
    fn list_consumers(&self) -> Result<Vec<(String, SequenceNumber)>> {
        Err(self.without_changes())
    }

    /// Makes a consumer, or moves it: it is done with all changes up to `to`, and the store
    /// keeps those behind it, up to the option `history_bytes`. `None` takes the consumer
    /// away. Durable when it returns, with every write up to `to`.
    ///
    /// # Errors
    /// `InvalidArgument` for a number that the store has not given out yet, and for an empty
    /// name or one over 255 bytes; `HistoryLost` where the history behind it is gone.
    fn move_consumer(&self, name: &str, to: Option<SequenceNumber>) -> Result<()> {
        _ = (name, to);
        Err(self.without_changes())
    }

    /// The answer of an engine without a change feed.
    #[doc(hidden)]
    fn without_changes(&self) -> Error {
        Error::Unsupported {
            engine: self.capabilities().engine,
            what: "a change feed",
            instead: "engines forest, wisckey and zdb have one; alphard, if it was made with history=on",
        }
    }

    /// Keeps the state now under a name, through crashes and compaction.
    fn create_named_snapshot(&self, name: &str) -> Result<()> {
        _ = name;
        Err(self.without_named_snapshots())
    }

    /// Names of kept states, with the last write each sees.
    fn list_named_snapshots(&self) -> Result<Vec<(String, SequenceNumber)>> {
        Err(self.without_named_snapshots())
    }

    /// A kept state to read, of all namespaces that it has: the answer is its default one. It
    /// stays readable when the name is dropped, until the answer is.
    ///
    /// # Errors
    /// `NotFound`.
    fn named_snapshot(&self, name: &str) -> Result<Arc<dyn Snapshot>> {
        _ = name;
        Err(self.without_named_snapshots())
    }

    /// Lets a kept state go.
    fn drop_named_snapshot(&self, name: &str) -> Result<()> {
        _ = name;
        Err(self.without_named_snapshots())
    }

    /// Brings the store back to a kept state.
    fn rollback(&self, name: &str) -> Result<()> {
        _ = name;
        Err(self.without_named_snapshots())
    }

    /// The answer of an engine without named snapshots.
    #[doc(hidden)]
    fn without_named_snapshots(&self) -> Error {
        // A closed store answers `Closed`.
        if let Err(error) = self.snapshot() {
            return error;
        }
        Error::Unsupported {
            engine: self.capabilities().engine,
            what: "named snapshots and rollback",
            instead: "engines forest and wisckey have them; or make a backup",
        }
    }

    /// A namespace of this store, made if it is not there; the default one is `""`.
    fn namespace(&self, name: &str) -> Result<Arc<dyn Engine>>;

    /// Names of all namespaces, in order, the default one (`""`) first.
    fn list_namespaces(&self) -> Result<Vec<String>> {
        Ok(vec![String::new()])
    }

    /// Takes a namespace away with everything in it, atomically, durable when it
    /// returns; compaction gives its space back. Snapshots and cursors that are
    /// open go on; everything else of the namespace answers `NotFound` from then
    /// on, also if another is made under the same name. A rollback to a named
    /// snapshot that has it brings it back. The default one cannot be dropped.
    fn drop_namespace(&self, name: &str) -> Result<()> {
        _ = name;
        Err(Error::Unsupported {
            engine: self.capabilities().engine,
            what: "dropping a namespace",
            instead: "engines forest and wisckey can; or empty the namespace with delete_range",
        })
    }

    /// About how many bytes on disk the entries of a range take: from a hundred entries on within
    /// a factor of 1.5 as a rule, and never more for a part than for the whole. Small ranges are
    /// counted; of large ones a few blocks of the index are read.
    fn approximate_size(&self, range: &KeyRange) -> Result<u64>;

    /// Raises everything written so far to `Synced`.
    fn sync(&self) -> Result<()>;

    /// Rewrites what is live and gives space back; reads and writes go on.
    fn compact(
        &self,
        options: &CompactOptions,
        progress: &dyn ProgressSink,
    ) -> Result<CompactReport>;

    /// Asks running long work (compaction) to stop; it answers `Cancelled`.
    fn cancel(&self);

    /// The caller refuses writes itself, since fewer than `kept_free` bytes of the disk are
    /// free: the engine gives space back until so many are, as if it had refused a write.
    /// Engines that need no notice do nothing.
    fn note_refused(&self, kept_free: u64) {
        _ = kept_free;
    }

    /// The caller has synced a file of the store's folder itself, and that failed: the engine
    /// takes no more writes, as after a failed sync of its own. The next sync of the folder
    /// may succeed, and what the failed one dropped is lost all the same.
    fn poison(&self, failure: &Error);

    /// Reads and verifies everything the open store holds.
    fn check(&self, progress: &dyn ProgressSink) -> Result<CheckReport>;

    /// Writes the structure as text for people.
    fn dump(&self, to: &mut dyn Write) -> Result<()>;

    /// Counters, sizes and amplification.
    fn stats(&self) -> Result<Statistics>;

    /// Copies the state now into `destination`, a folder that is empty or not
    /// there yet, durable when it returns; reads and writes go on. Answers the
    /// number of the last write that the copy holds. An engine shares files or
    /// blocks with the copy where the file system can, and copies entries elsewhere.
    fn backup(&self, destination: &Path, progress: &dyn ProgressSink) -> Result<SequenceNumber>;

    /// Does a bounded piece of background work. `budget` is about how many
    /// bytes it may move.
    fn step(&self, budget: u64) -> Result<StepOutcome>;

    /// Submits a request; the completion comes exactly once, on any thread,
    /// also after an error or a close, and must not block. Order holds per
    /// key. The default does the request at once, on the calling thread.
    fn submit(&self, request: Request, completion: Completion) {
        completion(self.serve(request));
    }

    /// Does what a [`Request`] asks, synchronously.
    fn serve(&self, request: Request) -> Result<Response> {
        match request {
            Request::Get { key } => self.get(&key).map(Response::Value),
            Request::Put {
                key,
                value,
                durability,
            } => self.put(&key, &value, durability).map(Response::Written),
            Request::Delete { key, durability } => {
                self.delete(&key, durability).map(Response::Written)
            }
            Request::Write { batch, durability } => {
                self.write(batch, durability).map(Response::Written)
            }
            Request::Sync => self.sync().map(|()| Response::Synced),
        }
    }

    /// Syncs, writes clean marks, and lets everything go. Later calls, also of
    /// cursors and snapshots, answer `Closed`. A second close waits for the first.
    fn close(&self) -> Result<()>;
}

/// What can be submitted.
#[derive(Clone, Debug)]
pub enum Request {
    /// See [`Reader::get`].
    Get {
        /// The key.
        key: Vec<u8>,
    },
    /// See [`Engine::put`].
    Put {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// How safe when the completion comes.
        durability: Durability,
    },
    /// See [`Engine::delete`].
    Delete {
        /// The key.
        key: Vec<u8>,
        /// How safe when the completion comes.
        durability: Durability,
    },
    /// See [`Engine::write`].
    Write {
        /// The batch.
        batch: WriteBatch,
        /// How safe when the completion comes.
        durability: Durability,
    },
    /// See [`Engine::sync`]: a barrier.
    Sync,
}

/// What a request answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// Of a get.
    Value(Option<Value>),
    /// Of a put, delete or write: its sequence number.
    Written(SequenceNumber),
    /// Of a sync.
    Synced,
}

/// Called once with the answer.
pub type Completion = Box<dyn FnOnce(Result<Response>) + Send>;

/// A way of making, opening and mending stores: one value per engine,
/// registered with the facade.
pub trait EngineKind: Send + Sync {
    /// Lower case: `zdb`, `forest`.
    fn name(&self) -> &'static str;

    /// The newest format version it reads, and the one it writes.
    fn format_version(&self) -> u32;

    /// One line for people: what it is best at.
    fn summary(&self) -> &'static str;

    /// Every option.
    fn options(&self) -> &'static [OptionSpec];

    /// True for names that this engine gives to files in a store's folder, and no
    /// other engine does: where a store's marker is damaged, a repair learns from
    /// them whose it is.
    fn owns_file(&self, name: &str) -> bool {
        _ = name;
        false
    }

    /// Names of options of each opening whose value at creation stays with the
    /// store as its default.
    fn kept_options(&self) -> &'static [&'static str] {
        &[]
    }

    /// Makes a store in a folder that is empty or not there yet, durable when
    /// it returns, and opens it.
    fn create(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
    ) -> Result<Arc<dyn Engine>>;

    /// Opens a store for reading and writing, recovering it where it was not
    /// closed cleanly. `options` are those that are not fixed at creation.
    fn open(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<Arc<dyn Engine>>;

    /// Opens a store for reading alone, writes nothing, and answers `Unsupported` to every
    /// write. What a crash left is recovered in memory alone, to the state that the next
    /// [`EngineKind::open`] comes to, and stays there until the store is closed.
    ///
    /// Where [`Capabilities::readers_beside_writer`] holds, a process may have the store open
    /// for writing: the reader shows one moment until [`Engine::refresh`]. Elsewhere the reader
    /// takes the lock that readers share, or none where there is no lock file and none can be
    /// made.
    fn open_read_only(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<Arc<dyn Engine>>;

    /// Verifies a store that is not open, writing nothing. `options` are those of
    /// [`EngineKind::open`].
    fn check(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<CheckReport>;

    /// Describes a store's files, writing nothing: layout, headers, blocks.
    fn inspect(&self, environment: &Environment, path: &Path, to: &mut dyn Write) -> Result<()>;

    /// Brings a damaged store back to what can be read, and says what was
    /// lost: one finding for each loss. `options` are those of [`EngineKind::open`].
    fn repair(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<CheckReport>;
}

/// The answer of engines without namespaces.
pub fn default_namespace_only(engine: &'static str, name: &str) -> Result<()> {
    if name.is_empty() {
        return Ok(());
    }
    Err(Error::Unsupported {
        engine,
        what: "namespaces",
        instead: "engines forest and wisckey have them; or open a second store",
    })
}
