//! `cambium delete`: a key, or all keys of a range or with a prefix.

use std::ffi::OsString;
use std::path::PathBuf;

use cambium::{Durability, Store, WriteBatch};
use clap::Args;

use crate::failure::{Failure, Status};
use crate::notation::key_argument;
use crate::output::print;
use crate::selection::{Pass, Selection};
use crate::{count, namespaces};

/// Deletes in a batch, where the engine has none of a range.
const BATCH_ENTRIES: usize = 1000;

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").args(["key", "from", "to", "prefix"]).required(true).multiple(true))]
pub struct DeleteArguments {
    /// The store
    pub path: PathBuf,
    /// The key
    #[arg(conflicts_with_all = ["from", "to", "prefix", "unordered", "dry_run"])]
    pub key: Option<OsString>,
    #[command(flatten)]
    pub selection: Selection,
    /// Count what would be deleted, and delete nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Deletes, synced; of several entries it says how many.
pub fn run(store: &Store, arguments: &DeleteArguments) -> Result<Status, Failure> {
    let selection = &arguments.selection;
    let store = namespaces::within(store, selection.namespace.as_deref())?;
    if let Some(key) = &arguments.key {
        let key = key_argument(store.capabilities().keys, selection.hex, key)?;
        store.delete(&key)?;
        return Ok(Status::Done);
    }
    let pass = Pass::plan(selection, false, store.capabilities())?;
    let count = count::entries(&store, &pass)?;
    if arguments.dry_run {
        print(&format!("{count} entries would be deleted\n"))?;
        return Ok(Status::Done);
    }
    match &pass.range {
        _ if count == 0 => {}
        Some(range) => {
            store.delete_range(range)?;
        }
        None => delete_singly(&store, &pass)?,
    }
    print(&format!("{count} entries deleted\n"))?;
    Ok(Status::Done)
}

/// Deletes what a pass in no order finds, a batch at a time.
fn delete_singly(store: &Store, pass: &Pass) -> Result<(), Failure> {
    let mut found = pass.begin(store)?;
    let store = store.with_durability(Durability::Buffered);
    let mut batch = WriteBatch::new();
    while let Some(key) = found.next_key()? {
        batch.delete(&key);
        if batch.len() >= BATCH_ENTRIES {
            store.write(std::mem::take(&mut batch))?;
        }
    }
    if !batch.is_empty() {
        store.write(batch)?;
    }
    store.sync()?;
    Ok(())
}
