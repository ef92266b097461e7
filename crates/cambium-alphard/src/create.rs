//! Making a store: its folder, its members, and their first superblocks.
//!
//! A member is a device, a file that the user names, or the file `data` in the folder. One
//! that carries anything is refused unless that is to be lost (`force`). What makes the
//! folder a store comes last ([`creation`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::OptionValues;
use cambium_base::{Error, Result, StoreId};
use cambium_io::{Environment, File, FileKind, FileLock, FileSystem, LockMode, OpenOptions};
use cambium_storage::creation::{self, Around, Making, clean};
use cambium_storage::marker::{Marker, RESERVED_NAMES};
use cambium_storage::synced_mark::SYNCED_NAME;

use crate::core::Core;
use crate::format::{
    DATA_NAME, FORMAT_VERSION, IMAGE_NAME, MEMBERS_NAME, NEW_MEMBERS_NAME, SUPERBLOCK_BYTES,
    Superblock,
};
use crate::members::{self, Attached, Members};
use crate::open::{DEVICE, assemble};
use crate::options::{self, Creation, ENGINE, LEAST_SIZE, Tuning};
use crate::recovery::Recovered;
use crate::superblocks;
use crate::volume::{self, Access, MemberState, OpenMember, Volume};

/// Size of a file where nothing is said: 1 GiB.
const DEFAULT_SIZE: u64 = 1 << 30;
/// Bytes of a device that are looked at before it is formatted.
const LOOK_BYTES: u64 = 128 << 10;

/// Makes everything of a store but its marker, durable when it returns, and opens it. Its
/// memory has room for an index of so many bytes.
pub(crate) fn make(
    environment: &Environment,
    path: &Path,
    options: &OptionValues,
    index_bytes: u64,
) -> Result<Making<Arc<Core>>> {
    let mut options = options.clone();
    let wanted = options::creation(&mut options)?;
    let memory = crate::memory::plan(environment, &mut options, index_bytes)?;
    let tuning = options::tuning(options)?.within(&memory);
    let marker = Marker::of_new(environment, ENGINE, FORMAT_VERSION);
    refuse_own_names(path, &wanted)?;
    let named: Vec<PathBuf> = wanted
        .device
        .iter()
        .chain(&wanted.mirror)
        .cloned()
        .collect();
    let folder = path.to_path_buf();
    let around = Around {
        // To force a device says nothing of what lies in the folder.
        over: wanted.force && wanted.device.is_none(),
        beside: wanted.mirror.clone(),
        clear: Some(Box::new(move |file_system, unfinished| {
            let places = named.iter().map(|named| folder.join(named));
            places
                .into_iter()
                .try_for_each(|place| blank(file_system, &place, unfinished))
        })),
    };
    let (mut creation, held) =
        creation::Creation::begin_among(&environment.file_system, path, marker, around, is_ours)?;
    let filled = fill(environment, path, (&wanted, tuning), &mut creation, held);
    let filled = filled.and_then(|core| core.keep_within(memory).map(|()| core));
    Ok(Making { creation, filled })
}

/// Makes the members of a new store, and opens it.
fn fill(
    environment: &Environment,
    path: &Path,
    (wanted, tuning): (&Creation, Tuning),
    creation: &mut creation::Creation,
    held: Box<dyn FileLock>,
) -> Result<Arc<Core>> {
    let mut formatted = format_members(environment, path, wanted, &tuning, creation)?;
    formatted.locks.push(held);
    let recovered = Recovered::empty(&formatted.superblock);
    let core = assemble(environment, path, tuning, formatted, recovered, true);
    core.attach_consumers()?;
    Ok(core)
}

/// Files that an `alphard` store keeps in its folder beside its members.
const OWN_NAMES: [&str; 4] = [MEMBERS_NAME, NEW_MEMBERS_NAME, IMAGE_NAME, SYNCED_NAME];

/// True for names that an `alphard` store gives to its files.
fn is_ours(name: &str) -> bool {
    name == DATA_NAME || OWN_NAMES.contains(&name)
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
    wanted: &Creation,
    tuning: &Tuning,
    creation: &mut creation::Creation,
) -> Result<Attached> {
    let file_system = &*environment.file_system;
    let store = creation.store();
    let mut given = vec![wanted.device.clone().unwrap_or(DATA_NAME.into())];
    given.extend(wanted.mirror.clone());
    if let [one, other] = &given[..] {
        if clean(&folder.join(one)) == clean(&folder.join(other)) {
            return Err(twice(&folder.join(one)));
        }
    }
    let mut places = Vec::with_capacity(given.len());
    for (member, path) in given.iter().enumerate() {
        let named = member > 0 || wanted.device.is_some();
        places.push(take_place(
            file_system,
            folder,
            (path, named),
            (wanted, tuning),
            creation,
        )?);
    }
    let paths = places.iter().map(|place| place.path.as_path());
    let locks = members::lock_files(file_system, paths, LockMode::Alone)?;
    let alignments = places
        .iter()
        .map(|place| smallest_block(file_system, place, tuning.access));
    let smallest = alignments.max().unwrap_or(0).max(512);
    let block_bytes = wanted.block_bytes.unwrap_or(smallest);
    let fit = |place: Place| {
        let options = if place.is_device {
            DEVICE
        } else {
            OpenOptions::WRITE
        };
        let asked = (tuning.access, block_bytes);
        let file = volume::fit(file_system, place.file, options, asked)?;
        Ok(Place { file, ..place })
    };
    let places = places.into_iter().map(fit).collect::<Result<Vec<_>>>()?;
    let size = common_size(&places, wanted)?;
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
    creation.will_overwrite();
    for place in places.iter().filter(|place| !place.is_device) {
        if wanted.force && place.file.length()? > length {
            place.file.set_length(length)?;
        }
        // Before the length: where there is too little room, nothing is taken.
        place.file.allocate(0, length)?;
        if wanted.fill {
            volume::fill_with_zeros(&*place.file, 0..length)?;
        }
    }
    let mut superblock = new_superblock(environment, store, (block_bytes, total_blocks));
    superblock.members = places.len() as u32;
    superblock.current = volume.current();
    superblock.high_water = superblock.first_block();
    superblock.filled = wanted.fill;
    superblock.history_lost = wanted.history.then_some(0);
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
    Ok(Attached {
        volume,
        superblock,
        members,
        unsound: Vec::new(),
        missing: Vec::new(),
        behind: None,
        cut_off: None,
        locks,
    })
}

/// Opens what is to hold entries; what the user named must be fit for it.
fn take_place(
    file_system: &dyn FileSystem,
    folder: &Path,
    (path, named): (&Path, bool),
    (wanted, tuning): (&Creation, &Tuning),
    creation: &mut creation::Creation,
) -> Result<Place> {
    let place = folder.join(path);
    let is_there = file_system.metadata(&place)?.is_some();
    let is_mirror = wanted.mirror.as_deref() == Some(path);
    if named && (is_there || !is_mirror) {
        let option = if is_mirror { "mirror" } else { "device" };
        check_device(file_system, (option, &place), wanted.force)?;
    }
    let is_device = is_there && is_block_device(file_system, &place)?;
    let access = match is_device {
        true => DEVICE,
        // A new file alone: a creation that is refused removes the file that it made.
        false if named && !is_there => OpenOptions::CREATE_NEW,
        false => OpenOptions::CREATE,
    };
    let file = volume::open_file(file_system, &place, access, tuning.access)
        .map_err(|error| not_made(error, &place, access))?;
    if named {
        let (own, store) = (place.clone(), creation.store());
        creation.take_back(move |file_system| match is_there {
            true => blank(file_system, &own, store),
            false => remove_own(file_system, &own, store),
        });
    }
    if let Some(parent) = place
        .parent()
        .filter(|&parent| !is_device && parent != folder)
    {
        // Somebody who did not come to this may have made it.
        file_system.sync_directory(parent)?;
    }
    Ok(Place {
        path: place,
        file,
        is_device,
    })
}

/// The smallest block that direct access to a member takes. With `direct=off` as well, since a
/// later opening may use direct access.
fn smallest_block(file_system: &dyn FileSystem, place: &Place, access: Access) -> u32 {
    let direct = match access {
        Access::Buffered => {
            volume::open_file(file_system, &place.path, OpenOptions::READ, Access::Direct).ok()
        }
        Access::Direct | Access::Either => None,
    };
    direct.as_ref().unwrap_or(&place.file).alignment().offset as u32
}

/// Says more of a file that could not be made.
fn not_made(error: Error, place: &Path, access: OpenOptions) -> Error {
    match error {
        Error::Io { source, .. }
            if access.create_new && source.kind() == std::io::ErrorKind::AlreadyExists =>
        {
            Error::AlreadyExists {
                path: place.to_path_buf(),
                what: "it is a link to nothing, or somebody has made it just now".to_string(),
            }
        }
        error => error,
    }
}

/// Takes the superblocks of a store that never came to be from a place, if they are there.
fn blank(file_system: &dyn FileSystem, place: &Path, store: StoreId) -> Result<()> {
    let kind = match file_system.metadata(place)? {
        Some(found) => found.kind,
        None => return Ok(()),
    };
    let (access, _held) = match kind {
        FileKind::BlockDevice => (DEVICE, None),
        FileKind::File => {
            let held = file_system.lock(place, LockMode::Alone)?;
            (OpenOptions::WRITE, Some(held))
        }
        _ => return Ok(()),
    };
    let found = superblock_at(file_system, place)?;
    // One that was written to is somebody's, who had come to the end of making it.
    if !found.is_some_and(|found| found.store == store && found.epoch == 0) {
        return Ok(());
    }
    let file = file_system.open(place, access)?;
    file.write_at(&vec![0; 2 * SUPERBLOCK_BYTES as usize], 0)?;
    file.sync_data()
}

/// Removes a file that was made for a store which never came to be, unless somebody else
/// has taken it since.
fn remove_own(file_system: &dyn FileSystem, place: &Path, store: StoreId) -> Result<()> {
    if file_system.metadata(place)?.is_none() {
        return Ok(());
    }
    let _held = match file_system.lock(place, LockMode::Alone) {
        Err(Error::Locked { .. }) => return Ok(()),
        held => held?,
    };
    match superblock_at(file_system, place)? {
        Some(found) if found.store != store => Ok(()),
        _ => file_system.remove(place),
    }
}

fn superblock_at(file_system: &dyn FileSystem, place: &Path) -> Result<Option<Superblock>> {
    let file = file_system.open(place, OpenOptions::READ)?;
    let (found, _) = superblocks::read_superblock(&*file)?;
    Ok(found)
}

/// Refuses members under names that other files of the folder have.
fn refuse_own_names(folder: &Path, wanted: &Creation) -> Result<()> {
    let is_taken = |path: &&PathBuf| {
        let place = clean(&folder.join(path));
        let own = OWN_NAMES.iter().chain(&creation::NAMES_BESIDE);
        let mut taken = RESERVED_NAMES.iter().chain(own);
        taken.any(|name| place == clean(&folder.join(name)))
    };
    match wanted.device.iter().chain(&wanted.mirror).find(is_taken) {
        Some(path) => Err(Error::InvalidArgument(format!(
            "{}: a file of the store has this name; give its member another",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// The size of each member: what was asked for, or what the devices have, or a file that is
/// there. Such a file is not cut off without `force`.
fn common_size(places: &[Place], wanted: &Creation) -> Result<u64> {
    let asked = wanted.size;
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
    let mut longest: Option<(u64, &Path)> = None;
    for place in places.iter().filter(|place| !place.is_device) {
        let length = place.file.length()?;
        longest = longest.max((length > 0).then_some((length, &place.path)));
    }
    let of_files = longest.map(|(length, _)| length.max(LEAST_SIZE));
    let size = size
        .or(asked.filter(|&size| size > 0))
        .or(of_files)
        .unwrap_or(DEFAULT_SIZE);
    match longest.filter(|&(length, _)| length > size && !wanted.force) {
        Some((length, path)) => Err(Error::InvalidArgument(format!(
            "{}: the file has {length} bytes, and the store would cut it off at {size}: set size={length} or more, or force=on if what it holds may be lost",
            path.display()
        ))),
        None => Ok(size),
    }
}

/// Refuses one device under two names: its superblock is that of the last member.
fn check_apart(places: &[Place]) -> Result<()> {
    for (member, place) in places.iter().enumerate() {
        let (found, _) = superblocks::read_superblock(&*place.file)?;
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

fn new_superblock(
    environment: &Environment,
    store: StoreId,
    (block_bytes, total_blocks): (u32, u32),
) -> Superblock {
    let random = || environment.randomness.next_u64();
    Superblock {
        block_bytes,
        store,
        salt: random(),
        hash_secret: [random(), random()],
        total_blocks,
        ..Superblock::default()
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
fn check_device(
    file_system: &dyn FileSystem,
    (option, path): (&str, &Path),
    force: bool,
) -> Result<()> {
    let Some(found) = file_system.metadata(path)? else {
        return Err(Error::InvalidArgument(format!(
            "option {option}={}: there is nothing at this path",
            path.display()
        )));
    };
    if !matches!(found.kind, FileKind::BlockDevice | FileKind::File) {
        return Err(Error::InvalidArgument(format!(
            "option {option}={}: expected a block device or a file",
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
