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
//! | `commands` | what each command does, but for the larger ones: |
//! | `scan`, `import`, `export` | entries in, entries out |
//! | `namespaces` | listing namespaces, opening one |
//! | `notation` | keys and values as text: raw, decimal, hexadecimal, JSON |
//! | `dump` | the format of `export` |
//! | `failure`, `output`, `progress` | statuses, standard output, the terminal |
#![forbid(unsafe_code)]

mod arguments;
mod commands;
mod dump;
mod export;
mod failure;
mod import;
mod namespaces;
mod notation;
mod output;
mod progress;
mod reports;
mod scan;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::arguments::Arguments;
use crate::failure::{Failure, Status, talk};
use crate::output::Output;

fn main() -> ExitCode {
    let outcome = match Arguments::try_parse() {
        Ok(arguments) => commands::run(arguments.command),
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
