//! Opening and recovering a store.
//!
//! A store is a folder with its marker, its lock, the file `members` that says where
//! the entries lie, and the index image of the last clean close; the entries lie in
//! the file `data` there, or on a device. The marker comes last when a store is
//! made, so a crash before leaves none.

use std::path::Path;
use std::sync::Arc;

use cambium_api::{MemoryPlan, OptionValues, ProgressSink, RecentWrites};
use cambium_base::{Error, Result};
use cambium_io::sync::atomic::{AtomicBool, AtomicU64};
use cambium_io::sync::{Mutex, OnceLock, RwLock};
use cambium_io::{Environment, LockMode, OpenOptions};
use cambium_storage::commit_queue::CommitQueue;
use cambium_storage::creation;
use cambium_storage::health::Health;
use cambium_storage::store_lock::lock_store;
use cambium_storage::synced_mark::{self, SyncedMark};

use crate::ahead::Ahead;
use crate::core::{Core, Writer, lock};
use crate::discard::Discards;
use crate::flights::Flights;
use crate::format::{FORMAT_VERSION, Superblock};
use crate::kept::Kept;
use crate::key_checks::{KEY_CHECK_BYTES, KeyChecks};
use crate::members::{Attached, attach};
use crate::options::{self, ENGINE, Tuning};
use crate::outgoing::Outgoing;
use crate::recovery::{self, Recovered};
use crate::replies::Replies;
use crate::seeded_bug::SeededBug;
use crate::stats::Counters;
use crate::submit::Submissions;
use crate::volume::Volume;
use crate::{image, mirror, upkeep};

/// The engine, and the newest version of its format.
pub(crate) const FORMAT: (&str, u32) = (ENGINE, FORMAT_VERSION);

/// How devices are opened for writing: refused while they are mounted, or another
/// store's.
pub(crate) const DEVICE: OpenOptions = OpenOptions {
    exclusive: true,
    ..OpenOptions::WRITE
};

/// Opens a store for reading and writing, recovering it where needed.
pub(crate) fn open(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
    progress: &dyn ProgressSink,
) -> Result<Arc<Core>> {
    let (tuning, fixed) = options::tuning_of_opening(options)?;
    let file_system = &*environment.file_system;
    let (marker, held) = lock_store(file_system, path, FORMAT, LockMode::Exclusive)?;
    creation::settle(file_system, path)?;
    let mut attached = attach(file_system, path, &marker, &tuning, DEVICE, false)?;
    attached.locks.push(held);
    options::check_fixed(fixed, path, &attached.members, &attached.superblock)?;
    let (volume, superblock) = (&attached.volume, &mut attached.superblock);
    let load = || load(environment, path, (volume, superblock), &tuning, progress);
    let mut recovered = mirror::load_alike(volume, superblock, &tuning, false, load)?;
    if let Some(damage) = recovered.damage() {
        return Err(damage);
    }
    let (memory, tuning) = plan(environment, options, &recovered)?;
    distrust_cache(volume, superblock, &recovered, &tuning)?;
    let scanned = !recovered.from_image;
    if scanned {
        make_durable(volume, superblock, &mut recovered, &tuning)?;
    }
    let core = assemble(environment, path, tuning, attached, recovered, true);
    core.attach_consumers()?;
    core.keep_within(memory)?;
    if scanned {
        // What is read from now on must be there after the next crash: a member that
        // is missing, and lacks some of it, must not be opened alone.
        core.keep_members(&mut lock(&core.writer))?;
    }
    Ok(core)
}

/// Opens a store for reading alone, and changes nothing. Other readers may do the
/// same, and no process writes meanwhile. After a crash each such opening scans. Of two members that a crash left
/// with different bytes, the one whose headers are believed is read.
pub(crate) fn open_read_only(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
    progress: &dyn ProgressSink,
) -> Result<Arc<Core>> {
    let (tuning, fixed) = options::tuning_of_opening(options)?;
    let file_system = &*environment.file_system;
    let (marker, held) = lock_store(file_system, path, FORMAT, LockMode::Shared)?;
    let access = OpenOptions::READ;
    let mut attached = attach(file_system, path, &marker, &tuning, access, false)?;
    attached.locks.push(held);
    let (volume, superblock) = (&attached.volume, &attached.superblock);
    options::check_fixed(fixed, path, &attached.members, superblock)?;
    let recovered = load(environment, path, (volume, superblock), &tuning, progress)?;
    if let Some(damage) = recovered.damage() {
        return Err(damage);
    }
    let (memory, tuning) = plan(environment, options, &recovered)?;
    if !recovered.differing.is_empty() {
        let others = volume.readable().filter(|&at| at != recovered.believed);
        others.for_each(|other| volume.make_stale(other));
    }
    let core = assemble(environment, path, tuning, attached, recovered, false);
    core.attach_consumers()?;
    core.keep_within(memory)?;
    Ok(core)
}

/// The memory of a store and its options within that. The entries are known by now: a budget
/// that is too small is refused with one that has room for their index.
fn plan(
    environment: &Environment,
    options: &OptionValues,
    recovered: &Recovered,
) -> Result<(MemoryPlan, Tuning)> {
    let mut options = options.clone();
    let memory = crate::memory::plan(environment, &mut options, recovered.index_bytes())?;
    let (tuning, _) = options::tuning_of_opening(&options)?;
    let tuning = tuning.within(&memory);
    Ok((memory, tuning))
}

/// What the store holds: by its image after a clean close, else by a scan.
pub(crate) fn load(
    environment: &Environment,
    path: &Path,
    (volume, superblock): (&Volume, &Superblock),
    tuning: &Tuning,
    progress: &dyn ProgressSink,
) -> Result<Recovered> {
    let file_system = &*environment.file_system;
    match image::load(file_system, path, superblock) {
        Ok(Some(recovered)) => Ok(recovered),
        // The entries say the same: an image that cannot be read is as good as none.
        Ok(None) | Err(Error::Io { .. } | Error::Corruption { .. }) => {
            let mut recovered =
                recovery::recover(environment, volume, superblock, tuning, progress)?;
            let session = (superblock.store, superblock.epoch);
            let through = synced_mark::synced_through(file_system, path, session).unwrap_or(0);
            recovered.miss_promised(through, volume);
            cambium_io::events::recovered("alphard", path, recovered.sequence);
            Ok(recovered)
        }
        Err(error) => Err(error),
    }
}

/// Writes what was read through the operating system's cache once more. After a failed sync
/// pages stay there as clean, whose bytes the device never got: no later sync writes them.
/// An image was durable before the superblock that names it was written.
pub(crate) fn distrust_cache(
    volume: &Volume,
    superblock: &mut Superblock,
    recovered: &Recovered,
    tuning: &Tuning,
) -> Result<()> {
    if !volume.is_cached() || tuning.seeded_bug.is(SeededBug::CacheBelieved) {
        return Ok(());
    }
    if !recovered.from_image {
        volume.write_again(superblock.first_block(), superblock.high_water)?;
    }
    // Write the superblock after the entries, so that it is true whenever it is durable.
    volume.write_superblock(superblock)
}

/// Makes what recovery keeps durable, and erases what it cut off: nothing of that
/// may be there when numbers are given out again. What is cut off may be all that
/// says how much is durable, so the superblock says it first.
fn make_durable(
    volume: &Volume,
    superblock: &mut Superblock,
    recovered: &mut Recovered,
    tuning: &Tuning,
) -> Result<()> {
    volume.sync()?;
    if recovered.dead.is_empty() || tuning.seeded_bug.is(SeededBug::CutNotErased) {
        return Ok(());
    }
    superblock.describe(recovered.sequence, &recovered.state);
    volume.write_superblock(superblock)?;
    recovered.marked = recovered.sequence;
    upkeep::erase_blocks(volume, &recovered.dead)?;
    volume.sync()
}

/// An open store of its members, and of what they hold.
pub(crate) fn assemble(
    environment: &Environment,
    path: &Path,
    tuning: Tuning,
    attached: Attached,
    recovered: Recovered,
    writable: bool,
) -> Arc<Core> {
    let superblock = attached.superblock;
    let secret = recovered.state.secret();
    Arc::new(Core {
        environment: environment.clone(),
        path: path.to_path_buf(),
        seed: superblock.seed(),
        block_bytes: superblock.block_bytes,
        volume: attached.volume,
        memory: OnceLock::new(),
        maintenance: Mutex::default(),
        zeroing: Mutex::default(),
        writer: Mutex::new(Writer {
            index_memory: None,
            allocator: recovered.allocator,
            superblock,
            next_sequence: recovered.sequence + 1,
            synced_through: recovered.sequence,
            stating: recovered.marked,
            stated: recovered.marked,
            marked: recovered.marked,
            unsynced: false,
            starts: 0,
            session_begun: false,
            pending_bytes: 0,
            outgoing: Outgoing::default(),
            stale: recovered.stale,
            packs: recovered.packs,
            ahead: Ahead::default(),
            discards: Discards::new(tuning.discard_bytes),
            key_checks: KeyChecks::new((tuning.key_cache_bytes / KEY_CHECK_BYTES) as usize),
            tombstones: recovered.tombstones,
            members: attached.members,
        }),
        syncing: Mutex::default(),
        settled: Mutex::default(),
        synced_mark: SyncedMark::default(),
        flights: Flights::default(),
        state: RwLock::new(recovered.state),
        pending: RwLock::default(),
        kept: Kept::new(tuning.cache_of(environment)),
        unpinned: Mutex::default(),
        mirroring: Mutex::default(),
        consumers: OnceLock::new(),
        synced: AtomicU64::new(recovered.sequence),
        unsound: Mutex::default(),
        queue: CommitQueue::default(),
        submissions: Submissions::new(tuning.queues, secret, tuning.submitted_bytes),
        replies: Replies::default(),
        replier: OnceLock::new(),
        workers: OnceLock::new(),
        queues: Default::default(),
        health: Health::of(ENGINE, writable)
            .forgetting(tuning.seeded_bug.is(SeededBug::SyncRetried)),
        recent: RecentWrites::default(),
        cancelled: AtomicBool::new(false),
        seen_idle: AtomicU64::default(),
        counters: Counters::default(),
        locks: Mutex::new(attached.locks),
        zeros: OnceLock::new(),
        background: OnceLock::new(),
        tuning,
    })
}
