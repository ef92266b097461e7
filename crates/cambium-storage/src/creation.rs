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

use crate::marker::{self, LOCK_NAME, MARKER_NAME, Marker, UNFINISHED_NAME};

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
    /// A file of another name that may lie in the folder, made for the store.
    beside: Option<PathBuf>,
    /// What an unfinished creation of the same engine said of its store.
    unfinished: Option<Marker>,
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
    /// empty, or holds what an unfinished creation of the same engine left. `is_ours` says
    /// whether a name can be that; of a folder in it, with the names in that, `folder/name`.
    /// Links are in the way, and so is any other name.
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
        Self::begin_over(file_system, folder, marker, (false, None), is_ours)
    }

    /// As [`Creation::begin`]; with `over` also where a store lies that has lost its marker,
    /// and is lost thereby. What an unfinished creation left may have a file `beside` the
    /// others, which stays.
    ///
    /// # Errors
    /// As there.
    pub fn begin_over(
        file_system: &Arc<dyn FileSystem>,
        folder: &Path,
        marker: Marker,
        (over, beside): (bool, Option<PathBuf>),
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
            beside,
            unfinished: None,
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

    /// The store that an unfinished creation was about to make here: what bears its id is no
    /// store's.
    pub fn unfinished(&self) -> Option<StoreId> {
        self.unfinished.as_ref().map(|marker| marker.store)
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
        if self.before.contains(Path::new(UNFINISHED_NAME)) {
            self.unfinished = self.find_unfinished();
        }
        if !first.contains(Path::new(LOCK_NAME)) {
            self.before.remove(Path::new(LOCK_NAME));
        }
        Ok(held)
    }

    /// Removes what an unfinished creation left, and says durably that what lies in the
    /// folder from now on is no store.
    fn announce(&mut self) -> Result<()> {
        let files = &*self.file_system;
        if self.unfinished.is_some() {
            for entry in self.made_here()? {
                self.remove_made(&entry)?;
                self.before.remove(&entry.name);
            }
            // What says that it may go is written over only when it has gone.
            files.sync_directory(&self.folder)?;
        }
        marker::write_unfinished(files, &self.folder, &self.marker)?;
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

    /// What an unfinished creation of the same engine said. Of another engine's nobody
    /// here knows which files it made; beside one that cannot be read there are none.
    fn find_unfinished(&self) -> Option<Marker> {
        marker::read_unfinished(&*self.file_system, &self.folder)
            .filter(|unfinished| unfinished.engine == self.marker.engine)
    }

    /// Removes a file that a creation made, or a folder with such files.
    fn remove_made(&self, entry: &DirectoryEntry) -> Result<()> {
        let files = &*self.file_system;
        let path = self.folder.join(&entry.name);
        if entry.kind != FileKind::Directory {
            return remove_file(files, &path);
        }
        if let Some(other) = self.foreign_within(entry)? {
            return Err(self.in_the_way(&other));
        }
        for inner in files.list(&path)? {
            remove_file(files, &path.join(&inner.name))?;
        }
        files.remove_directory(&path)
    }

    /// What lies in a folder of the engine's name that no creation made.
    fn foreign_within(&self, entry: &DirectoryEntry) -> Result<Option<String>> {
        let within = self.file_system.list(&self.folder.join(&entry.name))?;
        let name_of = |inner: &DirectoryEntry| {
            let inner = inner.name.to_string_lossy();
            format!("{}/{inner}", entry.name.to_string_lossy())
        };
        let mut foreign = within.iter().filter(|inner| {
            let is_plain = inner.kind == FileKind::File;
            !(is_plain && (self.is_ours)(&name_of(inner)))
        });
        Ok(foreign.next().map(name_of))
    }

    fn in_the_way(&self, name: &str) -> Error {
        Error::AlreadyExists {
            path: self.folder.clone(),
            what: format!(
                "the folder is not empty, it holds {name:?}; a store needs a folder of its own"
            ),
        }
    }

    /// What the folder holds, if nothing of it is in the way.
    fn refuse_what_is_in_the_way(&self, over: bool) -> Result<HashSet<PathBuf>> {
        let refused = |what: String| {
            Err(Error::AlreadyExists {
                path: self.folder.clone(),
                what,
            })
        };
        let mut entries = self.file_system.list(&self.folder)?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        let names: HashSet<_> = entries.iter().map(|entry| entry.name.clone()).collect();
        if names.contains(Path::new(MARKER_NAME)) {
            return refused("it is a store already; open it, or choose another path".to_string());
        }
        let mut own = None;
        for entry in &entries {
            let name = entry.name.to_string_lossy();
            let is_link = entry.kind == FileKind::Other;
            if !is_link && (name == LOCK_NAME || name == UNFINISHED_NAME) {
                continue;
            }
            let is_beside = self.beside.as_deref() == Some(&entry.name);
            if is_link || !is_beside && !(self.is_ours)(&name) {
                return Err(self.in_the_way(&name));
            }
            if entry.kind == FileKind::Directory {
                if let Some(other) = self.foreign_within(entry)? {
                    return Err(self.in_the_way(&other));
                }
            }
            own = own.or(Some(name));
        }
        match own {
            Some(name) if !over && self.find_unfinished().is_none() => refused(format!(
                "{name:?} lies here, as if of a store that has lost its file CAMBIUM, which `cambium repair` makes anew; a new store needs a folder of its own"
            )),
            _ => Ok(names),
        }
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
        // While anything is left of it, it must not look like a store without a marker; nor
        // must a store that was to be written over.
        if self.remove_what_was_made().is_ok()
            && files.sync_directory(&self.folder).is_ok()
            && self.made_here().is_ok_and(|left| left.is_empty())
        {
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
                self.remove_made(&entry)?;
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
