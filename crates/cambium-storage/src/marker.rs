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
//! The checksum is CRC-32C over the lines before it. While a store is being made its
//! marker lies in `CAMBIUM.new`; the last step renames it ([`crate::creation`]). A folder
//! without it is no store, whatever else lies there, so a crash while a store is being made
//! leaves none.

use std::path::Path;

use cambium_base::checksum::crc32c;
use cambium_base::{Error, Result, StoreId, hexdump};
use cambium_io::{Environment, File, FileKind, FileLock, FileSystem, LockMode, OpenOptions};

use crate::file_header::FileHeader;
use crate::superblock;

/// The marker's name in the store's folder.
pub const MARKER_NAME: &str = "CAMBIUM";
/// The lock's name in every engine's folder.
pub(crate) const LOCK_NAME: &str = "LOCK";
/// The marker of a store that is being made, and of no store yet.
pub const UNFINISHED_NAME: &str = "CAMBIUM.new";
/// A marker that is being written anew. Another name than that of a store being made: a
/// crash must not make a store look like one.
const REWRITTEN_NAME: &str = "CAMBIUM.repaired";
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
    /// The marker of a store that is to be made, with an id of its own.
    pub fn of_new(environment: &Environment, engine: &str, format_version: u32) -> Marker {
        let mut id = [0; 16];
        environment.randomness.fill(&mut id);
        Marker {
            engine: engine.to_string(),
            format_version,
            store: StoreId(id),
        }
    }

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

/// Writes the marker of a store anew, durably; the old one is replaced in one step.
///
/// # Errors
/// Those of the file system; the old marker is then still there.
pub fn write_marker(file_system: &dyn FileSystem, path: &Path, marker: &Marker) -> Result<()> {
    let temporary = path.join(REWRITTEN_NAME);
    write_synced(file_system, &temporary, marker)?;
    file_system.rename(&temporary, &path.join(MARKER_NAME))?;
    file_system.sync_directory(path)
}

/// Writes what the marker of a store that is being made will say. The folder is not synced.
pub(crate) fn write_unfinished(
    file_system: &dyn FileSystem,
    path: &Path,
    marker: &Marker,
) -> Result<()> {
    write_synced(file_system, &path.join(UNFINISHED_NAME), marker)
}

/// What the marker of a store that is being made will say; nothing where there is none, or
/// none that can be read.
pub(crate) fn read_unfinished(file_system: &dyn FileSystem, path: &Path) -> Option<Marker> {
    let file = file_system.open(&path.join(UNFINISHED_NAME), OpenOptions::READ);
    read(&*file.ok()?).ok()?
}

fn write_synced(file_system: &dyn FileSystem, path: &Path, marker: &Marker) -> Result<()> {
    let options = OpenOptions {
        truncate: true,
        ..OpenOptions::CREATE
    };
    let file = file_system.open(path, options)?;
    file.write_at(marker.encode().as_bytes(), 0)?;
    file.sync_data()
}

/// The marker that a file holds, or none.
fn read(file: &dyn File) -> Result<Option<Marker>> {
    let mut bytes = vec![0; MAX_BYTES];
    let count = file.read_at(&mut bytes, 0)?;
    let text = std::str::from_utf8(&bytes[..count]).ok();
    Ok(text.and_then(Marker::decode))
}

/// Reads what a folder says it is. `NotAStore` where there is no marker,
/// `Corruption` where it cannot be read as one.
pub fn read_marker(file_system: &dyn FileSystem, path: &Path) -> Result<Marker> {
    let marker_path = path.join(MARKER_NAME);
    if file_system.metadata(path)?.is_none() {
        return Err(not_a_store(path, "there is nothing at this path"));
    }
    if file_system.metadata(&marker_path)?.is_none() {
        let what = match is_unfinished(file_system, path)? {
            true => {
                "making it, or a backup into it, did not come to its end: nothing was promised of it; make it again there"
            }
            false => {
                "it holds no file CAMBIUM; `cambium create` makes a store, `cambium repair` makes the file anew for one that has lost it"
            }
        };
        return Err(not_a_store(path, what));
    }
    let file = file_system.open(&marker_path, OpenOptions::READ)?;
    read(&*file)?.ok_or_else(|| {
        Error::corruption(
            marker_path,
            0,
            "the store's marker does not match its checksum; expected five lines of text that begin with `cambium store`",
        )
    })
}

/// True if a store is being made in a folder that has no marker, or making it did not come
/// to its end.
fn is_unfinished(file_system: &dyn FileSystem, path: &Path) -> Result<bool> {
    let unfinished = file_system.metadata(&path.join(UNFINISHED_NAME))?;
    Ok(unfinished.is_some())
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

/// The marker of a store of one engine; where it is damaged or missing, what it must have
/// said, and the damage: the store's id is in its superblock too, and in the first block of
/// each of the engine's files, which begin with one of `magics`, in a folder within the
/// store's (or in that, `""`). At least one such file must prove that the store is of this
/// engine. For repairs, which write it anew.
///
/// # Errors
/// As [`read_marker_of`], also where no file proves whose it is; nothing was written then.
pub fn known_marker(
    file_system: &dyn FileSystem,
    path: &Path,
    engine: &str,
    newest: u32,
    magics: &[(&str, [u8; 8])],
) -> Result<(Marker, Option<Error>)> {
    marker_or_owner(file_system, path, engine, newest, || {
        let owner = superblock::owner(file_system, path)?;
        let store = owner.map(|(store, _)| store);
        let proof = owner_of_files(file_system, path, newest, magics, store)?;
        // A superblock does not say its engine; what is left of a damaged marker may.
        let is_said = || said_engine(file_system, path).is_some_and(|said| said == engine);
        Ok(match owner {
            Some(owner) if proof.is_some() || is_said() => Some(owner),
            Some(_) => None,
            None => proof,
        })
    })
}

/// What `known` finds out of a store's marker, and the store's lock; a marker that is damaged
/// or missing is made anew. Nothing is written where `known` fails: it is asked once before
/// the lock, which leaves a file, and of a damage once more, since somebody may have made
/// another store of the folder until the lock was taken.
///
/// # Errors
/// Those of `known` and of the file system; `Locked` where somebody has the store open.
pub fn mend_and_lock(
    file_system: &dyn FileSystem,
    path: &Path,
    known: impl Fn() -> Result<(Marker, Option<Error>)>,
) -> Result<(Marker, Option<Error>, Box<dyn FileLock>)> {
    let first = known()?;
    let held = file_system.lock(&path.join(LOCK_NAME), LockMode::Exclusive)?;
    let (marker, damage) = match first {
        (_, Some(_)) => known()?,
        sound => sound,
    };
    if damage.is_some() {
        write_marker(file_system, path, &marker)?;
    }
    Ok((marker, damage, held))
}

/// The engine that a damaged marker names.
fn said_engine(file_system: &dyn FileSystem, path: &Path) -> Option<String> {
    let file = file_system.open(&path.join(MARKER_NAME), OpenOptions::READ);
    let mut bytes = vec![0; MAX_BYTES];
    let count = file.ok()?.read_at(&mut bytes, 0).ok()?;
    let text = String::from_utf8_lossy(&bytes[..count]);
    let mut lines = text.lines();
    let said = lines.find_map(|line| line.strip_prefix("engine "))?;
    Some(said.to_string())
}

/// As [`known_marker`], where `owner` finds out what else says the store's id, and the
/// version of its format.
///
/// # Errors
/// As there, and those of `owner`.
pub fn marker_or_owner(
    file_system: &dyn FileSystem,
    path: &Path,
    engine: &str,
    newest: u32,
    owner: impl FnOnce() -> Result<Option<(StoreId, u32)>>,
) -> Result<(Marker, Option<Error>)> {
    let refused = match read_marker_of(file_system, path, engine, newest) {
        Ok(marker) => return Ok((marker, None)),
        Err(error) => error,
    };
    let marker_path = path.join(MARKER_NAME);
    let is_lost = || -> Result<bool> {
        // In this order: who makes a store renames the one to the other.
        Ok(file_system.metadata(path)?.is_some()
            && !is_unfinished(file_system, path)?
            && file_system.metadata(&marker_path)?.is_none())
    };
    let is_damaged = matches!(refused, Error::Corruption { .. });
    if !is_damaged && !is_lost()? {
        return Err(refused);
    }
    let Some((store, format_version)) = owner()?.filter(|&(_, version)| version <= newest) else {
        return Err(refused);
    };
    let damage = match is_damaged {
        true => refused,
        false => Error::corruption(marker_path, 0, "the store's marker is missing"),
    };
    let marker = Marker {
        engine: engine.to_string(),
        format_version,
        store,
    };
    Ok((marker, Some(damage)))
}

/// What the first blocks of an engine's files say; of one store's, where that is given.
fn owner_of_files(
    file_system: &dyn FileSystem,
    path: &Path,
    newest: u32,
    magics: &[(&str, [u8; 8])],
    store: Option<StoreId>,
) -> Result<Option<(StoreId, u32)>> {
    for (within, magic) in magics {
        let folder = path.join(within);
        let found = file_system.metadata(&folder)?;
        if found.is_none_or(|found| found.kind != FileKind::Directory) {
            continue;
        }
        for entry in file_system.list(&folder)? {
            if entry.kind != FileKind::File {
                continue;
            }
            let file = file_system.open(&folder.join(&entry.name), OpenOptions::READ)?;
            // A file that is too short is none of them.
            let Ok(header) = FileHeader::read(&*file, *magic, newest) else {
                continue;
            };
            if store.is_none_or(|store| store == header.identity.store) {
                return Ok(Some((header.identity.store, header.format_version)));
            }
        }
    }
    Ok(None)
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
