//! Transactions of a [`Database`]: those of its store, where the two have the same keys.

use cambium::{Error, Result, Transaction};

use crate::database::Database;

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
