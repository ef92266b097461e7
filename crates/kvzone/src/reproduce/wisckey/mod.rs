//! `kvzone reproduce wisckey/figN`: the experiments of WiscKey (FAST 2016),
//! measured here at a scale that a small machine can do in some minutes.
//!
//! | module | what it holds |
//! |---|---|
//! | `device` | figures 3 and 6: what the disk gives |
//! | `figures` | figures 2, 7 to 12, 14, 15, table 1: who is compared, at which points |
//! | `measure` | their campaigns |
//! | `collection` | figure 13: loading beside garbage collection |
//! | `claims` | what the paper says of them, held against what was measured |
//! | `present` | tables for a terminal and for a document |

mod claims;
mod collection;
mod device;
mod figures;
mod measure;
mod present;

use std::process::ExitCode;

use kvzone_core::error::{Error, Result};
use serde_json::Value;

use super::ReproduceArguments;
use super::shown::{Place, Shown};
use figures::{FIGURES, Figure};
use measure::Asked;

/// Share of the paper's 100 GB, unless asked otherwise.
const SCALE: f64 = 0.002;

/// Rounds, unless asked otherwise: minutes, not an hour. A claim takes 5.
const ROUNDS: u32 = 1;

type Alone = fn(&ReproduceArguments, Asked) -> Result<(Shown, Value)>;

/// Figures that compare no stores: name, title, and how they are measured.
const ALONE: [(&str, &str, Alone); 3] = [
    (
        "wisckey/fig3",
        "WiscKey paper, figure 3: sequential and random reads of the device",
        device::reads,
    ),
    (
        "wisckey/fig6",
        "WiscKey paper, figure 6: impact of the size of writes",
        device::writes,
    ),
    (
        "wisckey/fig13",
        "WiscKey paper, figure 13: random load beside garbage collection",
        collection::show,
    ),
];

/// Names with titles.
pub(super) fn presets() -> impl Iterator<Item = (&'static str, &'static str)> {
    let alone = ALONE.iter().map(|(name, title, _)| (*name, *title));
    let stores = FIGURES.iter().map(|figure| (figure.name, figure.title));
    alone.chain(stores)
}

/// Reproduces a figure of this paper, if there is one of the name.
pub(super) fn run(arguments: &ReproduceArguments) -> Option<Result<ExitCode>> {
    let name = arguments.name.as_str();
    if let Some(figure) = FIGURES.iter().find(|figure| figure.name == name) {
        return Some(compare_stores(arguments, figure));
    }
    let (_, title, measure) = ALONE.iter().find(|(known, ..)| *known == name)?;
    Some(measure_alone(arguments, title, *measure))
}

fn asked(arguments: &ReproduceArguments) -> Asked {
    Asked {
        scale: arguments.scale.unwrap_or(SCALE),
        repeat: arguments.repeat.unwrap_or(ROUNDS),
        seed: arguments.seed,
    }
}

fn compare_stores(arguments: &ReproduceArguments, figure: &'static Figure) -> Result<ExitCode> {
    let place = Place::prepare(arguments)?;
    let measured = measure::measure(figure, arguments, asked(arguments))?;
    let found = serde_json::to_value(&measured.report)
        .map_err(|error| Error::Usage(format!("a report: {error}")))?;
    place.finish(figure.title, found, &present::show(figure, &measured))?;
    let well = measured.all_well();
    Ok(ExitCode::from(if well { 0 } else { 3 }))
}

fn measure_alone(arguments: &ReproduceArguments, title: &str, measure: Alone) -> Result<ExitCode> {
    let name = &arguments.name;
    if !(arguments.stores.is_empty() && arguments.points.is_empty()) {
        return Err(Error::Usage(format!(
            "{name} has its own rows: it takes neither --stores nor --points"
        )));
    }
    if arguments.repeat.is_some_and(|rounds| rounds != 1) {
        return Err(Error::Usage(format!(
            "{name} is measured once: repeat the command"
        )));
    }
    let place = Place::prepare(arguments)?;
    let (shown, found) = measure(arguments, asked(arguments))?;
    place.finish(title, found, &shown)?;
    Ok(ExitCode::SUCCESS)
}
