//! `kvzone device`: what a disk gives, as a table and as JSON.

use std::path::PathBuf;
use std::time::Duration;

use cambium_io::Environment;
use clap::{Args, ValueEnum};
use kvzone_core::device::report::{DeviceReport, RandomReads, Sequential, SyncedWrites};
use kvzone_core::device::{DeviceOptions, Parts, measure};
use kvzone_core::error::Result;
use kvzone_core::record::LatencySummary;
use kvzone_core::report::grid::Grid;
use kvzone_core::size;

use crate::{machine, output, run};

/// Full and quick sizes of the test file.
const FILE_BYTES: u64 = 2 << 30;
const QUICK_FILE_BYTES: u64 = 256 << 20;

/// Full and quick bounds of a measurement, seconds.
const SECONDS: f64 = 2.0;
const QUICK_SECONDS: f64 = 0.2;

/// Options of `kvzone device`.
#[derive(Debug, Args)]
pub(crate) struct DeviceArguments {
    /// Folder on the disk to measure; a test file is made in it and removed
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Also write everything as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Size of the test file, such as 512MiB [default: 2GiB; 256MiB with --quick]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
    /// Bytes of a sequential request and of a random read, a power of two up to 1MiB; below
    /// 4KiB sequential requests alone are smaller [default: 1MiB and 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_request)]
    request: Option<usize>,
    /// Seconds for each measurement [default: 2; 0.2 with --quick]
    #[arg(long, value_name = "N", value_parser = parse_seconds)]
    seconds: Option<f64>,
    /// A small file and short measurements: a first look, no result
    #[arg(long)]
    quick: bool,
    /// Measure these parts only
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Large reads and writes from start to end
    Sequential,
    /// Reads of 4 KiB at random places
    Random,
    /// Small durable writes
    Synced,
}

fn parse_size(text: &str) -> std::result::Result<u64, String> {
    match size::parse(text) {
        Ok(0) => Err("the test file needs at least one byte".to_string()),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_request(text: &str) -> std::result::Result<usize, String> {
    match size::parse(text) {
        Ok(bytes) if bytes.is_power_of_two() && bytes <= 1 << 20 => Ok(bytes as usize),
        _ => Err("expected a power of two up to 1MiB".to_string()),
    }
}

fn parse_seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0.001 to 86400".to_string()),
    }
}

impl DeviceArguments {
    fn options(&self) -> DeviceOptions {
        let chosen = |part| self.only.is_empty() || self.only.contains(&part);
        let (bytes, seconds) = if self.quick {
            (QUICK_FILE_BYTES, QUICK_SECONDS)
        } else {
            (FILE_BYTES, SECONDS)
        };
        DeviceOptions {
            directory: self.dir.clone(),
            file_bytes: self.size.unwrap_or(bytes),
            request: self.request,
            limit: Duration::from_secs_f64(self.seconds.unwrap_or(seconds)),
            parts: Parts {
                sequential: chosen(Part::Sequential),
                random: chosen(Part::Random),
                synced: chosen(Part::Synced),
            },
            machine: machine::detect(),
        }
    }
}

pub(crate) fn run(arguments: &DeviceArguments) -> Result<()> {
    // Opened first: minutes of measuring must not end at a mistyped path.
    let json = arguments.json.as_deref().map(run::create).transpose()?;
    let options = arguments.options();
    let bar = run::progress_bar("{bar:30} {pos}/{len} {msg}");
    let report = measure(&Environment::real(), &options, &mut |progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        bar.set_message(progress.next.to_string());
    });
    bar.finish_and_clear();
    let report = report?;
    if let Some((path, mut file)) = json {
        run::write_json(path, &mut file, &report)?;
    }
    Ok(output::print(&text(&report))?)
}

fn text(report: &DeviceReport) -> String {
    let mut parts = vec![format!(
        "{}: test file of {}, {} s for each measurement\n",
        report.directory,
        size::display(report.file_bytes),
        report.seconds_per_measurement
    )];
    if !report.sequential.is_empty() {
        parts.push(sequential_table(report));
    }
    if !report.random_reads.is_empty() {
        parts.push(random_table(report));
    }
    if !report.synced_writes.is_empty() {
        parts.push(synced_table(report));
    }
    parts.extend(report.notes.iter().map(|note| format!("Note: {note}\n")));
    parts.join("\n")
}

fn table(title: &str, heads: &str, words: usize, rows: Vec<Vec<String>>) -> String {
    let grid = Grid {
        heads: heads.split(',').map(str::to_string).collect(),
        words,
        rows,
    };
    format!("{title}\n{}", grid.terminal())
}

fn mode(direct: bool) -> String {
    let mode = if direct { "direct" } else { "buffered" };
    mode.to_string()
}

/// A rate, and the median and the 99th percentile of its calls in microseconds.
fn rate_cells(rate: f64, latency: Option<LatencySummary>) -> [String; 3] {
    let latency = latency.unwrap_or_default();
    [rate, latency.p50 as f64 / 1e3, latency.p99 as f64 / 1e3].map(|it| format!("{it:.0}"))
}

fn sequential_table(report: &DeviceReport) -> String {
    let row = |found: &Sequential| {
        let rate = format!("{:.0}", found.bytes_per_second / 1e6);
        vec![found.operation.clone(), mode(found.direct), rate]
    };
    let chunk = report.sequential[0].block_bytes as u64;
    let chunk = size::display(chunk);
    table(
        &format!("Sequential, chunks of {chunk}, writes with their sync"),
        "operation,mode,MB/s",
        2,
        report.sequential.iter().map(row).collect(),
    )
}

/// Buffered and direct side by side, one row a back end and depth.
fn random_table(report: &DeviceReport) -> String {
    let buffered = report.random_reads.iter().filter(|found| !found.direct);
    let cells = |found: &RandomReads| rate_cells(found.reads_per_second, found.latency_ns);
    let row = |buffered: &RandomReads| {
        let direct = report.random_reads.iter().find(|found| {
            found.direct && found.backend == buffered.backend && found.depth == buffered.depth
        });
        let mut row = vec![buffered.backend.clone(), buffered.depth.to_string()];
        row.extend(cells(buffered));
        row.extend(direct.map_or(["-"; 3].map(String::from), cells));
        row
    };
    let block = size::display(report.random_reads[0].block_bytes as u64);
    table(
        &format!("Random reads of {block}, from an empty cache (latencies in microseconds)"),
        "back end,depth,buffered/s,p50,p99,direct/s,p50,p99",
        1,
        buffered.map(row).collect(),
    )
}

fn synced_table(report: &DeviceReport) -> String {
    let row = |found: &SyncedWrites| {
        let (pattern, bytes) = (found.pattern.clone(), found.block_bytes.to_string());
        let mut row = vec![pattern, mode(found.direct), bytes];
        row.extend(rate_cells(found.writes_per_second, found.latency_ns));
        row
    };
    table(
        "Writes, each synced (fdatasync) before the next (latencies in microseconds)",
        "pattern,mode,bytes,writes/s,p50,p99",
        2,
        report.synced_writes.iter().map(row).collect(),
    )
}
