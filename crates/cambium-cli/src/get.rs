//! `cambium get`: the value of a key.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use cambium::hexdump::to_hex;
use cambium::{KeyKind, Store, Value};
use clap::Args;

use crate::failure::{Failure, Status, talk};
use crate::namespaces;
use crate::notation::{is_text, key_argument, shown_key, write_escaped};
use crate::output::Output;

#[derive(Debug, Args)]
pub struct GetArguments {
    /// The store
    pub path: PathBuf,
    /// The key
    pub key: OsString,
    /// Key and value are hexadecimal digits (keys of an integer table stay decimal)
    #[arg(long)]
    pub hex: bool,
    /// The namespace; without it, the default one
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// The answer where a key is not there.
pub fn no_value(keys: KeyKind, key: &[u8]) -> Failure {
    Failure::negative(format!("key {} has no value", shown_key(keys, key)))
}

/// Writes the value. `in_shell` is for the answers of a shell, each of which is a
/// line of its own.
pub fn run(store: &Store, in_shell: bool, arguments: &GetArguments) -> Result<Status, Failure> {
    let store = namespaces::within(store, arguments.namespace.as_deref())?;
    let keys = store.capabilities().keys;
    let key = key_argument(keys, arguments.hex, &arguments.key)?;
    let Some(value) = store.get(&key)? else {
        return Err(no_value(keys, &key));
    };
    let mut output = Output::standard()?;
    write(&mut output, &value, arguments.hex, in_shell).map_err(Failure::output)?;
    output.finish()?;
    Ok(Status::Done)
}

fn write(output: &mut Output, value: &Value, hex: bool, in_shell: bool) -> std::io::Result<()> {
    let reader = output.reader();
    let by_lines = in_shell || output.is_terminal();
    if hex {
        output.write_all(to_hex(value).as_bytes())?;
    } else if !by_lines {
        return output.write_all(value);
    } else if output.is_terminal() && is_text(value) {
        output.write_all(value)?;
        if value.ends_with(b"\n") {
            return Ok(());
        }
    } else {
        write_escaped(output, reader, value)?;
        if output.is_terminal() {
            talk(
                "not all of it is printable, so it is shown escaped; a pipe or a file gets its bytes",
            );
        }
    }
    match by_lines {
        true => output.write_all(b"\n"),
        false => Ok(()),
    }
}
