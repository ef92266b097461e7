//! `cambium export`: all entries of all namespaces, as of one moment.
//!
//! To a file, the export is written under another name, synced, and renamed,
//! so that a file under the name asked for is always whole. Pipes and devices
//! are written as they are.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use cambium::Store;
use clap::Args;

use crate::dump::DumpWriter;
use crate::failure::{Failure, Status, talk};
use crate::lines::{Format, Lines};
use crate::output::Output;
use crate::partial;
use crate::parts::Parts;
use crate::progress::{Meter, Unit};

/// Entries between two pictures of the bar.
const METER_ENTRIES: u64 = 1024;

/// What an export looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportFormat {
    /// Binary, checksummed, read back by `import --from dump:`
    Dump,
    /// One JSON object a line, read back by `import --from jsonl:`
    Jsonl,
    /// Key, tab, value, escaped, read back by `import --from tsv:`
    Tsv,
}

#[derive(Debug, Args)]
pub struct ExportArguments {
    /// The store
    pub path: PathBuf,
    /// The file; standard output if it is `-` or not given
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// How to write entries
    #[arg(long, value_enum, default_value_t = ExportFormat::Dump)]
    pub format: ExportFormat,
    /// This namespace alone, its entries without its name
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// Writes the export.
pub fn run(store: &Store, arguments: &ExportArguments) -> Result<Status, Failure> {
    let parts = Parts::of(store, arguments.namespace.as_deref())?;
    let names = parts.names();
    if arguments.format == ExportFormat::Tsv && names.iter().any(|name| !name.is_empty()) {
        return Err(Failure::usage(format!(
            "tab-separated lines have no place for namespaces, and {names:?} have entries: \
             choose one with --namespace, or --format jsonl or dump"
        )));
    }
    let file = arguments.to.as_deref();
    let entries = match file.filter(|path| *path != Path::new("-")) {
        None => {
            let output = Output::standard()?;
            if arguments.format == ExportFormat::Dump && output.is_terminal() {
                return Err(Failure::usage(
                    "a dump is binary and this is a terminal: give --to FILE, redirect it, or choose --format jsonl",
                ));
            }
            let (output, entries) =
                write(store, &parts, output, arguments.format, Failure::output)?;
            output.finish()?;
            entries
        }
        Some(path) => to_file(store, &parts, path, arguments.format)?,
    };
    talk(&format!("exported {entries} entries"));
    Ok(Status::Done)
}

fn to_file(
    store: &Store,
    parts: &Parts,
    path: &Path,
    format: ExportFormat,
) -> Result<u64, Failure> {
    let failed = |error| Failure::file(path, &error);
    let special = fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
    if special {
        let file = File::options().write(true).open(path).map_err(failed)?;
        let (output, entries) = write(store, parts, Output::to(file), format, failed)?;
        output.into_file().map_err(failed)?;
        return Ok(entries);
    }
    let partial = partial::path_of(path)?;
    let result = File::create(&partial)
        .map_err(failed)
        .and_then(|file| write(store, parts, Output::to(file), format, failed))
        .and_then(|(output, entries)| {
            let file = output.into_file().map_err(failed)?;
            file.sync_all().map_err(failed)?;
            partial::publish(&partial, path)?;
            Ok(entries)
        });
    if result.is_err() {
        // The first failure is what is told.
        _ = fs::remove_file(&partial);
    }
    result
}

fn write(
    store: &Store,
    parts: &Parts,
    mut output: Output,
    format: ExportFormat,
    failed: impl Fn(std::io::Error) -> Failure,
) -> Result<(Output, u64), Failure> {
    let capabilities = store.capabilities();
    let meter = Meter::new(Unit::Bytes);
    let (mut entries, mut bytes) = (0, 0);
    let mut count = |key: &[u8], value: &[u8]| {
        entries += 1;
        bytes += (key.len() + value.len()) as u64;
        if entries % METER_ENTRIES == 0 {
            meter.set(bytes, format!("{entries} entries"));
        }
    };
    let format = match format {
        ExportFormat::Dump => {
            let names = parts.names();
            let (keys, engine) = (capabilities.keys, capabilities.engine);
            let mut dump = DumpWriter::new(output, keys, engine).map_err(&failed)?;
            for name in names {
                if !name.is_empty() {
                    dump.namespace(name).map_err(&failed)?;
                }
                let mut entries = parts.entries(name)?;
                while let Some(entry) = entries.next() {
                    let entry = entry?;
                    let expires = entries.expires_at();
                    dump.entry(&entry.key, &entry.value, expires)
                        .map_err(&failed)?;
                    count(&entry.key, &entry.value);
                }
            }
            let (output, state) = dump.finish().map_err(&failed)?;
            return Ok((output, state.entries));
        }
        ExportFormat::Jsonl => Format::Json,
        ExportFormat::Tsv => Format::Text,
    };
    let lines = Lines {
        format,
        keys: capabilities.keys,
        reader: output.reader(),
    };
    for name in parts.names() {
        let mut entries = parts.entries(name)?;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let (key, value) = (&entry.key, Some(&*entry.value));
            let expires = entries.expires_at();
            if expires.is_some() && format == Format::Text {
                return Err(Failure::usage(
                    "tab-separated lines have no place for the moment at which an entry \
                     expires: choose --format jsonl or dump",
                ));
            }
            lines
                .write(&mut output, name, key, value, expires)
                .map_err(&failed)?;
            count(&entry.key, &entry.value);
        }
    }
    output.flush().map_err(&failed)?;
    Ok((output, entries))
}
