//! `cambium count`: how many entries there are.

use std::path::PathBuf;

use cambium::Store;
use clap::Args;

use crate::failure::{Failure, Status};
use crate::namespaces;
use crate::output::print;
use crate::selection::{Pass, Selection};

#[derive(Debug, Args)]
pub struct CountArguments {
    /// The store
    pub path: PathBuf,
    #[command(flatten)]
    pub selection: Selection,
}

/// Writes the number of the entries that were asked for.
pub fn run(store: &Store, arguments: &CountArguments) -> Result<Status, Failure> {
    let store = namespaces::within(store, arguments.selection.namespace.as_deref())?;
    let pass = Pass::plan(&arguments.selection, false, store.capabilities())?;
    print(&format!("{}\n", entries(&store, &pass)?))?;
    Ok(Status::Done)
}

/// Counts what a pass finds; values are not read where the engine can do that.
pub fn entries(store: &Store, pass: &Pass) -> Result<u64, Failure> {
    let mut found = pass.begin(store)?;
    let mut count = 0;
    while found.next_key()?.is_some() {
        count += 1;
    }
    Ok(count)
}
