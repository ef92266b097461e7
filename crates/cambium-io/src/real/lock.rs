//! Advisory locks on a file, with the owner's process id.
//!
//! `flock` belongs to the open file, not to the process: two handles of one
//! process exclude each other, and closing an unrelated handle of the same
//! file does not give the lock up, as it would with `fcntl` locks.
//!
//! The lock file holds the process id of the exclusive owner as decimal text
//! and a line feed, for messages alone; the kernel's lock decides. It is
//! emptied before the lock is given back. After a crash the id stays; it is
//! reported only while such a process runs, so that a store held by readers is
//! not blamed on a process long gone.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use cambium_base::{Error, Result};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::file_system::{FileLock, LockMode};

/// A held lock.
#[derive(Debug)]
pub(super) struct RealLock {
    descriptor: OwnedFd,
    mode: LockMode,
}

impl FileLock for RealLock {}

impl RealLock {
    /// Takes the lock without waiting.
    pub(super) fn acquire(path: &Path, mode: LockMode) -> Result<Self> {
        let failed = |errno: Errno| Error::io("lock", path, errno.into());
        let descriptor = open_lock_file(path, mode).map_err(failed)?;
        let operation = match mode {
            LockMode::Shared => FlockOperation::NonBlockingLockShared,
            LockMode::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        match retry_on_intr(|| rustix::fs::flock(&descriptor, operation)) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::Locked {
                    path: path.to_path_buf(),
                    owner: read_owner(&descriptor),
                });
            }
            Err(errno) => return Err(failed(errno)),
        }
        if mode == LockMode::Exclusive {
            // Best effort: on a full disk the store must still open, so that
            // something can be deleted; only the message loses the id.
            let _ = write_owner(&descriptor);
        }
        Ok(RealLock { descriptor, mode })
    }
}

impl Drop for RealLock {
    fn drop(&mut self) {
        if self.mode == LockMode::Exclusive {
            // A stale id is harmless, see above; the close unlocks.
            let _ = rustix::fs::ftruncate(&self.descriptor, 0);
        }
    }
}

fn open_lock_file(path: &Path, mode: LockMode) -> rustix::io::Result<OwnedFd> {
    let access = match mode {
        LockMode::Shared => OFlags::RDONLY,
        LockMode::Exclusive => OFlags::RDWR,
    };
    let flags = access | OFlags::CREATE | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::open(path, flags, Mode::from_raw_mode(0o666)))
}

fn write_owner(descriptor: &OwnedFd) -> rustix::io::Result<()> {
    let text = format!("{}\n", std::process::id());
    rustix::fs::ftruncate(descriptor, 0)?;
    // A few bytes at the start of a file are never written short, and a torn
    // id would only spoil a message.
    retry_on_intr(|| rustix::io::pwrite(descriptor, text.as_bytes(), 0))?;
    Ok(())
}

/// The process id in a lock file, if that process runs.
fn read_owner(descriptor: &OwnedFd) -> Option<u32> {
    let mut text = [0; 16];
    let count = retry_on_intr(|| rustix::io::pread(descriptor, &mut text[..], 0)).ok()?;
    let text = std::str::from_utf8(text.get(..count)?).ok()?;
    let owner: u32 = text.strip_suffix('\n')?.parse().ok()?;
    let processes = PathBuf::from("/proc");
    let runs = !processes.join("self").exists() || processes.join(owner.to_string()).exists();
    runs.then_some(owner)
}
