//! Transactions of a store. What they promise, and what they cost, stands in
//! [`cambium_api::transaction`].

use std::any::Any;
use std::sync::Arc;

use cambium_api::{Result, Transaction};

use crate::store::Store;

impl Store {
    /// Begins a transaction: it reads the state of this moment and its own writes, and
    /// [`Transaction::commit`] makes its writes visible together. The commit fails with
    /// `Conflict` if anything that the transaction read (keys, keys that were not there,
    /// ranges) was changed since; committed transactions are serializable. It holds the
    /// store open, and keeps in memory what it wrote and the keys that it read.
    ///
    /// A transaction that writes nothing never conflicts; one that reads nothing neither.
    /// It commits with this handle's [durability](Store::with_durability).
    ///
    /// # Errors
    /// As of [`Store::snapshot`].
    ///
    /// ```
    /// use cambium::{Conflict, Error, prelude::*};
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &Options::new())?;
    /// store.put("oak", "1 tree")?;
    /// let transaction = store.transaction()?;
    /// if transaction.get("oak")?.is_some() {
    ///     transaction.put("elm", "planted beside the oak")?;
    /// }
    /// store.delete("oak")?; // somebody else
    /// match transaction.commit() {
    ///     Err(Error::Conflict { conflict: Conflict::Key { key, .. } }) => assert_eq!(key, b"oak"),
    ///     other => panic!("{other:?}"),
    /// }
    /// assert_eq!(store.get("elm")?, None);
    /// # store.close()
    /// # }
    /// ```
    pub fn transaction(&self) -> Result<Transaction> {
        let held: Arc<dyn Any + Send + Sync> = self.open.clone();
        Transaction::begin(&self.open.engine, self.durability(), Some(held))
    }

    /// Runs a transaction and commits it. If it conflicts, runs it again on the new state,
    /// up to [`MOST_ATTEMPTS`](cambium_api::transaction::MOST_ATTEMPTS) times; one that has lost
    /// several times goes before those that begin. `work` is called once an attempt, so it
    /// must keep nothing of the last one.
    ///
    /// # Errors
    /// Those of `work`, which end the transaction without writing anything; `Conflict` if
    /// the last attempt met one too; those of the commit.
    ///
    /// ```
    /// use cambium::prelude::*;
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &Options::new())?;
    /// let number = store.transact(|transaction| {
    ///     let before = transaction.get("visitors")?;
    ///     let before = before.map_or(0, |value| u64::from_le_bytes(value[..8].try_into().unwrap()));
    ///     transaction.put("visitors", (before + 1).to_le_bytes())?;
    ///     Ok(before + 1)
    /// })?;
    /// assert_eq!(number, 1);
    /// # store.close()
    /// # }
    /// ```
    pub fn transact<R>(&self, work: impl FnMut(&Transaction) -> Result<R>) -> Result<R> {
        let starving = &*self.open.starving;
        let begin = || self.transaction();
        cambium_api::transaction::transact(begin, starving, work).map(|(answer, _)| answer)
    }

    /// The loop of [`Store::transact`], for interfaces that begin and commit the transaction
    /// themselves: calls `attempt_once` up to `most_attempts` times, until its answer is no
    /// `Conflict`.
    ///
    /// # Errors
    /// Those of `attempt_once`.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// store.repeat(64, || {
    ///     let transaction = store.transaction()?;
    ///     let before = transaction.get("oak")?;
    ///     let before = before.as_deref().unwrap_or_default();
    ///     transaction.put("oak", [before, b"!"].concat())?;
    ///     transaction.commit()
    /// })?;
    /// # store.close()
    /// # }
    /// ```
    pub fn repeat<R>(
        &self,
        most_attempts: u32,
        attempt_once: impl FnMut() -> Result<R>,
    ) -> Result<R> {
        cambium_api::transaction::repeat(most_attempts, &self.open.starving, attempt_once)
    }
}
