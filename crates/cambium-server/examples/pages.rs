//! Writes the man pages and the completions of `cambium-server` into a folder; `make pages` calls it.
//! `cargo run --package cambium-server --example pages -- FOLDER`
#![forbid(unsafe_code)]

use std::path::PathBuf;

use clap_complete::Shell;

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os()
        .nth(1)
        .map_or(PathBuf::from("."), PathBuf::from);
    let mut command = <cambium_server::arguments::Arguments as clap::CommandFactory>::command();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "cambium-server", &folder)?;
    }
    clap_mangen::generate_to(command, folder)
}
