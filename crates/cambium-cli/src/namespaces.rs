//! `cambium namespaces`, and how commands open a namespace.

use std::io::Write;
use std::path::PathBuf;

use cambium::Store;
use clap::Args;

use crate::failure::{Failure, Status};
use crate::notation::write_escaped;
use crate::output::Output;

#[derive(Debug, Args)]
pub struct NamespacesArguments {
    /// The store
    pub path: PathBuf,
    /// Drop this one with all its entries, instead
    #[arg(long, value_name = "NAME")]
    pub drop: Option<String>,
}

/// Writes the names of all namespaces but the default one, or drops one.
pub fn run(store: &Store, arguments: &NamespacesArguments) -> Result<Status, Failure> {
    if let Some(name) = &arguments.drop {
        if !name.is_empty() {
            existing(store, name)?;
        }
        store.drop_namespace(name)?;
        return Ok(Status::Done);
    }
    let mut output = Output::standard()?;
    let reader = output.reader();
    for name in store.namespaces()?.iter().filter(|name| !name.is_empty()) {
        write_escaped(&mut output, reader, name.as_bytes())
            .and_then(|()| output.write_all(b"\n"))
            .map_err(Failure::output)?;
    }
    output.finish()?;
    Ok(Status::Done)
}

/// The store itself, or a namespace of it that is there.
pub fn within(store: &Store, namespace: Option<&str>) -> Result<Store, Failure> {
    match namespace {
        Some(name) => existing(store, name),
        None => Ok(store.clone()),
    }
}

/// A namespace that is there: reading makes none.
pub fn existing(store: &Store, name: &str) -> Result<Store, Failure> {
    let known = store.namespaces()?.iter().any(|other| other == name);
    if known || !store.capabilities().namespaces {
        return Ok(store.namespace(name)?);
    }
    Err(Failure::negative(format!(
        "the store has no namespace {name:?}; `cambium namespaces` lists them"
    )))
}
