//! Making a store: from the moment at which a folder is taken for one to that at which it
//! is one.
//!
//! ```text
//! the folder, and LOCK in it, taken
//! CAMBIUM.draft, synced           what the marker will say
//! CAMBIUM.draft renamed to CAMBIUM.new, in place of an unfinished creation's
//! the folder, synced
//!   … what that one left is removed …
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
//!
//! Whoever ends between the last two steps leaves a store of which a crash could still
//! take the name; so whoever opens one to write syncs its folder first ([`settle`]).

mod way;

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::{Error, Result, StoreId};
use cambium_io::{DirectoryEntry, FileKind, FileLock, FileSystem, LockMode, OpenOptions};

pub use self::way::clean;
use crate::consumers::{CONSUMERS_DRAFT_NAME, CONSUMERS_NAME};
use crate::marker::{
    self, COMPARATOR_DRAFT_NAME, COMPARATOR_NAME, DICTIONARY_DRAFT_NAME, DICTIONARY_NAME,
    DRAFT_NAME, LOCK_NAME, MARKER_NAME, Marker, UNFINISHED_NAME,
};

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
    /// How what was done outside the folder's known names is taken back.
    elsewhere: Vec<TakeBack>,
    around: Around,
    /// What an unfinished creation of the same engine said of its store.
    unfinished: Option<Marker>,
    /// Something that was there before is no longer what it was.
    overwrote: bool,
}

/// Takes back one thing that was done for a store which is not made.
type TakeBack = Box<dyn Fn(&dyn FileSystem) -> Result<()> + Send + Sync>;

/// Clears what an unfinished creation of a store left outside the folder's known names.
pub type Clear = Box<dyn Fn(&dyn FileSystem, StoreId) -> Result<()> + Send + Sync>;

/// What is allowed to be there already where a store is made, beside an empty folder and
/// what an unfinished creation left.
#[derive(Default)]
pub struct Around {
    /// A store that has lost its marker, and is lost thereby.
    pub over: bool,
    /// A file of another name in the folder; it stays.
    pub beside: Option<PathBuf>,
    /// To be done before what says of an unfinished creation is written over.
    pub clear: Option<Clear>,
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

    /// As [`Making::conclude`] of a copy of the store at `source`, which `fill` is to write
    /// into and close first: it is a store once all of that is there, with the name of the
    /// comparator that `source` has, and with entries that expire if `source` has such. The
    /// lock is given back in between, so somebody may have made another store of the folder
    /// since.
    ///
    /// # Errors
    /// As there, and those of `fill`; `AlreadyExists` where somebody has made another store,
    /// `Locked` where somebody is about to.
    pub fn conclude_closed(self, source: &Path, fill: impl FnOnce(T) -> Result<()>) -> Result<()> {
        let creation = self.creation;
        let ended = self.filled.and_then(fill).and_then(|()| {
            let lock = creation.folder.join(LOCK_NAME);
            let _held = creation.file_system.lock(&lock, LockMode::Exclusive)?;
            match creation.is_still_there()? {
                true => {
                    copy_what_is_beside(&*creation.file_system, source, &creation.folder)?;
                    creation.copy_expiry(source)?;
                    creation.finish()
                }
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
    /// a store there; those of the file system. Nothing is in the folder then that was not
    /// there before; of what an unfinished creation left some may have gone.
    pub fn begin(
        file_system: &Arc<dyn FileSystem>,
        folder: &Path,
        marker: Marker,
        is_ours: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<(Creation, Box<dyn FileLock>)> {
        Self::begin_among(file_system, folder, marker, Around::default(), is_ours)
    }

    /// As [`Creation::begin`], where more may be there already.
    ///
    /// # Errors
    /// As there.
    pub fn begin_among(
        file_system: &Arc<dyn FileSystem>,
        folder: &Path,
        marker: Marker,
        around: Around,
        is_ours: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<(Creation, Box<dyn FileLock>)> {
        let is_new = make_folder(&**file_system, folder)?;
        let mut creation = Creation {
            file_system: file_system.clone(),
            folder: folder.to_path_buf(),
            marker,
            is_ours: Box::new(move |name| is_ours(name) || NAMES_BESIDE.contains(&name)),
            is_new,
            before: HashSet::new(),
            elsewhere: Vec::new(),
            around,
            unfinished: None,
            overwrote: false,
        };
        let held = creation.take().inspect_err(|_| {
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

    /// Has something be done where the store is not made in the end: what was made or
    /// changed for it elsewhere, or under a name that is not the engine's, is taken back.
    pub fn take_back(
        &mut self,
        how: impl Fn(&dyn FileSystem) -> Result<()> + Send + Sync + 'static,
    ) {
        self.elsewhere.push(Box::new(how));
    }

    /// Says that files of the engine's names are about to be written: where some were there
    /// before, what lies there is no store from now on.
    pub fn will_overwrite(&mut self) {
        let mut before = self.before.iter().map(|name| name.to_string_lossy());
        self.overwrote = before.any(|name| name != LOCK_NAME && (self.is_ours)(&name));
    }

    /// Looks whether the folder may become a store, and takes its lock.
    fn take(&mut self) -> Result<Box<dyn FileLock>> {
        // Before the lock, which would leave a file in somebody's folder.
        let first = self.refuse_what_is_in_the_way()?.names;
        let lock = self.folder.join(LOCK_NAME);
        let held = self.file_system.lock(&lock, LockMode::Exclusive)?;
        let is_ours = !first.contains(Path::new(LOCK_NAME));
        // Somebody may have made a store until it was taken.
        let found = self.refuse_what_is_in_the_way().inspect_err(|_| {
            if is_ours {
                _ = self.file_system.remove(&lock);
            }
        })?;
        self.before = found.names;
        self.unfinished = found.unfinished;
        if is_ours {
            self.before.remove(Path::new(LOCK_NAME));
        }
        Ok(held)
    }

    /// Says durably that what lies in the folder from now on is no store, and removes what
    /// an unfinished creation left.
    fn announce(&mut self) -> Result<()> {
        let files = &*self.file_system;
        let unfinished = self.unfinished.take();
        if let (Some(unfinished), Some(clear)) = (&unfinished, &self.around.clear) {
            clear(files, unfinished.store)?;
        }
        // In one step, and before anything goes: whoever was about to finish that one sees
        // that it is no more.
        marker::write_unfinished(files, &self.folder, &self.marker)?;
        if unfinished.is_some_and(|unfinished| unfinished.engine == self.marker.engine) {
            for entry in self.made_here()? {
                self.remove_made(&entry)?;
                self.before.remove(&entry.name);
            }
            files.sync_directory(&self.folder)?;
        }
        Ok(())
    }

    /// What lies in the folder that a creation can have made, but for what says that one is
    /// under way.
    fn made_here(&self) -> Result<Vec<DirectoryEntry>> {
        let mut entries = self.file_system.list(&self.folder)?;
        entries.retain(|entry| {
            let name = entry.name.to_string_lossy();
            name != LOCK_NAME && (self.is_ours)(&name)
        });
        Ok(entries)
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

    /// Says of a copy that its entries may expire, if those of the store at `source` may.
    fn copy_expiry(&self, source: &Path) -> Result<()> {
        let files = &*self.file_system;
        let expires = marker::read_marker(files, source)?.expires;
        if expires == self.marker.expires {
            return Ok(());
        }
        let marker = Marker {
            expires,
            ..self.marker.clone()
        };
        marker::write_unfinished(files, &self.folder, &marker)
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
    fn is_still_there(&self) -> Result<bool> {
        let marker = self.folder.join(MARKER_NAME);
        if self.file_system.metadata(&marker)?.is_some() {
            return Ok(false);
        }
        let said = marker::read_unfinished(&*self.file_system, &self.folder)?;
        Ok(said.is_some_and(|said| said.store == self.marker.store))
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
        if !matches!(self.is_still_there(), Ok(true)) {
            return;
        }
        // While anything is left of it, it must not look like a store without a marker; nor
        // must what was one and was written over.
        let is_gone = self.remove_what_was_made().is_ok();
        if is_gone && self.file_system.sync_directory(&self.folder).is_ok() && !self.overwrote {
            self.withdraw();
        }
    }

    fn remove_what_was_made(&self) -> Result<()> {
        for take_back in &self.elsewhere {
            take_back(&*self.file_system)?;
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
        for name in [DRAFT_NAME, UNFINISHED_NAME, LOCK_NAME] {
            if !self.before.contains(Path::new(name)) {
                _ = self.file_system.remove(&self.folder.join(name));
            }
        }
        if self.is_new {
            _ = self.file_system.remove_directory(&self.folder);
        }
    }
}

/// Makes sure that a store which is about to be written to stays one: whoever made it may
/// have ended before its name was durable.
///
/// # Errors
/// Those of the file system.
pub fn settle(file_system: &dyn FileSystem, folder: &Path) -> Result<()> {
    file_system.sync_directory(folder)
}

/// Makes the folder of a store unless it is there. Says whether it did; it is durable
/// either way.
fn make_folder(file_system: &dyn FileSystem, folder: &Path) -> Result<bool> {
    let is_new = match file_system.metadata(folder)? {
        Some(found) if found.kind == FileKind::Directory => false,
        Some(_) => {
            return Err(Error::AlreadyExists {
                path: folder.to_path_buf(),
                what: "a file, not a folder, is in the way".to_string(),
            });
        }
        None => match file_system.create_directory(folder) {
            // Somebody has made it just now.
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::AlreadyExists => false,
            made => made.map(|()| true)?,
        },
    };
    match file_system.sync_directory(&parent_of(folder)) {
        // Somebody else's, who has made the folder for us; or of a file system that has no
        // folders to sync.
        Err(error)
            if !is_new
                && error
                    .os_error()
                    .is_some_and(|source| cannot_be_synced(source.kind())) =>
        {
            Ok(false)
        }
        Err(error) => {
            if is_new {
                _ = file_system.remove_directory(folder);
            }
            Err(error)
        }
        Ok(()) => Ok(is_new),
    }
}

/// More than any of the files that copies have too: a comparator's name, a dictionary.
const MOST_BYTES_BESIDE: u64 = 1 << 20;

/// Files of a store that are no engine's.
pub const NAMES_BESIDE: [&str; 6] = [
    COMPARATOR_NAME,
    COMPARATOR_DRAFT_NAME,
    DICTIONARY_NAME,
    DICTIONARY_DRAFT_NAME,
    CONSUMERS_NAME,
    CONSUMERS_DRAFT_NAME,
];

/// Gives a copy the comparator's name and the dictionary that the store has, whatever they
/// are.
fn copy_what_is_beside(file_system: &dyn FileSystem, store: &Path, copy: &Path) -> Result<()> {
    for name in [COMPARATOR_NAME, DICTIONARY_NAME] {
        let from = store.join(name);
        if file_system.metadata(&from)?.is_none() {
            continue;
        }
        let from = file_system.open(&from, OpenOptions::READ)?;
        let length = from.length()?;
        if length > MOST_BYTES_BESIDE {
            let what = format!("expected up to {MOST_BYTES_BESIDE} bytes, found {length}");
            return Err(Error::corruption(from.path(), 0, what));
        }
        let mut bytes = vec![0; length as usize];
        from.read_exact_at(&mut bytes, 0)?;
        let to = file_system.open(&copy.join(name), OpenOptions::CREATE_NEW)?;
        to.write_at(&bytes, 0)?;
        to.sync_data()?;
    }
    Ok(())
}

/// What is answered where a folder is not ours to sync, or nobody's.
fn cannot_be_synced(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::PermissionDenied
            | ErrorKind::InvalidInput
            | ErrorKind::Unsupported
            | ErrorKind::ReadOnlyFilesystem
    )
}

/// The folder that names this one.
fn parent_of(folder: &Path) -> PathBuf {
    match (folder.file_name(), folder.parent()) {
        (Some(_), Some(parent)) if parent != Path::new("") => parent.to_path_buf(),
        (Some(_), _) => PathBuf::from("."),
        // `.` and `..` name no parent as they are written.
        (None, _) => {
            let whole = clean(folder);
            whole.parent().unwrap_or(&whole).to_path_buf()
        }
    }
}

/// Removes a file, if it is there.
fn remove_file(file_system: &dyn FileSystem, path: &Path) -> Result<()> {
    match file_system.remove(path) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
