//! `kvzone reproduce alphard/table1`, `alphard/fig3`, `alphard/fig4` and `alphard/fio`: the
//! evaluation of "KVZone and the Search for a Write-Optimized Key-Value Store",
//! section 4, measured here at a scale that a small machine can do.
//!
//! | module | what it holds |
//! |---|---|
//! | `figures` | who is compared, at which points |
//! | `measure` | their campaigns |
//! | `claims` | what the paper says of them, held against what was measured |
//! | `present` | tables for a terminal and for a document |
//! | `beside_fio` | inserts beside `fio`, which the paper does not have |

mod beside_fio;
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
    let figures = FIGURES.iter().map(|figure| (figure.name, figure.title));
    figures.chain([(beside_fio::NAME, beside_fio::TITLE)])
}

/// Reproduces a figure of this paper, if there is one of the name.
pub(super) fn run(arguments: &ReproduceArguments) -> Option<Result<ExitCode>> {
    if arguments.name == beside_fio::NAME {
        return Some(measure_beside_fio(arguments));
    }
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

fn measure_beside_fio(arguments: &ReproduceArguments) -> Result<ExitCode> {
    let place = Place::prepare(arguments)?;
    let (found, shown) = beside_fio::measure(arguments)?;
    place.finish(beside_fio::TITLE, found, &shown)?;
    Ok(ExitCode::SUCCESS)
}
