//! Files and folders of Linux.

use std::path::Path;
use std::sync::Arc;

use cambium_base::{Error, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::{common, file, lock, queue, share};
use crate::batch::{BatchOptions, ReadQueue};
use crate::file_system::{
    DirectoryEntry, File, FileLock, FileSystem, LockMode, Metadata, OpenOptions, Space,
};
use crate::write_queue::WriteQueue;

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
        common::create_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        common::remove_directory(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        common::list(path)
    }

    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        common::metadata(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        common::rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        common::remove(path)
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
        common::space(path)
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
