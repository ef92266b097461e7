//! A window of a file, written through mapped memory.
//!
//! # Why
//!
//! A small record that has to survive the process must reach the operating system. A write
//! takes the file's lock and a place in the file system's journal. Copied into a shared
//! mapping of the file, the bytes are with the operating system as well, for a fraction of
//! that.
//!
//! # Who copies, and why
//!
//! A store into a mapping fails by a signal (`SIGBUS`) where the page cannot be given: a
//! file system that was shut down, an extent that another file shares on a full disk, a
//! device that fails to read the page back. The signal ends the host program, and no
//! handler of a library is sure to get it: the host may have its own, or block the signal.
//!
//! So this process never stores into the mapping itself. It puts the bytes into a *stage*,
//! memory of an anonymous file, and has the kernel read from there into the mapping. Where
//! a page cannot be given, that call answers `EFAULT`. The caller then writes the bytes as
//! usual, and learns from that what is wrong.
//!
//! # What else is seen to
//!
//! - The range is written with zeros right before it is mapped, so a full disk is an error
//!   of that write.
//! - A window is opened only on file systems that write in place (ext4, XFS, tmpfs). Where
//!   a changed block needs new space (btrfs, bcachefs, ZFS, network file systems), there
//!   is no window and the caller writes as usual.
//! - Pages that the kernel cannot write back are reported by the next sync, as for written
//!   bytes.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::MemfdFlags;
use rustix::io::retry_on_intr;
use rustix::mm::{MapFlags, ProtFlags};

use crate::file_system::AppendWindow;
use crate::sync::Mutex;

/// Bytes that one call moves.
const STAGE_BYTES: usize = 64 << 10;

/// File systems that change written blocks in place, by their `f_type`.
const IN_PLACE: [u32; 3] = [
    0x0000_ef53, // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x0102_1994, // tmpfs
];

/// True where a store into written space needs no new space.
pub(super) fn is_safe_on(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| {
        // The field's type differs between platforms; magic numbers have 32 bits.
        IN_PLACE.contains(&(found.f_type as u32))
    })
}

/// Shared memory of a file.
#[derive(Debug)]
struct Mapping {
    memory: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone, and no thread-local state
// hangs on it: it may be used and unmapped on any thread.
unsafe impl Send for Mapping {}

// SAFETY: through a shared reference only numbers are read.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a range that begins at a multiple of the page; `None` if the kernel refuses.
    fn new(file: BorrowedFd<'_>, start: u64, length: usize) -> Option<Self> {
        // SAFETY: a new mapping at a place of the kernel's choosing touches no
        // memory that is in use.
        let memory = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                start,
            )
        };
        Some(Mapping {
            memory: NonNull::new(memory.ok()?.cast())?,
            length,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and nobody
        // else has its address.
        let unmapped = unsafe { rustix::mm::munmap(self.memory.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own can be unmapped");
    }
}

/// An anonymous file and its memory. Its pages are taken when it is made, so a store into
/// it fails no more than one into any memory.
#[derive(Debug)]
struct Stage {
    file: OwnedFd,
    mapping: Mapping,
}

impl Stage {
    fn new() -> Option<Self> {
        let file = rustix::fs::memfd_create("cambium-stage", MemfdFlags::CLOEXEC).ok()?;
        let zeros = [0; STAGE_BYTES];
        if rustix::io::pwrite(&file, &zeros, 0) != Ok(STAGE_BYTES) {
            return None;
        }
        let mapping = Mapping::new(std::os::fd::AsFd::as_fd(&file), 0, STAGE_BYTES)?;
        Some(Stage { file, mapping })
    }

    /// Puts bytes, at most as many as it has, at its start.
    fn put(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(STAGE_BYTES)];
        let to = self.mapping.memory.as_ptr();
        // SAFETY: the mapping has as many bytes, by the cut above; `bytes` is ordinary
        // memory of this process, which never overlaps a mapping that only this value has.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}

/// The stage of an open file between two windows.
#[derive(Debug, Default)]
pub(super) struct SpareStage(Mutex<Option<Stage>>);

impl SpareStage {
    fn place(&self) -> crate::sync::MutexGuard<'_, Option<Stage>> {
        let locked = self.0.lock();
        locked.unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A mapped range of a file.
#[derive(Debug)]
pub(super) struct MappedWindow {
    mapping: Mapping,
    /// Offset in the file of the first mapped byte: a multiple of the page.
    start: u64,
    /// Where stores may begin.
    first: u64,
    /// Given back when the window is closed.
    stage: Option<Stage>,
    spare: Arc<SpareStage>,
}

impl MappedWindow {
    /// Maps the range from `first` to `end` of a file, which must lie within
    /// it; `None` if the kernel refuses.
    pub(super) fn map(
        file: BorrowedFd<'_>,
        first: u64,
        end: u64,
        spare: &Arc<SpareStage>,
    ) -> Option<Self> {
        let page = rustix::param::page_size() as u64;
        let start = first - first % page;
        let length = usize::try_from(end.checked_sub(start)?).ok()?;
        let stage = spare.place().take();
        Some(MappedWindow {
            mapping: Mapping::new(file, start, length)?,
            start,
            first,
            stage: Some(stage.or_else(Stage::new)?),
            spare: spare.clone(),
        })
    }

    /// Copies bytes, no more than the stage has; false if the kernel refuses.
    fn store_part(&mut self, bytes: &[u8], offset: u64) -> bool {
        let place = offset
            .checked_sub(self.start)
            .filter(|_| offset >= self.first);
        let place = place.and_then(|place| usize::try_from(place).ok());
        let fits = |place: &usize| {
            let end = place.checked_add(bytes.len());
            end.is_some_and(|end| end <= self.mapping.length)
        };
        let (Some(place), Some(stage)) = (place.filter(fits), &mut self.stage) else {
            return false;
        };
        stage.put(bytes);
        // SAFETY: `place` is within the mapping, by the check above.
        let to = unsafe { self.mapping.memory.as_ptr().add(place) };
        // SAFETY: the mapping has `bytes.len()` bytes from there, by the same check; nobody
        // else has its address. It is never read through this reference, and the kernel
        // alone writes to it, who answers `EFAULT` where a page is not to be had.
        let to: &mut [u8] = unsafe { std::slice::from_raw_parts_mut(to, bytes.len()) };
        let copied = retry_on_intr(|| rustix::io::pread(&stage.file, &mut *to, 0));
        copied == Ok(bytes.len())
    }
}

impl AppendWindow for MappedWindow {
    fn end(&self) -> u64 {
        self.start + self.mapping.length as u64
    }

    fn store(&mut self, parts: &[&[u8]], offset: u64) -> bool {
        let mut at = offset;
        let mut parts = parts.iter().flat_map(|part| part.chunks(STAGE_BYTES));
        parts.all(|part| {
            let stored = self.store_part(part, at);
            at += part.len() as u64;
            stored
        })
    }
}

impl Drop for MappedWindow {
    fn drop(&mut self) {
        *self.spare.place() = self.stage.take();
    }
}
