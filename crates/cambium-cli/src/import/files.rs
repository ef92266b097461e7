//! A tree of files as a source of entries.
//!
//! The walk goes in the order of the keys: names of a folder are sorted by
//! their bytes, with a slash behind the names of folders, so that whole paths
//! come sorted by their bytes. The last path is then all that is needed to go
//! on, whatever was added or removed meanwhile. Memory holds the names of the
//! folders that lead to the present file, and one file.
//!
//! Regular files only; links are not followed (not even one that takes a
//! file's place while we look), devices and pipes are passed over. The store's
//! own folder is left out.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cambium::hexdump::{from_hex, to_hex};
use cambium::{KeyKind, limits};

use crate::failure::Failure;
use crate::import::position::Position;
use crate::import::source::{Item, Source, elsewhere};
use crate::progress::Meter;

/// A tree of files.
pub struct FileSource {
    root: PathBuf,
    /// Device and number of the store's folder, which is not imported.
    store: Option<(u64, u64)>,
    /// Folders from the root to the present one.
    open_folders: Vec<Folder>,
    /// Paths up to this one were imported by an earlier run.
    behind: Option<Vec<u8>>,
    last: Option<Vec<u8>>,
    left_out: u64,
    started: bool,
}

struct Folder {
    /// Its path relative to the root, with a slash at its end; empty for the root.
    prefix: Vec<u8>,
    names: std::vec::IntoIter<Vec<u8>>,
}

impl FileSource {
    /// Begins at a folder.
    pub fn open(root: &Path, store: &Path, keys: KeyKind) -> Result<Self, Failure> {
        if keys == KeyKind::Integer {
            return Err(Failure::usage(
                "this store has integer keys, and files: makes keys of paths: import into a store made without --set keys=integer",
            ));
        }
        let metadata = fs::metadata(root).map_err(|error| Failure::file(root, &error))?;
        if !metadata.is_dir() {
            return Err(Failure::failed(format!(
                "{}: expected a folder",
                root.display()
            )));
        }
        Ok(FileSource {
            root: root.to_path_buf(),
            store: fs::metadata(store)
                .ok()
                .map(|store| (store.dev(), store.ino())),
            open_folders: Vec::new(),
            behind: None,
            last: None,
            left_out: 0,
            started: false,
        })
    }

    fn path_of(&self, key: &[u8]) -> PathBuf {
        self.root.join(std::ffi::OsStr::from_bytes(key))
    }

    /// Goes into a folder, or says why not.
    fn enter(&mut self, prefix: Vec<u8>, meter: &Meter) {
        let path = self.path_of(&prefix);
        if let (Ok(metadata), Some(store)) = (fs::metadata(&path), self.store) {
            if (metadata.dev(), metadata.ino()) == store {
                meter.say(&format!("{}: left out, it is the store", path.display()));
                return;
            }
        }
        match sorted_names(&path) {
            Ok(names) => self.open_folders.push(Folder {
                prefix,
                names: names.into_iter(),
            }),
            Err(error) => self.leave_out(&path, &error.to_string(), meter),
        }
    }

    fn leave_out(&mut self, path: &Path, why: &str, meter: &Meter) {
        self.left_out += 1;
        meter.say(&format!("{}: {why}; left out", path.display()));
    }

    /// True if an earlier run imported this file, or all of this folder
    /// (whose path ends in a slash).
    fn is_done(&self, path: &[u8]) -> bool {
        let Some(behind) = &self.behind else {
            return false;
        };
        let leads_there = path.ends_with(b"/") && behind.starts_with(path);
        path <= behind.as_slice() && !leads_there
    }

    /// A file's content, or `None` for what was left out or is no regular file.
    fn read(&mut self, key: &[u8], meter: &Meter) -> Option<Vec<u8>> {
        let path = self.path_of(key);
        match read_regular(&path) {
            Ok(content) => {
                let content = content?;
                let within = limits::check_key(key).and(limits::check_value(&content));
                if let Err(error) = within {
                    self.leave_out(&path, &error.to_string(), meter);
                    return None;
                }
                Some(content)
            }
            Err(error) => {
                self.leave_out(&path, &error.to_string(), meter);
                None
            }
        }
    }
}

/// Names of regular files, and of folders with a slash behind them, in the
/// order of the paths below them.
fn sorted_names(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let mut name = entry.file_name().into_vec();
        if kind.is_dir() {
            name.push(b'/');
        } else if !kind.is_file() {
            continue;
        }
        names.push(name);
    }
    names.sort_unstable();
    Ok(names)
}

/// The content of a regular file of at most the largest value and a byte;
/// `None` where something else has taken its place.
fn read_regular(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let opened = OpenOptions::new()
        .read(true)
        // Not through a link, and not waiting for a pipe's other end.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    let file: File = match opened {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Ok(None),
        other => other?,
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(None);
    }
    let most = limits::MAX_VALUE_BYTES as u64 + 1;
    let mut content = Vec::with_capacity(metadata.len().min(most) as usize);
    file.take(most).read_to_end(&mut content)?;
    Ok(Some(content))
}

impl Source for FileSource {
    fn next_item(&mut self, meter: &Meter) -> Result<Option<Item>, Failure> {
        if !self.started {
            self.started = true;
            self.enter(Vec::new(), meter);
        }
        while let Some(folder) = self.open_folders.last_mut() {
            let Some(name) = folder.names.next() else {
                self.open_folders.pop();
                continue;
            };
            let key = [folder.prefix.as_slice(), &name].concat();
            if self.is_done(&key) {
                continue;
            }
            if key.ends_with(b"/") {
                self.enter(key, meter);
            } else if let Some(value) = self.read(&key, meter) {
                self.last = Some(key.clone());
                return Ok(Some(Item {
                    namespace: None,
                    key,
                    value,
                    expires: None,
                }));
            }
        }
        Ok(None)
    }

    fn position(&self) -> Option<Position> {
        self.last.as_ref().map(|path| Position::File {
            path_hex: to_hex(path),
        })
    }

    fn resume(&mut self, position: &Position) -> Result<(), Failure> {
        let path = match position {
            Position::File { path_hex } => from_hex(path_hex),
            _ => None,
        };
        self.behind = Some(path.ok_or_else(elsewhere)?);
        Ok(())
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Unit;

    const PATHS: [&str; 6] = ["a.b", "a/1", "a/2/x", "a/2x", "a0", "b"];

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for path in PATHS {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, path.as_os_str().as_bytes()).unwrap();
        }
        std::os::unix::fs::symlink("b", folder.path().join("link")).unwrap();
        std::os::unix::fs::symlink("a", folder.path().join("links")).unwrap();
        folder
    }

    fn walk(source: &mut FileSource) -> Vec<String> {
        let meter = Meter::new(Unit::Bytes);
        let mut keys = Vec::new();
        while let Some(item) = source.next_item(&meter).unwrap() {
            keys.push(String::from_utf8(item.key).unwrap());
        }
        keys
    }

    #[test]
    fn paths_come_sorted_by_their_bytes_and_links_are_not_followed() {
        let folder = tree();
        let store = Path::new("/nowhere");
        let mut source = FileSource::open(folder.path(), store, KeyKind::Bytes).unwrap();
        assert_eq!(walk(&mut source), PATHS);
        assert_eq!(source.left_out(), 0);
    }

    #[test]
    fn a_walk_goes_on_behind_any_path() {
        let folder = tree();
        for (at, path) in PATHS.iter().enumerate() {
            let store = Path::new("/nowhere");
            let mut source = FileSource::open(folder.path(), store, KeyKind::Bytes).unwrap();
            let path_hex = to_hex(path.as_bytes());
            source.resume(&Position::File { path_hex }).unwrap();
            assert_eq!(walk(&mut source), PATHS[at + 1..], "behind {path}");
        }
    }

    #[test]
    fn the_store_itself_is_left_out() {
        let folder = tree();
        let store = folder.path().join("a");
        let mut source = FileSource::open(folder.path(), &store, KeyKind::Bytes).unwrap();
        assert_eq!(walk(&mut source), ["a.b", "a0", "b"]);
    }
}
