//! `cargo xtask`: the house's own commands.
//!
//! Exit status: 0 done, 1 violations were found, 2 wrong usage, 3 a file could
//! not be read or written.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use xtask::{Severity, Violation};

/// Where readers of the book find what is outside of it.
const ADDRESS: &str = "https://github.com/cambium-kv/cambium/blob/main";

const USAGE: &str = "\
cargo xtask COMMAND

tidy               check the house rules on every file of the workspace
documents          write docs/format/ and docs/reference/ from the code
licences           list the crates of others that programs contain, each with its licence
cells              copy cells of docs/matrix.md into the tables that show a part of it
book FOLDER        write the sources of the book for mdBook into a folder
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["tidy"] => xtask::tidy(&root()).and_then(|found| report(&found)),
        ["documents"] => write_documents(),
        ["licences"] => xtask::licences::foreign(&root()).and_then(|crates| {
            let list = xtask::licences::list(&crates);
            io::stdout().write_all(list.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }),
        ["cells"] => xtask::cells::write(&root()).map(|()| ExitCode::SUCCESS),
        ["book", folder] => {
            xtask::book::copy(&root(), Path::new(folder), ADDRESS).map(|()| ExitCode::SUCCESS)
        }
        ["help" | "--help" | "-h"] => io::stdout()
            .write_all(USAGE.as_bytes())
            .map(|()| ExitCode::SUCCESS),
        _ => io::stderr()
            .write_all(USAGE.as_bytes())
            .map(|()| ExitCode::from(2)),
    };
    outcome.unwrap_or_else(|error| {
        // Standard error may be gone too; the exit status still says it.
        let _ = writeln!(io::stderr(), "xtask: {error}");
        ExitCode::from(3)
    })
}

/// The workspace this program was built in.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn report(found: &[Violation]) -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    for violation in found {
        writeln!(out, "{violation}")?;
    }
    let errors = found
        .iter()
        .filter(|violation| violation.severity == Severity::Error)
        .count();
    let warnings = found.len() - errors;
    writeln!(out, "tidy: {errors} errors, {warnings} warnings")?;
    Ok(ExitCode::from(u8::from(errors > 0)))
}

/// Has the suite that compares the documents write them.
fn write_documents() -> io::Result<ExitCode> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args([
            "test",
            "--quiet",
            "--package",
            "xtask",
            "--test",
            "generated",
        ])
        .env("CAMBIUM_WRITE_DOCUMENTS", "1")
        .status()?;
    Ok(ExitCode::from(if status.success() { 0 } else { 3 }))
}
