//! Blocks as they lie in a table: perhaps compressed, with a trailer.
//!
//! ```text
//! block, or 4 bytes of its length and what it was compressed to ┬ compression, 1 ┬ checksum, 4
//! ```
//!
//! The checksum is seeded by store, file and offset, and covers the byte before it.

use std::path::Path;
use std::sync::Arc;

use cambium_base::checksum::{ChecksumSeed, crc32c_append};
use cambium_base::coding::u32_at;
use cambium_base::{Error, Result};

use crate::format::BLOCK_TRAILER_BYTES;
use crate::options::Compression;

/// The trailer of a block that will lie at `offset`.
pub(crate) fn block_trailer(
    seed: &ChecksumSeed,
    offset: u64,
    stored: &[u8],
    compression: u8,
) -> [u8; BLOCK_TRAILER_BYTES] {
    let checksum = crc32c_append(seed.at(offset, stored), &[compression]);
    let mut trailer = [0; BLOCK_TRAILER_BYTES];
    trailer[0] = compression;
    trailer[1..].copy_from_slice(&checksum.to_le_bytes());
    trailer
}

/// Checks a block with its trailer, and unpacks it.
pub(crate) fn unpack(
    seed: &ChecksumSeed,
    path: &Path,
    offset: u64,
    stored: &[u8],
) -> Result<Arc<[u8]>> {
    let damaged = |what: &str| Error::corruption(path, offset, what);
    let Some(length) = stored.len().checked_sub(BLOCK_TRAILER_BYTES) else {
        return Err(damaged("a block without a trailer"));
    };
    let (bytes, trailer) = stored.split_at(length);
    let checksum = crc32c_append(seed.at(offset, bytes), &trailer[..1]);
    if checksum != u32_at(trailer, 1) {
        return Err(damaged("a block does not match its checksum"));
    }
    match trailer[0] {
        0 => Ok(bytes.into()),
        number => {
            let unpacked = decompress(number, bytes);
            unpacked.map_err(|what| Error::corruption(path, offset, what))
        }
    }
}

/// A block of less than this many times its compressed bytes is believed.
const MOST_EXPANSION: usize = 4096;

fn decompress(compression: u8, bytes: &[u8]) -> Result<Arc<[u8]>, String> {
    let Some((length, packed)) = bytes.split_at_checked(4) else {
        return Err("a compressed block without its length".to_owned());
    };
    let length = u32_at(length, 0) as usize;
    if length > packed.len().saturating_mul(MOST_EXPANSION) {
        return Err(format!(
            "{} bytes cannot have been {length} before compression",
            packed.len()
        ));
    }
    let unpacked = match compression {
        1 => lz4_flex::block::decompress(packed, length).map_err(|error| error.to_string())?,
        #[cfg(feature = "zstd")]
        2 => zstd::bulk::decompress(packed, length).map_err(|error| error.to_string())?,
        other => {
            return Err(format!(
                "compression {other} is unknown to this program, or was not built in"
            ));
        }
    };
    if unpacked.len() != length {
        return Err(format!("{} bytes; expected {length}", unpacked.len()));
    }
    Ok(unpacked.into())
}

/// Compresses a block, if that saves an eighth; `None` otherwise.
pub(crate) fn compress(compression: Compression, bytes: &[u8]) -> Option<Vec<u8>> {
    let packed = match compression {
        Compression::None => return None,
        Compression::Lz4 => lz4_flex::block::compress(bytes),
        #[cfg(feature = "zstd")]
        Compression::Zstd => zstd::bulk::compress(bytes, 1).ok()?,
        // Refused when the options were checked.
        #[cfg(not(feature = "zstd"))]
        Compression::Zstd => return None,
    };
    let worth_it = packed.len() + 4 <= bytes.len() - bytes.len() / 8;
    worth_it.then(|| [&(bytes.len() as u32).to_le_bytes()[..], &packed].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_blocks_come_back_and_lengths_are_not_believed() {
        let bytes = b"pointer pointer pointer pointer pointer pointer".repeat(9);
        let packed = compress(Compression::Lz4, &bytes).unwrap();
        assert!(packed.len() < bytes.len());
        assert_eq!(&*decompress(1, &packed).unwrap(), &bytes[..]);
        let mut huge = packed.clone();
        huge[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(
            decompress(1, &huge)
                .unwrap_err()
                .contains("cannot have been")
        );
        assert!(
            decompress(9, &packed)
                .unwrap_err()
                .contains("compression 9")
        );
        let random: Vec<u8> = (0..200u32)
            .map(|n| (n.wrapping_mul(0x9e37_79b1) >> 24) as u8)
            .collect();
        assert_eq!(compress(Compression::Lz4, &random), None);
    }
}
