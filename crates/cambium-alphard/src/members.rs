//! The members of a store: the file that names them, which of them are there, and
//! which have every entry.
//!
//! The file `members` is text, so that a person who looks learns where the entries
//! lie. Of a pair it also says which members are current:
//!
//! ```text
//! cambium alphard members
//! member data
//! member /mirror/file
//! current 1 2
//! checksum 1f2e3d4c
//! ```
//!
//! Who is current is said in three places before a write that a member lacks is
//! acknowledged: in both copies of the superblock of those that have it, and here. The superblock of the highest generation decides where both members are
//! there. The file decides where only one is: without it the member that was left
//! behind could not know that it was. Two members that both were written to without
//! the other are refused: nobody can tell which to keep.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::checksum::crc32c;
use cambium_base::{Error, Result};
use cambium_io::{File, FileKind, FileLock, FileSystem, LockMode, OpenOptions};
use cambium_storage::marker::Marker;

use crate::core::{Core, Writer};
use crate::format::{DATA_NAME, MEMBERS_NAME, NEW_MEMBERS_NAME, SUPERBLOCK_BYTES, Superblock};
use crate::options::Tuning;
use crate::seeded_bug::SeededBug;
use crate::volume::{self, MemberState, OpenMember, Volume};

const FIRST_LINE: &str = "cambium alphard members";
/// Most bytes of the file.
const MOST_BYTES: usize = 16 << 10;

/// Where a store's entries lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Members {
    /// As they were given: relative ones lie in the store's folder.
    pub paths: Vec<PathBuf>,
    /// A bit for each that has every entry.
    pub current: u32,
}

/// What keeps others out for as long as it is held.
pub(crate) type Locks = Vec<Box<dyn FileLock>>;

/// A bit for each of so many members.
pub(crate) fn all_of(count: usize) -> u32 {
    (1 << count) - 1
}

impl Members {
    fn encode(&self) -> Result<String> {
        let mut text = format!("{FIRST_LINE}\n");
        for path in &self.paths {
            let Some(path) = path.to_str().filter(|text| !text.contains('\n')) else {
                return Err(Error::InvalidArgument(format!(
                    "{}: expected a path in UTF-8 without line breaks",
                    path.display()
                )));
            };
            text += &format!("member {path}\n");
        }
        if self.paths.len() > 1 {
            let numbers = (0..self.paths.len()).filter(|member| self.current >> member & 1 == 1);
            let numbers: Vec<String> = numbers.map(|member| (member + 1).to_string()).collect();
            text += &format!("current {}\n", numbers.join(" "));
        }
        text += &format!("checksum {:08x}\n", crc32c(text.as_bytes()));
        Ok(text)
    }

    fn decode(text: &str) -> Option<Members> {
        let (body, checksum) = text.trim_end().rsplit_once("\nchecksum ")?;
        let covered = body.len() + 1;
        if crc32c(&text.as_bytes()[..covered]) != u32::from_str_radix(checksum, 16).ok()? {
            return None;
        }
        let mut paths = Vec::new();
        let mut current = None;
        for line in body.strip_prefix(FIRST_LINE)?.lines().skip(1) {
            if let Some(path) = line.strip_prefix("member ") {
                paths.push(PathBuf::from(path));
            } else {
                let mut bits = 0;
                for number in line.strip_prefix("current ")?.split(' ') {
                    let number: u32 = number.parse().ok()?;
                    bits |= 1u32.checked_shl(number.checked_sub(1)?)?;
                }
                current = Some(bits);
            }
        }
        let current = current.unwrap_or(all_of(paths.len().min(2)));
        (1..=2)
            .contains(&paths.len())
            .then_some(Members { paths, current })
    }

    /// Writes the file, durably, in place of the one before.
    pub fn write(&self, file_system: &dyn FileSystem, folder: &Path) -> Result<()> {
        let path = folder.join(MEMBERS_NAME);
        let new = match file_system.metadata(&path)? {
            Some(_) => folder.join(NEW_MEMBERS_NAME),
            // A store in the making, or one that has lost it: there is none to spoil.
            None => path.clone(),
        };
        let options = OpenOptions {
            truncate: true,
            ..OpenOptions::CREATE
        };
        let file = file_system.open(&new, options)?;
        file.write_at(self.encode()?.as_bytes(), 0)?;
        file.sync_data()?;
        if new != path {
            file_system.rename(&new, &path)?;
        }
        file_system.sync_directory(folder)
    }

    /// Reads the file.
    pub fn read(file_system: &dyn FileSystem, folder: &Path) -> Result<Members> {
        let path = folder.join(MEMBERS_NAME);
        let damage = |what: &str| Err(Error::corruption(&path, 0, what));
        if file_system.metadata(&path)?.is_none() {
            return damage("the file that says where the entries lie is missing");
        }
        let file = file_system.open(&path, OpenOptions::READ)?;
        let mut bytes = vec![0; MOST_BYTES];
        let count = file.read_at(&mut bytes, 0)?;
        match std::str::from_utf8(&bytes[..count])
            .ok()
            .and_then(Members::decode)
        {
            Some(members) => Ok(members),
            None => damage("the file that says where the entries lie does not match its checksum"),
        }
    }
}

/// A store's members, open, with what their superblocks say.
#[derive(Debug)]
pub(crate) struct Attached {
    pub volume: Volume,
    /// The newest one.
    pub superblock: Superblock,
    pub members: Members,
    /// Copies of the superblock that are not sound: member and offset.
    pub unsound: Vec<(usize, u64)>,
    /// Why members are not there.
    pub missing: Vec<(usize, Error)>,
    /// A member that was behind, taken as it is: a blank one stands where all was.
    pub behind: Option<usize>,
    /// Of members that are files: another folder may name them too.
    pub locks: Locks,
}

/// What became of opening a member.
enum Found {
    Sound(Arc<dyn File>, Superblock),
    /// Open, and all zeros where the superblocks should be.
    Blank(Arc<dyn File>, Error),
    /// Open, and a member of this store, though neither superblock is sound.
    Damaged(Arc<dyn File>, Error),
    Missing(Error),
}

/// Opens a store's members and reads their superblocks. A member of a pair that is
/// not there is missed; one that belongs elsewhere is refused. With `adopt`, a blank
/// one in place of a lost one is taken, as stale; so is one of which the superblocks are
/// damaged, or that was cut off.
pub(crate) fn attach(
    file_system: &dyn FileSystem,
    folder: &Path,
    marker: &Marker,
    tuning: &Tuning,
    access: OpenOptions,
    adopt: bool,
) -> Result<Attached> {
    let mut members = match Members::read(file_system, folder) {
        Err(error) if adopt && error.is_corruption() => {
            found_again(file_system, folder, marker, tuning)?.ok_or(error)?
        }
        other => other?,
    };
    let paths: Vec<PathBuf> = members.paths.iter().map(|path| folder.join(path)).collect();
    let mode = match access.write {
        true => LockMode::Alone,
        false => LockMode::Shared,
    };
    let locks = lock_files(file_system, paths.iter().map(PathBuf::as_path), mode)?;
    let mut unsound = Vec::new();
    let mut found = Vec::with_capacity(paths.len());
    for (member, path) in paths.iter().enumerate() {
        let mut offsets = Vec::new();
        let opened = find(file_system, path, (tuning, access), marker, &mut offsets)?;
        unsound.extend(offsets.into_iter().map(|offset| (member, offset)));
        found.push(opened);
    }
    let superblocks: Vec<Option<Superblock>> = found
        .iter()
        .map(|found| match found {
            Found::Sound(_, superblock) => Some(*superblock),
            _ => None,
        })
        .collect();
    check_belonging(&paths, &superblocks, marker)?;
    let newest = superblocks.iter().flatten();
    let Some(mut superblock) = newest.max_by_key(|found| found.generation).copied() else {
        // None is sound: the first one says why.
        let errors = found.into_iter().filter_map(|found| match found {
            Found::Missing(error) | Found::Blank(_, error) | Found::Damaged(_, error) => {
                Some(error)
            }
            Found::Sound(..) => None,
        });
        let error = errors.into_iter().next();
        return Err(error.unwrap_or(Error::Closed));
    };
    let blank = found.iter().any(|found| matches!(found, Found::Blank(..)));
    let mut behind = None;
    let mut current = match who_is_current(&paths, &superblocks, &superblock, &members)? {
        // Whoever puts a blank one there and repairs has given up what it had.
        0 if adopt && blank => {
            behind = Some(superblock.member as usize);
            superblock.current = 1 << superblock.member;
            superblock.current
        }
        0 => return Err(left_behind(&paths[superblock.member as usize])),
        current => current,
    };
    let mut short = Vec::new();
    for (member, found) in found.iter().enumerate() {
        let Found::Sound(file, _) = found else {
            continue;
        };
        if let Err(error) = check_length(&**file, &superblock) {
            short.push((member, file.clone(), error));
        }
    }
    // The longest first: one that is long enough counts for more than one that is not,
    // should this end half way.
    short.sort_by_key(|(_, file, _)| Reverse(file.length().unwrap_or(0)));
    let is_short = short
        .iter()
        .fold(0, |bits, (member, ..)| bits | 1 << member);
    let all_short = current & !is_short == 0;
    if !all_short {
        // Cut off: what lay there is gone, another one has it.
        current &= !is_short;
    }
    if adopt && !short.is_empty() {
        // Before a length makes a member look whole again: should this end half way, the
        // next opening must not believe it.
        let kept = open_files(&found, current);
        volume::write_superblock_of(&kept, &mut superblock, current)?;
        if paths.len() > 1 && members.current != current {
            members.current = current;
            members.write(file_system, folder)?;
        }
    }
    let mut longest = all_short;
    for (member, file, error) in short {
        let is_current = current >> member & 1 == 1;
        if adopt && lengthen(&*file, &superblock) {
            // Where all were cut off, what lay behind is lost; the rest is not, and each
            // may have some of it.
            longest &= !is_current;
            continue;
        }
        if longest && is_current {
            return Err(error);
        }
        current &= !(1 << member);
        found[member] = Found::Missing(error);
    }
    let mut missing = Vec::new();
    let mut open = Vec::with_capacity(paths.len());
    for (member, (path, found)) in paths.into_iter().zip(found).enumerate() {
        let (file, state) = match found {
            Found::Sound(file, _) if current >> member & 1 == 1 => {
                (Some(file), MemberState::Current)
            }
            Found::Sound(file, _) => (Some(file), MemberState::Stale),
            Found::Blank(file, _) | Found::Damaged(file, _)
                if adopt && check_length(&*file, &superblock).is_ok() =>
            {
                (Some(file), MemberState::Stale)
            }
            Found::Blank(file, error) => {
                let error = match check_length(&*file, &superblock) {
                    Err(short) if adopt => short,
                    _ => error,
                };
                missing.push((member, error));
                (None, MemberState::Lost)
            }
            Found::Damaged(_, error) | Found::Missing(error) => {
                missing.push((member, error));
                (None, MemberState::Lost)
            }
        };
        open.push(OpenMember { path, file, state });
    }
    Ok(Attached {
        volume: Volume::new(open, superblock.block_bytes)?,
        superblock,
        members,
        unsound,
        missing,
        behind,
        locks,
    })
}

/// Those of some members that are there.
fn open_files(found: &[Found], some: u32) -> Vec<(usize, Arc<dyn File>)> {
    let of_some = found.iter().enumerate();
    of_some
        .filter_map(|(member, found)| match found {
            Found::Sound(file, _) if some >> member & 1 == 1 => Some((member, file.clone())),
            _ => None,
        })
        .collect()
}

/// Locks those of some members that are files. Devices are opened alone, which the kernel
/// sees to. One that is gone is locked by nobody: whether it can be missed is not said here.
pub(crate) fn lock_files<'a>(
    file_system: &dyn FileSystem,
    paths: impl Iterator<Item = &'a Path>,
    mode: LockMode,
) -> Result<Locks> {
    let mut locks = Locks::new();
    for path in paths {
        let found = file_system.metadata(path).ok().flatten();
        if found.is_none_or(|found| found.kind != FileKind::File) {
            continue;
        }
        match file_system.lock(path, mode) {
            Ok(lock) => locks.push(lock),
            Err(error) if is_gone(&error) => {}
            Err(error @ Error::Locked { .. }) if !locks.is_empty() => {
                // By ourselves, if it is free without our locks.
                locks.clear();
                file_system.lock(path, mode).map_err(|_| error)?;
                return Err(Error::InvalidArgument(format!(
                    "{}: this is another member of the store as well: one is there twice; attach them under the names that `members` has",
                    path.display()
                )));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(locks)
}

/// Where the entries of a store lie, and writes that down again: where its damaged file says
/// so, or in the store's own file; believed if a superblock there names the store. Of a pair
/// both must be found: which one is current the newest superblock says, but of one alone
/// only the file could tell.
fn found_again(
    file_system: &dyn FileSystem,
    folder: &Path,
    marker: &Marker,
    tuning: &Tuning,
) -> Result<Option<Members>> {
    let mut own = superblocks_named(file_system, folder, tuning)?;
    own.retain(|(_, superblock)| superblock.store == marker.store);
    own.sort_by_key(|(_, superblock)| superblock.member);
    let Some(newest) = own
        .iter()
        .map(|(_, found)| found)
        .max_by_key(|found| found.generation)
    else {
        return Ok(None);
    };
    // Each of them, and none twice.
    let numbers = own.iter().map(|(_, found)| found.member);
    if !numbers.eq(0..newest.members) {
        return Ok(None);
    }
    let members = Members {
        current: newest.current,
        paths: own.into_iter().map(|(path, _)| path).collect(),
    };
    members.write(file_system, folder)?;
    Ok(Some(members))
}

/// The superblocks in places that the file `members` names, damaged or not, and in the
/// store's own file.
pub(crate) fn superblocks_named(
    file_system: &dyn FileSystem,
    folder: &Path,
    tuning: &Tuning,
) -> Result<Vec<(PathBuf, Superblock)>> {
    let mut candidates = Vec::new();
    let path = folder.join(MEMBERS_NAME);
    if file_system.metadata(&path)?.is_some() {
        let mut bytes = vec![0; MOST_BYTES];
        let file = file_system.open(&path, OpenOptions::READ)?;
        let count = file.read_at(&mut bytes, 0)?;
        let text = String::from_utf8_lossy(&bytes[..count]);
        let named = text.lines().filter_map(|line| line.strip_prefix("member "));
        candidates.extend(named.map(PathBuf::from));
    }
    // No other file of the folder: it may be somebody's older copy of a member.
    candidates.push(DATA_NAME.into());
    let mut known = HashSet::new();
    candidates.retain(|candidate| known.insert(folder.join(candidate)));
    let mut superblocks = Vec::new();
    for candidate in candidates {
        let place = folder.join(&candidate);
        // Of what is there and fails nobody knows whether it is the store's.
        let found = match file_system.metadata(&place) {
            Err(error) if is_absent(&error) || is_no_name(&error) => None,
            found => found?,
        };
        let kinds = [FileKind::File, FileKind::BlockDevice];
        let Some(found) = found.filter(|found| kinds.contains(&found.kind)) else {
            continue;
        };
        if found.kind == FileKind::File && found.length < 2 * SUPERBLOCK_BYTES {
            continue;
        }
        let file = match volume::open_file(file_system, &place, OpenOptions::READ, tuning.access) {
            Err(error) if is_absent(&error) => continue,
            opened => opened?,
        };
        let (superblock, _) = volume::read_superblock(&*file)?;
        superblocks.extend(superblock.map(|superblock| (candidate, superblock)));
    }
    // The store's own file may be one that is named, by another name.
    if let [named @ .., (path, superblock)] = superblocks.as_slice() {
        let own = folder.join(path);
        let mut alike = named.iter().filter(|(_, other)| other == superblock);
        let is_own = |(path, _): &(PathBuf, _)| is_one_file(file_system, &own, &folder.join(path));
        if path.as_os_str() == DATA_NAME
            && alike.try_fold(false, |one, at| Ok(one || is_own(at)?))?
        {
            superblocks.pop();
        }
    }
    Ok(superblocks)
}

/// True if two names lead to one file. A copy of a file is another one, whatever is in it.
fn is_one_file(file_system: &dyn FileSystem, one: &Path, other: &Path) -> Result<bool> {
    let _held = file_system.lock(one, LockMode::Alone)?;
    match file_system.lock(other, LockMode::Alone) {
        Err(Error::Locked { .. }) => Ok(true),
        locked => locked.map(|_| false),
    }
}

/// True for errors of names that no file can have; damage makes such.
fn is_no_name(error: &Error) -> bool {
    // ELOOP and ENAMETOOLONG.
    const NO_NAME: [i32; 2] = [40, 36];
    let Error::Io { source, .. } = error else {
        return false;
    };
    let code = source.raw_os_error();
    source.kind() == std::io::ErrorKind::InvalidInput
        || code.is_some_and(|code| NO_NAME.contains(&code))
}

/// Opens one member. Errors that speak of the machine as it is now (no handles
/// left, somebody else has it) end the opening; others say that it is missing.
fn find(
    file_system: &dyn FileSystem,
    path: &Path,
    (tuning, access): (&Tuning, OpenOptions),
    marker: &Marker,
    unsound: &mut Vec<u64>,
) -> Result<Found> {
    let opened = match file_system.metadata(path) {
        Ok(None) => Err(Error::corruption(
            path,
            0,
            "what holds the store's entries is missing; `members` names it",
        )),
        Ok(Some(_)) => volume::open_file(file_system, path, access, tuning.access),
        Err(error) => Err(error),
    };
    let read = opened.and_then(|file| Ok((volume::read_superblock(&*file)?, file)));
    match read {
        Ok(((Some(superblock), offsets), file)) => {
            unsound.extend(offsets);
            Ok(Found::Sound(file, superblock))
        }
        Ok(((None, offsets), file)) => {
            let what = "neither copy of the superblock is sound";
            let error = Error::corruption(path, 0, what);
            if is_blank(&*file)? {
                return Ok(Found::Blank(file, error));
            }
            unsound.extend(offsets);
            Ok(match volume::is_of_store(&*file, marker.store)? {
                true => Found::Damaged(file, error),
                false => Found::Missing(error),
            })
        }
        Err(error) if is_gone(&error) => Ok(Found::Missing(error)),
        Err(error) => Err(error),
    }
}

/// True for errors of a member that another one can do without: it is not there, or fails.
/// What is said of it names which.
fn is_gone(error: &Error) -> bool {
    // EIO: it is there, and fails.
    let fails = matches!(error, Error::Io { source, .. } if source.raw_os_error() == Some(5));
    fails || is_absent(error) || matches!(error, Error::Corruption { .. })
}

/// True for errors of what is not there.
fn is_absent(error: &Error) -> bool {
    // ENXIO and ENODEV: the node is there, the device is not.
    const ABSENT: [i32; 2] = [6, 19];
    let Error::Io { source, .. } = error else {
        return false;
    };
    let code = source.raw_os_error();
    source.kind() == std::io::ErrorKind::NotFound || code.is_some_and(|code| ABSENT.contains(&code))
}

/// True if zeros stand where the superblocks and the first entries should be.
fn is_blank(file: &dyn File) -> Result<bool> {
    let mut bytes = volume::buffer(128 << 10);
    let count = file.read_at(&mut bytes, 0)?;
    Ok(bytes[..count].iter().all(|&byte| byte == 0))
}

/// Refuses members of other stores, and those that stand in another's place.
fn check_belonging(
    paths: &[PathBuf],
    superblocks: &[Option<Superblock>],
    marker: &Marker,
) -> Result<()> {
    let places = paths.iter().zip(superblocks).enumerate();
    for (member, (path, superblock)) in places {
        let Some(superblock) = superblock else {
            continue;
        };
        if superblock.store != marker.store {
            let what = format!(
                "this belongs to store {}; expected store {}: attach the right device, or take this one away, and the store goes on with its other member",
                superblock.store, marker.store
            );
            return Err(Error::corruption(path, 24, what));
        }
        if superblock.members as usize != paths.len() {
            let what = format!(
                "this is one of {} members; `members` names {}",
                superblock.members,
                paths.len()
            );
            return Err(Error::corruption(path, 124, what));
        }
        if superblock.member as usize != member {
            let what = format!(
                "this is member {} of the store; expected member {}: the devices are swapped, or one is there twice; attach them under the names that `members` has",
                superblock.member + 1,
                member + 1
            );
            return Err(Error::corruption(path, 120, what));
        }
    }
    Ok(())
}

/// Refuses a member that is shorter than the store.
fn check_length(file: &dyn File, superblock: &Superblock) -> Result<()> {
    let length = file.length()?;
    let needed = length_of(superblock);
    if length >= needed {
        return Ok(());
    }
    let what = format!("the member ends here; expected {needed} bytes");
    Err(Error::corruption(file.path(), length, what))
}

fn length_of(superblock: &Superblock) -> u64 {
    u64::from(superblock.total_blocks) * u64::from(superblock.block_bytes)
}

/// Makes a member that was cut off as long as the others; false where there is no room.
fn lengthen(file: &dyn File, superblock: &Superblock) -> bool {
    let needed = length_of(superblock);
    let length = file.length().unwrap_or(needed);
    file.allocate(length, needed - length).is_ok() && file.length().is_ok_and(|now| now >= needed)
}

/// A bit for each member that is there and has every entry; none where the only one that
/// is there lacks some.
fn who_is_current(
    paths: &[PathBuf],
    superblocks: &[Option<Superblock>],
    newest: &Superblock,
    members: &Members,
) -> Result<u32> {
    let there = superblocks.iter().enumerate();
    let there = there.fold(0, |bits, (member, found)| {
        bits | u32::from(found.is_some()) << member
    });
    for found in superblocks.iter().flatten() {
        let left_out = newest.current >> found.member & 1 == 0;
        let leaves_out = found.current >> newest.member & 1 == 0;
        if found.member != newest.member && left_out && leaves_out {
            return Err(Error::corruption(
                &paths[found.member as usize],
                128,
                format!(
                    "this member and {} were both written to without the other; keep one: write zeros over the first 128 KiB of the other, then `repair`",
                    paths[newest.member as usize].display()
                ),
            ));
        }
    }
    let mut current = newest.current & there;
    if there != all_of(paths.len()) {
        current &= members.current;
    }
    Ok(current)
}

fn left_behind(path: &Path) -> Error {
    let what = "this member is stale: the store was written to without it, and the member that has every entry is missing: bring that one back; if it is gone for good, put a blank one in its place, and `repair` goes on with what this one has";
    Error::corruption(path, 128, what)
}

impl Core {
    /// Says in the superblock, and in the folder, which members are current, if
    /// that has changed. To be done before anything is acknowledged. A member that
    /// becomes current does so with the superblock, one that is lost before.
    pub fn keep_members(&self, writer: &mut Writer) -> Result<()> {
        if self.has_bug(SeededBug::LossUnsaid) {
            return Ok(());
        }
        let current = self.volume.current();
        if current & !writer.members.current != 0 {
            let said = current | writer.members.current;
            self.say_in_folder(writer, said)?;
        }
        if current != writer.superblock.current {
            let before = writer.superblock;
            if let Err(error) = self.write_superblock(writer) {
                writer.take_superblock_back(before);
                return Err(error);
            }
        }
        match writer.superblock.current {
            current if current == writer.members.current => Ok(()),
            current => self.say_in_folder(writer, current),
        }
    }

    fn say_in_folder(&self, writer: &mut Writer, current: u32) -> Result<()> {
        let said = Members {
            paths: writer.members.paths.clone(),
            current,
        };
        said.write(&*self.environment.file_system, &self.path)
            .map_err(|error| self.unless_full(error))?;
        writer.members = said;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn members_are_what_they_were_and_damage_is_noticed() {
        for (paths, current) in [(vec!["data"], 1), (vec!["/dev/a", "/mnt/b c"], 2)] {
            let members = Members {
                paths: paths.into_iter().map(PathBuf::from).collect(),
                current,
            };
            let text = members.encode().unwrap();
            assert_eq!(Members::decode(&text), Some(members));
            for at in 0..text.len() - 1 {
                let mut damaged = text.clone().into_bytes();
                damaged[at] ^= 1;
                let damaged = String::from_utf8(damaged).unwrap();
                assert_eq!(Members::decode(&damaged), None, "{damaged}");
            }
        }
    }
}
