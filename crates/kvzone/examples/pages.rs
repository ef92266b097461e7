//! Writes the man pages and the completions of `kvzone` into a folder; `make pages` calls it.
//! `cargo run --package kvzone --example pages -- FOLDER`
#![forbid(unsafe_code)]

use std::path::PathBuf;

use clap_complete::Shell;

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os()
        .nth(1)
        .map_or(PathBuf::from("."), PathBuf::from);
    let mut command = kvzone::command().disable_help_subcommand(true);
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "kvzone", &folder)?;
    }
    clap_mangen::generate_to(command, folder)
}
