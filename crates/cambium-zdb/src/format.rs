//! The bytes of a `zdb` store.
//!
//! ```text
//! STORE/
//!   CAMBIUM                       marker (cambium-storage)
//!   LOCK                          the owner's process id
//!   superblock-0, superblock-1    the catalog, in two copies
//!   commit-0, commit-1            commit logs: frames of small synced groups
//!   index-TABLE-NUMBER            pieces of the flat index, each in two copies
//!   data-TABLE-PLACE-NUMBER       a data file: entries in the order of writing
//! ```
//!
//! An *entry* is a record of a data file. Its payload is the entry's time, its
//! key and its value. The paper puts the key last; here it stands before the
//! value, so that a scan knows whose entry it is without reading a large
//! value. A *frame* is a record of a commit log: all entries of a group.
//!
//! ```text
//! entry payload:  time 8 │ key 8 │ value …
//! frame payload:  time 8 │ count 4 │ count × ( kind 1 │ flags 1 │ auxiliary 4 │ key 8
//!                 │ batch_index 4 │ batch_remaining 4 │ value_bytes 4 │ value … )
//! ```

use std::path::{Path, PathBuf};

use cambium_base::checksum::{ChecksumSeed, crc32c};
use cambium_base::coding::{Decoder, u32_at, u64_at};
use cambium_base::layout::{Layout, field};
use cambium_base::{Error, FileNumber, Result, StoreId};
use cambium_io::{FileSystem, OpenOptions};
use cambium_storage::file_header::{FileHeader, HEADER_BYTES};
use cambium_storage::log::LogGeometry;
use cambium_storage::record::RecordHeader;

use crate::options::Shape;

/// Newest format this program reads, and the one it writes.
pub const FORMAT_VERSION: u32 = 3;
/// Begins every data file.
pub const DATA_MAGIC: [u8; 8] = *b"CMBMdata";
/// Begins every index file.
pub const INDEX_MAGIC: [u8; 8] = *b"CMBMindx";
/// Begins every commit log.
pub const COMMIT_MAGIC: [u8; 8] = *b"CMBMcmit";

/// Kinds of records.
pub mod kind {
    /// An entry: a key gets a value.
    pub const PUT: u8 = 1;
    /// An entry: a key is removed.
    pub const DELETE: u8 = 2;
    /// A group of entries in a commit log.
    pub const FRAME: u8 = 3;
    /// A recovery cut the file: entries from the offset in the payload to this
    /// record do not count.
    pub const CUT: u8 = 4;
    /// An entry: all keys of a range that belong to the data file are removed.
    pub const DELETE_RANGE: u8 = 5;

    /// Keys that entries of the commit logs have, as [`FRAMED_KEY_LAYOUT`], before the commit
    /// logs are written anew: a repair that misses one of these entries knows its key.
    ///
    /// [`FRAMED_KEY_LAYOUT`]: super::FRAMED_KEY_LAYOUT
    pub const KEYS: u8 = 6;

    /// True for the records of a data file that have a key and a sequence number.
    pub fn is_entry(kind: u8) -> bool {
        matches!(kind, PUT | DELETE | DELETE_RANGE)
    }
}

/// Flag of an entry that is part of a bucket's split: its key is one of the
/// two buckets, and the new one raises the number of buckets.
pub const FLAG_SPLIT: u8 = 1;

/// Bytes of an entry's payload before its value.
pub const ENTRY_PREFIX_BYTES: usize = 16;

/// An entry's payload.
pub const ENTRY_LAYOUT: Layout = Layout {
    name: "Entry payload",
    about: "It stands behind the record header in a data file, and the value follows these fields. A removal of an integer key has no value. For string keys the value is a bucket: how many keys it has (4 bytes), how many of them, the last ones, this write put (4), then for each key its length (4), its value's length (4), key and value; after them come the keys that this write deleted, each with its length (4) before it. The removal of a bucket that becomes empty has such a value too. A removal of a range has the first of its keys that belong to the data file, and as value the range's bounds as the caller gives them, big-endian: the first key (8) and the first key after the range (8), which is missing where the range is open. It removes the keys of its data file that lie in the range.",
    fields: &[
        field(0, 8, "time", "nanoseconds since 1970 when it was written; for people, never for order"),
        field(8, 8, "key", "the integer key, or the bucket's number"),
    ],
    size: ENTRY_PREFIX_BYTES,
}
.checked();

/// Bytes that a record of [`kind::KEYS`] has for an entry.
pub const FRAMED_KEY_BYTES: usize = 24;

/// An entry in the payload of a record of [`kind::KEYS`].
pub const FRAMED_KEY_LAYOUT: Layout = Layout {
    name: "Key of an entry of a commit log",
    about: "When the commit logs are full, the data files are synced, and the index stays as it is until the next checkpoint. One data file then has such records: the payload is any number of these. They say which keys the entries had, for a repair that finds an entry missing.",
    fields: &[
        field(0, 8, "sequence", "sequence number of the entry"),
        field(8, 8, "key", "its key"),
        field(16, 8, "last", "the last key of a removed range; else the key"),
    ],
    size: FRAMED_KEY_BYTES,
}
.checked();

/// An entry that a commit log has, or had.
#[derive(Clone, Copy, Debug)]
pub struct FramedKey {
    /// Its sequence number.
    pub sequence: u64,
    /// Its key.
    pub key: u64,
    /// The last key of a removed range; else the key.
    pub last: u64,
}

impl FramedKey {
    /// Appends it to the payload of a record.
    pub fn encode(&self, into: &mut Vec<u8>) {
        for number in [self.sequence, self.key, self.last] {
            into.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// All of a payload.
    pub fn decode_all(payload: &[u8]) -> impl Iterator<Item = FramedKey> {
        payload
            .chunks_exact(FRAMED_KEY_BYTES)
            .map(|bytes| FramedKey {
                sequence: u64_at(bytes, 0),
                key: u64_at(bytes, 8),
                last: u64_at(bytes, 16),
            })
    }
}

/// Bytes before a piece's slots.
pub const PIECE_HEADER_BYTES: usize = 16;

/// A piece of the flat index.
pub const PIECE_LAYOUT: Layout = Layout {
    name: "Index piece",
    about: "Piece p lies at `first + (2p + copy) * piece_bytes` of the index file; the superblock says which copy counts and its generation. The slots follow: `slot_bytes` each, little-endian, 0 never written, all ones deleted, else position / alignment.",
    fields: &[
        field(0, 4, "checksum", "CRC-32C of store id, file number, salt, offset and everything behind this field: a misplaced piece is refused"),
        field(4, 4, "generation", "that the superblock expects: a write that was lost is noticed"),
        field(8, 8, "piece", "its number"),
    ],
    size: PIECE_HEADER_BYTES,
}
.checked();

/// A file's number and salt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileRef {
    /// Within the store.
    pub number: FileNumber,
    /// Random.
    pub salt: u64,
}

/// The path of a data file.
pub fn data_path(folder: &Path, table: u64, place: u32, number: FileNumber) -> PathBuf {
    folder.join(format!("data-{table:08x}-{place:02x}-{:08x}", number.0))
}

/// The path of an index file.
pub fn index_path(folder: &Path, table: u64, number: FileNumber) -> PathBuf {
    folder.join(format!("index-{table:08x}-{:08x}", number.0))
}

/// The path of a commit log.
pub fn commit_path(folder: &Path, log: usize) -> PathBuf {
    folder.join(format!("commit-{log}"))
}

/// True for names of data and index files, as they are written.
pub fn is_data_or_index(name: &str) -> bool {
    let mut numbers = name
        .split('-')
        .skip(1)
        .map(|digits| u64::from_str_radix(digits, 16));
    let mut number = || numbers.next()?.ok();
    let path = match (name.starts_with("data-"), number(), number(), number()) {
        (true, Some(table), Some(place), Some(file)) => u32::try_from(place)
            .ok()
            .map(|place| data_path(Path::new(""), table, place, FileNumber(file))),
        (false, Some(table), Some(file), None) => {
            Some(index_path(Path::new(""), table, FileNumber(file)))
        }
        _ => None,
    };
    path.is_some_and(|path| path == Path::new(name))
}

/// The number that the name of a data or index file ends with.
pub fn number_of(name: &str) -> Option<u64> {
    let digits = name.rsplit('-').next()?;
    u64::from_str_radix(digits, 16)
        .ok()
        .filter(|_| is_data_or_index(name))
}

/// True for names of commit logs, as they are written.
pub fn is_commit(name: &str) -> bool {
    let number = name.strip_prefix("commit-").map(str::parse);
    let is_it = |log| commit_path(Path::new(""), log) == Path::new(name);
    number.and_then(|number| number.ok()).is_some_and(is_it)
}

/// Behind a commit log's header: length, checksum, shape and hash seed, so that
/// a store whose superblock is lost can be repaired.
pub fn encode_shape(shape: &Shape, hash_seed: u32) -> Vec<u8> {
    let mut body = Vec::new();
    shape.encode(&mut body);
    body.extend_from_slice(&hash_seed.to_le_bytes());
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&crc32c(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

fn decode_shape(bytes: &[u8]) -> Option<(Shape, u32)> {
    let mut decoder = Decoder::new(bytes);
    let length = decoder.u32()? as usize;
    let checksum = decoder.u32()?;
    let body = decoder.bytes(length)?;
    if crc32c(body) != checksum {
        return None;
    }
    let mut decoder = Decoder::new(body);
    let shape = Shape::decode(&mut decoder)?;
    Some((shape, decoder.u32()?))
}

/// Shape, hash seed and commit logs of a store, from the commit logs' own
/// headers.
pub fn read_shape(
    file_system: &dyn FileSystem,
    folder: &Path,
    store: StoreId,
) -> Result<(Shape, u32, [FileRef; 2])> {
    let mut logs = [FileRef::default(); 2];
    let mut found = None;
    for (log, file_ref) in logs.iter_mut().enumerate() {
        let path = commit_path(folder, log);
        let file = file_system.open(&path, OpenOptions::READ)?;
        let header = FileHeader::read(&*file, COMMIT_MAGIC, FORMAT_VERSION)?;
        if header.identity.store != store {
            return Err(Error::corruption(
                &path,
                40,
                "the file belongs to another store",
            ));
        }
        *file_ref = FileRef {
            number: header.identity.number,
            salt: header.identity.salt,
        };
        let mut bytes = [0; 128];
        let count = file.read_at(&mut bytes, HEADER_BYTES as u64)?;
        found = found.or(decode_shape(&bytes[..count]));
    }
    match found {
        Some((shape, hash_seed)) => Ok((shape, hash_seed, logs)),
        None => Err(Error::corruption(
            commit_path(folder, 0),
            HEADER_BYTES as u64,
            "neither commit log holds a sound copy of the store's shape: restore a backup",
        )),
    }
}

/// The first offset after a file's header, at a block of its own.
pub fn first_offset(shape: &Shape) -> u64 {
    (HEADER_BYTES as u64).next_multiple_of(u64::from(shape.block_bytes))
}

/// The units of data files.
pub fn data_geometry(shape: &Shape) -> LogGeometry {
    LogGeometry {
        alignment: shape.alignment,
        block: u64::from(shape.block_bytes),
        first_offset: first_offset(shape),
        // Small stores stay small, large ones allocate rarely.
        least_growth: u64::from(shape.block_bytes) * 16,
        most_growth: 64 << 20,
        window: u64::from(shape.block_bytes) * 64,
    }
}

/// The units of commit logs.
pub fn commit_geometry(shape: &Shape) -> LogGeometry {
    LogGeometry {
        alignment: 8,
        least_growth: shape.commit_log_bytes / 16,
        most_growth: shape.commit_log_bytes / 4,
        // Every frame is synced.
        window: 0,
        ..data_geometry(shape)
    }
}

/// Where a copy of a piece lies in its index file.
pub fn piece_offset(shape: &Shape, piece: usize, copy: u32) -> u64 {
    first_offset(shape) + (2 * piece as u64 + u64::from(copy)) * u64::from(shape.piece_bytes)
}

/// A piece's bytes, as they lie at `offset`.
pub fn encode_piece(
    shape: &Shape,
    seed: &ChecksumSeed,
    offset: u64,
    generation: u32,
    piece: usize,
    slots: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0; shape.piece_bytes as usize];
    bytes[4..8].copy_from_slice(&generation.to_le_bytes());
    bytes[8..16].copy_from_slice(&(piece as u64).to_le_bytes());
    bytes[PIECE_HEADER_BYTES..PIECE_HEADER_BYTES + slots.len()].copy_from_slice(slots);
    let checksum = seed.at(offset, &bytes[4..]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The slots of a piece that was read from `offset`.
pub fn decode_piece(
    shape: &Shape,
    seed: &ChecksumSeed,
    path: &Path,
    offset: u64,
    generation: u32,
    piece: usize,
    bytes: &[u8],
) -> Result<Box<[u8]>> {
    let damage = |what: String| Err(Error::corruption(path, offset, what));
    if bytes.len() != shape.piece_bytes as usize || u32_at(bytes, 0) != seed.at(offset, &bytes[4..])
    {
        return damage(format!(
            "piece {piece} of the index does not match its checksum; `cambium repair` rebuilds the index from the data files"
        ));
    }
    if u32_at(bytes, 4) != generation || u64_at(bytes, 8) != piece as u64 {
        return damage(format!(
            "piece {} of generation {} where piece {piece} of generation {generation} was expected; `cambium repair` rebuilds the index from the data files",
            u64_at(bytes, 8),
            u32_at(bytes, 4)
        ));
    }
    let slots = shape.slots_per_piece() * shape.slots.bytes();
    Ok(bytes[PIECE_HEADER_BYTES..PIECE_HEADER_BYTES + slots].into())
}

/// The first bytes of an entry's payload.
pub fn entry_prefix(time: u64, key: u64) -> [u8; ENTRY_PREFIX_BYTES] {
    let mut bytes = [0; ENTRY_PREFIX_BYTES];
    bytes[..8].copy_from_slice(&time.to_le_bytes());
    bytes[8..].copy_from_slice(&key.to_le_bytes());
    bytes
}

/// The value of an entry that removes a range.
pub fn range_value(from: u64, last: u64) -> Vec<u8> {
    let mut value = from.to_be_bytes().to_vec();
    let to = last.checked_add(1);
    value.extend(to.map(u64::to_be_bytes).iter().flatten());
    value
}

/// The bounds of a range in such a value, as keys; the second may be open.
pub fn range_bounds(value: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    match value.len() {
        8 => Some((value, None)),
        16 => Some((&value[..8], Some(&value[8..]))),
        _ => None,
    }
}

/// The first and the last key of a range in such a value.
pub fn range_keys(value: &[u8]) -> Option<(u64, u64)> {
    let number = |key: &[u8]| key.try_into().ok().map(u64::from_be_bytes);
    let (from, to) = range_bounds(value)?;
    let last = to.map_or(Some(u64::MAX), |to| number(to)?.checked_sub(1))?;
    Some((number(from)?, last))
}

/// First and last key of an entry, whose payload begins with `prefix`; `None` where it is none.
pub fn entry_bounds(header: &RecordHeader, prefix: &[u8]) -> Option<(u64, u64)> {
    let key = entry_key(prefix)?;
    match header.kind {
        kind::DELETE_RANGE => {
            let value = prefix.get(ENTRY_PREFIX_BYTES..header.payload_bytes as usize)?;
            let (from, last) = range_keys(value)?;
            (from..=last).contains(&key).then_some((key, last))
        }
        _ => Some((key, key)),
    }
}

/// The key of an entry's payload, or `None` where it is too short.
pub fn entry_key(payload: &[u8]) -> Option<u64> {
    (payload.len() >= ENTRY_PREFIX_BYTES).then(|| u64_at(payload, 8))
}

/// One entry within a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameEntry<'a> {
    /// Put or delete.
    pub kind: u8,
    /// As the record's.
    pub flags: u8,
    /// As the record's.
    pub auxiliary: u32,
    /// The key.
    pub key: u64,
    /// As the record's.
    pub batch_index: u32,
    /// As the record's.
    pub batch_remaining: u32,
    /// The value.
    pub value: &'a [u8],
}

/// Bytes of a frame's payload before its entries.
pub const FRAME_HEAD_BYTES: u64 = 12;

/// The first bytes of a frame's payload: when it was written, and how many entries follow.
pub fn frame_head(time: u64, entries: u32) -> Vec<u8> {
    let mut bytes = time.to_le_bytes().to_vec();
    bytes.extend_from_slice(&entries.to_le_bytes());
    bytes
}

/// Bytes of a frame entry before its value.
pub const FRAME_ENTRY_BYTES: usize = 26;

/// Appends an entry to a frame's payload.
pub fn encode_frame_entry(entry: &FrameEntry<'_>, into: &mut Vec<u8>) {
    into.push(entry.kind);
    into.push(entry.flags);
    into.extend_from_slice(&entry.auxiliary.to_le_bytes());
    into.extend_from_slice(&entry.key.to_le_bytes());
    into.extend_from_slice(&entry.batch_index.to_le_bytes());
    into.extend_from_slice(&entry.batch_remaining.to_le_bytes());
    cambium_base::coding::put_length_prefixed(into, entry.value);
}

/// The time and entries of a frame's payload, or `None` where it is none.
pub fn decode_frame(payload: &[u8]) -> Option<(u64, Vec<FrameEntry<'_>>)> {
    let mut decoder = Decoder::new(payload);
    let time = decoder.u64()?;
    let count = decoder.u32()? as usize;
    let mut entries = Vec::with_capacity(count.min(payload.len() / FRAME_ENTRY_BYTES));
    for _ in 0..count {
        entries.push(FrameEntry {
            kind: decoder.u8()?,
            flags: decoder.u8()?,
            auxiliary: decoder.u32()?,
            key: decoder.u64()?,
            batch_index: decoder.u32()?,
            batch_remaining: decoder.u32()?,
            value: decoder.length_prefixed()?,
        });
    }
    (decoder.remaining() == 0).then_some((time, entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reads_back_and_no_cut_of_it_does() {
        let entry = FrameEntry {
            kind: kind::PUT,
            flags: 0,
            auxiliary: 1,
            key: 9,
            batch_index: 0,
            batch_remaining: 2,
            value: b"sap",
        };
        let mut payload = frame_head(5, 2);
        encode_frame_entry(&entry, &mut payload);
        encode_frame_entry(&entry, &mut payload);
        assert_eq!(decode_frame(&payload), Some((5, vec![entry, entry])));
        for length in 0..payload.len() {
            assert_eq!(decode_frame(&payload[..length]), None);
        }
    }
}
