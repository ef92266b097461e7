//! `cambium scan`: entries, one a line.

use std::path::PathBuf;

use cambium::Store;
use clap::Args;

use crate::failure::{Failure, Status};
use crate::lines::{Format, Lines};
use crate::namespaces;
use crate::output::Output;
use crate::selection::{Pass, Selection};

#[derive(Debug, Args)]
pub struct ScanArguments {
    /// The store
    pub path: PathBuf,
    #[command(flatten)]
    pub selection: Selection,
    /// From large keys to small ones
    #[arg(long)]
    pub reverse: bool,
    /// Entries to stop after
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Leave the values out
    #[arg(long)]
    pub keys_only: bool,
    /// How to write entries
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Writes the entries that were asked for.
pub fn run(store: &Store, arguments: &ScanArguments) -> Result<Status, Failure> {
    let store = namespaces::within(store, arguments.selection.namespace.as_deref())?;
    let capabilities = store.capabilities();
    let pass = Pass::plan(&arguments.selection, arguments.reverse, capabilities)?;
    let mut output = Output::standard()?;
    let lines = Lines {
        format: arguments.format,
        keys: capabilities.keys,
        reader: output.reader(),
    };
    let mut found = pass.begin(&store)?;
    // The limit is asked first: no entry is read that is not written.
    for _ in 0..arguments.limit.unwrap_or(u64::MAX) {
        let (key, value) = if arguments.keys_only {
            (found.next_key()?, None)
        } else {
            let entry = found.next_entry()?;
            entry.map_or((None, None), |entry| (Some(entry.key), Some(entry.value)))
        };
        let Some(key) = key else {
            break;
        };
        let written = lines.write(&mut output, "", &key, value.as_deref(), None);
        written.map_err(Failure::output)?;
    }
    output.finish()?;
    Ok(Status::Done)
}
