//! CRC-32C (Castagnoli), seeded by identity and place.
//!
//! A plain checksum proves that bytes belong together. Ours also proves that
//! they belong *here*: the seed holds the store's id, the file's number and
//! salt, and the offset, so that a misdirected write, a block of another file
//! and a user's value that copies a record are all rejected.

use crate::identity::FileIdentity;

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC-32C of a longer input whose first part has the checksum `so_far`.
pub fn crc32c_append(so_far: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(so_far, bytes)
}

/// Bytes that begin at a word: those before one would be taken in one by one.
#[repr(align(8))]
struct Words([u8; 64]);

/// A file's contribution to its records' checksums: computed once a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumSeed(u32);

impl ChecksumSeed {
    /// The seed of every record of one file.
    pub fn new(identity: &FileIdentity) -> Self {
        let mut bytes = [0u8; 32];
        bytes[..16].copy_from_slice(&identity.store.0);
        bytes[16..24].copy_from_slice(&identity.number.0.to_le_bytes());
        bytes[24..].copy_from_slice(&identity.salt.to_le_bytes());
        ChecksumSeed(crc32c(&bytes))
    }

    /// The checksum of `bytes` lying at `offset` of the file.
    ///
    /// ```
    /// use cambium_base::checksum::ChecksumSeed;
    /// use cambium_base::FileIdentity;
    /// let seed = ChecksumSeed::new(&FileIdentity::default());
    /// assert_ne!(seed.at(0, b"record"), seed.at(512, b"record"));
    /// ```
    #[inline]
    pub fn at(&self, offset: u64, bytes: &[u8]) -> u32 {
        // Of little, a copy costs less than a second call.
        let mut together = Words([0; 64]);
        let length = 8 + bytes.len();
        if let Some(room) = together.0.get_mut(..length) {
            room[..8].copy_from_slice(&offset.to_le_bytes());
            room[8..].copy_from_slice(bytes);
            return crc32c_append(self.0, room);
        }
        crc32c_append(crc32c_append(self.0, &offset.to_le_bytes()), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{FileNumber, StoreId};

    #[test]
    fn crc32c_matches_the_published_vectors() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn each_part_of_an_identity_changes_the_checksum() {
        let plain = FileIdentity::default();
        let variants = [
            FileIdentity {
                store: StoreId([1; 16]),
                ..plain
            },
            FileIdentity {
                number: FileNumber(1),
                ..plain
            },
            FileIdentity { salt: 1, ..plain },
        ];
        for variant in variants {
            let ours = ChecksumSeed::new(&plain).at(8, b"x");
            assert_ne!(ours, ChecksumSeed::new(&variant).at(8, b"x"), "{variant:?}");
        }
    }
}
