//! The bytes of a `wisckey` store.
//!
//! ```text
//! STORE/
//!   CAMBIUM                       marker (cambium-storage)
//!   LOCK                          the owner's process id
//!   superblock-0, superblock-1    the session, and whether the store was closed
//!   NNNNNNNN.values               segments of the value log
//!   keys/                         the LSM-tree (cambium-lsm): tables and manifest;
//!                                 or keys-rebuilt/, after a repair built it anew
//! ```
//!
//! A **segment** is a log of records ([`cambium_storage::record`]). Its number is
//! never given twice. A *written* segment holds what writers appended, in the order
//! of sequence numbers; these segments, one after the other, are the only log there
//! is. A *moved* segment holds values that garbage collection brought together; its
//! records keep the sequence numbers they were written with, and recovery does not
//! replay them.
//!
//! ```text
//! ┌ first block ┬ second block ┬──────────────┬──────────────┬─ …
//! │ file header │ its copy     │ record       │ record       │
//! └─────────────┴──────────────┴──────────────┴──────────────┴─ …
//!                                48-byte header, key, value: enough to find the key of a value
//! ```
//!
//! The header holds the salt without which no record of the segment can be read, so its
//! copy lies in a block of its own: no single lost sector takes both.
//!
//! Keys are *full keys*: the namespace's number in two bytes, big-endian, then the
//! user's key. In the LSM-tree a full key leads to an inline value or to a **value
//! pointer** ([`POINTER_LAYOUT`]). Which segments there are, how many bytes of them
//! are garbage and from where recovery replays stands in the notes of the manifest
//! ([`crate::ledger`]).
//!
//! A user's value may be a copy of any record: a copy lies at another place, and
//! every checksum is seeded with the place and with the file's salt.

use std::path::{Path, PathBuf};

use cambium_api::KeyRange;
use cambium_base::coding::{Decoder, u32_at};
use cambium_base::layout::{Layout, field};
use cambium_storage::log::LogGeometry;
use cambium_storage::record::LEAST_RECORD_HEADER_BYTES;

use crate::options::{Shape, Tuning};

/// Newest format this program reads, and the one it writes.
pub const FORMAT_VERSION: u32 = 2;
/// Begins every segment.
pub const MAGIC: [u8; 8] = *b"CMBMvlog";
/// Ends every segment's name.
pub const FILE_SUFFIX: &str = ".values";
/// Folders of the LSM-tree within the store's: the superblock names the one that counts.
pub const TREE_FOLDERS: [&str; 2] = ["keys", "keys-rebuilt"];
/// Records begin at multiples of this.
pub const ALIGNMENT: u64 = 8;
/// Bytes of the namespace before a key.
pub const PREFIX_BYTES: usize = 2;
/// Largest end of a segment that a value pointer can reach into, bytes.
pub const LARGEST_SEGMENT: u64 = ALIGNMENT << 32;

/// Kinds of records.
pub mod kind {
    /// A key gets a value; `auxiliary` is the full key's length.
    pub const PUT: u8 = 1;
    /// A key is removed; the payload is the full key.
    pub const DELETE: u8 = 2;
    /// A range is removed; the payload is the first full key of it and the one
    /// after its last, `auxiliary` is the length of the first.
    pub const DELETE_RANGE: u8 = 3;
    /// A namespace begins; the payload is its name, `auxiliary` its number.
    pub const NAMESPACE: u8 = 4;
    /// A namespace is dropped: as a range, of all its keys.
    pub const NAMESPACE_DROPPED: u8 = 5;
}

/// Flag of a record that garbage collection moved here.
pub const FLAG_MOVED: u8 = 1;

/// What a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SegmentKind {
    /// What writers appended.
    Written,
    /// What garbage collection moved.
    Moved,
}

impl SegmentKind {
    /// As kept in files.
    pub fn code(self) -> u8 {
        match self {
            SegmentKind::Written => 0,
            SegmentKind::Moved => 1,
        }
    }

    /// From a file; `None` for what is no kind.
    pub fn from_code(code: u64) -> Option<Self> {
        match code {
            0 => Some(SegmentKind::Written),
            1 => Some(SegmentKind::Moved),
            _ => None,
        }
    }
}

/// Bytes of a value pointer.
pub const POINTER_BYTES: usize = 13;
/// An inline value begins behind its tag.
pub const INLINE_START: usize = 1;
const TAG_INLINE: u8 = 1;

/// A value pointer.
pub const POINTER_LAYOUT: Layout = Layout {
    name: "Value pointer",
    about: "What the LSM-tree holds for a key whose value lies in the value log. An inline value is a byte 1, then the value.",
    fields: &[
        field(0, 1, "header_bytes", "of the record, 12 or more: it tells a pointer from an inline value"),
        field(1, 4, "segment", "number of the segment"),
        field(5, 4, "offset", "of the record, in units of 8 bytes"),
        field(9, 4, "value_bytes", "length of the value: with the key's it bounds the one read that fetches it"),
    ],
    size: POINTER_BYTES,
}
.checked();

/// Bytes of the superblock's payload.
pub const ROOT_BYTES: usize = 16;

/// The superblock's payload.
pub const ROOT_LAYOUT: Layout = Layout {
    name: "Superblock payload",
    about: "What must be known before the value log is read.",
    fields: &[
        field(
            0,
            4,
            "session",
            "the highest ever taken; each opening that writes takes its own, and so does each recovery",
        ),
        field(
            4,
            4,
            "clean",
            "1 if the store was closed: the tables hold every write, nothing is to be replayed",
        ),
        field(8, 4, "block_bytes", "unit of padding after a sync, fixed when the store was made"),
        field(12, 4, "tree", "which folder holds the tree: 0 `keys`, 1 `keys-rebuilt`; a repair builds a tree in the other one and switches last"),
    ],
    size: ROOT_BYTES,
}
.checked();

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ValuePointer {
    /// Number of the segment.
    pub segment: u32,
    /// Of the record, bytes: a multiple of [`ALIGNMENT`].
    pub offset: u64,
    /// Length of the value.
    pub value_bytes: u32,
    /// Length of the record's header.
    pub header_bytes: u8,
}

impl ValuePointer {
    /// As the LSM-tree keeps it.
    pub fn encode(&self) -> [u8; POINTER_BYTES] {
        let mut bytes = [0; POINTER_BYTES];
        bytes[0] = self.header_bytes;
        bytes[1..5].copy_from_slice(&self.segment.to_le_bytes());
        bytes[5..9].copy_from_slice(&((self.offset / ALIGNMENT) as u32).to_le_bytes());
        bytes[9..13].copy_from_slice(&self.value_bytes.to_le_bytes());
        bytes
    }

    /// Bytes its record takes in the log, for a full key of a length.
    pub fn record_bytes(&self, full_key_bytes: usize) -> u64 {
        let bytes = usize::from(self.header_bytes) + full_key_bytes;
        (bytes as u64 + u64::from(self.value_bytes)).next_multiple_of(ALIGNMENT)
    }
}

/// What the LSM-tree holds for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// Where it lies.
    Pointer(ValuePointer),
}

impl<'a> Stored<'a> {
    /// Decodes what the LSM-tree holds; `None` for what no engine of this
    /// version wrote.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        match bytes {
            [TAG_INLINE, value @ ..] => Some(Stored::Inline(value)),
            [header_bytes, rest @ ..]
                if rest.len() == POINTER_BYTES - 1
                    && usize::from(*header_bytes) >= LEAST_RECORD_HEADER_BYTES =>
            {
                Some(Stored::Pointer(ValuePointer {
                    segment: u32_at(rest, 0),
                    offset: u64::from(u32_at(rest, 4)) * ALIGNMENT,
                    value_bytes: u32_at(rest, 8),
                    header_bytes: *header_bytes,
                }))
            }
            _ => None,
        }
    }
}

/// Puts what the LSM-tree holds for an inline value into `buffer`.
pub fn encode_inline(value: &[u8], buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.push(TAG_INLINE);
    buffer.extend_from_slice(value);
}

/// A key with its namespace in front.
pub fn full_key(namespace: u16, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(PREFIX_BYTES + key.len());
    full.extend_from_slice(&namespace.to_be_bytes());
    full.extend_from_slice(key);
    full
}

/// The namespace of a full key.
pub fn namespace_of(full_key: &[u8]) -> u16 {
    let prefix = full_key.first_chunk::<PREFIX_BYTES>();
    prefix.map_or(0, |prefix| u16::from_be_bytes(*prefix))
}

/// The full key after the last of a namespace.
pub fn namespace_end(namespace: u16) -> Vec<u8> {
    // The highest number is never given, so there is a next one.
    namespace.saturating_add(1).to_be_bytes().to_vec()
}

/// First full key of a range of a namespace, and the one after its last.
pub fn full_range(namespace: u16, range: &KeyRange) -> (Vec<u8>, Vec<u8>) {
    let from = full_key(namespace, range.from.as_deref().unwrap_or_default());
    let to = match &range.to {
        Some(to) => full_key(namespace, to),
        None => namespace_end(namespace),
    };
    (from, to)
}

/// The superblock's payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// The highest session ever taken.
    pub session: u32,
    /// The store was closed.
    pub clean: bool,
    /// Unit of padding after a sync.
    pub block_bytes: u32,
    /// Which of [`TREE_FOLDERS`] holds the tree.
    pub tree: u32,
}

impl Root {
    /// The same, with the tree in the other folder.
    #[must_use]
    pub fn other_tree(&self) -> Root {
        Root {
            tree: 1 - self.tree.min(1),
            ..*self
        }
    }

    /// The tree's folder within the store's.
    pub fn tree_folder(&self) -> &'static str {
        TREE_FOLDERS[self.tree as usize % TREE_FOLDERS.len()]
    }

    /// The payload's bytes.
    pub fn encode(&self) -> [u8; ROOT_BYTES] {
        let mut bytes = [0; ROOT_BYTES];
        bytes[..4].copy_from_slice(&self.session.to_le_bytes());
        bytes[4..8].copy_from_slice(&u32::from(self.clean).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.block_bytes.to_le_bytes());
        bytes[12..].copy_from_slice(&self.tree.to_le_bytes());
        bytes
    }

    /// Decodes a payload; `None` for what no engine of this version wrote.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let session = decoder.u32()?;
        let clean = decoder.u32()?;
        let block_bytes = decoder.u32()?;
        let tree = decoder.u32()?;
        let possible = decoder.remaining() == 0
            && clean <= 1
            && session < u32::MAX
            && (tree as usize) < TREE_FOLDERS.len()
            && block_bytes.is_power_of_two()
            && (512..=64 << 10).contains(&block_bytes);
        possible.then_some(Root {
            session,
            clean: clean == 1,
            block_bytes,
            tree,
        })
    }
}

/// The path of a segment.
pub fn segment_path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:08}{FILE_SUFFIX}"))
}

/// The number in a segment's name; `None` for every name that no segment gets.
pub fn segment_number(name: &str) -> Option<u32> {
    let number = name.strip_suffix(FILE_SUFFIX)?.parse().ok()?;
    // Digits alone would be many names for one number.
    (segment_path("".as_ref(), number).to_str() == Some(name)).then_some(number)
}

/// The units of a segment.
pub fn geometry(shape: &Shape, tuning: &Tuning) -> LogGeometry {
    let block = u64::from(shape.block_bytes);
    LogGeometry {
        alignment: ALIGNMENT,
        block,
        first_offset: 2 * block,
        // Small stores stay small, large ones allocate rarely.
        least_growth: (block * 16).min(tuning.preallocate_bytes),
        most_growth: tuning.preallocate_bytes,
        // To unmap one interrupts every processor that the process runs on.
        window: block * 256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_and_inline_values_read_back_and_nothing_else_does() {
        let pointer = ValuePointer {
            segment: 7,
            offset: 40_960,
            value_bytes: 1_000,
            header_bytes: 17,
        };
        let bytes = pointer.encode();
        assert_eq!(Stored::decode(&bytes), Some(Stored::Pointer(pointer)));
        for length in 0..POINTER_BYTES {
            assert_eq!(Stored::decode(&bytes[..length]), None, "{length}");
        }
        let mut inline = Vec::new();
        encode_inline(b"leaf", &mut inline);
        assert_eq!(Stored::decode(&inline), Some(Stored::Inline(b"leaf")));
        assert_eq!(Stored::decode(&[3, 1, 2]), None);
    }

    #[test]
    fn full_keys_of_a_namespace_lie_before_its_end() {
        assert!(full_key(3, &[0xff; 9]) < namespace_end(3));
        assert!(full_key(4, b"") >= namespace_end(3));
    }

    #[test]
    fn a_root_reads_back_and_cut_ones_are_refused() {
        let root = Root {
            session: 3,
            clean: true,
            block_bytes: 4096,
            tree: 1,
        };
        let bytes = root.encode();
        assert_eq!(Root::decode(&bytes), Some(root));
        assert_eq!(Root::decode(&bytes[1..]), None);
        assert_eq!(Root::decode(&[0xff; ROOT_BYTES]), None);
    }

    #[test]
    fn names_of_segments_read_back() {
        let path = segment_path(Path::new("store"), 12);
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        assert_eq!(name.as_deref().and_then(segment_number), Some(12));
        assert_eq!(segment_number("12.values"), None);
        assert_eq!(segment_number("00000012.forest"), None);
    }
}
