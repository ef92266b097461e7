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
//!
//! Every round measures every case once, in an order that the seed decides, so
//! that what else the machine does meets all of them alike.

pub(crate) mod child;
mod claims;
mod figures;
mod memory;
mod steady;
mod store;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use kvzone_core::device::fio;
use kvzone_core::device::random::RandomPoint;
use kvzone_core::error::{Error, Result};
use kvzone_core::report::bars::{Bar, legend, stacked};
use kvzone_core::report::text::three_digits;
use kvzone_core::statistics::rounds::order;
use serde_json::{Value, json};

use super::measured::{Cell, Measured, PointUsed, Round};
use super::runner::Asked;
use crate::limits::{Hierarchy, MemoryGroup};
use crate::output;
use crate::place::{self, Disk, RunFolder};
use child::{Answer, Task, Workload};
pub(super) use figures::FIGURES;
use figures::{Case, Kind, PHASES, scaled};
use store::Base;

/// Threads of the workload of figure 8.
const THREADS: u64 = 4;

/// All rounds of all cases at all sizes.
fn measure(kind: Kind, sizes: &[f64], asked: Asked<'_>) -> Result<(Measured, Value)> {
    let arguments = asked.arguments;
    let directory = place::prepare(&arguments.dir)?;
    let mut measured = asked.nothing(Vec::new());
    let mut found = Vec::new();
    let mut limited = true;
    for (point, size) in sizes.iter().enumerate() {
        let bytes = scaled(*size, asked.scale);
        // Twice the documents, and the new file beside.
        let times = if kind == Kind::Steady { 14.0 } else { 4.0 };
        place::check_room(&directory, (bytes * times) as u64)?;
        let folder = RunFolder::create(&directory, "p-fetch")?;
        output::complain(&format!("kvzone: making a store of {}", size_of(bytes)));
        let base = Base::make(&folder.path().join("base"), bytes, arguments.seed)?;
        let cases = kind.cases();
        let mut rounds: Vec<Vec<Answer>> = vec![Vec::new(); cases.len()];
        for round in 0..asked.repeat {
            for place in order(arguments.seed, round, cases.len()) {
                let one = Measurement {
                    kind,
                    case: &cases[place],
                    base: &base,
                    bytes,
                    seed: arguments.seed + u64::from(round),
                    memory: memory::limit(arguments.memory, bytes),
                };
                let (answer, was_limited) = one.run(&folder.path().join("store"))?;
                limited &= was_limited;
                if let Some(error) = &answer.error {
                    output::complain(&format!("kvzone: {}: {error}", cases[place].title));
                }
                rounds[place].push(answer);
            }
        }
        let used = PointUsed::at(&size_of(bytes), String::new());
        measured.points.push(used);
        for (case, answers) in cases.into_iter().zip(rounds) {
            found.push(json!({
                "data_bytes": bytes, "case": case.title, "io": case.io, "batch": case.batch,
                "direct": case.direct, "settings": case.settings, "rounds": answers,
            }));
            measured.cells.push(cell(point, case, &answers));
        }
    }
    if let Some(first) = measured.points.first_mut() {
        let memory = match limited {
            true => format!("memory limited to {}", memory::told(arguments.memory)),
            false => "memory NOT limited".to_string(),
        };
        first.conditions = format!(
            "Documents of 4 KiB, a random half of them written twice; cold cache, {memory}; \
             seconds of each phase.\n"
        );
    }
    // Compactions of the background tell no phases, nor does fio.
    if !matches!(kind, Kind::Steady | Kind::Fio) {
        measured.charts = charts(&measured);
    }
    let found = json!({
        "schema": "kvzone-compaction/1", "figure": arguments.name, "scale": asked.scale,
        "seed": arguments.seed, "memory_limited": limited, "measured": found,
    });
    Ok((measured, found))
}

/// All rounds of one case; its name says what served where that is another back end.
fn cell(point: usize, case: Case, answers: &[Answer]) -> Cell {
    let good = |answer: &&Answer| answer.error.is_none();
    let other = answers
        .iter()
        .filter(good)
        .find(|answer| answer.io != case.io);
    let round = |(repeat, answer): (usize, &Answer)| Round {
        repeat: repeat as u32,
        found: match answer.error {
            None => json!(answer),
            Some(_) => Value::Null,
        },
        load: Value::Null,
    };
    Cell {
        point,
        label: case.title.into(),
        workload: "",
        against: Some(case.against),
        version: other.map(|answer| format!("({} served)", answer.io)),
        failure: (!answers.iter().all(|answer| answer.error.is_none())).then(|| "failed".into()),
        rounds: answers.iter().enumerate().map(round).collect(),
    }
}

/// The phases of each case as bars, a picture for each size of the data.
fn charts(measured: &Measured) -> String {
    let phases = PHASES.map(|phase| phase.head);
    let bar = |cell: &Cell| {
        let parts = PHASES.iter().map(|phase| measured.value(cell, *phase));
        Bar {
            name: cell.label.to_string(),
            parts: parts.collect::<Option<Vec<f64>>>().unwrap_or_default(),
        }
    };
    let picture = |(place, size): (usize, &str)| {
        let cells = measured.cells.iter().filter(|cell| cell.point == place);
        let bars: Vec<Bar> = cells.map(bar).collect();
        let seconds = |seconds| format!("{} s", three_digits(seconds));
        format!("<h2>{size} of documents, seconds</h2>")
            + &legend(&phases)
            + &stacked(&bars, &phases, seconds)
    };
    measured.labels().enumerate().map(picture).collect()
}

fn size_of(bytes: f64) -> String {
    kvzone_core::report::text::bytes(bytes)
}

/// One compaction.
struct Measurement<'a> {
    kind: Kind,
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
        let workload = self.kind.operations(self.bytes).map(|operations| Workload {
            keys: self.base.keys,
            operations,
            threads: THREADS,
            seed: self.seed,
        });
        if matches!(self.kind, Kind::Throughput | Kind::Steady) {
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
            steady: self.kind == Kind::Steady,
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

#[cfg(test)]
mod tests {
    use super::super::present::show;
    use super::*;

    fn measured(kind: Kind) -> Measured {
        let cell = |(number, case): (usize, Case)| {
            let answer = Answer {
                io: case.io.to_string(),
                read: 8.0 / (number + 1) as f64,
                write: 1.0,
                total: 10.0,
                operations_per_second: Some(100.0 * (number + 1) as f64),
                device_reads: 2,
                device_read_bytes: 8192,
                ..Answer::default()
            };
            cell(0, case, &[answer])
        };
        Measured {
            points: vec![PointUsed::at("28.6 MiB", String::new())],
            cells: kind.cases().into_iter().enumerate().map(cell).collect(),
            repeat: 1,
            ..Measured::default()
        }
    }

    #[test]
    fn every_case_has_a_row_and_its_phases_as_bars() {
        let figure = FIGURES.iter().find(|figure| figure.name == "p-fetch/fig9");
        let measured = measured(Kind::Batch);
        let shown = show(figure.unwrap(), &measured);
        let (_, grid) = &shown.grids[0];
        assert_eq!(grid.rows.len(), 27);
        assert!(grid.rows.iter().all(|row| row.len() == grid.heads.len()));
        assert!(shown.claims.iter().all(|claim| claim.here.is_some()));
        let charts = charts(&measured);
        assert_eq!(charts.matches("<rect").count(), 5 * 27);
        assert!(!charts.contains("http"), "no outside link");
    }

    #[test]
    fn ratios_are_against_the_first_back_end_and_failures_are_named() {
        let figure = FIGURES.iter().find(|figure| figure.name == "p-fetch/fig4");
        let mut measured = measured(Kind::Backends { direct: true });
        let read: fn(&Round) -> Option<f64> = |answer| answer.number("/read");
        assert_eq!(measured.gain(&measured.cells[1], read), Some(0.5));
        let broken = Answer {
            error: Some("broken".to_string()),
            ..Answer::default()
        };
        let cases = Kind::Backends { direct: true }.cases();
        measured.cells[2] = cell(0, cases[2].clone(), &[broken]);
        assert!(!measured.all_well());
        let shown = show(figure.unwrap(), &measured);
        let row = &shown.grids[0].1.rows[2];
        assert_eq!(row[2], "failed");
        assert!(row[3..].iter().all(|cell| cell == "-"), "{row:?}");
    }
}
