//! The lock of Unix systems: `flock`.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

/// Device and inode.
pub(super) type Identity = (u64, u64);

/// Takes the lock without waiting; false if another handle has it.
pub(super) fn try_lock(file: &File, is_exclusive: bool) -> io::Result<bool> {
    let operation = match is_exclusive {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    match retry_on_intr(|| rustix::fs::flock(file, operation)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Releases the lock for every copy of the handle.
pub(super) fn unlock(file: &File) {
    let _ = retry_on_intr(|| rustix::fs::flock(file, FlockOperation::Unlock));
}

/// The identity of the file of an open handle.
pub(super) fn identity(file: &File) -> io::Result<Identity> {
    file.metadata().map(|found| (found.dev(), found.ino()))
}

/// The identity of the file at a path.
pub(super) fn identity_of(path: &Path) -> io::Result<Identity> {
    fs::metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Opens a lock file for reading, and makes it if it is not there. The standard library
/// makes files for writers alone.
pub(super) fn create_for_reading(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let descriptor = retry_on_intr(|| rustix::fs::open(path, flags, Mode::from_raw_mode(0o666)))?;
    Ok(descriptor.into())
}
