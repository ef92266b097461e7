//! Measures a figure: a campaign for each of its points.

use std::time::Duration;

use kvzone_core::adapter::{DurabilityName, Profile};
use kvzone_core::error::Result;
use kvzone_core::job::{Load, SizeChoice, Until};
use kvzone_core::record::{Phase, Report, Run, SCHEMA, Status};
use kvzone_core::report::summary::different_answers;
use kvzone_core::statistics::median;
use kvzone_core::statistics::verdict::{Comparison, compare};

use super::super::{ReproduceArguments, chosen};
use super::device;
use super::figures::{Column, Contestant, Figure, Point};
use crate::run::Stage;
use crate::run::campaign::{Campaign, Contender};
use crate::supervisor::Patience;

/// Bytes of a key.
const KEY_BYTES: u64 = 16;
/// Memory by data, in the paper.
const MEMORY_BY_DATA: f64 = 0.64;
/// What the programs need, whatever they hold.
const LEAST_MEMORY: u64 = 96 << 20;
/// LevelDB's own, in all stores.
const WRITE_BUFFER_BYTES: u64 = 4 << 20;
/// Of each store.
const CACHE_BYTES: u64 = 8 << 20;
/// A scan visits this share of the entries, as 4 GB are of 100.
const SCANNED: u64 = 25;

/// One store at one point.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) point: &'static Point,
    /// What rows call the store.
    pub(super) label: &'static str,
    pub(super) version: Option<String>,
    /// The first thing that went wrong.
    pub(super) failure: Option<String>,
    /// Rounds that ended well: the measured phase, and the load before it.
    runs: Vec<Run>,
    loads: Vec<Run>,
}

/// A point as it was measured.
#[derive(Clone, Debug)]
pub(super) struct PointUsed {
    pub(super) label: &'static str,
    pub(super) keys: u64,
    pub(super) value_bytes: u64,
    pub(super) memory_limit_bytes: Option<u64>,
    /// Bytes a second that one thread writes to one file, where that is shown.
    pub(super) file_rate: Option<f64>,
}

/// A whole figure.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) points: Vec<PointUsed>,
    pub(super) first: &'static str,
    pub(super) cells: Vec<Cell>,
    pub(super) warnings: Vec<String>,
    pub(super) report: Report,
    pub(super) asked: Asked,
}

/// What is asked, with the defaults filled in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) scale: f64,
    pub(super) repeat: u32,
    pub(super) seed: u64,
}

impl Cell {
    /// Median over rounds of what a column shows.
    pub(super) fn figure(&self, column: Column) -> Option<f64> {
        let of = |run: &Run| {
            let latency = run.latency_ns.as_ref();
            let is_timed = run.seconds > 0.0;
            match column {
                Column::Rate => Some(run.ops_per_second),
                Column::MegaBytes if is_timed => Some(run.user_bytes as f64 / run.seconds / 1e6),
                Column::Processor if is_timed => Some(run.cpu_seconds? / run.seconds * 100.0),
                Column::WriteAmplification => run.write_amplification,
                Column::ReadAmplification => run.read_amplification,
                Column::ReadsPerGet => run.extra.get("device_reads_per_lookup")?.as_f64(),
                Column::SpaceAmplification => run.space_amplification,
                Column::Median => Some(latency?.p50 as f64 / 1e3),
                Column::Waiting => {
                    let latency = latency?;
                    let share = 1.0 - latency.p50 as f64 / latency.mean;
                    (latency.mean > 0.0).then_some(share.max(0.0) * 100.0)
                }
                Column::OfFile | Column::Ratio | Column::MegaBytes | Column::Processor => None,
            }
        };
        // What is written is written by the load, unless the workload writes.
        let loaded = column == Column::WriteAmplification && !writes(self.point.workload);
        let runs = if loaded { &self.loads } else { &self.runs };
        let values: Vec<f64> = runs.iter().filter_map(of).collect();
        median(&values)
    }
}

fn writes(workload: &str) -> bool {
    workload.starts_with("fill-") || workload == "overwrite"
}

impl Measured {
    /// What one round says by itself.
    pub(super) fn of_round(&self, round: u32) -> Measured {
        let mut one = self.clone();
        for cell in &mut one.cells {
            cell.runs.retain(|run| run.repeat == round);
            cell.loads.retain(|run| run.repeat == round);
        }
        one
    }

    /// A store at a point.
    pub(super) fn cell(&self, point: &str, label: &str) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|cell| cell.point.label == point && cell.label == label)
    }

    /// A figure of a store at a point.
    pub(super) fn figure(&self, point: &str, label: &str, column: Column) -> Option<f64> {
        self.cell(point, label)?.figure(column)
    }

    /// Percent of what one thread writes to one file, in user bytes.
    pub(super) fn of_file(&self, cell: &Cell) -> Option<f64> {
        let used = self.points.iter().find(|it| it.label == cell.point.label)?;
        Some(cell.figure(Column::MegaBytes)? * 1e6 / used.file_rate? * 100.0)
    }

    /// Labels of the points that were measured.
    pub(super) fn labels(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.points.iter().map(|point| point.label)
    }

    /// The first store against this one, in the rounds that both ended well.
    pub(super) fn ratio(&self, cell: &Cell) -> Option<Comparison> {
        let ours = self.cell(cell.point.label, self.first)?;
        if std::ptr::eq(ours, cell) {
            return None;
        }
        let pair = |run: &Run| {
            let theirs = cell.runs.iter().find(|other| other.repeat == run.repeat)?;
            Some((run.ops_per_second, theirs.ops_per_second))
        };
        let pairs: Vec<(f64, f64)> = ours.runs.iter().filter_map(pair).collect();
        compare(&pairs)
    }

    /// True if every store did everything, and all answered the same.
    pub(super) fn all_well(&self) -> bool {
        let different = self.warnings.iter().any(|text| text.contains("DIFFERENT"));
        !different && self.report.runs.iter().all(|run| run.status == Status::Ok)
    }

    fn take(
        &mut self,
        point: &'static Point,
        campaign: &Campaign,
        labels: &[&'static str],
        (mut report, file_rate): (Report, Option<f64>),
    ) {
        let load = &campaign.loads[0];
        self.points.push(PointUsed {
            label: point.label,
            keys: load.keys,
            value_bytes: point.value_bytes,
            memory_limit_bytes: campaign.memory_limit_bytes,
            file_rate,
        });
        for label in labels {
            self.cells.push(cell_of(point, label, &report));
        }
        let all: Vec<&Run> = report.runs.iter().collect();
        if let Some(told) = different_answers(&all, Phase::Run) {
            self.warnings
                .push(format!("{}: DIFFERENT ANSWERS: {told}", point.label));
        }
        for run in &mut report.runs {
            run.extra.insert("point".to_string(), point.label.into());
        }
        self.report.machine = report.machine;
        self.report.runs.extend(report.runs);
    }
}

fn cell_of(point: &'static Point, label: &'static str, report: &Report) -> Cell {
    let own = |run: &&Run| run.extra.get("variant").is_some_and(|it| it == label);
    let all: Vec<&Run> = report.runs.iter().filter(own).collect();
    let broken = all.iter().find(|run| run.status != Status::Ok);
    let of = |phase: Phase| {
        let good = all
            .iter()
            .filter(|run| run.phase == phase && run.status == Status::Ok);
        good.map(|run| (*run).clone()).collect()
    };
    let measured = match point.workload.starts_with("fill-") {
        true => Phase::Load,
        false => Phase::Run,
    };
    Cell {
        point,
        label,
        version: all.iter().find_map(|run| run.version.clone()),
        failure: broken.map(|run| run.status.name().to_string()),
        runs: of(measured),
        loads: of(Phase::Load),
    }
}

/// Measures every point that is asked for.
pub(super) fn measure(
    figure: &'static Figure,
    arguments: &ReproduceArguments,
    asked: Asked,
) -> Result<Measured> {
    let contestants = chosen::contestants(figure.contestants, &arguments.stores)?;
    let asked_for = (arguments.points.as_slice(), arguments.all_points);
    let points = chosen::points(figure.name, figure.points, asked_for)?;
    let labels: Vec<&'static str> = contestants.iter().map(|one| one.label).collect();
    let mut measured = Measured {
        points: Vec::new(),
        first: labels.first().copied().unwrap_or_default(),
        cells: Vec::new(),
        warnings: Vec::new(),
        report: Report {
            schema: SCHEMA.to_string(),
            machine: serde_json::Value::Null,
            seed: asked.seed,
            runs: Vec::new(),
        },
        asked,
    };
    let mut stage = Stage::new()?;
    for point in points {
        let campaign = campaign(point, &contestants, arguments, asked);
        let outcome = campaign.run(&mut stage)?.whole()?;
        let file_rate = match figure.columns.contains(&Column::OfFile) {
            true => {
                let load = &campaign.loads[0];
                let entry = KEY_BYTES + point.value_bytes;
                device::file_rate(arguments, load.keys * entry)?
            }
            false => None,
        };
        let found = (outcome.report, file_rate);
        measured.take(point, &campaign, &labels, found);
        for warning in outcome.warnings {
            measured
                .warnings
                .push(format!("{}: {warning}", point.label));
        }
    }
    stage.close();
    Ok(measured)
}

fn campaign(
    point: &Point,
    contestants: &[Contestant],
    arguments: &ReproduceArguments,
    asked: Asked,
) -> Campaign {
    let data = point.paper_bytes * asked.scale;
    let keys = ((data / (KEY_BYTES + point.value_bytes) as f64) as u64).max(64);
    let scanned = (keys / SCANNED).max(1);
    let is_scan = point.workload.starts_with("scan-");
    let until = match (arguments.operations, point.workload) {
        (Some(operations), _) => Until::Operations(operations),
        (None, "overwrite") => Until::Operations(keys),
        (None, workload) if workload.starts_with("fill-") => Until::Operations(keys),
        (None, _) => Until::Seconds(arguments.seconds),
    };
    let load = Load {
        workload: point.workload.to_string(),
        seed: asked.seed,
        keys,
        key_bytes: SizeChoice::Fixed(KEY_BYTES),
        value_bytes: SizeChoice::Fixed(point.value_bytes),
        until,
        scan_entries: is_scan.then_some(SizeChoice::Fixed(scanned)),
        verify_every: 64,
        compressible: 0.0,
        ..Load::default()
    };
    let memory = ((data * MEMORY_BY_DATA) as u64).max(LEAST_MEMORY);
    Campaign {
        contenders: contestants.iter().map(contender).collect(),
        loads: vec![load],
        steps: Vec::new(),
        _kept: Vec::new(),
        record: None,
        repeat: asked.repeat,
        seed: asked.seed,
        durability: DurabilityName::Written,
        budget_bytes: CACHE_BYTES,
        memory_limit_bytes: Some(arguments.memory.unwrap_or(memory)),
        profile: Profile::Equal,
        cold: point.cold,
        warm: false,
        reopen: None,
        directory: arguments.dir.clone(),
        patience: Patience {
            idle: Duration::from_secs(60),
        },
    }
}

/// A store with the same write buffer and filters as the others.
fn contender(contestant: &Contestant) -> Contender {
    let buffer = WRITE_BUFFER_BYTES.to_string();
    let mut options: Vec<(&str, String)> = match contestant.store {
        "leveldb" | "rocksdb" | "rocksdb-blob" => vec![
            ("bloom_bits", "10".to_string()),
            ("write_buffer_bytes", buffer),
        ],
        super::figures::WISCKEY => vec![
            ("filter_bits", "10".to_string()),
            ("write_buffer_bytes", buffer),
        ],
        _ => Vec::new(),
    };
    let own = contestant.options.iter();
    options.extend(own.map(|(name, value)| (*name, value.to_string())));
    let options = options.into_iter();
    Contender {
        overrides: options
            .map(|(name, value)| (name.to_string(), value))
            .collect(),
        variant: Some(contestant.label.to_string()),
        ..Contender::of(contestant.store)
    }
}
