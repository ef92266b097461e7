//! Taking a store off the disk.

use std::path::Path;

use cambium::{Error, MARKER_NAME, Options, Result, UNFINISHED_NAME};
use cambium_io::{FileKind, LockMode};

/// The engines' lock file.
const LOCK_NAME: &str = "LOCK";
/// The folder in which `wisckey` keeps its tree of keys.
const TREE_FOLDER: &str = "keys";

/// Removes a store that nobody has open, damaged or not, with its folder; does
/// nothing where no store is. First its marker becomes that of a store that was never
/// finished, so that what a crash leaves behind is no store, and making one there takes its
/// place. Folders that somebody has put into it stay, and so does
/// then the store's own.
///
/// # Errors
/// `Locked` by an owner, and what the disk says.
pub fn remove(options: &Options, path: &Path) -> Result<()> {
    let environment = options.environment_used();
    let file_system = &*environment.file_system;
    match options.marker(path) {
        Ok(_) | Err(Error::Corruption { .. }) => {}
        Err(Error::NotAStore { .. }) => return Ok(()),
        Err(other) => return Err(other),
    }
    let lock = file_system.lock(&path.join(LOCK_NAME), LockMode::Exclusive)?;
    let unfinished = path.join(UNFINISHED_NAME);
    file_system.rename(&path.join(MARKER_NAME), &unfinished)?;
    file_system.sync_directory(path)?;
    for entry in file_system.list(path)? {
        if [UNFINISHED_NAME, LOCK_NAME]
            .map(Path::new)
            .contains(&&*entry.name)
        {
            continue;
        }
        let inner = path.join(&entry.name);
        match entry.kind {
            FileKind::Directory if entry.name == Path::new(TREE_FOLDER) => {
                for entry in file_system.list(&inner)? {
                    file_system.remove(&inner.join(&entry.name))?;
                }
                file_system.remove_directory(&inner)?;
            }
            FileKind::Directory => {}
            _ => file_system.remove(&inner)?,
        }
    }
    // What says that the rest is no store goes when that is gone for good.
    file_system.sync_directory(path)?;
    file_system.remove(&unfinished)?;
    file_system.remove(&path.join(LOCK_NAME))?;
    drop(lock);
    file_system.remove_directory(path)
}
