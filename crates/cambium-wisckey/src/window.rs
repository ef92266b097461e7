//! A window of values that a collection has read, and the tree is asked about.
//!
//! All of them lie in one piece of memory, from the read of the old segment to the write
//! of the new one.

use crate::format::ValuePointer;
use crate::moving::LiveValue;

/// Values that are sorted and moved together, bytes.
pub(crate) const WINDOW_BYTES: u64 = 16 << 20;
/// A window has room for a value for so many of its bytes: each takes a place beside it.
const BYTES_A_VALUE: u64 = 128;
/// Values that are looked up in the tree at once: each may hold a block in memory.
pub(crate) const LOOKED_UP_AT_ONCE: usize = 4096;

/// Values of one segment or part of it.
#[derive(Debug, Default)]
pub(crate) struct Window {
    places: Vec<Place>,
    /// Keys and values, one after the other.
    bytes: Vec<u8>,
}

/// A value of a window.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The first bytes of its key, as a number: most comparisons need no more.
    first: u64,
    /// Where its key begins; its value follows.
    start: usize,
    key_bytes: usize,
    sequence: u64,
    pointer: ValuePointer,
}

impl Place {
    fn key<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.start..self.start + self.key_bytes]
    }

    fn value<'b>(&self, bytes: &'b [u8]) -> LiveValue<'b> {
        let key_end = self.start + self.key_bytes;
        LiveValue {
            full_key: &bytes[self.start..key_end],
            value: &bytes[key_end..key_end + self.pointer.value_bytes as usize],
            sequence: self.sequence,
            pointer: self.pointer,
        }
    }
}

/// The first eight bytes of a key as a number that is ordered as they are.
fn first_bytes(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    let count = key.len().min(8);
    first[..count].copy_from_slice(&key[..count]);
    u64::from_be_bytes(first)
}

impl Window {
    /// True if a window of at most so many bytes is to be emptied before more comes.
    pub fn is_full(&self, most_bytes: u64) -> bool {
        let most_values = most_bytes / BYTES_A_VALUE;
        self.bytes.len() as u64 >= most_bytes || self.places.len() as u64 >= most_values
    }

    /// Takes a record's key and value, which are its payload.
    pub fn add(&mut self, payload: &[u8], key_bytes: usize, sequence: u64, pointer: ValuePointer) {
        self.places.push(Place {
            first: first_bytes(&payload[..key_bytes]),
            start: self.bytes.len(),
            key_bytes,
            sequence,
            pointer,
        });
        self.bytes.extend_from_slice(payload);
    }

    /// Brings the values into the order of their keys.
    pub fn sort(&mut self) {
        let bytes = &self.bytes;
        self.places.sort_unstable_by(|one, other| {
            let first = one.first.cmp(&other.first);
            first.then_with(|| one.key(bytes).cmp(other.key(bytes)))
        });
    }

    /// The values, in parts of at most so many.
    pub fn parts(&self, most: usize) -> impl Iterator<Item = Vec<LiveValue<'_>>> {
        let parts = self.places.chunks(most);
        parts.map(|part| part.iter().map(|place| place.value(&self.bytes)).collect())
    }

    /// Empties it, and keeps its memory unless a value larger than it is for was in it.
    pub fn clear(&mut self, most_bytes: u64) {
        self.places.clear();
        self.bytes.clear();
        self.bytes.shrink_to(2 * most_bytes as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_in_the_order_of_their_keys() {
        let mut window = Window::default();
        let keys: [&[u8]; 7] = [b"", b"a", b"a\0", b"ab", b"abcdefgh", b"abcdefghi", b"b"];
        for (number, key) in keys.iter().enumerate().rev() {
            let value = [number as u8; 3];
            let pointer = ValuePointer {
                segment: 1,
                offset: number as u64 * 64,
                value_bytes: 3,
                header_bytes: 16,
            };
            window.add(
                &[key, &value[..]].concat(),
                key.len(),
                number as u64,
                pointer,
            );
        }
        window.sort();
        let values: Vec<_> = window.parts(4).flatten().collect();
        assert_eq!(values.len(), keys.len());
        for (number, (value, key)) in values.iter().zip(keys).enumerate() {
            assert_eq!(value.full_key, key);
            assert_eq!(value.value, [number as u8; 3]);
            assert_eq!(value.sequence, number as u64);
        }
        window.clear(WINDOW_BYTES);
        assert_eq!(window.parts(4).count(), 0);
    }
}
