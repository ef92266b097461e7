//! The superblock's payload: which database file counts, and where in it to
//! begin. Its bytes are [`ROOT_LAYOUT`].

use cambium_base::FileNumber;
use cambium_base::coding::Decoder;
use cambium_base::layout::Layout;

use super::{FileRef, MOST_COUNTED, field};
use crate::document::OFFSET_LIMIT;
use crate::options::Shape;

/// Bytes of the superblock's payload.
pub const ROOT_BYTES: usize = 80;

/// The superblock's payload.
pub const ROOT_LAYOUT: Layout = Layout {
    name: "Superblock payload",
    about: "Which database file counts and where its newest header is.",
    fields: &[
        field(0, 8, "file_number", "of the database file"),
        field(8, 8, "salt", "of the database file"),
        field(
            16,
            8,
            "next_file",
            "number for the next file; never given twice",
        ),
        field(24, 8, "header", "offset of the newest header"),
        field(32, 8, "end", "clean: where the log goes on; else 0"),
        field(
            40,
            4,
            "session",
            "the highest ever taken; each opening that writes takes its own",
        ),
        field(
            44,
            4,
            "clean",
            "1 if the store was closed: nothing is to be replayed",
        ),
        field(
            48,
            8,
            "spare_header",
            "offset of a header that leads to the same state, should the newest be damaged: the one before a flush, with what follows it replayed, or another copy; 0 if none",
        ),
        field(
            56,
            8,
            "synced_through",
            "writes up to here were durable when this was written: one that is missing is damage",
        ),
        field(
            64,
            8,
            "shape",
            "the first parameter of the database file's header, should that be damaged; 0 if not known",
        ),
        field(72, 4, "block_bytes", "the same of its `block_bytes`"),
        field(
            76,
            4,
            "keeps_damaged",
            "1 after a repair that lost something: database files of lower numbers are kept under another name; else 0",
        ),
    ],
    size: ROOT_BYTES,
}
.checked();

/// The superblock's payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// The database file that counts.
    pub file: FileRef,
    /// Number for the next file.
    pub next_file: u64,
    /// Offset of the newest header.
    pub header: u64,
    /// Where a cleanly closed log goes on.
    pub end: u64,
    /// The highest session ever taken.
    pub session: u32,
    /// The store was closed.
    pub clean: bool,
    /// A header that leads to the same state as the newest; 0 if none is known.
    pub spare_header: u64,
    /// Writes up to here are durable.
    pub synced_through: u64,
    /// The database file's shape, if known.
    pub shape: Option<Shape>,
    /// The other copy of the superblock cannot be read: it may have been newer. Not encoded.
    pub may_be_older: bool,
    /// Database files of lower numbers are what a repair could not bring back whole.
    pub keeps_damaged: bool,
}

impl Root {
    /// The payload's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ROOT_BYTES);
        let numbers = [
            self.file.number.0,
            self.file.salt,
            self.next_file,
            self.header,
            self.end,
        ];
        for number in numbers {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.session, u32::from(self.clean)] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let shape = self.shape.map_or(0, |shape| shape.pack());
        for number in [self.spare_header, self.synced_through, shape] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let block_bytes = self.shape.map_or(0, |shape| shape.block_bytes);
        for number in [block_bytes, u32::from(self.keeps_damaged)] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Reads a payload back; `None` for what no root encodes to.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let mut root = Root {
            file: FileRef {
                number: FileNumber(decoder.u64()?),
                salt: decoder.u64()?,
            },
            next_file: decoder.u64()?,
            header: decoder.u64()?,
            end: decoder.u64()?,
            session: decoder.u32()?,
            clean: decoder.u32()? == 1,
            spare_header: decoder.u64()?,
            synced_through: decoder.u64()?,
            ..Root::default()
        };
        let (shape, block_bytes) = (decoder.u64()?, decoder.u32()?);
        root.shape = Shape::unpack(shape, block_bytes);
        let known = root.shape.is_some() || (shape, block_bytes) == (0, 0);
        let keeps_damaged = decoder.u32()?;
        if !known || keeps_damaged > 1 {
            return None;
        }
        root.keeps_damaged = keeps_damaged == 1;
        let offsets = [root.header, root.end, root.spare_header];
        let possible = offsets.iter().all(|&offset| offset < OFFSET_LIMIT)
            && root.file.number.0 < MOST_COUNTED
            && root.next_file < MOST_COUNTED
            && root.synced_through < MOST_COUNTED
            && root.session < u32::MAX;
        (decoder.remaining() == 0 && possible).then_some(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_reads_back() {
        let root = Root {
            header: 4096,
            session: 3,
            clean: true,
            spare_header: 512,
            synced_through: 9,
            shape: Shape::unpack(4096 | 8 << 32, 4096),
            keeps_damaged: true,
            ..Root::default()
        };
        assert!(root.shape.is_some());
        let bytes = root.encode();
        assert_eq!(bytes.len(), ROOT_BYTES);
        assert_eq!(Root::decode(&bytes), Some(root));
        assert_eq!(Root::decode(&bytes[1..]), None);
        assert_eq!(Root::decode(&bytes[..48]), None);
    }
}
