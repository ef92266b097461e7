//! An open file or block device.
//!
//! Reads and writes are positioned, so any number of threads share a handle
//! without a lock. Short transfers are continued until the request is served;
//! the one short answer that is passed on is a read that meets the end.
//!
//! A direct read that stops at a length which is no multiple of the alignment
//! has met the end: going on from there would be refused with `EINVAL`.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use cambium_base::{Error, Result};
use rustix::buffer::spare_capacity;
use rustix::fs::{FallocateFlags, FileType, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

use super::common::end_of;
use super::{alignment, common, window};
use crate::file_system::{Advice, Alignment, AppendWindow, File, OpenOptions};
use crate::waiting::may_wait;

/// Most buffers one `pwritev` takes (`IOV_MAX`).
pub(super) const VECTOR_LIMIT: usize = 1024;

/// An open file or block device of the operating system.
#[derive(Debug)]
pub(super) struct RealFile {
    path: PathBuf,
    descriptor: OwnedFd,
    kind: FileType,
    alignment: Alignment,
}

impl RealFile {
    /// Takes over an open descriptor; asks what direct I/O demands.
    pub(super) fn new(path: &Path, descriptor: OwnedFd, options: OpenOptions) -> Result<Self> {
        let found = rustix::fs::fstat(&descriptor)
            .map_err(|errno| Error::io("stat", path, errno.into()))?;
        let kind = FileType::from_raw_mode(found.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
            let what = io::Error::other("not a regular file or block device");
            return Err(Error::io("open", path, what));
        }
        let alignment = if options.direct {
            alignment::of_direct_handle(descriptor.as_fd(), kind)
        } else {
            Alignment::NONE
        };
        Ok(RealFile {
            path: path.to_path_buf(),
            descriptor,
            kind,
            alignment,
        })
    }

    fn failed(&self, operation: &'static str, errno: Errno) -> Error {
        Error::io(operation, &self.path, errno.into())
    }

    /// One read, which fails with `EAGAIN` where it may not wait and has to.
    fn read(&self, buffer: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
        if may_wait() {
            return rustix::io::pread(&self.descriptor, buffer, offset);
        }
        if self.alignment.offset > 1 {
            // A direct read always goes to the device.
            return Err(Errno::AGAIN);
        }
        let mut buffers = [IoSliceMut::new(buffer)];
        let flags = ReadWriteFlags::NOWAIT;
        match rustix::io::preadv2(&self.descriptor, &mut buffers, offset, flags) {
            // The file system does not know the flag.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                rustix::io::pread(&self.descriptor, buffer, offset)
            }
            answer => answer,
        }
    }

    /// Without `fallocate` space cannot be reserved; the range is at least
    /// made part of the file. A device has all its space from the start.
    fn extend_only(&self, end: u64) -> Result<()> {
        let length = self.length()?;
        if end <= length {
            return Ok(());
        }
        if self.kind == FileType::BlockDevice {
            return Err(Error::NoSpace {
                path: self.path.clone(),
                what: format!("allocate up to {end} bytes: the device has {length}"),
            });
        }
        self.set_length(end)
    }

    /// Refuses what cannot be there: else all that is free would be taken first, and others
    /// that write meanwhile would find a full disk.
    fn check_room(&self, needed: u64) -> Result<()> {
        let Ok(found) = rustix::fs::fstatvfs(&self.descriptor) else {
            return Ok(());
        };
        // Who does not know how much there is (no blocks at all) refuses nothing.
        if found.f_blocks > 0 && found.f_bfree.saturating_mul(found.f_frsize) < needed {
            return Err(self.failed("allocate", Errno::NOSPC));
        }
        Ok(())
    }

    /// Writes all buffers by calls that each take some of them and say how far they came.
    fn write_slices(
        &self,
        buffers: &[&[u8]],
        offset: u64,
        mut write: impl FnMut(&[IoSlice<'_>], u64) -> rustix::io::Result<usize>,
    ) -> rustix::io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = buffers
            .iter()
            .filter(|buffer| !buffer.is_empty())
            .map(|buffer| IoSlice::new(buffer))
            .collect();
        let mut rest = slices.as_mut_slice();
        let mut position = offset;
        while !rest.is_empty() {
            let now = &rest[..rest.len().min(VECTOR_LIMIT)];
            match write(now, position) {
                // The device took nothing and gave no reason.
                Ok(0) => return Err(Errno::IO),
                Ok(count) => {
                    position += count as u64;
                    IoSlice::advance_slices(&mut rest, count);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

impl File for RealFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let rest = &mut buffer[done..];
            let position = offset + done as u64;
            match self.read(rest, position) {
                Ok(0) => break,
                Ok(count) => {
                    done += count;
                    if count % self.alignment.offset != 0 {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed("read", errno)),
            }
        }
        Ok(done)
    }

    fn read_vec_at(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        if !may_wait() {
            let mut bytes = vec![0; length];
            let count = self.read_at(&mut bytes, offset)?;
            bytes.truncate(count);
            return Ok(bytes);
        }
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let position = offset + bytes.len() as u64;
            match rustix::io::pread(&self.descriptor, spare_capacity(&mut bytes), position) {
                Ok(0) => break,
                Ok(count) if count % self.alignment.offset != 0 => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed("read", errno)),
            }
        }
        // The allocator may have given more room than was asked for.
        bytes.truncate(length);
        Ok(bytes)
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        if self.alignment.offset > 1 {
            return 0;
        }
        let mut buffers = [IoSliceMut::new(buffer)];
        let flags = ReadWriteFlags::NOWAIT;
        // A file system that does not know the flag has nothing at hand.
        rustix::io::preadv2(&self.descriptor, &mut buffers, offset, flags).unwrap_or(0)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            let position = offset + done as u64;
            match rustix::io::pwrite(&self.descriptor, &buffer[done..], position) {
                Ok(0) => return Err(no_progress(&self.path)),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed("write", errno)),
            }
        }
        Ok(())
    }

    fn write_synced_at(&self, buffers: &[&[u8]], offset: u64) -> Result<()> {
        let answer = self.write_slices(buffers, offset, |now, position| {
            rustix::io::pwritev2(&self.descriptor, now, position, ReadWriteFlags::DSYNC)
        });
        match answer {
            // A file system that does not know the flag has done nothing.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.write_vectored_at(buffers, offset)?;
                self.sync_data()
            }
            // The call does not say whether the write or its sync has failed.
            answer => {
                answer.map_err(|errno| Error::sync("write and sync", &self.path, errno.into()))
            }
        }
    }

    fn write_vectored_at(&self, buffers: &[&[u8]], offset: u64) -> Result<()> {
        self.write_slices(buffers, offset, |now, position| {
            rustix::io::pwritev(&self.descriptor, now, position)
        })
        .map_err(|errno| self.failed("write", errno))
    }

    fn sync_data(&self) -> Result<()> {
        // EINTR says that the wait was broken off, not that pages were lost;
        // every other failure is final.
        retry_on_intr(|| rustix::fs::fdatasync(&self.descriptor))
            .map_err(|errno| Error::sync("sync", &self.path, errno.into()))
    }

    fn length(&self) -> Result<u64> {
        if self.kind == FileType::BlockDevice {
            // Its node says 0. No call uses the position that this moves.
            return rustix::fs::seek(&self.descriptor, SeekFrom::End(0))
                .map_err(|errno| self.failed("seek", errno));
        }
        rustix::fs::fstat(&self.descriptor)
            .map(|found| u64::try_from(found.st_size).unwrap_or(0))
            .map_err(|errno| self.failed("stat", errno))
    }

    fn set_length(&self, length: u64) -> Result<()> {
        retry_on_intr(|| rustix::fs::ftruncate(&self.descriptor, length))
            .map_err(|errno| self.failed("set length", errno))
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        if length == 0 {
            return Ok(());
        }
        let end = end_of(&self.path, offset, length)?;
        // A device has its space; past its end the kernel would only say EINVAL.
        if self.kind == FileType::BlockDevice {
            return self.extend_only(end);
        }
        let before = self.length()?;
        if end > before {
            self.check_room(end - before.max(offset))?;
        }
        let flags = FallocateFlags::empty();
        match retry_on_intr(|| rustix::fs::fallocate(&self.descriptor, flags, offset, length)) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => self.extend_only(end),
            Err(errno) => {
                // Some file systems stop half way, and keep all that they found. Below the
                // offset another thread may be writing.
                let before = before.max(offset);
                if self.length().is_ok_and(|now| now > before) {
                    _ = self.set_length(before);
                }
                Err(self.failed("allocate", errno))
            }
        }
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        let end = end_of(&self.path, offset, length)?.min(self.length()?);
        if offset >= end {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let count = end - offset;
        match retry_on_intr(|| rustix::fs::fallocate(&self.descriptor, flags, offset, count)) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => {
                common::write_zeros(self, offset, end)
            }
            Err(errno) => Err(self.failed("punch hole", errno)),
        }
    }

    /// Makes a hole in a file. On a device the call discards blocks as `BLKDISCARD` does;
    /// where the kernel no longer has that under `fallocate`, it also zeroes them.
    fn discard(&self, offset: u64, length: u64) -> Result<bool> {
        // The kernel's `FALLOC_FL_NO_HIDE_STALE`; not every back end of rustix names it.
        const NO_HIDE_STALE: FallocateFlags = FallocateFlags::from_bits_retain(4);
        if length == 0 {
            return Ok(true);
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let ways: &[FallocateFlags] = match self.kind {
            FileType::BlockDevice => &[hole | NO_HIDE_STALE, hole],
            _ => &[hole],
        };
        for &flags in ways {
            match retry_on_intr(|| rustix::fs::fallocate(&self.descriptor, flags, offset, length)) {
                Ok(()) => return Ok(true),
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV | Errno::INVAL) => {}
                Err(errno) => return Err(self.failed("discard", errno)),
            }
        }
        Ok(false)
    }

    fn advise(&self, offset: u64, length: u64, advice: Advice) {
        use rustix::fs::Advice as Kernel;
        let advice = match advice {
            Advice::Normal => Kernel::Normal,
            Advice::Random => Kernel::Random,
            Advice::Sequential => Kernel::Sequential,
            Advice::WillNeed => Kernel::WillNeed,
            Advice::DontNeed => Kernel::DontNeed,
        };
        // Advice only: a refusal changes speed, never an answer. To the
        // kernel length 0 means "to the end"; to us it means nothing.
        if let Some(length) = std::num::NonZeroU64::new(length) {
            let _ = rustix::fs::fadvise(&self.descriptor, offset, Some(length), advice);
        }
    }

    fn allocated_bytes(&self) -> Result<u64> {
        if self.kind == FileType::BlockDevice {
            return self.length();
        }
        rustix::fs::fstat(&self.descriptor)
            .map(|found| u64::try_from(found.st_blocks).unwrap_or(0) * 512)
            .map_err(|errno| self.failed("stat", errno))
    }

    fn alignment(&self) -> Alignment {
        self.alignment
    }

    fn open_window(&self, end: u64, length: u64) -> Result<Option<Box<dyn AppendWindow>>> {
        if self.kind != FileType::RegularFile || self.alignment != Alignment::NONE {
            return Ok(None);
        }
        if !window::is_safe_on(self.descriptor.as_fd()) {
            return Ok(None);
        }
        let stop = end_of(&self.path, end, length)?;
        common::write_zeros(self, end, stop)?;
        let mapped = window::MappedWindow::map(self.descriptor.as_fd(), end, stop);
        Ok(mapped.map(|mapped| Box::new(mapped) as Box<dyn AppendWindow>))
    }

    fn raw_descriptor(&self) -> Option<i32> {
        Some(self.descriptor.as_raw_fd())
    }
}

fn no_progress(path: &Path) -> Error {
    Error::io("write", path, io::Error::from(io::ErrorKind::WriteZero))
}
