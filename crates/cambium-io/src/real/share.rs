//! Hard links, and files that share blocks.

use std::fs;
use std::path::Path;

use cambium_base::{Error, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

/// See [`crate::FileSystem::link`].
pub(super) fn link(from: &Path, to: &Path) -> Result<bool> {
    match rustix::fs::link(from, to) {
        Ok(()) => Ok(true),
        // `EPERM`: no links here, or the kernel protects the file from links. `EMLINK`: the
        // file has as many names as the file system counts.
        Err(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::NOSYS) => {
            Ok(false)
        }
        Err(errno) => Err(Error::io("link", from, errno.into())),
    }
}

/// See [`crate::FileSystem::clone_file`].
pub(super) fn clone_file(from: &Path, to: &Path, length: u64) -> Result<bool> {
    let failed = |operation, path, errno: Errno| Error::io(operation, path, errno.into());
    let source = retry_on_intr(|| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open(from, flags, Mode::empty())
    })
    .map_err(|errno| failed("open", from, errno))?;
    let copy = retry_on_intr(|| {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::open(to, flags, Mode::from_raw_mode(0o666))
    })
    .map_err(|errno| failed("create", to, errno))?;
    // The whole file, which the kernel takes in one step also while somebody appends to it;
    // the end of a range would have to keep to blocks.
    let cloned = retry_on_intr(|| rustix::fs::ioctl_ficlone(&copy, &source))
        .and_then(|()| retry_on_intr(|| rustix::fs::ftruncate(&copy, length)));
    let Err(errno) = cloned else {
        return Ok(true);
    };
    fs::remove_file(to).map_err(|error| Error::io("remove", to, error))?;
    match errno {
        // `EINVAL` and `ENOTTY`: the file system knows no shared blocks.
        Errno::XDEV | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOTTY | Errno::NOSYS => Ok(false),
        errno => Err(failed("share the blocks of", from, errno)),
    }
}
