//! The `cambium-server` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

use cambium_server::arguments::Arguments;

/// Each command takes and frees a few small pieces of memory, often on different threads.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

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
