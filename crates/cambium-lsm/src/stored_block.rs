//! Blocks as they lie in a table: perhaps compressed, with a trailer.
//!
//! ```text
//! block, or what it was compressed to ┬ compression, 1 ┬ checksum, 4
//! ```
//!
//! [`cambium_storage::compression`] has the layout of compressed bytes. The checksum is seeded by
//! store, file and offset, and covers the byte before it. A compression that this program lacks
//! is no damage: a repair ends there, and loses nothing.

use std::path::Path;

use cambium_base::checksum::{ChecksumSeed, crc32c_append};
use cambium_base::coding::u32_at;
use cambium_base::{Error, Result};
use cambium_storage::compression::{check_known, decompress};

use crate::format::BLOCK_TRAILER_BYTES;

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

/// Checks a block with its trailer. Answers what it was before compression; `None` if it
/// is the bytes before the trailer themselves.
pub(crate) fn check_stored(
    seed: &ChecksumSeed,
    path: &Path,
    offset: u64,
    stored: &[u8],
) -> Result<Option<Vec<u8>>> {
    let damaged = |what: &str| Error::corruption(path, offset, what);
    let Some(length) = stored.len().checked_sub(BLOCK_TRAILER_BYTES) else {
        return Err(damaged("a block without a trailer"));
    };
    let (bytes, trailer) = stored.split_at(length);
    let checksum = crc32c_append(seed.at(offset, bytes), &trailer[..1]);
    if checksum != u32_at(trailer, 1) {
        return Err(damaged("a block does not match its checksum"));
    }
    check_known("wisckey", trailer[0])?;
    match trailer[0] {
        0 => Ok(None),
        number => {
            let unpacked = decompress(number, bytes);
            let damaged = |what| Error::corruption(path, offset, what);
            unpacked.map(Some).map_err(damaged)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compression_that_is_not_known_is_no_damage() {
        let seed = ChecksumSeed::new(&cambium_base::FileIdentity::default());
        let path = Path::new("table");
        let block = b"a block".to_vec();
        let stored = |compression| {
            let trailer = block_trailer(&seed, 4096, &block, compression);
            [&block[..], &trailer].concat()
        };
        assert_eq!(check_stored(&seed, path, 4096, &stored(0)).unwrap(), None);
        let newer = check_stored(&seed, path, 4096, &stored(9)).unwrap_err();
        assert!(matches!(newer, Error::Unsupported { .. }), "{newer}");
        let mut flipped = stored(0);
        flipped[block.len()] = 9;
        let damaged = check_stored(&seed, path, 4096, &flipped).unwrap_err();
        assert!(damaged.is_corruption(), "{damaged}");
    }
}
