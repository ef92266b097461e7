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

#[cfg_attr(not(feature = "zstd"), path = "without_zstd.rs")]
mod zstd;

use std::cell::RefCell;
use std::sync::Arc;

use cambium_base::coding::u32_at;
use cambium_base::{Error, Result};
use cambium_io::sync::with_taken;
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

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
        match self {
            Compression::None => None,
            Compression::Lz4 => lz4(bytes),
            Compression::Zstd => zstd(None, level, bytes),
        }
    }
}

/// Refuses bytes of the [`Compression::number`] that this program cannot decompress. The caller
/// has verified their checksum, so they are not damaged.
///
/// # Errors
/// `Unsupported`, which names the feature.
pub fn check_known(engine: &'static str, number: u8) -> Result<()> {
    let (what, instead) = match number {
        0 | 1 => return Ok(()),
        2 if cfg!(feature = "zstd") => return Ok(()),
        2 => (
            "bytes that are compressed by zstd",
            "use a program that was built with Cargo's feature zstd",
        ),
        _ => (
            "bytes of a compression that this program does not know",
            "use a newer program",
        ),
    };
    Err(Error::Unsupported {
        engine,
        what,
        instead,
    })
}

/// Compressed bytes behind their length before compression, if that saves an eighth.
/// `compress` fills a buffer of `most_bytes` and returns the bytes that it wrote.
fn pack(
    bytes: &[u8],
    most_bytes: usize,
    compress: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> Option<Vec<u8>> {
    let length = u32::try_from(bytes.len()).ok()?;
    let mut packed = vec![0; LENGTH_BYTES + most_bytes];
    let (before, body) = packed.split_at_mut(LENGTH_BYTES);
    before.copy_from_slice(&length.to_le_bytes());
    let body_bytes = compress(body)?;
    packed.truncate(LENGTH_BYTES + body_bytes);
    let saves_enough = packed.len() <= bytes.len() - bytes.len() / 8;
    let is_believed = bytes.len() / MOST_EXPANSION < body_bytes;
    (saves_enough && is_believed).then_some(packed)
}

/// Bytes that values of one kind have in common, by which zstd makes small ones smaller.
///
/// The same dictionary must be there to read what was compressed by it.
#[derive(Clone, Debug)]
pub struct Dictionary {
    bytes: Arc<[u8]>,
}

impl Dictionary {
    /// A dictionary of `most_bytes` at most, made from samples that lie one behind the other.
    /// `None` where they have too little in common, and in a program without zstd. Takes
    /// about 100 ms for a megabyte.
    pub fn train(samples: &[u8], lengths: &[usize], most_bytes: usize) -> Option<Dictionary> {
        zstd::train(samples, lengths, most_bytes).map(|bytes| Dictionary::new(&bytes))
    }

    /// The dictionary that has these [bytes](Dictionary::bytes).
    pub fn new(bytes: &[u8]) -> Dictionary {
        Dictionary {
            bytes: bytes.into(),
        }
    }

    /// What is kept of it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Compresses bytes, if that saves an eighth. `level` is zstd's, -7 to 19.
    pub fn compress(&self, level: i32, bytes: &[u8]) -> Option<Vec<u8>> {
        if bytes.len() < LEAST_BYTES {
            return None;
        }
        zstd(Some(self), level, bytes)
    }
}

thread_local! {
    /// The table of LZ4, which is larger than most values.
    static TABLE: RefCell<Option<CompressTable>> = RefCell::default();
}

fn lz4(bytes: &[u8]) -> Option<Vec<u8>> {
    pack(bytes, get_maximum_output_size(bytes.len()), |packed| {
        with_taken(&TABLE, |table| {
            let table = table.get_or_insert_with(CompressTable::default);
            compress_into_with_table(bytes, packed, table).ok()
        })
    })
}

fn zstd(dictionary: Option<&Dictionary>, level: i32, bytes: &[u8]) -> Option<Vec<u8>> {
    let most_bytes = bytes.len() - bytes.len() / 8;
    pack(bytes, most_bytes, |packed| {
        zstd::compress(dictionary, level, bytes, packed)
    })
}

/// Compressed bytes, and how many they were before.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    length: usize,
    body: &'a [u8],
}

impl<'a> Packed<'a> {
    /// Takes bytes that [`Compression::compress`] or [`Dictionary::compress`] made.
    ///
    /// # Errors
    /// A text that says what is wrong; the caller knows the file.
    pub fn of(packed: &'a [u8]) -> Result<Self, String> {
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
        Ok(Packed { length, body })
    }

    /// Bytes before compression.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Writes the bytes before compression into a buffer of their length; `number` is the
    /// [`Compression::number`].
    ///
    /// # Errors
    /// A text that says what is wrong.
    pub fn decompress(
        &self,
        number: u8,
        dictionary: Option<&Dictionary>,
        into: &mut [u8],
    ) -> Result<(), String> {
        let written = match number {
            1 => lz4_flex::block::decompress_into(self.body, into)
                .map_err(|error| error.to_string())?,
            2 => zstd::decompress(dictionary, self.body, into)?,
            other => return Err(format!("compression {other} is unknown to this program")),
        };
        match written == into.len() {
            true => Ok(()),
            false => Err(format!("{written} bytes; expected {}", into.len())),
        }
    }
}

/// The bytes before compression; `number` is the [`Compression::number`] of `packed`.
///
/// # Errors
/// What is wrong, in words: the caller knows the file.
pub fn decompress(number: u8, packed: &[u8]) -> Result<Vec<u8>, String> {
    let packed = Packed::of(packed)?;
    let mut bytes = vec![0; packed.length];
    packed.decompress(number, None, &mut bytes)?;
    Ok(bytes)
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

    #[cfg(feature = "zstd")]
    fn decompress_by(dictionary: &Dictionary, packed: &[u8]) -> Result<Vec<u8>, String> {
        let packed = Packed::of(packed)?;
        let mut bytes = vec![0; packed.length()];
        packed.decompress(2, Some(dictionary), &mut bytes)?;
        Ok(bytes)
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn values_that_are_alike_become_smaller_by_a_dictionary_and_come_back() {
        let values: Vec<String> = (0..500_u32)
            .map(|n| {
                let n = n.wrapping_mul(0x9e37_79b1);
                format!(
                    "{{\"number\":{n},\"name\":\"tree {}\",\"height\":{}}}",
                    n % 97,
                    n % 31
                )
            })
            .collect();
        let lengths: Vec<usize> = values.iter().map(String::len).collect();
        let dictionary = Dictionary::train(values.concat().as_bytes(), &lengths, 4096).unwrap();
        let again = Dictionary::new(dictionary.bytes());
        let other = Dictionary::new(&[7; 100]);
        let (mut alone, mut by_dictionary) = (0, 0);
        for value in &values {
            let value = value.as_bytes();
            let packed = dictionary.compress(1, value).unwrap();
            assert_eq!(decompress_by(&again, &packed).unwrap(), value);
            assert_ne!(decompress_by(&other, &packed).ok().as_deref(), Some(value));
            for cut in 0..packed.len() {
                assert!(decompress_by(&again, &packed[..cut]).is_err());
            }
            by_dictionary += packed.len();
            alone += Compression::Zstd
                .compress(1, value)
                .map_or(value.len(), |packed| packed.len());
        }
        assert!(by_dictionary * 3 < alone * 2, "{by_dictionary} and {alone}");
        assert!(Dictionary::train(b"ab", &[1, 1], 4096).is_none());
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
