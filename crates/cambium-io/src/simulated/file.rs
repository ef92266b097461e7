//! Handles of files on a simulated disk.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

use cambium_base::{Error, Result};

use super::control::Moment;
use super::disk::{SimulatedDisk, full};
use super::events::Event;
use super::faults::{ErrorNumber, Fault};
use super::image::MAX_LENGTH;
use super::node::{Change, Fate, Node};
use super::state::{State, fail, fail_sync};
use super::tree::refuse;
use crate::file_system::{Advice, Alignment, AppendWindow, File, OpenOptions};

/// Bytes a disk writes whole or not at all.
pub(super) const SECTOR_BYTES: u64 = 512;

/// The alignment that direct handles of files demand, as many disks do.
const DIRECT_ALIGNMENT: Alignment = Alignment {
    memory: 512,
    offset: 512,
};

/// See [`File::read_cached_at`].
const AT_HAND_BLOCK: u64 = 4 << 10;

/// An open file.
#[derive(Debug)]
pub(super) struct SimulatedFile {
    disk: SimulatedDisk,
    node: u64,
    path: PathBuf,
    options: OpenOptions,
    /// Of a block device; 0 for a file.
    sector_bytes: u32,
}

impl SimulatedFile {
    pub(super) fn new(disk: SimulatedDisk, node: u64, path: &Path, options: OpenOptions) -> Self {
        let sector_bytes = disk.shared.lock().sector_bytes(node);
        SimulatedFile {
            disk,
            node,
            sector_bytes,
            path: path.to_path_buf(),
            options,
        }
    }

    fn check(&self, operation: &'static str, offset: u64, length: u64) -> Result<()> {
        if !self.options.write {
            return Err(refuse(operation, &self.path, ErrorKind::PermissionDenied));
        }
        if offset
            .checked_add(length)
            .is_some_and(|end| end <= MAX_LENGTH)
        {
            return Ok(());
        }
        let too_large = std::io::Error::from_raw_os_error(27);
        Err(Error::io(operation, &self.path, too_large))
    }

    /// Refuses what a direct handle cannot do: places and memory off the grid.
    fn check_direct(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let alignment = self.alignment();
        let grid = alignment.offset as u64;
        let off_grid = offset % grid != 0
            || bytes.len() as u64 % grid != 0
            || bytes.as_ptr() as usize % alignment.memory != 0;
        if off_grid {
            let kind = ErrorKind::InvalidInput;
            return Err(refuse("direct transfer", &self.path, kind));
        }
        Ok(())
    }

    /// Runs an operation that changes length or space.
    fn allocating(
        &self,
        event: Event,
        operation: &'static str,
        (offset, length): (u64, u64),
        run: impl FnOnce(&mut State) -> Result<()>,
    ) -> Result<()> {
        self.check(operation, offset, length)?;
        self.disk.probe(Moment::BeforeOperation);
        let mut state = self.disk.shared.lock();
        state.admit(event, operation, &self.path)?;
        run(&mut state)
    }

    /// Writes what fits, all of it if it does, in one part or two.
    fn store(&self, state: &mut State, buffer: &[u8], offset: u64, fate: Fate) -> Result<()> {
        let room = state.room(self.node, offset, buffer.len() as u64) as usize;
        let whole = room == buffer.len();
        // A full disk may take all that fits, or less.
        let taken = if whole {
            room
        } else {
            state.generator.below(room as u64 + 1) as usize
        };
        let mut part = taken;
        if state.short_transfers && taken > 1 {
            state.events.add(Event::ShortTransfer);
            part = 1 + state.generator.below(taken as u64 - 1) as usize;
        }
        for (start, end) in [(0, part), (part, taken)] {
            if start < end {
                let bytes = buffer[start..end].into();
                let offset = offset + start as u64;
                state.change(self.node, Change::Write { offset, bytes }, fate);
            }
        }
        if whole {
            return Ok(());
        }
        state.events.add(Event::DiskFull);
        if taken > 0 {
            state.events.add(Event::PartialWrite);
        }
        Err(full("write", &self.path))
    }

    /// Writes under a fault of writes.
    fn store_faulty(
        &self,
        state: &mut State,
        buffer: &[u8],
        offset: u64,
        fault: Fault,
    ) -> Result<()> {
        match fault {
            Fault::PartialWrite(number) => {
                let part = state.generator.below(buffer.len() as u64 + 1) as usize;
                state.events.add(Event::ErrorInjected);
                state.events.add(Event::PartialWrite);
                self.store(state, &buffer[..part], offset, Fate::Kept)?;
                Err(fail("write", &self.path, number))
            }
            Fault::PhantomWrite => {
                state.events.add(Event::PhantomWrite);
                self.store(state, buffer, offset, Fate::Lost)
            }
            Fault::MisdirectedWrite => {
                state.events.add(Event::MisdirectedWrite);
                let moved = misdirect(state, offset);
                self.store(state, buffer, offset, Fate::Misdirected(moved))
            }
            _ => self.store(state, buffer, offset, Fate::Kept),
        }
    }

    /// Makes durable what `sync` takes of a file.
    fn sync(&self, sync: impl FnOnce(&mut Node)) -> Result<()> {
        self.disk.probe(Moment::BeforeSync);
        if let Err(failure) = self.sync_or_fail(sync) {
            give_up_slowly();
            return Err(failure);
        }
        self.disk.probe(Moment::AfterSync);
        Ok(())
    }

    fn sync_or_fail(&self, sync: impl FnOnce(&mut Node)) -> Result<()> {
        let mut state = self.disk.shared.lock();
        match state.admit(Event::SyncData, "sync", &self.path)? {
            Some(Fault::SyncLies) => state.events.add(Event::SyncLied),
            Some(Fault::SyncDropsPages(number)) => {
                state.events.add(Event::ErrorInjected);
                state.events.add(Event::SyncDroppedPages);
                state.drop_pages(self.node);
                return Err(fail_sync("sync", &self.path, number));
            }
            Some(Fault::SyncKeepsPages(number)) => {
                state.events.add(Event::ErrorInjected);
                state.events.add(Event::SyncKeptPages);
                state.keep_pages(self.node);
                return Err(fail_sync("sync", &self.path, number));
            }
            _ if state.cache_only => {}
            _ => sync(state.node_mut(self.node)),
        }
        Ok(())
    }
}

/// Lets the other threads of a scheduled test go on between the moment at which a sync has
/// lost its pages and the return of its error: a device takes long to give up, and other
/// syncs of the same file meanwhile succeed.
fn give_up_slowly() {
    if crate::sync::scheduled_time().is_some() {
        (0..300).for_each(|_| crate::sync::thread::yield_now());
    }
}

/// Some sectors further on or back.
fn misdirect(state: &mut State, offset: u64) -> u64 {
    let distance = SECTOR_BYTES * (1 + state.generator.below(8));
    if offset >= distance && state.generator.chance(1, 2) {
        offset - distance
    } else {
        offset + distance
    }
}

impl File for SimulatedFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.check_direct(buffer, offset)?;
        crate::sync::point();
        let mut state = self.disk.shared.lock();
        state.admit(Event::Read, "read", &self.path)?;
        if state.short_transfers && buffer.len() > 1 {
            state.events.add(Event::ShortTransfer);
        }
        let Some(node) = state.node(self.node) else {
            return Ok(0);
        };
        if node.is_unreadable(offset, buffer.len() as u64) {
            state.events.add(Event::SectorUnreadable);
            return Err(fail("read", &self.path, ErrorNumber::InputOutput));
        }
        if self.options.direct && node.diverged {
            return Ok(node.device_image().read(buffer, offset));
        }
        Ok(node.cached.read(buffer, offset))
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        crate::sync::point();
        let state = self.disk.shared.lock();
        if self.options.direct || !state.cache_only {
            return 0;
        }
        // One block in four is said not to be at hand, so that whoever asks has to do
        // without as well.
        let away = ((offset / AT_HAND_BLOCK) | 3) * AT_HAND_BLOCK;
        let count = away.saturating_sub(offset).min(buffer.len() as u64);
        let node = state.node(self.node);
        node.map_or(0, |node| {
            node.cached.read(&mut buffer[..count as usize], offset)
        })
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.check("write", offset, buffer.len() as u64)?;
        self.check_direct(buffer, offset)?;
        self.disk.probe(Moment::BeforeOperation);
        let mut state = self.disk.shared.lock();
        let fault = state.admit(Event::Write, "write", &self.path)?;
        let node = state.node(self.node);
        if node.is_some_and(|node| node.needs_unreadable(offset, buffer.len() as u64)) {
            state.events.add(Event::SectorUnreadable);
            return Err(fail("write", &self.path, ErrorNumber::InputOutput));
        }
        match fault {
            None => self.store(&mut state, buffer, offset, Fate::Kept),
            Some(fault) => self.store_faulty(&mut state, buffer, offset, fault),
        }
    }

    fn sync_data(&self) -> Result<()> {
        self.sync(Node::sync)
    }

    fn sync_ranges(&self, ranges: &[Range<u64>]) -> Result<()> {
        self.sync(|node| node.sync_ranges(ranges))
    }

    fn length(&self) -> Result<u64> {
        let state = self.disk.shared.lock();
        Ok(state.node(self.node).map_or(0, |node| node.cached.length()))
    }

    fn set_length(&self, length: u64) -> Result<()> {
        if self.sector_bytes > 0 {
            return Err(refuse("set length", &self.path, ErrorKind::InvalidInput));
        }
        self.allocating(Event::SetLength, "set length", (0, length), |state| {
            state.change(self.node, Change::SetLength(length), Fate::Kept);
            Ok(())
        })
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.allocating(Event::Allocate, "allocate", (offset, length), |state| {
            if state.room(self.node, offset, length) < length {
                state.events.add(Event::DiskFull);
                return Err(full("allocate", &self.path));
            }
            state.change(self.node, Change::Allocate { offset, length }, Fate::Kept);
            Ok(())
        })
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        self.allocating(Event::PunchHole, "punch hole", (offset, length), |state| {
            state.change(self.node, Change::Punch { offset, length }, Fate::Kept);
            Ok(())
        })
    }

    /// As often as not nothing is done at all, or only with the first half.
    fn discard(&self, offset: u64, length: u64) -> Result<bool> {
        self.allocating(Event::PunchHole, "discard", (offset, length), |state| {
            let done = match state.generator.below(3) {
                0 => 0,
                1 => length / 2 / 4096 * 4096,
                _ => length,
            };
            if done > 0 {
                let change = Change::Punch {
                    offset,
                    length: done,
                };
                state.change(self.node, change, Fate::Kept);
            }
            Ok(())
        })
        .map(|()| true)
    }

    fn advise(&self, _offset: u64, _length: u64, _advice: Advice) {}

    fn allocated_bytes(&self) -> Result<u64> {
        let state = self.disk.shared.lock();
        Ok(state
            .node(self.node)
            .map_or(0, |node| node.cached.allocated_bytes()))
    }

    fn alignment(&self) -> Alignment {
        if !self.options.direct {
            return Alignment::NONE;
        }
        match self.sector_bytes {
            0 => DIRECT_ALIGNMENT,
            sector => Alignment {
                memory: sector as usize,
                offset: sector as usize,
            },
        }
    }

    fn open_window(&self, end: u64, length: u64) -> Result<Option<Box<dyn AppendWindow>>> {
        if self.options.direct || self.sector_bytes > 0 {
            return Ok(None);
        }
        self.write_at(&vec![0; length as usize], end)?;
        Ok(Some(Box::new(SimulatedWindow {
            disk: self.disk.clone(),
            node: self.node,
            end: end + length,
        })))
    }
}

/// Stores go to the cached image, and reach the disk as any write does: not at
/// all, in part, or in any order, until a sync.
#[derive(Debug)]
struct SimulatedWindow {
    disk: SimulatedDisk,
    node: u64,
    end: u64,
}

impl AppendWindow for SimulatedWindow {
    fn end(&self) -> u64 {
        self.end
    }

    fn store(&mut self, parts: &[&[u8]], offset: u64) -> bool {
        let bytes = parts.concat();
        if offset + bytes.len() as u64 > self.end {
            return false;
        }
        self.disk.probe(Moment::BeforeOperation);
        let mut state = self.disk.shared.lock();
        state.events.add(Event::WindowStore);
        let bytes = bytes.as_slice().into();
        state.change(self.node, Change::Write { offset, bytes }, Fate::Kept);
        true
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        self.disk.shared.lock().let_go(self.node);
    }
}
