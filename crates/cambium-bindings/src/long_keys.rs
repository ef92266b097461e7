//! Keys longer than an engine takes.
//!
//! LevelDB sets no bound to the length of a key; ours end at 65,535 bytes.
//! All keys of 65,535 bytes and more that agree in their first 65,534 share one
//! entry, a group: its key is those bytes and a zero, its value the list of
//! what follows in each key, with its value. Groups stand in the store's order
//! where their keys belong: behind the key that is their beginning alone, and
//! before the next one of as many bytes.
//!
//! ```text
//! magic, 16 bytes · (length of rest u32 · length of value u32 · rest · value)*
//! ```
//!
//! Lengths are little-endian, and the members in the order of their rests. A
//! write to a group reads and writes it whole: it is there so that such keys
//! work, not so that they are fast.

use cambium::{Error, KeyRange, Result, Value};

/// Keys from this length on lie in groups.
pub const LONG_KEY_BYTES: usize = SHARED_BYTES + 1;
/// How much of their beginning the keys of a group share.
const SHARED_BYTES: usize = cambium::limits::MAX_KEY_BYTES - 1;
const MAGIC: &[u8; 16] = b"cambium long key";

/// The keys and values of a group, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    members: Vec<(Vec<u8>, Vec<u8>)>,
}

/// True for keys that lie in a group.
pub fn is_long(key: &[u8]) -> bool {
    key.len() >= LONG_KEY_BYTES
}

/// The key of the group that a long key lies in.
pub fn group_key(key: &[u8]) -> Vec<u8> {
    let mut group = key[..SHARED_BYTES].to_vec();
    group.push(0);
    group
}

/// True if an entry is a group, and not a key of the same length that a
/// program without these groups has put.
pub fn is_group(key: &[u8], value: &[u8]) -> bool {
    may_be_group(key) && value.starts_with(MAGIC)
}

/// True if the entry of a key may be a group: its value tells.
pub fn may_be_group(key: &[u8]) -> bool {
    key.len() == LONG_KEY_BYTES && key.ends_with(&[0])
}

/// The range of the store in which a range's keys lie; what else is in its
/// groups is for the reader to leave out.
pub fn stored_range(range: &KeyRange) -> KeyRange {
    let from = range.from.as_ref().map(|from| match is_long(from) {
        true => group_key(from),
        false => from.clone(),
    });
    let to = range.to.as_ref().map(|to| match is_long(to) {
        true => {
            let mut behind = group_key(to);
            if let Some(last) = behind.last_mut() {
                *last = 1;
            }
            behind
        }
        false => to.clone(),
    });
    KeyRange { from, to }
}

impl Group {
    /// Reads a group's value.
    ///
    /// # Errors
    /// `InvalidArgument` where it is none.
    pub fn decode(value: &[u8]) -> Result<Group> {
        let wrong = || {
            Error::InvalidArgument(
                "the value of a group of long keys: its members do not fill it".to_string(),
            )
        };
        let mut rest = value.strip_prefix(MAGIC).ok_or_else(wrong)?;
        let mut members = Vec::new();
        while !rest.is_empty() {
            let (lengths, behind) = rest.split_first_chunk::<8>().ok_or_else(wrong)?;
            let [a, b, c, d, e, f, g, h] = *lengths;
            let key = u32::from_le_bytes([a, b, c, d]) as usize;
            let value = u32::from_le_bytes([e, f, g, h]) as usize;
            let (key, behind) = behind.split_at_checked(key).ok_or_else(wrong)?;
            let (value, behind) = behind.split_at_checked(value).ok_or_else(wrong)?;
            members.push((key.to_vec(), value.to_vec()));
            rest = behind;
        }
        Ok(Group { members })
    }

    /// The group's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for (rest, value) in &self.members {
            // Keys and values end at 1 GiB, before a u32 does.
            bytes.extend_from_slice(&(rest.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
            bytes.extend_from_slice(rest);
            bytes.extend_from_slice(value);
        }
        bytes
    }

    /// True if no key is left.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The value of a long key of this group.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let at = self.place_of(key).ok()?;
        Some(&self.members[at].1)
    }

    /// Gives a long key of this group a value, or takes it away.
    pub fn set(&mut self, key: &[u8], value: Option<&[u8]>) {
        match (self.place_of(key), value) {
            (Ok(at), Some(value)) => self.members[at].1 = value.to_vec(),
            (Ok(at), None) => {
                self.members.remove(at);
            }
            (Err(at), Some(value)) => {
                let member = (key[SHARED_BYTES..].to_vec(), value.to_vec());
                self.members.insert(at, member);
            }
            (Err(_), None) => {}
        }
    }

    /// Keys and values, in order, of the group that has this key.
    pub fn entries(&self, group_key: &[u8]) -> Vec<(Value, Value)> {
        let entry = |(rest, value): &(Vec<u8>, Vec<u8>)| {
            let key = [&group_key[..SHARED_BYTES], rest].concat();
            (Value::from(key), Value::from(value.clone()))
        };
        self.members.iter().map(entry).collect()
    }

    fn place_of(&self, key: &[u8]) -> std::result::Result<usize, usize> {
        let rest = &key[SHARED_BYTES..];
        self.members
            .binary_search_by(|member| member.0.as_slice().cmp(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_keeps_its_keys_in_order() {
        let mut group = Group::default();
        let key = |length| vec![7_u8; length];
        for length in [70_000, LONG_KEY_BYTES, 66_000] {
            group.set(&key(length), Some(&length.to_le_bytes()));
        }
        group.set(&key(66_000), None);
        let group = Group::decode(&group.encode()).unwrap();
        assert!(is_group(&group_key(&key(70_000)), &group.encode()));
        let entries = group.entries(&group_key(&key(70_000)));
        let lengths: Vec<usize> = entries.iter().map(|(key, _)| key.len()).collect();
        assert_eq!(lengths, [LONG_KEY_BYTES, 70_000]);
        assert_eq!(
            group.get(&key(70_000)),
            Some(&70_000_usize.to_le_bytes()[..])
        );
        assert_eq!(group.get(&key(66_000)), None);
    }

    #[test]
    fn what_is_no_group_is_an_error() {
        let mut whole = Group::default();
        whole.set(&vec![7; 70_000], Some(b"leaf"));
        let whole = whole.encode();
        for length in 0..whole.len() {
            let cut = Group::decode(&whole[..length]);
            assert!(cut.is_err() || length == MAGIC.len(), "{length}");
        }
    }
}
