//! The objects behind LevelDB's handles, and the tables that they are in.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cambium::{Error, Result, WriteBatch};
use cambium_bindings::{Database, HandleError, Handles, RunWalker, View};

use crate::callbacks::{FilterPolicy, UserComparator};

// Handles as C sees them: pointers to something it knows nothing of.

/// A database.
pub struct leveldb_t(());

/// A cache.
pub struct leveldb_cache_t(());

/// An order of keys.
pub struct leveldb_comparator_t(());

/// An environment.
pub struct leveldb_env_t(());

/// A filter policy.
pub struct leveldb_filterpolicy_t(());

/// An iterator.
pub struct leveldb_iterator_t(());

/// A logger; none can be made.
pub struct leveldb_logger_t(());

/// How to open.
pub struct leveldb_options_t(());

/// How to read.
pub struct leveldb_readoptions_t(());

/// One moment of a database.
pub struct leveldb_snapshot_t(());

/// Changes to be made together.
pub struct leveldb_writebatch_t(());

/// How to write.
pub struct leveldb_writeoptions_t(());

/// An open database, and the filter policy it asks.
pub struct OpenDatabase {
    pub database: Database,
    pub filter: Option<Arc<FilterPolicy>>,
}

/// An iterator: where it stands, or why it stands nowhere.
#[derive(Default)]
pub struct Iteration {
    pub shown: Shown,
    pub state: Mutex<Walk>,
}

/// The walker of an iterator, and why its last move failed.
#[derive(Default)]
pub struct Walk {
    pub walker: Option<RunWalker>,
    pub status: Option<Error>,
}

/// Key and value where an iterator stands, which its walker keeps until it moves. Whoever moves
/// it while another thread looks here breaks the rule that makes a program's pointers dangle
/// as well; they are not read here.
#[derive(Default)]
pub struct Shown {
    pub key: Slice,
    pub value: Slice,
}

/// Bytes somewhere; null for none.
#[derive(Default)]
pub struct Slice {
    start: AtomicPtr<u8>,
    length: AtomicUsize,
}

impl Slice {
    pub fn get(&self) -> (*const u8, usize) {
        let start = self.start.load(Ordering::Relaxed);
        (start, self.length.load(Ordering::Relaxed))
    }

    fn set(&self, bytes: Option<&[u8]>) {
        let start = bytes.map_or(std::ptr::null(), <[u8]>::as_ptr);
        self.start.store(start.cast_mut(), Ordering::Relaxed);
        let length = bytes.map_or(0, <[u8]>::len);
        self.length.store(length, Ordering::Relaxed);
    }
}

impl Shown {
    /// Shows the entry where a walker stands.
    pub fn set(&self, entry: Option<(&[u8], &[u8])>) {
        self.key.set(entry.map(|(key, _)| key));
        self.value.set(entry.map(|(_, value)| value));
    }
}

/// What `leveldb_options_set_*` has been told.
#[derive(Clone, Default)]
pub struct OpenOptions {
    pub comparator: Option<Arc<UserComparator>>,
    pub filter: Option<Filter>,
    pub create_if_missing: bool,
    pub error_if_exists: bool,
    pub write_buffer_bytes: Option<u64>,
    pub cache_bytes: Option<u64>,
    pub block_bytes: Option<u64>,
    pub table_bytes: Option<u64>,
}

/// A filter policy: the engine's own, or one that the program brings.
#[derive(Clone)]
pub enum Filter {
    Bloom { bits: u64 },
    Brought(Arc<FilterPolicy>),
}

/// What `leveldb_readoptions_set_*` has been told: the handle of a snapshot.
#[derive(Default)]
pub struct ReadOptions {
    pub snapshot: usize,
}

/// What `leveldb_writeoptions_set_*` has been told.
#[derive(Default)]
pub struct WriteOptions {
    pub sync: bool,
}

/// A cache's size, in bytes.
pub struct Cache {
    pub bytes: u64,
}

/// The one environment.
pub struct DefaultEnvironment;

pub static DATABASES: Handles<OpenDatabase> = Handles::new(1, "database");
pub static ITERATORS: Handles<Iteration> = Handles::new(2, "iterator");
pub static BATCHES: Handles<Mutex<WriteBatch>> = Handles::new(3, "write batch");
pub static SNAPSHOTS: Handles<View> = Handles::new(4, "snapshot");
pub static OPTIONS: Handles<Mutex<OpenOptions>> = Handles::new(5, "leveldb_options_t");
pub static READ_OPTIONS: Handles<Mutex<ReadOptions>> = Handles::new(6, "leveldb_readoptions_t");
pub static WRITE_OPTIONS: Handles<Mutex<WriteOptions>> = Handles::new(7, "leveldb_writeoptions_t");
pub static COMPARATORS: Handles<Arc<UserComparator>> = Handles::new(8, "comparator");
pub static FILTERS: Handles<Filter> = Handles::new(9, "filter policy");
pub static CACHES: Handles<Cache> = Handles::new(10, "cache");
pub static ENVIRONMENTS: Handles<DefaultEnvironment> = Handles::new(11, "environment");

/// The object of a handle.
pub fn look_up<T, H>(table: &Handles<T>, handle: *const H) -> Result<Arc<T>> {
    table
        .get(handle.addr())
        .map_err(|error| handle_error(&error))
}

/// Keeps an object; null where no more can be kept.
pub fn keep<T, H>(table: &Handles<T>, object: T) -> *mut H {
    let handle = table.insert(object).unwrap_or(0);
    std::ptr::without_provenance_mut(handle)
}

/// Forgets a handle; one that is null or stale does nothing.
pub fn forget<T, H>(table: &Handles<T>, handle: *const H) -> Option<Arc<T>> {
    table.remove(handle.addr()).ok()
}

/// What is wrong with a handle, as an error.
pub fn handle_error(error: &HandleError) -> Error {
    match error {
        HandleError::Closed("database") => Error::Closed,
        other => Error::InvalidArgument(other.to_string()),
    }
}

/// The content of a lock; a panic under it has been answered already.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
