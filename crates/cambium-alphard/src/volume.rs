//! The blocks of a store: a device, or a preallocated file; or two of them, which
//! hold the same bytes at the same places.
//!
//! Everything here goes by blocks and aligned buffers, so that the operating
//! system's cache can be left out of it.
//!
//! A member of a pair is in one of three states ([`MemberState`]). Writes and syncs
//! go to all that are there. One that fails while the other does not is *lost* from
//! then on: the writer must say so in the superblock before anything is
//! acknowledged ([`Volume::current`] differs from what the superblock says). Where
//! all fail, none is lost: the caller gets the error.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::{Error, Extent, Result};
use cambium_io::sync::Mutex;
use cambium_io::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use cambium_io::{AlignedBuffer, Alignment, File, FileSystem, OpenOptions};
use cambium_storage::replay;

use crate::core::lock;
use crate::members::all_of;

/// Alignment of every buffer in memory: enough for any device.
const MEMORY_ALIGNMENT: usize = 4096;

/// Zeros of one write, where a file is filled with them.
const FILL_BYTES: usize = 1 << 20;

/// What a member is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum MemberState {
    /// It has every entry: it is read and written.
    Current,
    /// It lacks some entries: it is written, but not read until it has all again.
    Stale,
    /// It is not there, or has failed: it is neither read nor written.
    Lost,
}

/// A device or file to make a volume of; `file` is `None` where it is missing.
#[derive(Debug)]
pub(crate) struct OpenMember {
    pub path: PathBuf,
    pub file: Option<Arc<dyn File>>,
    pub state: MemberState,
}

/// A device or file of a store.
#[derive(Debug)]
struct Member {
    /// `None` where it could not be opened.
    file: Option<Arc<dyn File>>,
    path: PathBuf,
    state: AtomicU8,
}

impl Member {
    fn state(&self) -> MemberState {
        match self.state.load(Ordering::Acquire) {
            0 => MemberState::Current,
            1 => MemberState::Stale,
            _ => MemberState::Lost,
        }
    }

    fn set_state(&self, state: MemberState) {
        self.state.store(state as u8, Ordering::Release);
    }
}

/// A store's members, open.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    members: Arc<[Member]>,
    /// Which member the next read goes to, where there is a choice.
    turn: Arc<AtomicUsize>,
    /// Held while a member is given up: two threads must not give up one each.
    losing: Arc<Mutex<()>>,
    pub block_bytes: u32,
}

/// Whether the operating system's cache is bypassed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Direct,
    Buffered,
    /// Direct where the file system can.
    Either,
}

/// Zeroed memory for direct transfers.
pub(crate) fn buffer(bytes: usize) -> AlignedBuffer {
    AlignedBuffer::new(bytes, MEMORY_ALIGNMENT)
}

/// Writes zeros to a range of whole blocks.
pub(crate) fn fill_with_zeros(file: &dyn File, range: Range<u64>) -> Result<()> {
    let zeros = buffer(FILL_BYTES);
    let mut at = range.start;
    while at < range.end {
        let count = (range.end - at).min(FILL_BYTES as u64);
        file.write_at(&zeros[..count as usize], at)?;
        at += count;
    }
    Ok(())
}

/// Opens a device or file as asked.
pub(crate) fn open_file(
    file_system: &dyn FileSystem,
    path: &Path,
    options: OpenOptions,
    access: Access,
) -> Result<Arc<dyn File>> {
    match access {
        Access::Direct => file_system.open(path, options.direct()),
        Access::Buffered => file_system.open(path, options),
        Access::Either => match file_system.open(path, options.direct()) {
            Err(Error::Io { operation, .. }) if operation.starts_with("open for direct") => {
                file_system.open(path, options)
            }
            other => other,
        },
    }
}

/// The file, opened again without direct access where that takes larger transfers than blocks
/// of a store: it may have been made on a device of smaller sectors. Unless direct access was
/// asked for.
pub(crate) fn fit(
    file_system: &dyn FileSystem,
    file: Arc<dyn File>,
    options: OpenOptions,
    (access, block_bytes): (Access, u32),
) -> Result<Arc<dyn File>> {
    if access != Access::Either || file.alignment().offset <= block_bytes as usize {
        return Ok(file);
    }
    let path = file.path().to_path_buf();
    // A device is open for writing once.
    drop(file);
    file_system.open(&path, options)
}

impl Volume {
    /// Around open files, each with its state; their alignment must fit.
    pub fn new(members: Vec<OpenMember>, block_bytes: u32) -> Result<Self> {
        for OpenMember { path, file, .. } in &members {
            let needed = file.as_ref().map_or(1, |file| file.alignment().offset);
            if needed > block_bytes as usize {
                return Err(Error::InvalidArgument(format!(
                    "{} takes transfers of {needed} bytes, the store has blocks of {block_bytes}: set direct=auto, or block_bytes={needed} when creating",
                    path.display()
                )));
            }
        }
        let members = members.into_iter().map(|open| {
            let state = open.file.as_ref().map_or(MemberState::Lost, |_| open.state);
            Member {
                file: open.file,
                path: open.path,
                state: AtomicU8::new(state as u8),
            }
        });
        Ok(Volume {
            members: members.collect(),
            turn: Arc::default(),
            losing: Arc::default(),
            block_bytes,
        })
    }

    /// What the address of every buffer must be a multiple of, bytes.
    pub fn memory_alignment(&self) -> usize {
        let files = self
            .members
            .iter()
            .filter_map(|member| member.file.as_ref());
        let needed = files.map(|file| file.alignment().memory).max();
        needed.unwrap_or(1).max(self.block_bytes as usize)
    }

    /// Members, whatever their state.
    pub fn member_count(&self) -> usize {
        self.members.len()
    }

    /// True if there are two.
    pub fn is_mirrored(&self) -> bool {
        self.members.len() > 1
    }

    /// What a member is good for.
    pub fn state(&self, member: usize) -> MemberState {
        self.members[member].state()
    }

    /// Where a member is.
    pub fn member_path(&self, member: usize) -> &Path {
        &self.members[member].path
    }

    /// A bit for each member that has all entries, as the superblock keeps it.
    pub fn current(&self) -> u32 {
        self.in_state(MemberState::Current)
            .fold(0, |bits, member| bits | 1 << member)
    }

    fn in_state(&self, state: MemberState) -> impl Iterator<Item = usize> + '_ {
        (0..self.members.len()).filter(move |&member| self.state(member) == state)
    }

    /// The members that are read.
    pub fn readable(&self) -> impl Iterator<Item = usize> + '_ {
        self.in_state(MemberState::Current)
    }

    /// A member that is to become current.
    pub fn stale(&self) -> Option<usize> {
        self.in_state(MemberState::Stale).next()
    }

    /// A member has every entry from now on.
    pub fn make_current(&self, member: usize) {
        self.members[member].set_state(MemberState::Current);
    }

    /// A member lacks entries again.
    pub fn make_stale(&self, member: usize) {
        self.members[member].set_state(MemberState::Stale);
    }

    /// Gives a member up, if another one has all entries.
    pub fn lose(&self, member: usize) -> bool {
        let _one_at_a_time = lock(&self.losing);
        self.give_up(member)
    }

    fn give_up(&self, member: usize) -> bool {
        let others = self.readable().any(|other| other != member);
        if others && self.state(member) != MemberState::Lost {
            let member = &self.members[member];
            member.set_state(MemberState::Lost);
            cambium_io::events::lost("alphard", &member.path);
        }
        others
    }

    /// The member that the next read goes to: each in turn.
    pub fn next_reader(&self) -> usize {
        let count = self.readable().count().max(1);
        let turn = match count {
            1 => 0,
            _ => self.turn.fetch_add(1, Ordering::Relaxed) % count,
        };
        self.readable().nth(turn).unwrap_or(0)
    }

    /// A member's device or file; one must be open.
    pub fn file_of(&self, member: usize) -> Result<&Arc<dyn File>> {
        let member = &self.members[member];
        member.file.as_ref().ok_or_else(|| {
            Error::corruption(&member.path, 0, "this member of the store is missing")
        })
    }

    /// For messages: the first member that is read.
    pub fn path(&self) -> PathBuf {
        let member = self.readable().next().unwrap_or(0);
        self.members[member].path.clone()
    }

    /// The first byte of a block.
    pub fn offset(&self, block: u32) -> u64 {
        u64::from(block) * u64::from(self.block_bytes)
    }

    /// Damage at a block.
    pub fn damage(&self, block: u32, what: impl Into<String>) -> Error {
        Error::corruption(self.path(), self.offset(block), what)
    }

    /// Reads an extent from any member that is read.
    pub fn read(&self, extent: Extent) -> Result<AlignedBuffer> {
        let first = self.next_reader();
        let answer = self.read_from(first, extent);
        if answer.is_ok() {
            return answer;
        }
        let mut others = self.readable().filter(|&member| member != first);
        others
            .find_map(|member| self.read_from(member, extent).ok())
            .map_or(answer, Ok)
    }

    /// Reads an extent from one member.
    pub fn read_from(&self, member: usize, extent: Extent) -> Result<AlignedBuffer> {
        let mut bytes = buffer(extent.blocks as usize * self.block_bytes as usize);
        self.file_of(member)?
            .read_exact_at(&mut bytes, self.offset(extent.block))?;
        Ok(bytes)
    }

    /// Writes whole blocks of one member.
    pub fn write_to(&self, member: usize, block: u32, bytes: &[u8]) -> Result<()> {
        self.file_of(member)?.write_at(bytes, self.offset(block))
    }

    /// Writes whole blocks.
    pub fn write(&self, block: u32, bytes: &[u8]) -> Result<()> {
        let offset = self.offset(block);
        self.on_all(|_, file| file.write_at(bytes, offset))
    }

    /// Writes zeros over free blocks. Where one member has no room for them,
    /// that is the answer: it lacks no entry, and is not given up.
    pub fn write_zeros(&self, block: u32, bytes: usize) -> Result<()> {
        let (offset, zeros) = (self.offset(block), buffer(bytes));
        self.unless_one_is_full(|file| file.write_at(&zeros, offset))
    }

    /// Takes the space of blocks that may be holes. Where one member has none, that is the
    /// answer: it lacks no entry, and is not given up.
    pub fn reserve(&self, block: u32, blocks: u64) -> Result<()> {
        let bytes = blocks * u64::from(self.block_bytes);
        let offset = self.offset(block);
        self.unless_one_is_full(|file| file.allocate(offset, bytes))
    }

    /// Does something on every member that is there, up to one that has no space for it.
    fn unless_one_is_full(&self, run: impl Fn(&dyn File) -> Result<()>) -> Result<()> {
        let mut answers = Vec::new();
        for (number, file) in self.there() {
            let answer = run(&**file);
            if answer.as_ref().is_err_and(Error::is_no_space) {
                return answer;
            }
            answers.push((number, answer));
        }
        self.settle(answers, false)
    }

    /// Makes files longer, with the space; devices must be long enough. Durable
    /// with the next sync. Where one member has no room, all are as long as before: it has
    /// every entry, and is not given up for what is not there yet. With `fill` zeros are
    /// written to all of it.
    pub fn extend(&self, length: u64, fill: bool) -> Result<()> {
        let mut longer: Vec<(&Arc<dyn File>, u64)> = Vec::new();
        let mut answers = Vec::new();
        for (number, file) in self.there() {
            let answer = file.length().and_then(|now| {
                if now < length {
                    file.allocate(now, length - now)?;
                    longer.push((file, now));
                    if fill {
                        fill_with_zeros(&**file, now..length)?;
                    }
                }
                Ok(())
            });
            if let Err(error) = answer.as_ref() {
                if error.is_no_space() {
                    // What cannot be given back is the store's all the same.
                    longer
                        .iter()
                        .for_each(|(file, was)| _ = file.set_length(*was));
                    return answer;
                }
            }
            answers.push((number, answer));
        }
        self.settle(answers, false)
    }

    /// The members that are there, open.
    pub fn there(&self) -> impl Iterator<Item = (usize, &Arc<dyn File>)> {
        let members = self.members.iter().enumerate();
        let there = members.filter(|(_, member)| member.state() != MemberState::Lost);
        there.filter_map(|(number, member)| Some((number, member.file.as_ref()?)))
    }

    /// Discards bytes on all members; false if a member does not support it.
    pub fn discard(&self, offset: u64, length: u64) -> bool {
        self.there()
            .all(|(_, file)| file.discard(offset, length).unwrap_or(false))
    }

    /// True if the operating system's cache stands before a member.
    pub fn is_cached(&self) -> bool {
        let mut files = self
            .members
            .iter()
            .filter_map(|member| member.file.as_ref());
        files.any(|file| file.alignment() == Alignment::NONE)
    }

    /// Writes blocks of each member that is cached over themselves, durably.
    pub fn write_again(&self, first: u32, end: u32) -> Result<()> {
        self.on_all(|_, file| match file.alignment() {
            Alignment::NONE => {
                replay::write_again(&**file, self.offset(first), self.offset(end))?;
                file.sync_data()
            }
            _ => Ok(()),
        })
    }

    /// Makes everything durable.
    pub fn sync(&self) -> Result<()> {
        self.on_all(|_, file| file.sync_data())
    }

    /// Does something on every member that is there.
    fn on_all(&self, run: impl Fn(usize, &Arc<dyn File>) -> Result<()>) -> Result<()> {
        self.on(all_of(self.members.len()), false, run)
    }

    /// Does something on those of some members, given as bits, that are there. With
    /// `spare` they are not needed: others have done it.
    pub fn on(
        &self,
        some: u32,
        spare: bool,
        run: impl Fn(usize, &Arc<dyn File>) -> Result<()>,
    ) -> Result<()> {
        let files = self.there().filter(|(number, _)| some >> number & 1 == 1);
        let answers = files.map(|(number, file)| (number, run(number, file)));
        self.settle(answers.collect(), spare)
    }

    /// What answers of members come to: it is done if a current member has done it;
    /// those that have not are lost then.
    pub fn settle(&self, answers: Vec<(usize, Result<()>)>, spare: bool) -> Result<()> {
        let _one_at_a_time = lock(&self.losing);
        let is_current = |member: usize| self.state(member) == MemberState::Current;
        let has_done =
            |(member, answer): &(usize, Result<()>)| answer.is_ok() && is_current(*member);
        let done = spare || answers.iter().any(has_done);
        for (member, answer) in answers {
            match answer {
                Err(_) if done || !is_current(member) => _ = self.give_up(member),
                Err(error) => return Err(error),
                Ok(()) => {}
            }
        }
        match done {
            true => Ok(()),
            false => Err(Error::corruption(
                self.path(),
                0,
                "no member of the store is there to be written",
            )),
        }
    }
}
