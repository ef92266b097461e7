//! Codec of a trace's header, chunks and records; the layout stands in the
//! module's essay.

use cambium_base::coding::Decoder;
use cambium_base::varint::{put_varint, put_varint_prefixed};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{Answer, Traced, TracedChange};

/// The first bytes of every trace.
pub(super) const MAGIC: &[u8; 8] = b"kvztrace";
/// The version that is written, and the only one that is read.
pub(super) const VERSION: u32 = 1;
/// Bytes of the file's header.
pub(super) const HEADER_BYTES: usize = 16;
/// Bytes of a chunk's header.
pub(super) const CHUNK_HEADER_BYTES: usize = 24;
/// A chunk is written when it holds so many bytes ...
pub(super) const CHUNK_BYTES: usize = 64 << 10;
/// ... and can hold more where one record does, but no more than these.
pub(super) const MOST_CHUNK_BYTES: usize = 64 << 20;

const LOAD: u8 = 0;
const PUT: u8 = 1;
const GET: u8 = 2;
const DELETE: u8 = 3;
const SCAN: u8 = 4;
const BATCH: u8 = 5;

/// The file's header.
pub(super) fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let checksum = xxh3_64(&header[..12]) as u32;
    header[12..].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// A chunk's header.
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
    /// The header's bytes, for a payload.
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

/// Small numbers of either sign as small numbers.
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Appends a record that began at `at`, after one that began at `before`.
pub(super) fn encode(
    into: &mut Vec<u8>,
    (thread, at, before): (u32, u64, u64),
    operation: &Traced<'_>,
) {
    into.push(match operation {
        Traced::Load { .. } => LOAD,
        Traced::Put { .. } => PUT,
        Traced::Get { .. } => GET,
        Traced::Delete { .. } => DELETE,
        Traced::Scan { .. } => SCAN,
        Traced::Batch(_) => BATCH,
    });
    put_varint(into, u64::from(thread));
    put_varint(into, zigzag(at.wrapping_sub(before) as i64));
    match operation {
        Traced::Load { key, value_bytes } | Traced::Put { key, value_bytes } => {
            put_varint_prefixed(into, key);
            put_varint(into, *value_bytes);
        }
        Traced::Get { key, answer } => {
            put_varint_prefixed(into, key);
            put_varint(
                into,
                match answer {
                    Answer::Unknown => 0,
                    Answer::Absent => 1,
                    Answer::Found(bytes) => bytes.saturating_add(2),
                },
            );
        }
        Traced::Delete { key } => put_varint_prefixed(into, key),
        Traced::Scan {
            from,
            limit,
            visited,
        } => {
            put_varint_prefixed(into, from);
            put_varint(into, *limit);
            put_varint(into, visited.map_or(0, |entries| entries.saturating_add(1)));
        }
        Traced::Batch(changes) => {
            put_varint(into, changes.len() as u64);
            for change in changes {
                into.push(u8::from(change.value_bytes.is_none()));
                put_varint_prefixed(into, change.key);
                if let Some(bytes) = change.value_bytes {
                    put_varint(into, bytes);
                }
            }
        }
    }
}

/// Takes the next record from a chunk: thread, moment, operation. None where the
/// bytes are no record.
pub(super) fn decode<'a>(from: &mut Decoder<'a>, before: u64) -> Option<(u32, u64, Traced<'a>)> {
    let kind = from.u8()?;
    let thread = u32::try_from(from.varint()?).ok()?;
    let at = before.wrapping_add_signed(unzigzag(from.varint()?));
    let operation = match kind {
        LOAD => Traced::Load {
            key: from.varint_prefixed()?,
            value_bytes: from.varint()?,
        },
        PUT => Traced::Put {
            key: from.varint_prefixed()?,
            value_bytes: from.varint()?,
        },
        GET => Traced::Get {
            key: from.varint_prefixed()?,
            answer: match from.varint()? {
                0 => Answer::Unknown,
                1 => Answer::Absent,
                bytes => Answer::Found(bytes - 2),
            },
        },
        DELETE => Traced::Delete {
            key: from.varint_prefixed()?,
        },
        SCAN => Traced::Scan {
            from: from.varint_prefixed()?,
            limit: from.varint()?,
            visited: from.varint()?.checked_sub(1),
        },
        BATCH => Traced::Batch(changes(from)?),
        _ => return None,
    };
    Some((thread, at, operation))
}

fn changes<'a>(from: &mut Decoder<'a>) -> Option<Vec<TracedChange<'a>>> {
    let count = from.varint()?;
    // Each takes two bytes at least: a count beyond that allocates nothing.
    if count > from.remaining() as u64 / 2 {
        return None;
    }
    let mut changes = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let deletes = match from.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        changes.push(TracedChange {
            key: from.varint_prefixed()?,
            value_bytes: match deletes {
                true => None,
                false => Some(from.varint()?),
            },
        });
    }
    Some(changes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn signs_come_back() {
        for number in [0, 1, -1, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(number)), number);
        }
    }

    #[test]
    fn no_bytes_make_the_decoder_fail_or_allocate_much() {
        let mut random = crate::random::Random::new(7);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..24).map(|_| random.next_u64() as u8).collect();
            let mut decoder = Decoder::new(&bytes);
            let decoded = decode(&mut decoder, 5);
            assert!(decoded.is_none() || decoder.remaining() < bytes.len());
        }
        let mut greedy = vec![BATCH, 0, 0];
        put_varint(&mut greedy, u64::MAX);
        assert_eq!(decode(&mut Decoder::new(&greedy), 0), None);
    }
}
