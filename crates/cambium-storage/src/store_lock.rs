//! The lock of a store's folder, and the marker read under it.
//!
//! A writer locks the file `LOCK` exclusively; readers share it, so that no
//! process writes while they read.
//!
//! ```
//! use std::path::Path;
//! use cambium_io::{Environment, LockMode};
//! use cambium_storage::store_lock::lock_store;
//!
//! let files = Environment::memory().file_system;
//! let refused = lock_store(&*files, Path::new("/none"), ("zdb", 1), LockMode::Shared);
//! assert!(refused.is_err() && files.metadata(Path::new("/none")).unwrap().is_none());
//! ```

use std::io::ErrorKind;
use std::path::Path;

use cambium_base::{Error, Result};
use cambium_io::{FileLock, FileSystem, LockMode};

use crate::marker::{LOCK_NAME, Marker, read_marker_of};

/// The lock of a store that has no lock file, in a folder where none can be made.
#[derive(Debug)]
pub struct Unlocked;

impl FileLock for Unlocked {}

/// The marker of a store of one engine, whose newest format version is given, and the
/// store's lock. The marker is read before the lock is taken, so that none is left where no
/// store is, and again under it, since another store may have come meanwhile.
///
/// # Errors
/// Those of [`read_marker_of`]; `Locked` where another process or handle has the store open.
pub fn lock_store(
    file_system: &dyn FileSystem,
    folder: &Path,
    (engine, newest): (&str, u32),
    mode: LockMode,
) -> Result<(Marker, Box<dyn FileLock>)> {
    let marker = || read_marker_of(file_system, folder, engine, newest);
    marker()?;
    let held = match mode {
        LockMode::Shared => lock_for_reading(file_system, folder)?,
        _ => file_system.lock(&folder.join(LOCK_NAME), mode)?,
    };
    Ok((marker()?, held))
}

/// The lock that readers share: no process writes while it is held. Every writer leaves a lock
/// file, so where none is and none can be made, as in a copy on read-only media, nothing is
/// locked.
///
/// # Errors
/// `Locked` where a writer has the store open; others of the file system.
pub fn lock_for_reading(file_system: &dyn FileSystem, folder: &Path) -> Result<Box<dyn FileLock>> {
    let path = folder.join(LOCK_NAME);
    match file_system.lock(&path, LockMode::Shared) {
        Err(Error::Io { source, .. })
            if is_unwritable(source.kind()) && file_system.metadata(&path)?.is_none() =>
        {
            Ok(Box::new(Unlocked))
        }
        held => held,
    }
}

fn is_unwritable(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied
    )
}
