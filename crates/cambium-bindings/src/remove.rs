//! Taking a store off the disk.

use std::path::{Path, PathBuf};

use cambium::{Error, MARKER_NAME, Options, Result, UNFINISHED_NAME, read_unfinished};
use cambium_io::{FileKind, FileSystem, LockMode};

/// The engines' lock file.
const LOCK_NAME: &str = "LOCK";
/// The engine that keeps a folder in its own, and that folder.
const ENGINE_WITH_TREE: &str = "wisckey";
const TREE_FOLDER: &str = "keys";

/// Removes a store that nobody has open, damaged or not, with its folder and all files in it;
/// does nothing where no store is. First its marker becomes that of a store that was never
/// finished, so that what a crash leaves behind is no store, and making one there takes its
/// place; or this goes on, if it is asked for again. Folders that somebody has put into it
/// stay, and so does then the store's own. Members that lie elsewhere stay.
///
/// # Errors
/// `Locked` by an owner, `InvalidArgument` for a folder that somebody has put into one of the
/// engine's, and what the disk says. What fails before anything was removed leaves the store.
pub fn remove(options: &Options, path: &Path) -> Result<()> {
    let environment = options.environment_used();
    let file_system = &*environment.file_system;
    let found = match options.marker(path) {
        Ok(marker) => Some(marker.engine),
        Err(Error::Corruption { .. }) => None,
        Err(Error::NotAStore { .. }) => match read_unfinished(file_system, path) {
            Ok(Some(marker)) => Some(marker.engine),
            _ => return Ok(()),
        },
        Err(other) => return Err(other),
    };
    let lock = file_system.lock(&path.join(LOCK_NAME), LockMode::Exclusive)?;
    let may_have_tree = found.is_none_or(|engine| engine == ENGINE_WITH_TREE);
    let (files, folder) = what_goes(file_system, path, may_have_tree)?;
    let (marker, unfinished) = (path.join(MARKER_NAME), path.join(UNFINISHED_NAME));
    let was_store = file_system.metadata(&marker)?.is_some();
    if was_store {
        file_system.rename(&marker, &unfinished)?;
    }
    let mut files = files.iter();
    let begun = file_system.sync_directory(path).and_then(|()| {
        let first = files.next();
        first.map_or(Ok(()), |file| file_system.remove(file))
    });
    if begun.is_err() && was_store {
        // Nothing is gone yet: it is a store again.
        file_system.rename(&unfinished, &marker)?;
    }
    begun?;
    files.try_for_each(|file| file_system.remove(file))?;
    if let Some(folder) = folder {
        file_system.remove_directory(&folder)?;
    }
    // What says that the rest is no store goes when that is gone for good.
    file_system.sync_directory(path)?;
    file_system.remove(&unfinished)?;
    file_system.remove(&path.join(LOCK_NAME))?;
    drop(lock);
    file_system.remove_directory(path)
}

/// The files of a store but those that go last, and the folder that is emptied by that.
fn what_goes(
    file_system: &dyn FileSystem,
    path: &Path,
    may_have_tree: bool,
) -> Result<(Vec<PathBuf>, Option<PathBuf>)> {
    let last = [MARKER_NAME, UNFINISHED_NAME, LOCK_NAME].map(Path::new);
    let mut files = Vec::new();
    let mut tree = None;
    for entry in file_system.list(path)? {
        let inner = path.join(&entry.name);
        match entry.kind {
            FileKind::Directory if may_have_tree && entry.name == Path::new(TREE_FOLDER) => {
                tree = Some(inner);
            }
            FileKind::Directory => {}
            _ if last.contains(&&*entry.name) => {}
            _ => files.push(inner),
        }
    }
    if let Some(tree) = &tree {
        for entry in file_system.list(tree)? {
            let inner = tree.join(&entry.name);
            if entry.kind == FileKind::Directory {
                return Err(Error::InvalidArgument(format!(
                    "{}: no store has this folder: move it elsewhere, and remove the store then",
                    inner.display()
                )));
            }
            files.push(inner);
        }
    }
    Ok((files, tree))
}
