//! Numbers, names and fixed structures of the files of a tree.

use std::path::Path;

use cambium_base::checksum::ChecksumSeed;
use cambium_base::coding::{u32_at, u64_at};
use cambium_base::layout::{Layout, field};
use cambium_base::varint::{put_varint, varint_at};
use cambium_base::{Error, Result};

/// First bytes of a table.
pub(crate) const TABLE_MAGIC: [u8; 8] = *b"CMBMlsmt";
/// First bytes of a manifest.
pub(crate) const MANIFEST_MAGIC: [u8; 8] = *b"CMBMlsmm";
/// Of tables, manifests and the superblock's payload.
pub(crate) const FORMAT_VERSION: u32 = 2;
/// Levels of a tree; the last has no limit.
pub(crate) const LEVELS: usize = 7;
/// Bytes behind each block: compression and checksum.
pub(crate) const BLOCK_TRAILER_BYTES: usize = 5;
/// Bytes at the end of a table.
pub(crate) const FOOTER_BYTES: usize = 72;
/// Bytes of the superblock's payload.
pub(crate) const ROOT_BYTES: usize = 24;

/// Behind each block of a table.
pub const BLOCK_TRAILER: Layout = Layout {
    name: "Block trailer",
    about: "Behind each block of a table. A block is entries: varint shared (bytes of key like the entry before), varint own (bytes of key that follow), varint value length, kind (1 value, 2 delete), varint sequence number, the key's own bytes, the value. At its end stand the offsets of the entries with whole keys, 4 bytes each, and their count, 4 bytes. A compressed block begins with its length before compression, 4 bytes. Index blocks are blocks whose keys part the blocks they name, with offset and length as two varints for value; tombstone blocks hold for each fragment of a range its start as key, and as value a byte (1: the end follows with a varint length; 0: no end), and the count and numbers of its tombstones as varints.",
    fields: &[
        field(0, 1, "compression", "0 none, 1 lz4, 2 zstd"),
        field(1, 4, "checksum", "CRC-32C of store id, file number, salt, the block's offset, its bytes and the field before: the block is here, and of this file"),
    ],
    size: BLOCK_TRAILER_BYTES,
}
.checked();

/// At the end of each table.
pub const FOOTER: Layout = Layout {
    name: "Table footer",
    about: "At the end of a table, whose length the manifest knows. Lengths are those of blocks without their trailers; 0 means that there is none.",
    fields: &[
        field(0, 8, "filter_offset", "where the filter's block begins"),
        field(8, 8, "filter_bytes", "its length"),
        field(16, 8, "tombstones_offset", "where the block of range tombstones begins"),
        field(24, 8, "tombstones_bytes", "its length"),
        field(32, 8, "properties_offset", "where the properties' block begins"),
        field(40, 8, "properties_bytes", "its length"),
        field(48, 8, "index_offset", "where the top block of the index begins"),
        field(56, 8, "index_bytes", "its length"),
        field(64, 4, "restart_interval", "entries from one whole key to the next, for who wants to know"),
        field(68, 4, "checksum", "CRC-32C of store id, file number, salt, the footer's offset and the bytes before"),
    ],
    size: FOOTER_BYTES,
}
.checked();

/// The payload of the superblock.
pub const ROOT: Layout = Layout {
    name: "Root of a tree",
    about: "The payload of the superblock of a tree.",
    fields: &[
        field(0, 8, "manifest", "number of the manifest that counts"),
        field(8, 8, "salt", "of that manifest"),
        field(16, 8, "edits", "edits known to be durable in it when this was written: a manifest that ends before is damaged, not torn"),
    ],
    size: ROOT_BYTES,
}
.checked();

/// The prefix of an edit in a manifest.
pub const EDIT: Layout = Layout {
    name: "Edit",
    about: "The first bytes of the payload of a manifest's record (kind 1; its sequence number counts the edits of the manifest from 1). Fields follow, each a byte and its content; lengths and counts are varints: 1 comparator name, 2 filter policy name, 3 table added (level, number, salt 8 bytes, length, entries, deletes, range tombstones, smallest and largest sequence number, smallest key, kind of upper bound (0 inclusive, 1 exclusive, 2 none), largest key), 4 table removed (level, number), 5 note, 6 name of the kept version that becomes the tree's, 7 name under which the version that this edit makes is kept, 8 name of a kept version that is kept no longer, 9 kept version of a base (name, number of tables, each as in 3).",
    fields: &[
        field(0, 1, "base", "1: everything before is forgotten; 0: a change"),
        field(1, 8, "next_file", "no file has this number yet, or a higher one"),
        field(9, 8, "flushed", "highest sequence number in tables"),
    ],
    size: 17,
}
.checked();

/// The layouts of this crate, in the order of the format document.
pub fn layouts() -> Vec<&'static Layout> {
    vec![&ROOT, &EDIT, &BLOCK_TRAILER, &FOOTER]
}

/// The name of a table's file.
pub(crate) fn table_name(number: u64) -> String {
    format!("table-{number:06}")
}

/// The name of a manifest's file.
pub(crate) fn manifest_name(number: u64) -> String {
    format!("manifest-{number:06}")
}

/// The number in a file's name, if it is a table's or a manifest's.
pub(crate) fn number_in_name(name: &Path) -> Option<u64> {
    let name = name.to_str()?;
    let digits = name
        .strip_prefix("table-")
        .or_else(|| name.strip_prefix("manifest-"))?;
    let number = digits.parse().ok()?;
    // Digits alone would be many names for one number.
    let is_name = name == table_name(number) || name == manifest_name(number);
    is_name.then_some(number)
}

/// Where a block lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct BlockHandle {
    /// Bytes from the file's start.
    pub offset: u64,
    /// Bytes without the trailer.
    pub bytes: u64,
}

impl BlockHandle {
    /// Bytes with the trailer, if the block can lie in a file of that length.
    pub fn stored_bytes(&self, file_bytes: u64) -> Option<usize> {
        let stored = self.bytes.checked_add(BLOCK_TRAILER_BYTES as u64)?;
        let end = self.offset.checked_add(stored)?;
        (end <= file_bytes).then_some(usize::try_from(stored).ok()?)
    }

    /// As the value of an index entry.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(10);
        put_varint(&mut bytes, self.offset);
        put_varint(&mut bytes, self.bytes);
        bytes
    }

    /// From the value of an index entry.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (offset, first) = varint_at(bytes)?;
        let (length, second) = varint_at(&bytes[first..])?;
        (first + second == bytes.len()).then_some(BlockHandle {
            offset,
            bytes: length,
        })
    }
}

/// The end of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footer {
    pub filter: BlockHandle,
    pub tombstones: BlockHandle,
    pub properties: BlockHandle,
    pub index: BlockHandle,
    pub restart_interval: u32,
}

impl Footer {
    /// The footer's bytes, as they lie at `offset`.
    pub fn encode(&self, seed: &ChecksumSeed, offset: u64) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        let handles = [self.filter, self.tombstones, self.properties, self.index];
        for (position, handle) in handles.iter().enumerate() {
            let start = position * 16;
            bytes[start..start + 8].copy_from_slice(&handle.offset.to_le_bytes());
            bytes[start + 8..start + 16].copy_from_slice(&handle.bytes.to_le_bytes());
        }
        bytes[64..68].copy_from_slice(&self.restart_interval.to_le_bytes());
        let checksum = seed.at(offset, &bytes[..68]);
        bytes[68..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Checks and decodes a footer that lies at `offset`.
    pub fn decode(
        bytes: &[u8; FOOTER_BYTES],
        seed: &ChecksumSeed,
        path: &Path,
        offset: u64,
    ) -> Result<Self> {
        if u32_at(bytes, 68) != seed.at(offset, &bytes[..68]) {
            let what = "the table's footer does not match its checksum";
            return Err(Error::corruption(path, offset, what));
        }
        let handle = |start| BlockHandle {
            offset: u64_at(bytes, start),
            bytes: u64_at(bytes, start + 8),
        };
        Ok(Footer {
            filter: handle(0),
            tombstones: handle(16),
            properties: handle(32),
            index: handle(48),
            restart_interval: u32_at(bytes, 64),
        })
    }
}

/// Decodes any bytes as a footer; for tests of decoders.
#[doc(hidden)]
pub fn decode_footer_bytes(bytes: &[u8], seed: &ChecksumSeed) -> Result<()> {
    let Some(Ok(footer)) = bytes.get(..FOOTER_BYTES).map(TryInto::try_into) else {
        return Err(Error::corruption("footer", 0, "too short"));
    };
    Footer::decode(footer, seed, Path::new("footer"), 0).map(|_| ())
}

/// The root: which manifest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub manifest: u64,
    pub salt: u64,
    pub edits: u64,
}

impl Root {
    pub fn encode(&self) -> Vec<u8> {
        [self.manifest, self.salt, self.edits]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect()
    }

    pub fn decode(payload: &[u8], path: &Path) -> Result<Self> {
        if payload.len() != ROOT_BYTES {
            let what = format!("a root of {} bytes; expected {ROOT_BYTES}", payload.len());
            return Err(Error::corruption(path, 0, what));
        }
        Ok(Root {
            manifest: u64_at(payload, 0),
            salt: u64_at(payload, 8),
            edits: u64_at(payload, 16),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_files_get_have_a_number() {
        let number = |name: &str| number_in_name(Path::new(name));
        assert_eq!(number(&table_name(7)), Some(7));
        assert_eq!(number(&manifest_name(1_234_567)), Some(1_234_567));
        for name in ["table-7", "table-+00007", "table-0000007", "manifest-", "x"] {
            assert_eq!(number(name), None, "{name}");
        }
    }

    #[test]
    fn every_flipped_bit_of_a_footer_is_noticed() {
        let seed = ChecksumSeed::new(&cambium_base::FileIdentity::default());
        let handle = |offset| BlockHandle { offset, bytes: 7 };
        let footer = Footer {
            filter: handle(1),
            tombstones: handle(2),
            properties: handle(3),
            index: handle(4),
            restart_interval: 16,
        };
        let bytes = footer.encode(&seed, 99);
        let path = Path::new("table");
        assert_eq!(Footer::decode(&bytes, &seed, path, 99).unwrap(), footer);
        assert!(Footer::decode(&bytes, &seed, path, 98).is_err());
        for bit in 0..FOOTER_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Footer::decode(&damaged, &seed, path, 99).is_err(), "{bit}");
        }
    }

    #[test]
    fn a_block_that_would_run_past_its_file_has_no_length() {
        let handle = BlockHandle {
            offset: u64::MAX - 3,
            bytes: 8,
        };
        assert_eq!(handle.stored_bytes(u64::MAX), None);
        let handle = BlockHandle {
            offset: 90,
            bytes: 5,
        };
        assert_eq!(handle.stored_bytes(100), Some(10));
        assert_eq!(handle.stored_bytes(99), None);
        assert_eq!(BlockHandle::decode(&handle.encode()), Some(handle));
    }
}
