//! Records: entries framed so that they identify themselves.
//!
//! ```text
//! ┌────────────── 48 bytes ──────────────┬───────────┬─────────┐
//! │ header, checked on its own            │ payload   │ padding │ to the log's alignment
//! └──────────────────────────────────────┴───────────┴─────────┘
//! ```
//!
//! The header's checksum is seeded by store, file and offset and covers the
//! payload's checksum, so a record is believed only where it was written. The
//! header has a checksum of its own so that its length can be trusted before
//! the payload is read: a huge length in a torn tail allocates nothing. Zeros
//! are never a record.
//!
//! `sequence` and `synced_through` let recovery tell a torn tail from damage:
//! a record that is missing at or below the largest `synced_through` was
//! promised. `batch_index` and `batch_remaining` let it see a batch whole or
//! drop it whole, wherever its records lie.

use cambium_base::checksum::ChecksumSeed;
use cambium_base::coding::{round_up, u16_at, u32_at, u64_at};
use cambium_base::layout::{Layout, field};
use cambium_base::{Error, Result, SequenceNumber};
use cambium_io::{crc32c, crc32c_append};

/// Bytes of an encoded record header.
pub const RECORD_HEADER_BYTES: usize = 48;

/// The record header's layout.
pub const LAYOUT: Layout = Layout {
    name: "Record header",
    about: "Before the payload of every record of a log. The checksum stands first, so that a torn first sector fails at once; what recovery needs stands before what only reading needs.",
    fields: &[
        field(0, 4, "header_checksum", "CRC-32C of store id, file number, salt, offset and bytes 4 to 47: the record is here, and of this file"),
        field(4, 4, "payload_checksum", "CRC-32C of the payload; covered by the header's"),
        field(8, 4, "payload_bytes", "length of the payload"),
        field(12, 1, "kind", "the engine's own: put, delete, frame and so on; never 0"),
        field(13, 1, "flags", "the engine's own"),
        field(14, 2, "attempt", "raised when a write was cut back for lack of space, so that its remains are not mixed with what follows"),
        field(16, 8, "sequence", "sequence number"),
        field(24, 8, "synced_through", "every record up to here was durable when this one was written"),
        field(32, 4, "session", "of the opening that wrote it; raised by every recovery"),
        field(36, 4, "batch_index", "records of the same batch before this one"),
        field(40, 4, "batch_remaining", "records of the same batch after this one"),
        field(44, 4, "auxiliary", "the engine's own"),
    ],
    size: RECORD_HEADER_BYTES,
}
.checked();

/// The attempt after one that was taken back. The last one has no next: a number that
/// came again would make recovery believe remains of a write that was taken back.
///
/// # Errors
/// If the session has used all attempts; the caller must reopen the store.
pub fn next_attempt(attempt: u16) -> Result<u16> {
    attempt.checked_add(1).ok_or_else(|| {
        Error::LimitExceeded(format!(
            "{} writes were taken back for lack of space since the store was opened: make room, then reopen the store",
            u16::MAX
        ))
    })
}

/// A decoded record header, or what is to be encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHeader {
    /// CRC-32C of the payload; set by encoding.
    pub payload_checksum: u32,
    /// Bytes of the payload; set by encoding.
    pub payload_bytes: u32,
    /// The engine's own; never 0.
    pub kind: u8,
    /// The engine's own.
    pub flags: u8,
    /// See the layout.
    pub attempt: u16,
    /// Sequence number.
    pub sequence: SequenceNumber,
    /// Everything up to here was durable.
    pub synced_through: SequenceNumber,
    /// Of the opening that wrote it.
    pub session: u32,
    /// Records of the same batch before this one.
    pub batch_index: u32,
    /// Records of the same batch after this one.
    pub batch_remaining: u32,
    /// The engine's own.
    pub auxiliary: u32,
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotARecord {
    /// Nothing but zeros: padding, or space never written.
    Zeros,
    /// Fewer bytes than a header.
    TooShort,
    /// The header's checksum does not match.
    HeaderChecksum,
    /// The payload's checksum does not match.
    PayloadChecksum,
}

impl std::fmt::Display for NotARecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            NotARecord::Zeros => "zeros where a record was expected",
            NotARecord::TooShort => "the file ends within a record's header",
            NotARecord::HeaderChecksum => "the record header does not match its checksum",
            NotARecord::PayloadChecksum => "the record's payload does not match its checksum",
        })
    }
}

impl RecordHeader {
    /// Appends header, payload and padding to `into`, as they will lie at
    /// `offset`. Answers the bytes appended, a multiple of `alignment`.
    ///
    /// # Panics
    /// If the payload is 4 GiB or longer; the limits of keys and values keep
    /// it below.
    pub fn encode(
        &self,
        seed: &ChecksumSeed,
        offset: u64,
        payload: &[&[u8]],
        alignment: u64,
        into: &mut Vec<u8>,
    ) -> u64 {
        let start = into.len();
        into.extend_from_slice(&self.encode_header(seed, offset, payload));
        payload.iter().for_each(|part| into.extend_from_slice(part));
        let total = record_bytes((into.len() - start - RECORD_HEADER_BYTES) as u64, alignment);
        into.resize(start + total as usize, 0);
        total
    }

    /// The header's bytes for a payload that will follow it at `offset`.
    ///
    /// # Panics
    /// As [`RecordHeader::encode`].
    pub fn encode_header(
        &self,
        seed: &ChecksumSeed,
        offset: u64,
        payload: &[&[u8]],
    ) -> [u8; RECORD_HEADER_BYTES] {
        let payload_length: usize = payload.iter().map(|part| part.len()).sum();
        let checksum = match payload {
            [] => crc32c(&[]),
            [first, rest @ ..] => rest
                .iter()
                .fold(crc32c(first), |so_far, part| crc32c_append(so_far, part)),
        };
        let filled = RecordHeader {
            payload_checksum: checksum,
            payload_bytes: u32::try_from(payload_length).expect("payloads are under 4 GiB"),
            ..*self
        };
        filled.header_bytes(seed, offset)
    }

    fn header_bytes(&self, seed: &ChecksumSeed, offset: u64) -> [u8; RECORD_HEADER_BYTES] {
        debug_assert_ne!(self.kind, 0, "kind 0 is never written");
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[4..8].copy_from_slice(&self.payload_checksum.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[12] = self.kind;
        bytes[13] = self.flags;
        bytes[14..16].copy_from_slice(&self.attempt.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.synced_through.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.session.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.batch_index.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.batch_remaining.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.auxiliary.to_le_bytes());
        let checksum = seed.at(offset, &bytes[4..]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes the header at the start of `bytes`, which lie at `offset`.
    #[inline]
    pub fn decode(bytes: &[u8], seed: &ChecksumSeed, offset: u64) -> Result<Self, NotARecord> {
        let Some(bytes) = bytes.get(..RECORD_HEADER_BYTES) else {
            return Err(NotARecord::TooShort);
        };
        if bytes.iter().all(|&byte| byte == 0) {
            return Err(NotARecord::Zeros);
        }
        if u32_at(bytes, 0) != seed.at(offset, &bytes[4..]) {
            return Err(NotARecord::HeaderChecksum);
        }
        Self::verified_before(bytes).ok_or(NotARecord::TooShort)
    }

    /// The header at the start of bytes that were verified before, and have not left
    /// memory since; `None` of too few.
    #[inline]
    pub fn verified_before(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..RECORD_HEADER_BYTES)?;
        Some(RecordHeader {
            payload_checksum: u32_at(bytes, 4),
            payload_bytes: u32_at(bytes, 8),
            kind: bytes[12],
            flags: bytes[13],
            attempt: u16_at(bytes, 14),
            sequence: SequenceNumber(u64_at(bytes, 16)),
            synced_through: SequenceNumber(u64_at(bytes, 24)),
            session: u32_at(bytes, 32),
            batch_index: u32_at(bytes, 36),
            batch_remaining: u32_at(bytes, 40),
            auxiliary: u32_at(bytes, 44),
        })
    }

    /// Checks a payload against the header.
    #[inline]
    pub fn check_payload(&self, payload: &[u8]) -> Result<(), NotARecord> {
        if payload.len() == self.payload_bytes as usize && crc32c(payload) == self.payload_checksum
        {
            return Ok(());
        }
        Err(NotARecord::PayloadChecksum)
    }

    /// Bytes the record takes in a log of that alignment.
    pub fn total_bytes(&self, alignment: u64) -> u64 {
        record_bytes(u64::from(self.payload_bytes), alignment)
    }

    /// The sequence number of the first record of its batch.
    pub fn batch_first(&self) -> SequenceNumber {
        SequenceNumber(self.sequence.0.saturating_sub(u64::from(self.batch_index)))
    }
}

/// Bytes a record with such a payload takes in a log of that alignment.
#[inline]
pub fn record_bytes(payload_bytes: u64, alignment: u64) -> u64 {
    let bytes = RECORD_HEADER_BYTES as u64 + payload_bytes;
    round_up(bytes, alignment).expect("payloads are under 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_base::FileIdentity;

    fn sample() -> (ChecksumSeed, Vec<u8>) {
        let seed = ChecksumSeed::new(&FileIdentity::default());
        let header = RecordHeader {
            kind: 1,
            sequence: SequenceNumber(7),
            session: 3,
            ..RecordHeader::default()
        };
        let mut bytes = Vec::new();
        let total = header.encode(&seed, 4096, &[b"bark", b"leaf"], 8, &mut bytes);
        assert_eq!(total as usize, bytes.len());
        (seed, bytes)
    }

    #[test]
    fn a_record_reads_back_where_it_was_written_and_nowhere_else() {
        let (seed, bytes) = sample();
        let header = RecordHeader::decode(&bytes, &seed, 4096).unwrap();
        assert_eq!((header.sequence.0, header.session), (7, 3));
        header.check_payload(&bytes[48..56]).unwrap();
        assert!(RecordHeader::decode(&bytes, &seed, 4104).is_err());
        let other = ChecksumSeed::new(&FileIdentity {
            salt: 1,
            ..FileIdentity::default()
        });
        assert!(RecordHeader::decode(&bytes, &other, 4096).is_err());
    }

    #[test]
    fn attempts_end_and_never_begin_again() {
        assert_eq!(next_attempt(0).unwrap(), 1);
        assert_eq!(next_attempt(u16::MAX - 1).unwrap(), u16::MAX);
        assert!(next_attempt(u16::MAX).is_err());
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (seed, bytes) = sample();
        for bit in 0..56 * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let sound = RecordHeader::decode(&damaged, &seed, 4096)
                .and_then(|header| header.check_payload(&damaged[48..56]));
            assert!(sound.is_err(), "bit {bit}");
        }
    }

    #[test]
    fn zeros_and_short_bytes_are_no_record() {
        let (seed, bytes) = sample();
        assert_eq!(
            RecordHeader::decode(&[0; 48], &seed, 0),
            Err(NotARecord::Zeros)
        );
        assert_eq!(
            RecordHeader::decode(&bytes[..47], &seed, 4096),
            Err(NotARecord::TooShort)
        );
    }
}
