//! All entries of a store, namespace by namespace, as of one moment: what `export`
//! writes and `copy` copies.

use cambium::{Entries, Snapshot, Store};

use crate::failure::Failure;
use crate::namespaces;

/// The entries of these namespaces.
pub enum Parts {
    /// Of one, without its name.
    One(Store),
    /// Of all, as of one moment.
    All(Snapshot, Vec<String>),
}

impl Parts {
    /// Those of one namespace, or all of a store that have entries.
    pub fn of(store: &Store, namespace: Option<&str>) -> Result<Self, Failure> {
        if let Some(name) = namespace {
            return Ok(Parts::One(namespaces::existing(store, name)?));
        }
        if store.namespaces()?.len() == 1 {
            return Ok(Parts::One(store.clone()));
        }
        let moment = store.snapshot()?;
        let mut names = Vec::new();
        for name in moment.namespaces()? {
            let Some(part) = moment.namespace(&name)? else {
                continue;
            };
            if part.iterate()?.next().transpose()?.is_some() {
                names.push(name);
            }
        }
        Ok(Parts::All(moment, names))
    }

    /// Their names; one that was asked for goes without.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Parts::One(_) => vec![""],
            Parts::All(_, names) => names.iter().map(String::as_str).collect(),
        }
    }

    /// All entries of one of them.
    pub fn entries(&self, name: &str) -> cambium::Result<Entries> {
        match self {
            Parts::One(store) => store.iterate(),
            Parts::All(moment, _) => match moment.namespace(name)? {
                Some(part) => part.iterate(),
                None => moment.iterate(),
            },
        }
    }
}
