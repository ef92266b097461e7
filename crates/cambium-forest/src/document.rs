//! The place of a document, in the eight bytes that an index holds of it.
//!
//! ```text
//! bit 63 62   61 ───────────── 21     20     19 ──── 12   11 ──────── 0
//!     0  0    offset / 8, 41 bits   packed   length class   fingerprint
//! ```
//!
//! - The two top bits are free for the trie, which tells sub-trees from documents by
//!   one, and pieces of keys from whole ones by the other.
//! - A **packed** document lies in a block of many ([`crate::packed_block`]), which begins
//!   at a multiple of 4 KiB; how many documents of the block come before it takes the low
//!   bits of the offset. Any other is a record of its own.
//! - The **offset** is in units of 8 bytes, the alignment of records: 16 TiB.
//! - The **length class** bounds the document's length from above: a record's by at most an
//!   eighth, so that one device read brings a whole document, and so that what a
//!   replaced document took can be accounted for without reading it. Of a packed document
//!   it says what its part of the block is, with what the block has beside documents.
//! - The **fingerprint** is 12 bits of a hash of the key: a lookup that arrives
//!   at another key's document is told so without a read, 4,095 times of 4,096.
//!
//! The classes of records: up to eight units exactly, then eight a power of two
//! (`mantissa` 8 to 15, shifted), which 8 bits carry past any record's length. Those of
//! packed documents: units of 8 bytes up to 1 KiB, then of 32.

use cambium_base::checksum::crc32c;

/// Records of the database file begin at multiples of this.
pub const DOCUMENT_ALIGNMENT: u64 = 8;
/// The first offset that does not fit.
pub const OFFSET_LIMIT: u64 = DOCUMENT_ALIGNMENT << 41;
/// Packed blocks begin at multiples of this, and are no longer.
pub const PACKED_BLOCK_BYTES: u64 = 4 << 10;

const CLASS_SHIFT: u32 = 12;
const OFFSET_SHIFT: u32 = 21;
/// Low, so that addresses in a small file have few bytes.
const PACKED: u64 = 1 << 20;
/// Units of the length classes of packed documents, bytes, and how many of the smaller.
const PACKED_UNITS: (u64, u64) = (8, 32);
const SMALLER_UNITS: u64 = 128;
const FINGERPRINT_MASK: u64 = (1 << CLASS_SHIFT) - 1;

/// A document's place, as the tries hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentAddress(pub u64);

impl DocumentAddress {
    /// The address of a record of `bytes` at `offset` that holds `key`.
    ///
    /// ```
    /// use cambium_forest::document::DocumentAddress;
    /// let address = DocumentAddress::new(4096, 1000, b"oak");
    /// assert_eq!(address.offset(), 4096);
    /// assert!((1000..=1125).contains(&address.most_bytes()));
    /// assert!(address.may_match(b"oak"));
    /// ```
    pub fn new(offset: u64, bytes: u64, key: &[u8]) -> Self {
        debug_assert!(offset < OFFSET_LIMIT && offset % DOCUMENT_ALIGNMENT == 0);
        DocumentAddress(
            ((offset / DOCUMENT_ALIGNMENT) << OFFSET_SHIFT)
                | (u64::from(length_class(bytes)) << CLASS_SHIFT)
                | fingerprint(key),
        )
    }

    /// The address of a document in the packed block at `block`, of which it takes `bytes`,
    /// and in which `slot` others come before it.
    ///
    /// ```
    /// use cambium_forest::document::DocumentAddress;
    /// let address = DocumentAddress::packed(8192, 3, 116, b"oak");
    /// assert_eq!((address.start(), address.slot()), (8192, Some(3)));
    /// assert!((116..124).contains(&address.most_bytes()));
    /// ```
    pub fn packed(block: u64, slot: usize, bytes: u64, key: &[u8]) -> Self {
        debug_assert!(block < OFFSET_LIMIT && block % PACKED_BLOCK_BYTES == 0);
        debug_assert!((slot as u64) < PACKED_BLOCK_BYTES / DOCUMENT_ALIGNMENT);
        let class = packed_class(bytes);
        DocumentAddress(
            PACKED
                | (block / DOCUMENT_ALIGNMENT + slot as u64) << OFFSET_SHIFT
                | class << CLASS_SHIFT
                | fingerprint(key),
        )
    }

    /// A number that orders documents as they lie in the file: the offset of a record; of a
    /// packed document, one within its block.
    pub fn offset(self) -> u64 {
        ((self.0 & (u64::MAX >> 2)) >> OFFSET_SHIFT) * DOCUMENT_ALIGNMENT
    }

    /// Start of the record, or of the packed block, in bytes from the start of the file.
    pub fn start(self) -> u64 {
        match self.is_packed() {
            true => self.offset() / PACKED_BLOCK_BYTES * PACKED_BLOCK_BYTES,
            false => self.offset(),
        }
    }

    /// True for a document in a packed block.
    pub fn is_packed(self) -> bool {
        self.0 & PACKED != 0
    }

    /// How many documents of its packed block come before it; `None` of one that is a
    /// record.
    pub fn slot(self) -> Option<usize> {
        let slot = self.offset() % PACKED_BLOCK_BYTES / DOCUMENT_ALIGNMENT;
        self.is_packed().then_some(slot as usize)
    }

    /// An upper bound of what the document takes: its record, or its part of a block.
    pub fn most_bytes(self) -> u64 {
        let class = (self.0 >> CLASS_SHIFT) & 0xff;
        match self.is_packed() {
            true => packed_class_bytes(class),
            false => class_bytes(class as u8),
        }
    }

    /// The hash of the key that the address has.
    pub fn fingerprint(self) -> u64 {
        self.0 & FINGERPRINT_MASK
    }

    /// False if the document certainly has another key.
    pub fn may_match(self, key: &[u8]) -> bool {
        self.fingerprint() == fingerprint(key)
    }
}

fn fingerprint(key: &[u8]) -> u64 {
    u64::from(crc32c(key) >> 20) & FINGERPRINT_MASK
}

/// The smallest class whose bound is no less than `bytes`.
fn length_class(bytes: u64) -> u8 {
    let units = bytes.div_ceil(DOCUMENT_ALIGNMENT);
    if units < 16 {
        return units as u8;
    }
    let mut shift = units.ilog2() - 3;
    let mut mantissa = units.div_ceil(1 << shift);
    if mantissa == 16 {
        mantissa = 8;
        shift += 1;
    }
    // Mantissa 8 to 15: classes 8 to 15 are the exact ones, shift 0.
    u8::try_from(u64::from(shift) * 8 + mantissa).unwrap_or(u8::MAX)
}

fn class_bytes(class: u8) -> u64 {
    if class < 16 {
        return u64::from(class) * DOCUMENT_ALIGNMENT;
    }
    let shift = u32::from(class) / 8 - 1;
    let mantissa = u64::from(class) - u64::from(shift) * 8;
    (mantissa << shift) * DOCUMENT_ALIGNMENT
}

/// The smallest class of packed documents whose bound is no less than `bytes`.
fn packed_class(bytes: u64) -> u64 {
    let (small, large) = PACKED_UNITS;
    let in_small = bytes.div_ceil(small);
    if in_small <= SMALLER_UNITS {
        return in_small;
    }
    let beyond = bytes - SMALLER_UNITS * small;
    (SMALLER_UNITS + beyond.div_ceil(large)).min(0xff)
}

fn packed_class_bytes(class: u64) -> u64 {
    let (small, large) = PACKED_UNITS;
    class.min(SMALLER_UNITS) * small + class.saturating_sub(SMALLER_UNITS) * large
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_bounds_every_length_by_an_eighth() {
        let lengths = (0..20_000u64).chain((0..=30).flat_map(|bit| {
            let power = 1u64 << bit;
            [power - 1, power, power + 1, power + 66_000]
        }));
        let mut last = (0, 0);
        for bytes in lengths {
            let most = class_bytes(length_class(bytes));
            assert!(most >= bytes, "{bytes}: {most}");
            assert!(most <= bytes + 8 + bytes / 8, "{bytes}: {most}");
            if bytes > last.0 {
                assert!(most >= last.1, "{bytes}");
                last = (bytes, most);
            }
        }
    }

    #[test]
    fn an_address_keeps_its_parts_and_leaves_the_top_bits() {
        let address = DocumentAddress::new(OFFSET_LIMIT - 8, (1 << 30) + 65_535 + 48, b"key");
        assert_eq!(address.offset(), OFFSET_LIMIT - 8);
        assert_eq!(address.0 >> 62, 0);
        assert!(address.most_bytes() > 1 << 30);
        assert!(address.may_match(b"key") && !address.may_match(b"kez"));
        let tagged = DocumentAddress(address.0 | 3 << 62);
        assert_eq!(tagged.offset(), address.offset());
    }

    #[test]
    fn a_packed_address_keeps_its_parts() {
        let last = OFFSET_LIMIT - PACKED_BLOCK_BYTES;
        let address = DocumentAddress::packed(last, 511, 4_000, b"key");
        assert_eq!((address.start(), address.slot()), (last, Some(511)));
        assert_eq!(address.0 >> 62, 0);
        assert!((4_000..4_032).contains(&address.most_bytes()));
        assert!(address.may_match(b"key") && !address.may_match(b"kez"));
        let tagged = DocumentAddress(address.0 | 3 << 62);
        assert_eq!((tagged.start(), tagged.slot()), (last, Some(511)));
        assert_eq!(DocumentAddress::new(last, 64, b"key").slot(), None);
        for bytes in 1..=PACKED_BLOCK_BYTES {
            let most = packed_class_bytes(packed_class(bytes));
            assert!((bytes..bytes + 32).contains(&most), "{bytes}: {most}");
        }
    }
}
