//! Keys that are on this machine already.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use kvzone_core::error::{Error, Result};
use kvzone_core::job::SizeChoice;
use kvzone_core::key_patterns::DataSet;

/// Where the files are whose paths are keys.
const FILES: &str = "/usr";
const DICTIONARY: &str = "/usr/share/dict/words";
/// Texts to take words from where there is no dictionary.
const TEXTS: &str = "/usr/share";
/// The package database: a list of paths for each package.
const PACKAGES: &str = "/var/lib/dpkg/info";

const TEXT_BYTES: u64 = 4 << 20;

kvzone_core::named! {
    pub(crate) enum Real {
        Paths = "paths-of-usr",
        Words = "words-of-texts",
        Packages = "files-of-packages",
    }
}

impl Real {
    pub(super) fn summary(self) -> &'static str {
        match self {
            Real::Paths => "paths of this machine's files below /usr",
            Real::Words => "words of this machine's dictionary, or of its texts below /usr/share",
            Real::Packages => {
                "packages and their files, from this machine's package database (dpkg)"
            }
        }
    }

    /// The paper's set whose sizes of values it takes.
    pub(super) fn like(self) -> DataSet {
        match self {
            Real::Paths => DataSet::Url,
            Real::Words => DataSet::Status,
            Real::Packages => DataSet::Profile,
        }
    }

    /// How many keys there are, `most` at most. It collects them.
    pub(crate) fn count(self, most: u64) -> Result<u64> {
        Ok(self.collect(most)?.len() as u64)
    }

    /// Up to `most` keys; an error if there are none at all.
    pub(super) fn collect(self, most: u64) -> Result<BTreeSet<Vec<u8>>> {
        let mut keys = Collected {
            keys: BTreeSet::new(),
            most: usize::try_from(most).unwrap_or(usize::MAX),
        };
        let looked_at = match self {
            Real::Paths => {
                walk(Path::new(FILES), &mut |path| {
                    keys.take(path.as_os_str().as_bytes())
                });
                FILES
            }
            Real::Words if Path::new(DICTIONARY).exists() => {
                words_of(Path::new(DICTIONARY), &mut keys);
                DICTIONARY
            }
            Real::Words => {
                walk(Path::new(TEXTS), &mut |path| words_of(path, &mut keys));
                TEXTS
            }
            Real::Packages => {
                walk(Path::new(PACKAGES), &mut |path| files_of(path, &mut keys));
                PACKAGES
            }
        };
        if keys.keys.is_empty() {
            let what = format!("there are no keys for {} in it", self.name());
            return Err(Error::machine("collect keys from", looked_at, what));
        }
        Ok(keys.keys)
    }
}

struct Collected {
    keys: BTreeSet<Vec<u8>>,
    most: usize,
}

impl Collected {
    /// Takes a key; false when there are enough.
    fn take(&mut self, key: &[u8]) -> bool {
        if self.keys.len() < self.most && !key.is_empty() && !key.contains(&b'\n') {
            self.keys.insert(key.to_vec());
        }
        self.keys.len() < self.most
    }
}

/// Regular files below a folder, in the order of names, links not followed,
/// until `visit` has enough. What cannot be read is left out.
pub(super) fn walk(folder: &Path, visit: &mut dyn FnMut(&Path) -> bool) -> bool {
    let mut entries: Vec<PathBuf> = match fs::read_dir(folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => return true,
    };
    entries.sort();
    entries.iter().all(|path| match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => walk(path, visit),
        Ok(found) if found.is_file() => visit(path),
        _ => true,
    })
}

/// Takes the words of a text: letters between other bytes, 2 to 40 of them.
/// What is no UTF-8, or too long to be written by a person, is no text.
fn words_of(path: &Path, keys: &mut Collected) -> bool {
    let readable = fs::metadata(path).is_ok_and(|found| found.len() <= TEXT_BYTES);
    let Some(text) = readable.then(|| fs::read_to_string(path).ok()).flatten() else {
        return true;
    };
    let words = text.split(|letter: char| !letter.is_alphabetic());
    let mut words = words.filter(|word| (2..=40).contains(&word.len()));
    words.all(|word| keys.take(word.as_bytes()))
}

/// Takes the files that `NAME.list` lists for a package.
fn files_of(path: &Path, keys: &mut Collected) -> bool {
    let is_list = path.extension().is_some_and(|ending| ending == "list");
    let (true, Some(name)) = (is_list, path.file_stem()) else {
        return true;
    };
    let Ok(list) = fs::read(path) else {
        return true;
    };
    let lines = list.split(|&byte| byte == b'\n');
    let mut lines = lines.filter(|line| line.len() > 2);
    lines.all(|line| keys.take(&[name.as_bytes(), b" ", line].concat()))
}

/// A range whose middle is the mean of the keys' sizes.
pub(super) fn sizes(keys: &BTreeSet<Vec<u8>>) -> SizeChoice {
    let bytes: usize = keys.iter().map(Vec::len).sum();
    let mean = (bytes / keys.len().max(1)) as u64;
    let least = keys.iter().map(Vec::len).min().unwrap_or(0) as u64;
    SizeChoice::Uniform(least, 2 * mean - least.min(mean))
}

pub(super) fn write(path: &Path, keys: &BTreeSet<Vec<u8>>) -> Result<()> {
    let mut text = Vec::new();
    for key in keys {
        text.extend_from_slice(key);
        text.push(b'\n');
    }
    fs::write(path, text).map_err(|error| Error::machine("write", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_collected_in_order_and_no_more_than_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        for name in ["a", "b/c", "d\ne"] {
            fs::write(folder.path().join(name), b"").unwrap();
        }
        std::os::unix::fs::symlink("a", folder.path().join("link")).unwrap();
        let collect = |most| {
            let mut keys = Collected {
                keys: BTreeSet::new(),
                most,
            };
            walk(folder.path(), &mut |path| {
                keys.take(path.as_os_str().as_bytes())
            });
            keys.keys.len()
        };
        assert_eq!(collect(9), 2, "neither links nor names with a line end");
        assert_eq!(collect(1), 1);
    }

    #[test]
    fn words_and_files_of_packages_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let mut keys = Collected {
            keys: BTreeSet::new(),
            most: 9,
        };
        let text = folder.path().join("text");
        fs::write(&text, "A word, \u{e9}t\u{e9}; a word.").unwrap();
        assert!(words_of(&text, &mut keys));
        let words: Vec<Vec<u8>> = keys.keys.iter().cloned().collect();
        assert_eq!(
            words,
            [b"word".to_vec(), "\u{e9}t\u{e9}".as_bytes().to_vec()]
        );
        fs::write(&text, [0xff, b'w', b'o']).unwrap();
        assert!(words_of(&text, &mut keys), "no text is left out");
        let list = folder.path().join("tool:amd64.list");
        fs::write(&list, "/.\n/usr/bin/tool\n").unwrap();
        assert!(files_of(&list, &mut keys));
        assert!(keys.keys.contains(&b"tool:amd64 /usr/bin/tool"[..]));
        assert_eq!(keys.keys.len(), 3);
    }

    #[test]
    fn stated_sizes_have_the_mean_of_the_keys() {
        let keys = [&b"a"[..], b"bbb", b"cccccccc"].map(<[u8]>::to_vec);
        assert_eq!(sizes(&BTreeSet::from(keys)), SizeChoice::Uniform(1, 7));
    }
}
