//! KVZone: which store, with which settings, suits a workload on a machine.
//!
//! Exit status: 0 done; 2 wrong usage; 3 the disk, a file or a needed program
//! failed. Data goes to standard output, talk and progress to standard error.
#![forbid(unsafe_code)]

mod device;
mod machine;
mod output;

use std::process::ExitCode;

use cambium_base::Error;
use cambium_base::error::ErrorClass;
use clap::{Parser, Subcommand};

/// Which key-value store, with which settings, suits a workload on a machine.
#[derive(Debug, Parser)]
#[command(name = "kvzone", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure what a disk gives: random reads by sync, aio and io_uring at
    /// several depths, buffered and direct; sequential reads and writes;
    /// synced writes
    Device(device::DeviceArguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Device(arguments) => device::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&format!("kvzone: {error}"));
            exit_code(&error)
        }
    }
}

fn exit_code(error: &Error) -> ExitCode {
    match error.class() {
        ErrorClass::Usage => ExitCode::from(2),
        ErrorClass::Damage | ErrorClass::Machine | ErrorClass::Retry => ExitCode::from(3),
    }
}
