//! What lies in a folder that is to become a store: what may be there, and what is in the
//! way.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use cambium_base::{Error, Result};
use cambium_io::{DirectoryEntry, FileKind, OpenOptions};

use super::Creation;
use crate::marker::{self, DRAFT_NAME, LOCK_NAME, MARKER_NAME, Marker, UNFINISHED_NAME};

/// Longer than the number of a process.
const MOST_LOCK_BYTES: usize = 24;

/// What a folder holds in which nothing is in the way.
pub(super) struct Found {
    pub(super) names: HashSet<PathBuf>,
    /// What an unfinished creation said.
    pub(super) unfinished: Option<Marker>,
}

/// A path from the root on, without `.` and `..`, so that two that lead to one place can
/// be told to. Links are not followed.
pub fn clean(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or(path.to_path_buf());
    let mut cleaned = PathBuf::new();
    for part in whole.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => _ = cleaned.pop(),
            other => cleaned.push(other),
        }
    }
    cleaned
}

impl Creation {
    /// What the folder holds, if nothing of it is in the way.
    pub(super) fn refuse_what_is_in_the_way(&self) -> Result<Found> {
        let mut entries = self.file_system.list(&self.folder)?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        let names: HashSet<_> = entries.iter().map(|entry| entry.name.clone()).collect();
        if names.contains(Path::new(MARKER_NAME)) {
            let what = "it is a store already; open it, or choose another path";
            return Err(self.refused(what.to_string()));
        }
        let unfinished = match names.contains(Path::new(UNFINISHED_NAME)) {
            true => marker::read_unfinished(&*self.file_system, &self.folder)?,
            false => None,
        };
        let mut own = None;
        for entry in &entries {
            let name = entry.name.to_string_lossy();
            if self.is_of_creations(entry)? {
                continue;
            }
            self.refuse_anothers_remains(unfinished.as_ref())?;
            if self.is_beside(entry) {
                continue;
            }
            let is_plain = entry.kind != FileKind::Other && name != LOCK_NAME;
            if !is_plain || !(self.is_ours)(&name) {
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
            Some(name) if !self.around.over && unfinished.is_none() => {
                Err(self.refused(format!(
                    "{name:?} lies here, as if of a store that has lost its file CAMBIUM, which `cambium repair` makes anew; a new store needs a folder of its own"
                )))
            }
            _ => Ok(Found { names, unfinished }),
        }
    }

    /// True for the files by which creations tell each other of themselves.
    fn is_of_creations(&self, entry: &DirectoryEntry) -> Result<bool> {
        let name = entry.name.to_string_lossy();
        if entry.kind != FileKind::File {
            return Ok(false);
        }
        Ok(match &*name {
            UNFINISHED_NAME | DRAFT_NAME => true,
            LOCK_NAME => self.is_lock(&entry.name)?,
            _ => false,
        })
    }

    /// True for a file that holds no more than the number of a process.
    fn is_lock(&self, name: &Path) -> Result<bool> {
        let path = self.folder.join(name);
        let file = self.file_system.open(&path, OpenOptions::READ)?;
        let mut bytes = [0; MOST_LOCK_BYTES];
        let count = file.read_at(&mut bytes, 0)?;
        // A power cut may leave the length of the number, and zeros in its place.
        let is_number = |byte: &u8| byte.is_ascii_digit() || [b'\n', 0].contains(byte);
        Ok(count < MOST_LOCK_BYTES && bytes[..count].iter().all(is_number))
    }

    /// True for the one file of another name that may be here.
    fn is_beside(&self, entry: &DirectoryEntry) -> bool {
        let beside = self.around.beside.as_deref();
        let is_it =
            |beside| clean(&self.folder.join(beside)) == clean(&self.folder.join(&entry.name));
        entry.kind == FileKind::File && beside.is_some_and(is_it)
    }

    /// Of what another engine's creation left nobody here knows which files it made.
    fn refuse_anothers_remains(&self, unfinished: Option<&Marker>) -> Result<()> {
        match unfinished.filter(|unfinished| unfinished.engine != self.marker.engine) {
            Some(Marker { engine, .. }) => Err(self.refused(format!(
                "what the creation of a store of engine {engine} left lies here, which did not come to its end: make it again with that engine, or empty the folder"
            ))),
            None => Ok(()),
        }
    }

    /// What lies in a folder of the engine's name that no creation made.
    pub(super) fn foreign_within(&self, entry: &DirectoryEntry) -> Result<Option<String>> {
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

    pub(super) fn in_the_way(&self, name: &str) -> Error {
        self.refused(format!(
            "the folder is not empty, it holds {name:?}; a store needs a folder of its own"
        ))
    }

    fn refused(&self, what: String) -> Error {
        Error::AlreadyExists {
            path: self.folder.clone(),
            what,
        }
    }
}
