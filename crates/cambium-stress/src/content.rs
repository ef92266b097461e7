//! Keys and values that say what they are.
//!
//! A key is made from a thread's number and an id, and its bytes sort by both. Values
//! are made from the key and a version:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | version, little-endian: the operation's number × 256, plus the place in its batch |
//! | 4 | hash of thread and id |
//! | 4 | length of the value |
//! | rest | a pattern of all of these |
//!
//! A short value is a prefix of that. Two versions of a short value can have the same
//! bytes, so the oracle compares bytes, and never relies on a decoded version alone.

use serde::{Deserialize, Serialize};

use crate::random::mix;

/// The "thread" that keys written by all threads have.
pub const SHARED: usize = 200;
/// Groups of shared keys that are written together.
pub const GROUPS: usize = 6;
/// Keys of a group.
pub const MEMBERS: usize = 4;
/// Groups from this one on are changed by compare-and-set, in which only member 0 counts.
pub const FIRST_SWAPPED: usize = 4;
const HEADER_BYTES: usize = 16;

/// A key: its thread, and its number there.
pub type KeyId = (usize, u32);

/// The version and the length of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub version: u64,
    pub length: u32,
}

/// How keys look in one store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyShape {
    /// 8 bytes, big-endian.
    pub integer: bool,
    pub threads: usize,
    /// Keys of each thread.
    pub keys: u32,
    /// Bytes that all keys begin with.
    pub prefix: usize,
    /// Most bytes after the id.
    pub suffix: usize,
    /// Namespaces that keys are spread over.
    pub namespaces: usize,
}

impl KeyShape {
    /// The bytes of a key. Ids up to `keys`, which no entry has, serve as bounds.
    pub fn key(&self, (thread, id): KeyId) -> Vec<u8> {
        if self.integer {
            let thread = if thread == SHARED {
                self.threads
            } else {
                thread
            };
            let number = thread as u64 * u64::from(self.keys) + u64::from(id);
            return number.to_be_bytes().to_vec();
        }
        // The empty key is a key.
        if (thread, id) == (0, 0) && self.prefix == 0 {
            return Vec::new();
        }
        let mut key = vec![b'k'; self.prefix];
        key.push(thread as u8);
        key.extend_from_slice(&id.to_be_bytes());
        let drawn = mix(u64::from(id) << 8 | thread as u64);
        let suffix = drawn as usize % (self.suffix + 1);
        key.extend((0..suffix).map(|at| (drawn >> (at % 7 * 8)) as u8));
        key
    }

    /// The key that a pass over the store shows.
    pub fn shown(&self, how: &str, key: &[u8]) -> Result<KeyId, String> {
        let never = || format!("{how} shows a key that was never written: {key:02x?}");
        self.decode(key).ok_or_else(never)
    }

    /// The key of these bytes, if the store has such keys.
    pub fn decode(&self, key: &[u8]) -> Option<KeyId> {
        if self.integer {
            let number = u64::from_be_bytes(key.try_into().ok()?);
            let thread = (number / u64::from(self.keys)) as usize;
            let thread = thread.min(self.threads);
            let id = (number - thread as u64 * u64::from(self.keys)) as u32;
            let thread = if thread == self.threads {
                SHARED
            } else {
                thread
            };
            return Some((thread, id));
        }
        if key.is_empty() && self.prefix == 0 {
            return Some((0, 0));
        }
        let thread = *key.get(self.prefix)? as usize;
        let id = key.get(self.prefix + 1..self.prefix + 5)?;
        let id = (thread, u32::from_be_bytes(id.try_into().ok()?));
        (self.key(id) == key).then_some(id)
    }

    /// The namespace that a key is in.
    pub fn namespace(&self, (thread, id): KeyId) -> usize {
        let by = if thread == SHARED {
            id as usize
        } else {
            thread
        };
        by % self.namespaces
    }

    /// All keys of threads and groups.
    pub fn all(&self) -> impl Iterator<Item = KeyId> + '_ {
        let own = (0..self.threads).flat_map(|thread| (0..self.keys).map(move |id| (thread, id)));
        own.chain((0..GROUPS).flat_map(group_keys))
    }
}

/// The keys of a group.
pub fn group_keys(group: usize) -> impl Iterator<Item = KeyId> {
    let members = if group >= FIRST_SWAPPED { 1 } else { MEMBERS };
    (0..members).map(move |member| (SHARED, (group * MEMBERS + member) as u32))
}

/// The version that an operation gives to the keys of a group.
pub fn shared_version(thread: usize, operation: u64) -> u64 {
    (thread as u64) << 48 | operation << 8
}

/// The bytes of a value.
pub fn value((thread, id): KeyId, version: Version) -> Vec<u8> {
    let length = version.length as usize;
    let tag = mix((thread as u64) << 32 | u64::from(id)) as u32;
    let mut bytes = Vec::with_capacity(length.max(HEADER_BYTES) + 8);
    bytes.extend_from_slice(&version.version.to_le_bytes());
    bytes.extend_from_slice(&tag.to_le_bytes());
    bytes.extend_from_slice(&version.length.to_le_bytes());
    let seed = mix(version.version ^ u64::from(tag) << 20);
    // Some values compress, most do not.
    let step = if version.version >> 8 & 3 == 0 {
        0
    } else {
        0x9e37_79b9_7f4a_7c15
    };
    let mut word = seed;
    while bytes.len() < length {
        word = word.wrapping_add(step);
        bytes.extend_from_slice(&(word ^ word >> 29).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The version that a value of 16 bytes or more says it is.
pub fn decode_version(value: &[u8]) -> Option<Version> {
    let header = value.get(..HEADER_BYTES)?;
    Some(Version {
        version: u64::from_le_bytes(header[..8].try_into().ok()?),
        length: u32::from_le_bytes(header[12..].try_into().ok()?),
    })
}

/// True if the bytes are a key's value of that version.
pub fn is_value(key: KeyId, version: Version, bytes: &[u8]) -> bool {
    bytes.len() == version.length as usize && bytes == value(key, version)
}

/// True if bytes, or their absence, are those of a version of a key, or of no version.
pub fn fits(key: KeyId, version: Option<Version>, bytes: Option<&[u8]>) -> bool {
    match (version, bytes) {
        (None, None) => true,
        (Some(version), Some(bytes)) => is_value(key, version, bytes),
        _ => false,
    }
}

/// A value for people: its length, and the version it says it is.
pub fn describe(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "no value".to_string(),
        Some(bytes) => match decode_version(bytes) {
            Some(version) => format!(
                "{} bytes of operation {} (version {:#x})",
                bytes.len(),
                version.version << 16 >> 24,
                version.version
            ),
            None => format!("{} bytes {bytes:02x?}", bytes.len()),
        },
    }
}
