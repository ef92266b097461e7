//! The first bytes of every file of a store.
//!
//! They come first so that any tool can tell what a file is without knowing
//! its engine, and they are never rewritten: what changes lives elsewhere. The
//! rest of the first block is zero, so that the header's block is synced once
//! and never touched again.

use std::path::Path;

use cambium_base::checksum::crc32c;
use cambium_base::coding::{u32_at, u64_at};
use cambium_base::layout::{Layout, field};
use cambium_base::{Error, FileIdentity, FileNumber, Result, StoreId};
use cambium_io::File;

/// Bytes of an encoded header.
pub const HEADER_BYTES: usize = 96;

/// The header's layout.
pub const LAYOUT: Layout = Layout {
    name: "File header",
    about: "At offset 0 of every file but `CAMBIUM` and `LOCK`. Integers are little-endian throughout.",
    fields: &[
        field(0, 8, "magic", "what the file is, for example `CMBMdata`"),
        field(8, 4, "format_version", "of this kind of file; a newer one is refused"),
        field(12, 4, "block_bytes", "unit of padding after a sync"),
        field(16, 8, "compatible_features", "bits a reader may ignore"),
        field(24, 8, "read_only_features", "bits that forbid writing where unknown"),
        field(32, 8, "incompatible_features", "bits that forbid opening where unknown"),
        field(40, 16, "store_id", "of the store that owns the file"),
        field(56, 8, "file_number", "within the store; never given twice"),
        field(64, 8, "salt", "random; in every checksum of the file, so that an earlier life of the same blocks is not believed"),
        field(72, 8, "first_parameter", "the engine's own: `zdb` keeps the table here"),
        field(80, 8, "second_parameter", "the engine's own: `zdb` keeps the data file's place in its table here"),
        field(88, 4, "checksum", "CRC-32C of bytes 0 to 87"),
        field(92, 4, "zero", "zero"),
    ],
    size: HEADER_BYTES,
}
.checked();

/// A decoded file header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// What the file is.
    pub magic: [u8; 8],
    /// Version of this kind of file.
    pub format_version: u32,
    /// Unit of padding.
    pub block_bytes: u32,
    /// Bits a reader may ignore.
    pub compatible_features: u64,
    /// Bits that forbid writing where unknown.
    pub read_only_features: u64,
    /// Bits that forbid opening where unknown.
    pub incompatible_features: u64,
    /// Whose file it is.
    pub identity: FileIdentity,
    /// The engine's own numbers.
    pub parameters: [u64; 2],
}

impl FileHeader {
    /// A header without feature bits.
    pub fn new(magic: [u8; 8], version: u32, block_bytes: u32, identity: FileIdentity) -> Self {
        FileHeader {
            magic,
            format_version: version,
            block_bytes,
            compatible_features: 0,
            read_only_features: 0,
            incompatible_features: 0,
            identity,
            parameters: [0; 2],
        }
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&self.magic);
        bytes[8..12].copy_from_slice(&self.format_version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.block_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.compatible_features.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.read_only_features.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.incompatible_features.to_le_bytes());
        bytes[40..56].copy_from_slice(&self.identity.store.0);
        bytes[56..64].copy_from_slice(&self.identity.number.0.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.identity.salt.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.parameters[0].to_le_bytes());
        bytes[80..88].copy_from_slice(&self.parameters[1].to_le_bytes());
        let checksum = crc32c(&bytes[..88]);
        bytes[88..92].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads and checks a file's header. `expected_version` is the newest one
    /// this program reads; unknown incompatible bits are refused.
    pub fn read(file: &dyn File, magic: [u8; 8], expected_version: u32) -> Result<FileHeader> {
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0)?;
        Self::decode(&bytes, file.path(), magic, expected_version)
    }

    /// Checks and decodes a header's bytes.
    pub fn decode(
        bytes: &[u8; HEADER_BYTES],
        path: &Path,
        magic: [u8; 8],
        expected_version: u32,
    ) -> Result<FileHeader> {
        if u32_at(bytes, 88) != crc32c(&bytes[..88]) || bytes[92..] != [0; 4] {
            return Err(Error::corruption(
                path,
                0,
                "the file header does not match its checksum",
            ));
        }
        if bytes[..8] != magic {
            return Err(Error::corruption(
                path,
                0,
                format!(
                    "the file begins with {:?}; expected {:?}",
                    String::from_utf8_lossy(&bytes[..8]),
                    String::from_utf8_lossy(&magic)
                ),
            ));
        }
        let mut store = [0; 16];
        store.copy_from_slice(&bytes[40..56]);
        let header = FileHeader {
            magic,
            format_version: u32_at(bytes, 8),
            block_bytes: u32_at(bytes, 12),
            compatible_features: u64_at(bytes, 16),
            read_only_features: u64_at(bytes, 24),
            incompatible_features: u64_at(bytes, 32),
            identity: FileIdentity {
                store: StoreId(store),
                number: FileNumber(u64_at(bytes, 56)),
                salt: u64_at(bytes, 64),
            },
            parameters: [u64_at(bytes, 72), u64_at(bytes, 80)],
        };
        header.check_version(path, expected_version)?;
        Ok(header)
    }

    fn check_version(&self, path: &Path, expected: u32) -> Result<()> {
        if self.format_version > expected {
            return Err(Error::UnsupportedVersion {
                path: path.to_path_buf(),
                found: self.format_version,
                supported: expected,
            });
        }
        let unknown = self.incompatible_features | self.read_only_features;
        if unknown != 0 {
            return Err(Error::corruption(
                path,
                16,
                format!("feature bits {unknown:#x} are unknown to this program: use a newer one"),
            ));
        }
        Ok(())
    }

    /// Refuses a header that belongs to another store or file.
    pub fn check_identity(&self, path: &Path, expected: &FileIdentity) -> Result<()> {
        if self.identity == *expected {
            return Ok(());
        }
        Err(Error::corruption(
            path,
            40,
            format!(
                "the header belongs to file {} of store {}; expected file {} of store {}",
                self.identity.number, self.identity.store, expected.number, expected.store
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let header = FileHeader::new(*b"CMBMtest", 1, 4096, FileIdentity::default());
        let bytes = header.encode();
        let path = Path::new("x");
        assert_eq!(
            FileHeader::decode(&bytes, path, *b"CMBMtest", 1).unwrap(),
            header
        );
        for bit in 0..HEADER_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(
                FileHeader::decode(&damaged, path, *b"CMBMtest", 1).is_err(),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn a_newer_version_names_both_versions() {
        let header = FileHeader::new(*b"CMBMtest", 7, 4096, FileIdentity::default());
        let error = FileHeader::decode(&header.encode(), Path::new("x"), *b"CMBMtest", 1);
        let text = error.unwrap_err().to_string();
        assert!(text.contains('7') && text.contains('1'), "{text}");
    }
}
