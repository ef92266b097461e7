//! The file of everything measured so far, which a later run goes on with: lines of JSON.
//!
//! ```json
//! {"schema": "kvzone matrix 1", "command": "kvzone matrix", "conditions": {...}, "machine": {...}}
//! {"program": "main", "value_bytes": 100, "store": "forest", "round": 0, "runs": [...], "notes": [...]}
//! ```
//!
//! A unit is one program of one store in one round; its line is appended when it ends. A
//! stop loses only the unit under way, and a line that was cut is left out.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use kvzone_core::adapter::Profile;
use kvzone_core::error::{Error, Result};
use kvzone_core::record::{Run, Status};
use serde::{Deserialize, Serialize};

use super::measure::is_failure;
use super::programs::{Cell, Figure, Program, Scale};

const SCHEMA: &str = "kvzone matrix 1";

/// The conditions that rounds must share to be compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Conditions {
    /// Version of KVZone and its engines.
    pub(super) version: String,
    pub(super) stores: Vec<String>,
    pub(super) programs: Vec<Program>,
    /// Value bytes and entries.
    pub(super) sizes: Vec<(u64, u64)>,
    pub(super) budget_bytes: u64,
    #[serde(flatten)]
    pub(super) scale: Scale,
    pub(super) rounds: u32,
    pub(super) seed: u64,
    pub(super) profile: Profile,
    /// Settings of single stores, given by the user.
    pub(super) set: Vec<String>,
}

/// One program of one store in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Unit {
    pub(super) program: Program,
    pub(super) value_bytes: u64,
    pub(super) store: String,
    pub(super) round: u32,
    pub(super) runs: Vec<Run>,
    pub(super) notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Head {
    schema: String,
    /// The command that measures it again.
    pub(super) command: String,
    pub(super) conditions: Conditions,
    pub(super) machine: serde_json::Value,
}

#[derive(Debug)]
pub(super) struct Results {
    pub(super) head: Head,
    pub(super) units: Vec<Unit>,
    file: Option<File>,
}

impl Results {
    pub(super) fn new(command: String, conditions: Conditions, machine: serde_json::Value) -> Self {
        let head = Head {
            schema: SCHEMA.to_string(),
            command,
            conditions,
            machine,
        };
        Results {
            head,
            units: Vec::new(),
            file: None,
        }
    }

    /// Takes over the units of an earlier run, if its conditions were these, without those
    /// that failed: they are tried again.
    pub(super) fn resume(&mut self, path: &Path) -> Result<()> {
        let bytes = fs::read(path).map_err(|error| Error::machine("read", path, error))?;
        let mut lines = bytes.split_inclusive(|&byte| byte == b'\n');
        let head = lines.next().unwrap_or_default();
        let found: Head = serde_json::from_slice(head).map_err(|error| {
            Error::Usage(format!(
                "{} is no matrix to go on with: {error}; leave --resume out to begin anew",
                path.display()
            ))
        })?;
        if found.schema != SCHEMA || found.conditions != self.head.conditions {
            let was = serde_json::to_string(&found.conditions).unwrap_or_default();
            return Err(Error::Usage(format!(
                "{} was measured under other conditions ({was}); give the same options, or leave --resume out",
                path.display()
            )));
        }
        for line in lines.filter(|line| line.ends_with(b"\n")) {
            let unit: Unit = serde_json::from_slice(line)
                .map_err(|error| Error::Usage(format!("{}: {error}", path.display())))?;
            if !unit.runs.iter().any(is_failure) {
                self.units.push(unit);
            }
        }
        Ok(())
    }

    /// Writes everything so far beside its place, and renames it; units are appended from
    /// here on.
    pub(super) fn begin(&mut self, path: &Path) -> Result<()> {
        let failed = |error| Error::machine("write", path, error);
        let beside = path.with_extension("part");
        let mut file = File::create(&beside).map_err(failed)?;
        append(&mut file, &self.head).map_err(failed)?;
        for unit in &self.units {
            append(&mut file, unit).map_err(failed)?;
        }
        fs::rename(&beside, path).map_err(failed)?;
        self.file = Some(file);
        Ok(())
    }

    /// Adds a unit, to the file as well.
    pub(super) fn add(&mut self, unit: Unit) -> Result<()> {
        if let Some(file) = &mut self.file {
            append(file, &unit)
                .map_err(|error| Error::machine("write", "the file of --json", error))?;
        }
        self.units.push(unit);
        Ok(())
    }

    pub(super) fn has(&self, (program, size): (Program, u64), store: &str, round: u32) -> bool {
        self.of(program, size, store)
            .any(|unit| unit.round == round)
    }

    fn of(&self, program: Program, size: u64, store: &str) -> impl Iterator<Item = &Unit> {
        self.units.iter().filter(move |unit| {
            unit.program == program && unit.value_bytes == size && unit.store == store
        })
    }

    pub(super) fn figures(&self, cell: &Cell, size: u64, store: &str) -> Vec<(u32, f64)> {
        let of_unit = |unit: &Unit| Some((unit.round, figure(cell, unit.run(cell.step)?)?));
        self.of(cell.program, size, store)
            .filter_map(of_unit)
            .collect()
    }

    pub(super) fn failure(&self, cell: &Cell, size: u64, store: &str) -> Option<(Status, String)> {
        self.of(cell.program, size, store).find_map(|unit| {
            // A program that ended before the step came to it failed in another.
            let broken = || unit.runs.iter().find(|run| run.status != Status::Ok);
            let run = unit.run(cell.step).or_else(broken)?;
            if run.status == Status::Ok {
                return None;
            }
            Some((run.status, run.error.clone().unwrap_or_default()))
        })
    }
}

impl Unit {
    fn run(&self, step: &str) -> Option<&Run> {
        use kvzone_core::record::Phase;
        self.runs.iter().find(|run| match step {
            "load" => run.phase == Phase::Load,
            "kill" => run.phase == Phase::Reopen,
            step => run.extra.get("step").is_some_and(|name| name == step),
        })
    }
}

fn figure(cell: &Cell, run: &Run) -> Option<f64> {
    if run.status != Status::Ok {
        return None;
    }
    let latency = run.latency_ns.as_ref();
    let live = || {
        run.extra
            .get("live_user_bytes")?
            .as_f64()
            .filter(|&bytes| bytes > 0.0)
    };
    let spaces = || -> Option<Vec<f64>> {
        let samples = run.extra.get("samples")?.as_array()?;
        let space = |sample: &serde_json::Value| sample.get("space_bytes")?.as_f64();
        Some(samples.iter().filter_map(space).collect())
    };
    let value = match cell.figure {
        Figure::Rate => run.ops_per_second,
        Figure::Seconds => run.seconds,
        Figure::SlowestSecond => {
            // The last second is seldom a whole one.
            let whole = &run.timeline[..run.timeline.len().saturating_sub(1)];
            let slowest = whole.iter().map(|point| point.operations).min()?;
            slowest as f64 / run.ops_per_second
        }
        Figure::P99 => latency?.p99 as f64 / 1e9,
        Figure::P999 => latency?.p999 as f64 / 1e9,
        Figure::Space => run.space_bytes? as f64 / live()?,
        Figure::MeanSpace => {
            let spaces = spaces()?;
            spaces.iter().sum::<f64>() / spaces.len() as f64 / live()?
        }
        Figure::GreatestSpace => spaces()?.into_iter().fold(0.0, f64::max) / live()?,
        Figure::SpaceLeft => {
            run.space_bytes? as f64 / (run.keys as f64 * (run.key_size + run.value_size))
        }
        Figure::Memory => run.peak_memory_bytes? as f64,
        Figure::Descriptors => run.extra.get("descriptors")?.as_f64()?,
    };
    value.is_finite().then_some(value)
}

fn append(file: &mut File, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    file.write_all(&line)
}
