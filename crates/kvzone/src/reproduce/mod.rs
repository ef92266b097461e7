//! `kvzone reproduce`: a published table, measured here.
//!
//! | module | what it holds |
//! |---|---|
//! | `zdb` | tables I to III of the ZDB paper, with the paper's figures |
//! | `forestdb` | figures 10 and 12 to 19 of the ForestDB paper, with its claims |
//! | `wisckey` | figures 2, 3 and 6 to 15 and table 1 of the WiscKey paper, with its claims |
//! | `alphard` | table 1 and figures 3 and 4 of the KVZone paper, with its claims |
//! | `chosen` | which of a figure's stores and points are measured |
//! | `shown` | a figure with its claims, and where it goes |
//! | `grid` | tables and claims as text and markdown |
//! | `table` | what was measured beside what was published, as text and markdown |
//! | `p_fetch` | figures of the P-Fetch paper: compactions |
//! | `document` | puts a table between its markers in a document |
//!
//! Machines differ by more than stores do, so what is compared with the paper
//! is the ratio between stores, never a rate.

mod alphard;
mod chosen;
mod document;
mod forestdb;
mod grid;
pub(crate) mod p_fetch;
mod shown;
mod table;
mod wisckey;
mod zdb;

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use kvzone_core::adapter::{DurabilityName, Profile};
use kvzone_core::error::{Error, Result};
use kvzone_core::names::nearest;
use kvzone_core::record::{Report, SCHEMA, Status};

use crate::output;
use crate::run::campaign::{Campaign, Contender};
use crate::run::parse::{parse_bytes, parse_count, parse_positive};
use crate::run::{Stage, write_json};
use crate::supervisor::Patience;
use table::Cell;
use zdb::Published;

/// Cache of each store: enough for all that is read, as the paper's machine
/// had memory for what it read.
const CACHE: u64 = 256 << 20;

/// Share of the paper's entries, and rounds, unless asked otherwise.
const DEFAULTS: (f64, u32) = (0.01, 5);

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
    /// Write a page with charts, of p-fetch figures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also print the table as markdown
    #[arg(long)]
    markdown: bool,
    /// Put the table between its markers in a document
    #[arg(long, value_name = "FILE")]
    update: Option<PathBuf>,
}

impl ReproduceArguments {
    /// Share of the paper's entries, of presets without a default of their own.
    fn scale_or_default(&self) -> f64 {
        self.scale.unwrap_or(DEFAULTS.0)
    }

    /// Rounds, of presets without a default of their own.
    fn rounds_or_default(&self) -> u32 {
        self.repeat.unwrap_or(DEFAULTS.1)
    }
}

/// Measures every column of a table, prints it, and writes what was asked for.
pub(crate) fn run(arguments: &ReproduceArguments) -> Result<ExitCode> {
    if let Some(done) = forestdb::run(arguments)
        .or_else(|| wisckey::run(arguments))
        .or_else(|| alphard::run(arguments))
        .or_else(|| p_fetch::run(arguments))
    {
        return done;
    }
    let published = find(&arguments.name)?;
    if !(arguments.stores.is_empty() && arguments.points.is_empty()) {
        return Err(Error::Usage(format!(
            "{} has its own stores and rows: it takes neither --stores nor --points",
            published.name
        )));
    }
    if let Some(path) = &arguments.update {
        // Before minutes of measuring: is there a place for the result?
        document::check(path, published.name)?;
    }
    let json = match &arguments.json {
        Some(path) => Some((
            path,
            File::create(path).map_err(|error| Error::machine("create", path, error))?,
        )),
        None => None,
    };
    let (cells, report) = measure(arguments, published)?;
    if let Some((path, mut file)) = json {
        write_json(path, &mut file, &report)?;
    }
    let table = table::Table {
        published,
        scale: arguments.scale_or_default(),
        repeat: arguments.rounds_or_default(),
        seed: arguments.seed,
        cells,
    };
    let mut text = table.terminal();
    if arguments.markdown {
        text += "\n";
        text += &table.markdown();
    }
    if let Some(path) = &arguments.update {
        document::update(path, published.name, &table.markdown())?;
    }
    output::print(&text)?;
    let all_well = report.runs.iter().all(|run| run.status == Status::Ok);
    Ok(ExitCode::from(if all_well { 0 } else { 3 }))
}

/// Names of everything that can be reproduced, with what it is.
pub(crate) fn presets() -> impl Iterator<Item = (&'static str, &'static str)> {
    let tables = zdb::TABLES.iter().map(|table| (table.name, table.title));
    tables
        .chain(forestdb::presets())
        .chain(wisckey::presets())
        .chain(alphard::presets())
        .chain(p_fetch::presets())
}

fn find(name: &str) -> Result<&'static Published> {
    zdb::TABLES
        .iter()
        .find(|table| table.name == name)
        .ok_or_else(|| {
            let near = nearest(name, presets().map(|(name, _)| name));
            Error::Usage(format!(
                "there is no {name:?} to reproduce; near it: {}; `kvzone list presets` shows all",
                near.join(", ")
            ))
        })
}

fn measure(
    arguments: &ReproduceArguments,
    published: &'static Published,
) -> Result<(Vec<Cell>, Report)> {
    let mut cells = Vec::new();
    let mut all: Option<Report> = None;
    let mut stage = Stage::new()?;
    let scale = arguments.scale_or_default();
    for column in published.columns {
        let load = published.load(column, scale, arguments.seed);
        let campaign = campaign(arguments, published, load);
        let outcome = campaign.run(&mut stage)?.whole()?;
        for warning in &outcome.warnings {
            output::complain(&format!("kvzone: {}: {warning}", column.title));
        }
        cells.push(Cell::new(column, &campaign, &outcome.report));
        match &mut all {
            Some(report) => report.runs.extend(outcome.report.runs),
            None => all = Some(outcome.report),
        }
    }
    stage.close();
    let report = all.unwrap_or_else(|| Report {
        schema: SCHEMA.to_string(),
        machine: serde_json::Value::Null,
        seed: arguments.seed,
        runs: Vec::new(),
    });
    Ok((cells, report))
}

fn campaign(
    arguments: &ReproduceArguments,
    published: &Published,
    load: kvzone_core::job::Load,
) -> Campaign {
    let contender = |store: &&str| Contender::of(store);
    Campaign {
        contenders: zdb::STORES.iter().map(contender).collect(),
        loads: vec![load],
        steps: Vec::new(),
        _kept: Vec::new(),
        record: None,
        repeat: arguments.rounds_or_default(),
        seed: arguments.seed,
        durability: DurabilityName::Written,
        budget_bytes: CACHE,
        memory_limit_bytes: arguments.memory,
        profile: Profile::Equal,
        cold: false,
        // The paper read what it had just written, from memory.
        warm: published.workload == "read-random",
        reopen: None,
        directory: arguments.dir.clone(),
        patience: Patience {
            idle: Duration::from_secs(60),
        },
    }
}
