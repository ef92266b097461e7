//! Merge operators: how a value and an operand become the next value.

use cambium_base::{Error, Result};

/// Makes a key's next value of its current one and an operand. The store calls it at the
/// write, once or more, so it must be pure.
///
/// ```
/// use cambium_api::MergeOperator;
/// use cambium_api::merge::Append;
/// assert_eq!(Append.merge(b"log", Some(b"a"), b"b").unwrap(), b"ab");
/// ```
pub trait MergeOperator: Send + Sync {
    /// The name that [`Engine::merge`](crate::Engine::merge) calls it by.
    fn name(&self) -> &str;

    /// The next value; `current` is `None` where the key is not there.
    ///
    /// # Errors
    /// `InvalidArgument` of an operand or a current value that it cannot use. The write
    /// then fails whole.
    fn merge(&self, key: &[u8], current: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>>;
}

/// `add`: values and operands are signed numbers of 8 bytes, little-endian; a key that is
/// not there counts as 0. A sum that does not fit is an error.
#[derive(Clone, Copy, Debug)]
pub struct Add;

/// `append`: the operand goes to the end of the value.
#[derive(Clone, Copy, Debug)]
pub struct Append;

/// `maximum`: the greater of both, by the order of their bytes.
#[derive(Clone, Copy, Debug)]
pub struct Maximum;

impl MergeOperator for Add {
    fn name(&self) -> &str {
        "add"
    }

    fn merge(&self, key: &[u8], current: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>> {
        let number = |what: &str, bytes: &[u8]| {
            let bytes = bytes.try_into().map_err(|_| {
                Error::InvalidArgument(format!(
                    "merge by add into key {:?}: the {what} has {} bytes; expected 8, a \
                     little-endian number",
                    String::from_utf8_lossy(key),
                    bytes.len()
                ))
            })?;
            Ok::<i64, Error>(i64::from_le_bytes(bytes))
        };
        let current = current.map_or(Ok(0), |current| number("value", current))?;
        let operand = number("operand", operand)?;
        let sum = current.checked_add(operand).ok_or_else(|| {
            Error::InvalidArgument(format!(
                "merge by add into key {:?}: {current} and {operand} do not fit into 64 bits",
                String::from_utf8_lossy(key)
            ))
        })?;
        Ok(sum.to_le_bytes().to_vec())
    }
}

impl MergeOperator for Append {
    fn name(&self) -> &str {
        "append"
    }

    fn merge(&self, _: &[u8], current: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>> {
        Ok([current.unwrap_or_default(), operand].concat())
    }
}

impl MergeOperator for Maximum {
    fn name(&self) -> &str {
        "maximum"
    }

    fn merge(&self, _: &[u8], current: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>> {
        Ok(current.unwrap_or_default().max(operand).to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_start_at_zero_and_do_not_wrap() {
        let one = Add.merge(b"k", None, &1i64.to_le_bytes()).unwrap();
        assert_eq!(one, 1i64.to_le_bytes());
        let most = i64::MAX.to_le_bytes();
        let error = Add.merge(b"k", Some(&most), &one).unwrap_err();
        assert!(error.to_string().contains("do not fit"), "{error}");
        let error = Add.merge(b"k", Some(b"12"), &one).unwrap_err();
        assert!(
            error.to_string().contains("the value has 2 bytes"),
            "{error}"
        );
    }

    #[test]
    fn the_greater_stays() {
        assert_eq!(Maximum.merge(b"k", Some(b"b"), b"a").unwrap(), b"b");
        assert_eq!(Maximum.merge(b"k", None, b"a").unwrap(), b"a");
    }
}
