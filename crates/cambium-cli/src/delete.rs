//! `cambium delete`: a key, or all keys of a range or with a prefix.

use std::ffi::OsString;
use std::path::PathBuf;

use cambium::{Durability, Store, Value, WriteBatch};
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
        None => delete_singly(&store, &pass, count)?,
    }
    print(&format!("{count} entries deleted\n"))?;
    Ok(Status::Done)
}

/// Deletes the `count` entries that a pass in no order finds, a batch at a time. Each batch is
/// written with no pass open: an open pass keeps the space of deleted entries taken, and a full
/// store needs that space for the next tombstones.
fn delete_singly(store: &Store, pass: &Pass, count: u64) -> Result<(), Failure> {
    let buffered = store.with_durability(Durability::Buffered);
    let (mut after, mut deleted) = (None, 0);
    loop {
        let mut found = pass.begin_after(store, after.as_ref())?;
        let mut keys = Vec::new();
        while keys.len() < BATCH_ENTRIES {
            match found.next_key()? {
                Some(key) => keys.push(key),
                None => break,
            }
        }
        let resumed = after.is_some();
        after = found.resume_token();
        drop(found);
        match keys.is_empty() {
            // The pass skips entries with the hash of a deleted one where it is resumed.
            true if resumed && deleted < count => after = None,
            true => break,
            false => delete_batch(&buffered, &keys)?,
        }
        deleted += keys.len() as u64;
    }
    store.sync()?;
    Ok(())
}

/// Deletes in one batch; where a full store has no room for so many tombstones, half of them
/// after the other.
fn delete_batch(store: &Store, keys: &[Value]) -> Result<(), Failure> {
    let mut batch = WriteBatch::new();
    for key in keys {
        batch.delete(key);
    }
    match store.write(batch) {
        Err(error) if error.is_no_space() && keys.len() > 1 => {
            let (some, others) = keys.split_at(keys.len() / 2);
            delete_batch(store, some)?;
            delete_batch(store, others)
        }
        written => Ok(written.map(drop)?),
    }
}
