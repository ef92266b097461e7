//! `kvzone list`: what there is to measure, and whether it is here.
//!
//! `list stores` loads each store's library and nothing else: a store that is
//! missing is named with what was looked for and how to get it. Its JSON is an
//! array of objects `{"name","found","version","path","summary","missing",
//! "remedy"}`, with null for what does not apply.

use clap::{Args, Subcommand};
use comfy_table::{ContentArrangement, Table, presets};
use kvzone_core::adapter::{Adapter, Availability};
use kvzone_core::error::Result;
use kvzone_core::workload::{self, ALIASES, Mix, Workload};
use serde_json::{Value, json};

use crate::datasets::{self, Set};
use crate::{output, reproduce, stores};

/// Options of `kvzone list`.
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Stores: found or missing, version, where the library is, how to get it
    Stores(StoresArguments),
    /// Workloads: what they do, and which phase is measured
    Workloads(WorkloadsArguments),
    /// Data sets for --dataset, one a line: name, value bytes, what it is
    Datasets,
    /// What can be reproduced, one a line: name, what it is
    Presets,
}

#[derive(Debug, Args)]
struct StoresArguments {
    /// These only
    #[arg(value_name = "STORE")]
    names: Vec<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct WorkloadsArguments {
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &ListArguments) -> Result<()> {
    match &arguments.what {
        Some(What::Stores(arguments)) => list_stores(arguments),
        Some(What::Workloads(arguments)) => Ok(output::print(&workloads(arguments.json))?),
        Some(What::Datasets) => Ok(output::print(&datasets())?),
        Some(What::Presets) => Ok(output::print(&presets()?)?),
        None => {
            let text = format!("{}\n{}", stores_table(&stores::all()), workloads(false));
            Ok(output::print(&text)?)
        }
    }
}

fn table(heads: &str) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(heads.split('|'));
    table
}

fn workloads(json: bool) -> String {
    if json {
        let row = |workload: &'static Workload| {
            json!({
                "name": workload.name,
                "summary": workload.summary,
                "measured_phase": workload.measured_phase().name(),
                "needs_order": workload.mix.needs_order(),
            })
        };
        let rows: Vec<Value> = known_workloads().map(row).collect();
        return format!("{:#}\n", Value::from(rows));
    }
    let mut table = table("workload|measured|what it does");
    for workload in known_workloads() {
        let phase = workload.measured_phase().name();
        table.add_row([workload.name.as_str(), phase, &workload.summary]);
    }
    let alias = |(alias, name): &(&str, &str)| format!("{alias} = {name}");
    let known: Vec<String> = ALIASES.iter().map(alias).collect();
    format!("{table}\nNames of db_bench: {}\n", known.join(", "))
}

/// Those that have names, and the one that is a file.
fn known_workloads() -> impl Iterator<Item = &'static Workload> {
    workload::all().chain(workload::find("trace:FILE"))
}

fn datasets() -> String {
    let line = |set: Set| {
        let (name, bytes) = (set.name(), set.value_bytes());
        format!("{name:<18} {bytes:>6}  {}\n", set.summary())
    };
    datasets::all().map(line).collect()
}

fn presets() -> Result<String> {
    let line = |(name, title)| format!("{name:<18} {title}\n");
    Ok(reproduce::presets()?.map(line).collect())
}

fn list_stores(arguments: &StoresArguments) -> Result<()> {
    let chosen = if arguments.names.is_empty() {
        stores::all()
    } else {
        let names = arguments.names.iter();
        names
            .map(|name| stores::find(name))
            .collect::<Result<_>>()?
    };
    let text = if arguments.json {
        let rows: Vec<Value> = chosen.iter().map(|store| store_json(&**store)).collect();
        format!("{:#}\n", Value::from(rows))
    } else {
        stores_table(&chosen)
    };
    Ok(output::print(&text)?)
}

fn store_json(store: &dyn Adapter) -> Value {
    let (version, path, missing, remedy) = match store.probe() {
        Availability::Found { version, path } => (Some(version), path, None, None),
        Availability::Missing { what, remedy } => (None, None, Some(what), Some(remedy)),
    };
    json!({
        "name": store.name(),
        "found": version.is_some(),
        "version": version,
        "path": path.map(|path| path.display().to_string()),
        "summary": store.summary(),
        "missing": missing,
        "remedy": remedy,
    })
}

fn stores_table(stores: &[Box<dyn Adapter>]) -> String {
    let mut table = table("store||version|library, or how to get it|what it is");
    for store in stores {
        let (found, version, place) = match store.probe() {
            Availability::Found { version, path } => {
                let path =
                    path.map_or_else(|| "built in".to_string(), |it| it.display().to_string());
                ("found", version, path)
            }
            Availability::Missing { remedy, .. } => ("missing", String::new(), remedy),
        };
        table.add_row([store.name(), found, &version, &place, store.summary()]);
    }
    format!("{table}\n")
}
