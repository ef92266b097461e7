//! The real world: files, devices, threads, clock and random numbers of the
//! operating system.
//!
//! | module | what it holds |
//! |---|---|
//! | `file` | an open file or block device: positioned reads and writes, sync, space |
//! | `alignment` | what direct I/O demands of a handle |
//! | `lock` | advisory locks with the owner's process id |
//! | `parts` | clock, random numbers, [`crate::Environment::real`] |
//! | `executor` | one thread per task |
//! | `share` | hard links, and files that share blocks |
//! | `residency` | how much of a file lies in the cache |
//! | `queue` | batched reads through `pread`, Linux AIO and io_uring; several writes at once through io_uring |
//!
//! Media assumptions, and what breaks where one is false:
//!
//! - `fdatasync` empties the device's volatile cache. A device that lies about
//!   it loses `Synced` writes in a power cut.
//! - A rename replaces the target atomically, and is durable once its folder
//!   is synced. Without it a manifest could be lost with both names.
//! - A 512-byte sector is written whole or not at all; nothing larger is taken
//!   for atomic.
//!
//! Space is counted as `st_blocks * 512`, what the file takes on the device,
//! never as its length.

mod alignment;
mod executor;
mod file;
mod lock;
mod parts;
mod queue;
mod residency;
mod share;
mod sigbus;
mod window;

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::{Error, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::batch::{BatchOptions, ReadQueue};
use crate::file_system::{
    DirectoryEntry, File, FileKind, FileLock, FileSystem, LockMode, Metadata, OpenOptions, Space,
};
use crate::write_queue::WriteQueue;

pub use executor::ThreadExecutor;
pub use parts::{SystemClock, SystemRandomness};
pub use queue::SyncReadQueue;
pub use residency::resident_pages;

/// The operating system's files, folders and block devices.
///
/// ```
/// use cambium_io::{FileSystem, OpenOptions, RealFileSystem};
/// # fn main() -> cambium_base::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// let path = folder.path().join("a.log");
/// let file = RealFileSystem.open(&path, OpenOptions::CREATE_NEW)?;
/// file.write_at(b"first", 0)?;
/// file.sync_data()?; // the bytes are durable
/// RealFileSystem.sync_directory(folder.path())?; // and now the name
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFileSystem;

impl FileSystem for RealFileSystem {
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        let flags = open_flags(options);
        // The umask decides who else may read, as it does for every program.
        let mode = Mode::from_raw_mode(0o666);
        let descriptor =
            retry_on_intr(|| rustix::fs::open(path, flags, mode)).map_err(|errno| {
                // A file system without direct I/O answers EINVAL; say which
                // part of the request it refused.
                let operation = match (options.direct, errno) {
                    (_, Errno::BUSY) => "open (mounted, or in use by somebody else)",
                    (true, Errno::INVAL) => "open for direct I/O (not supported here)",
                    _ => "open",
                };
                Error::io(operation, path, errno.into())
            })?;
        Ok(Arc::new(file::RealFile::new(path, descriptor, options)?))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        fs::create_dir(path).map_err(|error| Error::io("create folder", path, error))
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        fs::remove_dir(path).map_err(|error| Error::io("remove folder", path, error))
    }

    fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        list(path).map_err(|error| Error::io("list", path, error))
    }

    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        match metadata(path) {
            Ok(metadata) => Ok(Some(metadata)),
            // A path below a file (ENOTDIR) stands for nothing either.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(Error::io("stat", path, error)),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|error| Error::io("rename", from, error))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|error| Error::io("remove", path, error))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        share::link(from, to)
    }

    fn clone_file(&self, from: &Path, to: &Path, length: u64) -> Result<bool> {
        share::clone_file(from, to, length)
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
            .map_err(|errno| Error::io("open folder", path, errno.into()))?;
        retry_on_intr(|| rustix::fs::fsync(&folder))
            .map_err(|errno| Error::sync("sync folder", path, errno.into()))
    }

    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        Ok(Box::new(lock::RealLock::acquire(path, mode)?))
    }

    fn space(&self, path: &Path) -> Result<Space> {
        let found = retry_on_intr(|| rustix::fs::statvfs(path))
            .map_err(|errno| Error::io("statvfs", path, errno.into()))?;
        Ok(Space {
            // `f_bavail`, not `f_bfree`: the rest is kept for root.
            available: found.f_bavail.saturating_mul(found.f_frsize),
            total: found.f_blocks.saturating_mul(found.f_frsize),
        })
    }

    fn read_queue(&self, options: BatchOptions) -> Result<Box<dyn ReadQueue>> {
        queue::open(options)
    }

    fn write_queue(&self, options: BatchOptions) -> Result<Box<dyn WriteQueue>> {
        queue::open_writes(options)
    }
}

fn open_flags(options: OpenOptions) -> OFlags {
    // Not NONBLOCK: io_uring would then answer EAGAIN instead of reading later.
    let mut flags = OFlags::CLOEXEC;
    flags |= if options.write {
        OFlags::RDWR
    } else {
        OFlags::RDONLY
    };
    if options.create || options.create_new {
        flags |= OFlags::CREATE;
    }
    if options.create_new {
        flags |= OFlags::EXCL;
    }
    if options.truncate {
        flags |= OFlags::TRUNC;
    }
    // Without `CREATE` it asks for a device alone; for a file it means nothing.
    if options.exclusive && !(options.create || options.create_new) {
        flags |= OFlags::EXCL;
    }
    if options.direct {
        flags |= OFlags::DIRECT;
    }
    flags
}

fn list(path: &Path) -> io::Result<Vec<DirectoryEntry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        entries.push(DirectoryEntry {
            name: PathBuf::from(entry.file_name()),
            kind: kind_of(entry.file_type()?),
        });
    }
    // `OsString` orders by its bytes; a `Path` would order by components.
    entries.sort_by(|a, b| a.name.as_os_str().cmp(b.name.as_os_str()));
    Ok(entries)
}

fn metadata(path: &Path) -> io::Result<Metadata> {
    let found = fs::metadata(path)?;
    let kind = kind_of(found.file_type());
    let length = match kind {
        FileKind::BlockDevice => device_length(path)?,
        _ => found.len(),
    };
    let allocated = match kind {
        FileKind::BlockDevice => length,
        _ => found.blocks() * 512,
    };
    Ok(Metadata {
        kind,
        length,
        allocated,
        links: found.nlink(),
    })
}

/// A device node has length 0; its end says how large it is.
fn device_length(path: &Path) -> io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let device = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
    Ok(rustix::fs::seek(&device, rustix::fs::SeekFrom::End(0))?)
}

fn kind_of(found: fs::FileType) -> FileKind {
    if found.is_file() {
        FileKind::File
    } else if found.is_dir() {
        FileKind::Directory
    } else if found.is_block_device() {
        FileKind::BlockDevice
    } else {
        FileKind::Other
    }
}
