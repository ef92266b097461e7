//! Opening members: which are there, which belong here, and which have every entry.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::{Error, Result};
use cambium_io::{File, FileSystem, LockMode, OpenOptions};
use cambium_storage::marker::Marker;

use super::found_again::found_again;
use super::{Locks, Members, all_of, is_gone, lock_files};
use crate::format::Superblock;
use crate::options::Tuning;
use crate::superblocks;
use crate::volume::{self, MemberState, OpenMember, Volume};

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
    /// A member that lacked entries, taken as it is: a blank one stands where all was.
    pub behind: Option<usize>,
    /// Every member that was current had been cut off, now or before a repair that did not end,
    /// and the superblock cannot prove that the longest one has lost no entry.
    pub cut_off: Option<Error>,
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

impl Found {
    /// Why it is not sound.
    fn into_error(self) -> Option<Error> {
        match self {
            Found::Missing(error) | Found::Blank(_, error) | Found::Damaged(_, error) => {
                Some(error)
            }
            Found::Sound(..) => None,
        }
    }
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
    let members = match Members::read(file_system, folder) {
        Err(error) if adopt && error.is_corruption() => {
            found_again(file_system, folder, marker, tuning)?.ok_or(error)?
        }
        other => other?,
    };
    let paths: Vec<PathBuf> = members.paths.iter().map(|path| folder.join(path)).collect();
    let mode = match access.write {
        true => LockMode::Alone,
        false => LockMode::SharedData,
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
    let mut attaching = Attaching::new(paths, found, members, marker, adopt)?;
    attaching.judge_lengths(file_system, folder)?;
    let block_bytes = attaching.superblock.block_bytes;
    let (mut open, missing) = attaching.states();
    for member in &mut open {
        if let Some(file) = member.file.take() {
            let fitted = volume::fit(file_system, file, access, (tuning.access, block_bytes))?;
            member.file = Some(fitted);
        }
    }
    Ok(Attached {
        volume: Volume::new(open, block_bytes)?,
        superblock: attaching.superblock,
        members: attaching.members,
        unsound,
        missing,
        behind: attaching.behind,
        cut_off: attaching.cut_off,
        locks,
    })
}

/// Members that were found, of which it is being told which count.
struct Attaching {
    paths: Vec<PathBuf>,
    found: Vec<Found>,
    members: Members,
    /// The newest one.
    superblock: Superblock,
    /// A bit for each that has every entry.
    current: u32,
    /// A member that lacked entries, taken as it is.
    behind: Option<usize>,
    cut_off: Option<Error>,
    /// Takes what a repair may take.
    adopt: bool,
}

impl Attaching {
    /// Believes the newest superblock, where all of them belong to the store.
    fn new(
        paths: Vec<PathBuf>,
        found: Vec<Found>,
        members: Members,
        marker: &Marker,
        adopt: bool,
    ) -> Result<Attaching> {
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
            let mut errors = found.into_iter().filter_map(Found::into_error);
            return Err(errors.next().unwrap_or(Error::Closed));
        };
        // A detached loop device and an empty file read like a blank one, but have no room.
        let is_blank = |found: &Found| matches!(found, Found::Blank(file, _) if check_length(&**file, &superblock).is_ok());
        let blank = found.iter().any(is_blank);
        let mut behind = None;
        let current = match who_is_current(&paths, &superblocks, &superblock, &members)? {
            // The user who puts a blank one there and repairs gives up its content.
            0 if adopt && blank => {
                behind = Some(superblock.member as usize);
                superblock.current = 1 << superblock.member;
                // Above that of the lost member: should it come back, it is the stale one.
                superblock.generation += 1 << 32;
                superblock.current
            }
            0 => return Err(left_behind(&paths, &superblock)),
            current => current,
        };
        Ok(Attaching {
            paths,
            found,
            members,
            superblock,
            current,
            behind,
            cut_off: None,
            adopt,
        })
    }

    /// Takes members that were cut off from those that are current, or, where a repair
    /// may, makes them as long as they should be.
    fn judge_lengths(&mut self, file_system: &dyn FileSystem, folder: &Path) -> Result<()> {
        let short = self.short();
        let is_short = short
            .iter()
            .fold(0, |bits, (member, ..)| bits | 1 << member);
        let all_short = self.current & !is_short == 0;
        if !all_short {
            // Cut off: what lay there is gone, another one has it.
            self.current &= !is_short;
        }
        let mut longest = all_short;
        if self.adopt {
            let own = short.iter().filter(|_| all_short);
            let mut own = own.filter(|(member, ..)| self.current >> member & 1 == 1);
            self.note_loss(own.next().map(|(.., error)| error));
            if !short.is_empty() {
                self.say_who_is_current(file_system, folder)?;
            }
        } else if self.superblock.cut_off {
            return Err(self.repair_unfinished());
        }
        for (member, file, error) in short {
            let is_current = self.current >> member & 1 == 1;
            if self.adopt && lengthen(&*file, &self.superblock) {
                // Each of several members that were cut off may have some of the entries.
                longest &= !is_current;
                continue;
            }
            if longest && is_current {
                return Err(error);
            }
            self.current &= !(1 << member);
            self.found[member] = Found::Missing(error);
        }
        Ok(())
    }

    /// Keeps the error of the longest member if its cut is a loss, or that of a repair before
    /// this one which did not end. The superblock carries the loss until a repair has ended:
    /// once the member is longer, no length shows the cut.
    fn note_loss(&mut self, error: Option<&Error>) {
        let unproven = unproven_end(&self.superblock);
        let is_loss = |error: &&Error| matches!(error, Error::Corruption { offset, .. } if *offset < unproven);
        self.cut_off = match error.filter(is_loss) {
            None if self.superblock.cut_off => Some(self.repair_unfinished()),
            error => error.cloned(),
        };
        self.superblock.cut_off = self.cut_off.is_some();
    }

    fn repair_unfinished(&self) -> Error {
        let what = "this member was cut off, and the repair that made it as long as before did not end: entries behind the cut are lost; `repair` keeps the others";
        Error::corruption(&self.paths[self.superblock.member as usize], 108, what)
    }

    /// Those that are shorter than the store. The longest first: one that is long enough
    /// counts for more than one that is not, should lengthening them end half way.
    fn short(&self) -> Vec<(usize, Arc<dyn File>, Error)> {
        let mut short = Vec::new();
        for (member, found) in self.found.iter().enumerate() {
            let Found::Sound(file, _) = found else {
                continue;
            };
            if let Err(error) = check_length(&**file, &self.superblock) {
                short.push((member, file.clone(), error));
            }
        }
        short.sort_by_key(|(_, file, _)| Reverse(file.length().unwrap_or(0)));
        short
    }

    /// Writes down which members are current, before a length makes another one look whole
    /// again: should that end half way, the next opening must not believe it.
    fn say_who_is_current(&mut self, file_system: &dyn FileSystem, folder: &Path) -> Result<()> {
        let kept = open_files(&self.found, self.current);
        superblocks::write_superblock_of(&kept, &mut self.superblock, self.current)?;
        if self.paths.len() > 1 && self.members.current != self.current {
            self.members.current = self.current;
            self.members.write(file_system, folder)?;
        }
        Ok(())
    }

    /// The members as a volume takes them, and why some are not there.
    fn states(&mut self) -> (Vec<OpenMember>, Vec<(usize, Error)>) {
        let mut missing = Vec::new();
        let mut open = Vec::with_capacity(self.paths.len());
        let paths = std::mem::take(&mut self.paths);
        let found = std::mem::take(&mut self.found);
        for (member, (path, found)) in paths.into_iter().zip(found).enumerate() {
            let (file, state) = match self.state(member, found) {
                Ok((file, state)) => (Some(file), state),
                Err(error) => {
                    missing.push((member, error));
                    (None, MemberState::Lost)
                }
            };
            open.push(OpenMember { path, file, state });
        }
        (open, missing)
    }

    fn state(&self, member: usize, found: Found) -> Result<(Arc<dyn File>, MemberState)> {
        match found {
            Found::Sound(file, _) if self.current >> member & 1 == 1 => {
                Ok((file, MemberState::Current))
            }
            Found::Sound(file, _) => Ok((file, MemberState::Stale)),
            Found::Blank(file, error) => match check_length(&*file, &self.superblock) {
                _ if !self.adopt => Err(error),
                whole => whole.map(|()| (file, MemberState::Stale)),
            },
            Found::Damaged(file, error) => match check_length(&*file, &self.superblock) {
                Ok(()) if self.adopt => Ok((file, MemberState::Stale)),
                _ => Err(error),
            },
            Found::Missing(error) => Err(error),
        }
    }
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
    let read = opened.and_then(|file| Ok((superblocks::read_superblock(&*file)?, file)));
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
            Ok(match superblocks::is_of_store(&*file, marker.store)? {
                true => Found::Damaged(file, error),
                false => Found::Missing(error),
            })
        }
        Err(error) if is_gone(&error) => Ok(Found::Missing(error)),
        Err(error) => Err(error),
    }
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

/// A cut below this offset is a loss, whatever recovery finds. The digest of a clean close
/// covers all entries, but a cut among the superblocks may have taken the newest one. After a
/// kill the newest entries are known from their headers alone, which may lie after the cut.
fn unproven_end(superblock: &Superblock) -> u64 {
    let end = match superblock.clean {
        true => superblock.first_block(),
        false => superblock.high_water,
    };
    u64::from(end) * u64::from(superblock.block_bytes)
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
                    "this member and {} were both written to without the other; {}; keep one: write zeros over the first 128 KiB of the other, then `repair`",
                    paths[newest.member as usize].display(),
                    compare_writes(paths, newest, found)
                ),
            ));
        }
    }
    let mut current = newest.current & there;
    // Each superblock is durable on all members before the next one is written anywhere: who
    // lacks more than the last was not there, or is a copy of what it was.
    for found in superblocks.iter().flatten() {
        if found.generation.saturating_add(1) < newest.generation {
            current &= !(1 << found.member);
        }
    }
    if there != all_of(paths.len()) {
        current &= members.current;
    }
    Ok(current)
}

fn left_behind(paths: &[PathBuf], superblock: &Superblock) -> Error {
    let stale = superblock.member as usize;
    let mut others = paths.iter().enumerate();
    let other = others.find(|(member, _)| *member != stale);
    let other = other.map_or_else(String::new, |(_, path)| format!(" {}", path.display()));
    let what = format!(
        "this member is stale: the store was written to without it, and the member{other} that has every entry is missing: bring that one back; if it is gone for good, put a blank one of at least {} bytes in its place, and `repair` goes on with what this one has",
        length_of(superblock)
    );
    Error::corruption(&paths[stale], 128, what)
}

/// Names the member that has the newer writes, where the superblocks tell. That of a member
/// that was not closed has the last write of an earlier moment only.
fn compare_writes(paths: &[PathBuf], one: &Superblock, other: &Superblock) -> String {
    let through = |of: &Superblock| {
        let least = if of.clean { "" } else { "at least " };
        let path = paths[of.member as usize].display();
        format!("{path} has writes through {least}{}", of.sequence)
    };
    let (newer, older) = match one.sequence > other.sequence {
        true => (one, other),
        false => (other, one),
    };
    let verdict = match older.clean && newer.sequence > older.sequence {
        true => format!(
            "{} has the newer writes",
            paths[newer.member as usize].display()
        ),
        false => "which has the newer writes is not known".to_string(),
    };
    format!("{verdict} ({}, {})", through(newer), through(older))
}
