//! Records: entries framed so that they identify themselves.
//!
//! ```text
//! ┌──────────── header, 12 bytes or more ────────────┬─────────┬─────────┐
//! │ checksums 8 │ kind and parts 1 │ numbers, varints│ payload │ padding │ to the log's
//! └──────────────────────────────────────────────────┴─────────┴─────────┘ alignment
//!
//! numbers = payload_bytes · sequence · session
//!           [ flags · attempt ]                  if the parts byte says so: RARE
//!           [ sequence − synced_through ]        SYNCED
//!           [ batch_index · batch_remaining ]    BATCH
//!           [ auxiliary ]                        AUXILIARY
//! ```
//!
//! Most records leave out most parts: a put of a short key takes 13 to 20 bytes beside key
//! and value.
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

use std::ops::Range;

use cambium_base::checksum::ChecksumSeed;
use cambium_base::coding::{round_up, u32_at};
use cambium_base::layout::{Layout, field};
use cambium_base::varint::{varint_at, varint_bytes};
use cambium_base::{Error, Result, SequenceNumber};
use cambium_io::{crc32c, crc32c_append};

/// The longest header: the fixed part, three numbers of 64 bits and six of 32.
pub const MOST_RECORD_HEADER_BYTES: usize = FIXED_BYTES + 2 * 10 + 6 * 5;

/// The shortest header: the fixed part and three numbers of a byte.
pub const LEAST_RECORD_HEADER_BYTES: usize = FIXED_BYTES + 3;

/// Bytes before the numbers.
const FIXED_BYTES: usize = 9;

/// The record header's layout.
pub const LAYOUT: Layout = Layout {
    name: "Record header",
    about: "Before the payload of every record of a log. The checksum stands first, so that a torn first sector fails at once. Numbers follow as varints: `payload_bytes`; `sequence`; `session` of the opening that wrote the record, raised by every recovery; with part 16 the engine's `flags`, and `attempt`, raised when a write was cut back for lack of space, so that its remains are not mixed with what follows; with part 32 `sequence` less `synced_through`, zigzag: every record up to there was durable when this one was written (0 without that part); with part 64 `batch_index` and `batch_remaining`, the records of the same batch before and after this one; with part 128 `auxiliary`, the engine's own.",
    fields: &[
        field(0, 4, "header_checksum", "CRC-32C of store id, file number, salt, offset and the header's bytes from 4 on: the record is here, and of this file"),
        field(4, 4, "payload_checksum", "CRC-32C of the payload; covered by the header's"),
        field(8, 1, "kind and parts", "the low 4 bits are the engine's own: put, delete, frame and so on; never 0. The high 4 bits say which numbers follow"),
    ],
    size: FIXED_BYTES,
}
.checked();

/// The part of flags and attempt.
const RARE: u8 = 16;
/// The part of `synced_through`.
const SYNCED: u8 = 32;
/// The part of a batch's bounds.
const BATCH: u8 = 64;
/// The part of `auxiliary`.
const AUXILIARY: u8 = 128;
const KIND_MASK: u8 = 15;

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
    /// CRC-32C of the payload; set by decoding.
    pub payload_checksum: u32,
    /// Bytes of the payload; set by decoding.
    pub payload_bytes: u32,
    /// Bytes of the header; set by decoding.
    pub header_bytes: u8,
    /// The engine's own: 1 to 15.
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

/// The bytes of a header.
#[derive(Clone, Copy, Debug)]
pub struct EncodedHeader {
    bytes: [u8; MOST_RECORD_HEADER_BYTES],
    length: usize,
}

impl EncodedHeader {
    fn push(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes[self.length] = number as u8 | 0x80;
            self.length += 1;
            number >>= 7;
        }
        self.bytes[self.length] = number as u8;
        self.length += 1;
    }
}

impl std::ops::Deref for EncodedHeader {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The varints of a header, one after the other.
struct Numbers<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Numbers<'_> {
    fn long(&mut self) -> Option<u64> {
        let (number, length) = varint_at(self.bytes.get(self.at..)?)?;
        self.at += length;
        Some(number)
    }

    fn short(&mut self) -> Option<u32> {
        u32::try_from(self.long()?).ok()
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
        let total = aligned((into.len() - start) as u64, alignment);
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
    ) -> EncodedHeader {
        debug_assert!((1..=KIND_MASK).contains(&self.kind), "kinds have 4 bits");
        let payload_bytes: usize = payload.iter().map(|part| part.len()).sum();
        let payload_bytes = u32::try_from(payload_bytes).expect("payloads are under 4 GiB");
        let checksum = match payload {
            [] => crc32c(&[]),
            [first, rest @ ..] => rest
                .iter()
                .fold(crc32c(first), |so_far, part| crc32c_append(so_far, part)),
        };
        let parts = self.parts();
        let mut header = EncodedHeader {
            bytes: [0; MOST_RECORD_HEADER_BYTES],
            length: FIXED_BYTES,
        };
        header.bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        header.bytes[8] = self.kind | parts;
        self.for_each_number(u64::from(payload_bytes), parts, |number| {
            header.push(number)
        });
        let checksum = seed.at(offset, &header[4..]);
        header.bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    /// Shows the numbers of the header, in their order, before a payload.
    #[inline]
    fn for_each_number(&self, payload_bytes: u64, parts: u8, mut take: impl FnMut(u64)) {
        take(payload_bytes);
        take(self.sequence.0);
        take(u64::from(self.session));
        if parts & RARE != 0 {
            take(u64::from(self.flags));
            take(u64::from(self.attempt));
        }
        if parts & SYNCED != 0 {
            take(zigzag(self.sequence.0.wrapping_sub(self.synced_through.0)));
        }
        if parts & BATCH != 0 {
            take(u64::from(self.batch_index));
            take(u64::from(self.batch_remaining));
        }
        if parts & AUXILIARY != 0 {
            take(u64::from(self.auxiliary));
        }
    }

    /// The bits of the numbers that the header has beside those of every header.
    fn parts(&self) -> u8 {
        let part = |is_there: bool, part: u8| if is_there { part } else { 0 };
        part(self.flags != 0 || self.attempt != 0, RARE)
            | part(self.synced_through.0 != 0, SYNCED)
            | part(self.batch_index != 0 || self.batch_remaining != 0, BATCH)
            | part(self.auxiliary != 0, AUXILIARY)
    }

    /// Decodes the header at the start of `bytes`, which lie at `offset`.
    /// [`MOST_RECORD_HEADER_BYTES`] are always enough.
    #[inline]
    pub fn decode(bytes: &[u8], seed: &ChecksumSeed, offset: u64) -> Result<Self, NotARecord> {
        let Some(fixed) = bytes.first_chunk::<FIXED_BYTES>() else {
            return Err(NotARecord::TooShort);
        };
        let Some(header) = Self::verified_before(bytes) else {
            return Err(match fixed.iter().all(|&byte| byte == 0) {
                true => NotARecord::Zeros,
                false if bytes.len() < MOST_RECORD_HEADER_BYTES => NotARecord::TooShort,
                false => NotARecord::HeaderChecksum,
            });
        };
        let covered = &bytes[4..usize::from(header.header_bytes)];
        if u32_at(fixed, 0) != seed.at(offset, covered) {
            return Err(NotARecord::HeaderChecksum);
        }
        Ok(header)
    }

    /// The header at the start of bytes that were verified before, and have not left
    /// memory since; `None` of what is none, or too few.
    #[inline]
    pub fn verified_before(bytes: &[u8]) -> Option<Self> {
        let first = *bytes.get(FIXED_BYTES - 1)?;
        let (kind, parts) = (first & KIND_MASK, first & !KIND_MASK);
        if kind == 0 {
            return None;
        }
        let mut numbers = Numbers {
            bytes,
            at: FIXED_BYTES,
        };
        let mut header = RecordHeader {
            kind,
            payload_checksum: u32_at(bytes, 4),
            payload_bytes: numbers.short()?,
            sequence: SequenceNumber(numbers.long()?),
            session: numbers.short()?,
            ..RecordHeader::default()
        };
        if parts & RARE != 0 {
            header.flags = u8::try_from(numbers.short()?).ok()?;
            header.attempt = u16::try_from(numbers.short()?).ok()?;
        }
        if parts & SYNCED != 0 {
            let before = unzigzag(numbers.long()?);
            header.synced_through = SequenceNumber(header.sequence.0.wrapping_sub(before));
        }
        if parts & BATCH != 0 {
            header.batch_index = numbers.short()?;
            header.batch_remaining = numbers.short()?;
        }
        if parts & AUXILIARY != 0 {
            header.auxiliary = numbers.short()?;
        }
        header.header_bytes = u8::try_from(numbers.at).ok()?;
        Some(header)
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

    /// Bytes that the record takes in a log of that alignment.
    pub fn total_bytes(&self, alignment: u64) -> u64 {
        self.record_bytes(u64::from(self.payload_bytes), alignment)
    }

    /// Bytes from the start of a decoded header to the end of its payload.
    #[inline]
    pub fn end(&self) -> usize {
        usize::from(self.header_bytes) + self.payload_bytes as usize
    }

    /// Where the payload of a decoded header lies, from the start of the record.
    #[inline]
    pub fn payload_range(&self) -> Range<usize> {
        usize::from(self.header_bytes)..self.end()
    }

    /// The payload in the bytes of a record; `None` of too few.
    #[inline]
    pub fn payload_in<'b>(&self, record: &'b [u8]) -> Option<&'b [u8]> {
        record.get(self.payload_range())
    }

    /// Bytes that a record with such a payload will take in a log of that alignment.
    pub fn record_bytes(&self, payload_bytes: u64, alignment: u64) -> u64 {
        let header = self.header_bytes_before(payload_bytes) as u64;
        aligned(header + payload_bytes, alignment)
    }

    /// Bytes that the header will take before such a payload.
    pub fn header_bytes_before(&self, payload_bytes: u64) -> usize {
        let mut header = FIXED_BYTES;
        let add = |number| header += varint_bytes(number);
        self.for_each_number(payload_bytes, self.parts(), add);
        header
    }

    /// The sequence number of the first record of its batch.
    pub fn batch_first(&self) -> SequenceNumber {
        SequenceNumber(self.sequence.0.saturating_sub(u64::from(self.batch_index)))
    }
}

/// An upper bound of the bytes that a record with such a payload takes in a log of that
/// alignment, whatever its header says.
#[inline]
pub fn most_record_bytes(payload_bytes: u64, alignment: u64) -> u64 {
    aligned(MOST_RECORD_HEADER_BYTES as u64 + payload_bytes, alignment)
}

/// Bytes up to the next multiple of an alignment.
pub(crate) fn aligned(bytes: u64, alignment: u64) -> u64 {
    round_up(bytes, alignment).expect("payloads are under 4 GiB")
}

/// Numbers near zero on both sides as small ones.
fn zigzag(number: u64) -> u64 {
    number << 1 ^ ((number as i64) >> 63) as u64
}

fn unzigzag(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
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
        header
            .check_payload(header.payload_in(&bytes).unwrap())
            .unwrap();
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
    fn every_part_comes_back_and_its_bytes_are_foretold() {
        let seed = ChecksumSeed::new(&FileIdentity::default());
        let numbers = [0, 1, 127, 128, 1 << 20, u32::MAX];
        for parts in 0..1u32 << 5 {
            for number in numbers {
                let of = |bit: u32| if parts >> bit & 1 == 1 { number } else { 0 };
                let header = RecordHeader {
                    kind: 15,
                    flags: of(0) as u8,
                    attempt: of(0) as u16,
                    sequence: SequenceNumber(u64::from(of(1)) << 31),
                    synced_through: SequenceNumber(u64::from(of(2)) << 32),
                    session: number,
                    batch_index: of(3),
                    batch_remaining: of(3) / 2,
                    auxiliary: of(4),
                    ..RecordHeader::default()
                };
                let mut bytes = Vec::new();
                let total = header.encode(&seed, 64, &[b"leaf"], 8, &mut bytes);
                assert_eq!(total, header.record_bytes(4, 8));
                assert!(total <= most_record_bytes(4, 8));
                let found = RecordHeader::decode(&bytes, &seed, 64).unwrap();
                assert_eq!(found.total_bytes(8), total);
                let known = RecordHeader {
                    payload_checksum: found.payload_checksum,
                    payload_bytes: 4,
                    header_bytes: found.header_bytes,
                    ..header
                };
                assert_eq!(found, known);
            }
        }
    }

    #[test]
    fn a_put_takes_little_beside_key_and_value() {
        let header = RecordHeader {
            kind: 1,
            sequence: SequenceNumber(50_000_000),
            session: 3,
            auxiliary: 16,
            ..RecordHeader::default()
        };
        assert_eq!(header.record_bytes(116, 1), 116 + 16);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (seed, bytes) = sample();
        let whole = RecordHeader::decode(&bytes, &seed, 4096).unwrap().end();
        for bit in 0..whole * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let sound = RecordHeader::decode(&damaged, &seed, 4096).and_then(|header| {
                header.check_payload(header.payload_in(&damaged).unwrap_or_default())
            });
            assert!(sound.is_err(), "bit {bit}");
        }
    }

    #[test]
    fn zeros_and_short_bytes_are_no_record() {
        let (seed, bytes) = sample();
        let decode = |bytes: &[u8]| RecordHeader::decode(bytes, &seed, 4096);
        assert_eq!(decode(&[0; 48]), Err(NotARecord::Zeros));
        let header = decode(&bytes).unwrap().header_bytes;
        for cut in 0..usize::from(header) {
            assert_eq!(decode(&bytes[..cut]), Err(NotARecord::TooShort));
        }
    }
}
