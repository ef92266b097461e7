//! `kvzone reproduce p-fetch/figN`: compactions of the P-Fetch paper, measured
//! here.
//!
//! | module | what it holds |
//! |---|---|
//! | `figures` | what is compared in each figure, and what the paper found |
//! | `store` | the store that is compacted, brought back for each measurement |
//! | `claims` | what the paper says, held against what was measured |
//! | `child` | one measurement, in a process of its own with limited memory |
//! | `memory` | how much of it a measurement has, and who gets which part |
//! | `steady` | a workload beside compactions that begin by themselves |
//! | `present` | tables, bars and markdown |
//!
//! Every round measures every case once, in an order that the seed decides, so
//! that what else the machine does meets all of them alike.

pub(crate) mod child;
mod claims;
mod figures;
mod memory;
mod present;
mod steady;
mod store;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use kvzone_core::device::fio;
use kvzone_core::device::random::RandomPoint;
use kvzone_core::error::{Error, Result};
use kvzone_core::statistics::rounds::order;

use super::ReproduceArguments;
use super::document;
use crate::limits::{Hierarchy, MemoryGroup};
use crate::output;
use crate::place::{self, Disk, RunFolder};
use child::{Answer, Task, Workload};
use figures::{Case, FIGURES, Figure, Kind};
use present::{Measured, Presented};
use store::Base;

/// Share of the paper's bytes, and rounds, unless asked otherwise.
const DEFAULTS: (f64, u32) = (0.03, 3);
/// Threads of the workload of figure 8.
const THREADS: u64 = 4;

/// Names with titles.
pub(super) fn presets() -> impl Iterator<Item = (&'static str, &'static str)> {
    FIGURES.iter().map(|figure| (figure.name, figure.title))
}

/// Measures a figure, if there is one of this name.
pub(super) fn run(arguments: &ReproduceArguments) -> Option<Result<ExitCode>> {
    let figure = FIGURES.iter().find(|known| known.name == arguments.name)?;
    Some(reproduce(arguments, figure))
}

fn reproduce(arguments: &ReproduceArguments, figure: &'static Figure) -> Result<ExitCode> {
    if let Some(path) = &arguments.update {
        document::check(path, figure.name)?;
    }
    let (measured, limited) = measure(arguments, figure)?;
    let presented = Presented {
        figure,
        scale: scale_of(arguments),
        repeat: rounds_of(arguments),
        seed: arguments.seed,
        memory: arguments.memory,
        memory_limited: limited,
        measured,
    };
    if let Some(path) = &arguments.json {
        write(path, &presented.json())?;
    }
    if let Some(path) = &arguments.html {
        write(path, &presented.html())?;
    }
    if let Some(path) = &arguments.update {
        document::update(path, figure.name, &presented.markdown())?;
    }
    let mut text = presented.terminal();
    if arguments.markdown {
        text += "\n";
        text += &presented.markdown();
    }
    output::print(&text)?;
    Ok(ExitCode::from(if presented.all_well() { 0 } else { 3 }))
}

fn scale_of(arguments: &ReproduceArguments) -> f64 {
    arguments.scale.unwrap_or(DEFAULTS.0)
}

fn rounds_of(arguments: &ReproduceArguments) -> u32 {
    arguments.repeat.unwrap_or(DEFAULTS.1)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| Error::machine("write", path, error))
}

/// All rounds of all cases at all sizes, and whether memory was limited.
fn measure(arguments: &ReproduceArguments, figure: &Figure) -> Result<(Vec<Measured>, bool)> {
    let directory = place::prepare(&arguments.dir)?;
    let mut measured = Vec::new();
    let mut limited = true;
    for bytes in figure.bytes(scale_of(arguments)) {
        // Twice the documents, and the new file beside.
        let times = if figure.kind == Kind::Steady {
            14.0
        } else {
            4.0
        };
        place::check_room(&directory, (bytes * times) as u64)?;
        let folder = RunFolder::create(&directory, "p-fetch")?;
        output::complain(&format!("kvzone: making a store of {}", size_of(bytes)));
        let base = Base::make(&folder.path().join("base"), bytes, arguments.seed)?;
        let cases = figure.cases();
        let mut rounds: Vec<Vec<Answer>> = vec![Vec::new(); cases.len()];
        for round in 0..rounds_of(arguments) {
            for place in order(arguments.seed, round, cases.len()) {
                let case = &cases[place];
                let memory = memory::limit(arguments.memory, bytes);
                let path = folder.path().join("store");
                let one = Measurement {
                    figure,
                    case,
                    base: &base,
                    bytes,
                    seed: arguments.seed + u64::from(round),
                    memory,
                };
                let (answer, was_limited) = one.run(&path)?;
                limited &= was_limited;
                if let Some(error) = &answer.error {
                    output::complain(&format!("kvzone: {}: {error}", case.title));
                }
                rounds[place].push(answer);
            }
        }
        for (case, answers) in cases.into_iter().zip(rounds) {
            measured.push(Measured {
                bytes,
                case,
                answers,
            });
        }
    }
    Ok((measured, limited))
}

fn size_of(bytes: f64) -> String {
    kvzone_core::report::text::bytes(bytes)
}

/// One compaction.
struct Measurement<'a> {
    figure: &'a Figure,
    case: &'a Case,
    base: &'a Base,
    bytes: f64,
    seed: u64,
    memory: u64,
}

impl Measurement<'_> {
    fn run(&self, path: &Path) -> Result<(Answer, bool)> {
        if self.case.by_fio {
            // Past the page cache: no limit of memory plays a part.
            return Ok((self.by_fio(), true));
        }
        let workload = self
            .figure
            .operations(self.bytes)
            .map(|operations| Workload {
                keys: self.base.keys,
                operations,
                threads: THREADS,
                seed: self.seed,
            });
        if matches!(self.figure.kind, Kind::Throughput | Kind::Steady) {
            self.base.copy(path)?;
        } else {
            self.base.again(path)?;
        }
        let _ahead = match self.case.read_ahead {
            None => None,
            Some(kibibytes) => Some(ReadAhead::set(path, kibibytes)?),
        };
        let task = Task {
            path: path.to_path_buf(),
            io: self.case.io.to_string(),
            batch: self.case.batch,
            opening: memory::options(self.memory),
            direct: self.case.direct,
            settings: self.case.settings.clone(),
            workload,
            steady: self.figure.kind == Kind::Steady,
        };
        let group = Hierarchy::detect().and_then(|found| MemoryGroup::create(&found, self.memory));
        if let Err(reason) = &group {
            output::complain(&format!("kvzone: memory is NOT limited: {reason}"));
        }
        let answer = in_child(&task, group.as_ref().ok())?;
        Ok((answer, group.is_ok()))
    }
}

/// How long `fio` reads.
const FIO_TIME: Duration = Duration::from_secs(2);

impl Measurement<'_> {
    /// The same number of reads at once by `fio`.
    fn by_fio(&self) -> Answer {
        let read = || -> Result<f64> {
            let file = self.base.database()?;
            let length = fs::metadata(&file).map(|metadata| metadata.len());
            let bytes = length.map_err(|error| Error::machine("look at", &file, error))?;
            let point = RandomPoint {
                backend: self.case.io.parse()?,
                depth: self.case.batch,
                direct: self.case.direct,
            };
            Ok(fio::of_file(&file, bytes, point, FIO_TIME)?)
        };
        match read() {
            Ok(rate) => Answer {
                io: self.case.io.to_string(),
                read: FIO_TIME.as_secs_f64(),
                total: FIO_TIME.as_secs_f64(),
                read_operations: (rate * FIO_TIME.as_secs_f64()) as u64,
                ..Answer::default()
            },
            Err(error) => Answer {
                error: Some(error.to_string()),
                ..Answer::default()
            },
        }
    }
}

/// Runs a task in a process of its own.
fn in_child(task: &Task, group: Option<&MemoryGroup>) -> Result<Answer> {
    let failed = |error: std::io::Error| Error::machine("start", "a process to measure", error);
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(program)
        .arg("compact-worker")
        .envs((group.is_some()).then_some(crate::supervisor::ONE_ARENA))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(group) = group {
        if let Err(reason) = group.admit(child.id()) {
            output::complain(&format!("kvzone: memory is NOT limited: {reason}"));
        }
    }
    let text =
        serde_json::to_string(task).map_err(|error| Error::machine("write", "the task", error))?;
    if let Some(mut input) = child.stdin.take() {
        writeln!(input, "{text}").map_err(failed)?;
    }
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output)
            .read_line(&mut line)
            .map_err(failed)?;
    }
    let status = child.wait().map_err(failed)?;
    match serde_json::from_str(&line) {
        Ok(answer) => Ok(answer),
        Err(_) => Ok(Answer {
            error: Some(format!("its process ended without an answer: {status}")),
            ..Answer::default()
        }),
    }
}

/// The kernel's read-ahead, brought back when dropped.
struct ReadAhead {
    file: PathBuf,
    before: String,
}

impl ReadAhead {
    fn set(directory: &Path, kibibytes: u32) -> Result<ReadAhead> {
        let Some(file) = Disk::of(directory).read_ahead_file() else {
            let reason = "this disk has no read-ahead to set";
            return Err(Error::machine("set the read-ahead of", directory, reason));
        };
        let failed = |error| Error::machine("set the read-ahead (root may) in", &file, error);
        let before = fs::read_to_string(&file).map_err(failed)?;
        fs::write(&file, kibibytes.to_string()).map_err(failed)?;
        Ok(ReadAhead { file, before })
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.file, self.before.trim()) {
            let path = self.file.display();
            output::complain(&format!("kvzone: {path} is not as it was: {error}"));
        }
    }
}
