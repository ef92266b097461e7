//! Files that a store and its checkpoint have in common.
//!
//! A checkpoint in the same file system need not copy what is never written again: it gives
//! the file a second name. What one of the two stores may still write it clones: both files
//! then share blocks, which the file system copies when one of them is written.
//!
//! | the store's file | shared by | where the file system cannot |
//! |---|---|---|
//! | is never written again | a hard link, else a clone | the engine copies entries |
//! | may be written | a clone | the engine copies entries |
//!
//! A store must not give back space within a file that has several names
//! ([`has_other_names`]): the other store reads it.

use std::path::Path;

use std::sync::Arc;

use cambium_base::{Error, Result};
pub use cambium_io::file_system::has_other_names;
use cambium_io::{FileKind, FileLock, FileSystem, OpenOptions, file_system};

use crate::creation::{Creation, Making};
use crate::marker::read_marker;

/// Makes a checkpoint of the store at `source`, with its id, in a folder that is empty or not
/// there. `fill` makes all files in that folder durable but for their names, and closes what
/// it opens; or it answers `None` because the file system cannot share files. Then what was
/// made is taken back, there is no store, and this answers `None`. `is_ours` is that of
/// [`Creation::begin`].
///
/// # Errors
/// As of [`Creation::begin`] and [`Making::conclude_closed`], and those of `fill`.
pub fn make_checkpoint<T>(
    files: &Arc<dyn FileSystem>,
    source: &Path,
    destination: &Path,
    is_ours: fn(&str) -> bool,
    fill: impl FnOnce(Box<dyn FileLock>) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let marker = read_marker(&**files, source)?;
    let (creation, held) = Creation::begin(files, destination, marker, is_ours)?;
    let filled = Ok(held);
    let mut made = None;
    let mut is_shared = true;
    let ended = Making { creation, filled }.conclude_closed(source, |held| {
        made = fill(held)?;
        is_shared = made.is_some();
        // Has what was made taken back.
        if is_shared {
            Ok(())
        } else {
            Err(Error::Cancelled)
        }
    });
    if !is_shared {
        return Ok(None);
    }
    ended.map(|()| made)
}

/// Puts a file that is durable and never written again at another path, durable but for the
/// name there. False where the file system cannot share it.
///
/// # Errors
/// Those of the file system.
pub fn share_unchanging(files: &dyn FileSystem, from: &Path, to: &Path) -> Result<bool> {
    if files.link(from, to)? {
        return Ok(true);
    }
    let length = files.open(from, OpenOptions::READ)?.length()?;
    clone_synced(files, from, to, length)
}

/// Puts the first `length` bytes of a file at another path as a file of its own, durable but
/// for the name there. False where the file system shares no blocks.
///
/// # Errors
/// Those of the file system.
pub fn clone_synced(files: &dyn FileSystem, from: &Path, to: &Path, length: u64) -> Result<bool> {
    if !files.clone_file(from, to, length)? {
        return Ok(false);
    }
    files.open(to, OpenOptions::READ)?.sync_data()?;
    Ok(true)
}

/// Copies the first `length` bytes of a file to another path, durable but for the name there.
///
/// # Errors
/// Those of the file system; `Corruption` where the file is shorter.
pub fn copy_synced(files: &dyn FileSystem, from: &Path, to: &Path, length: u64) -> Result<()> {
    let copied = file_system::copy_synced(files, from, to, OpenOptions::CREATE_NEW, length)?;
    if copied < length {
        let what = format!("the file ends before the {length} bytes to be copied");
        return Err(Error::corruption(from, copied, what));
    }
    Ok(())
}

/// Makes the files of a folder durable, and their names.
///
/// # Errors
/// Those of the file system.
pub fn sync_files(files: &dyn FileSystem, folder: &Path) -> Result<()> {
    for entry in files.list(folder)? {
        if entry.kind == FileKind::File {
            let path = folder.join(&entry.name);
            files.open(&path, OpenOptions::READ)?.sync_data()?;
        }
    }
    files.sync_directory(folder)
}

/// Files of no more bytes are copied where they cannot be cloned.
const SMALL_BYTES: u64 = 64 << 10;

/// Clones the files of a folder whose names `is_wanted` takes into another folder, not yet
/// synced, and copies small ones; answers false, and leaves what was made, where the file
/// system shares no blocks. Nobody writes the files while this runs.
///
/// # Errors
/// Those of the file system.
pub fn clone_files(
    files: &dyn FileSystem,
    from: &Path,
    to: &Path,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<bool> {
    for entry in files.list(from)? {
        let is_file = entry.kind == FileKind::File;
        if !is_file || !is_wanted(&entry.name.to_string_lossy()) {
            continue;
        }
        let source = from.join(&entry.name);
        let copy = to.join(&entry.name);
        let length = files.metadata(&source)?.map_or(0, |found| found.length);
        if files.clone_file(&source, &copy, length)? {
            continue;
        }
        if length > SMALL_BYTES {
            return Ok(false);
        }
        copy_synced(files, &source, &copy, length)?;
    }
    Ok(true)
}
