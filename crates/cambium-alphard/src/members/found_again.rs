//! Where members lie, when the file that names them is damaged or gone.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use cambium_base::{Error, Result};
use cambium_io::{FileKind, FileSystem, LockMode, OpenOptions};
use cambium_storage::marker::Marker;

use super::{MOST_BYTES, Members, is_absent};
use crate::format::{DATA_NAME, MEMBERS_NAME, SUPERBLOCK_BYTES, Superblock};
use crate::options::Tuning;
use crate::superblocks;
use crate::volume;

/// Where the entries of a store lie, and writes that down again: where its damaged file says
/// so, or in the store's own file; believed if a superblock there names the store. Of a pair
/// both must be found: which one is current the newest superblock says, but of one alone
/// only the file could tell.
pub(super) fn found_again(
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
        // A candidate that is there and fails may or may not belong to the store.
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
        let (superblock, _) = superblocks::read_superblock(&*file)?;
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
    let Some(source) = error.os_error() else {
        return false;
    };
    let code = source.raw_os_error();
    source.kind() == std::io::ErrorKind::InvalidInput
        || code.is_some_and(|code| NO_NAME.contains(&code))
}
