//! `cambium expire`: when an entry ceases to be there; shows it, or changes it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use cambium::{Expiry, Store};
use clap::Args;

use crate::backup::utc;
use crate::failure::{Failure, Status};
use crate::get::no_value;
use crate::namespaces;
use crate::notation::key_argument;
use crate::output::print;

#[derive(Debug, Args)]
pub struct ExpireArguments {
    /// The store
    pub path: PathBuf,
    /// The key
    pub key: OsString,
    /// The entry expires after this time: 90s, 10m, 12h or 30d
    #[arg(value_name = "TIME", value_parser = crate::arguments::time, conflicts_with = "never")]
    pub after: Option<Duration>,
    /// The entry does not expire any more
    #[arg(long)]
    pub never: bool,
    /// The key is hexadecimal digits (keys of an integer table stay decimal)
    #[arg(long)]
    pub hex: bool,
    /// The namespace; without it, the default one
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
}

impl ExpireArguments {
    /// True if the store is to be written.
    pub fn changes(&self) -> bool {
        self.never || self.after.is_some()
    }
}

/// Changes the moment at which an entry expires, or writes it: a date, or `never`.
pub fn run(store: &Store, arguments: &ExpireArguments) -> Result<Status, Failure> {
    let store = namespaces::within(store, arguments.namespace.as_deref())?;
    let keys = store.capabilities().keys;
    let key = key_argument(keys, arguments.hex, &arguments.key)?;
    let is_there = match arguments.after {
        Some(time) => store.expire(&key, Expiry::After(time))?,
        None if arguments.never => store.persist(&key)?,
        None => {
            let moment = store.expires_at(&key)?;
            let is_there = moment.is_some() || store.get(&key)?.is_some();
            if is_there {
                print(&format!("{}\n", moment.map_or("never".to_string(), utc)))?;
            }
            is_there
        }
    };
    match is_there {
        true => Ok(Status::Done),
        false => Err(no_value(keys, &key)),
    }
}
