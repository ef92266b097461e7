//! The file `CAMBIUM`: what makes a folder a store.
//!
//! It is text, so that a person who finds the folder learns what it is:
//!
//! ```text
//! cambium store
//! engine zdb
//! format 1
//! id 00112233445566778899aabbccddeeff
//! checksum 0badcafe
//! ```
//!
//! The checksum is CRC-32C over the lines before it. The marker is written
//! last when a store is made: to another name, synced, renamed, and the folder
//! synced. A folder without it is no store, whatever else lies there, so a
//! crash while a store is being made leaves none.

use std::path::{Path, PathBuf};

use cambium_base::checksum::crc32c;
use cambium_base::{Error, Result, StoreId, hexdump};
use cambium_io::{FileKind, FileSystem, LockMode, OpenOptions};

use crate::file_header::FileHeader;
use crate::superblock;

/// The marker's name in the store's folder.
pub const MARKER_NAME: &str = "CAMBIUM";
/// The lock's name in every engine's folder.
const LOCK_NAME: &str = "LOCK";
const TEMPORARY_NAME: &str = "CAMBIUM.new";
const FIRST_LINE: &str = "cambium store";
/// Longer than any marker; bounds what is read.
const MAX_BYTES: usize = 4096;

/// What a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The engine's name.
    pub engine: String,
    /// The engine's format version.
    pub format_version: u32,
    /// The store's id.
    pub store: StoreId,
}

impl Marker {
    fn encode(&self) -> String {
        let mut text = format!(
            "{FIRST_LINE}\nengine {}\nformat {}\nid {}\n",
            self.engine, self.format_version, self.store
        );
        text += &format!("checksum {:08x}\n", crc32c(text.as_bytes()));
        text
    }

    fn decode(text: &str) -> Option<Marker> {
        let body = text.strip_prefix(FIRST_LINE)?;
        let (_, checksum) = body.trim_end().rsplit_once("\nchecksum ")?;
        let covered = text.len() - "checksum ".len() - checksum.len() - 1;
        let checksum = u32::from_str_radix(checksum, 16).ok()?;
        if crc32c(text.as_bytes().get(..covered)?) != checksum {
            return None;
        }
        let field = |name: &str| {
            body.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        };
        let id = hexdump::from_hex(field("id")?)?;
        Some(Marker {
            engine: field("engine")?.to_string(),
            format_version: field("format")?.parse().ok()?,
            store: StoreId(id.try_into().ok()?),
        })
    }
}

/// Makes a folder a store, durably. The caller has synced everything else.
pub fn write_marker(file_system: &dyn FileSystem, path: &Path, marker: &Marker) -> Result<()> {
    let temporary = path.join(TEMPORARY_NAME);
    let options = OpenOptions {
        truncate: true,
        ..OpenOptions::CREATE
    };
    let file = file_system.open(&temporary, options)?;
    file.write_at(marker.encode().as_bytes(), 0)?;
    file.sync_data()?;
    file_system.rename(&temporary, &path.join(MARKER_NAME))?;
    file_system.sync_directory(path)
}

/// Reads what a folder says it is. `NotAStore` where there is no marker,
/// `Corruption` where it cannot be read as one.
pub fn read_marker(file_system: &dyn FileSystem, path: &Path) -> Result<Marker> {
    let marker_path = path.join(MARKER_NAME);
    if file_system.metadata(path)?.is_none() {
        return Err(not_a_store(path, "there is nothing at this path"));
    }
    if file_system.metadata(&marker_path)?.is_none() {
        return Err(not_a_store(
            path,
            "it holds no file CAMBIUM; `cambium create` makes a store",
        ));
    }
    let file = file_system.open(&marker_path, OpenOptions::READ)?;
    let mut bytes = vec![0; MAX_BYTES];
    let count = file.read_at(&mut bytes, 0)?;
    std::str::from_utf8(&bytes[..count])
        .ok()
        .and_then(Marker::decode)
        .ok_or_else(|| {
            Error::corruption(
                marker_path,
                0,
                "the store's marker does not match its checksum; expected five lines of text that begin with `cambium store`",
            )
        })
}

/// Reads the marker of a store of one engine, of a format version that this
/// program reads.
///
/// # Errors
/// As [`read_marker`]; `NotAStore` for another engine's, `UnsupportedVersion`
/// for a newer format.
pub fn read_marker_of(
    file_system: &dyn FileSystem,
    path: &Path,
    engine: &str,
    newest: u32,
) -> Result<Marker> {
    let marker = read_marker(file_system, path)?;
    if marker.engine != engine {
        return Err(Error::NotAStore {
            path: path.to_path_buf(),
            what: format!("it is a store of engine {}, not of {engine}", marker.engine),
        });
    }
    if marker.format_version > newest {
        return Err(Error::UnsupportedVersion {
            path: path.join(MARKER_NAME),
            found: marker.format_version,
            supported: newest,
        });
    }
    Ok(marker)
}

/// The marker of a store of one engine; where it is damaged, what it must have said, and
/// the damage: the store's id is in its superblock too, and in the first block of each of
/// the engine's files, which begin with one of `magics`. For repairs, which write it anew.
///
/// # Errors
/// As [`read_marker_of`]; `Corruption` of the marker if no other file says whose it is.
pub fn known_marker(
    file_system: &dyn FileSystem,
    path: &Path,
    engine: &str,
    newest: u32,
    magics: &[[u8; 8]],
) -> Result<(Marker, Option<Error>)> {
    let damage = match read_marker_of(file_system, path, engine, newest) {
        Ok(marker) => return Ok((marker, None)),
        Err(damage @ Error::Corruption { .. }) => damage,
        Err(error) => return Err(error),
    };
    let mut owner = superblock::owner(file_system, path)?;
    for entry in file_system.list(path)? {
        if owner.is_some() {
            break;
        }
        if entry.kind != FileKind::File {
            continue;
        }
        let file = file_system.open(&path.join(&entry.name), OpenOptions::READ)?;
        let mut headers = magics.iter().map(|magic| {
            // A file that is too short is none of them.
            FileHeader::read(&*file, *magic, newest).ok()
        });
        let header = headers.find_map(|header| header);
        owner = header.map(|header| (header.identity.store, header.format_version));
    }
    let Some((store, format_version)) = owner.filter(|&(_, version)| version <= newest) else {
        return Err(damage);
    };
    let marker = Marker {
        engine: engine.to_string(),
        format_version,
        store,
    };
    Ok((marker, Some(damage)))
}

/// Checks that a folder can become a store: it is not there, or empty but for
/// what a crash while making a store left behind (`leftover` says whether a
/// name can be that). Makes the folder if needed; the answer takes that back.
pub fn prepare_folder(
    file_system: &dyn FileSystem,
    path: &Path,
    leftover: impl Fn(&str) -> bool,
) -> Result<Prepared> {
    match file_system.metadata(path)? {
        None => {
            file_system.create_directory(path)?;
            let parent: PathBuf = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
                _ => PathBuf::from("."),
            };
            file_system.sync_directory(&parent)?;
            return Ok(Prepared { is_new: true });
        }
        Some(metadata) if metadata.kind != cambium_io::FileKind::Directory => {
            return Err(Error::AlreadyExists {
                path: path.to_path_buf(),
                what: "a file, not a folder, is in the way".to_string(),
            });
        }
        Some(_) => {}
    }
    if file_system.metadata(&path.join(MARKER_NAME))?.is_some() {
        return Err(Error::AlreadyExists {
            path: path.to_path_buf(),
            what: "it is a store already; open it, or choose another path".to_string(),
        });
    }
    for entry in file_system.list(path)? {
        let name = entry.name.to_string_lossy().into_owned();
        if name != TEMPORARY_NAME && !leftover(&name) {
            return Err(Error::AlreadyExists {
                path: path.to_path_buf(),
                what: format!(
                    "the folder is not empty, it holds {name:?}; a store needs a folder of its own"
                ),
            });
        }
    }
    Ok(Prepared { is_new: false })
}

/// A folder that is to become a store.
#[derive(Debug)]
pub struct Prepared {
    /// It was not there before.
    is_new: bool,
}

impl Prepared {
    /// Removes the folder again, if it was made for a store that was refused, with the files
    /// that making it left there (`leftover`, as of [`prepare_folder`]). What is somebody
    /// else's stays, and the folder with it; so does a store, and what somebody else is
    /// making here by now. Takes the lock for that, so the caller has let it go. What fails
    /// here is not told, the refusal is.
    pub fn give_back(
        &self,
        file_system: &dyn FileSystem,
        path: &Path,
        leftover: impl Fn(&str) -> bool,
    ) {
        if !self.is_new {
            return;
        }
        let Ok(_held) = file_system.lock(&path.join(LOCK_NAME), LockMode::Exclusive) else {
            return;
        };
        let is_store = !matches!(file_system.metadata(&path.join(MARKER_NAME)), Ok(None));
        if is_store {
            return;
        }
        let Ok(entries) = file_system.list(path) else {
            return;
        };
        for entry in entries {
            let name = entry.name.to_string_lossy();
            if name == TEMPORARY_NAME || leftover(&name) {
                remove_tree(file_system, &path.join(&entry.name), entry.kind);
            }
        }
        _ = file_system.remove_directory(path);
    }
}

/// Removes a file, or a folder with all that is in it, as far as that goes.
fn remove_tree(file_system: &dyn FileSystem, path: &Path, kind: FileKind) {
    if kind != FileKind::Directory {
        _ = file_system.remove(path);
        return;
    }
    for entry in file_system.list(path).unwrap_or_default() {
        remove_tree(file_system, &path.join(&entry.name), entry.kind);
    }
    _ = file_system.remove_directory(path);
}

fn not_a_store(path: &Path, what: &str) -> Error {
    Error::NotAStore {
        path: path.to_path_buf(),
        what: what.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_reads_back_and_any_changed_byte_is_noticed() {
        let marker = Marker {
            engine: "zdb".into(),
            format_version: 3,
            store: StoreId([0xab; 16]),
        };
        let text = marker.encode();
        assert_eq!(Marker::decode(&text), Some(marker));
        for position in 0..text.len() - 1 {
            let mut bytes = text.clone().into_bytes();
            bytes[position] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            assert_eq!(Marker::decode(&changed), None, "byte {position}");
        }
    }
}
