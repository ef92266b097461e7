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
//! acknowledged: in both copies of the superblock of those that have it, and here. The
//! superblock of the highest generation decides where both members are there. The file
//! decides where only one is: without it the member that was left behind could not know
//! that it was. Two members that both were written to without the other are refused:
//! the store cannot tell which to keep.
//!
//! | module | what it does |
//! |---|---|
//! | `attach` | opens members, and says which of them count |
//! | `found_again` | finds out where they lie when the file is damaged |

mod attach;
mod found_again;

use std::path::{Path, PathBuf};

use cambium_base::checksum::crc32c;
use cambium_base::{Error, Result};
use cambium_io::{FileKind, FileLock, FileSystem, LockMode, OpenOptions};

pub(crate) use self::attach::{Attached, attach};
pub(crate) use self::found_again::superblocks_named;
use crate::core::{Core, Writer};
use crate::format::{MEMBERS_NAME, NEW_MEMBERS_NAME};
use crate::seeded_bug::SeededBug;

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

/// Locks those of some members that are files. Devices are opened alone, which the kernel
/// sees to. A member that is gone is not locked: the caller decides whether it can be missed.
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

/// True for errors of a member that another one can do without: it is not there, or fails.
/// What is said of it names which.
fn is_gone(error: &Error) -> bool {
    // EIO: it is there, and fails.
    let fails = error
        .os_error()
        .is_some_and(|source| source.raw_os_error() == Some(5));
    fails || is_absent(error) || matches!(error, Error::Corruption { .. })
}

/// True for errors of what is not there.
fn is_absent(error: &Error) -> bool {
    // ENXIO and ENODEV: the node is there, the device is not.
    const ABSENT: [i32; 2] = [6, 19];
    let Some(source) = error.os_error() else {
        return false;
    };
    let code = source.raw_os_error();
    source.kind() == std::io::ErrorKind::NotFound || code.is_some_and(|code| ABSENT.contains(&code))
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
            // Writing it says who is current.
            self.change_superblock(writer, |_| ())?;
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
            .map_err(|error| self.health.unless_full(error))?;
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
