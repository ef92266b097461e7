//! The program `kvzone`, as a function: `main.rs` calls it, and so does a test program that
//! has stores which crash, hang and forget.
//!
//! Exit status: 0 done; 1 a comparison found something worse; 2 wrong usage; 3 a
//! store, the disk, a file or a needed program failed; 130 stopped by Ctrl-C. Data goes to standard output, talk and progress to standard
//! error.
// Allowed in the modules of `stores` that call C libraries, and nowhere else.
#![deny(unsafe_code)]

mod advise;
mod cold;
mod compare;
mod counters;
mod datasets;
mod device;
mod device_reads;
mod limits;
mod list;
mod machine;
mod matrix;
mod output;
mod place;
mod reproduce;
mod run;
mod stop;
mod stores;
mod supervisor;
mod trace;
mod weather;
mod words;
mod worker;

use std::process::ExitCode;

use cambium_base::error::ErrorClass;
use clap::{Parser, Subcommand};
use kvzone_core::adapter::Adapter;
use kvzone_core::error::Error;

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
    /// Say which store suits a workload on this machine: measure those that are
    /// here, and the best of them again, with the reasons
    Advise(Box<advise::AdviseArguments>),
    /// Hold two files of --json against each other; exit status 1 if something
    /// became worse
    Compare(compare::CompareArguments),
    /// List what there is to measure
    List(list::ListArguments),
    /// Compare stores: each in a process of its own, in rounds that take turns
    Run(Box<run::RunArguments>),
    /// Every kind of work, small to large values, each store: one page that says where our
    /// engines are ahead of the best of the others, and where they are behind
    Matrix(Box<matrix::MatrixArguments>),
    /// Measure a published table here: the ratios of stores beside the paper's
    Reproduce(reproduce::ReproduceArguments),
    /// Look at recorded traces, and make them of text; workload trace:FILE
    /// replays them, `kvzone run --record` records them
    Trace(trace::TraceArguments),
    /// One store of a run; started by `kvzone run`
    #[command(hide = true)]
    Worker,
}

/// The command line, for man pages and completions.
pub fn command() -> clap::Command {
    <Arguments as clap::CommandFactory>::command()
}

/// Runs the program. `more` makes further stores, which `--stores` knows and no list shows;
/// workers of this process have them too, since each runs the same program.
pub fn main(more: fn() -> Vec<Box<dyn Adapter>>) -> ExitCode {
    // Another call in the same process has set them before.
    let _ = stores::MORE.set(more);
    let done = |()| ExitCode::SUCCESS;
    let result = match Arguments::parse().command {
        Command::Device(arguments) => device::run(&arguments).map(done),
        Command::Advise(arguments) => advise::run(*arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::List(arguments) => list::run(&arguments).map(done),
        Command::Run(arguments) => run::run(*arguments),
        Command::Matrix(arguments) => matrix::run(&arguments),
        Command::Reproduce(arguments) => reproduce::run(&arguments),
        Command::Trace(arguments) => trace::run(&arguments),
        Command::Worker => worker::run().map(done),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            output::complain(&format!("kvzone: {error}"));
            exit_code(&error)
        }
    }
}

fn exit_code(error: &Error) -> ExitCode {
    match error {
        Error::Usage(_) | Error::Unsupported { .. } => ExitCode::from(2),
        Error::Cambium(error) if error.class() == ErrorClass::Usage => ExitCode::from(2),
        Error::Stopped => ExitCode::from(stop::STOPPED),
        _ => ExitCode::from(3),
    }
}
