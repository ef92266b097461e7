//! `kvzone matrix`: every kind of work, small to large values, each store, on one page.
//!
//! | module | what it holds |
//! |---|---|
//! | `programs` | what is done, as data: loads, steps, cells |
//! | `measure` | rounds of units, until none is missing |
//! | `results` | what was measured so far, as a file that `--resume` goes on with |
//! | `table` | each cell: our best engine, the default engine, the best peer, and their ratio |
//! | `render` | the table as text, Markdown, a page, a chart |
//!
//! A program is a load and steps on one open store, in a process of its own, as
//! `kvzone run` has it; stores take turns in rounds. So forty cells cost one filling
//! and not forty.

mod measure;
mod programs;
mod render;
mod results;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use kvzone_core::adapter::{Availability, Profile};
use kvzone_core::error::{Error, Result};
use kvzone_core::job::Job;
use kvzone_core::names::unknown;

use self::measure::{Measuring, is_failure};
use self::programs::{KEY_BYTES, Program, Scale};
use self::results::{Conditions, Results};
use self::table::NULL;
use crate::place::{self, Disk};
use crate::run::Stage;
use crate::run::arguments::contenders;
use crate::run::campaign::Campaign;
use crate::run::parse::{parse_budget, parse_bytes, parse_count, parse_positive, profile_word};
use crate::stop::STOPPED;
use crate::{machine, output, stores, words};

/// Bytes of a value and number of entries: the data leave every write buffer at least
/// five times.
const SIZES: [(u64, u64); 3] = [(100, 2_000_000), (1 << 10, 400_000), (16 << 10, 40_000)];
const BUDGET: u64 = 128 << 20;
/// The same of `--quick`.
const QUICK_SIZES: [(u64, u64); 1] = [(100, 300_000)];
const QUICK_BUDGET: u64 = 32 << 20;

/// The stores that take part, as far as they are here.
const STORES: [&str; 7] = [
    "forest",
    "wisckey",
    "zdb",
    "leveldb",
    "rocksdb",
    "rocksdb-blob",
    "lmdb",
];
const QUICK_STORES: [&str; 4] = ["forest", "wisckey", "leveldb", "rocksdb"];

/// Options of `kvzone matrix`.
#[derive(Debug, Args)]
pub(crate) struct MatrixArguments {
    /// A first answer in some three minutes: values of 100 bytes, four stores, short steps
    #[arg(long)]
    quick: bool,
    /// Stores [default: forest,wisckey,zdb,leveldb,rocksdb,rocksdb-blob,lmdb, those that
    /// are here; of --quick forest,wisckey,leveldb,rocksdb]
    #[arg(long, value_name = "STORE,...", value_delimiter = ',')]
    stores: Vec<String>,
    /// Sizes of values, with entries where they should be others: 100,1KiB:200k
    /// [default: 100:2M,1KiB:400k,16KiB:40k; of --quick 100:300k]
    #[arg(long, value_name = "SIZE[:KEYS],...", value_delimiter = ',', value_parser = parse_size)]
    sizes: Vec<(u64, u64)>,
    /// Parts of it: main, synced, sequential, batches, kill, beyond-memory [default: all;
    /// of --quick main,synced]
    #[arg(long, value_name = "PROGRAM,...", value_delimiter = ',')]
    programs: Vec<String>,
    /// Each store's own memory: write buffers, filters and cache together; 1MiB at least
    /// [default: 128MiB; of --quick 32MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_budget)]
    budget: Option<u64>,
    /// Length of each step that reads [default: 1; of --quick 0.15]
    #[arg(long, value_name = "S", value_parser = parse_positive)]
    seconds: Option<f64>,
    /// Length of the overwriting beside a reader [default: 10; of --quick 2]
    #[arg(long, value_name = "S", value_parser = parse_positive)]
    sustained: Option<f64>,
    /// A setting of one store: wisckey.inline_bytes=256; may be repeated
    #[arg(long, value_name = "STORE.OPTION=VALUE")]
    set: Vec<String>,
    /// How far settings go from a store's own
    #[arg(long, value_name = "PROFILE", default_value = "equal", value_parser = profile_word())]
    profile: Profile,
    /// Rounds, in each of which every store runs once; fewer than 5 have no verdicts
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Everything random comes from it
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Folder for the stores; it is left as it was
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Every figure of every round: a line of JSON for each store, program and round
    #[arg(long, value_name = "FILE", default_value = "kvzone-matrix.json")]
    json: PathBuf,
    /// Go on with what the file of --json has
    #[arg(long)]
    resume: bool,
    /// Write the matrix as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the matrix as a page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write its chart (SVG)
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// "100", or "1KiB:200k".
fn parse_size(text: &str) -> std::result::Result<(u64, u64), String> {
    let (size, keys) = match text.split_once(':') {
        Some((size, keys)) => (parse_bytes(size)?, parse_count(keys)?),
        None => {
            let size = parse_bytes(text)?;
            let data = SIZES[0].1 * (SIZES[0].0 + KEY_BYTES);
            (size, (data / (size + KEY_BYTES)).max(1))
        }
    };
    match (1..=64 << 20).contains(&size) && keys > 0 {
        true => Ok((size, keys)),
        false => Err("values of 1 byte to 64 MiB, and at least one entry".to_string()),
    }
}

pub(crate) fn run(arguments: &MatrixArguments) -> Result<ExitCode> {
    let directory = place::prepare(&arguments.dir)?;
    let conditions = conditions(arguments)?;
    for (program, size) in conditions.all() {
        conditions
            .campaign(program, size, &directory)?
            .check(&directory)?;
    }
    let machine = machine::describe(&Disk::of(&directory), None);
    let mut results = Results::new(words::command(&["--resume"]), conditions, machine);
    if arguments.resume {
        results.resume(&arguments.json)?;
    }
    // An hour of measuring must not end at a mistyped path.
    results.begin(&arguments.json)?;
    let mut stage = Stage::new()?;
    let mut measuring = Measuring {
        repeats_unsteady: !arguments.quick,
        directory: &directory,
        results: &mut results,
        stage: &mut stage,
    };
    let measured = measuring.run();
    stage.close();
    let is_whole = measured?;
    let ours = ours();
    let rows = table::rows(&results, &ours);
    let page = render::page(&results, &rows);
    output::print(&page.terminal())?;
    let written: [(_, &dyn Fn() -> String); 3] = [
        (&arguments.markdown, &|| page.markdown()),
        (&arguments.html, &|| page.html()),
        (&arguments.svg, &|| render::chart(&results, &rows)),
    ];
    for (path, text) in written {
        if let Some(path) = path {
            std::fs::write(path, text()).map_err(|error| Error::machine("write", path, error))?;
        }
    }
    if !is_whole {
        let path = arguments.json.display();
        output::complain(&format!("kvzone: stopped; --resume goes on with {path}"));
        return Ok(ExitCode::from(STOPPED));
    }
    let mut runs = results.units.iter().flat_map(|unit| &unit.runs);
    let failed = runs.any(is_failure);
    Ok(ExitCode::from(if failed { 3 } else { 0 }))
}

fn ours() -> Vec<&'static str> {
    cambium::engines().iter().map(|kind| kind.name()).collect()
}

fn conditions(arguments: &MatrixArguments) -> Result<Conditions> {
    let quick = arguments.quick;
    let or = |whole: f64, short: f64| if quick { short } else { whole };
    let sizes = match (arguments.sizes.is_empty(), quick) {
        (false, _) => arguments.sizes.clone(),
        (true, true) => QUICK_SIZES.to_vec(),
        (true, false) => SIZES.to_vec(),
    };
    let budget = if quick { QUICK_BUDGET } else { BUDGET };
    Ok(Conditions {
        version: env!("CARGO_PKG_VERSION").to_string(),
        stores: stores_of(arguments)?,
        programs: programs_of(arguments)?,
        sizes,
        budget_bytes: arguments.budget.unwrap_or(budget),
        scale: Scale {
            step_seconds: arguments.seconds.unwrap_or(or(1.0, 0.15)),
            sustained_seconds: arguments.sustained.unwrap_or(or(10.0, 2.0)),
            idle_seconds: or(10.0, 0.0),
        },
        rounds: arguments.repeat,
        seed: arguments.seed,
        profile: arguments.profile,
        set: arguments.set.clone(),
    })
}

impl Conditions {
    /// Programs at sizes, in the order in which they are run.
    fn all(&self) -> impl Iterator<Item = (Program, (u64, u64))> {
        let programs = self.programs.iter();
        programs.flat_map(|&program| self.sizes.iter().map(move |&size| (program, size)))
    }

    fn campaign(&self, program: Program, size: (u64, u64), directory: &Path) -> Result<Campaign> {
        let load = programs::load(program, size, self.seed);
        let data = load.keys * (KEY_BYTES + size.0);
        Ok(Campaign {
            contenders: contenders(&self.stores, &self.set)?,
            job: Job {
                steps: programs::steps(program, &load, self.scale),
                durability: program.durability(),
                budget_bytes: self.budget_bytes,
                memory_limit_bytes: program.memory_limit(data),
                profile: self.profile,
                reopen: program.reopen(),
                ..Job::default()
            },
            loads: vec![load],
            _kept: Vec::new(),
            repeat: self.rounds,
            seed: self.seed,
            directory: directory.to_path_buf(),
            patience: Duration::from_secs(60),
        })
    }
}

fn programs_of(arguments: &MatrixArguments) -> Result<Vec<Program>> {
    if arguments.programs.is_empty() {
        return Ok(match arguments.quick {
            true => vec![Program::Main, Program::Synced],
            false => Program::ALL.to_vec(),
        });
    }
    let find = |name: &String| {
        let mut all = Program::ALL.into_iter();
        let found = all.find(|program| program.name() == name);
        found.ok_or_else(|| Error::Usage(unknown("program", name, Program::ALL.map(Program::name))))
    };
    arguments.programs.iter().map(find).collect()
}

/// The stores that take part: those asked for, which must be known, else those that are
/// here; and `null`, which shows the harness's own cost.
fn stores_of(arguments: &MatrixArguments) -> Result<Vec<String>> {
    let mut named = arguments.stores.clone();
    if named.is_empty() {
        let all: &[&str] = if arguments.quick {
            &QUICK_STORES
        } else {
            &STORES
        };
        for name in all {
            match stores::find(name)?.probe() {
                Availability::Found { .. } => named.push((*name).to_string()),
                Availability::Missing { what, remedy } => {
                    output::complain(&format!("kvzone: {name} is left out: {what}; {remedy}"));
                }
            }
        }
    }
    for name in &named {
        stores::find(name)?;
    }
    if !named.iter().any(|name| name == NULL) {
        named.push(NULL.to_string());
    }
    Ok(named)
}
