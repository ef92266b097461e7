//! Numbers in as few bytes as they need.
//!
//! ```text
//! varint   1xxxxxxx 1xxxxxxx … 0xxxxxxx   groups of 7 bits, lowest first; up to 10 bytes
//! ```
//!
//! What is no varint (bits beyond 64, no last group within the bytes) is `None`.

use crate::coding::Decoder;

/// Appends a number, in 1 to 10 bytes.
///
/// ```
/// use cambium_base::varint::{put_varint, varint_at};
/// let mut bytes = Vec::new();
/// put_varint(&mut bytes, 300);
/// assert_eq!(bytes, [0xac, 0x02]);
/// assert_eq!(varint_at(&bytes), Some((300, 2)));
/// ```
#[inline]
pub fn put_varint(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// How many bytes [`put_varint`] appends.
pub fn varint_bytes(number: u64) -> usize {
    (64 - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// Appends a length and the bytes.
pub fn put_varint_prefixed(into: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(into, bytes.len() as u64);
    into.extend_from_slice(bytes);
}

/// A number at the start of `bytes`, and how many bytes it took.
#[inline]
pub fn varint_at(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    let mut number = 0u64;
    for (position, &byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        let shift = 7 * position as u32;
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some((number, position + 1));
        }
    }
    None
}

impl<'a> Decoder<'a> {
    /// The next number; nothing is taken where there is none.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let (number, length) = varint_at(self.rest())?;
        self.bytes(length)?;
        Some(number)
    }

    /// A length as a varint, then as many bytes.
    pub fn varint_prefixed(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        self.bytes(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_nothing_reads_past_its_bytes() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            assert_eq!(varint_at(&bytes), Some((number, bytes.len())));
            assert_eq!(varint_bytes(number), bytes.len());
            assert_eq!(Decoder::new(&bytes).varint(), Some(number));
            let cut = &bytes[..bytes.len() - 1];
            assert_eq!(varint_at(cut), None);
            let mut decoder = Decoder::new(cut);
            assert_eq!(decoder.varint(), None);
            assert_eq!(decoder.remaining(), cut.len(), "nothing was taken");
        }
        let too_long = [0xff; 11];
        assert_eq!(varint_at(&too_long), None);
        let too_many_bits = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert_eq!(varint_at(&too_many_bits), None);
    }

    #[test]
    fn a_length_that_lies_is_refused() {
        let mut bytes = Vec::new();
        put_varint_prefixed(&mut bytes, b"oak");
        assert_eq!(Decoder::new(&bytes).varint_prefixed(), Some(&b"oak"[..]));
        assert_eq!(Decoder::new(&bytes[..3]).varint_prefixed(), None);
        let mut huge = Vec::new();
        put_varint(&mut huge, u64::MAX);
        assert_eq!(Decoder::new(&huge).varint_prefixed(), None);
    }
}
