//! `kvzone reproduce alphard/table1`, `alphard/fig3` and `alphard/fig4`: the
//! evaluation of "KVZone and the Search for a Write-Optimized Key-Value Store",
//! section 4, measured here at a scale that a small machine can do.
//!
//! | module | what it holds |
//! |---|---|
//! | `figures` | who is compared, at which points |
//! | `measure` | their campaigns |
//! | `claims` | what the paper says of them, held against what was measured |
//! | `present` | tables for a terminal and for a document |

mod claims;
mod figures;
mod measure;
mod present;

use std::process::ExitCode;

use kvzone_core::error::{Error, Result};

use super::ReproduceArguments;
use super::shown::Place;
use figures::FIGURES;

/// Names with titles.
pub(super) fn presets() -> impl Iterator<Item = (&'static str, &'static str)> {
    FIGURES.iter().map(|figure| (figure.name, figure.title))
}

/// Reproduces a figure of this paper, if there is one of the name.
pub(super) fn run(arguments: &ReproduceArguments) -> Option<Result<ExitCode>> {
    let figure = FIGURES
        .iter()
        .find(|figure| figure.name == arguments.name)?;
    Some(reproduce(arguments, figure))
}

fn reproduce(arguments: &ReproduceArguments, figure: &'static figures::Figure) -> Result<ExitCode> {
    let place = Place::prepare(arguments)?;
    let measured = measure::measure(figure, arguments)?;
    let found = serde_json::to_value(&measured.report)
        .map_err(|error| Error::Usage(format!("a report: {error}")))?;
    place.finish(figure.title, found, &present::show(figure, &measured))?;
    Ok(ExitCode::from(if measured.all_well() { 0 } else { 3 }))
}
