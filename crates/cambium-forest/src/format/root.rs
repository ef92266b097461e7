//! The superblock's payload: which database file counts, and where in it to
//! begin. Its bytes are [`ROOT_LAYOUT`].

use cambium_base::FileNumber;
use cambium_base::coding::Decoder;
use cambium_base::layout::Layout;

use super::{FileRef, MOST_COUNTED, field};
use crate::document::OFFSET_LIMIT;

/// Bytes of the superblock's payload.
pub const ROOT_BYTES: usize = 48;

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
        bytes
    }

    /// Reads a payload back; `None` for what no root encodes to.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let root = Root {
            file: FileRef {
                number: FileNumber(decoder.u64()?),
                salt: decoder.u64()?,
            },
            next_file: decoder.u64()?,
            header: decoder.u64()?,
            end: decoder.u64()?,
            session: decoder.u32()?,
            clean: decoder.u32()? == 1,
        };
        let offsets = [root.header, root.end];
        let possible = offsets.iter().all(|&offset| offset < OFFSET_LIMIT)
            && root.file.number.0 < MOST_COUNTED
            && root.next_file < MOST_COUNTED
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
            ..Root::default()
        };
        let bytes = root.encode();
        assert_eq!(bytes.len(), ROOT_BYTES);
        assert_eq!(Root::decode(&bytes), Some(root));
        assert_eq!(Root::decode(&bytes[1..]), None);
    }
}
