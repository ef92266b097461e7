//! Where a document lies, in the eight bytes that an index holds of it.
//!
//! ```text
//! bit 63 62   61 ───────────── 20   19 ──── 12   11 ──────── 0
//!     0  0    offset / 8, 42 bits   length class   fingerprint
//! ```
//!
//! - The two top bits are free for the trie, which tells sub-trees from documents by
//!   one, and pieces of keys from whole ones by the other.
//! - The **offset** is in units of 8 bytes, the alignment of records: 32 TiB.
//! - The **length class** bounds the record's length from above by at most an
//!   eighth, so that one device read brings a whole document, and so that what a
//!   replaced document took can be accounted for without reading it.
//! - The **fingerprint** is 12 bits of a hash of the key: a lookup that arrives
//!   at another key's document is told so without a read, 4,095 times of 4,096.
//!
//! The classes: up to eight units exactly, then eight a power of two
//! (`mantissa` 8 to 15, shifted), which 8 bits carry past any record's length.

use cambium_base::checksum::crc32c;

/// Records of the database file begin at multiples of this.
pub const DOCUMENT_ALIGNMENT: u64 = 8;
/// The first offset that does not fit.
pub const OFFSET_LIMIT: u64 = DOCUMENT_ALIGNMENT << 42;

const CLASS_SHIFT: u32 = 12;
const OFFSET_SHIFT: u32 = 20;
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

    /// Bytes from the start of the file.
    pub fn offset(self) -> u64 {
        ((self.0 & (u64::MAX >> 2)) >> OFFSET_SHIFT) * DOCUMENT_ALIGNMENT
    }

    /// An upper bound of the record's length.
    pub fn most_bytes(self) -> u64 {
        class_bytes(((self.0 >> CLASS_SHIFT) & 0xff) as u8)
    }

    /// What the address says of the document wherever that lies: length class
    /// and fingerprint.
    pub fn without_place(self) -> u64 {
        self.0 & ((1 << OFFSET_SHIFT) - 1)
    }

    /// False if the document certainly has another key.
    pub fn may_match(self, key: &[u8]) -> bool {
        self.0 & FINGERPRINT_MASK == fingerprint(key)
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
}
