//! How much of a file lies in the operating system's cache.
//!
//! A measurement from a cold cache is one only if the cache was empty, and
//! `POSIX_FADV_DONTNEED` is advice: pages that are dirty, mapped or locked
//! stay. `cachestat(2)` (Linux 6.5) counts what is there without touching it;
//! `mincore`, its predecessor, would need a mapping of the file.

use std::io;
use std::os::fd::RawFd;

use cambium_base::{Error, Result};

use crate::file_system::File;

/// The system call's number, the same on all architectures but Alpha.
const CACHESTAT: libc::c_long = 451;

/// The kernel's `struct cachestat_range`; a length of 0 means up to the end.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// The kernel's `struct cachestat`, in pages.
#[repr(C)]
#[derive(Default)]
struct Counts {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

const _: () = assert!(size_of::<Range>() == 16 && size_of::<Counts>() == 40);

/// Pages of an open file that lie in the operating system's cache, dirty ones
/// included, or `None` where the kernel cannot say (before Linux 6.5, or a
/// file that is in no operating system).
///
/// ```
/// use cambium_io::{FileSystem, OpenOptions, RealFileSystem, resident_pages};
/// # fn main() -> cambium_base::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// let file = RealFileSystem.open(&folder.path().join("a"), OpenOptions::CREATE_NEW)?;
/// file.write_at(&[1; 10_000], 0)?;
/// // Just written, so it is in the cache, if the kernel says anything.
/// assert_ne!(resident_pages(&*file)?, Some(0));
/// # Ok(()) }
/// ```
pub fn resident_pages(file: &dyn File) -> Result<Option<u64>> {
    let Some(descriptor) = file.raw_descriptor() else {
        return resident_pages_of_parts(file);
    };
    match cached(descriptor) {
        Ok(pages) => Ok(Some(pages)),
        Err(error) => match error.raw_os_error() {
            // Not known to this kernel, forbidden by a container's filter, or
            // a kind of file that it does not serve.
            Some(libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP) => Ok(None),
            _ => Err(Error::io("cachestat", file.path(), error)),
        },
    }
}

fn resident_pages_of_parts(file: &dyn File) -> Result<Option<u64>> {
    let (mut pages, mut offset) = (0, 0);
    while offset != u64::MAX {
        let Some(part) = file.part_at(offset) else {
            return Ok(None);
        };
        let Some(found) = resident_pages(&*part.file)? else {
            return Ok(None);
        };
        pages += found;
        offset = part.next;
    }
    Ok(Some(pages))
}

fn cached(descriptor: RawFd) -> io::Result<u64> {
    let range = Range {
        offset: 0,
        length: 0,
    };
    let mut counts = Counts::default();
    // SAFETY: the kernel reads 16 bytes from `range` and writes 40 bytes to
    // `counts`; both have the layout of its structs (asserted above), live
    // until the call returns, and are not referred to elsewhere. A descriptor
    // that is not open makes the call fail with EBADF.
    let answer = unsafe {
        libc::syscall(
            CACHESTAT,
            descriptor,
            &raw const range,
            &raw mut counts,
            0_u32,
        )
    };
    if answer == 0 {
        Ok(counts.cached)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Advice, FileSystem, OpenOptions, RealFileSystem};

    #[test]
    fn written_pages_are_resident_and_synced_ones_can_be_dropped() {
        // Not in the usual folder for temporary files: a file system in
        // memory never drops anything.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("a");
        let file = RealFileSystem.open(&path, OpenOptions::CREATE_NEW).unwrap();
        file.write_at(&[7; 64 << 10], 0).unwrap();
        let Some(pages) = resident_pages(&*file).unwrap() else {
            println!("SKIPPED: this kernel has no cachestat");
            return;
        };
        assert!(pages * rustix::param::page_size() as u64 >= 64 << 10);
        file.sync_data().unwrap();
        file.advise(0, 64 << 10, Advice::DontNeed);
        assert_eq!(resident_pages(&*file).unwrap(), Some(0));
        let mut bytes = [0; 1];
        file.read_at(&mut bytes, 0).unwrap();
        assert_ne!(resident_pages(&*file).unwrap(), Some(0));
    }

    #[test]
    fn a_file_in_no_operating_system_is_unknown() {
        let memory = crate::simulated::SimulatedDisk::memory();
        let file = memory.open("/a".as_ref(), OpenOptions::CREATE_NEW).unwrap();
        assert_eq!(resident_pages(&*file).unwrap(), None);
    }
}
