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
//! A line `expires yes` stands before the checksum from the first entry on that expires
//! (`cambium-values`). The checksum is CRC-32C over the lines before it. While a store is being made its
//! marker lies in `CAMBIUM.new`; the last step renames it ([`crate::creation`]). So a crash
//! while a store is being made leaves none. A folder without either, in which files of a
//! store lie, has lost its marker: it is not opened before a repair has made that anew.

use std::collections::HashMap;
use std::path::Path;

use cambium_base::checksum::crc32c;
use cambium_base::{Error, Result, StoreId, hexdump};
use cambium_io::{Environment, File, FileKind, FileLock, FileSystem, LockMode, OpenOptions};

use crate::file_header::FileHeader;
use crate::superblock;

/// The file of a store, and of no engine, that names the comparator of its keys.
pub const COMPARATOR_NAME: &str = "COMPARATOR";
/// That file while it is written.
pub const COMPARATOR_DRAFT_NAME: &str = "COMPARATOR.draft";
/// The file of a store, and of no engine, by which zstd compresses its values
/// (`cambium-values`).
pub const DICTIONARY_NAME: &str = "DICTIONARY";
/// That file while it is written.
pub const DICTIONARY_DRAFT_NAME: &str = "DICTIONARY.draft";
/// The marker's name in the store's folder.
pub const MARKER_NAME: &str = "CAMBIUM";
/// Names that an engine gives to nothing else.
pub const RESERVED_NAMES: [&str; 5] = [
    MARKER_NAME,
    UNFINISHED_NAME,
    DRAFT_NAME,
    REWRITTEN_NAME,
    LOCK_NAME,
];
/// The lock's name in every engine's folder.
pub(crate) const LOCK_NAME: &str = "LOCK";
/// The marker of a store that is being made, and of no store yet.
pub const UNFINISHED_NAME: &str = "CAMBIUM.new";
/// What will be that, while it is written.
pub(crate) const DRAFT_NAME: &str = "CAMBIUM.draft";
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
    /// Entries of the store may expire.
    pub expires: bool,
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
            expires: false,
        }
    }

    fn encode(&self) -> String {
        let mut text = format!(
            "{FIRST_LINE}\nengine {}\nformat {}\nid {}\n",
            self.engine, self.format_version, self.store
        );
        if self.expires {
            text += "expires yes\n";
        }
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
            expires: field("expires") == Some("yes"),
        })
    }
}

/// Writes the marker of a store anew, durably; the old one is replaced in one step.
///
/// # Errors
/// Those of the file system; the old marker is then still there.
pub fn write_marker(file_system: &dyn FileSystem, path: &Path, marker: &Marker) -> Result<()> {
    let bytes = marker.encode();
    replace_file(
        file_system,
        path,
        REWRITTEN_NAME,
        MARKER_NAME,
        bytes.as_bytes(),
    )
}

/// Writes what the marker of a store that is being made will say, durably, in one step.
pub(crate) fn write_unfinished(
    file_system: &dyn FileSystem,
    path: &Path,
    marker: &Marker,
) -> Result<()> {
    let bytes = marker.encode();
    replace_file(
        file_system,
        path,
        DRAFT_NAME,
        UNFINISHED_NAME,
        bytes.as_bytes(),
    )
}

/// What the marker of a store that is being made will say; nothing where there is none.
pub fn read_unfinished(file_system: &dyn FileSystem, path: &Path) -> Result<Option<Marker>> {
    let path = path.join(UNFINISHED_NAME);
    if file_system.metadata(&path)?.is_none() {
        return Ok(None);
    }
    let file = file_system.open(&path, OpenOptions::READ)?;
    let said = read(&*file)?.ok_or_else(|| {
        Error::corruption(
            path,
            0,
            "a creation or a backup that was cut off says here which store it was to be, and it does not match its checksum: empty the folder to use it",
        )
    })?;
    Ok(Some(said))
}

/// Replaces a small file of a folder, or makes it, durably and in one step: the bytes go to a
/// draft, which gets the file's name when it is durable. An old draft is removed first, so that
/// a file which has the draft's name as another link is not written.
///
/// # Errors
/// Those of the file system; the old file is then still there.
pub fn replace_file(
    file_system: &dyn FileSystem,
    folder: &Path,
    draft: &str,
    name: &str,
    bytes: &[u8],
) -> Result<()> {
    let draft = folder.join(draft);
    if file_system.metadata(&draft)?.is_some() {
        file_system.remove(&draft)?;
    }
    let file = file_system.open(&draft, OpenOptions::CREATE_NEW)?;
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    drop(file);
    file_system.rename(&draft, &folder.join(name))?;
    file_system.sync_directory(folder)
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
            "the store's marker does not match its checksum; expected lines of text that begin with `cambium store`",
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
/// for a newer format, and for an older one: no release has written any so far.
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
    if marker.format_version != newest {
        return Err(Error::UnsupportedVersion {
            path: path.join(MARKER_NAME),
            found: marker.format_version,
            supported: newest,
        });
    }
    Ok(marker)
}

/// How an engine's files are told from others.
#[derive(Clone, Copy, Debug)]
pub struct FilesOfEngine<'a> {
    /// The first bytes of those in a folder within the store's, or in that itself (`""`).
    pub magics: &'a [(&'a str, [u8; 8])],
    /// True for names of its files; of those in a folder, `folder/name`.
    pub has_name: fn(&str) -> bool,
}

/// The marker of a store of one engine; where it is damaged or missing, what it must have
/// said, and the damage: the store's id is in its superblock too, and in the first block of
/// each of the engine's files. At least one such file must prove that the store is of this
/// engine; where files of several stores lie, and no superblock, the damaged marker must
/// still tell which is meant. For repairs, which write it anew.
///
/// # Errors
/// As [`read_marker_of`], also where no file proves whose it is; nothing was written then.
pub fn known_marker(
    file_system: &dyn FileSystem,
    path: &Path,
    engine: &str,
    newest: u32,
    files: FilesOfEngine<'_>,
) -> Result<(Marker, Option<Error>)> {
    marker_or_owner(file_system, path, engine, newest, || {
        let owners = owners_of_files(file_system, path, newest, files)?;
        let said = Said::by(file_system, path);
        Ok(match superblock::owner(file_system, path)? {
            // A superblock does not say its engine; what is left of a damaged marker may.
            Some((store, version)) => {
                let is_proven =
                    owners.contains_key(&store) || said.engine.is_some_and(|said| said == engine);
                is_proven.then_some((store, version))
            }
            None => {
                let store = match owners.len() {
                    1 => owners.keys().next().copied(),
                    _ => said.store,
                };
                store.and_then(|store| Some((store, *owners.get(&store)?)))
            }
        })
    })
}

/// What `known` finds out of a store's marker, and the store's lock; a marker that is damaged
/// or missing is made anew. Nothing is written where `known` fails: it is asked once before
/// the lock, which leaves a file, and once more under it, since somebody may have made
/// another store of the folder until the lock was taken.
///
/// # Errors
/// Those of `known` and of the file system; `Locked` where somebody has the store open.
pub fn mend_and_lock(
    file_system: &dyn FileSystem,
    path: &Path,
    known: impl Fn() -> Result<(Marker, Option<Error>)>,
) -> Result<(Marker, Option<Error>, Box<dyn FileLock>)> {
    known()?;
    let held = file_system.lock(&path.join(LOCK_NAME), LockMode::Exclusive)?;
    let (marker, damage) = known()?;
    if damage.is_some() {
        write_marker(file_system, path, &marker)?;
    }
    Ok((marker, damage, held))
}

/// What can still be read of a damaged marker.
#[derive(Default)]
struct Said {
    engine: Option<String>,
    store: Option<StoreId>,
}

impl Said {
    fn by(file_system: &dyn FileSystem, path: &Path) -> Said {
        let mut bytes = vec![0; MAX_BYTES];
        let file = file_system.open(&path.join(MARKER_NAME), OpenOptions::READ);
        let Ok(count) = file.and_then(|file| file.read_at(&mut bytes, 0)) else {
            return Said::default();
        };
        let text = String::from_utf8_lossy(&bytes[..count]);
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let store = field("id ").and_then(|id| hexdump::from_hex(id)?.try_into().ok());
        Said {
            engine: field("engine ").map(str::to_string),
            store: store.map(StoreId),
        }
    }
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
    let Some((store, format_version)) = owner()? else {
        return Err(unproven(refused, path, engine));
    };
    if format_version > newest {
        return Err(refused);
    }
    let damage = match is_damaged {
        true => refused,
        false => Error::corruption(marker_path, 0, "the store's marker is missing"),
    };
    let marker = Marker {
        engine: engine.to_string(),
        format_version,
        store,
        // If it did not, a pass over the entries is all that this costs.
        expires: true,
    };
    Ok((marker, Some(damage)))
}

/// Why a store without a sound marker cannot be repaired, where no file of it stands in.
fn unproven(refused: Error, path: &Path, engine: &str) -> Error {
    let why = format!(
        "no first block of a file here proves that this is a store of engine {engine}: `repair` cannot bring it back; restore a backup"
    );
    match refused {
        Error::Corruption { file, offset, what } => {
            Error::corruption(file, offset, format!("{what}; {why}"))
        }
        _ => not_a_store(path, &format!("it holds no file CAMBIUM, and {why}")),
    }
}

/// The stores that the first blocks of an engine's files name, with their format versions.
fn owners_of_files(
    file_system: &dyn FileSystem,
    path: &Path,
    newest: u32,
    files: FilesOfEngine<'_>,
) -> Result<HashMap<StoreId, u32>> {
    let mut owners = HashMap::new();
    for (within, magic) in files.magics {
        let folder = path.join(within);
        let found = file_system.metadata(&folder)?;
        if found.is_none_or(|found| found.kind != FileKind::Directory) {
            continue;
        }
        for entry in file_system.list(&folder)? {
            let name = Path::new(within).join(&entry.name);
            if entry.kind != FileKind::File || !(files.has_name)(&name.to_string_lossy()) {
                continue;
            }
            let file = folder.join(&entry.name);
            // A file of segments is listed also where its first segment is missing.
            if file_system.metadata(&file)?.is_none() {
                continue;
            }
            let file = file_system.open(&file, OpenOptions::READ)?;
            // A file that is too short is none of them.
            if let Ok(header) = FileHeader::read(&*file, *magic, newest) {
                owners.insert(header.identity.store, header.format_version);
            }
        }
    }
    Ok(owners)
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
            expires: true,
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
