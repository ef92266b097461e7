//! The bytes of a `forest` store.
//!
//! ```text
//! STORE/
//!   CAMBIUM                       marker (cambium-storage)
//!   LOCK                          the owner's process id
//!   superblock-0, superblock-1    which file, which header, in two copies
//!   NNNNNN.forest                 the database file: everything else; older ones may be
//!                                 kept for consumers of the change feed
//!   CONSUMERS                     these consumers (cambium-storage)
//! ```
//!
//! A database file is one log of records ([`cambium_storage::record`]) that are
//! never changed, with runs of index nodes in between:
//!
//! ```text
//! ┌ first block ┬──────────┬──────────┬─────┬──────┬──────┬─────┬──────────┬────────┬─ …
//! │ file header │ document │ document │ run │ node │ node │ …   │ document │ header │
//! └─────────────┴──────────┴──────────┴─────┴──────┴──────┴─────┴──────────┴────────┴─ …
//!                                        └ says how many blocks follow, so that a scan steps over them
//! ```
//!
//! - A **document** is a record of a key and its value; a **tombstone** has no
//!   value. `auxiliary` holds the namespace (upper 16 bits) and the key's length
//!   (lower 16 bits); the payload is the key, then the value.
//! - A **packed block** is a record of many small documents of neighbouring keys, at a
//!   multiple of 4 KiB ([`crate::packed_block`]); a compaction makes them.
//! - A **node** is a block of `node_bytes` at a multiple of `node_bytes`. Its
//!   trailer ([`NODE_TRAILER`]) ties it to the store, the file and the place.
//! - A **database header** is a record whose payload is a [`DatabaseHeader`]: the
//!   roots of all namespaces and where to replay from. It stands at the start of
//!   a block, so that it can be found from the end of the file.
//!
//! A user's value may be a copy of any of them: a copy lies at another place,
//! and every checksum is seeded with the place and with the file's salt.

mod header;
mod root;

use std::path::{Path, PathBuf};

use cambium_base::FileNumber;
use cambium_base::checksum::ChecksumSeed;
use cambium_base::coding::{u32_at, u64_at};
use cambium_base::layout::{Layout, field};
use cambium_index::{NODE_TRAILER_BYTES, NodeAddress};
use cambium_io::segmented::file_of;
use cambium_storage::log::LogGeometry;
use cambium_storage::record::RecordHeader;

use crate::document::DOCUMENT_ALIGNMENT;
use crate::options::{Shape, Tuning};

pub use header::{
    DatabaseHeader, HEADER_FIXED_BYTES, HEADER_LAYOUT, KeptFile, NamedSnapshot, NamespaceRoot,
    Traffic, header_record, moved_record,
};
pub use root::{ROOT_BYTES, ROOT_LAYOUT, Root};

/// Newest format this program reads, and the one it writes.
pub const FORMAT_VERSION: u32 = 6;
/// Begins every database file.
pub const MAGIC: [u8; 8] = *b"CMBMfrst";
/// Ends every database file's name.
pub const FILE_SUFFIX: &str = ".forest";
/// Ends the name of a compaction's scratch file.
pub const SCRATCH_SUFFIX: &str = ".forest.scratch";
/// Ends the name of a database file that a repair has not finished.
const PART_SUFFIX: &str = ".forest.part";
/// Ends the name of a database file that a repair could not bring back whole.
pub const KEPT_SUFFIX: &str = ".damaged";

/// Kinds of records.
pub mod kind {
    /// A document: a key gets a value.
    pub const PUT: u8 = 1;
    /// A tombstone: a key is removed.
    pub const DELETE: u8 = 2;
    /// A namespace begins; the payload is its name.
    pub const NAMESPACE: u8 = 3;
    /// A run of nodes: `auxiliary` blocks follow at the next multiple of
    /// `node_bytes`.
    pub const NODES: u8 = 4;
    /// A database header.
    pub const HEADER: u8 = 5;
    /// A namespace ends with all its documents; the payload is its name.
    pub const NAMESPACE_DROPPED: u8 = 6;
    /// Everything up to `synced_through` was on the device when this was written;
    /// no payload.
    pub const SYNCED: u8 = 7;
    /// A packed block: small documents that a compaction or a cleaning moved.
    pub const PACKED: u8 = 8;
    /// Documents that a cleaning moved: their records lie in `auxiliary` blocks of 4 KiB,
    /// which follow at the next multiple of that.
    pub const MOVED: u8 = 9;
    /// A range of keys is removed: the payload is its first key, and behind that the key
    /// after its last; without one the range has no end.
    pub const RANGE_DELETED: u8 = 10;
}

/// Flag of a header that a recovery wrote: what lies before it and after the
/// last document that counts was cut off. `synced_through` is the cut, and
/// numbering goes on after the header's own `sequence`.
pub const FLAG_RECOVERED: u8 = 1;
/// Flag of a document that a compaction or a cleaning moved here; it keeps the sequence
/// number it was written with.
pub const FLAG_MOVED: u8 = 2;
/// Flag of a document beside [`FLAG_MOVED`] that a compaction kept for named snapshots alone:
/// its key had another value by then, or none, and the tombstone was left out.
pub const FLAG_KEPT: u8 = 4;

/// The trailer of a node.
pub const NODE_TRAILER: Layout = Layout {
    name: "Node trailer",
    about: "The last bytes of every node. The rest of the node is the tree's (`cambium-index`).",
    fields: &[
        field(0, 4, "checksum", "CRC-32C of store id, file number, salt, offset and all bytes of the node but this field: a node is believed only where it was written"),
        field(4, 4, "zero", "zero"),
        field(8, 8, "address", "the node's offset divided by `node_bytes`; for people, the checksum covers the place already"),
    ],
    size: NODE_TRAILER_BYTES,
}
.checked();

/// What no counter of bytes or writes reaches.
const MOST_COUNTED: u64 = 1 << 60;

/// A file's number and salt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileRef {
    /// Within the store.
    pub number: FileNumber,
    /// Random.
    pub salt: u64,
}

/// The path of a database file.
pub fn database_path(folder: &Path, number: FileNumber) -> PathBuf {
    folder.join(format!("{:06}{FILE_SUFFIX}", number.0))
}

/// The path of the scratch file of a compaction into a database file.
pub fn scratch_path(folder: &Path, number: FileNumber) -> PathBuf {
    folder.join(format!("{:06}{SCRATCH_SUFFIX}", number.0))
}

/// The number in a database file's name.
pub fn database_number(name: &str) -> Option<FileNumber> {
    number_before(name, FILE_SUFFIX)
}

/// The path of a database file that a repair has not finished.
pub fn part_path(folder: &Path, number: FileNumber) -> PathBuf {
    folder.join(format!("{:06}{PART_SUFFIX}", number.0))
}

/// True for names of database files and their segments, finished or not, and of compactions'
/// scratch files.
pub fn is_database_or_scratch(name: &str) -> bool {
    let name = file_of(name);
    [FILE_SUFFIX, PART_SUFFIX, SCRATCH_SUFFIX]
        .iter()
        .any(|suffix| number_before(name, suffix).is_some())
}

/// True for names of database files, which lie in segments: those that are kept with their
/// damage too.
pub fn is_segmented(name: &str) -> bool {
    let name = name.strip_suffix(KEPT_SUFFIX).unwrap_or(name);
    [FILE_SUFFIX, PART_SUFFIX]
        .iter()
        .any(|suffix| number_before(name, suffix).is_some())
}

fn number_before(name: &str, suffix: &str) -> Option<FileNumber> {
    let digits = name.strip_suffix(suffix)?;
    let number = digits.parse().ok()?;
    // Digits alone would be many names for one number.
    (format!("{number:06}") == digits).then_some(FileNumber(number))
}

/// The units of a database file.
pub fn geometry(shape: &Shape, tuning: &Tuning) -> LogGeometry {
    LogGeometry {
        alignment: DOCUMENT_ALIGNMENT,
        block: u64::from(shape.block_bytes),
        first_offset: shape.first_offset(),
        // Small stores stay small, large ones allocate rarely.
        least_growth: (u64::from(shape.block_bytes) * 16).min(tuning.preallocate_bytes),
        most_growth: tuning.preallocate_bytes,
        window: u64::from(shape.block_bytes) * 64,
    }
}

/// `auxiliary` of a document.
pub fn document_auxiliary(namespace: u16, key_bytes: usize) -> u32 {
    u32::from(namespace) << 16 | key_bytes as u32
}

/// Namespace and key length of a document; `None` for a key longer than the
/// payload.
pub fn namespace_and_key(header: &RecordHeader) -> Option<(u16, usize)> {
    let key_bytes = (header.auxiliary & 0xffff) as usize;
    let namespace = (header.auxiliary >> 16) as u16;
    (key_bytes <= header.payload_bytes as usize).then_some((namespace, key_bytes))
}

/// Fills a node's trailer.
pub fn seal_node(content: &mut [u8], seed: &ChecksumSeed, address: NodeAddress) {
    let body = content.len() - NODE_TRAILER_BYTES;
    content[body + 4..body + 8].fill(0);
    content[body + 8..].copy_from_slice(&address.0.to_le_bytes());
    let checksum = node_checksum(content, seed, address);
    content[body..body + 4].copy_from_slice(&checksum.to_le_bytes());
}

fn node_checksum(content: &[u8], seed: &ChecksumSeed, address: NodeAddress) -> u32 {
    let body = content.len() - NODE_TRAILER_BYTES;
    let offset = address.0.wrapping_mul(content.len() as u64);
    let so_far = seed.at(offset, &content[..body]);
    cambium_base::checksum::crc32c_append(so_far, &content[body + 4..])
}

/// What is wrong with a block that should be the node of an address.
pub fn check_node(content: &[u8], seed: &ChecksumSeed, address: NodeAddress) -> Option<String> {
    let body = content.len().checked_sub(NODE_TRAILER_BYTES)?;
    if u32_at(content, body) != node_checksum(content, seed, address) {
        return Some("the node does not match its checksum".to_string());
    }
    let named = u64_at(content, body + 8);
    (named != address.0).then(|| format!("the node says it is node {named}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_believed_in_its_place_only() {
        let seed = ChecksumSeed::new(&cambium_base::FileIdentity::default());
        let mut node = vec![5; 512];
        seal_node(&mut node, &seed, NodeAddress(3));
        assert_eq!(check_node(&node, &seed, NodeAddress(3)), None);
        assert!(check_node(&node, &seed, NodeAddress(4)).is_some());
        for byte in 0..node.len() {
            let mut damaged = node.clone();
            damaged[byte] ^= 1;
            assert!(check_node(&damaged, &seed, NodeAddress(3)).is_some());
        }
    }
}
