//! The `cambium-server` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

use cambium_server::arguments::Arguments;

fn main() -> ExitCode {
    match cambium_server::run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_empty() {
                eprintln!("cambium-server: {failure}");
            }
            ExitCode::FAILURE
        }
    }
}
