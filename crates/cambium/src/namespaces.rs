//! Namespaces of a store.

use std::sync::Arc;

use cambium_api::Result;

use crate::store::{OpenStore, Store};

impl Store {
    /// The namespace of this handle; `""` is the default one.
    pub fn namespace_name(&self) -> &str {
        self.open.namespace.as_deref().unwrap_or_default()
    }

    /// A namespace of this store, made if it is not there; the default one is
    /// `""`. It keeps the store open, and has this handle's durability.
    ///
    /// # Errors
    /// `Unsupported` where the engine has none.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// store.namespace("")?.put("oak", "Quercus")?;
    /// assert!(store.get("oak")?.is_some());
    /// # store.close()
    /// # }
    /// ```
    pub fn namespace(&self, name: &str) -> Result<Store> {
        Ok(Store {
            open: Arc::new(OpenStore {
                engine: self.open.engine.namespace(name)?,
                path: self.open.path.clone(),
                namespace: (!name.is_empty()).then(|| Arc::from(name)),
                parent: Some(self.open.clone()),
                starving: self.open.starving.clone(),
                environment: self.open.environment.clone(),
            }),
            durability: self.durability,
        })
    }

    /// Names of all namespaces, in order, the default one (`""`) first.
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// store.namespace("people")?;
    /// assert_eq!(store.namespaces()?, ["", "people"]);
    /// # store.close()
    /// # }
    /// ```
    pub fn namespaces(&self) -> Result<Vec<String>> {
        self.open.engine.list_namespaces()
    }

    /// Takes a namespace away with everything in it, atomically, durable when it
    /// returns; compaction gives its space back. Snapshots and iterators that are
    /// open go on; other handles of it answer `NotFound` from then on, also if
    /// another is made under the same name. A rollback to a named snapshot that has
    /// it brings it back.
    ///
    /// # Errors
    /// `NotFound` where there is none of that name, `InvalidArgument` for the
    /// default one, `Unsupported` where the engine cannot
    /// ([`droppable_namespaces`](crate::Capabilities::droppable_namespaces)).
    ///
    /// ```
    /// # fn main() -> cambium::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder for the example");
    /// # let store = cambium::create(folder.path(), "forest", &cambium::Options::new())?;
    /// let people = store.namespace("people")?;
    /// people.put("ada", "Lovelace")?;
    /// let before = people.snapshot()?;
    /// store.drop_namespace("people")?;
    /// assert_eq!(store.namespaces()?, [""]);
    /// assert!(people.get("ada").is_err());
    /// assert!(before.get("ada")?.is_some());
    /// # drop(before);
    /// # store.close()
    /// # }
    /// ```
    pub fn drop_namespace(&self, name: &str) -> Result<()> {
        self.open.engine.drop_namespace(name)
    }
}
