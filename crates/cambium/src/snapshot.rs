//! One moment of a store.

use std::fmt;
use std::sync::Arc;

use cambium_api::{IterationOrder, KeyRange, Result, ResumeToken, SequenceNumber, Value, limits};

use crate::entries::Entries;
use crate::store::OpenStore;

/// The state of a store at one moment, for as long as this is held. Cheap to
/// clone; holds the store open. Old versions that it can reach take memory or
/// space, until it is dropped.
///
/// ```
/// use cambium::prelude::*;
/// # fn main() -> cambium::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// # let store = cambium::create(folder.path(), "forest", &Options::new())?;
/// store.put("oak", "young")?;
/// let then = store.snapshot()?;
/// store.put("oak", "old")?;
/// assert_eq!(then.get("oak")?.as_deref(), Some(&b"young"[..]));
/// assert_eq!(then.iterate()?.count(), 1);
/// # store.close()
/// # }
/// ```
#[derive(Clone)]
pub struct Snapshot {
    snapshot: Arc<dyn cambium_api::Snapshot>,
    store: Arc<OpenStore>,
}

impl Snapshot {
    pub(crate) fn new(snapshot: Arc<dyn cambium_api::Snapshot>, store: &Arc<OpenStore>) -> Self {
        Snapshot {
            snapshot,
            store: store.clone(),
        }
    }

    /// True of a snapshot of that store, in whichever of its namespaces.
    pub(crate) fn is_of(&self, store: &OpenStore) -> bool {
        store.is_part_of(&self.store)
    }

    /// The last write it sees: of two snapshots, the greater one is the later one.
    pub fn sequence(&self) -> SequenceNumber {
        self.snapshot.sequence()
    }

    /// The value of a key then, or `None`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        limits::check_key(key)?;
        self.snapshot.get(key)
    }

    /// The values of several keys then, in the order of the keys.
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        keys.iter().try_for_each(|key| limits::check_key(key))?;
        self.snapshot.multi_get(keys)
    }

    /// Entries of a range in key order, from both ends. Errors as of
    /// [`Store::scan`](crate::Store::scan).
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// # for tree in ["ash", "elm", "oak"] { store.put(tree, "")?; }
    /// let then = store.snapshot()?;
    /// store.delete("ash")?;
    /// assert_eq!(then.scan("a".."f")?.count(), 2);
    /// # store.close()
    /// # }
    /// ```
    pub fn scan(&self, range: impl Into<KeyRange>) -> Result<Entries> {
        let range = range.into();
        let front = self.snapshot.scan(&range, cambium_api::Direction::Forward);
        Entries::scan(front, range, &self.store)
    }

    /// Names of the store's namespaces, in order, the default one (`""`)
    /// first. One that was made later is empty here.
    pub fn namespaces(&self) -> Result<Vec<String>> {
        self.snapshot.namespaces()
    }

    /// The same moment of another namespace, or `None` if the store has none
    /// of that name.
    ///
    /// ```
    /// use cambium::prelude::*;
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &Options::new())?;
    /// store.namespace("people")?.put("ada", "Lovelace")?;
    /// let then = store.snapshot()?;
    /// let people = then.namespace("people")?.expect("it was made above");
    /// assert!(people.get("ada")?.is_some() && then.get("ada")?.is_none());
    /// # store.close()
    /// # }
    /// ```
    pub fn namespace(&self, name: &str) -> Result<Option<Snapshot>> {
        let snapshot = match self.snapshot.namespace(name)? {
            Some(snapshot) => snapshot,
            None if name.is_empty() => self.snapshot.clone(),
            None => return Ok(None),
        };
        Ok(Some(Snapshot::new(snapshot, &self.store)))
    }

    /// Every entry, in the order that is cheapest for the engine.
    pub fn iterate(&self) -> Result<Entries> {
        self.iterate_with(IterationOrder::Any, None)
    }

    /// Every entry in an order, from the start or from where an earlier pass
    /// left off.
    pub fn iterate_with(
        &self,
        order: IterationOrder,
        resume: Option<&ResumeToken>,
    ) -> Result<Entries> {
        let cursor = self.snapshot.iterate(order, resume)?;
        Ok(Entries::pass(cursor, &self.store))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({})", self.sequence())
    }
}
