//! `kvzone trace`: look at traces, make them of text, save what is whole of them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use kvzone_core::error::{Error, Result};
use kvzone_core::report::text::{bytes, duration, grouped};
use kvzone_core::trace::import::{self, TextFormat};
use kvzone_core::trace::summary::{self, Summary};

use crate::output;
use crate::run::parse::word;

/// Options of `kvzone trace`.
#[derive(Debug, Args)]
pub(crate) struct TraceArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Say what a trace holds; it is read whole, and checked
    Show {
        /// The trace
        file: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a trace of text
    Import {
        /// The text
        text: PathBuf,
        /// The trace; one that is there is replaced
        trace: PathBuf,
        /// How its lines look: csv `OPERATION,KEY[,BYTES[,NANOSECONDS[,THREAD]]]`;
        /// rocksdb, as trace_analyzer writes them; twitter, as published
        #[arg(long, default_value = "csv", value_parser = word::<TextFormat>(&["csv", "rocksdb", "twitter"]))]
        format: TextFormat,
    },
    /// Copy a damaged trace up to the damage
    Rescue {
        /// The trace
        damaged: PathBuf,
        /// What is whole of it; a file that is there is replaced
        rescued: PathBuf,
    },
}

pub(crate) fn run(arguments: &TraceArguments) -> Result<ExitCode> {
    match &arguments.what {
        What::Show { file, json } => {
            let found = summary::summarize(file, u64::MAX, None)?;
            let text = match json {
                true => {
                    let text = serde_json::to_string_pretty(&found);
                    text.map_err(|error| Error::machine("write", file, error))? + "\n"
                }
                false => shown(&found),
            };
            output::print(&text)?;
        }
        What::Import {
            text,
            trace,
            format,
        } => {
            refuse_itself(text, trace)?;
            let count = import::import(text, *format, trace)?;
            let path = trace.display();
            output::print(&format!("{path}: {} records\n", grouped(count as f64)))?;
        }
        What::Rescue { damaged, rescued } => {
            refuse_itself(damaged, rescued)?;
            let (count, damage) = summary::rescue(damaged, rescued)?;
            let path = rescued.display();
            if let (0, Some(damage)) = (count, &damage) {
                let what = format!("no record is whole, so {path} is empty: {damage}");
                return Err(Error::machine("rescue", damaged, what));
            }
            let what = damage.map_or("nothing was wrong".to_string(), |error| error.to_string());
            let count = grouped(count as f64);
            output::print(&format!("{path}: {count} records; {what}\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A file that is read and truncated at once would be lost.
fn refuse_itself(from: &PathBuf, to: &PathBuf) -> Result<()> {
    let same = match (from.canonicalize(), to.canonicalize()) {
        (Ok(from), Ok(to)) => from == to,
        _ => from == to,
    };
    match same {
        false => Ok(()),
        true => Err(Error::Usage(format!(
            "{} is read from and written to: give another name",
            to.display()
        ))),
    }
}

fn shown(found: &Summary) -> String {
    let count = |count: u64| grouped(count as f64);
    let mut text = format!(
        "{} operations in {} by {} threads\n",
        count(found.operations),
        duration(found.length as f64),
        found.threads
    );
    for (name, number) in [
        ("gets", found.gets),
        ("puts", found.puts),
        ("deletes", found.deletes),
        ("scans", found.scans),
        ("batches", found.batches),
        ("changes in batches", found.batched_changes),
    ] {
        if number > 0 {
            text += &format!("  {} {name}\n", count(number));
        }
    }
    let start = found.at_start();
    text += &format!(
        "{} keys of {:.0} bytes in the mean, the longest {}; values of {:.0}, the largest {}\n",
        count(found.keys),
        found.mean_key_bytes(),
        count(found.longest_key),
        found.mean_value_bytes(),
        count(found.largest_value)
    );
    text += &format!(
        "before it: {} entries, {} ({} of them known only from being read); after it: {} entries, {}\n",
        count(start.entries),
        bytes(start.bytes as f64),
        count(found.found_first.entries),
        count(found.at_end.entries),
        bytes(found.at_end.bytes as f64)
    );
    text
}
