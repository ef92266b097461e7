//! `kvzone compare`: two files of `--json` beside each other.
//!
//! Exit status: 0 if nothing that was asked about became worse, 1 if something
//! did, 2 and 3 as everywhere. So a script can hold a change of a store against
//! the figures of before.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use kvzone_core::error::{Error, Result};
use kvzone_core::record::Report;
use kvzone_core::report::compare::{differences, render};
use kvzone_core::report::figure::Figure;

use crate::output;

/// Exit status where something became worse.
const WORSE: u8 = 1;

/// Options of `kvzone compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// What was measured first, written by --json
    #[arg(value_name = "FIRST.json")]
    first: PathBuf,
    /// What is held against it
    #[arg(value_name = "SECOND.json")]
    second: PathBuf,
    /// Differences within so many percent are none
    #[arg(long, value_name = "P", default_value_t = 2.0, value_parser = parse_percent)]
    tolerance: f64,
    /// Figures that decide the exit status: ops, p50, p99, cpu, write-amp,
    /// space, memory
    #[arg(
        long,
        value_name = "FIGURE,...",
        value_delimiter = ',',
        default_value = "ops"
    )]
    by: Vec<String>,
}

fn parse_percent(text: &str) -> std::result::Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..100.0).contains(&percent) => Ok(percent),
        _ => Err("expected a number from 0 to 100, in percent".to_string()),
    }
}

pub(crate) fn run(arguments: &CompareArguments) -> Result<ExitCode> {
    let by: Vec<&str> = arguments
        .by
        .iter()
        .map(|name| Ok(Figure::find(name)?.name))
        .collect::<Result<_>>()?;
    let first = read(&arguments.first)?;
    let second = read(&arguments.second)?;
    let found = differences(&first, &second, arguments.tolerance / 100.0)?;
    output::print(&render(&found))?;
    Ok(match found.is_worse(&by) {
        true => ExitCode::from(WORSE),
        false => ExitCode::SUCCESS,
    })
}

/// A report; where it is none, the error has line and column.
pub(crate) fn read(path: &Path) -> Result<Report> {
    let bytes = std::fs::read(path).map_err(|error| Error::machine("read", path, error))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Error::Usage(format!("{} is no report: {error}", path.display())))
}
