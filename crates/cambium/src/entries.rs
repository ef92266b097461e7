//! Cursors as iterators.

use std::sync::Arc;

use cambium_api::{Cursor, Entry, Result, ResumeToken, Value};

use crate::store::OpenStore;

/// Entries of a store as of the moment at which this was made, whatever is
/// written meanwhile. It holds the store open; after [`Store::close`] it
/// answers `Closed`. After an error it has ended.
///
/// ```
/// use cambium::prelude::*;
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// let options = Options::new().set("keys", "integer");
/// let store = options.create(folder.path(), "zdb")?;
/// for year in [1871u64, 1905, 1954] {
///     store.put(year.to_be_bytes(), "planted", Durability::Written)?;
/// }
/// let mut entries = store.scan(&KeyRange::all(), Direction::Forward)?;
/// entries.seek(1900u64.to_be_bytes())?;
/// let keys: cambium::Result<Vec<Value>> = entries.map(|entry| Ok(entry?.key)).collect();
/// assert_eq!(keys?, [1905u64.to_be_bytes(), 1954u64.to_be_bytes()]);
/// # store.close()
/// # }
/// ```
///
/// [`Store::close`]: crate::Store::close
#[derive(Debug)]
pub struct Entries {
    cursor: Box<dyn Cursor>,
    failed: bool,
    /// Dropped last: the store stays open while the cursor reads.
    _store: Arc<OpenStore>,
}

impl Entries {
    pub(crate) fn new(cursor: Box<dyn Cursor>, store: &Arc<OpenStore>) -> Self {
        Entries {
            cursor,
            failed: false,
            _store: store.clone(),
        }
    }

    /// Moves to the first entry at or behind `key` in the direction of the
    /// scan.
    ///
    /// # Errors
    /// `Unsupported` in an unordered pass.
    ///
    /// ```
    /// use cambium::{Direction, KeyRange};
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// # for tree in ["ash", "elm", "oak"] { store.put(tree, "", cambium::Durability::Written)?; }
    /// let mut back = store.scan(&KeyRange::all(), Direction::Reverse)?;
    /// back.seek("f")?; // the first at or before it
    /// assert_eq!(back.next().transpose()?.expect("ash and elm are before it").key, "elm");
    /// # store.close()
    /// # }
    /// ```
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.cursor.seek(key.as_ref())
    }

    /// The key of the next entry alone, where the engine can without reading its
    /// value.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// # store.put("oak", "Quercus", cambium::Durability::Written)?;
    /// let mut entries = store.iterate()?;
    /// while let Some(key) = entries.next_key() {
    ///     println!("{:?}", key?);
    /// }
    /// # store.close()
    /// # }
    /// ```
    pub fn next_key(&mut self) -> Option<Result<Value>> {
        if self.failed {
            return None;
        }
        let next = self.cursor.next_key().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }

    /// Where [`Store::iterate_with`] goes on after the last entry answered,
    /// also in another process, or `None` where that cannot be.
    ///
    /// [`Store::iterate_with`]: crate::Store::iterate_with
    pub fn resume_token(&self) -> Option<ResumeToken> {
        self.cursor.resume_token()
    }
}

impl Iterator for Entries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.cursor.next().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}
