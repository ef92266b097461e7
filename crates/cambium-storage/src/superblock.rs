//! A small root in two copies.
//!
//! The copies are files of their own, written in turn: a crash while one is
//! written leaves the other, which is the state before. Each carries a
//! generation; the sound copy with the highest one counts. The payload is the
//! engine's.
//!
//! Where losing the newest copy to damage later on must not bring an older
//! state back, the engine writes both ([`Superblock::write_both`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_base::checksum::{crc32c, crc32c_append};
use cambium_base::coding::{u32_at, u64_at};
use cambium_base::layout::{Layout, field};
use cambium_base::{Error, Result, StoreId};
use cambium_io::{FileSystem, OpenOptions};

/// Bytes before the payload.
pub const SUPERBLOCK_HEADER_BYTES: usize = 48;
const MAGIC: [u8; 8] = *b"CMBMroot";

/// The superblock's layout.
pub const LAYOUT: Layout = Layout {
    name: "Superblock",
    about: "At offset 0 of `superblock-0` and `superblock-1`, followed by the engine's payload.",
    fields: &[
        field(0, 8, "magic", "`CMBMroot`"),
        field(
            8,
            4,
            "format_version",
            "of the engine's payload; a newer one is refused",
        ),
        field(12, 4, "payload_bytes", "length of the payload"),
        field(
            16,
            8,
            "generation",
            "raised with every write; the sound copy with the highest counts",
        ),
        field(24, 16, "store_id", "of the store"),
        field(40, 4, "payload_checksum", "CRC-32C of the payload"),
        field(44, 4, "header_checksum", "CRC-32C of bytes 0 to 43"),
    ],
    size: SUPERBLOCK_HEADER_BYTES,
}
.checked();

/// Both copies. Files are opened for each write, which is rare.
#[derive(Debug)]
pub struct Superblock {
    file_system: Arc<dyn FileSystem>,
    folder: PathBuf,
    store: StoreId,
    version: u32,
    generation: u64,
    newest: usize,
    /// The bytes of the newest copy.
    newest_bytes: Vec<u8>,
}

/// The content of the copies.
#[derive(Clone, Debug)]
pub struct SuperblockContent {
    /// The payload of the newest sound copy.
    pub payload: Vec<u8>,
    /// Its generation.
    pub generation: u64,
    /// Which copy it was.
    pub copy: usize,
    /// What is wrong with the other copy, if it is not sound. After a crash
    /// while it was written this is no damage.
    pub other_copy: Option<Error>,
}

/// The path of a copy.
pub fn copy_path(folder: &Path, copy: usize) -> PathBuf {
    folder.join(format!("superblock-{copy}"))
}

impl Superblock {
    /// Makes both copies; the caller syncs the folder.
    pub fn create(
        file_system: &Arc<dyn FileSystem>,
        folder: &Path,
        store: StoreId,
        version: u32,
        payload: &[u8],
    ) -> Result<Self> {
        let mut superblock = Superblock {
            file_system: file_system.clone(),
            folder: folder.to_path_buf(),
            store,
            version,
            generation: 0,
            newest: 1,
            newest_bytes: Vec::new(),
        };
        superblock.write_both(payload)?;
        Ok(superblock)
    }

    /// Goes on from what [`read`] answered; opens and writes nothing yet.
    pub fn resume(
        file_system: &Arc<dyn FileSystem>,
        folder: &Path,
        store: StoreId,
        version: u32,
        content: &SuperblockContent,
    ) -> Self {
        Superblock {
            file_system: file_system.clone(),
            folder: folder.to_path_buf(),
            store,
            version,
            generation: content.generation,
            newest: content.copy,
            newest_bytes: encode(&store, version, content.generation, &content.payload),
        }
    }

    /// Generation of the newest copy.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Writes the older copy and syncs it: from then on it counts. After an
    /// error the newest copy still does.
    pub fn write(&mut self, payload: &[u8]) -> Result<()> {
        self.write_older(payload, OpenOptions::CREATE)
    }

    /// As [`Superblock::write`], but the older copy is cut to nothing first: a sector that
    /// cannot be read also fails a write of a part of it.
    pub fn renew(&mut self, payload: &[u8]) -> Result<()> {
        let access = OpenOptions {
            truncate: true,
            ..OpenOptions::CREATE
        };
        self.write_older(payload, access)
    }

    fn write_older(&mut self, payload: &[u8], access: OpenOptions) -> Result<()> {
        let target = 1 - self.newest;
        let generation = self.generation + 1;
        let bytes = encode(&self.store, self.version, generation, payload);
        let path = copy_path(&self.folder, target);
        let file = self.file_system.open(&path, access)?;
        file.write_at(&bytes, 0)?;
        file.sync_data()?;
        self.generation = generation;
        self.newest = target;
        self.newest_bytes = bytes;
        Ok(())
    }

    /// Writes the newest copy once more and syncs it. A process that died, or
    /// whose sync failed, may have left it in the operating system's cache
    /// alone: it must be on the device before anything is done that relies on
    /// it, like writing over the other copy or removing a file. The bytes are those that
    /// the copy has: a crash during the write must not tear the only sound copy.
    pub fn confirm(&mut self) -> Result<()> {
        let path = copy_path(&self.folder, self.newest);
        let file = self.file_system.open(&path, OpenOptions::CREATE)?;
        file.write_at(&self.newest_bytes, 0)?;
        file.sync_data()
    }

    /// Writes one copy after the other, so that either one alone is enough.
    pub fn write_both(&mut self, payload: &[u8]) -> Result<()> {
        self.write(payload)?;
        self.write(payload)
    }

    /// As [`Superblock::confirm`], and the names of both copies: who made the store may have
    /// died before those were durable.
    pub fn confirm_named(&mut self) -> Result<()> {
        self.confirm()?;
        self.file_system.sync_directory(&self.folder)
    }

    /// Writes what an opening says before its first record: that the store is not clean, and
    /// its session. Both copies say it, so that losing one later does not bring an older
    /// session back. Makes the names durable too, as [`Superblock::confirm_named`].
    pub fn begin_session(&mut self, payload: &[u8]) -> Result<()> {
        self.confirm()?;
        self.write_both(payload)?;
        self.file_system.sync_directory(&self.folder)
    }
}

fn encode(store: &StoreId, version: u32, generation: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; SUPERBLOCK_HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[12..16].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&generation.to_le_bytes());
    bytes[24..40].copy_from_slice(&store.0);
    bytes[40..44].copy_from_slice(&payload_checksum(generation, payload).to_le_bytes());
    let checksum = crc32c(&bytes[..44]);
    bytes[44..48].copy_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Seeded with the generation, so that a header is never paired with the
/// payload of an earlier write.
fn payload_checksum(generation: u64, payload: &[u8]) -> u32 {
    crc32c_append(crc32c(&generation.to_le_bytes()), payload)
}

/// Reads both copies and answers the newest sound one. Writes nothing.
///
/// # Errors
/// `Io` where a copy cannot be read: the other one may be older.
pub fn read(
    file_system: &dyn FileSystem,
    folder: &Path,
    store: &StoreId,
    version: u32,
) -> Result<SuperblockContent> {
    read_copies(file_system, folder, store, version, false)
}

/// As [`read`], but a copy whose bytes cannot be read counts as damaged if the other one is
/// sound: for engines whose older copy leads to the same entries. A later read may succeed,
/// so the engine calls [`Superblock::renew`] before it changes anything else.
///
/// # Errors
/// `Io` where no copy can be read, or a file cannot be opened.
pub fn read_either(
    file_system: &dyn FileSystem,
    folder: &Path,
    store: &StoreId,
    version: u32,
) -> Result<SuperblockContent> {
    read_copies(file_system, folder, store, version, true)
}

fn read_copies(
    file_system: &dyn FileSystem,
    folder: &Path,
    store: &StoreId,
    version: u32,
    either: bool,
) -> Result<SuperblockContent> {
    let mut best: Option<SuperblockContent> = None;
    let mut failure: Option<Error> = None;
    for copy in 0..2 {
        match read_copy(file_system, &copy_path(folder, copy), store, version) {
            Ok((generation, payload)) => {
                if best
                    .as_ref()
                    .is_none_or(|best| generation > best.generation)
                {
                    best = Some(SuperblockContent {
                        payload,
                        generation,
                        copy,
                        other_copy: None,
                    });
                }
            }
            Err(error) if either && is_failed_read(&error) => failure = Some(error),
            // Neither a newer version, a failing disk nor a lack of handles is a damaged copy:
            // the other one may be older.
            Err(error) if !error.is_corruption() => return Err(error),
            // Where no copy is sound, a later read may still succeed.
            Err(error) => failure = failure.filter(is_failed_read).or(Some(error)),
        }
    }
    match (best, failure) {
        (Some(mut content), failure) => {
            content.other_copy = failure;
            Ok(content)
        }
        (None, Some(error)) => Err(error),
        (None, None) => Err(Error::corruption(
            copy_path(folder, 0),
            0,
            "neither copy of the superblock is sound",
        )),
    }
}

/// True for an error of reading, as a failing sector answers.
pub fn is_failed_read(error: &Error) -> bool {
    matches!(
        error,
        Error::Io {
            operation: "read",
            ..
        }
    )
}

/// True for the names of the two copies.
pub fn is_copy(name: &str) -> bool {
    (0..2).any(|copy| copy_path(Path::new(""), copy) == Path::new(name))
}

/// Whose superblock lies in a folder, and its format version, from whichever copy has a
/// sound header: for a repair that cannot learn it from the store's marker.
///
/// # Errors
/// `Io` where a copy is there and cannot be read.
pub fn owner(file_system: &dyn FileSystem, folder: &Path) -> Result<Option<(StoreId, u32)>> {
    for copy in 0..2 {
        let path = copy_path(folder, copy);
        if file_system.metadata(&path)?.is_none() {
            continue;
        }
        let file = file_system.open(&path, OpenOptions::READ)?;
        let mut header = [0; SUPERBLOCK_HEADER_BYTES];
        let count = file.read_at(&mut header, 0)?;
        if count == header.len() && is_header(&header) {
            let mut store = [0; 16];
            store.copy_from_slice(&header[24..40]);
            return Ok(Some((StoreId(store), u32_at(&header, 8))));
        }
    }
    Ok(None)
}

fn is_header(header: &[u8; SUPERBLOCK_HEADER_BYTES]) -> bool {
    header[..8] == MAGIC && u32_at(header, 44) == crc32c(&header[..44])
}

fn read_copy(
    file_system: &dyn FileSystem,
    path: &Path,
    store: &StoreId,
    version: u32,
) -> Result<(u64, Vec<u8>)> {
    let damage = |offset, what: &str| Err(Error::corruption(path, offset, what));
    if file_system.metadata(path)?.is_none() {
        return damage(0, "this copy of the superblock is missing");
    }
    let file = file_system.open(path, OpenOptions::READ)?;
    let length = file.length()?;
    let mut header = [0; SUPERBLOCK_HEADER_BYTES];
    file.read_exact_at(&mut header, 0)?;
    if !is_header(&header) {
        return damage(0, "the superblock header does not match its checksum");
    }
    let found = u32_at(&header, 8);
    if found > version {
        return Err(Error::UnsupportedVersion {
            path: path.to_path_buf(),
            found,
            supported: version,
        });
    }
    if header[24..40] != store.0 {
        return damage(24, "the superblock belongs to another store");
    }
    let payload_bytes = u64::from(u32_at(&header, 12));
    if SUPERBLOCK_HEADER_BYTES as u64 + payload_bytes > length {
        return damage(12, "the file ends within the superblock's payload");
    }
    let mut payload = vec![0; payload_bytes as usize];
    file.read_exact_at(&mut payload, SUPERBLOCK_HEADER_BYTES as u64)?;
    let generation = u64_at(&header, 16);
    if payload_checksum(generation, &payload) != u32_at(&header, 40) {
        return damage(
            SUPERBLOCK_HEADER_BYTES as u64,
            "the superblock's payload does not match its checksum",
        );
    }
    Ok((generation, payload))
}
