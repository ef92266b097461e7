//! Commands that answer a report: check, inspect, dump, compact, repair.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;

use cambium::{
    CheckReport, CompactOptions, CompactReport, Finding, FindingKind, Options, ReadBackend, Store,
};
use cambium_io::{FileKind, FileSystem};
use clap::Args;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::backup::{DAMAGED_PLACE, of_place};
use crate::failure::{Failure, Status};
use crate::output::{Output, print, print_json};
use crate::progress::{Meter, Unit};
use crate::stores::{when_free, with_progress};

#[derive(Debug, Args)]
pub struct ReportArguments {
    /// The store
    pub path: PathBuf,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct MendArguments {
    #[command(flatten)]
    pub report: ReportArguments,
    /// An option of the opening, such as direct=off
    #[arg(long, value_name = "OPTION=VALUE")]
    pub set: Vec<String>,
}

#[derive(Debug, Args)]
pub struct CompactArguments {
    /// The store
    pub path: PathBuf,
    /// How reads reach the kernel: sync, aio or io_uring
    #[arg(long, value_name = "BACKEND", value_parser = backend)]
    pub io: Option<ReadBackend>,
    /// Reads under way at once, 1 to 1024
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Bypass the operating system's cache
    #[arg(long)]
    pub direct: bool,
    /// An option of the engine
    #[arg(long, value_name = "OPTION=VALUE")]
    pub set: Vec<String>,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

fn backend(text: &str) -> Result<ReadBackend, String> {
    text.parse()
        .map_err(|_| "expected sync, aio or io_uring".to_string())
}

/// Bytes with a unit that leaves few digits.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

impl MendArguments {
    fn options(&self) -> Result<Options, Failure> {
        let assigned = |options: Options, assignment: &String| options.assign(assignment);
        Ok(self.set.iter().try_fold(with_progress(), assigned)?)
    }
}

/// Verifies a store; status 1 with damage, and where a mirror is none any more.
pub fn check(arguments: &MendArguments) -> Result<Status, Failure> {
    let options = arguments.options()?;
    let path = &arguments.report.path;
    let report = when_free(|| options.check(path)).map_err(|error| of_place(path, error))?;
    if arguments.report.json {
        print_json(&check_json(&report))?;
    } else {
        let verdict = match (report.is_sound(), report.is_degraded()) {
            (true, false) => "sound",
            (true, true) => "sound, but degraded: what is named above has no second copy now",
            (false, _) => &format!("damaged; {}", remedy_of(&arguments.report.path)),
        };
        print(&format!(
            "{}{} entries, {} in {} files verified: {verdict}\n",
            findings_text(&report),
            report.entries,
            human_bytes(report.bytes),
            report.files,
        ))?;
    }
    Ok(status_of(report.is_sound() && !report.is_degraded()))
}

fn remedy_of(damaged: &Path) -> &'static str {
    match with_progress().backups(damaged) {
        Ok(_) => DAMAGED_PLACE,
        Err(_) => "`cambium repair` brings back what can be read",
    }
}

/// Mends a store; status 1 with losses, and where a mirror is none.
pub fn repair(arguments: &MendArguments) -> Result<Status, Failure> {
    let options = arguments.options()?;
    let repaired = when_free(|| options.repair(&arguments.report.path));
    let report = repaired.map_err(Failure::of_repair)?;
    if arguments.report.json {
        print_json(&check_json(&report))?;
    } else {
        let verdict = match (report.is_sound(), report.is_degraded()) {
            (true, false) => "nothing was lost",
            (true, true) => "nothing was lost, but what is named above mirrors nothing now",
            (false, _) => "what is named above as damage was lost",
        };
        print(&format!(
            "{}repaired, {} entries: {verdict}\n",
            findings_text(&report),
            report.entries
        ))?;
    }
    Ok(status_of(report.is_sound() && !report.is_degraded()))
}

fn status_of(all_well: bool) -> Status {
    if all_well {
        Status::Done
    } else {
        Status::Negative
    }
}

fn kind_name(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Note => "note",
        FindingKind::Degraded => "degraded",
        FindingKind::Damage => "damage",
    }
}

fn findings_text(report: &CheckReport) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        _ = writeln!(
            text,
            "{}: {}",
            kind_name(finding.kind),
            finding_text(finding)
        );
    }
    text
}

pub fn finding_text(finding: &Finding) -> String {
    let Finding {
        file, offset, what, ..
    } = finding;
    format!("{} at offset {offset}: {what}", file.display())
}

fn check_json(report: &CheckReport) -> Value {
    let findings: Vec<Value> = report
        .findings
        .iter()
        .map(|finding| {
            json!({
                "kind": kind_name(finding.kind),
                "file": finding.file.to_string_lossy(),
                "offset": finding.offset,
                "what": finding.what,
            })
        })
        .collect();
    json!({
        "sound": report.is_sound(),
        "degraded": report.is_degraded(),
        "entries": report.entries,
        "bytes": report.bytes,
        "files": report.files,
        "findings": findings,
    })
}

/// Describes a store's files.
pub fn inspect(arguments: &ReportArguments) -> Result<Status, Failure> {
    let options = with_progress();
    if arguments.json {
        print_json(&inspect_json(&options, &arguments.path)?)?;
        return Ok(Status::Done);
    }
    let mut output = Output::standard()?;
    options.inspect(&arguments.path, &mut output)?;
    output.finish()?;
    Ok(Status::Done)
}

/// The engine writes its structure as lines for people, so lines are what the
/// JSON has of it; files and identity are fields.
fn inspect_json(options: &Options, path: &Path) -> Result<Value, Failure> {
    let marker = options.marker(path)?;
    let mut text = Vec::new();
    options.inspect(path, &mut text)?;
    let file_system = &options.environment_used().file_system;
    let mut files = Vec::new();
    list_files(&**file_system, path, "", &mut files)?;
    Ok(json!({
        "path": path.to_string_lossy(),
        "engine": marker.engine,
        "format_version": marker.format_version,
        "store_id": marker.store.to_string(),
        "files": files,
        "structure": String::from_utf8_lossy(&text).lines().collect::<Vec<_>>(),
    }))
}

/// Adds the files of a folder and of those in it, named from the store's on.
fn list_files(
    file_system: &dyn FileSystem,
    folder: &Path,
    before: &str,
    files: &mut Vec<Value>,
) -> Result<(), Failure> {
    for entry in file_system.list(folder)? {
        let name = format!("{before}{}", entry.name.to_string_lossy());
        let path = folder.join(&entry.name);
        if entry.kind == FileKind::Directory {
            list_files(file_system, &path, &format!("{name}/"), files)?;
            continue;
        }
        let metadata = file_system.metadata(&path)?;
        let Some(metadata) = metadata.filter(|metadata| metadata.kind == FileKind::File) else {
            continue;
        };
        files.push(json!({
            "name": name,
            "length": metadata.length,
            "allocated": metadata.allocated,
        }));
    }
    Ok(())
}

/// Draws a store's index.
pub fn dump(store: &Store) -> Result<Status, Failure> {
    let mut output = Output::standard()?;
    store.dump(&mut output)?;
    output.finish()?;
    Ok(Status::Done)
}

/// Rewrites what is live.
pub fn compact(store: &Store, arguments: &CompactArguments) -> Result<Status, Failure> {
    let mut options = CompactOptions {
        backend: arguments.io,
        batch: arguments.batch,
        direct: arguments.direct,
        ..CompactOptions::default()
    };
    for assignment in &arguments.set {
        options.settings.set_assignment(assignment)?;
    }
    let meter = Meter::new(Unit::Steps);
    let report = compact_until_told(store, &options, &meter)??;
    meter.finish();
    if arguments.json {
        print_json(&compact_json(&report))?;
    } else {
        print(&compact_text(&report))?;
    }
    Ok(Status::Done)
}

/// Compacts. Ctrl-C, and a polite request of the system to end, cancel it: what was
/// written of the new file goes away, and the store is as it was.
fn compact_until_told(
    store: &Store,
    options: &CompactOptions,
    meter: &Meter,
) -> Result<cambium::Result<CompactReport>, Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| Failure::failed(format!("cannot listen to signals: {error}")))?;
    let listening = signals.handle();
    IDLE.store(false, Ordering::Relaxed);
    Ok(thread::scope(|scope| {
        scope.spawn(|| signals.forever().for_each(|_| store.cancel()));
        let outcome = store.compact(options, meter);
        listening.close();
        IDLE.store(true, Ordering::Relaxed);
        outcome
    }))
}

/// True when no compaction runs, and signals end the program as ever: a shell goes on
/// after a compaction.
static IDLE: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| {
    let idle = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // What cannot be registered leaves a shell that a signal does not end.
        _ = signal_hook::flag::register_conditional_default(signal, idle.clone());
    }
    idle
});

/// Settings with which an open store does not begin by itself what is asked of it next.
pub fn idle_options(path: &Path) -> Result<Options, Failure> {
    const NEVER: (&str, u64) = ("compaction_threshold", 100);
    let options = with_progress();
    let engine = options.marker(path)?.engine;
    let kind = options.engines_used().get(&engine);
    let knows = kind.is_some_and(|kind| kind.options().iter().any(|option| option.name == NEVER.0));
    Ok(match knows {
        true => options.set(NEVER.0, NEVER.1),
        false => options,
    })
}

fn compact_json(report: &CompactReport) -> Value {
    let phases = &report.phases;
    json!({
        "phases_seconds": {
            "tree_search": phases.tree_search,
            "sort": phases.sort,
            "read": phases.read,
            "write": phases.write,
            "flush_and_commit": phases.flush_and_commit,
        },
        "total_seconds": report.total_seconds,
        "read_operations": report.read_operations,
        "bytes_read": report.bytes_read,
        "bytes_written": report.bytes_written,
        "documents": report.documents,
        "io": report.backend.to_string(),
        "batch": report.batch,
        "direct": report.direct,
    })
}

fn compact_text(report: &CompactReport) -> String {
    let phases = &report.phases;
    let mut text = format!(
        "{} entries carried over, {} read in {} reads, {} written, {:.3} s\n",
        report.documents,
        human_bytes(report.bytes_read),
        report.read_operations,
        human_bytes(report.bytes_written),
        report.total_seconds,
    );
    for (name, seconds) in [
        ("tree search", phases.tree_search),
        ("sort", phases.sort),
        ("read", phases.read),
        ("write", phases.write),
        ("flush and commit", phases.flush_and_commit),
    ] {
        _ = writeln!(text, "  {name:<16} {seconds:>9.3} s");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_carry_the_unit_that_leaves_few_digits() {
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(u64::MAX), "16384.0 PiB");
    }
}
