//! The objects behind handles, and the tables that they are in.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cambium::{Entry, Error, Precondition, Result, Store, WriteBatch};
use cambium_bindings::{HandleError, Handles, Walker};

use crate::changes::Following;
use crate::opened::{Moment, Opened};
use crate::options::Chosen;
use crate::transaction::Begun;

/// An open store.
pub struct cambium_store(());

/// How a store is made or opened.
pub struct cambium_options(());

/// Changes that are made together.
pub struct cambium_batch(());

/// One moment of a store.
pub struct cambium_snapshot(());

/// A walk over entries.
pub struct cambium_iterator(());

/// Reads and writes of one moment.
pub struct cambium_transaction(());

/// A reader of what is written.
pub struct cambium_changes(());

/// A batch, and what must hold for it.
#[derive(Clone, Default)]
pub struct Batch {
    pub changes: WriteBatch,
    pub conditions: Vec<Precondition>,
}

/// A walk both ways in order, or one pass in any order.
pub enum Iteration {
    Ordered(Walker),
    Pass(
        Box<dyn Iterator<Item = Result<Entry>> + Send>,
        Option<Entry>,
    ),
}

pub static STORES: Handles<Opened> = Handles::new(1, "cambium_store");
pub static OPTIONS: Handles<Mutex<Chosen>> = Handles::new(2, "cambium_options");
pub static BATCHES: Handles<Mutex<Batch>> = Handles::new(3, "cambium_batch");
pub static SNAPSHOTS: Handles<Moment> = Handles::new(4, "cambium_snapshot");
pub static ITERATORS: Handles<Mutex<Iteration>> = Handles::new(5, "cambium_iterator");
pub static TRANSACTIONS: Handles<Mutex<Begun>> = Handles::new(6, "cambium_transaction");
pub static CHANGES: Handles<Mutex<Following>> = Handles::new(7, "cambium_changes");

/// The object of a handle.
pub fn look_up<T, H>(table: &Handles<T>, handle: *const H) -> Result<Arc<T>> {
    table.get(handle.addr()).map_err(|error| match error {
        HandleError::Closed("cambium_store") => Error::Closed,
        other => Error::InvalidArgument(other.to_string()),
    })
}

/// The store of a handle, for calls on the whole of it.
pub fn whole(store: *const cambium_store) -> Result<Store> {
    Ok(look_up(&STORES, store)?.whole().clone())
}

/// The store of a handle, for calls that need its keys in the order of their bytes.
///
/// # Errors
/// `Unsupported` with a comparator.
pub fn plain(store: *const cambium_store) -> Result<Store> {
    look_up(&STORES, store)?.plain().cloned()
}

/// Keeps an object under a handle.
pub fn keep<T, H>(table: &Handles<T>, object: T) -> Result<*mut H> {
    let handle = table.insert(object).ok_or_else(|| {
        Error::LimitExceeded("more handles than a process can have: free some".to_string())
    })?;
    Ok(std::ptr::without_provenance_mut(handle))
}

/// Forgets a handle; one that is null or stale does nothing.
pub fn forget<T, H>(table: &Handles<T>, handle: *const H) {
    let object = table.remove(handle.addr());
    // Dropping may close a store, and must not unwind.
    cambium_bindings::c::guarded(|| drop(object), |_| ());
}

/// The content of a lock; a panic under it has been answered already.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes of a pointer and a length that the caller hands in.
macro_rules! input {
    ($start:expr, $length:expr, $what:expr) => {
        // SAFETY: cambium.h: the pointer is one to as many bytes as the length says,
        // which stay as they are during the call.
        unsafe { cambium_bindings::c::bytes($start.cast(), $length, $what) }
    };
}
/// A text that the caller hands in.
macro_rules! text {
    ($start:expr, $what:expr) => {
        // SAFETY: cambium.h: the text ends with a zero.
        unsafe { cambium_bindings::c::text($start, $what) }
    };
}
/// A path that the caller hands in.
macro_rules! folder {
    ($start:expr) => {
        // SAFETY: cambium.h: the path ends with a zero.
        unsafe { cambium_bindings::c::path($start) }
    };
}
/// Writes to a pointer for an answer, where one is given.
macro_rules! output {
    ($out:expr, $value:expr) => {
        // SAFETY: cambium.h: null, or a place for the answer that is the caller's.
        unsafe { cambium_bindings::c::set($out, $value) }
    };
}
pub(crate) use {folder, input, output, text};
