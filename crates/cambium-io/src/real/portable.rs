//! Files through the standard library, for systems other than Linux.
//!
//! What [`RealFileSystem`](super::RealFileSystem) does on Linux with calls of that kernel
//! alone happens here more slowly, or not at all:
//!
//! | call | here |
//! |---|---|
//! | batched reads and writes | one call after the other |
//! | direct I/O | through the operating system's cache |
//! | [`File::punch_hole`] | gives space back on macOS and Windows; on Linux, and where the file system cannot do it, writes zeros |
//! | [`File::allocate`] | makes the file longer; the file system may still run out of space |
//! | [`FileSystem::clone_file`], [`File::open_window`], [`File::advise`] | nothing |
//!
//! Promises of durability are the same. [`File::sync_data`] empties the device's cache:
//! `F_FULLFSYNC` on macOS, `FlushFileBuffers` on Windows. Windows makes names durable with
//! its journal; [`FileSystem::sync_directory`] flushes the folder there where the volume
//! can do that.
//!
//! Linux has this file system too: `CAMBIUM_FILES=portable` selects it for
//! [`Environment::real`](crate::Environment::real), and the suites compare both.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::{Error, Result};

#[cfg(windows)]
use super::windows::punch_hole;
use super::{common, lock, positioned};
use crate::batch::{BatchOptions, ReadBackend, ReadQueue};
use crate::file_system::{
    Advice, Alignment, DirectoryEntry, File, FileLock, FileSystem, LockMode, Metadata, OpenOptions,
    Space,
};
use crate::inline_queue::InlineReadQueue;
use crate::waiting::may_wait;

/// The operating system's files through the standard library.
///
/// ```
/// use cambium_io::{FileSystem, OpenOptions, PortableFileSystem};
/// # fn main() -> cambium_base::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// let path = folder.path().join("a.log");
/// let file = PortableFileSystem.open(&path, OpenOptions::CREATE_NEW)?;
/// file.write_at(b"first", 0)?;
/// file.sync_data()?; // the bytes are durable
/// PortableFileSystem.sync_directory(folder.path())?; // and now the name
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct PortableFileSystem;

impl FileSystem for PortableFileSystem {
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        let mut system = fs::OpenOptions::new();
        system
            .read(true)
            .write(options.write)
            .truncate(options.truncate)
            .create(options.create)
            .create_new(options.create_new);
        let file = system
            .open(path)
            .map_err(|error| Error::io("open", path, error))?;
        let found = file
            .metadata()
            .map_err(|error| Error::io("stat", path, error))?;
        if !found.is_file() {
            let what = io::Error::other("not a regular file, the only kind supported here");
            return Err(Error::io("open", path, what));
        }
        Ok(Arc::new(PortableFile {
            path: path.to_path_buf(),
            file,
        }))
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
        match fs::hard_link(from, to) {
            Ok(()) => Ok(true),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::AlreadyExists => {
                    Err(Error::io("link", from, error))
                }
                // Other volumes, other file systems, too many names: no link.
                _ => Ok(false),
            },
        }
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        #[cfg(unix)]
        let synced = fs::File::open(path).and_then(|folder| folder.sync_all());
        #[cfg(windows)]
        let synced = super::windows::sync_folder(path);
        synced.map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::io("open folder", path, error),
            _ => Error::sync("sync folder", path, error),
        })
    }

    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        Ok(Box::new(lock::RealLock::acquire(path, mode)?))
    }

    fn space(&self, path: &Path) -> Result<Space> {
        common::space(path)
    }

    fn read_queue(&self, options: BatchOptions) -> Result<Box<dyn ReadQueue>> {
        options.validate()?;
        let note = (options.backend != ReadBackend::Sync)
            .then(|| format!("{} is a back end of Linux; sync serves", options.backend));
        Ok(Box::new(InlineReadQueue::sync(options, note)?))
    }
}

/// Gives the space of a range back; an error where that is not possible, also for a range that
/// does not keep to the file system's blocks.
#[cfg(target_vendor = "apple")]
fn punch_hole(file: &fs::File, start: u64, end: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let as_signed = |offset| libc::off_t::try_from(offset).map_err(io::Error::other);
    let hole = libc::fpunchhole_t {
        fp_flags: 0,
        reserved: 0,
        fp_offset: as_signed(start)?,
        fp_length: as_signed(end - start)?,
    };
    // SAFETY: the descriptor is open while `file` is borrowed; the call reads `hole`, which
    // has the layout that this command takes.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_PUNCHHOLE, &raw const hole) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(not(any(windows, target_vendor = "apple")))]
fn punch_hole(_file: &fs::File, _start: u64, _end: u64) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// An open file.
#[derive(Debug)]
struct PortableFile {
    path: PathBuf,
    file: fs::File,
}

impl PortableFile {
    fn failed(&self, operation: &'static str) -> impl FnOnce(io::Error) -> Error + '_ {
        move |error| Error::io(operation, &self.path, error)
    }

    /// The end of a range.
    fn end_of(&self, offset: u64, length: u64) -> Result<u64> {
        common::end_of(&self.path, offset, length)
    }
}

impl File for PortableFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if !may_wait() && !buffer.is_empty() {
            // Nothing here tells whether a read would wait.
            return Err(self.failed("read")(ErrorKind::WouldBlock.into()));
        }
        let mut done = 0;
        while done < buffer.len() {
            match positioned::read(&self.file, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("read")(error)),
            }
        }
        Ok(done)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match positioned::write(&self.file, &buffer[done..], offset + done as u64) {
                Ok(0) => return Err(self.failed("write")(ErrorKind::WriteZero.into())),
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("write")(error)),
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        self.file
            .sync_data()
            .map_err(|error| Error::sync("sync", &self.path, error))
    }

    fn length(&self) -> Result<u64> {
        let found = self.file.metadata().map_err(self.failed("stat"))?;
        Ok(found.len())
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.file.set_len(length).map_err(self.failed("set length"))
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        let end = self.end_of(offset, length)?;
        let before = self.length()?;
        if length == 0 || end <= before {
            return Ok(());
        }
        // A volume that does not tell its space refuses nothing.
        let room = common::space(&self.path).map_or(u64::MAX, |space| space.available);
        if room < end - before.max(offset) {
            return Err(self.failed("allocate")(ErrorKind::StorageFull.into()));
        }
        self.set_length(end)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        let end = self.end_of(offset, length)?.min(self.length()?);
        if offset >= end || punch_hole(&self.file, offset, end).is_ok() {
            return Ok(());
        }
        common::write_zeros(self, offset, end)
    }

    fn discard(&self, _offset: u64, _length: u64) -> Result<bool> {
        Ok(false)
    }

    fn advise(&self, _offset: u64, _length: u64, _advice: Advice) {}

    fn allocated_bytes(&self) -> Result<u64> {
        common::allocated(&self.file).map_err(self.failed("stat"))
    }

    fn alignment(&self) -> Alignment {
        Alignment::NONE
    }
}
