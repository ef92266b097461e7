//! `cargo xtask`: the house's own commands.
//!
//! Exit status: 0 done, 1 violations were found, 2 wrong usage, 3 a file could
//! not be read or written.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use xtask::{Severity, Violation, formats};

const USAGE: &str = "\
cargo xtask COMMAND

tidy               check the house rules on every file of the workspace
formats            write docs/format/ from the layouts in the code
formats --check    only say whether docs/format/ is up to date
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["tidy"] => xtask::tidy(&root()).and_then(|found| report(&found)),
        ["formats"] => write_formats(&root()),
        ["formats", "--check"] => formats::check(&root()).and_then(|found| report(&found)),
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

fn write_formats(root: &Path) -> io::Result<ExitCode> {
    let changed = formats::write(root)?;
    let mut out = io::stdout().lock();
    for path in &changed {
        writeln!(out, "wrote {path}")?;
    }
    if changed.is_empty() {
        writeln!(out, "{} is up to date", formats::FOLDER)?;
    }
    Ok(ExitCode::SUCCESS)
}
