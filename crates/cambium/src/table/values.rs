//! Codings of values.
//!
//! | type | coding |
//! |---|---|
//! | `Vec<u8>`, [`Value`], `String` | the bytes |
//! | `[u8; N]` | the bytes |
//! | `u8` to `u128`, `i8` to `i128` | little-endian |
//! | `bool` | one byte, 0 or 1 |
//! | `()` | nothing: the table is a set of keys |
//! | [`Serde<T>`], with feature `serde` | what `postcard` makes of it |

use crate::Value;

/// A value of a [`Table`](crate::table::Table).
pub trait TableValue {
    /// What reads answer.
    type Item;
    /// What writes take, borrowed: `str` for `String`, and so on.
    type Borrowed: ?Sized;

    /// Appends the value's coding.
    ///
    /// # Errors
    /// In words, for what cannot be encoded.
    fn encode(value: &Self::Borrowed, to: &mut Vec<u8>) -> Result<(), String>;

    /// The value of a coding, or `None` for what [`TableValue::encode`] never wrote.
    fn decode(from: Value) -> Option<Self::Item>;
}

impl TableValue for Vec<u8> {
    type Item = Vec<u8>;
    type Borrowed = [u8];

    fn encode(value: &[u8], to: &mut Vec<u8>) -> Result<(), String> {
        to.extend_from_slice(value);
        Ok(())
    }

    fn decode(from: Value) -> Option<Vec<u8>> {
        Some(from.to_vec())
    }
}

/// The store's own bytes: no copy is made.
impl TableValue for Value {
    type Item = Value;
    type Borrowed = [u8];

    fn encode(value: &[u8], to: &mut Vec<u8>) -> Result<(), String> {
        to.extend_from_slice(value);
        Ok(())
    }

    fn decode(from: Value) -> Option<Value> {
        Some(from)
    }
}

impl TableValue for String {
    type Item = String;
    type Borrowed = str;

    fn encode(value: &str, to: &mut Vec<u8>) -> Result<(), String> {
        to.extend_from_slice(value.as_bytes());
        Ok(())
    }

    fn decode(from: Value) -> Option<String> {
        String::from_utf8(from.to_vec()).ok()
    }
}

impl<const N: usize> TableValue for [u8; N] {
    type Item = [u8; N];
    type Borrowed = [u8; N];

    fn encode(value: &[u8; N], to: &mut Vec<u8>) -> Result<(), String> {
        to.extend_from_slice(value);
        Ok(())
    }

    fn decode(from: Value) -> Option<[u8; N]> {
        from.as_ref().try_into().ok()
    }
}

macro_rules! integer_values {
    ($($integer:ident)*) => {$(
        impl TableValue for $integer {
            type Item = $integer;
            type Borrowed = $integer;

            fn encode(value: &$integer, to: &mut Vec<u8>) -> Result<(), String> {
                to.extend_from_slice(&value.to_le_bytes());
                Ok(())
            }

            fn decode(from: Value) -> Option<$integer> {
                from.as_ref().try_into().ok().map($integer::from_le_bytes)
            }
        }
    )*};
}

integer_values!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128);

impl TableValue for bool {
    type Item = bool;
    type Borrowed = bool;

    fn encode(value: &bool, to: &mut Vec<u8>) -> Result<(), String> {
        to.push(u8::from(*value));
        Ok(())
    }

    fn decode(from: Value) -> Option<bool> {
        match from.as_ref() {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl TableValue for () {
    type Item = ();
    type Borrowed = ();

    fn encode(_: &(), _: &mut Vec<u8>) -> Result<(), String> {
        Ok(())
    }

    fn decode(from: Value) -> Option<()> {
        from.is_empty().then_some(())
    }
}

/// Values of a type that `serde` can take apart and put together, in the wire format of
/// `postcard`, which is specified and stable. Fields have no names there, so a struct
/// whose fields changed cannot be read as before: put a version into the type (an enum
/// with one variant for each).
///
/// ```
/// use cambium::table::{Serde, Table};
/// #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
/// struct Tree {
///     name: String,
///     height: u16,
/// }
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// # let store = cambium::open_or_create(folder.path())?;
/// let trees: Table<u64, Serde<Tree>> = Table::new(&store);
/// let oak = Tree { name: "oak".to_string(), height: 45 };
/// trees.put(7, &oak)?;
/// assert_eq!(trees.get(7)?, Some(oak));
/// # store.close()
/// # }
/// ```
#[cfg(feature = "serde")]
#[derive(Clone, Copy, Debug)]
pub struct Serde<T>(std::marker::PhantomData<fn() -> T>);

#[cfg(feature = "serde")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> TableValue for Serde<T> {
    type Item = T;
    type Borrowed = T;

    fn encode(value: &T, to: &mut Vec<u8>) -> Result<(), String> {
        *to = postcard::to_extend(value, std::mem::take(to)).map_err(|error| error.to_string())?;
        Ok(())
    }

    fn decode(from: Value) -> Option<T> {
        let (value, rest) = postcard::take_from_bytes(&from).ok()?;
        rest.is_empty().then_some(value)
    }
}
