//! How databases lie in one store.
//!
//! ```text
//! database 0 entry  key                          header, then the string; or header of a hash
//! database 1 order  hash of the key, 4, key      empty: the order in which SCAN goes
//! database 2 expiry moment, 8, key               empty: what expires when
//! database 3 field  hash's number, 8, field      the field's value
//! 0xff "state"                                   version, seed, next number, counts
//! 0xff "cluster"                                 the cluster, node and copy that this store is
//! 0xff "partition" database                      how far a copy has come: see `partitions`
//! ```
//!
//! `database` is one byte, numbers are big-endian, so a database is one range of keys. An
//! entry's header is a byte: the kind of value in its low bits, and `0x80` if 8 bytes of the
//! moment at which it expires (milliseconds since 1970, little-endian) follow. A hash keeps
//! its number and the count of its fields, 8 bytes each, little-endian. Numbers of hashes
//! are never reused, so a hash is deleted with its header, and its fields go as one range.
//!
//! Engines without an order of keys have entries and the state alone.

use cambium::{KeyRange, Result, Store, Value};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Databases that fit below the state.
pub const MOST_DATABASES: usize = 240;
/// Longest key that fits with all prefixes.
pub const MOST_KEY_BYTES: usize = cambium::limits::MAX_KEY_BYTES - 10;
/// Longest string: a value of the store has up to 1 GiB, and the entry's header is in it.
pub const MOST_STRING_BYTES: usize = cambium::limits::MAX_VALUE_BYTES - 64;

/// Where the state lies.
pub const STATE_KEY: &[u8] = b"\xffstate";
/// The key under which a store names its cluster.
pub const BINDING_KEY: &[u8] = b"\xffcluster";
const STATE_VERSION: u8 = 1;

const ENTRY: u8 = 0;
const ORDER: u8 = 1;
const EXPIRY: u8 = 2;
const FIELD: u8 = 3;

const STRING: u8 = 1;
const HASH: u8 = 2;
const EXPIRES: u8 = 0x80;

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    String,
    /// Fields with values.
    Hash,
}

impl Kind {
    /// By the name that TYPE answers.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Hash => "hash",
        }
    }
}

/// An entry of a key.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What the key holds.
    pub kind: Kind,
    /// When it expires, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// The string; or what a hash keeps in its header.
    pub body: Value,
}

impl Entry {
    /// Reads a stored entry; `None` if it is none of ours.
    pub fn decode(stored: &Value) -> Option<Entry> {
        let mark = *stored.first()?;
        let kind = match mark & !EXPIRES {
            STRING => Kind::String,
            HASH => Kind::Hash,
            _ => return None,
        };
        let from = if mark & EXPIRES == 0 { 1 } else { 9 };
        let expires = match from {
            1 => None,
            _ => Some(expires(stored)?),
        };
        let body = stored.slice(from..stored.len());
        Some(Entry {
            kind,
            expires,
            body,
        })
    }

    /// Writes an entry.
    pub fn encode(kind: Kind, expires: Option<u64>, body: &[u8]) -> Vec<u8> {
        let mark = match kind {
            Kind::String => STRING,
            Kind::Hash => HASH,
        };
        let mut stored = Vec::with_capacity(9 + body.len());
        match expires {
            None => stored.push(mark),
            Some(moment) => {
                stored.push(mark | EXPIRES);
                stored.extend_from_slice(&moment.to_le_bytes());
            }
        }
        stored.extend_from_slice(body);
        stored
    }

    /// Number and count of fields, of a hash.
    pub fn hash(&self) -> Option<HashHeader> {
        if self.kind != Kind::Hash {
            return None;
        }
        Some(HashHeader {
            number: u64::from_le_bytes(self.body.get(..8)?.try_into().ok()?),
            fields: u64::from_le_bytes(self.body.get(8..16)?.try_into().ok()?),
        })
    }
}

/// The moment at which a stored entry expires, if it does.
pub fn expires(stored: &[u8]) -> Option<u64> {
    let mark = *stored.first()?;
    let moment = stored.get(1..9)?.try_into().ok()?;
    (mark & EXPIRES != 0).then(|| u64::from_le_bytes(moment))
}

/// What a hash keeps in its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashHeader {
    /// Under which its fields lie.
    pub number: u64,
    /// How many fields it has.
    pub fields: u64,
}

impl HashHeader {
    /// The body of its entry.
    pub fn encode(self) -> [u8; 16] {
        let mut body = [0; 16];
        body[..8].copy_from_slice(&self.number.to_le_bytes());
        body[8..].copy_from_slice(&self.fields.to_le_bytes());
        body
    }
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// Where a key's entry lies.
pub fn entry_key(database: u8, key: &[u8]) -> Vec<u8> {
    joined(&[&[database, ENTRY], key])
}

/// The entries of a database whose keys lie in a range.
pub fn entries(database: u8, range: &KeyRange) -> KeyRange {
    let all = KeyRange::prefix([database, ENTRY]);
    KeyRange {
        from: match &range.from {
            Some(from) => Some(entry_key(database, from)),
            None => all.from,
        },
        to: match &range.to {
            Some(to) => Some(entry_key(database, to)),
            None => all.to,
        },
    }
}

/// The user's key of an entry.
pub fn key_of_entry(stored: &[u8]) -> &[u8] {
    stored.get(2..).unwrap_or_default()
}

/// Everything of a database.
pub fn database(database: u8) -> KeyRange {
    KeyRange::prefix([database])
}

/// The place of a key in the order of SCAN.
pub fn place(seed: u64, key: &[u8]) -> u32 {
    (xxh3_64_with_seed(key, seed) >> 32) as u32
}

/// Where a key lies in the order of SCAN.
pub fn order_key(database: u8, seed: u64, key: &[u8]) -> Vec<u8> {
    joined(&[&[database, ORDER], &place(seed, key).to_be_bytes(), key])
}

/// The order of SCAN from a place on.
pub fn order_from(database: u8, place: u32) -> KeyRange {
    let all = KeyRange::prefix([database, ORDER]);
    KeyRange {
        from: Some(joined(&[&[database, ORDER], &place.to_be_bytes()])),
        to: all.to,
    }
}

/// Place and user's key of an entry of that order.
pub fn key_of_order(stored: &[u8]) -> Option<(u32, &[u8])> {
    let place = u32::from_be_bytes(stored.get(2..6)?.try_into().ok()?);
    Some((place, stored.get(6..)?))
}

/// Where a key lies in the order of expiry.
pub fn expiry_key(database: u8, moment: u64, key: &[u8]) -> Vec<u8> {
    joined(&[&[database, EXPIRY], &moment.to_be_bytes(), key])
}

/// The order of expiry of a database.
pub fn expiries(database: u8) -> KeyRange {
    KeyRange::prefix([database, EXPIRY])
}

/// Moment and user's key of an entry of that order.
pub fn key_of_expiry(stored: &[u8]) -> Option<(u64, &[u8])> {
    let moment = u64::from_be_bytes(stored.get(2..10)?.try_into().ok()?);
    Some((moment, stored.get(10..)?))
}

/// Where a field of a hash lies.
pub fn field_key(database: u8, number: u64, field: &[u8]) -> Vec<u8> {
    joined(&[&[database, FIELD], &number.to_be_bytes(), field])
}

/// All fields of a hash.
pub fn fields(database: u8, number: u64) -> KeyRange {
    KeyRange::prefix(field_key(database, number, b""))
}

/// The name of a field.
pub fn field_of(stored: &[u8]) -> &[u8] {
    stored.get(10..).unwrap_or_default()
}

/// True if a store has nothing but what says that it belongs to a cluster.
///
/// # Errors
/// Those of the store.
pub fn is_empty(store: &Store) -> Result<bool> {
    let mut entries = store.iterate()?;
    while let Some(key) = entries.next_key() {
        if *key? != *BINDING_KEY {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The key of a partition's record.
pub fn partition_key(partition: u8) -> Vec<u8> {
    joined(&[b"\xffpartition", &[partition]])
}

/// The partition whose record lies at a key.
pub fn partition_of_record(stored: &[u8]) -> Option<u8> {
    match stored.strip_prefix(b"\xffpartition") {
        Some([partition]) => Some(*partition),
        _ => None,
    }
}

/// How many keys a database has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// All.
    pub keys: u64,
    /// Those that expire.
    pub expiring: u64,
}

/// What the server keeps beside the entries. It is written with each batch that changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Of the hashes in the order of SCAN.
    pub seed: u64,
    /// The next hash's number.
    pub next_number: u64,
    /// By database.
    pub counts: Vec<Count>,
}

impl State {
    /// Of an empty store.
    pub fn new(seed: u64) -> Self {
        State {
            seed,
            next_number: 1,
            counts: vec![Count::default(); MOST_DATABASES],
        }
    }

    /// Writes version, seed and next number, and 17 bytes for each database with keys.
    pub fn encode(&self) -> Vec<u8> {
        let mut stored = vec![STATE_VERSION];
        stored.extend_from_slice(&self.seed.to_le_bytes());
        stored.extend_from_slice(&self.next_number.to_le_bytes());
        for (database, count) in self.counts.iter().enumerate() {
            if *count != Count::default() {
                stored.push(database as u8);
                stored.extend_from_slice(&count.keys.to_le_bytes());
                stored.extend_from_slice(&count.expiring.to_le_bytes());
            }
        }
        stored
    }

    /// Reads the state; `None` if it is of another version, or damaged.
    pub fn decode(stored: &[u8]) -> Option<State> {
        let (version, rest) = stored.split_first()?;
        let number = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
        if *version != STATE_VERSION {
            return None;
        }
        let mut state = State::new(number(rest.get(..8)?)?);
        state.next_number = number(rest.get(8..16)?)?;
        let counts = rest[16..].chunks_exact(17);
        if !counts.remainder().is_empty() {
            return None;
        }
        for count in counts {
            *state.counts.get_mut(usize::from(count[0]))? = Count {
                keys: number(&count[1..9])?,
                expiring: number(&count[9..])?,
            };
        }
        Some(state)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on has failed
mod tests {
    use super::*;

    #[test]
    fn entries_and_state_come_back() {
        for (kind, expires, body) in [
            (Kind::String, None, &b""[..]),
            (Kind::String, Some(u64::MAX), b"oak"),
            (
                Kind::Hash,
                None,
                &HashHeader {
                    number: 7,
                    fields: 3,
                }
                .encode(),
            ),
        ] {
            let stored = Value::from(Entry::encode(kind, expires, body));
            let entry = Entry::decode(&stored).unwrap();
            assert_eq!((entry.kind, entry.expires), (kind, expires));
            assert_eq!(entry.body, body);
        }
        let mut state = State::new(9);
        state.counts[3] = Count {
            keys: 5,
            expiring: 1,
        };
        assert_eq!(State::decode(&state.encode()), Some(state));
        for damaged in [&b""[..], b"\x02", &[1; 18]] {
            assert_eq!(State::decode(damaged), None);
        }
    }

    #[test]
    fn a_database_is_one_range() {
        for stored in [
            entry_key(3, b"\xff"),
            order_key(3, 0, b"a"),
            expiry_key(3, u64::MAX, b""),
            field_key(3, u64::MAX, b"\xff"),
        ] {
            assert!(database(3).contains(&stored));
            assert!(!database(2).contains(&stored) && !database(4).contains(&stored));
        }
        assert!(!database(MOST_DATABASES as u8 - 1).contains(STATE_KEY));
    }

    #[test]
    fn the_longest_key_fits_everywhere() {
        let key = vec![7; MOST_KEY_BYTES];
        for stored in [
            entry_key(0, &key),
            order_key(0, 1, &key),
            expiry_key(0, 1, &key),
            field_key(0, 1, &key),
        ] {
            cambium::limits::check_key(&stored).unwrap();
        }
    }
}
