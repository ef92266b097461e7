//! Names of files and folders.
//!
//! A map from path to entry, sorted component by component, so that a folder's
//! names stand together. Paths are normalized: `/a/./b`, `a/b` and `/a/b` are
//! one name below the root, which is always there.

use std::collections::BTreeMap;
use std::io::{Error as IoError, ErrorKind};
use std::path::{Component, Path, PathBuf};

use cambium_base::{Error, Result};

use crate::file_system::{DirectoryEntry, FileKind};

/// A folder, or a file by its number, that has a name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    Directory,
    File(u64),
}

/// All names of a file system.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    entries: BTreeMap<PathBuf, Entry>,
}

/// One spelling for each path, without the root.
pub(super) fn normalize(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    plain
}

/// The folder a normalized path lies in.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// An error of the operating system's kind.
pub(super) fn refuse(operation: &'static str, path: &Path, kind: ErrorKind) -> Error {
    Error::io(operation, path, IoError::from(kind))
}

impl Tree {
    /// What stands at a normalized path; the root is a folder.
    pub(super) fn get(&self, path: &Path) -> Option<Entry> {
        if path.as_os_str().is_empty() {
            return Some(Entry::Directory);
        }
        self.entries.get(path).copied()
    }

    /// True if a folder stands there.
    pub(super) fn is_directory(&self, path: &Path) -> bool {
        matches!(self.get(path), Some(Entry::Directory))
    }

    /// Sets a name whatever was there before.
    pub(super) fn set(&mut self, path: &Path, entry: Entry) {
        self.entries.insert(path.to_path_buf(), entry);
    }

    /// Takes a name away, if it is there.
    pub(super) fn clear(&mut self, path: &Path) -> Option<Entry> {
        self.entries.remove(path)
    }

    /// All names and what they stand for.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&PathBuf, &Entry)> {
        self.entries.iter()
    }

    /// Keeps only names that answer true.
    pub(super) fn retain(&mut self, keep: impl FnMut(&PathBuf, &mut Entry) -> bool) {
        self.entries.retain(keep);
    }

    /// The file at a path, or `NotFound`, or `IsADirectory`.
    pub(super) fn file(&self, operation: &'static str, path: &Path) -> Result<u64> {
        match self.get(path) {
            Some(Entry::File(file)) => Ok(file),
            Some(Entry::Directory) => Err(refuse(operation, path, ErrorKind::IsADirectory)),
            None => Err(refuse(operation, path, ErrorKind::NotFound)),
        }
    }

    /// Refuses a name whose folder is not there.
    pub(super) fn check_parent(&self, operation: &'static str, path: &Path) -> Result<()> {
        match self.get(parent(path)) {
            Some(Entry::Directory) => Ok(()),
            Some(Entry::File(_)) => Err(refuse(operation, path, ErrorKind::NotADirectory)),
            None => Err(refuse(operation, path, ErrorKind::NotFound)),
        }
    }

    /// Refuses a new name where something stands or the parent does not.
    pub(super) fn check_new(&self, operation: &'static str, path: &Path) -> Result<()> {
        if self.get(path).is_some() {
            return Err(refuse(operation, path, ErrorKind::AlreadyExists));
        }
        self.check_parent(operation, path)
    }

    /// The numbers of all files, once for each name.
    pub(super) fn files(&self) -> impl Iterator<Item = u64> {
        self.entries.values().filter_map(|entry| match entry {
            Entry::File(node) => Some(*node),
            Entry::Directory => None,
        })
    }

    /// Refuses a new folder where something stands or the parent does not.
    pub(super) fn check_create_directory(&self, path: &Path) -> Result<()> {
        self.check_new("create folder", path)
    }

    /// Refuses to remove what is no empty folder.
    pub(super) fn check_remove_directory(&self, path: &Path) -> Result<()> {
        if self.list("remove folder", path)?.is_empty() && !path.as_os_str().is_empty() {
            return Ok(());
        }
        Err(refuse("remove folder", path, ErrorKind::DirectoryNotEmpty))
    }

    /// The names in a folder, sorted by their bytes.
    pub(super) fn list(&self, operation: &'static str, path: &Path) -> Result<Vec<DirectoryEntry>> {
        match self.get(path) {
            Some(Entry::Directory) => {}
            Some(Entry::File(_)) => return Err(refuse(operation, path, ErrorKind::NotADirectory)),
            None => return Err(refuse(operation, path, ErrorKind::NotFound)),
        }
        let names = self
            .entries
            .range(path.to_path_buf()..)
            .take_while(|(name, _)| name.starts_with(path))
            .filter(|(name, _)| parent(name) == path);
        Ok(names
            .filter_map(|(name, entry)| {
                Some(DirectoryEntry {
                    name: PathBuf::from(name.file_name()?),
                    kind: match entry {
                        Entry::Directory => FileKind::Directory,
                        Entry::File(_) => FileKind::File,
                    },
                })
            })
            .collect())
    }

    /// Moves a name, replacing a file that had the new one.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        let moved: Vec<PathBuf> = self
            .entries
            .range(from.to_path_buf()..)
            .map(|(name, _)| name)
            .take_while(|name| name.starts_with(from))
            .cloned()
            .collect();
        for name in moved {
            let Some(entry) = self.entries.remove(&name) else {
                continue;
            };
            let target = match name.strip_prefix(from) {
                Ok(rest) if !rest.as_os_str().is_empty() => to.join(rest),
                _ => to.to_path_buf(),
            };
            self.entries.insert(target, entry);
        }
    }

    /// Refuses a rename the operating system would refuse.
    pub(super) fn check_rename(&self, from: &Path, to: &Path) -> Result<()> {
        let source = self.get(from);
        self.check_parent("rename", to)?;
        match (source, self.get(to)) {
            (None, _) => Err(refuse("rename", from, ErrorKind::NotFound)),
            (Some(Entry::File(_)), Some(Entry::Directory)) => {
                Err(refuse("rename", to, ErrorKind::IsADirectory))
            }
            (Some(Entry::Directory), Some(_)) => {
                Err(refuse("rename", to, ErrorKind::AlreadyExists))
            }
            (Some(Entry::Directory), None) if to.starts_with(from) => {
                Err(refuse("rename", to, ErrorKind::InvalidInput))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_path_is_one_name() {
        for text in ["/a/b", "a/b", "/a/./b", "/a/c/../b", "//a//b/"] {
            assert_eq!(normalize(Path::new(text)), Path::new("a/b"), "{text}");
        }
    }

    #[test]
    fn a_folder_lists_its_own_names_only_and_moves_with_all_below() {
        let mut tree = Tree::default();
        for (path, entry) in [
            ("a", Entry::Directory),
            ("a/x", Entry::File(1)),
            ("a/sub", Entry::Directory),
            ("a/sub/y", Entry::File(2)),
            ("ab", Entry::File(3)),
        ] {
            tree.set(Path::new(path), entry);
        }
        let names = |tree: &Tree, path: &str| -> Vec<PathBuf> {
            let list = tree.list("list", Path::new(path)).unwrap_or_default();
            list.into_iter().map(|entry| entry.name).collect()
        };
        assert_eq!(names(&tree, "a"), [PathBuf::from("sub"), "x".into()]);
        tree.rename(Path::new("a"), Path::new("b"));
        assert_eq!(names(&tree, ""), [PathBuf::from("ab"), "b".into()]);
        assert_eq!(tree.file("open", Path::new("b/sub/y")).ok(), Some(2));
    }
}
