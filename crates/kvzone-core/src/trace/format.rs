//! Codec of a trace's header, chunks and records; the layout stands in the
//! module's essay.

use cambium_base::coding::Decoder;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::Traced;

pub(super) const MAGIC: &[u8; 8] = b"kvztrace";
/// The version that is written, and the only one that is read.
pub(super) const VERSION: u32 = 2;
pub(super) const HEADER_BYTES: usize = 16;
pub(super) const CHUNK_HEADER_BYTES: usize = 24;
/// A chunk is written when it holds so many bytes ...
pub(super) const CHUNK_BYTES: usize = 64 << 10;
/// ... and can hold more where one record does, but no more than these.
pub(super) const MOST_CHUNK_BYTES: usize = 64 << 20;

pub(super) fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let checksum = xxh3_64(&header[..12]) as u32;
    header[12..].copy_from_slice(&checksum.to_le_bytes());
    header
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkHeader {
    pub(super) payload_bytes: u32,
    pub(super) records: u32,
    pub(super) number: u64,
    checksum: u64,
}

fn checksum(front: &[u8], payload: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(front);
    hash.update(payload);
    hash.digest()
}

impl ChunkHeader {
    pub(super) fn encode(payload: &[u8], records: u32, number: u64) -> [u8; CHUNK_HEADER_BYTES] {
        let mut bytes = [0; CHUNK_HEADER_BYTES];
        bytes[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&records.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        let sum = checksum(&bytes[..16], payload);
        bytes[16..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; CHUNK_HEADER_BYTES]) -> Option<ChunkHeader> {
        let mut decoder = Decoder::new(bytes);
        Some(ChunkHeader {
            payload_bytes: decoder.u32()?,
            records: decoder.u32()?,
            number: decoder.u64()?,
            checksum: decoder.u64()?,
        })
    }

    /// True if header and payload are what was written.
    pub(super) fn is_whole(&self, bytes: &[u8; CHUNK_HEADER_BYTES], payload: &[u8]) -> bool {
        checksum(&bytes[..16], payload) == self.checksum
    }
}

/// Appends a record that began at `at`, after one that began at `before`.
pub(super) fn encode(
    into: &mut Vec<u8>,
    (thread, at, before): (u32, u64, u64),
    operation: &Traced<'_>,
) -> postcard::Result<()> {
    let record = (thread, at.wrapping_sub(before) as i64, operation);
    let written = postcard::to_extend(&record, std::mem::take(into))?;
    *into = written;
    Ok(())
}

/// Takes the next record from a chunk: thread, moment, operation. None where the
/// bytes are no record.
pub(super) fn decode<'a>(from: &mut &'a [u8], before: u64) -> Option<(u32, u64, Traced<'a>)> {
    let (record, rest) = postcard::take_from_bytes::<(u32, i64, Traced<'a>)>(from).ok()?;
    *from = rest;
    let (thread, distance, operation) = record;
    Some((thread, before.wrapping_add_signed(distance), operation))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_make_the_decoder_fail_or_allocate_much() {
        let mut random = crate::random::Random::new(7);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..24).map(|_| random.next_u64() as u8).collect();
            let mut rest = bytes.as_slice();
            let decoded = decode(&mut rest, 5);
            assert!(decoded.is_none() || rest.len() < bytes.len());
        }
        // A batch that counts more changes than there are bytes.
        let mut greedy = vec![0, 0, 5];
        greedy.extend([0xff; 9]);
        greedy.push(1);
        assert_eq!(decode(&mut greedy.as_slice(), 0), None);
    }
}
