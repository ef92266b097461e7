//! Compression of blocks and values.
//!
//! ```text
//! length before compression, 4 bytes ┬ compressed bytes
//! ```
//!
//! The bytes around it say which compression it is, by [`Compression::number`], and carry a
//! checksum: damage is found before anything is decompressed. Even so a length is believed
//! only as far as it can be: memory for more than 4,096 times the compressed bytes is never
//! taken.

use cambium_base::coding::u32_at;
use cambium_base::{Error, Result};

/// A way to compress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// None.
    #[default]
    None,
    /// LZ4: fast.
    Lz4,
    /// Zstandard, where the program was built with it: smaller.
    Zstd,
}

/// Bytes of the length before compressed bytes.
pub const LENGTH_BYTES: usize = 4;
/// More bytes than this many times the compressed ones are not believed, and none are
/// compressed so well. Zstandard needs a few bytes for 128 KiB that repeat.
const MOST_EXPANSION: usize = 1 << 16;
/// Bytes too few to become fewer.
const LEAST_BYTES: usize = 32;

impl Compression {
    /// The compression of a name: `none`, `lz4` or `zstd`.
    ///
    /// ```
    /// use cambium_storage::compression::Compression;
    /// assert_eq!(Compression::parse("lz4").unwrap(), Compression::Lz4);
    /// assert!(Compression::parse("gzip").is_err());
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for another name, and for one that this program was built without.
    pub fn parse(name: &str) -> Result<Self> {
        let compression = match name {
            "none" => Compression::None,
            "lz4" => Compression::Lz4,
            "zstd" => Compression::Zstd,
            other => {
                return Err(Error::InvalidArgument(format!(
                    "option compression={other}: expected none, lz4 or zstd"
                )));
            }
        };
        compression.check_is_built()?;
        Ok(compression)
    }

    /// Refuses a compression that this program was built without.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn check_is_built(self) -> Result<()> {
        if self == Compression::Zstd && !cfg!(feature = "zstd") {
            return Err(Error::InvalidArgument(
                "compression zstd: this program was built without it (Cargo's feature zstd); use \
                 lz4 or none"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// The number that stands on the device.
    pub fn number(self) -> u8 {
        match self {
            Compression::None => 0,
            Compression::Lz4 => 1,
            Compression::Zstd => 2,
        }
    }

    /// Compresses bytes, if that saves an eighth; `None` otherwise. `level` is zstd's, -7 to
    /// 19, from fast to small.
    pub fn compress(self, level: i32, bytes: &[u8]) -> Option<Vec<u8>> {
        if self == Compression::None || bytes.len() < LEAST_BYTES {
            return None;
        }
        let most = bytes.len() - bytes.len() / 8;
        let length = u32::try_from(bytes.len()).ok()?;
        let mut packed = Vec::with_capacity(bytes.len() + bytes.len() / 8 + 32);
        packed.extend_from_slice(&length.to_le_bytes());
        match self {
            Compression::None => return None,
            Compression::Lz4 => lz4(bytes, &mut packed)?,
            Compression::Zstd => zstd(level, bytes, &mut packed)?,
        }
        let is_believed = bytes.len() / MOST_EXPANSION < packed.len() - LENGTH_BYTES;
        (packed.len() <= most && is_believed).then_some(packed)
    }
}

fn lz4(bytes: &[u8], packed: &mut Vec<u8>) -> Option<()> {
    packed.resize(
        LENGTH_BYTES + lz4_flex::block::get_maximum_output_size(bytes.len()),
        0,
    );
    let length = lz4_flex::block::compress_into(bytes, &mut packed[LENGTH_BYTES..]).ok()?;
    packed.truncate(LENGTH_BYTES + length);
    Some(())
}

#[cfg(not(feature = "zstd"))]
fn zstd(_: i32, _: &[u8], _: &mut Vec<u8>) -> Option<()> {
    None
}

#[cfg(feature = "zstd")]
mod contexts {
    use std::cell::RefCell;

    /// A context takes longer to make than a small value to compress.
    #[derive(Default)]
    pub struct Contexts {
        pub compressor: Option<(i32, zstd::bulk::Compressor<'static>)>,
        pub decompressor: Option<zstd::bulk::Decompressor<'static>>,
    }

    thread_local! {
        pub static CONTEXTS: RefCell<Contexts> = RefCell::new(Contexts::default());
    }
}

#[cfg(feature = "zstd")]
fn zstd(level: i32, bytes: &[u8], packed: &mut Vec<u8>) -> Option<()> {
    cambium_io::sync::with_taken(&contexts::CONTEXTS, |contexts| {
        if contexts
            .compressor
            .as_ref()
            .is_none_or(|(of, _)| *of != level)
        {
            contexts.compressor = Some((level, zstd::bulk::Compressor::new(level).ok()?));
        }
        let (_, compressor) = contexts.compressor.as_mut()?;
        let body = compressor.compress(bytes).ok()?;
        packed.extend_from_slice(&body);
        Some(())
    })
}

/// The bytes before compression; `number` is the [`Compression::number`] of `packed`.
///
/// # Errors
/// What is wrong, in words: the caller knows the file.
pub fn decompress(number: u8, packed: &[u8]) -> Result<Vec<u8>, String> {
    let Some((length, body)) = packed.split_at_checked(LENGTH_BYTES) else {
        return Err("compressed bytes without their length".to_owned());
    };
    let length = u32_at(length, 0) as usize;
    if length > body.len().saturating_mul(MOST_EXPANSION) {
        return Err(format!(
            "{} bytes cannot have been {length} before compression",
            body.len()
        ));
    }
    let unpacked = match number {
        1 => lz4_flex::block::decompress(body, length).map_err(|error| error.to_string())?,
        2 => unzstd(body, length)?,
        other => return Err(format!("compression {other} is unknown to this program")),
    };
    if unpacked.len() != length {
        return Err(format!("{} bytes; expected {length}", unpacked.len()));
    }
    Ok(unpacked)
}

#[cfg(not(feature = "zstd"))]
fn unzstd(_: &[u8], _: usize) -> Result<Vec<u8>, String> {
    Err("compressed by zstd, and this program was built without Cargo's feature zstd".to_owned())
}

#[cfg(feature = "zstd")]
fn unzstd(body: &[u8], length: usize) -> Result<Vec<u8>, String> {
    cambium_io::sync::with_taken(&contexts::CONTEXTS, |contexts| {
        if contexts.decompressor.is_none() {
            let made = zstd::bulk::Decompressor::new().map_err(|error| error.to_string())?;
            contexts.decompressor = Some(made);
        }
        match &mut contexts.decompressor {
            Some(with) => with
                .decompress(body, length)
                .map_err(|error| error.to_string()),
            None => Err("no context to decompress with".to_owned()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_repeat_come_back() {
        for compression in [Compression::Lz4, Compression::Zstd] {
            for length in [100, 340_506, 10 << 20] {
                let bytes = vec![7; length];
                if let Some(packed) = compression.compress(3, &bytes) {
                    let unpacked = decompress(compression.number(), &packed);
                    assert!(unpacked.unwrap() == bytes, "{compression:?} {length}");
                }
            }
        }
    }

    #[test]
    fn compressed_bytes_come_back_and_lengths_are_not_believed() {
        let bytes = b"pointer pointer pointer pointer pointer pointer".repeat(9);
        let mut all = vec![Compression::Lz4];
        all.extend(cfg!(feature = "zstd").then_some(Compression::Zstd));
        for compression in all {
            let packed = compression.compress(1, &bytes).unwrap();
            assert!(packed.len() < bytes.len() / 2);
            assert_eq!(decompress(compression.number(), &packed).unwrap(), bytes);
            let mut huge = packed.clone();
            huge[..4].copy_from_slice(&u32::MAX.to_le_bytes());
            let error = decompress(compression.number(), &huge).unwrap_err();
            assert!(error.contains("cannot have been"), "{error}");
            for cut in 0..packed.len() {
                assert!(decompress(compression.number(), &packed[..cut]).is_err());
            }
        }
        let packed = Compression::Lz4.compress(1, &bytes).unwrap();
        assert!(
            decompress(9, &packed)
                .unwrap_err()
                .contains("compression 9")
        );
    }

    #[test]
    fn what_this_program_was_built_without_is_refused_by_name() {
        let zstd = Compression::parse("zstd");
        assert_eq!(zstd.is_ok(), cfg!(feature = "zstd"));
        let unknown = Compression::parse("gzip").unwrap_err();
        assert!(unknown.to_string().contains("none, lz4 or zstd"));
    }

    #[test]
    fn what_saves_less_than_an_eighth_is_left_as_it_is() {
        let random: Vec<u8> = (0..200u32)
            .map(|n| (n.wrapping_mul(0x9e37_79b1) >> 24) as u8)
            .collect();
        assert_eq!(Compression::Lz4.compress(1, &random), None);
        assert_eq!(Compression::Lz4.compress(1, &[7; LEAST_BYTES - 1]), None);
        assert_eq!(Compression::None.compress(1, &[7; 4096]), None);
    }
}
