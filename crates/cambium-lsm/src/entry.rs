//! What a tree is made of: entries, and the order they lie in.
//!
//! Everywhere in this crate entries lie by key ascending, then by sequence
//! number *descending*, so that of one key the newest comes first. A place in
//! that order is a pair (key, sequence number): the first entry of a key is at
//! (key, `u64::MAX`), and behind all of them stands (key, 0).

use std::cmp::Ordering;

use cambium_base::Value;

/// A sequence number as a point in time: what was written up to it.
pub type Moment = u64;

/// What an entry says of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum EntryKind {
    /// It has a value.
    Value = 1,
    /// It has none: a tombstone.
    Delete = 2,
}

impl EntryKind {
    /// The kind that a byte in a file stands for.
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(EntryKind::Value),
            2 => Some(EntryKind::Delete),
            _ => None,
        }
    }
}

/// What a lookup found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The tree holds nothing of the key at that moment.
    Absent,
    /// The key was deleted, alone or with a range.
    Deleted {
        /// By the write with this number.
        sequence: u64,
    },
    /// The key has a value.
    Found {
        /// Of the write with this number.
        sequence: u64,
        /// The value.
        value: Value,
    },
}

/// An entry, borrowed from where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The write's number.
    pub sequence: u64,
    /// Value or tombstone.
    pub kind: EntryKind,
    /// The value; empty for a tombstone.
    pub value: &'a [u8],
}

/// The order of entries: keys ascending, sequence numbers descending.
pub(crate) fn compare(one: (&[u8], u64), other: (&[u8], u64)) -> Ordering {
    one.0.cmp(other.0).then_with(|| other.1.cmp(&one.1))
}

/// The first sixteen bytes of a key as a number, zeros where it is shorter: of two keys
/// with different numbers, the one with the smaller is the smaller.
#[inline]
pub(crate) fn leading(key: &[u8]) -> u128 {
    if let Some(bytes) = key.first_chunk() {
        return u128::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 16];
    bytes[..key.len()].copy_from_slice(key);
    u128::from_be_bytes(bytes)
}

/// True if two keys are the same: most differ in their last bytes, or not at all.
#[inline]
pub(crate) fn same_key(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.last_chunk::<8>() == other.last_chunk::<8>() && one == other
}

impl EntryRef<'_> {
    /// Its place in the order.
    pub(crate) fn place(&self) -> (&[u8], u64) {
        (self.key, self.sequence)
    }
}

/// Entries in order, read forward and backward. Stands at one entry, or
/// outside (before the first or after the last), from where only seeking
/// leads back. Seeking also says the direction of the moves that follow:
/// `next` after `seek` and `seek_first`, `previous` after the other two.
pub(crate) trait Source: Send + std::fmt::Debug {
    /// To the first entry at or after (key, sequence).
    fn seek(&mut self, key: &[u8], sequence: u64) -> cambium_base::Result<()>;
    /// To the last entry before (key, sequence).
    fn seek_before(&mut self, key: &[u8], sequence: u64) -> cambium_base::Result<()>;
    /// To the first entry of all.
    fn seek_first(&mut self) -> cambium_base::Result<()>;
    /// To the last entry of all.
    fn seek_last(&mut self) -> cambium_base::Result<()>;
    /// To the next entry; outside it stays outside.
    fn next(&mut self) -> cambium_base::Result<()>;
    /// To the entry before; outside it stays outside.
    fn previous(&mut self) -> cambium_base::Result<()>;
    /// Where it stands.
    fn entry(&self) -> Option<EntryRef<'_>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_numbers_never_contradict_the_order_of_keys() {
        let long = [7; 20];
        let mut keys: Vec<Vec<u8>> = (0..20).map(|length| long[..length].to_vec()).collect();
        keys.extend([vec![], vec![0], vec![0, 0], vec![255; 17], vec![7, 8]]);
        keys.push([&[7; 16][..], &[9]].concat());
        for one in &keys {
            for other in &keys {
                let by_number = leading(one).cmp(&leading(other));
                assert!(by_number.is_eq() || by_number == one.cmp(other));
                assert_eq!(same_key(one, other), one == other);
            }
        }
    }

    #[test]
    fn newer_entries_of_a_key_come_first_and_other_keys_never_between() {
        let mut places = [
            (&b"b"[..], 1),
            (b"a", 1),
            (b"a", 9),
            (b"a", u64::MAX),
            (b"a\0", 5),
        ];
        places.sort_by(|one, other| compare(*one, *other));
        let expected = [
            (&b"a"[..], u64::MAX),
            (b"a", 9),
            (b"a", 1),
            (b"a\0", 5),
            (b"b", 1),
        ];
        assert_eq!(places, expected);
    }
}
