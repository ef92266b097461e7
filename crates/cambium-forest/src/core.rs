//! The open store: what everything shares, and in which order its locks are
//! taken.
//!
//! | lock | guards | held across I/O |
//! |---|---|---|
//! | `compaction` | the compaction that is going on | yes, by background work |
//! | `maintenance` | superblock, newest header, the sealed buffer's way into the tries | yes, by background work |
//! | `writer` | numbering and the end of the log | yes, by writers |
//! | `syncing` | one sync of a database file at a time | yes, by writers and background work |
//! | `history.consumers` | the file of consumers | yes, by those that move one |
//! | `history.files` | files of the change feed | no |
//! | `cleaning.cleaned` | the tail that is to be given back | yes, by background work |
//! | `kept`, `meanwhile` | what snapshots keep; places at which a compaction stops for some | no |
//! | `pins` | moments that readers hold | no |
//! | a buffer's `order` | the order of its keys | no |
//! | a buffer's `table` | its keys and versions | no |
//! | a buffer's `ranges` | its deleted ranges | no |
//!
//! They are taken in this order, from the top. Readers take the last four only,
//! and the view, which is swapped whole.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use cambium_api::{MemoryPlan, RecentWrites};
use cambium_base::{FileNumber, Result, SequenceNumber};
use cambium_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use cambium_io::sync::lock;
use cambium_io::sync::{Mutex, OnceLock};
use cambium_io::{Environment, FileLock};
use cambium_storage::commit_queue::CommitQueue;
use cambium_storage::health::Health;
use cambium_storage::superblock::Superblock;

use crate::buffer::Buffer;
use crate::carrying::Carrying;
use crate::changes::History;
use crate::cleaning::{Cleaning, Place};
use crate::compact::{Compaction, Kept, Meanwhile, Pressure};
use crate::counters::Counters;
use crate::database::Home;
use crate::flush::SealPoint;
use crate::format::{DatabaseHeader, Root};
use crate::index::Index;
use crate::options::{Shape, Tuning};
use crate::seeded_bug::SeededBug;
use crate::upkeep::PutOff;
use crate::view::View;
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
    pub index: Index,
    /// Of the buffers' hash tables.
    pub hash_seed: u64,
    /// What readers see; replaced under the writer lock.
    pub view: ArcSwap<View>,
    /// Every write up to here is seen by readers.
    pub visible: AtomicU64,
    /// Every write up to here survives a crash.
    pub synced_through: AtomicU64,
    /// What the change feed reads.
    pub history: History,
    /// Moments that readers hold, and how many hold each.
    pub pins: Mutex<BTreeMap<u64, usize>>,
    pub compaction: Mutex<Option<Compaction>>,
    pub maintenance: Mutex<Maintenance>,
    pub writer: Mutex<Writer>,
    pub queue: CommitQueue<WriteRequest, Result<SequenceNumber>>,
    pub health: Health,
    /// Recent writes, for validating the commits of transactions.
    pub recent: RecentWrites,
    /// Held while a database file is synced.
    pub syncing: Mutex<()>,
    /// Writes up to here were handed over to the operating system for a sync.
    pub handed_over: AtomicU64,
    /// This opening has written its session to the superblock.
    pub session_begun: AtomicBool,
    /// How often compactions were cancelled: a call ends when this has changed since it
    /// began.
    pub cancellations: AtomicU64,
    /// The active buffer is full: a step has something to do.
    pub flush_due: AtomicBool,
    /// The last flush failed: the background waits before it tries again.
    pub flush_put_off: PutOff,
    /// Nodes of the tries of the newest view.
    pub nodes_of_tries: AtomicU64,
    /// About how many bytes these and their documents take.
    pub bytes_of_tries: AtomicU64,
    /// The state of cleaning.
    pub cleaning: Cleaning,
    /// The speed of recent flushes.
    pub carrying: Carrying,
    /// What a compaction asks of writers.
    pub pressure: Pressure,
    /// What named snapshots keep.
    pub kept: Kept,
    /// Named snapshots that are made while one runs.
    pub meanwhile: Meanwhile,
    pub counters: Counters,
    pub lock: Mutex<Option<Box<dyn FileLock>>>,
    /// Notifies the background task, where one runs.
    pub background: OnceLock<Box<dyn cambium_io::step::BackgroundTask>>,
}

/// What the maintenance lock guards.
#[derive(Debug)]
pub(crate) struct Maintenance {
    pub root: Root,
    pub superblock: Superblock,
    /// The newest header.
    pub header: DatabaseHeader,
    /// Where the header lay that was read when the store was opened: its end.
    pub header_end: u64,
    /// Where the sealed buffer was sealed, until it is out of the way.
    pub sealed_at: Option<SealPoint>,
    /// Where the last buffer was sealed that the run has, until the run is in the tries.
    pub packed_at: Option<SealPoint>,
    /// A reader has met the log up to here.
    pub read_to: u64,
}

impl Maintenance {
    /// The state of a header with nothing buffered.
    pub fn new(root: Root, superblock: Superblock, header: DatabaseHeader) -> Self {
        Maintenance {
            root,
            superblock,
            header,
            header_end: 0,
            sealed_at: None,
            packed_at: None,
            read_to: 0,
        }
    }

    /// Writes what the root says to the copy of the superblock that does not count.
    pub fn write_root(&mut self) -> Result<()> {
        self.superblock.write(&self.root.encode())
    }

    /// The same to both copies: neither leads to an older state from then on.
    pub fn write_root_twice(&mut self) -> Result<()> {
        self.superblock.write_both(&self.root.encode())
    }
}

/// Where the log says what is synced: no sync covers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub file: FileNumber,
    /// Bytes from the start of the file.
    pub start: u64,
    /// Behind it.
    pub end: u64,
}

/// What the writer lock guards.
#[derive(Debug)]
pub(crate) struct Writer {
    pub next_sequence: u64,
    pub attempt: u16,
    pub session: u32,
    /// The log holds bytes that no sync covers.
    pub unsynced: bool,
    /// The newest mark of a sync in the log.
    pub mark: Option<Mark>,
    /// Number for the next namespace.
    pub next_namespace: u32,
    /// Tombstones that this opening has logged.
    pub tombstones: u64,
}

impl Writer {
    /// The place of the next write, where the log ends.
    pub fn place(&self, end: u64) -> Place {
        Place {
            offset: end,
            sequence: self.next_sequence - 1,
            tombstones: self.tombstones,
        }
    }
}

impl Core {
    /// Refuses calls after a close.
    pub fn check_open(&self) -> Result<()> {
        self.health.check_open()
    }

    /// Refuses writes after a close or a failure.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.check_sound()
    }

    /// Refuses writes after a failure, and where the store was opened for reading.
    pub fn check_sound(&self) -> Result<()> {
        self.health.check_sound()
    }

    pub fn has_bug(&self, bug: SeededBug) -> bool {
        self.tuning.seeded_bug.is(bug)
    }

    /// Puts a changed view in the place of the current one. Called under the
    /// writer lock. A new buffer is made as large as the last one was.
    pub fn change_view(&self, change: impl FnOnce(&View) -> View) -> Arc<View> {
        let before = self.view.load();
        let mut next = change(&before);
        if next.active.is_placeholder() {
            let expected = before.active.keys();
            let mut active = Buffer::new(self.hash_seed, expected);
            active.sorts_at_once = self.has_bug(SeededBug::ScanHoldsWriters);
            next.active = Arc::new(active);
        }
        let nodes = next.roots.nodes();
        self.nodes_of_tries.store(nodes, Ordering::Relaxed);
        let bytes = self.live_bytes(&next);
        self.bytes_of_tries.store(bytes, Ordering::Relaxed);
        let next = Arc::new(next);
        self.view.store(next.clone());
        next
    }

    /// Writes this opening's session to the superblock before its first
    /// record: from then on the store is not clean.
    pub fn begin_session(&self) -> Result<()> {
        if self.session_begun.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut maintenance = lock(&self.maintenance);
        self.begin_session_locked(&mut maintenance)
    }

    /// The same; `Closed` where a close came before.
    pub fn begin_session_locked(&self, maintenance: &mut Maintenance) -> Result<()> {
        self.health.check_open()?;
        if self.session_begun.load(Ordering::Acquire) {
            return Ok(());
        }
        let before = maintenance.root;
        maintenance.root.session += 1;
        maintenance.root.clean = false;
        maintenance.root.end = 0;
        let payload = maintenance.root.encode();
        if let Err(error) = maintenance.superblock.begin_session(&payload) {
            maintenance.root = before;
            return Err(self.health.unless_unopened(error));
        }
        lock(&self.writer).session = maintenance.root.session;
        self.session_begun.store(true, Ordering::Release);
        Ok(())
    }

    /// Wakes the background task.
    pub fn notify_background(&self) {
        if let Some(task) = self.background.get() {
            task.notify();
        }
    }
}
