//! `cambium snapshot` and `cambium rollback`: states kept under names.

use std::io::Write;
use std::path::PathBuf;

use cambium::Store;
use clap::{Args, Subcommand};

use crate::failure::{Failure, Status};
use crate::notation::write_escaped;
use crate::output::Output;

#[derive(Debug, Args)]
pub struct SnapshotArguments {
    /// The store
    pub path: PathBuf,
    /// What to do
    #[command(subcommand)]
    pub action: SnapshotAction,
}

/// What is done with named snapshots.
#[derive(Debug, Subcommand)]
pub enum SnapshotAction {
    /// Keep the state now under a name
    Create {
        /// The name, 1 to 255 bytes
        name: String,
    },
    /// Write names, a tab, and the last write that each sees
    List,
    /// Let a kept state go
    Delete {
        /// The name
        name: String,
    },
}

#[derive(Debug, Args)]
pub struct RollbackArguments {
    /// The store
    pub path: PathBuf,
    /// The name of the snapshot
    pub name: String,
}

/// Keeps, lists or lets go.
pub fn run(store: &Store, arguments: &SnapshotArguments) -> Result<Status, Failure> {
    match &arguments.action {
        SnapshotAction::Create { name } => store.create_named_snapshot(name)?,
        SnapshotAction::Delete { name } => store.drop_named_snapshot(name)?,
        SnapshotAction::List => {
            let mut output = Output::standard()?;
            let reader = output.reader();
            for (name, sequence) in store.list_named_snapshots()? {
                write_escaped(&mut output, reader, name.as_bytes())
                    .and_then(|()| writeln!(output, "\t{sequence}"))
                    .map_err(Failure::output)?;
            }
            output.finish()?;
        }
    }
    Ok(Status::Done)
}

/// Brings the store back.
pub fn rollback(store: &Store, arguments: &RollbackArguments) -> Result<Status, Failure> {
    store.rollback(&arguments.name)?;
    Ok(Status::Done)
}
