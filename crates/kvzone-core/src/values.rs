//! Values that prove what they are.
//!
//! A value is a function of the job's seed, its key's number, its version and
//! its size, so that whatever a store returns can be held against what was
//! written, without keeping any of it:
//!
//! ```text
//!  0..8    check     a hash of seed, number, version and size
//!  8..16   number    of the key
//!  16..24  version   of the key: how often it was written
//!  24..    slice     of the pool, from a point that the check decides
//! ```
//!
//! All little-endian. A value shorter than the header is the header's
//! beginning: four bytes of it are four bytes of the check, and still tell
//! another key's value or an older one from the right one, but for one case in
//! four billion.
//!
//! The pool is random bytes with runs of one letter between: the share of the
//! runs is the share that compresses away. It is a quarter of a megabyte: more
//! than a compressor of blocks looks back, and little enough to stay in a
//! core's own cache. A slice of it is a value without a byte being copied: a
//! thread writes the header into its own pool, lends the slice to the store,
//! and puts the pool's bytes back when it is asked for the next one. Where a load
//! names a file of real values, its bytes are the pool.

use std::path::Path;

use cambium_io::{Environment, OpenOptions};

use crate::error::{Error, Result};
use crate::job::{Load, SizeChoice};
use crate::random::{Random, below, mix_two};

pub const HEADER_BYTES: usize = 24;
/// The largest value, in bytes.
pub const MOST_BYTES: u64 = 1 << 30;

const POOL_BYTES: u64 = 256 << 10;
/// Bytes of a file of real values that are taken.
const SAMPLE_BYTES: u64 = 4 << 20;
/// Random bytes and a run alternate within so many.
const PIECE_BYTES: usize = 128;

/// Purposes of the seed.
const POOL: u64 = 0x706F_6F6C;
const SIZE: u64 = 0x7673_697A;

#[derive(Clone, Debug)]
pub struct Values {
    seed: u64,
    sizes: SizeChoice,
    pool: Vec<u8>,
    starts: u64,
}

impl Values {
    /// The values of a load; a usage error if its sizes or its share cannot be.
    pub fn new(load: &Load) -> Result<Self> {
        if load.value_bytes.largest() > MOST_BYTES {
            return Err(Error::Usage(format!(
                "value size {}: a value has at most 1 GiB",
                load.value_bytes.largest()
            )));
        }
        if !(0.0..=1.0).contains(&load.compressible) {
            return Err(Error::Usage(format!(
                "compressible share {}: it is from 0 to 1",
                load.compressible
            )));
        }
        let longest = load.value_bytes.largest().max(HEADER_BYTES as u64) as usize;
        let (starts, pool) = match &load.value_sample {
            Some(path) => sample(path, longest)?,
            None => {
                let bytes = POOL_BYTES as usize + longest;
                (POOL_BYTES, pool(bytes, load.compressible, load.seed))
            }
        };
        Ok(Values {
            seed: load.seed,
            sizes: load.value_bytes,
            pool,
            starts,
        })
    }

    #[inline]
    pub fn value_bytes(&self, number: u64, version: u64) -> usize {
        match self.sizes {
            SizeChoice::Fixed(bytes) => bytes as usize,
            sizes => {
                let random = mix_two(mix_two(self.seed ^ SIZE, number), version);
                sizes.pick(random) as usize
            }
        }
    }

    #[inline]
    fn header(&self, number: u64, version: u64, size: usize) -> (u64, [u8; HEADER_BYTES]) {
        let check = mix_two(mix_two(self.seed ^ size as u64, number), version);
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&check.to_le_bytes());
        header[8..16].copy_from_slice(&number.to_le_bytes());
        header[16..].copy_from_slice(&version.to_le_bytes());
        (check, header)
    }

    /// True if these bytes are that version of that key's value.
    pub fn matches(&self, value: &[u8], number: u64, version: u64) -> bool {
        value.len() == self.value_bytes(number, version)
            && self.matches_of_size(value, number, version)
    }

    /// As [`Values::matches`], of a value that has the size it should.
    pub fn matches_of_size(&self, value: &[u8], number: u64, version: u64) -> bool {
        let size = value.len();
        let (check, header) = self.header(number, version, size);
        let head = size.min(HEADER_BYTES);
        let start = below(check, self.starts) as usize;
        value[..head] == header[..head] && value[head..] == self.pool[start + head..start + size]
    }

    /// What bytes say of themselves, for an error.
    pub fn describe(&self, value: &[u8]) -> String {
        let bytes = value.len();
        let Some(header) = value.first_chunk::<HEADER_BYTES>() else {
            return format!("{bytes} bytes {}", hexadecimal(value));
        };
        let number = little_endian(&header[8..16]);
        let version = little_endian(&header[16..24]);
        let whole = if self.matches(value, number, version) {
            "whole"
        } else {
            "damaged"
        };
        format!("{bytes} bytes, {whole}, of key number {number}, version {version}")
    }

    pub fn append(&self, number: u64, version: u64, values: &mut Vec<u8>) {
        let size = self.value_bytes(number, version);
        self.append_of_size(number, version, size, values);
    }

    /// Appends a value of a size that its job does not choose, but no larger than
    /// the largest.
    pub fn append_of_size(&self, number: u64, version: u64, size: usize, values: &mut Vec<u8>) {
        let (check, header) = self.header(number, version, size);
        let head = size.min(HEADER_BYTES);
        let start = below(check, self.starts) as usize;
        values.extend_from_slice(&header[..head]);
        values.extend_from_slice(&self.pool[start + head..start + size]);
    }

    pub fn lender(&self) -> Lender<'_> {
        Lender {
            values: self,
            pool: self.pool.clone(),
            start: 0,
            covered: *self.pool.first_chunk().unwrap_or(&[0; HEADER_BYTES]),
        }
    }
}

/// Bytes of real values, over and over: starting points, and as many more as the
/// longest value has.
fn sample(path: &Path, longest: usize) -> Result<(u64, Vec<u8>)> {
    let file = Environment::real()
        .file_system
        .open(path, OpenOptions::READ)?;
    let bytes = file.length()?.min(SAMPLE_BYTES);
    let mut pool = file.read_vec_at(0, bytes as usize)?;
    let starts = pool.len();
    if starts == 0 {
        let path = path.display();
        return Err(Error::Usage(format!("{path}: no bytes to make values of")));
    }
    while pool.len() < starts + longest {
        let more = (starts + longest - pool.len()).min(starts);
        pool.extend_from_within(..more);
    }
    Ok((starts as u64, pool))
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The first bytes as two digits each.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let shown = bytes.iter().take(HEADER_BYTES);
    let digits: String = shown.map(|byte| format!("{byte:02x}")).collect();
    let rest = if bytes.len() > HEADER_BYTES {
        "..."
    } else {
        ""
    };
    format!("{digits}{rest}")
}

fn pool(bytes: usize, compressible: f64, seed: u64) -> Vec<u8> {
    let mut random = Random::stream(seed, POOL);
    let mut pool = Vec::with_capacity(bytes + PIECE_BYTES);
    let random_bytes = (PIECE_BYTES as f64 * (1.0 - compressible)).round() as usize;
    while pool.len() < bytes {
        let end = pool.len() + PIECE_BYTES;
        while pool.len() + PIECE_BYTES < end + random_bytes {
            let left = end + random_bytes - PIECE_BYTES - pool.len();
            let number = random.next_u64().to_le_bytes();
            pool.extend_from_slice(&number[..left.min(number.len())]);
        }
        pool.resize(end, b'k');
    }
    pool.truncate(bytes);
    pool
}

/// Lends values to a store without copying them, one at a time.
#[derive(Debug)]
pub struct Lender<'a> {
    values: &'a Values,
    pool: Vec<u8>,
    /// Where the last header stands, and what it covers.
    start: usize,
    covered: [u8; HEADER_BYTES],
}

impl Lender<'_> {
    /// The bytes of a version of a key's value, until the next call.
    #[inline]
    pub fn lend(&mut self, number: u64, version: u64) -> &[u8] {
        let size = self.values.value_bytes(number, version);
        self.lend_of_size(number, version, size)
    }

    /// Likewise of a size that its job does not choose, but no larger than the
    /// largest.
    #[inline]
    pub fn lend_of_size(&mut self, number: u64, version: u64, size: usize) -> &[u8] {
        // Whole headers are saved and put back, also under a shorter value: the
        // pool is longer than that, and a copy of known length is cheap.
        self.pool[self.start..self.start + HEADER_BYTES].copy_from_slice(&self.covered);
        let (check, header) = self.values.header(number, version, size);
        self.start = below(check, self.values.starts) as usize;
        let place = &mut self.pool[self.start..self.start + HEADER_BYTES];
        self.covered.copy_from_slice(place);
        place.copy_from_slice(&header);
        &self.pool[self.start..self.start + size]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::job::tests::load;

    fn values(bytes: SizeChoice, compressible: f64) -> Values {
        let load = Load {
            value_bytes: bytes,
            compressible,
            ..load("fill-random")
        };
        Values::new(&load).unwrap()
    }

    #[test]
    fn a_value_is_itself_and_no_other() {
        for bytes in [4, 8, 20, 24, 100, 5_000] {
            let values = values(SizeChoice::Fixed(bytes), 0.5);
            let mut lender = values.lender();
            for number in 0..50 {
                for version in 0..5 {
                    let value = lender.lend(number, version).to_vec();
                    assert_eq!(value.len() as u64, bytes);
                    assert!(values.matches(&value, number, version));
                    assert!(!values.matches(&value, number, version + 1));
                    assert!(!values.matches(&value, number + 1, version));
                    let mut copy = Vec::new();
                    values.append(number, version, &mut copy);
                    assert_eq!(copy, value);
                }
            }
        }
    }

    #[test]
    fn every_damaged_byte_and_every_wrong_length_is_seen() {
        for bytes in [1, 4, 24, 100] {
            let values = values(SizeChoice::Fixed(bytes), 0.0);
            let value = values.lender().lend(7, 3).to_vec();
            for at in 0..value.len() {
                let mut damaged = value.clone();
                damaged[at] ^= 1;
                assert!(!values.matches(&damaged, 7, 3), "byte {at} of {bytes}");
            }
            assert!(!values.matches(&value[1..], 7, 3));
            assert!(!values.matches(&[value, vec![0]].concat(), 7, 3));
        }
    }

    #[test]
    fn an_empty_value_is_a_value() {
        let values = values(SizeChoice::Fixed(0), 0.5);
        assert_eq!(values.lender().lend(1, 1), b"");
        assert!(values.matches(b"", 1, 1));
        assert!(!values.matches(b"x", 1, 1));
    }

    #[test]
    fn sizes_vary_from_version_to_version() {
        let values = values(SizeChoice::Uniform(10, 200), 0.5);
        let sizes: Vec<usize> = (0..5_000).map(|v| values.value_bytes(1, v)).collect();
        assert_eq!(sizes.iter().min(), Some(&10));
        assert_eq!(sizes.iter().max(), Some(&200));
        let mut lender = values.lender();
        for version in 0..1_000 {
            let value = lender.lend(1, version);
            assert!(values.matches(value, 1, version));
        }
    }

    #[test]
    fn the_compressible_share_is_in_the_pool() {
        for share in [0.0, 0.25, 0.5, 1.0] {
            let values = values(SizeChoice::Fixed(100), share);
            let runs = values.pool.windows(2).filter(|pair| pair == b"kk").count();
            let found = runs as f64 / values.pool.len() as f64;
            assert!((found - share).abs() < 0.02, "{found}, not {share}");
        }
    }

    #[test]
    fn a_wrong_value_is_described() {
        let values = values(SizeChoice::Fixed(30), 0.5);
        let mut value = values.lender().lend(17, 4).to_vec();
        let words = values.describe(&value);
        assert!(
            words.contains("whole, of key number 17, version 4"),
            "{words}"
        );
        value[29] ^= 1;
        assert!(values.describe(&value).contains("damaged"));
        assert_eq!(values.describe(b"\x01\xff"), "2 bytes 01ff");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (bytes, compressible) in [(2 << 30, 0.5), (100, 1.5), (100, f64::NAN)] {
            let load = Load {
                value_bytes: SizeChoice::Fixed(bytes),
                compressible,
                ..load("fill-random")
            };
            assert!(Values::new(&load).is_err());
        }
    }
}
