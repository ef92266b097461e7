//! Transactions: reads of one moment and writes that become visible together, if nobody
//! changed meanwhile what was read.
//!
//! A [`Transaction`] reads from a snapshot, with its own writes above it, and keeps its
//! writes in memory. [`Transaction::commit`] gives the engine one batch and the set of
//! all keys and ranges that were read; the engine accepts the batch only if none of them
//! was written since the snapshot ([`crate::conflicts`]). So committed transactions are
//! serializable, in the order of their commits. A transaction holds no lock, and one that
//! writes nothing never conflicts.
//!
//! Memory: what was read (keys, not values) and what was written, until the transaction
//! ends, and what its snapshot keeps.

mod compare;
mod entries;
mod writes;

use std::any::Any;
use std::ops::Deref;
use std::sync::{Arc, PoisonError};

use cambium_base::{Conflict, Durability, Error, Result, SequenceNumber, Value};
use cambium_io::sync::atomic::{AtomicUsize, Ordering};
use cambium_io::sync::{Mutex, MutexGuard};

use crate::batch::Namespace;
use crate::conflicts::{ReadSet, full_key, namespace_end};
use crate::cursor::KeyRange;
use crate::engine::{Engine, Snapshot};
use crate::expiry::Expiry;
use crate::limits;

pub use entries::TransactionEntries;
use writes::{Found, Write, Writes};

/// So often [`transact`] runs a transaction before it answers its conflict.
pub const MOST_ATTEMPTS: u32 = 64;
/// A transaction that lost so often goes before those that begin.
pub const STARVES_AFTER: u32 = 4;
/// So often a commit compares its reads with a new snapshot, because the store has
/// forgotten older writes, before it answers [`Conflict::TooMuchWritten`].
const MOST_COMPARISONS: u32 = 4;

/// A transaction. Reads and writes go to the namespace it was begun on;
/// [`Transaction::namespace`] reaches the others. Dropping it forgets its writes.
///
/// All calls take `&self`, so that a scan may go on while the transaction writes; such a
/// scan meets the writes.
#[derive(Debug)]
pub struct Transaction {
    main: TransactionView,
    durability: Durability,
}

/// One namespace of a transaction.
#[derive(Clone)]
pub struct TransactionView {
    shared: Arc<Shared>,
    snapshot: Arc<dyn Snapshot>,
    number: u16,
}

/// A place in a transaction that [`TransactionView::roll_back_to`] comes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(u64);

struct Shared {
    engine: Arc<dyn Engine>,
    snapshot: Arc<dyn Snapshot>,
    state: Mutex<State>,
    /// Keeps the store open.
    held: Option<Arc<dyn Any + Send + Sync>>,
}

#[derive(Debug, Default)]
struct State {
    reads: ReadSet,
    writes: Writes,
    /// Namespaces beside the one that the transaction was begun on.
    names: Vec<(u16, Arc<str>)>,
    has_ended: bool,
}

impl std::fmt::Debug for TransactionView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sequence = self.snapshot.sequence().0;
        write!(f, "TransactionView(at {sequence}, {})", self.number)
    }
}

impl Deref for Transaction {
    type Target = TransactionView;

    fn deref(&self) -> &TransactionView {
        &self.main
    }
}

impl Shared {
    /// The state of a transaction that has not ended.
    fn state(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.has_ended {
            return Err(Error::InvalidArgument(
                "the transaction has ended: begin another one".to_string(),
            ));
        }
        Ok(state)
    }
}

impl Transaction {
    /// Begins a transaction on an engine, whose commit is as safe as `durability` says.
    /// `held` lives as long as the transaction and its iterators.
    ///
    /// # Errors
    /// Those of [`Engine::snapshot`].
    pub fn begin(
        engine: &Arc<dyn Engine>,
        durability: Durability,
        held: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Self> {
        engine.track_writes()?;
        let snapshot = engine.snapshot()?;
        let state = State {
            reads: ReadSet::new(snapshot.sequence()),
            ..State::default()
        };
        let number = snapshot.namespace_number();
        let shared = Arc::new(Shared {
            engine: engine.clone(),
            snapshot: snapshot.clone(),
            state: Mutex::new(state),
            held,
        });
        Ok(Transaction {
            main: TransactionView {
                shared,
                snapshot,
                number,
            },
            durability,
        })
    }

    /// Makes the commit as safe as `durability` says, whatever the transaction was begun
    /// with.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Another namespace of the same store, at the same moment; made if it is not there.
    /// Its writes are part of this transaction.
    ///
    /// # Errors
    /// Those of [`Engine::namespace`].
    pub fn namespace(&self, name: &str) -> Result<TransactionView> {
        let shared = &self.main.shared;
        let snapshot = match shared.snapshot.namespace(name)? {
            Some(snapshot) => snapshot,
            // An engine without namespaces has the default one.
            None if name.is_empty() => shared.snapshot.clone(),
            None => {
                let made = shared.engine.namespace(name)?;
                match shared.snapshot.namespace(name)? {
                    Some(snapshot) => snapshot,
                    // It was not there at the transaction's moment.
                    None => Arc::new(compare::Empty {
                        number: made.snapshot()?.namespace_number(),
                        sequence: shared.snapshot.sequence(),
                    }),
                }
            }
        };
        let number = snapshot.namespace_number();
        let mut state = shared.state()?;
        state.reads.name(number, name);
        if number != self.main.number && state.names.iter().all(|(known, _)| *known != number) {
            state.names.push((number, Arc::from(name)));
        }
        drop(state);
        Ok(TransactionView {
            shared: shared.clone(),
            snapshot,
            number,
        })
    }

    /// Makes all writes visible, or none, with the durability that the transaction was
    /// begun with. A transaction without writes answers its snapshot's sequence number.
    ///
    /// # Errors
    /// `Conflict` if a key or range that was read was changed since, or an entry that was read
    /// has expired; otherwise as of [`Engine::write`]. Nothing is written then.
    pub fn commit(self) -> Result<SequenceNumber> {
        let durability = self.durability;
        let shared = &self.main.shared;
        let (engine, held) = (shared.engine.clone(), shared.held.clone());
        let (mut reads, writes, names) = {
            let mut state = shared.state()?;
            state.has_ended = true;
            (
                std::mem::take(&mut state.reads),
                std::mem::take(&mut state.writes),
                std::mem::take(&mut state.names),
            )
        };
        if writes.is_empty() {
            return Ok(shared.snapshot.sequence());
        }
        let batch = writes.into_batch(|full| name_of(number_of(full), &names));
        reads.settle();
        reads.expires(shared.snapshot.first_expiry());
        self.verify(&mut reads, &names)?;
        // Writers keep old versions for open snapshots, and this one has served.
        drop(self);
        let written = engine.write_unchanged(Arc::new(reads), batch, durability);
        drop(held);
        written
    }

    /// Forgets all writes; the same as dropping the transaction.
    pub fn roll_back(self) {}

    /// Compares the reads with what was written since the snapshot, so that little is left
    /// to compare while other writers wait.
    fn verify(&self, reads: &mut ReadSet, names: &Names) -> Result<()> {
        let shared = &self.main.shared;
        let mut comparisons = 0;
        loop {
            match shared.engine.check_unchanged(reads) {
                Ok(since) => {
                    reads.since = since;
                    return Ok(());
                }
                Err(Error::Conflict {
                    conflict: Conflict::TooMuchWritten,
                }) if comparisons < MOST_COMPARISONS => {
                    comparisons += 1;
                    let now = shared.engine.snapshot()?;
                    compare::compare(reads, names, &shared.snapshot, &now)?;
                    reads.since = now.sequence();
                }
                Err(other) => return Err(other),
            }
        }
    }
}

impl Drop for Transaction {
    /// Its views and iterators answer that it has ended.
    fn drop(&mut self) {
        let state = self.main.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner).has_ended = true;
    }
}

impl TransactionView {
    /// The transaction keeps this open: it was begun with it.
    pub fn held(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.shared.held.as_deref()
    }

    /// The sequence number of the moment that the transaction reads.
    pub fn sequence(&self) -> SequenceNumber {
        self.snapshot.sequence()
    }

    fn full_key(&self, key: &[u8]) -> Vec<u8> {
        full_key(self.number, key)
    }

    /// A range's ends as full keys.
    fn full_range(&self, range: &KeyRange) -> (Vec<u8>, Option<Vec<u8>>) {
        let from = self.full_key(range.from.as_deref().unwrap_or_default());
        let to = match &range.to {
            Some(to) => Some(self.full_key(to)),
            None => namespace_end(self.number),
        };
        (from, to)
    }

    /// The value of a key, as this transaction wrote it or else as of its moment. The key
    /// counts as read.
    ///
    /// # Errors
    /// Those of [`Reader::get`](crate::Reader::get); `InvalidArgument` after the transaction's end.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        limits::check_key(key)?;
        let full = self.full_key(key);
        {
            let mut state = self.shared.state()?;
            if let Found::Written(write) = state.writes.find(&full) {
                return Ok(write.value);
            }
            state.reads.add_key(full);
        }
        self.snapshot.get(key)
    }

    /// The values of several keys, in their order; the reads go to the device together.
    /// Otherwise as [`TransactionView::get`].
    ///
    /// # Errors
    /// As of [`TransactionView::get`].
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        keys.iter().try_for_each(|key| limits::check_key(key))?;
        let mut values = vec![None; keys.len()];
        let (mut places, mut unwritten) = (Vec::new(), Vec::new());
        {
            let mut state = self.shared.state()?;
            for (place, key) in keys.iter().enumerate() {
                let full = self.full_key(key);
                match state.writes.find(&full) {
                    Found::Written(write) => values[place] = write.value,
                    Found::Untouched => {
                        state.reads.add_key(full);
                        places.push(place);
                        unwritten.push(*key);
                    }
                }
            }
        }
        let found = self.snapshot.multi_get(&unwritten)?;
        for (place, value) in places.into_iter().zip(found) {
            values[place] = value;
        }
        Ok(values)
    }

    /// Entries of a range in key order, from both ends, with this transaction's writes,
    /// also those that come while the scan goes on. What the scan has passed counts as
    /// read.
    ///
    /// # Errors
    /// Those of [`Reader::scan`](crate::Reader::scan); `InvalidArgument` after the transaction's end.
    pub fn scan(&self, range: impl Into<KeyRange>) -> Result<TransactionEntries> {
        let range = range.into();
        range.check_limits()?;
        TransactionEntries::ordered(self.clone(), range)
    }

    /// Every entry, in the order that is cheapest for the engine, with this transaction's
    /// writes so far. Works on every engine. The whole namespace counts as read.
    ///
    /// # Errors
    /// As of [`TransactionView::scan`].
    pub fn iterate(&self) -> Result<TransactionEntries> {
        let cursor = self.snapshot.iterate(crate::IterationOrder::Any, None)?;
        TransactionEntries::unordered(self.clone(), cursor)
    }

    /// Gives a key a value when the transaction commits.
    ///
    /// # Errors
    /// `LimitExceeded` for a key or value that is too long; `InvalidArgument` after the
    /// transaction's end.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.set(key.as_ref(), value.as_ref(), None)
    }

    /// Gives a key a value that expires; a time is counted from the commit. Until then the
    /// transaction sees the entry, also one whose moment is past.
    ///
    /// # Errors
    /// As of [`TransactionView::put`].
    pub fn put_expiring(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: Expiry,
    ) -> Result<()> {
        self.set(key.as_ref(), value.as_ref(), Some(expiry))
    }

    /// Lets a merge operator make a key's next value of what the transaction sees and an
    /// operand. The key counts as read, so of two transactions that merge into it one
    /// conflicts; a merge by the store itself does not. The entry expires when it would have.
    ///
    /// # Errors
    /// As of [`TransactionView::get`] and [`TransactionView::put`]; those of the operator, and
    /// `InvalidArgument` for one that is not registered.
    pub fn merge(
        &self,
        operator: &str,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let key = key.as_ref();
        let current = self.get(key)?;
        let written = self.shared.state()?.writes.find(&self.full_key(key));
        let expiry = match written {
            Found::Written(write) => write.expiry,
            Found::Untouched if current.is_none() => None,
            Found::Untouched => self.snapshot.expires_at(key)?.map(Expiry::At),
        };
        let engine = &self.shared.engine;
        let next = engine.apply_operator(operator, key, current.as_deref(), operand.as_ref())?;
        self.set(key, &next, expiry)
    }

    /// Takes a key away when the transaction commits; no error if it is not there.
    ///
    /// # Errors
    /// As of [`TransactionView::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(key.as_ref(), Write::default())
    }

    fn set(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        limits::check_value(value)?;
        let value = Some(Value::copy_of(value));
        self.write(key, Write { value, expiry })
    }

    fn write(&self, key: &[u8], write: Write) -> Result<()> {
        limits::check_key(key)?;
        let full = self.full_key(key);
        self.shared.state()?.writes.set(full, write);
        Ok(())
    }

    /// Takes all keys of a range away when the transaction commits, also those that come
    /// until then: the range does not count as read.
    ///
    /// # Errors
    /// As of [`TransactionView::put`]; `Unsupported` where the engine keeps no order.
    pub fn delete_range(&self, range: impl Into<KeyRange>) -> Result<()> {
        let range = range.into();
        range.check_limits()?;
        let capabilities = self.shared.engine.capabilities();
        if !capabilities.ordered {
            return Err(Error::Unsupported {
                engine: capabilities.engine,
                what: "deleting a range",
                instead: "delete the keys one by one, or use engine forest or wisckey",
            });
        }
        let (from, to) = self.full_range(&range);
        self.shared.state()?.writes.delete_range(from, to);
        Ok(())
    }

    /// Marks the writes so far, of all namespaces.
    ///
    /// # Errors
    /// `InvalidArgument` after the transaction's end.
    pub fn savepoint(&self) -> Result<Savepoint> {
        Ok(Savepoint(self.shared.state()?.writes.savepoint()))
    }

    /// Forgets the writes since a savepoint, of all namespaces. What was read stays read.
    /// Savepoints that were made later are gone.
    ///
    /// # Errors
    /// `InvalidArgument` of a savepoint that is gone or another transaction's, and after the
    /// transaction's end.
    pub fn roll_back_to(&self, savepoint: Savepoint) -> Result<()> {
        if self.shared.state()?.writes.roll_back(savepoint.0) {
            return Ok(());
        }
        Err(Error::InvalidArgument(
            "the savepoint is gone: the transaction was rolled back to an earlier one, or another \
             transaction made it"
                .to_string(),
        ))
    }
}

/// Runs a transaction, and commits it. After a conflict it runs again, on the new state,
/// up to [`MOST_ATTEMPTS`] times. `work` is called once an attempt and keeps nothing of
/// the last one.
///
/// Between two threads that repeat, the loser of a conflict begins later than the winner,
/// and would lose again. So a transaction that has lost [`STARVES_AFTER`] times counts
/// itself in `starving`, which all callers of a store share, and new transactions wait
/// until it has ended. Answers what `work` answered, and the commit's sequence number.
///
/// # Errors
/// Those of `work`, which end it, except for a `Conflict`; the last `Conflict`; those of
/// [`Transaction::commit`].
pub fn transact<R>(
    begin: impl Fn() -> Result<Transaction>,
    starving: &AtomicUsize,
    mut work: impl FnMut(&Transaction) -> Result<R>,
) -> Result<(R, SequenceNumber)> {
    repeat(MOST_ATTEMPTS, starving, || {
        let transaction = begin()?;
        work(&transaction).and_then(|answer| Ok((answer, transaction.commit()?)))
    })
}

/// Calls until the answer is no `Conflict`, up to `most_attempts` times and at least once;
/// otherwise as [`transact`]. Each call begins and commits a transaction of its own.
///
/// # Errors
/// Those of `attempt_once`; of several `Conflict`s the last.
pub fn repeat<R>(
    most_attempts: u32,
    starving: &AtomicUsize,
    mut attempt_once: impl FnMut() -> Result<R>,
) -> Result<R> {
    let mut turn = None;
    for attempt in 1.. {
        if attempt > STARVES_AFTER {
            turn.get_or_insert_with(|| Starving::count(starving));
        } else {
            let_others_go_first(starving);
        }
        match attempt_once() {
            Err(Error::Conflict { .. }) if attempt < most_attempts => back_off(attempt),
            done => return done,
        }
    }
    unreachable!("the last attempt answers")
}

/// Lets the winner's thread run, up to 1,024 times: its write may not be visible yet.
fn back_off(attempt: u32) {
    for _ in 0..1u32 << attempt.min(10) {
        cambium_io::sync::thread::yield_now();
    }
}

/// Waits while a transaction starves, for a while: it may wait for this thread.
fn let_others_go_first(starving: &AtomicUsize) {
    let mut patience = 10_000;
    while starving.load(Ordering::Acquire) > 0 && patience > 0 {
        patience -= 1;
        cambium_io::sync::thread::yield_now();
    }
}

/// Counts a starving transaction until it is dropped.
struct Starving<'a>(&'a AtomicUsize);

impl<'a> Starving<'a> {
    fn count(starving: &'a AtomicUsize) -> Self {
        starving.fetch_add(1, Ordering::AcqRel);
        Starving(starving)
    }
}

impl Drop for Starving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Namespaces beside the one that a transaction was begun on.
type Names = [(u16, Arc<str>)];

/// The name of a namespace, or `None` of the one that the transaction was begun on.
fn name_of(number: u16, names: &Names) -> Namespace {
    let known = names.iter().find(|(known, _)| *known == number);
    known.map(|(_, name)| name.clone())
}

/// The namespace's number in a full key.
fn number_of(full: &[u8]) -> u16 {
    u16::from_be_bytes([full[0], full[1]])
}
