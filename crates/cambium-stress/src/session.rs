//! One life of a worker: open the store, verify it against the ledger, let threads load
//! it, and end in one of several ways. It may be killed at any moment of that.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cambium::{Capabilities, Error, ErrorClass, Store};
use serde::{Deserialize, Serialize};

use crate::actor::{Actor, Stop};
use crate::content::{GROUPS, KeyShape};
use crate::contents;
use crate::follower::follow;
use crate::ledger::{self, Base, Event, Level};
use crate::named;
use crate::oracle::{self, Promise};
use crate::plan::Plan;
use crate::random::Random;

/// How a session ends where nothing kills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// The threads stop, then the store is closed.
    Close,
    /// The store is closed while the threads use it.
    CloseUnderLoad,
    /// The process ends without a close.
    Abandon,
}

/// The supervisor's orders for a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    /// The folder of the plan and the ledger.
    pub folder: PathBuf,
    pub store: PathBuf,
    pub seed: u64,
    pub load: Duration,
    pub ending: Ending,
    /// Since the last verified state, writes that were not synced may have been lost.
    pub after_loss: bool,
    /// The state that is verified must outlast power cuts and damage to come.
    pub durable_base: bool,
    /// Verify alone: the store is a copy, and no new generation begins.
    pub verify_only: bool,
    /// The disk may fail and fill up.
    pub faults: bool,
    /// A sync that fails may take the new bytes away.
    pub drops: bool,
    /// A forked process outlives the load.
    pub forks: bool,
    /// Nothing will kill this worker.
    pub undisturbed: bool,
}

/// The latest that threads know of a key of another thread.
#[derive(Debug, Default)]
pub struct KeyState {
    /// The last acknowledged operation: its number, twice, plus one if it put a value.
    pub acknowledged: AtomicU64,
    /// The last operation that began.
    pub begun: AtomicU64,
    /// The last operation that began and takes the key away.
    pub taken_away: AtomicU64,
}

/// The latest that threads know of a shared group.
#[derive(Debug, Default)]
pub struct GroupState {
    /// The highest sequence number acknowledged.
    pub acknowledged: AtomicU64,
    /// Sequence numbers of versions.
    pub numbers: Mutex<HashMap<u64, u64>>,
    /// Versions that a compare-and-set has replaced.
    pub replaced: Mutex<HashSet<u64>>,
}

/// The state that the threads of a session share.
pub struct Shared {
    pub plan: Plan,
    pub abilities: Capabilities,
    pub stores: Vec<Store>,
    pub keys: Vec<Vec<KeyState>>,
    pub groups: Vec<GroupState>,
    /// The highest sequence number acknowledged.
    pub acknowledged: AtomicU64,
    pub stop: AtomicBool,
    pub closing: AtomicBool,
    pub faults: bool,
    pub drops: bool,
    pub operations: AtomicU64,
    pub refused: AtomicU64,
    violation: Mutex<Option<String>>,
    refusal: Mutex<Option<String>>,
}

impl Shared {
    pub fn shape(&self) -> &KeyShape {
        &self.plan.shape
    }

    /// Counts a change that was refused; one reason is kept for people.
    pub fn note_refusal(&self, error: &Error) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        if !matches!(error, Error::PreconditionFailed { .. }) {
            lock(&self.refusal).get_or_insert_with(|| error.to_string());
        }
    }

    /// Decides whether an error of a call may be answered.
    pub fn judge(&self, what: &str, error: Error) -> Stop {
        let closing = self.closing.load(Ordering::Acquire) && matches!(error, Error::Closed);
        let dropped = self.drops && error.is_corruption();
        if closing || dropped || self.faults && is_machine(&error) {
            return Stop::Quiet;
        }
        Stop::Violation(format!("{what} answers: {error}"))
    }

    /// Keeps the first violation and stops all threads.
    pub fn report(&self, violation: String) {
        lock(&self.violation).get_or_insert(violation);
        self.stop.store(true, Ordering::Release);
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names of the namespaces that keys are spread over.
pub const NAMESPACES: [&str; 3] = ["", "red", "blue"];

/// Opens the store and its namespaces.
pub fn open(plan: &Plan, store: &Path) -> Result<Vec<Store>, Error> {
    let store = plan.options().open(store)?;
    namespaces(plan, &store)
}

fn namespaces(plan: &Plan, store: &Store) -> Result<Vec<Store>, Error> {
    let mut stores = vec![store.clone()];
    for name in &NAMESPACES[1..plan.shape.namespaces] {
        stores.push(store.namespace(name)?);
    }
    Ok(stores)
}

/// Why a session ends early: it is a violation unless a failing disk explains it.
pub struct Failed {
    what: String,
    is_machine: bool,
}

impl Failed {
    pub fn wrong(what: impl ToString) -> Self {
        Failed {
            what: what.to_string(),
            is_machine: false,
        }
    }

    /// The error of a call.
    pub fn of(call: &str) -> impl Fn(Error) -> Failed + '_ {
        move |error| Failed {
            what: format!("{call}: {error}"),
            is_machine: is_machine(&error),
        }
    }
}

/// Runs a session; the answer is a line for the supervisor, an error is a violation.
pub fn run(orders: &Orders) -> Result<String, String> {
    match live(orders) {
        Ok(line) => Ok(line),
        Err(failed) if orders.faults && failed.is_machine => Ok(failed.what),
        Err(failed) => Err(failed.what),
    }
}

fn live(orders: &Orders) -> Result<String, Failed> {
    let plan = Plan::load(&orders.folder).map_err(Failed::wrong)?;
    let plan = plan.drawn(orders.seed);
    let ledger = orders.folder.join("ledger");
    let base = Base::load(&ledger).map_err(Failed::wrong)?;
    let began = Instant::now();
    let stores = open(&plan, &orders.store).map_err(Failed::of("opening the store"))?;
    let opened = began.elapsed();
    let observed = contents::read_all(&plan, &stores)?;
    let base = verify(&base, &ledger, &observed, orders).map_err(Failed::wrong)?;
    if orders.verify_only {
        stores[0].close().map_err(Failed::of("closing a copy"))?;
        return Ok("the copy holds what it should".to_string());
    }
    if orders.durable_base {
        // The next base promises this state after cuts, too.
        stores[0].sync().map_err(Failed::of("sync after opening"))?;
    }
    base.store(&ledger).map_err(Failed::wrong)?;
    named::drop_old(&stores[0]).map_err(Failed::of("dropping snapshots"))?;
    load(plan, base, &ledger, stores, orders, opened)
}

/// Errors that a failing or full disk explains.
pub fn is_machine(error: &Error) -> bool {
    error.class() == ErrorClass::Machine
}

fn verify(
    base: &Base,
    ledger: &Path,
    observed: &oracle::Observed,
    orders: &Orders,
) -> Result<Base, String> {
    let logs = ledger::read_all(ledger, base)?;
    let events = ledger::events(ledger, base.generation);
    let kept = if events.last() == Some(&Event::Closed) {
        Level::Buffered
    } else if orders.after_loss {
        Level::Synced
    } else {
        Level::Written
    };
    let back = events.iter().rev().find_map(|event| match event {
        Event::RolledBack(number) => Some((true, *number)),
        Event::RollingBack(number) => Some((false, *number)),
        Event::Closed => None,
    });
    let promised = match back {
        Some((true, number)) => vec![Promise::Moment(number)],
        Some((false, number)) => vec![Promise::Moment(number), Promise::Least(kept)],
        None => vec![Promise::Least(kept)],
    };
    let mut verified = Err(String::new());
    for promise in promised {
        verified = verified.or_else(|_| {
            oracle::verify(base, &logs, promise, observed)
                .map_err(|error| format!("{promise:?} does not hold: {error}"))
        });
    }
    verified
}

fn load(
    plan: Plan,
    base: Base,
    ledger: &Path,
    stores: Vec<Store>,
    orders: &Orders,
    opened: Duration,
) -> Result<String, Failed> {
    let shape = plan.shape.clone();
    let shared = Arc::new(Shared {
        abilities: stores[0].capabilities(),
        keys: (0..shape.threads)
            .map(|_| (0..shape.keys).map(|_| KeyState::default()).collect())
            .collect(),
        groups: (0..GROUPS).map(|_| GroupState::default()).collect(),
        acknowledged: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        closing: AtomicBool::new(false),
        faults: orders.faults,
        drops: orders.drops,
        operations: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        violation: Mutex::new(None),
        refusal: Mutex::new(None),
        plan,
        stores,
    });
    std::thread::scope(|scope| {
        // Without load the verified state is the last one.
        let threads = if orders.load.is_zero() {
            0
        } else {
            shape.threads
        };
        for thread in 0..threads {
            let (shared, base) = (&shared, &base);
            scope.spawn(
                move || match Actor::new(thread, shared, base, ledger, orders) {
                    Ok(mut actor) => actor.run(),
                    Err(error) => shared.report(format!("starting a thread: {error}")),
                },
            );
        }
        if threads > 0 {
            let shared = &shared;
            scope.spawn(move || follow(shared, Random::part(orders.seed, 99)));
        }
        let until = Instant::now() + orders.load;
        if orders.forks
            && let Err(error) = fork_off(orders.load * 2)
        {
            shared.report(format!("forking: {error}"));
        }
        while Instant::now() < until && !shared.stop.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(2));
        }
        if orders.ending == Ending::CloseUnderLoad && !orders.faults {
            shared.closing.store(true, Ordering::Release);
            if let Err(error) = shared.stores[0].close() {
                shared.report(format!("close under load: {error}"));
            }
        }
        shared.stop.store(true, Ordering::Release);
    });
    end(&shared, &base, ledger, orders, opened)
}

/// Forks a process that does nothing for a time: it holds copies of all open files, and must
/// neither write to the store nor keep it locked when the worker has closed it.
fn fork_off(time: Duration) -> std::io::Result<()> {
    if fork::fork()? == fork::Fork::Child {
        std::thread::sleep(time);
        std::process::exit(0);
    }
    Ok(())
}

fn end(
    shared: &Shared,
    base: &Base,
    ledger: &Path,
    orders: &Orders,
    opened: Duration,
) -> Result<String, Failed> {
    if let Some(violation) = lock(&shared.violation).take() {
        return Err(Failed::wrong(violation));
    }
    if orders.ending == Ending::Close && !orders.load.is_zero() {
        named::roll_back(shared, base, ledger, orders.seed)?;
    }
    if orders.ending != Ending::Abandon {
        shared.stores[0].close().map_err(Failed::of("close"))?;
        ledger::note(ledger, base.generation, Event::Closed).map_err(Failed::wrong)?;
    }
    let refusal = lock(&shared.refusal).take();
    Ok(format!(
        "{} operations, {} refused{}, opened in {} ms",
        shared.operations.load(Ordering::Relaxed),
        shared.refused.load(Ordering::Relaxed),
        refusal.map_or_else(String::new, |reason| format!(" ({reason})")),
        opened.as_millis()
    ))
}
