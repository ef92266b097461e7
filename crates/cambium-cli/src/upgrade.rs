//! `cambium upgrade`: brings a store to the newest format of its engine.
//!
//! The format promise begins with version 0.2. Until then an engine reads its newest format
//! alone, so the command has nothing to rewrite: it says which format a store has, and what to
//! do about another one. It reads the marker alone, so others may have the store open.

use std::path::PathBuf;

use cambium::{Error, engines};
use clap::Args;

use crate::failure::{Failure, Status, talk};
use crate::stores::defaults;

#[derive(Debug, Args)]
pub struct UpgradeArguments {
    /// The store
    pub path: PathBuf,
}

/// Says what the store's format is, or fails with what to do.
pub fn run(arguments: &UpgradeArguments) -> Result<Status, Failure> {
    let path = &arguments.path;
    let marker = defaults().marker(path)?;
    let newest = engines().find(&marker.engine)?.format_version();
    let (engine, found) = (&marker.engine, marker.format_version);
    if found > newest {
        return Err(Error::UnsupportedVersion {
            path: path.clone(),
            found,
            supported: newest,
        }
        .into());
    }
    if found < newest {
        return Err(Failure::failed(format!(
            "{}: engine {engine}, format {found}, which is older than the first release; this program reads format {newest}: \
             export the store with the program that wrote it, and import the dump into a new one",
            path.display()
        )));
    }
    talk(&format!(
        "{}: engine {engine}, format {found}, the newest; there is nothing to do",
        path.display()
    ));
    Ok(Status::Done)
}
