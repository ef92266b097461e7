//! Little-endian fields, and decoding that cannot run past its input.

/// Reads fields one after the other from a slice; answers `None` instead of
/// reading past the end, and allocates nothing.
///
/// ```
/// use cambium_base::coding::Decoder;
/// let mut decoder = Decoder::new(&[1, 0, 0, 0, 9]);
/// assert_eq!(decoder.u32(), Some(1));
/// assert_eq!(decoder.bytes(1), Some(&[9u8][..]));
/// assert_eq!(decoder.u8(), None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Starts at the first byte of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Decoder { rest: bytes }
    }

    /// What is left.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        if count > self.rest.len() {
            return None;
        }
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    /// One byte.
    pub fn u8(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    /// Two bytes, little-endian.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes, little-endian.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A length of four bytes, then as many bytes.
    pub fn length_prefixed(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        self.bytes(length)
    }
}

/// Reads a little-endian `u16` at `offset`.
///
/// # Panics
/// If the slice is too short; callers check the length of a header once.
#[inline]
pub fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}

/// Reads a little-endian `u32` at `offset`.
///
/// # Panics
/// If the slice is too short; callers check the length of a header once.
#[inline]
pub fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(field)
}

/// Reads a little-endian `u64` at `offset`.
///
/// # Panics
/// If the slice is too short; callers check the length of a header once.
#[inline]
pub fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(field)
}

/// Appends a length of four bytes, then the bytes.
///
/// # Panics
/// If `bytes` is 4 GiB or longer; no caller writes such a field.
pub fn put_length_prefixed(into: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("a length-prefixed field is under 4 GiB");
    into.extend_from_slice(&length.to_le_bytes());
    into.extend_from_slice(bytes);
}

/// `value` rounded up to a multiple of `unit`, or `None` past the end of `u64`.
pub fn round_up(value: u64, unit: u64) -> Option<u64> {
    let remainder = value % unit;
    if remainder == 0 {
        Some(value)
    } else {
        value.checked_add(unit - remainder)
    }
}

/// How many bytes two strings have in common at their beginning.
///
/// ```
/// use cambium_base::coding::common_prefix;
/// assert_eq!(common_prefix(b"oak tree", b"oak table"), 5);
/// ```
#[inline]
pub fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    let both = left.len().min(right.len());
    let mut at = 0;
    while at + 8 <= both && left[at..at + 8] == right[at..at + 8] {
        at += 8;
    }
    at + left[at..both]
        .iter()
        .zip(&right[at..both])
        .take_while(|(a, b)| a == b)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_stops_at_the_end_and_a_huge_length_is_refused() {
        let mut decoder = Decoder::new(&[0xff, 0xff, 0xff, 0xff, 1, 2]);
        assert_eq!(decoder.length_prefixed(), None);
        assert_eq!(Decoder::new(&[1, 2, 3]).u32(), None);
    }

    #[test]
    fn rounding_up_neither_wraps_nor_moves_a_multiple() {
        assert_eq!(round_up(4096, 4096), Some(4096));
        assert_eq!(round_up(1, 512), Some(512));
        assert_eq!(round_up(u64::MAX, 8), None);
    }

    #[test]
    fn a_common_prefix_is_what_comparing_byte_by_byte_finds() {
        let long: Vec<u8> = (0..40).collect();
        for cut in 0..40 {
            let mut other = long.clone();
            other[cut] ^= 0x80;
            assert_eq!(common_prefix(&long, &other), cut);
            assert_eq!(common_prefix(&long, &long[..cut]), cut);
        }
    }
}
