//! `cambium backup`: a store's files, copied as of one moment.

use std::path::{Path, PathBuf};

use cambium::Store;
use clap::Args;

use crate::failure::{Failure, Status};
use crate::progress::{Meter, Unit};

#[derive(Debug, Args)]
pub struct BackupArguments {
    /// The store
    pub path: PathBuf,
    /// The folder of the copy, empty or not there
    pub destination: PathBuf,
}

/// Copies.
pub fn run(store: &Store, arguments: &BackupArguments) -> Result<Status, Failure> {
    store.backup(&arguments.destination, &Meter::new(Unit::Steps))?;
    Ok(Status::Done)
}

/// Refuses a destination inside the store, links followed.
pub fn refuse_inside(store: &Path, destination: &Path) -> Result<(), Failure> {
    let Ok(store) = std::fs::canonicalize(store) else {
        // Opening it says what is wrong.
        return Ok(());
    };
    let there = destination
        .ancestors()
        .map(|folder| Path::new(".").join(folder))
        .find_map(|folder| std::fs::canonicalize(folder).ok());
    if there.is_some_and(|there| there.starts_with(&store)) {
        return Err(Failure::usage(format!(
            "{}: this is inside the store; expected a folder elsewhere",
            destination.display()
        )));
    }
    Ok(())
}
