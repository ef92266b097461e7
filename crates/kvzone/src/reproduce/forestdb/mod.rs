//! `kvzone reproduce forestdb/figN`: the experiments of ForestDB 2016, measured
//! here at a scale that a small machine can do in some minutes.
//!
//! | module | what it holds |
//! |---|---|
//! | `analysis` | figure 10: when it pays to extend a leaf tree; computed |
//! | `index` | figures 12 and 13: index structures in files, read with direct I/O |
//! | `figures` | figures 14 to 19: who is compared, at which points |
//! | `measure` | their campaigns |
//! | `claims` | what the paper says of them, held against what was measured |
//! | `present` | tables for a terminal and for a document |

mod analysis;
mod claims;
mod figures;
mod index;
mod measure;
mod present;

use std::process::ExitCode;

use kvzone_core::error::{Error, Result};
use kvzone_core::record::Report;
use serde_json::Value;

use super::ReproduceArguments;
use super::shown::Place;
use figures::{FIGURES, Figure};
use index::IndexFigure;
use measure::Asked;

/// The figure that is computed.
const ANALYSIS: &str = "forestdb/fig10";
const ANALYSIS_TITLE: &str =
    "ForestDB paper, figure 10: space and height when a leaf tree is extended";

/// Share of the paper's 200 million documents, unless asked otherwise.
const SCALE: f64 = 0.0018;

/// Rounds, unless asked otherwise: minutes, not an hour. A claim takes 5.
const ROUNDS: u32 = 1;

enum Preset {
    Analysis,
    Index(&'static IndexFigure),
    Stores(&'static Figure),
}

/// Names with titles.
pub(super) fn presets() -> impl Iterator<Item = (&'static str, &'static str)> {
    let index = index::FIGURES
        .iter()
        .map(|figure| (figure.name, figure.title));
    let stores = FIGURES.iter().map(|figure| (figure.name, figure.title));
    std::iter::once((ANALYSIS, ANALYSIS_TITLE))
        .chain(index)
        .chain(stores)
}

/// Reproduces a figure of this paper, if there is one of the name.
pub(super) fn run(arguments: &ReproduceArguments) -> Option<Result<ExitCode>> {
    let name = arguments.name.as_str();
    let index = index::FIGURES.iter().find(|figure| figure.name == name);
    let stores = FIGURES.iter().find(|figure| figure.name == name);
    let preset = match (name == ANALYSIS, index, stores) {
        (true, ..) => Preset::Analysis,
        (_, Some(figure), _) => Preset::Index(figure),
        (_, _, Some(figure)) => Preset::Stores(figure),
        _ => return None,
    };
    Some(reproduce(arguments, &preset))
}

fn reproduce(arguments: &ReproduceArguments, preset: &Preset) -> Result<ExitCode> {
    let place = Place::prepare(arguments)?;
    let asked = |scale: f64| Asked {
        arguments,
        scale: arguments.scale.unwrap_or(scale),
        repeat: arguments.repeat.unwrap_or(ROUNDS),
    };
    let (title, shown, found, well) = match preset {
        Preset::Analysis => (ANALYSIS_TITLE, analysis::show(), Value::Null, true),
        Preset::Index(figure) => {
            let (shown, found) = index::show(figure, asked(1.0))?;
            (figure.title, shown, found, true)
        }
        Preset::Stores(figure) => {
            let measured = measure::measure(figure, asked(SCALE))?;
            let shown = present::show(figure, &measured);
            let well = measured.all_well();
            (figure.title, shown, report_json(&measured.report)?, well)
        }
    };
    place.finish(title, found, &shown)?;
    Ok(ExitCode::from(if well { 0 } else { 3 }))
}

fn report_json(report: &Report) -> Result<Value> {
    serde_json::to_value(report).map_err(|error| Error::Usage(format!("a report: {error}")))
}
