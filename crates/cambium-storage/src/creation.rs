//! Making a store: from the moment at which a folder is taken for one to that at which it
//! is one.
//!
//! ```text
//! the folder, and LOCK in it, taken
//! CAMBIUM.new, synced             what the marker will say
//!   the folder, synced
//!   … the engine's own files, each synced …
//!   the folder, synced
//! CAMBIUM.new renamed to CAMBIUM  what was being made is a store
//! the folder, synced
//! ```
//!
//! So of a folder without the file `CAMBIUM` one can tell what it is, after a crash at any
//! moment: where `CAMBIUM.new` lies, a creation or a backup did not come to its end, nothing
//! was promised of it, and making a store there takes the place of what is left. Where other
//! files of an engine lie without it, they were a store, which lost its marker: making a
//! store there is refused, a repair makes the marker anew.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::{Error, Result, StoreId};
use cambium_io::{DirectoryEntry, FileKind, FileLock, FileSystem, LockMode};

use crate::marker::{self, MARKER_NAME, Marker, UNFINISHED_NAME};

/// The lock's name in every engine's folder.
const LOCK_NAME: &str = "LOCK";

/// Says of a file's name whether a creation can have made it.
type IsOurs = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// A folder that is becoming a store. Dropped without an end it stays as a crash would
/// leave it.
pub struct Creation {
    file_system: Arc<dyn FileSystem>,
    folder: PathBuf,
    marker: Marker,
    is_ours: IsOurs,
    /// The folder was not there before.
    is_new: bool,
    /// What lay in the folder before.
    before: HashSet<PathBuf>,
    /// Files outside the folder's known names that are made for the store.
    others: Vec<PathBuf>,
}

impl std::fmt::Debug for Creation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Creation")
            .field("folder", &self.folder)
            .field("marker", &self.marker)
            .finish_non_exhaustive()
    }
}

/// A store that is made but for its marker, or what made that fail.
#[derive(Debug)]
#[must_use = "neither made a store, nor taken back"]
pub struct Making<T> {
    /// The folder that it is in.
    pub creation: Creation,
    /// The store, open, with the folder's lock.
    pub filled: Result<T>,
}

impl<T> Making<T> {
    /// Makes it a store, durably; or, where that fails or making it has failed, takes back what
    /// was made.
    ///
    /// # Errors
    /// What making it failed with, and those of the file system.
    pub fn conclude(self) -> Result<T> {
        let creation = self.creation;
        let ended = self
            .filled
            .and_then(|filled| creation.finish().map(|()| filled));
        ended.inspect_err(|_| creation.give_back())
    }

    /// As [`Making::conclude`] of a store that `fill` is to write into and close first: it is
    /// a store once all of that is there. The lock is given back in between, so somebody may
    /// have made another store of the folder since.
    ///
    /// # Errors
    /// As there, and those of `fill`; `AlreadyExists` where somebody has made another store,
    /// `Locked` where somebody is about to.
    pub fn conclude_closed(self, fill: impl FnOnce(T) -> Result<()>) -> Result<()> {
        let creation = self.creation;
        let ended = self.filled.and_then(fill).and_then(|()| {
            let lock = creation.folder.join(LOCK_NAME);
            let _held = creation.file_system.lock(&lock, LockMode::Exclusive)?;
            match creation.is_still_there() {
                true => creation.finish(),
                false => Err(Error::AlreadyExists {
                    path: creation.folder.clone(),
                    what: "another store was made here meanwhile".to_string(),
                }),
            }
        });
        ended.inspect_err(|_| creation.give_back())
    }
}

impl Creation {
    /// Takes a folder for a new store, durably, and its lock. The folder is not there, or
    /// empty, or holds what an unfinished creation left (`is_ours` says whether a name can be
    /// that).
    ///
    /// # Errors
    /// `AlreadyExists` where something else is in the way, `Locked` where somebody else makes
    /// a store there; those of the file system. The folder is then as it was.
    pub fn begin(
        file_system: &Arc<dyn FileSystem>,
        folder: &Path,
        marker: Marker,
        is_ours: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<(Creation, Box<dyn FileLock>)> {
        Self::begin_over(file_system, folder, marker, false, is_ours)
    }

    /// As [`Creation::begin`]; with `over` also where a store lies that has lost its marker,
    /// and is lost thereby.
    ///
    /// # Errors
    /// As there.
    pub fn begin_over(
        file_system: &Arc<dyn FileSystem>,
        folder: &Path,
        marker: Marker,
        over: bool,
        is_ours: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<(Creation, Box<dyn FileLock>)> {
        let is_new = make_folder(&**file_system, folder)?;
        let mut creation = Creation {
            file_system: file_system.clone(),
            folder: folder.to_path_buf(),
            marker,
            is_ours: Box::new(is_ours),
            is_new,
            before: HashSet::new(),
            others: Vec::new(),
        };
        let held = creation.take(over).inspect_err(|_| {
            if is_new {
                // Goes only if it is empty.
                _ = file_system.remove_directory(folder);
            }
        })?;
        match creation.announce() {
            Ok(()) => Ok((creation, held)),
            Err(error) => {
                creation.withdraw();
                Err(error)
            }
        }
    }

    /// The id of the store to be.
    pub fn store(&self) -> StoreId {
        self.marker.store
    }

    /// Says that a file is about to be made for the store that bears no name of the engine's,
    /// or lies elsewhere: it is removed with the rest, unless it was there before.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn will_make(&mut self, path: &Path) -> Result<()> {
        if self.file_system.metadata(path)?.is_none() {
            self.others.push(path.to_path_buf());
        }
        Ok(())
    }

    /// Looks whether the folder may become a store, and takes its lock.
    fn take(&mut self, over: bool) -> Result<Box<dyn FileLock>> {
        // Before the lock, which would leave a file in somebody's folder.
        let first = self.refuse_what_is_in_the_way(over)?;
        let lock = self.folder.join(LOCK_NAME);
        let held = self.file_system.lock(&lock, LockMode::Exclusive)?;
        // Somebody may have made a store until it was taken.
        self.before = self.refuse_what_is_in_the_way(over)?;
        if !first.contains(Path::new(LOCK_NAME)) {
            self.before.remove(Path::new(LOCK_NAME));
        }
        Ok(held)
    }

    /// Says durably that what lies in the folder from now on is no store, and removes what
    /// an unfinished creation left.
    fn announce(&mut self) -> Result<()> {
        let files = &*self.file_system;
        marker::write_unfinished(files, &self.folder, &self.marker)?;
        if self.before.contains(Path::new(UNFINISHED_NAME)) {
            for entry in self.made_here()? {
                let path = self.folder.join(&entry.name);
                remove_tree(files, &path, entry.kind)?;
                self.before.remove(&entry.name);
            }
        }
        files.sync_directory(&self.folder)
    }

    /// What lies in the folder that a creation can have made, but for what says that one is
    /// under way.
    fn made_here(&self) -> Result<Vec<DirectoryEntry>> {
        let mut entries = self.file_system.list(&self.folder)?;
        entries.retain(|entry| {
            let name = entry.name.to_string_lossy();
            name != LOCK_NAME && name != UNFINISHED_NAME && (self.is_ours)(&name)
        });
        Ok(entries)
    }

    /// What the folder holds, if nothing of it is in the way.
    fn refuse_what_is_in_the_way(&self, over: bool) -> Result<HashSet<PathBuf>> {
        let refused = |what: String| {
            Err(Error::AlreadyExists {
                path: self.folder.clone(),
                what,
            })
        };
        let entries = self.file_system.list(&self.folder)?;
        let names: HashSet<_> = entries.into_iter().map(|entry| entry.name).collect();
        if names.contains(Path::new(MARKER_NAME)) {
            return refused("it is a store already; open it, or choose another path".to_string());
        }
        let is_unfinished = names.contains(Path::new(UNFINISHED_NAME));
        for name in names.iter().map(|name| name.to_string_lossy()) {
            if name == LOCK_NAME || name == UNFINISHED_NAME {
                continue;
            }
            if !(self.is_ours)(&name) {
                return refused(format!(
                    "the folder is not empty, it holds {name:?}; a store needs a folder of its own"
                ));
            }
            if !is_unfinished && !over {
                return refused(format!(
                    "{name:?} lies here, as if of a store that has lost its file CAMBIUM: `cambium repair` makes that anew; remove the folder to lose what is in it"
                ));
            }
        }
        Ok(names)
    }

    /// Makes the folder a store, durably. The caller holds its lock.
    fn finish(&self) -> Result<()> {
        let (from, to) = (
            self.folder.join(UNFINISHED_NAME),
            self.folder.join(MARKER_NAME),
        );
        self.file_system.sync_directory(&self.folder)?;
        self.file_system.rename(&from, &to)?;
        let synced = self.file_system.sync_directory(&self.folder);
        synced.inspect_err(|_| {
            // Nobody is told of a store, so none is to be found.
            _ = self.file_system.rename(&to, &from);
        })
    }

    /// True if nobody has made another store of the folder.
    fn is_still_there(&self) -> bool {
        let unmarked = self.file_system.metadata(&self.folder.join(MARKER_NAME));
        let said = marker::read_unfinished(&*self.file_system, &self.folder);
        matches!(unmarked, Ok(None)) && said.is_some_and(|said| said.store == self.marker.store)
    }

    /// Removes what was made, and the folder if it was. What is somebody else's stays, and
    /// the folder with it; so does what was there before, and what somebody else is making
    /// here by now. Whoever filled the folder has let its lock go. What fails here is not
    /// told, what led here is.
    fn give_back(&self) {
        let lock = self.folder.join(LOCK_NAME);
        let Ok(_held) = self.file_system.lock(&lock, LockMode::Exclusive) else {
            return;
        };
        let files = &*self.file_system;
        if !self.is_still_there() {
            return;
        }
        // While anything is left of it, it must not look like a store without a marker.
        if self.remove_what_was_made().is_ok() && files.sync_directory(&self.folder).is_ok() {
            self.withdraw();
        }
    }

    fn remove_what_was_made(&self) -> Result<()> {
        let files = &*self.file_system;
        for path in &self.others {
            remove_file(files, path)?;
        }
        for entry in self.made_here()? {
            if !self.before.contains(&entry.name) {
                remove_tree(files, &self.folder.join(&entry.name), entry.kind)?;
            }
        }
        Ok(())
    }

    /// Removes what says that a store is being made here, and the folder if that was made
    /// for it. The lock is held.
    fn withdraw(&self) {
        for name in [UNFINISHED_NAME, LOCK_NAME] {
            if !self.before.contains(Path::new(name)) {
                _ = self.file_system.remove(&self.folder.join(name));
            }
        }
        if self.is_new {
            _ = self.file_system.remove_directory(&self.folder);
        }
    }
}

/// Makes the folder of a store, durably, unless it is there. Says whether it did.
fn make_folder(file_system: &dyn FileSystem, folder: &Path) -> Result<bool> {
    match file_system.metadata(folder)? {
        Some(found) if found.kind == FileKind::Directory => return Ok(false),
        Some(_) => {
            return Err(Error::AlreadyExists {
                path: folder.to_path_buf(),
                what: "a file, not a folder, is in the way".to_string(),
            });
        }
        None => file_system.create_directory(folder)?,
    }
    let parent = folder.parent().filter(|parent| *parent != Path::new(""));
    let synced = file_system.sync_directory(parent.unwrap_or(Path::new(".")));
    synced.inspect_err(|_| _ = file_system.remove_directory(folder))?;
    Ok(true)
}

/// Removes a file, if it is there.
fn remove_file(file_system: &dyn FileSystem, path: &Path) -> Result<()> {
    match file_system.metadata(path)? {
        Some(_) => file_system.remove(path),
        None => Ok(()),
    }
}

/// Removes a file, or a folder with all that is in it.
fn remove_tree(file_system: &dyn FileSystem, path: &Path, kind: FileKind) -> Result<()> {
    if kind != FileKind::Directory {
        return remove_file(file_system, path);
    }
    for entry in file_system.list(path)? {
        remove_tree(file_system, &path.join(&entry.name), entry.kind)?;
    }
    file_system.remove_directory(path)
}
