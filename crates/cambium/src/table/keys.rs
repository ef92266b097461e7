//! Codings of keys that keep their order: of two keys, the encoding of the smaller one is
//! smaller, byte by byte.
//!
//! | type | coding |
//! |---|---|
//! | `u8` to `u128` | big-endian |
//! | `i8` to `i128` | big-endian, the sign bit flipped |
//! | `bool` | one byte, 0 or 1 |
//! | `[u8; N]` | the bytes |
//! | `String`, `Vec<u8>` | the bytes at the end of a key; before other parts of it, each zero byte as `00 ff`, and `00 01` behind the last byte |
//! | `Option<K>` | `00`, or `01` and the key |
//! | `Duration` | seconds, 8 bytes, and nanoseconds, 4 bytes, big-endian |
//! | `SystemTime` | the same since 1970, the seconds signed and rounded down |
//! | tuples of up to four | one after the other |

use std::borrow::Borrow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A key of a [`Table`](crate::table::Table). A type of your own is a key if its coding
/// keeps its order:
///
/// ```
/// use cambium::table::{Key, Table};
/// #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
/// struct TreeNumber(u32);
///
/// impl Key for TreeNumber {
///     type Borrowed = TreeNumber;
///     fn encode(key: &TreeNumber, to: &mut Vec<u8>) {
///         u32::encode(&key.0, to);
///     }
///     fn decode(from: &mut &[u8]) -> Option<Self> {
///         u32::decode(from).map(TreeNumber)
///     }
/// }
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// # let store = cambium::open_or_create(folder.path())?;
/// let trees: Table<TreeNumber, String> = Table::new(&store);
/// trees.put(TreeNumber(7), "oak")?;
/// assert_eq!(trees.get(TreeNumber(7))?.as_deref(), Some("oak"));
/// # store.close()
/// # }
/// ```
pub trait Key: Sized + Borrow<Self::Borrowed> {
    /// The type by which keys are named in calls: `str` for `String`, and so on. It is
    /// encoded as the key is.
    type Borrowed: ?Sized;

    /// Appends the key's coding, which shows by itself where it ends: another part of a
    /// tuple may follow.
    fn encode(key: &Self::Borrowed, to: &mut Vec<u8>);

    /// Takes a key off the front, or answers `None` for what [`Key::encode`] never wrote.
    fn decode(from: &mut &[u8]) -> Option<Self>;

    /// The same of a key with nothing behind it, which may be shorter.
    fn encode_last(key: &Self::Borrowed, to: &mut Vec<u8>) {
        Self::encode(key, to);
    }

    /// Decodes what [`Key::encode_last`] wrote, up to the end.
    fn decode_last(from: &mut &[u8]) -> Option<Self> {
        Self::decode(from)
    }
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*taken)
}

macro_rules! integer_keys {
    ($($unsigned:ident $signed:ident)*) => {$(
        impl Key for $unsigned {
            type Borrowed = $unsigned;

            fn encode(key: &$unsigned, to: &mut Vec<u8>) {
                to.extend_from_slice(&key.to_be_bytes());
            }

            fn decode(from: &mut &[u8]) -> Option<Self> {
                take(from).map($unsigned::from_be_bytes)
            }
        }

        impl Key for $signed {
            type Borrowed = $signed;

            fn encode(key: &$signed, to: &mut Vec<u8>) {
                to.extend_from_slice(&(key ^ $signed::MIN).to_be_bytes());
            }

            fn decode(from: &mut &[u8]) -> Option<Self> {
                Some(take(from).map($signed::from_be_bytes)? ^ $signed::MIN)
            }
        }
    )*};
}

integer_keys!(u8 i8 u16 i16 u32 i32 u64 i64 u128 i128);

impl Key for bool {
    type Borrowed = bool;

    fn encode(key: &bool, to: &mut Vec<u8>) {
        to.push(u8::from(*key));
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        match take(from)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl<const N: usize> Key for [u8; N] {
    type Borrowed = [u8; N];

    fn encode(key: &[u8; N], to: &mut Vec<u8>) {
        to.extend_from_slice(key);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        take(from)
    }
}

impl Key for Vec<u8> {
    type Borrowed = [u8];

    fn encode(key: &[u8], to: &mut Vec<u8>) {
        for byte in key {
            to.push(*byte);
            if *byte == 0 {
                to.push(0xff);
            }
        }
        to.extend_from_slice(&[0, 1]);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        let mut key = Vec::new();
        loop {
            match take(from)? {
                [0] => match take(from)? {
                    [0xff] => key.push(0),
                    [1] => return Some(key),
                    _ => return None,
                },
                [byte] => key.push(byte),
            }
        }
    }

    fn encode_last(key: &[u8], to: &mut Vec<u8>) {
        to.extend_from_slice(key);
    }

    fn decode_last(from: &mut &[u8]) -> Option<Self> {
        Some(std::mem::take(from).to_vec())
    }
}

impl Key for String {
    type Borrowed = str;

    fn encode(key: &str, to: &mut Vec<u8>) {
        Vec::encode(key.as_bytes(), to);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        String::from_utf8(Vec::decode(from)?).ok()
    }

    fn encode_last(key: &str, to: &mut Vec<u8>) {
        to.extend_from_slice(key.as_bytes());
    }

    fn decode_last(from: &mut &[u8]) -> Option<Self> {
        String::from_utf8(Vec::decode_last(from)?).ok()
    }
}

impl<K: Key> Key for Option<K> {
    type Borrowed = Option<K>;

    fn encode(key: &Option<K>, to: &mut Vec<u8>) {
        to.push(u8::from(key.is_some()));
        if let Some(key) = key {
            K::encode(key.borrow(), to);
        }
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        match bool::decode(from)? {
            false => Some(None),
            true => K::decode(from).map(Some),
        }
    }

    fn encode_last(key: &Option<K>, to: &mut Vec<u8>) {
        to.push(u8::from(key.is_some()));
        if let Some(key) = key {
            K::encode_last(key.borrow(), to);
        }
    }

    fn decode_last(from: &mut &[u8]) -> Option<Self> {
        match bool::decode(from)? {
            false => Some(None),
            true => K::decode_last(from).map(Some),
        }
    }
}

impl Key for Duration {
    type Borrowed = Duration;

    fn encode(key: &Duration, to: &mut Vec<u8>) {
        u64::encode(&key.as_secs(), to);
        u32::encode(&key.subsec_nanos(), to);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        let seconds = u64::decode(from)?;
        Some(Duration::new(seconds, nanoseconds(from)?))
    }
}

fn nanoseconds(from: &mut &[u8]) -> Option<u32> {
    u32::decode(from).filter(|nanoseconds| *nanoseconds < 1_000_000_000)
}

impl Key for SystemTime {
    type Borrowed = SystemTime;

    fn encode(key: &SystemTime, to: &mut Vec<u8>) {
        let (seconds, nanoseconds) = match key.duration_since(UNIX_EPOCH) {
            Ok(since) => (i128::from(since.as_secs()), since.subsec_nanos()),
            Err(before) => {
                let before = before.duration();
                match (i128::from(before.as_secs()), before.subsec_nanos()) {
                    (seconds, 0) => (-seconds, 0),
                    (seconds, nanoseconds) => (-seconds - 1, 1_000_000_000 - nanoseconds),
                }
            }
        };
        // Moments of a system have seconds of 64 bits, signed.
        let seconds = seconds.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        i64::encode(&seconds, to);
        u32::encode(&nanoseconds, to);
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        let seconds = i64::decode(from)?;
        let part = Duration::new(0, nanoseconds(from)?);
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let moment = match seconds < 0 {
            true => UNIX_EPOCH.checked_sub(whole)?,
            false => UNIX_EPOCH.checked_add(whole)?,
        };
        moment.checked_add(part)
    }
}

macro_rules! tuple_keys {
    ($($($part:ident $place:tt)* , $last:ident $last_place:tt;)*) => {$(
        impl<$($part: Key,)* $last: Key> Key for ($($part,)* $last) {
            type Borrowed = ($($part,)* $last);

            fn encode(key: &Self::Borrowed, to: &mut Vec<u8>) {
                $($part::encode(key.$place.borrow(), to);)*
                $last::encode(key.$last_place.borrow(), to);
            }

            fn decode(from: &mut &[u8]) -> Option<Self> {
                Some(($($part::decode(from)?,)* $last::decode(from)?))
            }

            fn encode_last(key: &Self::Borrowed, to: &mut Vec<u8>) {
                $($part::encode(key.$place.borrow(), to);)*
                $last::encode_last(key.$last_place.borrow(), to);
            }

            fn decode_last(from: &mut &[u8]) -> Option<Self> {
                Some(($($part::decode(from)?,)* $last::decode_last(from)?))
            }
        }

        impl<$($part: Key,)* $last: Key> CompoundKey for ($($part,)* $last) {
            type First = tuple_keys!(@first $($part)*);
        }
    )*};
    (@first $first:ident $($rest:ident)*) => { $first };
}

/// A key of several parts, which [`Table::scan_first`](crate::table::Table::scan_first)
/// scans by the first of them.
pub trait CompoundKey: Key {
    /// The first part.
    type First: Key;
}

tuple_keys! {
    A 0, B 1;
    A 0 B 1, C 2;
    A 0 B 1 C 2, D 3;
}
