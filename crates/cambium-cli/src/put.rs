//! `cambium put`: a value for a key, from the command line, a file or standard
//! input.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cambium::{Expiry, Store, WriteBatch, limits};
use clap::Args;

use crate::failure::{Failure, Status};
use crate::notation::{bytes_argument, key_argument};
use crate::stores::{Access, Stores};

#[derive(Debug, Args)]
pub struct PutArguments {
    /// The store
    pub path: PathBuf,
    /// The key
    pub key: OsString,
    /// The value; `-` is all of standard input
    #[arg(required_unless_present = "value_file")]
    pub value: Option<OsString>,
    /// The value is the content of this file
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    pub value_file: Option<PathBuf>,
    /// Key and value are hexadecimal digits (keys of an integer table stay decimal);
    /// a value from a file or standard input is taken as it is
    #[arg(long)]
    pub hex: bool,
    /// The entry expires after this time: 90s, 10m, 12h or 30d
    #[arg(long, value_name = "TIME", value_parser = crate::arguments::time)]
    pub ttl: Option<Duration>,
    /// The namespace, made if it is not there; without it, the default one
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// Puts. The value is read to its end before the store is opened, so that it
/// may come from a command that uses the same store.
pub fn run(stores: &Stores, arguments: &PutArguments) -> Result<Status, Failure> {
    let value = value(stores, arguments)?;
    limits::check_value(&value)?;
    stores.using(Access::Write, &arguments.path, |store| {
        put(store, arguments, &value)
    })
}

fn put(store: &Store, arguments: &PutArguments, value: &[u8]) -> Result<Status, Failure> {
    let key = key_argument(store.capabilities().keys, arguments.hex, &arguments.key)?;
    let named;
    let store = match &arguments.namespace {
        Some(name) => {
            named = store.namespace(name)?;
            &named
        }
        None => store,
    };
    let mut batch = WriteBatch::new();
    match arguments.ttl {
        Some(time) => batch.put_expiring(&key, value, Expiry::After(time)),
        None => batch.put(&key, value),
    };
    store.write(batch)?;
    Ok(Status::Done)
}

fn value(stores: &Stores, arguments: &PutArguments) -> Result<Vec<u8>, Failure> {
    if let Some(path) = &arguments.value_file {
        let file = File::open(path).map_err(|error| Failure::file(path, &error))?;
        return all_of(file, path);
    }
    match arguments.value.as_deref() {
        Some(value) if value == "-" => {
            stores.outside_of_shell("a value from standard input")?;
            all_of(io::stdin().lock(), Path::new("standard input"))
        }
        value => bytes_argument(arguments.hex, "value", value.unwrap_or_default()),
    }
}

/// Everything that can be read, or a byte more than the largest value.
fn all_of(from: impl Read, name: &Path) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    let most = limits::MAX_VALUE_BYTES as u64 + 1;
    let read = from.take(most).read_to_end(&mut value);
    read.map_err(|error| Failure::file(name, &error))?;
    Ok(value)
}
