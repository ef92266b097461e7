//! Packed blocks: many small documents in one record.
//!
//! A record of its own costs a document about 20 bytes of header and padding, and its
//! checksum is computed each time it is looked at. A compaction has documents in the order of their
//! keys, and puts small ones into blocks instead:
//!
//! ```text
//! ┌ record header ┬ fixed part ┬ ends ───────────┬ entry ┬ entry ┬ … ┐
//! │ ≤ 40 bytes    │ 12 bytes   │ 2 bytes an entry│       │       │   │  4 KiB at most,
//! └───────────────┴────────────┴─────────────────┴───────┴───────┴───┘  at a multiple of 4 KiB
//!
//! entry = sequence − base (varint) · key's length (varint) · key · value
//! ```
//!
//! An entry is found by its number among the others, which is part of its address
//! ([`DocumentAddress::slot`]). A block is verified once, when it comes into memory; what
//! is cached of it is its payload, and was verified.

use cambium_base::coding::{u16_at, u64_at};
use cambium_base::layout::{Layout, field};
use cambium_base::varint::{put_varint, varint_at, varint_bytes};

use crate::database::DocumentBytes;
use crate::document::{DOCUMENT_ALIGNMENT, DocumentAddress, PACKED_BLOCK_BYTES};

/// The fixed part of a block's payload.
pub const PACKED_LAYOUT: Layout = Layout {
    name: "Packed block",
    about: "The payload of a record of many small documents. The ends of its entries follow, 2 bytes each, from the start of the payload, then the entries: sequence number less the base, and length of the key, as varints, then key and value.",
    fields: &[
        field(0, 8, "base", "the smallest sequence number"),
        field(8, 2, "namespace", "of all entries"),
        field(10, 2, "count", "entries"),
    ],
    size: FIXED_BYTES,
}
.checked();

const FIXED_BYTES: usize = 12;
const END_BYTES: usize = 2;
/// The longest header of its record: the parts of a moved record, which has no batch.
const MOST_HEADER_BYTES: usize = 40;
/// Bytes of the largest payload.
const MOST_PAYLOAD: usize = PACKED_BLOCK_BYTES as usize - MOST_HEADER_BYTES;
/// Documents of a block: an address has no more numbers for them.
const MOST_DOCUMENTS: usize = (PACKED_BLOCK_BYTES / DOCUMENT_ALIGNMENT) as usize;
/// Documents that are no larger always go into a block: it is left no emptier than by an
/// eighth.
const SMALL_BYTES: usize = 512;
/// Larger ones go where an open block has room for them, up to this.
const LARGEST_BYTES: usize = 2 << 10;
/// A block that would be no fuller than this is not worth its place.
const LEAST_PAYLOAD: usize = MOST_PAYLOAD / 2;

/// Bytes that a document takes of a payload, but for the number of its write.
fn entry_bytes(key: &[u8], value: &[u8]) -> usize {
    END_BYTES + varint_bytes(key.len() as u64) + key.len() + value.len()
}

/// The payload of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedBlock<'b> {
    bytes: &'b [u8],
}

impl<'b> PackedBlock<'b> {
    /// A payload whose checksum was compared. `None` if it cannot be one of a block.
    #[inline]
    pub fn of(bytes: &'b [u8]) -> Option<Self> {
        let block = PackedBlock { bytes };
        (bytes.len() >= FIXED_BYTES && bytes.len() >= block.entries_begin()).then_some(block)
    }

    /// How many documents it has.
    pub fn count(&self) -> usize {
        usize::from(u16_at(self.bytes, 10))
    }

    fn entries_begin(&self) -> usize {
        FIXED_BYTES + END_BYTES * self.count()
    }

    /// A document by its number, and where its value ends in the payload; `None` if there
    /// is none.
    #[inline]
    pub fn document(&self, slot: usize) -> Option<(DocumentBytes<'b>, usize)> {
        let bytes = self.bytes;
        if slot >= self.count() {
            return None;
        }
        let at = FIXED_BYTES + END_BYTES * slot;
        let end = usize::from(u16_at(bytes, at));
        let start = match slot {
            0 => self.entries_begin(),
            _ => usize::from(u16_at(bytes, at - END_BYTES)),
        };
        let entry = bytes.get(start..end)?;
        let (after_base, number_bytes) = varint_at(entry)?;
        let (key_bytes, length_bytes) = varint_at(&entry[number_bytes..])?;
        let entry = &entry[number_bytes + length_bytes..];
        let (key, value) = entry.split_at_checked(usize::try_from(key_bytes).ok()?)?;
        let document = DocumentBytes {
            namespace: u16_at(bytes, 8),
            sequence: u64_at(bytes, 0).checked_add(after_base)?,
            key,
            value,
        };
        Some((document, end))
    }
}

/// A document on its way into a block.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    sequence: u64,
    /// Ends of key and value in the packer's bytes.
    key_end: usize,
    end: usize,
}

/// Gathers documents of one namespace, in the order of their keys, for a block.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    namespace: u16,
    waiting: Vec<Waiting>,
    bytes: Vec<u8>,
    /// Bytes of the payload so far, but for the numbers of writes.
    payload: usize,
    lowest: u64,
    highest: u64,
}

/// The packer's answer to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// It waits for the block now.
    Taken,
    /// The block is full: it has to be written first.
    Full,
    /// It is to be a record of its own.
    Apart,
}

impl Packer {
    /// Offers a document.
    pub fn offer(&mut self, document: &DocumentBytes<'_>) -> Packing {
        let DocumentBytes {
            namespace,
            sequence,
            key,
            value,
        } = *document;
        let bytes = entry_bytes(key, value);
        if bytes > LARGEST_BYTES || bytes > SMALL_BYTES && self.waiting.is_empty() {
            return Packing::Apart;
        }
        if self.waiting.is_empty() {
            (self.namespace, self.payload) = (namespace, FIXED_BYTES);
            (self.lowest, self.highest) = (sequence, sequence);
        }
        let (lowest, highest) = (self.lowest.min(sequence), self.highest.max(sequence));
        let numbers = varint_bytes(highest - lowest) * (self.waiting.len() + 1);
        let has_room = namespace == self.namespace
            && self.waiting.len() < MOST_DOCUMENTS
            && self.payload + bytes + numbers <= MOST_PAYLOAD;
        if !has_room {
            return match bytes > SMALL_BYTES {
                true => Packing::Apart,
                false => Packing::Full,
            };
        }
        self.payload += bytes;
        (self.lowest, self.highest) = (lowest, highest);
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.waiting.push(Waiting {
            sequence,
            key_end,
            end: self.bytes.len(),
        });
        Packing::Taken
    }

    /// True if a block of them would be full enough.
    pub fn is_worth_a_block(&self) -> bool {
        self.payload >= LEAST_PAYLOAD
    }

    /// The smallest number of a write among them.
    pub fn lowest(&self) -> u64 {
        self.lowest
    }

    /// The namespace of those that wait.
    pub fn namespace(&self) -> u16 {
        self.namespace
    }

    /// Documents that wait.
    pub fn documents(&self) -> impl Iterator<Item = DocumentBytes<'_>> {
        let starts = std::iter::once(0).chain(self.waiting.iter().map(|waiting| waiting.end));
        self.waiting.iter().zip(starts).map(|(waiting, start)| {
            let Waiting {
                sequence,
                key_end,
                end,
            } = *waiting;
            DocumentBytes {
                namespace: self.namespace,
                sequence,
                key: &self.bytes[start..key_end],
                value: &self.bytes[key_end..end],
            }
        })
    }

    /// The payload of their block.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(PACKED_BLOCK_BYTES as usize);
        payload.extend_from_slice(&self.lowest.to_le_bytes());
        payload.extend_from_slice(&self.namespace.to_le_bytes());
        payload.extend_from_slice(&(self.waiting.len() as u16).to_le_bytes());
        payload.resize(FIXED_BYTES + END_BYTES * self.waiting.len(), 0);
        for (slot, document) in self.documents().enumerate() {
            put_varint(&mut payload, document.sequence - self.lowest);
            put_varint(&mut payload, document.key.len() as u64);
            payload.extend_from_slice(document.key);
            payload.extend_from_slice(document.value);
            let end = (payload.len() as u16).to_le_bytes();
            payload[FIXED_BYTES + END_BYTES * slot..][..END_BYTES].copy_from_slice(&end);
        }
        payload
    }

    /// Addresses of the documents in the block at `block`. What the block has beside
    /// documents is shared among them.
    pub fn addresses(&self, block: u64) -> impl Iterator<Item = DocumentAddress> {
        let taken = |document: &DocumentBytes<'_>| entry_bytes(document.key, document.value);
        let all: usize = self.documents().map(|document| taken(&document)).sum();
        let share = (PACKED_BLOCK_BYTES as usize - all).div_ceil(self.waiting.len().max(1));
        self.documents().enumerate().map(move |(slot, document)| {
            let bytes = taken(&document) + share;
            DocumentAddress::packed(block, slot, bytes as u64, document.key)
        })
    }

    /// Lets all go that waits.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.bytes.clear();
        self.payload = 0;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that cannot go on has failed

    use super::*;

    fn offer(
        packer: &mut Packer,
        namespace: u16,
        sequence: u64,
        key: &[u8],
        value: &[u8],
    ) -> Packing {
        packer.offer(&DocumentBytes {
            namespace,
            sequence,
            key,
            value,
        })
    }

    fn key(number: usize) -> Vec<u8> {
        format!("key {number:05}").into_bytes()
    }

    fn value(number: usize) -> Vec<u8> {
        vec![number as u8; number % 300]
    }

    /// As many documents as a block takes, written in some order.
    fn full_packer() -> Packer {
        let mut packer = Packer::default();
        for number in 0.. {
            let sequence = 1_000_000 + (number as u64 * 7919) % 50_000;
            match offer(&mut packer, 3, sequence, &key(number), &value(number)) {
                Packing::Taken => {}
                Packing::Full => return packer,
                Packing::Apart => panic!("{number} is small"),
            }
        }
        packer
    }

    #[test]
    fn what_a_full_block_holds_is_found_by_number_and_fills_it() {
        let packer = full_packer();
        let payload = packer.encode();
        assert!(payload.len() <= MOST_PAYLOAD && payload.len() > MOST_PAYLOAD * 7 / 8);
        let block = PackedBlock::of(&payload).unwrap();
        assert_eq!(block.count(), packer.waiting.len());
        for (slot, expected) in packer.documents().enumerate() {
            let (found, end) = block.document(slot).unwrap();
            assert_eq!((found.namespace, found.sequence), (3, expected.sequence));
            assert_eq!((found.key, found.value), (expected.key, expected.value));
            assert_eq!(&payload[end - expected.value.len()..end], expected.value);
        }
        assert!(block.document(packer.waiting.len()).is_none());
    }

    #[test]
    fn bounds_of_a_blocks_documents_add_up_to_the_block() {
        let packer = full_packer();
        let sum: u64 = packer
            .addresses(8192)
            .map(DocumentAddress::most_bytes)
            .sum();
        assert!(
            sum >= PACKED_BLOCK_BYTES
                && sum < PACKED_BLOCK_BYTES + 16 * packer.waiting.len() as u64
        );
        let both = packer.addresses(8192).zip(packer.documents());
        for (slot, (address, document)) in both.enumerate() {
            assert_eq!((address.start(), address.slot()), (8192, Some(slot)));
            assert!(address.may_match(document.key));
        }
    }

    #[test]
    fn tiny_documents_end_a_block_where_addresses_end() {
        let mut packer = Packer::default();
        let mut number = 0usize;
        while offer(&mut packer, 0, 1, &number.to_be_bytes()[6..], b"") == Packing::Taken {
            number += 1;
        }
        assert_eq!(number, MOST_DOCUMENTS);
        let payload = packer.encode();
        let last = PackedBlock::of(&payload)
            .unwrap()
            .document(number - 1)
            .unwrap();
        assert_eq!(last.0.key, &(number - 1).to_be_bytes()[6..]);
    }

    #[test]
    fn large_documents_wait_only_where_a_block_is_open() {
        let mut packer = Packer::default();
        let (middle, large) = (vec![1; 900], vec![1; 2_100]);
        assert_eq!(offer(&mut packer, 0, 1, b"a", &middle), Packing::Apart);
        assert_eq!(offer(&mut packer, 0, 1, b"a", b"small"), Packing::Taken);
        assert_eq!(offer(&mut packer, 0, 2, b"b", &large), Packing::Apart);
        for number in 0..4u64 {
            assert_eq!(
                offer(&mut packer, 0, 2 + number, b"c", &middle),
                Packing::Taken
            );
        }
        assert_eq!(offer(&mut packer, 0, 9, b"d", &middle), Packing::Apart);
        assert_eq!(
            offer(&mut packer, 1, 9, b"d", b"of another namespace"),
            Packing::Full
        );
    }

    #[test]
    fn bytes_that_are_no_block_are_no_panic() {
        let sound = full_packer().encode();
        for length in 0..sound.len() {
            if let Some(block) = PackedBlock::of(&sound[..length]) {
                for slot in 0..=block.count() {
                    _ = block.document(slot);
                }
            }
        }
        for place in 0..400 {
            let mut damaged = sound.clone();
            damaged[place] ^= 0xff;
            if let Some(block) = PackedBlock::of(&damaged) {
                for slot in 0..block.count().min(5_000) {
                    _ = block.document(slot);
                }
            }
        }
    }
}
