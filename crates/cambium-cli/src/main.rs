//! The `cambium` command.
//!
//! Data go to standard output, talk and progress to standard error. The exit
//! status is one of four: 0 done; 1 key not found or findings; 2 wrong usage,
//! or unsupported by the engine; 3 the store, the disk or (part of) the input
//! failed. A reader that goes away (`| head`) ends a command quietly.
//!
//! | module | what it holds |
//! |---|---|
//! | `arguments` | the command line, with the help of each command |
//! | `commands` | the table of commands: its function, and how it uses its store |
//! | `shell` | many commands on one store |
//! | `stores` | where a command's store comes from |
//! | `create`, `put`, `get`, … | a command each, with its arguments |
//! | `selection` | which entries `scan`, `count` and `delete` are about |
//! | `parts` | all entries of a store, as of one moment |
//! | `partial` | files and folders that appear when they are whole |
//! | `notation`, `lines` | keys, values and entries as text |
//! | `dump` | the format of `export` |
//! | `failure`, `output`, `progress` | statuses, standard output, the terminal |
#![forbid(unsafe_code)]

mod arguments;
mod backup;
mod changes;
mod cluster;
mod commands;
mod copy;
mod count;
mod create;
mod delete;
mod dump;
mod expire;
mod export;
mod failure;
mod get;
mod import;
mod lines;
mod namespaces;
mod notation;
mod options;
mod output;
mod partial;
mod parts;
mod progress;
mod put;
mod reports;
mod scan;
mod selection;
mod shell;
mod snapshots;
mod stats;
mod stores;
mod upgrade;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::arguments::Arguments;
use crate::failure::{Failure, Status, talk};
use crate::output::Output;
use crate::stores::Stores;

fn main() -> ExitCode {
    let outcome = match Arguments::try_parse() {
        Ok(arguments) => {
            if let Some(bytes) = arguments.memory {
                stores::bound_memory(bytes);
            }
            if let Some(most) = arguments.wait {
                stores::wait_for_others(most);
            }
            commands::run(&Stores::Opened, &arguments.command)
        }
        Err(refusal) => answer(&refusal),
    };
    let status = match outcome {
        Ok(status) => status,
        Err(Failure::ReaderGone) => Status::Done,
        Err(Failure::Stop { status, message }) => {
            talk(&message);
            status
        }
    };
    ExitCode::from(status as u8)
}

/// What clap has to say: help and version are data, all else is wrong usage.
fn answer(refusal: &clap::Error) -> Result<Status, Failure> {
    let text = refusal.render().to_string();
    if refusal.use_stderr() {
        let text = text.trim_end();
        talk(text.strip_prefix("error: ").unwrap_or(text));
        return Ok(Status::Usage);
    }
    let mut output = Output::standard()?;
    output.write_all(text.as_bytes()).map_err(Failure::output)?;
    output.finish()?;
    Ok(Status::Done)
}
