//! Transactions of a [`Database`]: those of its store, where the two have the same keys.

use cambium::{Error, Result, Transaction};

use crate::database::Database;
use crate::long_keys;

impl Database {
    /// Begins a transaction of the store.
    ///
    /// # Errors
    /// `Unsupported` where the program has brought a comparator, whose keys are not those
    /// of the store; as of [`cambium::Store::transaction`].
    pub fn transaction(&self) -> Result<Transaction> {
        if self.has_comparator() {
            return Err(Error::Unsupported {
                engine: self.store().capabilities().engine,
                what: "transactions in a database with a comparator",
                instead: "use write_batch, or a database in the order of bytes",
            });
        }
        self.store().transaction()
    }
}

/// Refuses a key that a database keeps in a group of long keys: transactions take the keys
/// of the store alone.
///
/// # Errors
/// `LimitExceeded`.
pub fn check_key(key: &[u8]) -> Result<()> {
    if !long_keys::is_long(key) {
        return Ok(());
    }
    Err(Error::LimitExceeded(format!(
        "a key of {} bytes: keys in transactions have up to {} bytes",
        key.len(),
        long_keys::LONG_KEY_BYTES - 1
    )))
}
