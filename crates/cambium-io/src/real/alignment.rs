//! What direct I/O demands of a handle.
//!
//! Since Linux 6.1 `statx` says it for regular files and block devices, memory
//! and offsets apart. Where it does not answer, a device's logical sector is
//! asked for, and a regular file gets [`FALLBACK`], which holds on every disk
//! and file system in use: an alignment that is too large is only slower,
//! one that is too small is refused by the kernel with `EINVAL`.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, StatxFlags};

use crate::file_system::Alignment;

/// Bytes; the largest sector of a disk, and the block of common file systems.
const FALLBACK: usize = 4096;

/// Asks what direct I/O through `descriptor` demands.
pub(super) fn of_direct_handle(descriptor: BorrowedFd<'_>, kind: FileType) -> Alignment {
    from_statx(descriptor).unwrap_or_else(|| {
        let sector = match kind {
            FileType::BlockDevice => rustix::fs::ioctl_blksszget(descriptor)
                .ok()
                .and_then(usable)
                .unwrap_or(FALLBACK),
            _ => FALLBACK,
        };
        Alignment {
            memory: sector,
            offset: sector,
        }
    })
}

fn from_statx(descriptor: BorrowedFd<'_>) -> Option<Alignment> {
    let wanted = StatxFlags::DIOALIGN;
    let found = rustix::fs::statx(descriptor.as_fd(), "", AtFlags::EMPTY_PATH, wanted).ok()?;
    // Both are 0 where direct I/O is not supported; open has refused it then.
    if found.stx_mask & wanted.bits() == 0 {
        return None;
    }
    Some(Alignment {
        memory: usable(found.stx_dio_mem_align)?,
        offset: usable(found.stx_dio_offset_align)?,
    })
}

fn usable(bytes: u32) -> Option<usize> {
    let bytes = usize::try_from(bytes).ok()?;
    bytes.is_power_of_two().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_powers_of_two_are_usable() {
        assert_eq!(usable(0), None);
        assert_eq!(usable(3), None);
        assert_eq!(usable(512), Some(512));
        assert_eq!(usable(4096), Some(4096));
    }
}
