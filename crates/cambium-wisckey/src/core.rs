//! The open store: what everything shares, and in which order its locks are
//! taken.
//!
//! | lock | guards | held across I/O |
//! |---|---|---|
//! | `collection` | the garbage collection that is going on | yes, by background work |
//! | `moving_consumer` | the list of consumers while one is moved | yes |
//! | `maintenance` | the superblock | yes |
//! | `sharing` | the names of segments' files, and the space within them | yes, by background work |
//! | `syncing` | the queue by which a flush syncs what it points to | yes, by background work |
//! | `writer` | numbering, the end of the log, what the next note will say | yes, by writers |
//! | `log_sync` | a sync of the log, until its failure has poisoned the store | yes |
//! | `reserve` | the space held back for a full disk | yes |
//! | `gone` | segments whose files are to be closed | no |
//! | the ledger's | what the manifest says of segments; pinned moments | no |
//!
//! They are taken in this order, from the top. The tree's own locks come after
//! all of them but the ledger's, which the tree takes itself. Readers take the
//! ledger's pins and nothing else; the map of segments is swapped whole.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use cambium_api::{MemoryPlan, RecentWrites};
use cambium_base::{Error, Result, SequenceNumber};
use cambium_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use cambium_io::sync::lock;
use cambium_io::sync::{Mutex, OnceLock, RwLock};
use cambium_io::{Environment, FileLock, ReadPool, WriteQueue};
use cambium_lsm::Tree;
use cambium_storage::commit_queue::CommitQueue;
use cambium_storage::consumers::Consumers;
use cambium_storage::health::Health;
use cambium_storage::superblock::Superblock;
use cambium_storage::synced_mark::SyncedMark;

use crate::collect::Collector;
use crate::format::Root;
use crate::ledger::Ledger;
use crate::names::Names;
use crate::options::{Shape, Tuning};
use crate::reserve::{Part, Reserve};
use crate::seeded_bug::SeededBug;
use crate::segment::{Home, Segment, Segments};
use crate::stats::Counters;
use crate::value_log::Writer;
use crate::write::WriteRequest;

/// The open store.
#[derive(Debug)]
pub(crate) struct Core {
    pub environment: Environment,
    pub path: PathBuf,
    pub home: Home,
    pub shape: Shape,
    pub tuning: Tuning,
    /// Reserved for as long as the store is open; a check or a repair reserves nothing.
    pub memory: OnceLock<MemoryPlan>,
    pub tree: Arc<Tree>,
    /// Says beside the log how far it was synced.
    pub synced_mark: SyncedMark,
    pub ledger: Arc<Ledger>,
    /// Segments that readers may be led to; replaced under the writer lock.
    pub segments: ArcSwap<Segments>,
    /// Replaced under the writer lock.
    pub names: ArcSwap<Names>,
    pub collection: Mutex<Collector>,
    /// Who collects waits until the tree has flushed.
    pub collection_waits: AtomicBool,
    /// Held while a checkpoint gives files second names, and while space of segments is
    /// given back.
    pub sharing: Mutex<()>,
    pub maintenance: Mutex<Maintenance>,
    /// Held during a sync of files that writers and flushes both sync.
    pub log_sync: Mutex<()>,
    /// For syncs of several segments; made when it is first needed.
    pub syncing: Mutex<Option<Box<dyn WriteQueue>>>,
    pub writer: Mutex<Writer>,
    pub queue: CommitQueue<WriteRequest, Result<SequenceNumber>>,
    /// Segments that no reader can be led to any more, to be closed.
    pub gone: Mutex<Vec<Arc<Segment>>>,
    pub health: Health,
    /// Readers of changes, and what they have read.
    pub consumers: Consumers,
    /// Held while a consumer is moved.
    pub moving_consumer: Mutex<()>,
    /// Recent writes, for validating the commits of transactions.
    pub recent: RecentWrites,
    /// Space held back for a full disk.
    pub reserve: Reserve,
    /// Why background work did not get on, while it does not.
    pub stuck: Mutex<Option<Error>>,
    /// This opening has written its session to the superblock.
    pub session_begun: AtomicBool,
    /// How often the running compactions were cancelled: each compares it with what it was
    /// when that compaction began.
    pub cancels: AtomicU64,
    /// Read by each background step and each compaction while it runs: a close waits for
    /// them.
    pub stepping: RwLock<()>,
    pub counters: Counters,
    pub lock: Mutex<Option<Box<dyn FileLock>>>,
    /// Threads that read for cursors, where they were asked for.
    pub range_pool: OnceLock<Arc<ReadPool>>,
    /// Notify the background tasks, where some run.
    pub background: OnceLock<Vec<Box<dyn cambium_io::step::BackgroundTask>>>,
}

/// What the maintenance lock guards.
#[derive(Debug)]
pub(crate) struct Maintenance {
    pub root: Root,
    pub superblock: Superblock,
    /// A full disk kept recovery from flushing what it sealed, and with that from making
    /// its cut durable. Until that is done, the store is read only.
    pub cut_unflushed: bool,
}

impl Core {
    /// Refuses calls after a close.
    pub fn check_open(&self) -> Result<()> {
        self.health.check_open()
    }

    /// As [`Core::check_sound`], and after a close.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.check_sound()
    }

    /// Refuses writes after a failure, of the log or of the tree, and to a store that was
    /// opened for reading alone.
    pub fn check_sound(&self) -> Result<()> {
        self.health.check_sound()?;
        match self.tree.poisoned() {
            Some(original) => Err(Error::poisoned_by(&original)),
            None => Ok(()),
        }
    }

    pub fn has_bug(&self, bug: SeededBug) -> bool {
        self.tuning.seeded_bug.is(bug)
    }

    /// Puts a changed map of segments in the place of the current one. Called
    /// under the writer lock.
    pub fn change_segments(&self, change: impl FnOnce(&mut Segments)) {
        let mut segments = Segments::clone(&self.segments.load());
        change(&mut segments);
        self.segments.store(Arc::new(segments));
    }

    /// A segment that readers may be led to.
    pub fn segment(&self, number: u32) -> Option<Arc<Segment>> {
        self.segments.load().get(&number).cloned()
    }

    /// Writes this opening's session to the superblock before its first
    /// record: from then on the store is not clean.
    pub fn begin_session(&self) -> Result<()> {
        if self.session_begun.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut maintenance = lock(&self.maintenance);
        if self.session_begun.load(Ordering::Acquire) {
            return Ok(());
        }
        // A close has written the clean mark under this lock.
        self.check_open()?;
        if maintenance.cut_unflushed {
            // Its session is in the superblock already.
            self.with_reserve(Part::All, || self.tree.flush())?;
            maintenance.cut_unflushed = false;
            self.session_begun.store(true, Ordering::Release);
            return Ok(());
        }
        // Its name is made durable with those below.
        self.keep_reserve();
        let before = maintenance.root;
        maintenance.root.session += 1;
        maintenance.root.clean = false;
        let payload = self.root_payload(&maintenance.root);
        if let Err(error) = maintenance.superblock.begin_session(&payload) {
            maintenance.root = before;
            return Err(self.health.unless_unopened(error));
        }
        lock(&self.writer).session = maintenance.root.session;
        self.session_begun.store(true, Ordering::Release);
        Ok(())
    }

    /// Wakes the background tasks.
    pub fn notify_background(&self) {
        for task in self.background.get().into_iter().flatten() {
            task.notify();
        }
    }
}
