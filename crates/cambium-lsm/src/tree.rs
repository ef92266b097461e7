//! The tree: what its parts share, and the view that readers take.
//!
//! Locks, in the order in which they are taken:
//!
//! | lock | held by | across I/O |
//! |---|---|---|
//! | `jobs` | whoever picks or parks a job | no |
//! | a sealed memtable's `keep` | the commit of its flush | yes: only the caller that keeps waits |
//! | `manifest` | a commit of an edit | yes: only other commits wait |
//! | `kept` | whoever keeps, releases or looks up a kept version | no |
//! | `rotation` | shared: writers of entries; exclusive: a seal | no |
//! | `change` | whoever replaces the view | no |
//! | a memtable's shards | one insert, lookup or copy | no |
//!
//! Readers take none of them: they load the view.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use cambium_base::{Error, Result, StoreId};
use cambium_io::Environment;
use cambium_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use cambium_io::sync::lock;
use cambium_io::sync::{Mutex, OnceLock, RwLock};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::job::Jobs;
use crate::kept::{Keep, KeptVersions, PastView};
use crate::manifest::Manifest;
use crate::memtable::Memtable;
use crate::options::Options;
use crate::owner::Owner;
use crate::stats::Counters;
use crate::table::Table;
use crate::table_cache::TableCache;
use crate::version::{Graveyard, TableFile, Version};

/// What every part of a tree needs.
#[derive(Debug)]
pub(crate) struct Context {
    pub environment: Environment,
    pub folder: PathBuf,
    pub store: StoreId,
    pub options: Options,
    /// No file has this number yet, or a higher one.
    pub next_file: AtomicU64,
    pub tables: TableCache,
    pub graveyard: Arc<Graveyard>,
    pub counters: Arc<Counters>,
    /// Of the hashes of keys: the store's, so that nobody outside can choose
    /// keys that collide.
    hash_seed: u64,
}

impl Context {
    pub fn new(
        environment: &Environment,
        folder: &Path,
        store: StoreId,
        options: &Options,
    ) -> Self {
        let mut seed = [0; 8];
        seed.copy_from_slice(&store.0[..8]);
        Context {
            environment: environment.clone(),
            folder: folder.to_path_buf(),
            store,
            options: options.clone(),
            next_file: AtomicU64::new(1),
            tables: TableCache::default(),
            graveyard: Arc::default(),
            counters: Arc::default(),
            hash_seed: u64::from_le_bytes(seed),
        }
    }

    /// The hash of a key, in memtables and filters alike. Filters on the device
    /// hold it: it never changes.
    pub fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.hash_seed)
    }

    /// A number for a new file.
    pub fn new_file_number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::AcqRel)
    }

    /// The open table of a file.
    pub fn table(&self, file: &Arc<TableFile>) -> Result<Arc<Table>> {
        self.tables.table(self, file)
    }
}

/// A memtable that takes no more writes, and the note of its seal.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub memtable: Arc<Memtable>,
    pub note: Vec<u8>,
    /// The version that the flush makes is kept.
    pub keep: Mutex<Option<Keep>>,
}

/// What there is at one moment. Never changes.
#[derive(Debug)]
pub(crate) struct View {
    pub active: Arc<Memtable>,
    /// Newest first.
    pub sealed: Vec<Arc<Sealed>>,
    pub version: Arc<Version>,
}

impl View {
    /// All memtables, the newest first.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        let sealed = self.sealed.iter().map(|sealed| &sealed.memtable);
        std::iter::once(&self.active).chain(sealed)
    }
}

/// How much writers should hold back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WritePressure {
    /// Not at all.
    Free,
    /// Somewhat: from 0.0, hardly, to 1.0, as much as can be without stopping.
    Slow(f64),
    /// Wait until a step made room.
    Stop,
}

/// An ordered store of small values. See the crate's essay.
///
/// ```
/// use std::sync::Arc;
/// use cambium_base::StoreId;
/// use cambium_io::Environment;
/// use cambium_io::simulated::SimulatedDisk;
/// use cambium_lsm::{DropObserver, EntryRef, JobKind, Lookup, Options, Owner, Tree};
///
/// #[derive(Debug)]
/// struct Everything;
/// impl DropObserver for Everything {
///     fn dropped(&mut self, _: EntryRef<'_>) {}
///     fn into_note(self: Box<Self>, _: &[Vec<u8>]) -> Vec<u8> { Vec::new() }
/// }
/// impl Owner for Everything {
///     fn protected_moments(&self) -> Vec<u64> { vec![u64::MAX] }
///     fn begin_job(&self, _: JobKind) -> Box<dyn DropObserver> { Box::new(Everything) }
///     fn committed(&self, _: &[u8], _: bool) -> cambium_base::Result<()> { Ok(()) }
///     fn full_note(&self) -> Vec<u8> { Vec::new() }
/// }
///
/// let environment = Environment::simulated(&SimulatedDisk::new(1), 1);
/// let options = Options::default();
/// let tree = Tree::create(&environment, "/tree".as_ref(), StoreId([7; 16]), &options, Arc::new(Everything))?;
/// tree.writer().put(1, b"bark", b"brown");
/// tree.seal(Vec::new());
/// tree.flush()?;
/// assert!(matches!(tree.get(b"bark", 1)?, Lookup::Found { sequence: 1, .. }));
/// # Ok::<(), cambium_base::Error>(())
/// ```
#[derive(Debug)]
pub struct Tree {
    pub(crate) context: Arc<Context>,
    pub(crate) owner: Arc<dyn Owner>,
    pub(crate) view: ArcSwap<View>,
    pub(crate) rotation: RwLock<()>,
    pub(crate) change: Mutex<()>,
    pub(crate) manifest: Mutex<Manifest>,
    /// Changed under the manifest's lock.
    pub(crate) kept: Mutex<KeptVersions>,
    /// Views that were replaced by a kept version, the oldest first.
    pub(crate) past: ArcSwap<Vec<PastView>>,
    pub(crate) jobs: Mutex<Jobs>,
    pub(crate) closed: AtomicBool,
    pub(crate) poison: OnceLock<Error>,
    /// Highest sequence number in tables.
    pub(crate) flushed_sequence: AtomicU64,
    /// Nobody writes: there is time for compactions that only free space.
    pub(crate) resting: AtomicBool,
    /// There is time for those of tombstones at least.
    pub(crate) sweeping: AtomicBool,
}

impl Tree {
    /// Refuses calls to a closed tree.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Refuses edits of a closed or poisoned tree.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        match self.poison.get() {
            Some(original) => Err(Error::poisoned_by(original)),
            None => Ok(()),
        }
    }

    /// Poisons the tree, unless a write found no space: then nothing was lost.
    pub(crate) fn unless_full(&self, error: Error) -> Error {
        if !error.is_no_space() && !matches!(error, Error::Closed | Error::Cancelled) {
            _ = self.poison.set(error.clone());
        }
        error
    }

    /// The folder that the tree lies in.
    pub fn folder(&self) -> &Path {
        &self.context.folder
    }

    /// The first failure that writing met, if any: no edit is taken since.
    pub fn poisoned(&self) -> Option<Error> {
        self.poison.get().cloned()
    }

    /// Highest sequence number in tables, 0 if there is none.
    pub(crate) fn flushed_sequence(&self) -> u64 {
        self.flushed_sequence.load(Ordering::Acquire)
    }

    /// Replaces the view. Short, and never while doing I/O.
    pub(crate) fn change_view(&self, change: impl FnOnce(&View) -> View) {
        let _guard = lock(&self.change);
        let view = change(&self.view.load());
        self.view.store(Arc::new(view));
    }
}
