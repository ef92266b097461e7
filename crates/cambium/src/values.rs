//! Entries that expire, and merging.

use std::sync::Arc;

use cambium_api::{Expiry, MergeOperator, Result, SequenceNumber, UnixMillis, limits};

use crate::store::Store;

impl Store {
    /// Gives a key a value that expires. From that moment on the entry is not there, for
    /// reads, scans, new snapshots and preconditions; background work deletes it later.
    ///
    /// # Errors
    /// As of [`Store::put`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use cambium::prelude::*;
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &Options::new())?;
    /// let hour = Expiry::After(Duration::from_secs(3600));
    /// store.put_expiring("session", "ann", hour)?;
    /// assert!(store.expires_at("session")?.is_some());
    /// assert!(store.persist("session")?);
    /// assert_eq!(store.expires_at("session")?, None);
    /// # store.close()
    /// # }
    /// ```
    pub fn put_expiring(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: Expiry,
    ) -> Result<SequenceNumber> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let engine = self.engine();
        engine.put_expiring(key, value, expiry, self.durability())
    }

    /// The moment at which a key's entry expires; `None` if it does not, or is not there.
    ///
    /// # Errors
    /// As of [`Store::get`].
    pub fn expires_at(&self, key: impl AsRef<[u8]>) -> Result<Option<UnixMillis>> {
        let key = key.as_ref();
        limits::check_key(key)?;
        self.engine().expires_at(key)
    }

    /// Lets an entry expire at another moment; false if the key is not there.
    ///
    /// # Errors
    /// As of [`Store::put`].
    pub fn expire(&self, key: impl AsRef<[u8]>, expiry: Expiry) -> Result<bool> {
        let engine = self.engine();
        engine.set_expiry(key.as_ref(), Some(expiry), self.durability())
    }

    /// Lets an entry stay; false if the key is not there.
    ///
    /// # Errors
    /// As of [`Store::put`].
    pub fn persist(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let engine = self.engine();
        engine.set_expiry(key.as_ref(), None, self.durability())
    }

    /// Lets a merge operator make a key's next value of its current one and `operand`,
    /// atomically against every other write. `add`, `append` and `maximum` are there;
    /// [`Store::register_operator`] adds others. Costs a read of the key.
    ///
    /// # Errors
    /// As of [`Store::put`]; `InvalidArgument` for an operator that is not registered, and
    /// the operator's own.
    ///
    /// ```
    /// use cambium::prelude::*;
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &Options::new())?;
    /// store.merge("add", "visitors", 1i64.to_le_bytes())?;
    /// store.merge("add", "visitors", 2i64.to_le_bytes())?;
    /// assert_eq!(store.get("visitors")?.as_deref(), Some(&3i64.to_le_bytes()[..]));
    /// # store.close()
    /// # }
    /// ```
    pub fn merge(
        &self,
        operator: &str,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<SequenceNumber> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        let engine = self.engine();
        engine.merge(operator, key, operand, self.durability())
    }

    /// Knows a merge operator by its name from now on, until the store is closed.
    ///
    /// # Errors
    /// `Unsupported` on an engine without the value layer.
    pub fn register_operator(&self, operator: Arc<dyn MergeOperator>) -> Result<()> {
        self.engine().register_operator(operator)
    }
}
