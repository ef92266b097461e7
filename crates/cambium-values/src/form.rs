//! The bytes that are stored for a value.
//!
//! ```text
//! the value                                              its last byte is no tag
//! body ┬ expires at, 8 bytes, where the tag says so ┬ tag, 1 byte
//! ```
//!
//! A tag is a byte from `0xf0` to `0xf7`: bits 0 and 1 are the [`Compression::number`] of
//! the body, or 3 for zstd with the store's [dictionary](crate::dictionary); bit 2 says that a moment stands before the tag. A value that happens to end
//! with such a byte gets a tag too, of a body as it is; text in UTF-8 never does. All other
//! values are stored as they are.

use cambium_api::{Seeded, UnixMillis, limits};
use cambium_base::coding::u64_at;
use cambium_storage::compression::{Compression, Dictionary, Packed};

use crate::seeded_bug::SeededBug;

const TAG: u8 = 0xf0;
const TAG_BITS: u8 = 0xf8;
const COMPRESSION_BITS: u8 = 0b011;
const EXPIRES_BIT: u8 = 0b100;
/// The number of zstd with the store's dictionary.
const BY_DICTIONARY: u8 = 3;
/// Most bytes by which a stored value exceeds the value.
pub const MOST_BYTES_MORE: usize = 9;

/// True if the bytes are the value itself.
#[inline]
pub fn is_plain(stored: &[u8]) -> bool {
    stored.last().is_none_or(|last| last & TAG_BITS != TAG)
}

/// How new values are stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Encoder {
    /// Of values that it makes smaller by an eighth.
    pub compression: Compression,
    /// The level of zstd.
    pub level: i32,
    /// The defect that the store has, in tests.
    pub seeded_bug: Seeded<SeededBug>,
}

impl Encoder {
    /// True if a value is stored as it is, and is no larger than a value may be.
    #[inline]
    pub fn leaves(&self, value: &[u8]) -> bool {
        let is_plain = is_plain(value) || self.seeded_bug.is(SeededBug::TagUnescaped);
        let is_long = value.len() > limits::MAX_VALUE_BYTES;
        self.compression == Compression::None && is_plain && !is_long
    }

    /// The bytes that are stored for a value; `None` if they are the value itself. zstd uses
    /// the store's dictionary, where it has one.
    pub fn encode(
        &self,
        dictionary: Option<&Dictionary>,
        value: &[u8],
        expires: Option<UnixMillis>,
    ) -> Option<Vec<u8>> {
        let (number, packed) = match dictionary {
            Some(dictionary) if self.compression == Compression::Zstd => {
                (BY_DICTIONARY, dictionary.compress(self.level, value))
            }
            _ => {
                let packed = self.compression.compress(self.level, value);
                (self.compression.number(), packed)
            }
        };
        if packed.is_none() && expires.is_none() && is_plain(value) {
            return None;
        }
        let mut tag = TAG;
        let mut stored = match packed {
            Some(packed) => {
                tag |= number;
                packed
            }
            None => {
                let mut body = Vec::with_capacity(value.len() + MOST_BYTES_MORE);
                body.extend_from_slice(value);
                body
            }
        };
        if let Some(UnixMillis(moment)) = expires {
            tag |= EXPIRES_BIT;
            stored.extend_from_slice(&moment.to_le_bytes());
        }
        stored.push(tag);
        Some(stored)
    }
}

/// The parts of a stored value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Bytes of the body, which stands first.
    pub body_bytes: usize,
    /// The body's compression.
    pub compression: u8,
    /// The moment from which the entry is not there.
    pub expires: Option<UnixMillis>,
}

impl Form {
    /// The parts of stored bytes.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    pub fn of(stored: &[u8]) -> Result<Form, String> {
        let mut form = Form {
            body_bytes: stored.len(),
            compression: 0,
            expires: None,
        };
        let Some((tag, rest)) = stored.split_last().filter(|_| !is_plain(stored)) else {
            return Ok(form);
        };
        form.body_bytes = rest.len();
        form.compression = tag & COMPRESSION_BITS;
        if tag & EXPIRES_BIT != 0 {
            let Some(at) = rest.len().checked_sub(8) else {
                return Err(format!(
                    "{} bytes before a tag; expected 8 of a moment",
                    rest.len()
                ));
            };
            form.body_bytes = at;
            form.expires = Some(UnixMillis(u64_at(rest, at)));
        }
        Ok(form)
    }

    /// The compressed body, and how many bytes it was before.
    ///
    /// # Errors
    /// A text that says what is wrong with it.
    pub fn packed<'a>(&self, stored: &'a [u8]) -> Result<Packed<'a>, String> {
        Packed::of(&stored[..self.body_bytes])
    }

    /// True if the body was compressed by the store's dictionary.
    pub fn needs_dictionary(&self) -> bool {
        self.compression == BY_DICTIONARY
    }

    /// The [`Compression::number`] by which the body was compressed.
    pub fn codec(&self) -> u8 {
        match self.compression {
            BY_DICTIONARY => Compression::Zstd.number(),
            number => number,
        }
    }

    /// Writes the body before compression into a buffer of its length.
    ///
    /// # Errors
    /// A text that says what is wrong with it.
    pub fn decompress(
        &self,
        dictionary: Option<&Dictionary>,
        packed: &Packed<'_>,
        into: &mut [u8],
    ) -> Result<(), String> {
        match (self.compression, dictionary) {
            (BY_DICTIONARY, Some(_)) => packed.decompress(self.codec(), dictionary, into),
            (BY_DICTIONARY, None) => Err(
                "it was compressed by a dictionary, and the store's file DICTIONARY is gone: \
                 bring it back from a backup"
                    .to_owned(),
            ),
            (number, _) => packed.decompress(number, None, into),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value_of(form: Form, stored: &[u8]) -> Result<Vec<u8>, String> {
        if form.compression == 0 {
            return Ok(stored[..form.body_bytes].to_vec());
        }
        let packed = form.packed(stored)?;
        let mut value = vec![0; packed.length()];
        form.decompress(None, &packed, &mut value)?;
        Ok(value)
    }

    fn decoded(stored: &[u8]) -> (Vec<u8>, Option<UnixMillis>) {
        let form = Form::of(stored).unwrap();
        (value_of(form, stored).unwrap(), form.expires)
    }

    proptest! {
        #[test]
        fn values_come_back(
            value in prop::collection::vec(prop_oneof![any::<u8>(), 0xeeu8..0xfa], 0..200),
            repeated in 1usize..20,
            expires in prop::option::of(any::<u64>().prop_map(UnixMillis)),
            lz4: bool,
        ) {
            let value = value.repeat(repeated);
            let compression = if lz4 { Compression::Lz4 } else { Compression::None };
            let encoder = Encoder { compression, level: 1, ..Encoder::default() };
            let stored = encoder.encode(None, &value, expires).unwrap_or_else(|| value.clone());
            prop_assert!(stored.len() <= value.len() + MOST_BYTES_MORE);
            prop_assert_eq!(decoded(&stored), (value, expires));
        }

        #[test]
        fn any_bytes_are_parts_or_an_error(stored in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(form) = Form::of(&stored) {
                _ = value_of(form, &stored);
            }
        }
    }

    #[test]
    fn text_is_stored_as_it_is() {
        let encoder = Encoder::default();
        for text in ["", "oak", "Ahorn\u{10ffff}", "ÿ"] {
            assert!(encoder.leaves(text.as_bytes()));
            assert_eq!(encoder.encode(None, text.as_bytes(), None), None);
        }
        assert_eq!(encoder.encode(None, &[0xf3], None), Some(vec![0xf3, 0xf0]));
        // Its size is looked at where values get their forms.
        assert!(!encoder.leaves(&vec![0; limits::MAX_VALUE_BYTES + 1]));
    }
}
