//! Sizes every engine accepts, and the errors beyond them.

use cambium_base::{Error, Result};

/// Longest key in bytes; the empty key is a key.
pub const MAX_KEY_BYTES: usize = 65_535;
/// Largest value in bytes: 1 GiB.
pub const MAX_VALUE_BYTES: usize = 1 << 30;
/// Bytes by which what an engine stores of a value may exceed it.
pub const STORED_BYTES_MORE: usize = 16;
/// Largest batch in bytes of keys and values: 2 GiB.
pub const MAX_BATCH_BYTES: u64 = 2 << 30;

/// Refuses a key that is too long.
pub fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= MAX_KEY_BYTES {
        return Ok(());
    }
    Err(Error::LimitExceeded(format!(
        "a key of {} bytes: keys have 0 to {MAX_KEY_BYTES} bytes",
        key.len()
    )))
}

/// Refuses what an engine is asked to store for a value, if it is too large.
pub fn check_stored_value(stored: &[u8]) -> Result<()> {
    check_value(&stored[stored.len().min(STORED_BYTES_MORE)..])
}

/// Refuses a value that is too large.
pub fn check_value(value: &[u8]) -> Result<()> {
    if value.len() <= MAX_VALUE_BYTES {
        return Ok(());
    }
    Err(Error::LimitExceeded(format!(
        "a value of {} bytes: values have 0 to {MAX_VALUE_BYTES} bytes (1 GiB)",
        value.len()
    )))
}
