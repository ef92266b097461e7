//! Folders, names and lengths, as every system has them; and zeros in the place of a hole.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use cambium_base::{Error, Result};

use crate::file_system::{DirectoryEntry, File, FileKind, Metadata, Space};

/// Bytes to fill ranges with: always there, so that it costs neither an allocation nor a page
/// fault, and aligned for direct I/O.
#[repr(align(4096))]
struct Zeros([u8; 256 << 10]);

static ZEROS: Zeros = Zeros([0; 256 << 10]);

/// Writes zeros: where no hole can be made, the range must still read as zeros.
pub(super) fn write_zeros(file: &dyn File, offset: u64, end: u64) -> Result<()> {
    let mut position = offset;
    while position < end {
        let count = (end - position).min(ZEROS.0.len() as u64) as usize;
        file.write_at(&ZEROS.0[..count], position)?;
        position += count as u64;
    }
    Ok(())
}

pub(super) fn create_directory(path: &Path) -> Result<()> {
    fs::create_dir(path).map_err(|error| Error::io("create folder", path, error))
}

pub(super) fn remove_directory(path: &Path) -> Result<()> {
    fs::remove_dir(path).map_err(|error| Error::io("remove folder", path, error))
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| Error::io("rename", from, error))
}

pub(super) fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(|error| Error::io("remove", path, error))
}

pub(super) fn list(path: &Path) -> Result<Vec<DirectoryEntry>> {
    let entries = || -> io::Result<Vec<DirectoryEntry>> {
        fs::read_dir(path)?
            .map(|entry| {
                let entry = entry?;
                Ok(DirectoryEntry {
                    name: PathBuf::from(entry.file_name()),
                    kind: kind_of(entry.file_type()?),
                })
            })
            .collect()
    };
    let mut entries = entries().map_err(|error| Error::io("list", path, error))?;
    // `OsString` orders by its bytes; a `Path` would order by components.
    entries.sort_by(|a, b| a.name.as_os_str().cmp(b.name.as_os_str()));
    Ok(entries)
}

pub(super) fn metadata(path: &Path) -> Result<Option<Metadata>> {
    match found(path) {
        Ok(metadata) => Ok(Some(metadata)),
        // A path below a file stands for nothing either.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(Error::io("stat", path, error)),
    }
}

fn found(path: &Path) -> io::Result<Metadata> {
    let found = fs::metadata(path)?;
    let kind = kind_of(found.file_type());
    let (allocated, links) = allocated_and_links(path, &found)?;
    let device = match kind {
        FileKind::BlockDevice => Some(device_length(path)?),
        _ => None,
    };
    Ok(Metadata {
        kind,
        length: device.unwrap_or(found.len()),
        allocated: device.unwrap_or(allocated),
        links,
    })
}

/// A device node has length 0; its end says how large it is.
fn device_length(path: &Path) -> io::Result<u64> {
    io::Seek::seek(&mut fs::File::open(path)?, io::SeekFrom::End(0))
}

#[cfg(unix)]
fn allocated_and_links(_path: &Path, found: &fs::Metadata) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Ok((found.blocks() * 512, found.nlink()))
}

#[cfg(windows)]
fn allocated_and_links(path: &Path, found: &fs::Metadata) -> io::Result<(u64, u64)> {
    if !found.is_file() {
        return Ok((0, 1));
    }
    let file = fs::File::open(path)?;
    Ok((
        super::windows::allocated(&file)?,
        super::windows::links(&file)?,
    ))
}

/// Bytes that an open file takes on the device.
pub(super) fn allocated(file: &fs::File) -> io::Result<u64> {
    #[cfg(unix)]
    return Ok(std::os::unix::fs::MetadataExt::blocks(&file.metadata()?) * 512);
    #[cfg(windows)]
    return super::windows::allocated(file);
}

fn kind_of(found: fs::FileType) -> FileKind {
    #[cfg(unix)]
    let is_device = std::os::unix::fs::FileTypeExt::is_block_device(&found);
    #[cfg(windows)]
    let is_device = false;
    if found.is_file() {
        FileKind::File
    } else if found.is_dir() {
        FileKind::Directory
    } else if is_device {
        FileKind::BlockDevice
    } else {
        FileKind::Other
    }
}

/// Space under a path.
#[cfg(unix)]
pub(super) fn space(path: &Path) -> Result<Space> {
    let found = rustix::io::retry_on_intr(|| rustix::fs::statvfs(path))
        .map_err(|errno| Error::io("statvfs", path, errno.into()))?;
    Ok(Space {
        // `f_bavail`, not `f_bfree`: the rest is kept for root.
        available: found.f_bavail.saturating_mul(found.f_frsize),
        total: found.f_blocks.saturating_mul(found.f_frsize),
    })
}

/// Space under a path; the system asks for a folder.
#[cfg(windows)]
pub(super) fn space(path: &Path) -> Result<Space> {
    let failed = |error| Error::io("find the free space of", path, error);
    let folder = match fs::metadata(path).map_err(failed)?.is_dir() {
        true => path,
        false => path.parent().unwrap_or(path),
    };
    super::windows::space(folder).map_err(failed)
}

/// The end of a range.
pub(super) fn end_of(path: &Path, offset: u64, length: u64) -> Result<u64> {
    offset.checked_add(length).ok_or_else(|| {
        Error::InvalidArgument(format!(
            "{}: {length} bytes from offset {offset} pass the largest offset",
            path.display()
        ))
    })
}
