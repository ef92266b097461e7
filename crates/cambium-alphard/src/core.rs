//! The open store: what everything shares, and in which order its locks are
//! taken.
//!
//! | lock | guards | held across I/O |
//! |---|---|---|
//! | `maintenance` | one step of upkeep at a time, and one move of a consumer | yes, by background work and consumers |
//! | `mirroring` | how far a stale member is up to date | yes, by background work |
//! | `writer` | numbering, free space, superblock, what is not written yet | yes, by writers |
//! | `zeroing` | nothing: held while a piece of zeros is written | yes, by background work |
//! | `syncing` | one sync at a time | yes, by writers and background work |
//! | `settled` | syncs that the writer does not know of yet | no |
//! | a submission queue's own, `serving`, `queued_bytes` | what waits in queues | no |
//! | `replies` | answers that wait for a flight | no |
//! | `flights.landing` | who lands flights | yes |
//! | the other ones of `flights` | which groups are under way, spare memory | no |
//! | `state` | the index, what snapshots see, and the change log | no, but by a close |
//! | `pending` | entries on their way to the device | no |
//! | `unpinned` | places that snapshots have let go | no |
//! | `unsound` | entries that are sound on one member only | no |
//! | a set of the cache of values | a few of them | no |
//!
//! They are taken in this order, from the top. Readers take the last five only, one after
//! the other, but for the cache's: they look there while they have `state`. A submission
//! queue's, and that of `replies`, are let go before any other is taken.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use cambium_api::{MemoryPlan, RecentWrites};
use cambium_base::checksum::ChecksumSeed;
use cambium_base::{Error, Extent, Result};
use cambium_index::cuckoo::SlotKey;
use cambium_io::environment::Reservation;
use cambium_io::step::BackgroundTask;
use cambium_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use cambium_io::sync::{Mutex, OnceLock, RwLock};
pub(crate) use cambium_io::sync::{lock, read, write};
use cambium_io::{AlignedBuffer, Environment};
use cambium_storage::allocator::Allocator;
use cambium_storage::commit_queue::CommitQueue;
use cambium_storage::consumers::Consumers;
use cambium_storage::health::Health;
use cambium_storage::synced_mark::SyncedMark;

use crate::ahead::Ahead;
use crate::discard::Discards;
use crate::flights::Flights;
use crate::format::Superblock;
use crate::kept::Kept;
use crate::key_checks::KeyChecks;
use crate::members::{Locks, Members};
use crate::mirror::Mirroring;
use crate::options::Tuning;
use crate::outgoing::{Outgoing, PendingEntry, SyncQueue};
use crate::packs::Packs;
use crate::place::Place;
use crate::read::ReadQueues;
use crate::replies::Replies;
use crate::seeded_bug::SeededBug;
use crate::stale::StaleHeaders;
use crate::state::{Page, State};
use crate::stats::Counters;
use crate::submit::Submissions;
use crate::volume::Volume;
use crate::write::{Begun, WriteRequest, Written};

/// The open store.
#[derive(Debug)]
pub(crate) struct Core {
    pub environment: Environment,
    pub path: PathBuf,
    pub volume: Volume,
    pub seed: ChecksumSeed,
    pub block_bytes: u32,
    pub tuning: Tuning,
    /// Reserved for as long as the store is open; a check or a repair reserves nothing.
    pub memory: OnceLock<MemoryPlan>,
    pub maintenance: Mutex<()>,
    pub zeroing: Mutex<()>,
    pub writer: Mutex<Writer>,
    /// Held during a sync: the failure of one sync is known before the next begins.
    pub syncing: Mutex<SyncQueue>,
    /// What was synced while another thread had the writer lock; who has it next settles it.
    pub settled: Mutex<Vec<Written>>,
    pub state: RwLock<State>,
    /// Groups whose writes are under way, without the writer lock.
    pub flights: Flights,
    /// Says beside the device how far calls of `sync` came.
    pub synced_mark: SyncedMark,
    /// Entries that are not on the device yet, by their first block.
    pub pending: RwLock<BTreeMap<u32, PendingEntry>>,
    /// Entries in memory.
    pub kept: Kept,
    pub unpinned: Mutex<Vec<(u64, Place)>>,
    /// Bringing a stale member up to date: only who holds `maintenance` takes it.
    pub mirroring: Mutex<Mirroring>,
    /// Of a store with history.
    pub consumers: OnceLock<Consumers>,
    /// Every write up to here is durable. Readers of changes do not take the writer lock.
    pub synced: AtomicU64,
    /// Entries that one member has and another one not: to be written over there.
    pub unsound: Mutex<Vec<(SlotKey, Place)>>,
    pub queue: CommitQueue<Vec<WriteRequest>, Begun>,
    /// Requests that were submitted and are not done yet.
    pub submissions: Submissions,
    /// Their answers, while they wait for what is under way.
    pub replies: Replies,
    /// Gives those answers, where the executor runs tasks.
    pub replier: OnceLock<Box<dyn BackgroundTask>>,
    /// A worker for each of their queues, where the executor runs tasks.
    pub workers: OnceLock<Vec<Box<dyn BackgroundTask>>>,
    /// For reads of several entries at once.
    pub queues: ReadQueues,
    pub health: Health,
    /// Recent writes, for validating the commits of transactions.
    pub recent: RecentWrites,
    pub cancelled: AtomicBool,
    /// The number of the next write at the last background step: writers are idle if it is
    /// the same.
    pub seen_idle: AtomicU64,
    pub counters: Counters,
    /// Of the folder, and of members that are files.
    pub locks: Mutex<Locks>,
    /// Notifies who writes zeros ahead, where that is of use and tasks run.
    pub zeros: OnceLock<Box<dyn BackgroundTask>>,
    /// Notifies the background task, where one runs.
    pub background: OnceLock<Box<dyn BackgroundTask>>,
}

/// What the writer lock guards.
#[derive(Debug)]
pub(crate) struct Writer {
    /// What the index has reserved beside the plan.
    pub index_memory: Option<Reservation>,
    pub allocator: Allocator,
    pub superblock: Superblock,
    pub next_sequence: u64,
    /// Every write up to here is on the device.
    pub synced_through: u64,
    /// What the newest entries that no write was started for say is durable.
    pub stating: u64,
    /// What the entries on their way to the device say is durable.
    pub stated: u64,
    /// What durable entries, or the superblock, say is durable: whatever happens,
    /// recovery keeps everything up to here.
    pub marked: u64,
    /// The device holds bytes that no sync covers.
    pub unsynced: bool,
    /// How often writing was started: what was written before a sync began is told by it
    /// from what came meanwhile.
    pub starts: u64,
    /// This opening has its epoch in the superblock.
    pub session_begun: bool,
    /// Bytes of entries that are not written yet, and on no flight.
    pub pending_bytes: usize,
    pub outgoing: Outgoing,
    pub stale: StaleHeaders,
    pub packs: Packs,
    /// Space that was never written.
    pub ahead: Ahead,
    /// What is free and not discarded yet.
    pub discards: Discards,
    /// Second hashes of longer keys, by the places of their live entries.
    pub key_checks: KeyChecks,
    /// Tombstones, oldest first: sequence number and place.
    pub tombstones: VecDeque<(u64, Place)>,
    /// What the folder says of the members.
    pub members: Members,
}

impl Core {
    /// Refuses calls after a close.
    pub fn check_open(&self) -> Result<()> {
        self.health.check_open()
    }

    /// Refuses writes after a close or a failure.
    pub fn check_writable(&self) -> Result<()> {
        self.health.check_writable()
    }

    /// A write of entries failed: readers have seen them, and some of their bytes may be on
    /// the device. Lack of space is no exception. It is met before that, where space is
    /// found for the entries ([`Core::reserve`]).
    pub fn failed_write(&self, error: Error) -> Error {
        if error.is_no_space() && self.has_bug(SeededBug::FullWriteForgiven) {
            return error;
        }
        self.health.poison(error)
    }

    pub fn has_bug(&self, bug: SeededBug) -> bool {
        self.tuning.seeded_bug.is(bug)
    }

    /// An extent's bytes: what is on its way to the device, or what lies there.
    pub fn read_extent(&self, extent: Extent) -> Result<AlignedBuffer> {
        if let Some(found) = read(&self.pending).get(&extent.block) {
            let mut bytes = crate::volume::buffer(found.len());
            bytes.copy_from_slice(found);
            return Ok(bytes);
        }
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        self.volume.read(extent)
    }

    /// Holds the moment now for a reader.
    pub fn pin(self: &Arc<Self>) -> Result<Pin> {
        self.check_open()?;
        let moment = write(&self.state).pin();
        Ok(Pin {
            core: self.clone(),
            moment,
        })
    }

    /// Lets a moment go.
    pub fn unpin(&self, moment: u64) {
        let freed = write(&self.state).unpin(moment);
        if !freed.is_empty() {
            lock(&self.unpinned).extend(freed);
        }
    }
}

/// A moment that is held: what it sees stays where it is.
#[derive(Debug)]
pub(crate) struct Pin {
    pub core: Arc<Core>,
    /// The last write that it sees.
    pub moment: u64,
}

impl Pin {
    /// Entries that it sees, from a hash on: those of one segment of the index.
    pub fn page(&self, from: u64) -> Result<Page> {
        let state = read(&self.core.state);
        // A close lets all moments go.
        self.core.check_open()?;
        Ok(state.page(from, self.moment))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.core.unpin(self.moment);
    }
}
