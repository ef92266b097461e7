//! Bytes handed to callers: reference-counted, sliceable without a copy.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Values up to this length lie in the handle itself and cost no allocation.
const INLINE_BYTES: usize = 24;

/// Short bytes. Handles are moved by words, which wait for a store that wrote a part of
/// one: so these lie at words, and are written by words.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct InlineBytes([u8; INLINE_BYTES]);

impl InlineBytes {
    /// Of no more bytes than there is room for.
    #[inline]
    fn of(bytes: &[u8]) -> Self {
        let mut inline = [0; INLINE_BYTES];
        let length = bytes.len();
        let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) else {
            inline[..length].copy_from_slice(bytes);
            return InlineBytes(inline);
        };
        // What the last eight bytes share with the words before is shifted out.
        let rest = |from: usize| match length > from {
            true => u64::from_le_bytes(*last) >> (64 - 8 * (length - from)),
            false => 0,
        };
        let second = match bytes.get(8..).and_then(<[u8]>::first_chunk::<8>) {
            Some(second) => *second,
            None => rest(8).to_le_bytes(),
        };
        inline[..8].copy_from_slice(first);
        inline[8..16].copy_from_slice(&second);
        inline[16..].copy_from_slice(&rest(16).to_le_bytes());
        InlineBytes(inline)
    }
}

/// A value, or a key, read from a store: cheap to clone, `Send`, and alive for
/// as long as it is held, whatever the store does.
///
/// ```
/// use cambium_base::Value;
/// let value = Value::from(b"leaf and root".to_vec());
/// let leaf = value.slice(0..4);
/// assert_eq!(&*leaf, b"leaf");
/// ```
#[derive(Clone)]
pub struct Value(Repr);

/// Without padding, so that it is moved by words whichever it is.
#[derive(Clone)]
#[repr(u64)]
enum Repr {
    Inline {
        length: usize,
        bytes: InlineBytes,
    },
    /// Bytes of our own, beside their count: one allocation, one cache miss.
    Owned {
        bytes: Arc<[u8]>,
        start: usize,
        length: usize,
    },
    Shared {
        owner: Owner,
        start: usize,
        length: usize,
    },
}

/// What keeps shared bytes alive: a pinned cache block, a mapped file.
type Owner = Arc<dyn AsRef<[u8]> + Send + Sync>;

impl Value {
    /// A copy of `bytes`; free of allocation for short ones.
    #[inline]
    pub fn copy_of(bytes: &[u8]) -> Self {
        if bytes.len() <= INLINE_BYTES {
            return Value(Repr::Inline {
                length: bytes.len(),
                bytes: InlineBytes::of(bytes),
            });
        }
        Value(Repr::Owned {
            bytes: bytes.into(),
            start: 0,
            length: bytes.len(),
        })
    }

    /// A part of shared bytes: shares them, but for a short one, which is copied.
    ///
    /// # Panics
    /// If the range is not within the bytes.
    #[inline]
    pub fn part_of(bytes: &Arc<[u8]>, range: std::ops::Range<usize>) -> Self {
        if range.len() <= INLINE_BYTES {
            return Value::copy_of(&bytes[range]);
        }
        assert!(range.start <= range.end && range.end <= bytes.len());
        Value(Repr::Owned {
            bytes: bytes.clone(),
            start: range.start,
            length: range.end - range.start,
        })
    }

    /// Shares `range` of `owner`'s bytes, without a copy.
    ///
    /// # Panics
    /// If the range is not within the bytes.
    pub fn share(owner: Arc<dyn AsRef<[u8]> + Send + Sync>, range: std::ops::Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= (*owner).as_ref().len());
        Value(Repr::Shared {
            owner,
            start: range.start,
            length: range.end - range.start,
        })
    }

    /// A part of this value; shares the bytes.
    ///
    /// # Panics
    /// If the range is not within the value.
    #[must_use]
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        match &self.0 {
            Repr::Inline { .. } => Value::copy_of(&self[range]),
            Repr::Owned {
                bytes,
                start,
                length,
            } => {
                assert!(range.start <= range.end && range.end <= *length);
                if range.len() <= INLINE_BYTES {
                    return Value::copy_of(&bytes[start + range.start..start + range.end]);
                }
                Value(Repr::Owned {
                    bytes: bytes.clone(),
                    start: start + range.start,
                    length: range.end - range.start,
                })
            }
            Repr::Shared {
                owner,
                start,
                length,
            } => {
                assert!(range.start <= range.end && range.end <= *length);
                Value(Repr::Shared {
                    owner: owner.clone(),
                    start: start + range.start,
                    length: range.end - range.start,
                })
            }
        }
    }

    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { length, bytes } => &bytes.0[..*length],
            Repr::Owned {
                bytes,
                start,
                length,
            } => &bytes[*start..start + length],
            Repr::Shared {
                owner,
                start,
                length,
            } => &(**owner).as_ref()[*start..start + length],
        }
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        let length = bytes.len();
        // Beyond a page a copy costs more than the second cache miss.
        if length <= 4096 {
            return Value::copy_of(&bytes);
        }
        Value::share(Arc::new(bytes), 0..length)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Value::copy_of(bytes)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::hexdump::readable(self))
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value {
    fn eq(&self, other: &T) -> bool {
        self.as_slice() == other.as_ref()
    }
}

impl Eq for Value {}

impl std::hash::Hash for Value {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_five_words_and_so_is_one_that_may_be_missing() {
        assert_eq!(size_of::<Value>(), 40);
        assert_eq!(size_of::<Option<Value>>(), 40);
    }

    #[test]
    fn slices_of_short_and_long_values_hold_the_same_bytes() {
        for length in (0usize..30).chain([100]) {
            let bytes: Vec<u8> = (1..=length as u8).collect();
            let value = Value::from(bytes.clone());
            assert_eq!(value, bytes);
            let half = value.slice(length / 2..length);
            assert_eq!(half, bytes[length / 2..]);
        }
    }
}
