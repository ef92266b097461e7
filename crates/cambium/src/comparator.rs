//! The name of the comparator that a store's keys are ordered by.
//!
//! Engines keep keys in the order of their bytes. A binding that lets a program bring
//! another order (LevelDB's interface, Python) keeps that order by itself, and its
//! name, in UTF-8 and nothing else, in the file `COMPARATOR` of the store's folder. It
//! is no engine's file, so copies of a store are given it here.

use std::path::Path;

use cambium_api::{Error, Result};
use cambium_io::{FileSystem, OpenOptions};
use cambium_storage::marker::{COMPARATOR_DRAFT_NAME, replace_file};

pub use cambium_storage::marker::COMPARATOR_NAME;

/// Names are no longer.
const MAX_NAME_BYTES: usize = 4096;

/// The name of the comparator that a store was made with, if there is one.
///
/// # Errors
/// `Corruption` for what is no UTF-8, and what the disk says.
///
/// ```
/// use cambium::{Options, comparator};
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// let options = Options::new();
/// let store = options.create(folder.path(), "forest")?;
/// let file_system = &*options.environment_used().file_system;
/// assert_eq!(comparator::stored_name(file_system, folder.path())?, None);
/// comparator::store_name(file_system, folder.path(), "ignoring case")?;
/// let name = comparator::stored_name(file_system, folder.path())?;
/// assert_eq!(name.as_deref(), Some("ignoring case"));
/// # store.close()
/// # }
/// ```
pub fn stored_name(file_system: &dyn FileSystem, store: &Path) -> Result<Option<String>> {
    let path = store.join(COMPARATOR_NAME);
    if file_system.metadata(&path)?.is_none() {
        return Ok(None);
    }
    let file = file_system.open(&path, OpenOptions::READ)?;
    let mut name = vec![0; MAX_NAME_BYTES];
    let length = file.read_at(&mut name, 0)?;
    name.truncate(length);
    let damaged = |at| {
        let what = "expected the name of a comparator in UTF-8; write it there again";
        Error::corruption(&path, at, what)
    };
    match String::from_utf8(name) {
        Ok(name) if name.is_empty() => Err(damaged(0)),
        Ok(name) => Ok(Some(name)),
        Err(error) => Err(damaged(error.utf8_error().valid_up_to() as u64)),
    }
}

/// Refuses a store that has a comparator to a program that knows the order of bytes alone: by
/// it two keys differ that the comparator holds equal, so what such a program writes can hide
/// or bring back another entry.
///
/// # Errors
/// `InvalidArgument` with the comparator's name; those of [`stored_name`].
pub fn refuse(file_system: &dyn FileSystem, store: &Path) -> Result<()> {
    match stored_name(file_system, store)? {
        None => Ok(()),
        Some(name) => Err(Error::InvalidArgument(format!(
            "{}: its keys are in the order of the comparator {name:?}, which only the program \
             that made it has; write it by that program",
            store.display()
        ))),
    }
}

/// Keeps the name of the comparator that a store is made with, durably, and whole or not at
/// all.
///
/// # Errors
/// Those of [`check_name`], and what the disk says.
pub fn store_name(file_system: &dyn FileSystem, store: &Path, name: &str) -> Result<()> {
    check_name(name)?;
    let (draft, file) = (COMPARATOR_DRAFT_NAME, COMPARATOR_NAME);
    replace_file(file_system, store, draft, file, name.as_bytes())
}

/// Refuses what cannot be kept as a comparator's name.
///
/// # Errors
/// `InvalidArgument` for an empty name, `LimitExceeded` for one over 4,096 bytes.
pub fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::InvalidArgument(
            "a comparator without a name: stores are told by it which order they have".to_string(),
        ));
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(Error::LimitExceeded(format!(
            "a comparator's name of {} bytes: names have up to {MAX_NAME_BYTES}",
            name.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cambium_io::simulated::SimulatedDisk;

    use super::*;

    #[test]
    fn a_name_is_not_written_through_a_link() {
        let (disk, store) = (SimulatedDisk::new(1), Path::new("/"));
        let file = disk.open(&store.join("other"), OpenOptions::CREATE);
        file.unwrap().write_at(b"another file", 0).unwrap();
        let draft = store.join(COMPARATOR_DRAFT_NAME);
        assert!(disk.link(&store.join("other"), &draft).unwrap());
        store_name(&disk, store, "by age").unwrap();
        let stored = stored_name(&disk, store).unwrap();
        assert_eq!(stored.as_deref(), Some("by age"));
        let other = disk.contents(&store.join("other")).unwrap();
        assert_eq!(other, b"another file");
    }
}
