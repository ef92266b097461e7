//! `cambium namespaces`, and how commands open a namespace.

use std::path::Path;

use cambium::Store;

use crate::arguments::NamespacesArguments;
use crate::commands;
use crate::failure::{Failure, Status};
use crate::notation::write_escaped;
use crate::output::print;

/// Writes the names of all namespaces but the default one, or drops one.
pub fn list_or_drop(arguments: &NamespacesArguments) -> Result<Status, Failure> {
    if let Some(name) = &arguments.drop {
        return drop_one(&arguments.path, name);
    }
    let store = commands::open_for_reading(&arguments.path)?;
    let mut text = Vec::new();
    for name in store.namespaces()?.iter().filter(|name| !name.is_empty()) {
        // Writing to memory cannot fail.
        _ = write_escaped(&mut text, name.as_bytes());
        text.push(b'\n');
    }
    print(&String::from_utf8_lossy(&text))?;
    store.close()?;
    Ok(Status::Done)
}

fn drop_one(path: &Path, name: &str) -> Result<Status, Failure> {
    let store = commands::open(path)?;
    if !name.is_empty() {
        existing(&store, name)?;
    }
    store.drop_namespace(name)?;
    store.close()?;
    Ok(Status::Done)
}

/// Opens a store for reading, or a namespace of it that is there.
pub fn open(path: &Path, namespace: Option<&str>) -> Result<Store, Failure> {
    within(commands::open_for_reading(path)?, namespace)
}

/// The store itself, or a namespace of it that is there.
pub fn within(store: Store, namespace: Option<&str>) -> Result<Store, Failure> {
    match namespace {
        Some(name) => existing(&store, name),
        None => Ok(store),
    }
}

/// A namespace that is there: reading makes none.
pub fn existing(store: &Store, name: &str) -> Result<Store, Failure> {
    let known = store.namespaces()?.iter().any(|other| other == name);
    if known || !store.capabilities().namespaces {
        return Ok(store.namespace(name)?);
    }
    Err(Failure::Stop {
        status: Status::Negative,
        message: format!("the store has no namespace {name:?}; `cambium namespaces` lists them"),
    })
}
