//! A window of a file, written by storing into mapped memory.
//!
//! # Why
//!
//! A small record that has to survive the process costs a system call if it is
//! written, about 0.6 microseconds; stored into a shared mapping of the file it
//! is with the operating system just the same, for the price of the copy.
//!
//! # What could go wrong, and why it does not
//!
//! A store into a mapping fails by a signal (`SIGBUS`) where the page cannot be given.
//! Therefore:
//!
//! - The range is *written* with zeros right before it is mapped, so it lies within the
//!   file, has space, and its pages are in the cache. A full disk is an error of that
//!   write.
//! - A window is opened only on file systems that write in place (ext4, XFS, tmpfs). Where
//!   a changed block needs new space (btrfs, bcachefs, ZFS, network file systems), there is
//!   no window and the caller writes as usual.
//! - Where a page is missing all the same, a [`Guard`] keeps the signal from the host, and
//!   the store is refused ([`super::sigbus`]).
//!
//! Pages that the kernel cannot write back are reported by the next sync, as
//! for written bytes.
//!
//! A system call for each store, which the kernel answers with an error in place of a
//! signal, made small writes two to four times as slow.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

use super::sigbus::{self, Guard};
use crate::file_system::AppendWindow;

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

/// A mapped range of a file.
#[derive(Debug)]
pub(super) struct MappedWindow {
    /// `None` only while it is dropped.
    guard: Option<Guard>,
    memory: NonNull<u8>,
    /// Bytes mapped.
    length: usize,
    /// Offset in the file of the first mapped byte: a multiple of the page.
    start: u64,
    /// Where stores may begin.
    first: u64,
}

// SAFETY: the mapping belongs to this value alone, and no thread-local state
// hangs on it: it may be used and unmapped on any thread.
unsafe impl Send for MappedWindow {}

// SAFETY: through a shared reference only numbers are read; memory is touched
// through an exclusive one.
unsafe impl Sync for MappedWindow {}

impl MappedWindow {
    /// Maps the range from `first` to `end` of a file, which must lie within
    /// it; `None` if the kernel refuses.
    pub(super) fn map(file: BorrowedFd<'_>, first: u64, end: u64) -> Option<Self> {
        let page = rustix::param::page_size() as u64;
        let start = first - first % page;
        let length = usize::try_from(end.checked_sub(start)?).ok()?;
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
        let memory: NonNull<u8> = NonNull::new(memory.ok()?.cast())?;
        let Some(guard) = Guard::new(memory.as_ptr() as usize, length) else {
            unmap(memory, length);
            return None;
        };
        Some(MappedWindow {
            guard: Some(guard),
            memory,
            length,
            start,
            first,
        })
    }
}

impl MappedWindow {
    /// Copies bytes; false if they are not within the window.
    fn store_part(&mut self, bytes: &[u8], offset: u64) -> bool {
        let fits = offset >= self.first
            && offset
                .checked_add(bytes.len() as u64)
                .is_some_and(|end| end <= self.end());
        if !fits {
            return false;
        }
        let place = (offset - self.start) as usize;
        // SAFETY: `place` is within the mapping, by the check above.
        let to = unsafe { self.memory.as_ptr().add(place) };
        // SAFETY: the mapping has `bytes.len()` bytes from there, by the same
        // check; `bytes` is ordinary memory of this process, which never
        // overlaps a mapping that only this value knows. Other processes may
        // read the pages; what they see is no business of this one's.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        true
    }
}

impl AppendWindow for MappedWindow {
    fn end(&self) -> u64 {
        self.start + self.length as u64
    }

    fn store(&mut self, parts: &[&[u8]], offset: u64) -> bool {
        if !sigbus::is_open_here() {
            return false;
        }
        let mut at = offset;
        let within = parts.iter().all(|part| {
            let stored = self.store_part(part, at);
            at += part.len() as u64;
            stored
        });
        within && !self.guard.as_ref().is_none_or(Guard::is_torn)
    }
}

impl Drop for MappedWindow {
    fn drop(&mut self) {
        // First: another mapping may lie at these addresses right after the second.
        self.guard = None;
        unmap(self.memory, self.length);
    }
}

/// Unmaps a range that only the caller knows.
fn unmap(memory: NonNull<u8>, length: usize) {
    // SAFETY: `MappedWindow::map` made the mapping with this length, and gave its
    // address to nobody.
    let unmapped = unsafe { rustix::mm::munmap(memory.as_ptr().cast(), length) };
    debug_assert!(unmapped.is_ok(), "a mapping of our own can be unmapped");
}
