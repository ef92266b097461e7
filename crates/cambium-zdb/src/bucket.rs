//! A bucket of string keys: the value of an integer key.
//!
//! ```text
//! keys 4 │ put 4 │ keys × ( key_bytes 4 │ value_bytes 4 │ key … │ value … )
//!        │ ( key_bytes 4 │ key … ) for each key that the write deleted
//! ```
//!
//! The last `put` keys are those that the write put. An entry is a whole bucket, and the
//! change feed shows of it what the write changed.

use cambium_base::Value;
use cambium_base::coding::{Decoder, put_length_prefixed};

/// The keys and values of a bucket, and what its write changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub pairs: Vec<(Value, Value)>,
    /// How many pairs at the end of the list the write put.
    put: usize,
    /// The keys that the write deleted.
    deleted: Vec<Value>,
}

impl Bucket {
    /// A bucket of these pairs, none of which its write changes.
    pub fn of(pairs: Vec<(Value, Value)>) -> Bucket {
        Bucket {
            pairs,
            ..Bucket::default()
        }
    }

    /// The pairs that the bucket's write put.
    pub fn put_pairs(&self) -> &[(Value, Value)] {
        &self.pairs[self.pairs.len() - self.put..]
    }

    /// The keys that the bucket's write deleted.
    pub fn deleted_keys(&self) -> &[Value] {
        &self.deleted
    }

    /// Decodes a bucket's bytes, sharing them; `None` where they are none.
    pub fn decode(bytes: &Value) -> Option<Bucket> {
        let mut decoder = Decoder::new(bytes);
        let count = decoder.u32()? as usize;
        let put = decoder.u32()? as usize;
        let mut pairs = Vec::with_capacity(count.min(bytes.len() / 8));
        for _ in 0..count {
            let key_bytes = decoder.u32()? as usize;
            let value_bytes = decoder.u32()? as usize;
            let start = bytes.len() - decoder.remaining();
            decoder.bytes(key_bytes)?;
            decoder.bytes(value_bytes)?;
            let middle = start + key_bytes;
            pairs.push((
                bytes.slice(start..middle),
                bytes.slice(middle..middle + value_bytes),
            ));
        }
        let mut deleted = Vec::new();
        while decoder.remaining() > 0 {
            let key_bytes = decoder.length_prefixed()?.len();
            let end = bytes.len() - decoder.remaining();
            deleted.push(bytes.slice(end - key_bytes..end));
        }
        (put <= count).then_some(Bucket {
            pairs,
            put,
            deleted,
        })
    }

    /// The value of one key, without decoding the others.
    pub fn find(bytes: &Value, key: &[u8]) -> Option<Option<Value>> {
        let mut decoder = Decoder::new(bytes);
        let count = decoder.u32()?;
        let _put = decoder.u32()?;
        for _ in 0..count {
            let key_bytes = decoder.u32()? as usize;
            let value_bytes = decoder.u32()? as usize;
            let found = decoder.bytes(key_bytes)?;
            let start = bytes.len() - decoder.remaining();
            decoder.bytes(value_bytes)?;
            if found == key {
                return Some(Some(bytes.slice(start..start + value_bytes)));
            }
        }
        Some(None)
    }

    /// The bucket's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_bytes() as usize);
        bytes.extend_from_slice(&(self.pairs.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.put as u32).to_le_bytes());
        for (key, value) in &self.pairs {
            bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(value);
        }
        for key in &self.deleted {
            put_length_prefixed(&mut bytes, key);
        }
        bytes
    }

    /// How many bytes those are.
    pub fn encoded_bytes(&self) -> u64 {
        let pairs = self.pairs.iter();
        let deleted = self.deleted.iter().map(|key| (4 + key.len()) as u64);
        8 + deleted.sum::<u64>()
            + pairs
                .map(|(key, value)| (8 + key.len() + value.len()) as u64)
                .sum::<u64>()
    }

    /// Gives a key a value, or (`None`) deletes it.
    pub fn set(&mut self, key: &[u8], value: Option<&[u8]>) {
        let found = self.pairs.iter().position(|(known, _)| known == key);
        let replaced = found.map(|place| {
            if place >= self.pairs.len() - self.put {
                self.put -= 1;
            }
            self.pairs.remove(place)
        });
        match (replaced, value) {
            (_, Some(value)) => {
                self.deleted.retain(|deleted| deleted != key);
                self.pairs
                    .push((Value::copy_of(key), Value::copy_of(value)));
                self.put += 1;
            }
            (Some((key, _)), None) => self.deleted.push(key),
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_reads_back_finds_its_keys_and_refuses_cuts() {
        let mut bucket = Bucket::default();
        bucket.set(b"", Some(b"empty key"));
        bucket.set(b"a\0", Some(b""));
        bucket.set(b"gone", Some(b"x"));
        bucket.set(b"gone", None);
        let bytes = Value::from(bucket.encode());
        assert_eq!(Bucket::decode(&bytes), Some(bucket.clone()));
        assert_eq!(Bucket::find(&bytes, b"").unwrap().unwrap(), b"empty key");
        assert_eq!(Bucket::find(&bytes, b"gone").unwrap(), None);
        let deleted = 4 + b"gone".len();
        for length in (0..bytes.len()).filter(|length| length + deleted != bytes.len()) {
            assert_eq!(Bucket::decode(&bytes.slice(0..length)), None);
        }
    }

    #[test]
    fn a_bucket_says_what_its_write_put_and_deleted() {
        let mut bucket = Bucket::default();
        for key in [b"a", b"b", b"c", b"d"] {
            bucket.set(key, Some(b"old"));
        }
        let mut bucket = Bucket::of(bucket.pairs);
        assert!(bucket.put_pairs().is_empty());
        bucket.set(b"b", Some(b"1"));
        bucket.set(b"e", Some(b"2"));
        bucket.set(b"a", None);
        bucket.set(b"b", Some(b"3"));
        bucket.set(b"c", None);
        bucket.set(b"c", Some(b"4"));
        bucket.set(b"e", None);
        bucket.set(b"not there", None);
        let put: Vec<_> = bucket
            .put_pairs()
            .iter()
            .map(|(k, v)| (&**k, &**v))
            .collect();
        assert_eq!(put, [(&b"b"[..], &b"3"[..]), (b"c", b"4")]);
        assert_eq!(bucket.deleted_keys(), [&b"a"[..], b"e"]);
        assert_eq!(bucket.pairs.len(), 3);
    }
}
