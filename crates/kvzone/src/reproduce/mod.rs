//! `kvzone reproduce`: a published table, measured here.
//!
//! | module | what it holds |
//! |---|---|
//! | `figures/` | the figures of each paper as data, with what the paper claims |
//! | `figure`, `columns` | what a figure is, and what its rows may say |
//! | `chosen` | which of a figure's stores and points are measured |
//! | `runner`, `read_ahead` | measure a figure |
//! | `measured`, `claims` | what was measured, and sentences held against it |
//! | `present`, `document` | a figure as text, in a document and as a page |
//!
//! Machines differ by more than stores do, so what is compared with the paper
//! is the ratio between stores, never a rate.

mod chosen;
mod claims;
mod columns;
mod document;
mod figure;
mod measured;
mod present;
mod read_ahead;
mod runner;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use kvzone_core::error::{Error, Result};
use kvzone_core::names::unknown;

use crate::run::parse::{parse_bytes, parse_count, parse_positive};
use figure::Figure;
use present::{Place, show};

/// Length of a measured phase of a figure.
const SECONDS: f64 = 4.0;

/// Options of `kvzone reproduce`.
#[derive(Debug, Args)]
pub(crate) struct ReproduceArguments {
    /// What to reproduce: zdb/table1, forestdb/fig14; `kvzone list presets`
    /// shows all
    #[arg(value_name = "PAPER/TABLE")]
    name: String,
    /// Share of the paper's entries; 1 is its full size [default: what takes
    /// some minutes]
    #[arg(long, value_name = "F", value_parser = parse_positive)]
    scale: Option<f64>,
    /// Rounds, in each of which every store runs once [default: 5 for zdb, 3 for p-fetch,
    /// else 1]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,
    /// Stores in place of the figure's own, such as forest,rocksdb
    #[arg(long, value_name = "STORE,...", value_delimiter = ',')]
    stores: Vec<String>,
    /// Points of the figure, as its rows call them, such as 32,1024
    #[arg(long, value_name = "POINT,...", value_delimiter = ',')]
    points: Vec<String>,
    /// Every point of the figure, not every other one
    #[arg(long, conflicts_with = "points")]
    all_points: bool,
    /// Length of each measured phase of a figure
    #[arg(long, value_name = "S", default_value_t = SECONDS, value_parser = parse_positive)]
    seconds: f64,
    /// Operations of each measured phase, in place of its length
    #[arg(long, value_name = "N", value_parser = parse_count)]
    operations: Option<u64>,
    /// Everything random comes from it
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Limit of each worker process, its page cache included [default: none]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Block device for alphard-raw, of figures of alphard; ALL THAT IT CARRIES IS
    /// LOST [default: what KVZONE_DEVICE names]
    #[arg(long, value_name = "DEVICE")]
    device: Option<PathBuf>,
    /// Folder for the stores; it is left as it was
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Write every figure of every round as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with the tables, and a chart of each point
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also print the table as markdown
    #[arg(long)]
    markdown: bool,
    /// Put the table between its markers in a document
    #[arg(long, value_name = "FILE")]
    update: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ReproduceArguments) -> Result<ExitCode> {
    let figure = find(&arguments.name)?;
    let place = Place::prepare(arguments)?;
    let (measured, found) = runner::measure(figure, arguments)?;
    place.finish(&figure.says.title, found, &show(&measured))?;
    Ok(ExitCode::from(if measured.all_well() { 0 } else { 3 }))
}

pub(crate) fn presets() -> Result<impl Iterator<Item = (&'static str, &'static str)>> {
    let figures = figure::all()?.iter();
    Ok(figures.map(|figure| (figure.says.name.as_str(), figure.says.title.as_str())))
}

fn find(name: &str) -> Result<&'static Figure> {
    let mut figures = figure::all()?.iter();
    figures
        .find(|figure| figure.says.name == name)
        .ok_or_else(|| {
            let names = figure::all().unwrap_or_default().iter();
            let names = names.map(|figure| figure.says.name.as_str());
            let words = unknown("preset", name, names);
            Error::Usage(format!("{words}; `kvzone list presets` shows all"))
        })
}
