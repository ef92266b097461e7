//! Keys longer than an engine takes.
//!
//! LevelDB sets no bound to the length of a key; ours end at 65,535 bytes. All
//! longer keys that agree in their first 65,535 bytes share one entry, a group.
//! Its key is those bytes, its value the list of what follows in each key, with
//! its value. So a group stands in the store's order where its keys belong.
//!
//! ```text
//! magic, 16 bytes · (length of rest u32 · length of value u32 · rest · value)*
//! ```
//!
//! Lengths are little-endian, and the members in the order of their rests. A
//! write to a group reads and writes it whole: it is there so that such keys
//! work, not so that they are fast.
//!
//! The key of a group is also a key that a program may use, with other calls or
//! from another interface. As long as no longer key begins with it, its entry is
//! the plain one of all interfaces. Beside longer keys it is the member whose
//! rest is empty.

use cambium::{Error, KeyRange, Result, Value};

/// How much of their beginning the keys of a group share.
const SHARED_BYTES: usize = cambium::limits::MAX_KEY_BYTES;
const MAGIC: &[u8; 16] = b"cambium long key";

/// The keys and values of a group, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    members: Vec<(Vec<u8>, Vec<u8>)>,
}

/// True for keys that always lie in a group.
fn is_long(key: &[u8]) -> bool {
    key.len() > SHARED_BYTES
}

/// True for keys whose entry may be a group.
pub fn may_share(key: &[u8]) -> bool {
    key.len() >= SHARED_BYTES
}

/// The key of the entry that has a key.
pub fn stored_key(key: &[u8]) -> &[u8] {
    &key[..key.len().min(SHARED_BYTES)]
}

/// The value of a key, where `get` reads the store.
///
/// # Errors
/// Those of `get`.
pub fn find(key: &[u8], get: impl FnOnce(&[u8]) -> Result<Option<Value>>) -> Result<Option<Value>> {
    let stored = get(stored_key(key))?;
    Ok(stored.and_then(|stored| value_of(key, stored)))
}

/// The value of a key in the entry that has it.
pub fn value_of(key: &[u8], stored: Value) -> Option<Value> {
    match may_share(key) {
        true => Group::of(&stored).get(key).map(Value::copy_of),
        false => Some(stored),
    }
}

/// Refuses a key that calls for single entries cannot take: it is too long, or `get` finds
/// longer keys in its entry.
///
/// # Errors
/// `LimitExceeded`; those of `get`.
pub fn check_single(key: &[u8], get: impl FnOnce(&[u8]) -> Result<Option<Value>>) -> Result<()> {
    cambium::limits::check_key(key)?;
    if may_share(key) && get(key)?.is_some_and(|stored| !Group::of(&stored).is_single()) {
        return Err(shared_entry("longer keys that begin with it are there"));
    }
    Ok(())
}

/// The error for a key whose entry cannot be a group, or cannot become one.
pub fn shared_entry(why: &str) -> Error {
    Error::LimitExceeded(format!(
        "a key of {SHARED_BYTES} bytes shares its entry with longer keys that begin with it, \
         which excludes expiry, merging, transactions, conditions and ranges: {why}"
    ))
}

/// The range of the store in which a range's keys lie. The reader leaves out
/// the other keys of its groups.
pub fn stored_range(range: &KeyRange) -> KeyRange {
    let from = range.from.as_ref().map(|from| stored_key(from).to_vec());
    let to = match &range.to {
        Some(to) if is_long(to) => KeyRange::from(..=stored_key(to)).to,
        to => to.clone(),
    };
    KeyRange { from, to }
}

impl Group {
    /// The keys of an entry that may be a group. A value of another form is that of the
    /// entry's own key.
    pub fn of(stored: &[u8]) -> Group {
        Group::decode(stored).unwrap_or_else(|| Group {
            members: vec![(Vec::new(), stored.to_vec())],
        })
    }

    fn decode(stored: &[u8]) -> Option<Group> {
        let mut rest = stored.strip_prefix(MAGIC)?;
        let mut members = Vec::new();
        while !rest.is_empty() {
            let (lengths, behind) = rest.split_first_chunk::<8>()?;
            let [a, b, c, d, e, f, g, h] = *lengths;
            let key = u32::from_le_bytes([a, b, c, d]) as usize;
            let value = u32::from_le_bytes([e, f, g, h]) as usize;
            let (key, behind) = behind.split_at_checked(key)?;
            let (value, behind) = behind.split_at_checked(value)?;
            members.push((key.to_vec(), value.to_vec()));
            rest = behind;
        }
        Some(Group { members })
    }

    /// True if it has no key but that of the entry.
    pub fn is_single(&self) -> bool {
        self.members.iter().all(|(rest, _)| rest.is_empty())
    }

    /// The entry's value.
    pub fn encode(&self) -> Vec<u8> {
        if let [(rest, value)] = &self.members[..] {
            // A value in the form of a group is told apart by a group around it.
            if rest.is_empty() && Group::decode(value).is_none() {
                return value.clone();
            }
        }
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

    /// The value of a key of this group.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let at = self.place_of(key).ok()?;
        Some(&self.members[at].1)
    }

    /// Gives a key of this group a value, or takes it away; false if it was not there.
    pub fn set(&mut self, key: &[u8], value: Option<&[u8]>) -> bool {
        match (self.place_of(key), value) {
            (Ok(at), Some(value)) => self.members[at].1 = value.to_vec(),
            (Ok(at), None) => {
                self.members.remove(at);
            }
            (Err(at), Some(value)) => {
                let member = (key[SHARED_BYTES..].to_vec(), value.to_vec());
                self.members.insert(at, member);
            }
            (Err(_), None) => return false,
        }
        true
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

    fn key(length: usize) -> Vec<u8> {
        vec![7; length]
    }

    #[test]
    fn a_group_keeps_its_keys_in_order() {
        let mut group = Group::default();
        for length in [70_000, SHARED_BYTES, 66_000] {
            assert!(group.set(&key(length), Some(&length.to_le_bytes())));
        }
        assert!(group.set(&key(66_000), None));
        assert!(!group.set(&key(66_000), None));
        let group = Group::of(&group.encode());
        let entries = group.entries(stored_key(&key(70_000)));
        let lengths: Vec<usize> = entries.iter().map(|(key, _)| key.len()).collect();
        assert_eq!(lengths, [SHARED_BYTES, 70_000]);
        assert_eq!(
            group.get(&key(70_000)),
            Some(&70_000_usize.to_le_bytes()[..])
        );
        assert_eq!(group.get(&key(66_000)), None);
    }

    #[test]
    fn a_value_that_is_no_group_belongs_to_the_key_itself() {
        let mut whole = Group::default();
        whole.set(&key(70_000), Some(b"leaf"));
        let whole = whole.encode();
        for length in 0..whole.len() {
            let cut = &whole[..length];
            let group = Group::of(cut);
            match length == MAGIC.len() {
                true => assert!(group.is_empty()),
                false => assert_eq!(group.get(&key(SHARED_BYTES)), Some(cut)),
            }
        }
        for value in [&whole[..], MAGIC, b"", b"leaf"] {
            let mut single = Group::default();
            single.set(&key(SHARED_BYTES), Some(value));
            assert!(single.is_single());
            assert_eq!(Group::of(&single.encode()), single);
        }
    }

    #[test]
    fn the_range_up_to_a_long_key_has_its_group() {
        let to = |to: Vec<u8>| stored_range(&KeyRange::from(..to)).to;
        assert_eq!(to(key(SHARED_BYTES)), Some(key(SHARED_BYTES)));
        let mut behind = key(SHARED_BYTES);
        behind[SHARED_BYTES - 1] = 8;
        assert_eq!(to(key(70_000)), Some(behind));
        assert_eq!(
            to([b"a".to_vec(), vec![255; 70_000]].concat()),
            Some(b"b".to_vec())
        );
        assert_eq!(to(vec![255; 70_000]), None);
    }
}
