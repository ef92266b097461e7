//! Making, opening and recovering a store.
//!
//! A store is a folder with its marker, its lock, the file `members` that says where
//! the entries lie, and the index image of the last clean close; the entries lie in
//! the file `data` there, or on a device. The marker comes last when a store is
//! made, so a crash before leaves none.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use cambium_api::{OptionValues, ProgressSink};
use cambium_base::{Error, Result, StoreId};
use cambium_io::{Environment, File, FileKind, FileLock, FileSystem, LockMode, OpenOptions};
use cambium_storage::commit_queue::CommitQueue;
use cambium_storage::health::Health;
use cambium_storage::marker::{self, MARKER_NAME, Marker};

use crate::ahead::Ahead;
use crate::core::{Core, KEY_CHECK_BYTES, KeyChecks, Writer, lock};
use crate::discard::Discards;
use crate::flights::Flights;
use crate::format::{
    DATA_NAME, FORMAT_VERSION, IMAGE_NAME, LOCK_NAME, MEMBERS_NAME, NEW_MEMBERS_NAME,
    SUPERBLOCK_BYTES, Superblock, UNFINISHED_NAME,
};
use crate::members::{self, Attached, Locks, Members, attach};
use crate::options::{self, Creation, ENGINE, OPTIONS, Tuning};
use crate::outgoing::Outgoing;
use crate::recovery::{self, Recovered};
use crate::replies::Replies;
use crate::seeded_bug::SeededBug;
use crate::stats::Counters;
use crate::submit::Submissions;
use crate::volume::{self, MemberState, OpenMember, Volume};
use crate::{image, mirror, upkeep};

/// How devices are opened for writing: refused while they are mounted, or another
/// store's.
pub(crate) const DEVICE: OpenOptions = OpenOptions {
    exclusive: true,
    ..OpenOptions::WRITE
};
/// Size of a file where nothing is said: 1 GiB.
const DEFAULT_SIZE: u64 = 1 << 30;
/// Bytes of a device that are looked at before it is formatted.
const LOOK_BYTES: u64 = 128 << 10;

/// Makes a store, durable when it returns, and opens it.
pub(crate) fn create(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
) -> Result<Arc<Core>> {
    let unfinished = make(environment, path, options)?;
    let core = unfinished.core.clone();
    unfinished.finish().map(|()| core)
}

/// A store that is none yet: its marker is missing.
pub(crate) struct Unfinished {
    pub core: Arc<Core>,
    made: Vec<PathBuf>,
}

impl Unfinished {
    /// Makes it a store, durably.
    pub fn finish(self) -> Result<()> {
        let marker = Marker {
            engine: ENGINE.to_string(),
            format_version: FORMAT_VERSION,
            store: lock(&self.core.writer).superblock.store,
        };
        let file_system = &*self.core.environment.file_system;
        let written = marker::write_marker(file_system, &self.core.path, &marker);
        written.inspect_err(|_| self.give_back())?;
        // Counts only where there is no marker; an opening removes what stays.
        let removed = file_system.remove(&self.core.path.join(UNFINISHED_NAME));
        if removed.is_ok() {
            _ = file_system.sync_directory(&self.core.path);
        }
        Ok(())
    }

    /// As [`Unfinished::give_back`], where what was made has been closed, and the lock given
    /// back.
    pub fn give_back_closed(&self) {
        let file_system = &*self.core.environment.file_system;
        let path = &self.core.path;
        let Ok(_held) = file_system.lock(&path.join(LOCK_NAME), LockMode::Exclusive) else {
            return;
        };
        if matches!(self.is_still_there(), Ok(true)) {
            self.give_back();
        }
    }

    /// True if nobody has made another store of the folder.
    fn is_still_there(&self) -> Result<bool> {
        let file_system = &*self.core.environment.file_system;
        let own = lock(&self.core.writer).superblock.store;
        let found = members::superblocks_named(file_system, &self.core.path, &self.core.tuning)?;
        Ok(found.iter().any(|(_, found)| found.store == own))
    }

    /// It is to be none.
    pub fn give_back(&self) {
        let file_system = &*self.core.environment.file_system;
        give_back(file_system, &self.core.path, &self.made);
    }

    /// As [`Unfinished::finish`], where what was made has been closed, and the lock given
    /// back: somebody may have made another store of the folder since.
    pub fn finish_closed(self) -> Result<()> {
        let file_system = &*self.core.environment.file_system;
        let path = &self.core.path;
        let _held = file_system.lock(&path.join(LOCK_NAME), LockMode::Exclusive)?;
        if !self.is_still_there()? {
            return Err(Error::AlreadyExists {
                path: path.clone(),
                what: "another store was made here meanwhile".to_string(),
            });
        }
        self.finish()
    }
}

/// Makes everything of a store but its marker, durable when it returns.
pub(crate) fn make(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
) -> Result<Unfinished> {
    let mut options = options.clone();
    let creation = options::creation(&mut options)?;
    let tuning = options::tuning(options)?;
    let file_system = &*environment.file_system;
    let prepared = marker::prepare_folder(file_system, path, is_ours)?;
    let (held, made, formatted) = match begin_making(environment, path, &creation, &tuning) {
        Ok(begun) => begun,
        Err(error) => {
            prepared.give_back(file_system, path, is_ours);
            return Err(error);
        }
    };
    let (volume, superblock, members, mut locks) = match formatted {
        Ok(formatted) => formatted,
        Err(error) => {
            give_back(file_system, path, &made);
            drop(held);
            prepared.give_back(file_system, path, is_ours);
            return Err(error);
        }
    };
    locks.push(held);
    let recovered = Recovered::empty(&superblock);
    let core = assemble(
        environment,
        path,
        tuning,
        (volume, superblock, members),
        recovered,
        locks,
    );
    Ok(Unfinished { core, made })
}

/// The lock of a store to be made, what files are made for it, and what became of that.
type Begun = (
    Box<dyn FileLock>,
    Vec<PathBuf>,
    Result<(Volume, Superblock, Members, Locks)>,
);

/// Makes the files of a store, or takes the devices.
fn begin_making(
    environment: &Environment,
    path: &Path,
    creation: &Creation,
    tuning: &Tuning,
) -> Result<Begun> {
    let file_system = &*environment.file_system;
    let held = file_system.lock(&path.join(LOCK_NAME), LockMode::Exclusive)?;
    refuse_what_lost_its_marker(file_system, path, creation, tuning)?;
    let made = files_made(file_system, path, creation)?;
    let formatted = mark_unfinished(file_system, path)
        .and_then(|()| format_members(environment, path, creation, tuning))
        .and_then(|formatted| file_system.sync_directory(path).map(|()| formatted));
    Ok((held, made, formatted))
}

/// Refuses a folder in which a store lies that a repair brings back.
fn refuse_what_lost_its_marker(
    file_system: &dyn FileSystem,
    path: &Path,
    creation: &Creation,
    tuning: &Tuning,
) -> Result<()> {
    let is_unfinished = file_system.metadata(&path.join(UNFINISHED_NAME))?.is_some();
    if is_unfinished || creation.force {
        return Ok(());
    }
    match members::superblocks_named(file_system, path, tuning)?.is_empty() {
        true => Ok(()),
        false => Err(Error::AlreadyExists {
            path: path.to_path_buf(),
            what: "a store lies here that has lost its marker: repair makes that anew; set force=on to lose all of it".to_string(),
        }),
    }
}

/// Says, durably, that what lies in the folder is not to be taken for a store that has lost
/// its marker.
fn mark_unfinished(file_system: &dyn FileSystem, folder: &Path) -> Result<()> {
    file_system.open(&folder.join(UNFINISHED_NAME), OpenOptions::CREATE)?;
    file_system.sync_directory(folder)
}

/// The files that making a store makes: nobody would know of what a failure leaves.
fn files_made(
    file_system: &dyn FileSystem,
    folder: &Path,
    creation: &Creation,
) -> Result<Vec<PathBuf>> {
    let mut places = vec![folder.join(MEMBERS_NAME)];
    if creation.device.is_none() {
        places.push(folder.join(DATA_NAME));
    }
    places.extend(creation.mirror.as_ref().map(|mirror| folder.join(mirror)));
    // The last to be given back: while it is there nothing beside it is a store.
    places.push(folder.join(UNFINISHED_NAME));
    let mut made = Vec::with_capacity(places.len());
    for place in places {
        // What was there is somebody's, perhaps another store's.
        if file_system.metadata(&place)?.is_none() {
            made.push(place);
        }
    }
    Ok(made)
}

/// Removes what was made of a store that has come to nothing. The failure that led here
/// is told; one of this is not.
fn give_back(file_system: &dyn FileSystem, folder: &Path, made: &[PathBuf]) {
    if !matches!(file_system.metadata(&folder.join(MARKER_NAME)), Ok(None)) {
        // It is a store.
        return;
    }
    for path in made {
        let is_last = path.ends_with(UNFINISHED_NAME);
        if is_last && file_system.sync_directory(folder).is_err() {
            return;
        }
        let gone = match file_system.metadata(path) {
            Ok(Some(_)) => file_system.remove(path).is_ok(),
            found => found.is_ok(),
        };
        if !gone {
            return;
        }
    }
}

/// A member to be formatted.
struct Place {
    path: PathBuf,
    file: Arc<dyn File>,
    is_device: bool,
}

/// Makes files or takes devices, and writes the superblocks.
fn format_members(
    environment: &Environment,
    folder: &Path,
    creation: &Creation,
    tuning: &Tuning,
) -> Result<(Volume, Superblock, Members, Locks)> {
    let file_system = &*environment.file_system;
    let mut given = vec![creation.device.clone().unwrap_or(DATA_NAME.into())];
    given.extend(creation.mirror.clone());
    if let [one, other] = &given[..] {
        if folder.join(one) == folder.join(other) {
            return Err(twice(&folder.join(one)));
        }
    }
    let mut places = Vec::with_capacity(given.len());
    for (member, path) in given.iter().enumerate() {
        let named = member > 0 || creation.device.is_some();
        places.push(take_place(
            file_system,
            folder,
            (path, named),
            creation,
            tuning,
        )?);
    }
    let paths = places.iter().map(|place| place.path.as_path());
    let locks = members::lock_files(file_system, paths, LockMode::Alone)?;
    let alignments = places
        .iter()
        .map(|place| place.file.alignment().offset as u32);
    let smallest = alignments.max().unwrap_or(0).max(512);
    let block_bytes = creation.block_bytes.unwrap_or(smallest);
    let size = common_size(&places, creation.size)?;
    let open = places.iter().map(|place| OpenMember {
        path: place.path.clone(),
        file: Some(place.file.clone()),
        state: MemberState::Current,
    });
    let volume = Volume::new(open.collect(), block_bytes)?;
    let blocks = size / u64::from(block_bytes);
    let Some(total_blocks) = u32::try_from(blocks)
        .ok()
        .filter(|&blocks| blocks < u32::MAX)
    else {
        return Err(Error::InvalidArgument(format!(
            "option size={size}: a store has fewer than 2^32 blocks of {block_bytes} bytes"
        )));
    };
    let length = u64::from(total_blocks) * u64::from(block_bytes);
    for place in places.iter().filter(|place| !place.is_device) {
        if place.file.length()? > length {
            place.file.set_length(length)?;
        }
        // Before the length: where there is too little room, nothing is taken.
        place.file.allocate(0, length)?;
    }
    let mut superblock = new_superblock(environment, block_bytes, total_blocks);
    superblock.members = places.len() as u32;
    superblock.current = volume.current();
    superblock.high_water = superblock.first_block();
    volume.write_superblock(&mut superblock)?;
    if volume.is_mirrored() {
        check_apart(&places)?;
    }
    let members = Members {
        paths: given,
        current: superblock.current,
    };
    if superblock.current != members::all_of(places.len()) {
        return Err(Error::InvalidArgument(
            "a member failed while the store was made".to_string(),
        ));
    }
    members.write(file_system, folder)?;
    Ok((volume, superblock, members, locks))
}

/// Opens what is to hold entries; what the user named must be fit for it.
fn take_place(
    file_system: &dyn FileSystem,
    folder: &Path,
    (path, named): (&Path, bool),
    creation: &Creation,
    tuning: &Tuning,
) -> Result<Place> {
    let place = folder.join(path);
    let is_there = file_system.metadata(&place)?.is_some();
    let is_mirror = creation.mirror.as_deref() == Some(path);
    if named && (is_there || !is_mirror) {
        check_device(file_system, &place, creation.force)?;
    }
    let is_device = is_there && is_block_device(file_system, &place)?;
    let access = if is_device {
        DEVICE
    } else {
        OpenOptions::CREATE
    };
    let file = volume::open_file(file_system, &place, access, tuning.access)?;
    if let Some(parent) = place
        .parent()
        .filter(|&parent| !is_there && parent != folder)
    {
        file_system.sync_directory(parent)?;
    }
    Ok(Place {
        path: place,
        file,
        is_device,
    })
}

/// The size of each member: what was asked for, or what the devices have.
fn common_size(places: &[Place], asked: Option<u64>) -> Result<u64> {
    let mut size = None;
    for place in places.iter().filter(|place| place.is_device) {
        let own = device_size(&place.path, place.file.length()?, asked)?;
        match size {
            Some(other) if other != own => {
                return Err(Error::InvalidArgument(format!(
                    "the members have {other} and {own} bytes: set size to what both have"
                )));
            }
            _ => size = Some(own),
        }
    }
    Ok(size
        .or(asked.filter(|&size| size > 0))
        .unwrap_or(DEFAULT_SIZE))
}

/// Refuses one device under two names: its superblock is that of the last member.
fn check_apart(places: &[Place]) -> Result<()> {
    for (member, place) in places.iter().enumerate() {
        let (found, _) = volume::read_superblock(&*place.file)?;
        if found.is_none_or(|found| found.member as usize != member) {
            return Err(twice(&place.path));
        }
    }
    Ok(())
}

fn twice(path: &Path) -> Error {
    Error::InvalidArgument(format!(
        "option mirror: {} is the store's first member as well",
        path.display()
    ))
}

fn new_superblock(environment: &Environment, block_bytes: u32, total_blocks: u32) -> Superblock {
    let mut id = [0; 16];
    environment.randomness.fill(&mut id);
    let random = || environment.randomness.next_u64();
    Superblock {
        block_bytes,
        generation: 0,
        store: StoreId(id),
        salt: random(),
        hash_secret: [random(), random()],
        image_id: 0,
        sequence: 0,
        synced_through: 0,
        live_digest: 0,
        live_entries: 0,
        epoch: 0,
        clean: false,
        total_blocks,
        high_water: 0,
        member: 0,
        members: 1,
        current: 1,
    }
}

fn is_block_device(file_system: &dyn FileSystem, path: &Path) -> Result<bool> {
    let found = file_system.metadata(path)?;
    Ok(found.is_some_and(|found| found.kind == FileKind::BlockDevice))
}

fn device_size(path: &Path, length: u64, asked: Option<u64>) -> Result<u64> {
    match asked.filter(|&size| size > 0) {
        Some(size) if size > length => Err(Error::InvalidArgument(format!(
            "option size={size}: {} has {length} bytes",
            path.display()
        ))),
        Some(size) => Ok(size),
        None if length < options::LEAST_SIZE => Err(Error::InvalidArgument(format!(
            "{} has {length} bytes; a store needs {} or more",
            path.display(),
            options::LEAST_SIZE
        ))),
        None => Ok(length),
    }
}

/// Marks of what a device may carry: bytes from its start, the mark, its name.
const SIGNATURES: [(usize, &[u8], &str); 12] = [
    (0, b"CMBMalph", "an alphard store"),
    (SUPERBLOCK_BYTES as usize, b"CMBMalph", "an alphard store"),
    (1080, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (65_600, b"_BHRfS_M", "a btrfs file system"),
    (512, b"EFI PART", "a partition table"),
    (4096, b"EFI PART", "a partition table"),
    (510, &[0x55, 0xaa], "a partition table or a FAT file system"),
    (4086, b"SWAPSPACE2", "swap space"),
    (0, b"LUKS\xba\xbe", "an encrypted volume"),
    (512, b"LABELONE", "an LVM volume"),
    (
        4096,
        &[0xfc, 0x4e, 0x2b, 0xa9],
        "a member of a software RAID",
    ),
];

/// Refuses a device that carries anything, unless forced.
fn check_device(file_system: &dyn FileSystem, path: &Path, force: bool) -> Result<()> {
    let Some(found) = file_system.metadata(path)? else {
        return Err(Error::InvalidArgument(format!(
            "option device={}: there is nothing at this path",
            path.display()
        )));
    };
    if !matches!(found.kind, FileKind::BlockDevice | FileKind::File) {
        return Err(Error::InvalidArgument(format!(
            "option device={}: expected a block device or a file",
            path.display()
        )));
    }
    if force {
        return Ok(());
    }
    let file = file_system.open(path, OpenOptions::READ)?;
    let mut bytes = vec![0; LOOK_BYTES.min(found.length) as usize];
    let count = file.read_at(&mut bytes, 0)?;
    bytes.truncate(count);
    let known = SIGNATURES
        .iter()
        .find(|(at, mark, _)| bytes.get(*at..at + mark.len()) == Some(*mark));
    let what = match known {
        Some((_, _, name)) => *name,
        None if bytes.iter().any(|&byte| byte != 0) => "data",
        None => return Ok(()),
    };
    Err(Error::AlreadyExists {
        path: path.to_path_buf(),
        what: format!(
            "it carries {what}; set force=on to lose all of that, or erase its first 128 KiB"
        ),
    })
}

/// Opens a store for reading and writing, recovering it where needed.
pub(crate) fn open(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
    progress: &dyn ProgressSink,
) -> Result<Arc<Core>> {
    options.refuse_fixed(OPTIONS)?;
    let tuning = options::tuning(options.clone())?;
    let file_system = &*environment.file_system;
    let marker = marker::read_marker_of(file_system, path, ENGINE, FORMAT_VERSION)?;
    let held = file_system.lock(&path.join(LOCK_NAME), LockMode::Exclusive)?;
    let unfinished = path.join(UNFINISHED_NAME);
    if file_system.metadata(&unfinished)?.is_some() {
        // It is a store: its marker is there.
        _ = file_system.remove(&unfinished);
    }
    let attached = attach(file_system, path, &marker, &tuning, DEVICE, false)?;
    let Attached {
        volume,
        mut superblock,
        members,
        mut locks,
        ..
    } = attached;
    locks.push(held);
    let load = || load(environment, path, (&volume, &superblock), &tuning, progress);
    let mut recovered = mirror::load_alike(&volume, &superblock, &tuning, false, load)?;
    if let Some(damage) = recovered.damage() {
        return Err(damage);
    }
    let scanned = !recovered.from_image;
    if scanned {
        make_durable(&volume, &mut superblock, &mut recovered, &tuning)?;
    }
    let core = assemble(
        environment,
        path,
        tuning,
        (volume, superblock, members),
        recovered,
        locks,
    );
    if scanned {
        // What is read from now on must be there after the next crash: a member that
        // is missing, and lacks some of it, must not be opened alone.
        core.keep_members(&mut lock(&core.writer))?;
    }
    Ok(core)
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
    match image::load(file_system, path, superblock)? {
        Some(recovered) => Ok(recovered),
        None => recovery::recover(environment, volume, superblock, tuning, progress),
    }
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
    if recovered.dead.is_empty() || tuning.seeded_bug == Some(SeededBug::CutNotErased) {
        return Ok(());
    }
    superblock.sequence = recovered.sequence;
    superblock.synced_through = recovered.sequence;
    superblock.live_digest = recovered.state.live_digest;
    superblock.live_entries = recovered.state.index.len() as u64;
    volume.write_superblock(superblock)?;
    recovered.marked = recovered.sequence;
    upkeep::erase_blocks(volume, &recovered.dead)?;
    volume.sync()
}

/// True for names that an `alphard` store gives to its files.
pub(crate) fn is_ours(name: &str) -> bool {
    [
        DATA_NAME,
        MEMBERS_NAME,
        NEW_MEMBERS_NAME,
        IMAGE_NAME,
        UNFINISHED_NAME,
        LOCK_NAME,
    ]
    .contains(&name)
}

pub(crate) fn assemble(
    environment: &Environment,
    path: &Path,
    tuning: Tuning,
    (volume, superblock, members): (Volume, Superblock, Members),
    recovered: Recovered,
    locks: Locks,
) -> Arc<Core> {
    let block_bytes = superblock.block_bytes;
    let secret = recovered.state.secret();
    Arc::new(Core {
        environment: environment.clone(),
        path: path.to_path_buf(),
        seed: superblock.seed(),
        block_bytes,
        volume,
        maintenance: Mutex::default(),
        zeroing: Mutex::default(),
        zeros_under_way: Mutex::default(),
        writer: Mutex::new(Writer {
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
            ahead: Ahead::default(),
            discards: Discards::new(tuning.discard_bytes),
            key_checks: KeyChecks::new((tuning.key_cache_bytes / KEY_CHECK_BYTES) as usize),
            tombstones: recovered.tombstones,
            members,
        }),
        syncing: Mutex::default(),
        settled: Mutex::default(),
        flights: Flights::default(),
        state: RwLock::new(recovered.state),
        pending: RwLock::default(),
        unpinned: Mutex::default(),
        mirroring: Mutex::default(),
        unsound: Mutex::default(),
        queue: CommitQueue::default(),
        submissions: Submissions::new(tuning.queues, secret),
        replies: Replies::default(),
        replier: OnceLock::new(),
        workers: OnceLock::new(),
        queues: Default::default(),
        health: Health::default(),
        cancelled: AtomicBool::new(false),
        counters: Counters::default(),
        locks: Mutex::new(locks),
        zeros: OnceLock::new(),
        background: OnceLock::new(),
        tuning,
    })
}
