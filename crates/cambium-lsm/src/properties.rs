//! What a table says of itself: counts and names, and its first and last key.
//!
//! ```text
//! ten varints: entries · deletes · range tombstones · smallest, largest sequence ·
//!   key, value bytes · data bytes · data, index blocks
//! four strings, each with a varint length: comparator · filter · first, last key
//! ```

use cambium_base::coding::Decoder;
use cambium_base::varint::{put_varint, put_varint_prefixed};

/// What a table says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    pub entries: u64,
    pub deletes: u64,
    pub range_tombstones: u64,
    pub smallest_sequence: u64,
    pub largest_sequence: u64,
    pub key_bytes: u64,
    pub value_bytes: u64,
    /// Bytes of data blocks as they lie in the file, with trailers.
    pub data_bytes: u64,
    pub data_blocks: u64,
    pub index_blocks: u64,
    pub comparator: String,
    /// Empty for a table without a filter.
    pub filter: String,
    pub first_key: Vec<u8>,
    pub last_key: Vec<u8>,
}

impl Properties {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [
            self.entries,
            self.deletes,
            self.range_tombstones,
            self.smallest_sequence,
            self.largest_sequence,
            self.key_bytes,
            self.value_bytes,
            self.data_bytes,
            self.data_blocks,
            self.index_blocks,
        ] {
            put_varint(&mut bytes, number);
        }
        put_varint_prefixed(&mut bytes, self.comparator.as_bytes());
        put_varint_prefixed(&mut bytes, self.filter.as_bytes());
        put_varint_prefixed(&mut bytes, &self.first_key);
        put_varint_prefixed(&mut bytes, &self.last_key);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let name = |decoder: &mut Decoder<'_>| {
            let bytes = decoder.varint_prefixed()?;
            std::str::from_utf8(bytes).ok().map(str::to_owned)
        };
        let properties = Properties {
            entries: decoder.varint()?,
            deletes: decoder.varint()?,
            range_tombstones: decoder.varint()?,
            smallest_sequence: decoder.varint()?,
            largest_sequence: decoder.varint()?,
            key_bytes: decoder.varint()?,
            value_bytes: decoder.varint()?,
            data_bytes: decoder.varint()?,
            data_blocks: decoder.varint()?,
            index_blocks: decoder.varint()?,
            comparator: name(&mut decoder)?,
            filter: name(&mut decoder)?,
            first_key: decoder.varint_prefixed()?.to_vec(),
            last_key: decoder.varint_prefixed()?.to_vec(),
        };
        (decoder.remaining() == 0).then_some(properties)
    }
}

/// Decodes any bytes as properties; for tests of decoders.
#[doc(hidden)]
pub fn decode_properties_bytes(bytes: &[u8]) -> bool {
    Properties::decode(bytes).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_read_back_and_cut_ones_are_refused() {
        let properties = Properties {
            entries: 300,
            smallest_sequence: u64::MAX,
            comparator: "bytes".to_owned(),
            first_key: b"a".to_vec(),
            last_key: vec![0; 200],
            ..Properties::default()
        };
        let bytes = properties.encode();
        assert_eq!(Properties::decode(&bytes), Some(properties));
        for length in 0..bytes.len() {
            assert_eq!(Properties::decode(&bytes[..length]), None);
        }
    }
}
