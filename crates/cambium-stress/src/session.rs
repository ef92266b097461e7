//! One life of a worker: open the store, verify it against the ledger, let threads load
//! it, and end in one of several ways. It may be killed at any moment of that.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cambium::{Capabilities, Error, ErrorClass, Store};
use clap::ValueEnum;

use crate::actor::Actor;
use crate::content::{GROUPS, KeyShape};
use crate::contents;
use crate::ledger::{self, Base, Event, Level};
use crate::named;
use crate::oracle::{self, Promise};
use crate::plan::Plan;

/// How a session ends where nothing kills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Ending {
    /// The threads stop, then the store is closed.
    Close,
    /// The store is closed while the threads use it.
    CloseUnderLoad,
    /// The process ends without a close.
    Abandon,
}

/// What a session is told.
#[derive(Clone, Debug)]
pub struct Orders {
    /// The folder of the plan and the ledger.
    pub folder: PathBuf,
    pub store: PathBuf,
    pub seed: u64,
    pub load: Duration,
    pub ending: Ending,
    /// Since the last verified state, writes that were not synced may have been lost.
    pub after_loss: bool,
    /// The state that is verified must outlast power cuts to come.
    pub durable_base: bool,
    /// Verify alone: the store is a copy, and no new generation begins.
    pub verify_only: bool,
    /// The disk may fail and fill up.
    pub faults: bool,
    /// A sync that fails may take the new bytes away.
    pub drops: bool,
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

/// What the threads of a session share.
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
            let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
            refusal.get_or_insert_with(|| error.to_string());
        }
    }

    /// Keeps the first violation and stops all threads.
    pub fn report(&self, violation: String) {
        let mut first = self
            .violation
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(violation);
        self.stop.store(true, Ordering::Release);
    }
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

/// Runs a session; the answer is a line for the supervisor, an error is a violation.
pub fn run(orders: &Orders) -> Result<String, String> {
    let plan = Plan::load(&orders.folder).map_err(|error| format!("the plan: {error}"))?;
    let ledger = orders.folder.join("ledger");
    let base = Base::load(&ledger).map_err(|error| format!("the ledger: {error}"))?;
    let began = Instant::now();
    let stores = match open(&plan, &orders.store) {
        Ok(stores) => stores,
        Err(error) if orders.faults && is_machine(&error) => {
            return Ok(format!("opening failed: {error}"));
        }
        Err(error) => return Err(format!("opening the store: {error}")),
    };
    let opened = began.elapsed();
    let observed = match contents::read_all(&plan, &stores) {
        Ok(observed) => observed,
        Err(failed) if orders.faults && failed.is_machine => {
            return Ok(format!("the disk failed: {}", failed.what));
        }
        Err(failed) => return Err(failed.what),
    };
    let base = verify(&plan, &base, &ledger, &observed, orders)?;
    if orders.verify_only {
        stores[0]
            .close()
            .map_err(|error| format!("closing a copy: {error}"))?;
        return Ok("the copy holds what it should".to_string());
    }
    if orders.durable_base {
        // What the next base promises must outlast the next cut.
        match stores[0].sync() {
            Err(error) if !(orders.faults && is_machine(&error)) => {
                return Err(format!("sync after opening: {error}"));
            }
            Err(error) => return Ok(format!("sync after opening failed: {error}")),
            Ok(()) => {}
        }
    }
    base.store(&ledger)
        .map_err(|error| format!("writing the base: {error}"))?;
    match named::drop_old(&stores[0]) {
        Err(named::Failed::Machine(error)) if orders.faults => {
            return Ok(format!("dropping a snapshot failed: {error}"));
        }
        Err(failed) => return Err(failed.to_string()),
        Ok(()) => {}
    }
    load(plan, base, &ledger, stores, orders, opened)
}

/// Errors that a failing or full disk explains.
pub fn is_machine(error: &Error) -> bool {
    error.class() == ErrorClass::Machine
}

fn verify(
    plan: &Plan,
    base: &Base,
    ledger: &Path,
    observed: &oracle::Observed,
    orders: &Orders,
) -> Result<Base, String> {
    let logs = (0..plan.shape.threads)
        .map(|thread| ledger::read(ledger, base.generation, thread))
        .collect::<Result<Vec<_>, _>>()?;
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
    let mut what = Err("nothing is promised".to_string());
    for promise in promised {
        what = oracle::verify(base, &logs, promise, observed)
            .map_err(|error| format!("{promise:?} does not hold: {error}"));
        if what.is_ok() {
            break;
        }
    }
    what
}

fn load(
    plan: Plan,
    base: Base,
    ledger: &Path,
    stores: Vec<Store>,
    orders: &Orders,
    opened: Duration,
) -> Result<String, String> {
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
        let until = Instant::now() + orders.load;
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

fn end(
    shared: &Shared,
    base: &Base,
    ledger: &Path,
    orders: &Orders,
    opened: Duration,
) -> Result<String, String> {
    let violation = shared
        .violation
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(violation) = violation {
        return Err(violation);
    }
    if orders.ending == Ending::Close && !orders.load.is_zero() {
        match named::roll_back(shared, base, ledger, orders.seed) {
            Err(named::Failed::Machine(error)) if orders.faults => {
                return Ok(format!(
                    "0 operations, 0 refused, a rollback failed: {error}"
                ));
            }
            Err(failed) => return Err(failed.to_string()),
            Ok(()) => {}
        }
    }
    let refusal = shared
        .refusal
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let line = format!(
        "{} operations, {} refused{}, opened in {} ms",
        shared.operations.load(Ordering::Relaxed),
        shared.refused.load(Ordering::Relaxed),
        refusal.map_or_else(String::new, |reason| format!(" ({reason})")),
        opened.as_millis()
    );
    if orders.ending != Ending::Abandon {
        match shared.stores[0].close() {
            Ok(()) => ledger::note(ledger, base.generation, Event::Closed)
                .map_err(|error| error.to_string())?,
            Err(error) if orders.faults && is_machine(&error) => {
                return Ok(format!("{line}, close failed: {error}"));
            }
            Err(error) => return Err(format!("close: {error}")),
        }
    }
    Ok(line)
}
