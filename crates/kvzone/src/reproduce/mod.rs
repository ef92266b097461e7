//! `kvzone reproduce`: a published table, measured here.
//!
//! | module | what it holds |
//! |---|---|
//! | `zdb`, `forestdb`, `wisckey`, `alphard` | figures that compare stores, as data, with what their papers claim |
//! | `analysis`, `index` | figures 10, 12 and 13 of the ForestDB paper: computed, and without stores |
//! | `device`, `collection` | figures 3, 6 and 13 of the WiscKey paper: the disk, and garbage collection |
//! | `p_fetch` | figures of the P-Fetch paper: compactions |
//! | `figure`, `columns` | what a figure is, and what its rows may say |
//! | `chosen` | which of a figure's stores and points are measured |
//! | `runner` | measures a figure that compares stores |
//! | `measured`, `claims` | what was measured of any figure, and sentences held against it |
//! | `present`, `document` | a figure as text, in a document and as a page |
//!
//! Machines differ by more than stores do, so what is compared with the paper
//! is the ratio between stores, never a rate.

mod alphard;
mod analysis;
mod chosen;
mod claims;
mod collection;
mod columns;
mod device;
mod document;
mod figure;
mod forestdb;
mod index;
mod measured;
mod p_fetch;
mod present;
mod runner;
mod wisckey;
mod zdb;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use kvzone_core::error::{Error, Result};
use kvzone_core::names::nearest;

use crate::run::parse::{parse_bytes, parse_count, parse_positive};
use figure::{Defaults, Figure, How, Takes};
use present::{Place, show};
use runner::Asked;

/// Every figure there is, paper by paper.
const FIGURES: &[&[Figure]] = &[
    zdb::FIGURES,
    analysis::FIGURES,
    index::FIGURES,
    forestdb::FIGURES,
    device::FIGURES,
    collection::FIGURES,
    wisckey::FIGURES,
    alphard::FIGURES,
    p_fetch::FIGURES,
];

/// Length of a measured phase of a figure.
const SECONDS: f64 = 4.0;

/// Options of `kvzone reproduce`.
#[derive(Debug, Args)]
pub(crate) struct ReproduceArguments {
    /// What to reproduce: zdb/table1, forestdb/fig12; `kvzone list presets`
    /// shows all
    #[arg(value_name = "PAPER/TABLE")]
    name: String,
    /// Share of the paper's entries; 1 is its full size [default: what takes
    /// some minutes]
    #[arg(long, value_name = "F", value_parser = parse_positive)]
    scale: Option<f64>,
    /// Rounds, in each of which every store runs once [default: 5, or 1 for
    /// figures of forestdb, wisckey and alphard]
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
    /// Operations of each measured phase, in place of its length; lookups of
    /// each index
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

/// Measures a figure, prints it, and writes what was asked for.
pub(crate) fn run(arguments: &ReproduceArguments) -> Result<ExitCode> {
    let figure = find(&arguments.name)?;
    let defaults = match figure.how {
        How::Campaigns(paper) => paper.defaults,
        How::Cells(defaults, _) => defaults,
    };
    check(arguments, defaults)?;
    let place = Place::prepare(arguments)?;
    let asked = Asked::of(arguments, defaults);
    let (measured, found) = match figure.how {
        How::Campaigns(paper) => runner::measure(figure, paper, asked)?,
        How::Cells(_, measure) => measure(figure, asked)?,
    };
    place.finish(figure.title, found, &show(figure, &measured))?;
    Ok(ExitCode::from(if measured.all_well() { 0 } else { 3 }))
}

/// Refuses choices that a figure does not have.
fn check(arguments: &ReproduceArguments, defaults: Defaults) -> Result<()> {
    let refused = |what: &str| Err(Error::Usage(format!("{} {what}", arguments.name)));
    let (stores, points) = (!arguments.stores.is_empty(), !arguments.points.is_empty());
    match defaults.takes {
        Takes::Points if stores => refused("has its own stores: it takes no --stores"),
        Takes::Rounds | Takes::Nothing if stores || points => {
            refused("has its own stores and rows: it takes neither --stores nor --points")
        }
        Takes::Nothing if arguments.repeat.is_some_and(|rounds| rounds != 1) => {
            refused("is measured once: repeat the command")
        }
        _ => Ok(()),
    }
}

/// Names of everything that can be reproduced, with what it is.
pub(crate) fn presets() -> impl Iterator<Item = (&'static str, &'static str)> {
    let figures = FIGURES.iter().copied().flatten();
    figures.map(|figure| (figure.name, figure.title))
}

fn find(name: &str) -> Result<&'static Figure> {
    let mut figures = FIGURES.iter().copied().flatten();
    figures.find(|figure| figure.name == name).ok_or_else(|| {
        let near = nearest(name, presets().map(|(name, _)| name));
        Error::Usage(format!(
            "there is no {name:?} to reproduce; near it: {}; `kvzone list presets` shows all",
            near.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::figure::{Point, Rate};
    use super::*;

    fn all() -> impl Iterator<Item = &'static Figure> {
        FIGURES.iter().copied().flatten()
    }

    #[test]
    fn names_and_labels_are_unique() {
        let unique = |labels: Vec<&str>, of: &str| {
            let mut sorted = labels.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), labels.len(), "{of}");
        };
        unique(presets().map(|(name, _)| name).collect(), "figures");
        for figure in all() {
            let points = figure.points.iter();
            unique(points.map(|point| point.label).collect(), figure.name);
            let stores = figure.stores.iter();
            unique(stores.map(|one| one.label).collect(), figure.name);
        }
    }

    #[test]
    fn every_campaign_issues_known_workloads_and_shows_them() {
        for figure in all().filter(|figure| matches!(figure.how, How::Campaigns(_))) {
            assert!(figure.points.iter().any(|point| !point.extra));
            let issued = || figure.points.iter().flat_map(|point| point.workloads);
            for workload in issued() {
                assert!(kvzone_core::workload::find(workload).is_ok());
                let shows = |(shown, _): &(&str, &str)| shown.is_empty() || shown == workload;
                assert!(figure.tables.iter().any(shows), "{}", figure.name);
            }
            for (shown, _) in figure.tables {
                let is_issued = shown.is_empty() || issued().any(|workload| workload == shown);
                assert!(is_issued, "{}: {shown}", figure.name);
            }
        }
    }

    #[test]
    fn a_share_is_of_a_point_before_it_with_values_of_the_same_size() {
        for figure in all() {
            for (number, point) in figure.points.iter().enumerate() {
                if let Rate::Share(of, _) = point.rate {
                    let is_peak = |before: &&Point| before.label == of;
                    let peak = figure.points[..number].iter().find(is_peak);
                    assert_eq!(peak.unwrap().value_bytes, point.value_bytes);
                }
            }
        }
    }
}
