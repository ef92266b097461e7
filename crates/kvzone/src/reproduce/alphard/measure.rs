//! Measures a figure: a campaign for each of its points.

use std::path::Path;
use std::time::Duration;

use kvzone_core::adapter::{Availability, DurabilityName, Profile};
use kvzone_core::error::{Error, Result};
use kvzone_core::job::{Load, SizeChoice, Until};
use kvzone_core::record::{LatencySummary, Phase, Report, Run, SCHEMA, Status};
use kvzone_core::report::summary::different_answers;
use kvzone_core::statistics::median;
use kvzone_core::statistics::verdict::{Comparison, compare};

use super::super::{ReproduceArguments, chosen};
use super::figures::{CONTESTANTS, Column, Contestant, Figure, Point, RAW};
use crate::run::Stage;
use crate::run::campaign::{Campaign, Contender};
use crate::supervisor::Patience;

/// Data at a scale of 1: 6 times the paper's 8 GB of memory.
const FULL_BYTES: f64 = 48e9;
/// Data by memory.
const DATA_BY_MEMORY: f64 = 6.0;
/// Share of that, unless asked otherwise: Tokyo Cabinet takes minutes to load more than a
/// gigabyte in a sixth of it of memory, at each point.
const SCALE: f64 = 0.016;
/// Rounds, unless asked otherwise: minutes, not an hour. A claim takes 5.
const ROUNDS: u32 = 1;
/// What the programs need, whatever they hold: as many values, and batches of them, are
/// under way as there are threads.
const LEAST_MEMORY: u64 = 122 << 20;
/// Bytes of a key, as in the paper.
const KEY_BYTES: u64 = 4;
/// Operations in flight.
pub(super) const THREADS: u32 = 32;

/// One store at one point.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) point: &'static Point,
    /// What rows call the store.
    pub(super) label: &'static str,
    pub(super) version: Option<String>,
    /// The first thing that went wrong.
    pub(super) failure: Option<String>,
    /// Rounds that ended well.
    runs: Vec<Run>,
}

/// A point as it was measured.
#[derive(Clone, Debug)]
pub(super) struct PointUsed {
    pub(super) point: &'static Point,
    pub(super) keys: u64,
    pub(super) memory_limit_bytes: u64,
}

/// A whole figure.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) points: Vec<PointUsed>,
    pub(super) contestants: Vec<Contestant>,
    pub(super) cells: Vec<Cell>,
    pub(super) warnings: Vec<String>,
    pub(super) report: Report,
    pub(super) repeat: u32,
    pub(super) scale: f64,
}

impl Cell {
    /// Median over rounds of what a column shows.
    pub(super) fn figure(&self, column: Column) -> Option<f64> {
        let of = |run: &Run| {
            let kind = |name: &str| latency(run, name);
            let milliseconds = |nanoseconds: f64| nanoseconds / 1e6;
            match column {
                Column::Rate => Some(run.ops_per_second),
                Column::MegaBytes if run.seconds > 0.0 => {
                    Some(run.user_bytes as f64 / run.seconds / 1e6)
                }
                Column::WriteMean => Some(milliseconds(kind("insert")?.mean)),
                Column::WriteDeviation => Some(milliseconds(kind("insert")?.stdev)),
                Column::WriteTail => Some(milliseconds(kind("insert")?.p99 as f64)),
                Column::ReadMean => Some(milliseconds(kind("read")?.mean)),
                Column::WriteAmplification => run.write_amplification,
                Column::Cpu => Some(run.cpu_seconds? * 1e6 / run.operations.max(1) as f64),
                Column::Ratio | Column::MegaBytes => None,
            }
        };
        let values: Vec<f64> = self.runs.iter().filter_map(of).collect();
        median(&values)
    }
}

/// Of one kind of operation.
fn latency(run: &Run, kind: &str) -> Option<LatencySummary> {
    let found = run.extra.get(&format!("latency_ns_{kind}"))?;
    serde_json::from_value(found.clone()).ok()
}

impl Measured {
    /// What one round says by itself.
    pub(super) fn of_round(&self, round: u32) -> Measured {
        let mut one = self.clone();
        for cell in &mut one.cells {
            cell.runs.retain(|run| run.repeat == round);
        }
        one
    }

    /// A store at a point.
    pub(super) fn cell(&self, point: &str, label: &str) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|cell| cell.point.label == point && cell.label == label)
    }

    /// What rows call the store that is compared with the others.
    pub(super) fn first(&self) -> &'static str {
        self.contestants.first().map_or("", |one| one.label)
    }

    /// The first store against this one, in the rounds that both ended well.
    pub(super) fn ratio(&self, cell: &Cell) -> Option<Comparison> {
        let ours = self.cell(cell.point.label, self.first())?;
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

    /// One line for each store that has no rate to take a part of, at a point that is one.
    fn without_peak(&self, point: &Point) -> Vec<String> {
        let Some(share) = point.share else {
            return Vec::new();
        };
        let has_none = |one: &&Contestant| self.peak(share.of, one.label).is_none();
        let told = |one: &Contestant| {
            let why = self.cell(share.of, one.label);
            let why = why.and_then(|cell| cell.failure.as_deref());
            format!(
                "{}: {} is left out: it has no rate at {:?} to take a part of ({})",
                point.label,
                one.label,
                share.of,
                why.unwrap_or("not measured")
            )
        };
        self.contestants.iter().filter(has_none).map(told).collect()
    }

    /// What a store had at a point.
    fn peak(&self, point: &str, label: &str) -> Option<f64> {
        self.cell(point, label)?.figure(Column::Rate)
    }

    fn take(&mut self, point: &'static Point, campaign: &Campaign, mut report: Report) {
        // Stores with rates of their own come one after the other.
        if self
            .points
            .last()
            .is_none_or(|last| last.point.label != point.label)
        {
            self.points.push(PointUsed {
                point,
                keys: campaign.loads[0].keys,
                memory_limit_bytes: campaign.memory_limit_bytes.unwrap_or(0),
            });
        }
        let took_part = |label| {
            let mut contenders = campaign.contenders.iter();
            contenders.any(|contender| contender.variant.as_deref() == Some(label))
        };
        for one in self.contestants.iter().filter(|one| took_part(one.label)) {
            self.cells.push(cell_of(point, one.label, &report));
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
    let good = |run: &&&Run| run.phase == Phase::Run && run.status == Status::Ok;
    Cell {
        point,
        label,
        version: all.iter().find_map(|run| run.version.clone()),
        failure: broken.map(|run| run.status.name().to_string()),
        runs: all.iter().filter(good).map(|run| (*run).clone()).collect(),
    }
}

/// Measures every point that is asked for.
pub(super) fn measure(figure: &'static Figure, arguments: &ReproduceArguments) -> Result<Measured> {
    let asked_for = (arguments.points.as_slice(), arguments.all_points);
    let points = chosen::points(figure.name, figure.points, asked_for)?;
    let mut measured = Measured {
        points: Vec::new(),
        contestants: chosen::contestants(CONTESTANTS, &arguments.stores)?,
        cells: Vec::new(),
        warnings: Vec::new(),
        report: Report {
            schema: SCHEMA.to_string(),
            machine: serde_json::Value::Null,
            seed: arguments.seed,
            runs: Vec::new(),
        },
        repeat: arguments.repeat.unwrap_or(ROUNDS),
        scale: arguments.scale.unwrap_or(SCALE),
    };
    if arguments.stores.is_empty() && arguments.device.is_none() {
        leave_out_device(&mut measured)?;
    }
    let mut stage = Stage::new()?;
    for point in points {
        let campaigns = campaigns((figure, point), &measured, arguments)?;
        let left_out = measured.without_peak(point);
        measured.warnings.extend(left_out);
        for campaign in campaigns {
            let outcome = campaign.run(&mut stage)?.whole()?;
            measured.take(point, &campaign, outcome.report);
            let warnings = outcome.warnings.into_iter();
            measured
                .warnings
                .extend(warnings.map(|warning| format!("{}: {warning}", point.label)));
        }
    }
    stage.close();
    Ok(measured)
}

/// One for all stores, or one for each where each has a rate of its own.
fn campaigns(
    (figure, point): (&Figure, &Point),
    measured: &Measured,
    arguments: &ReproduceArguments,
) -> Result<Vec<Campaign>> {
    let common = || campaign((figure, point), measured, arguments);
    let Some(share) = point.share else {
        return Ok(vec![common()]);
    };
    if !measured
        .points
        .iter()
        .any(|used| used.point.label == share.of)
    {
        return Err(Error::Usage(format!(
            "point {:?} is a part of what each store has at {:?}: name that one too",
            point.label, share.of
        )));
    }
    let own = |one: &Contestant| {
        // Who has no peak is not asked for a part of it: `without_peak` tells so.
        let peak = measured.peak(share.of, one.label)?;
        let mut own = common();
        own.contenders
            .retain(|contender| contender.variant.as_deref() == Some(one.label));
        own.loads
            .iter_mut()
            .for_each(|load| load.rate = Some((peak * share.part).max(1.0)));
        Some(own)
    };
    Ok(measured.contestants.iter().filter_map(own).collect())
}

/// A device is given to be written over, or there is none: nothing is missing
/// then that should be there.
fn leave_out_device(measured: &mut Measured) -> Result<()> {
    let probed = crate::stores::find(RAW)?.probe();
    if let Availability::Missing { what, remedy } = probed {
        measured.contestants.retain(|one| one.store != RAW);
        measured
            .warnings
            .push(format!("{RAW} is left out: {what}; to get it: {remedy}"));
    }
    Ok(())
}

fn campaign(
    (figure, point): (&Figure, &Point),
    measured: &Measured,
    arguments: &ReproduceArguments,
) -> Campaign {
    let data = FULL_BYTES * measured.scale;
    let keys = (data / (KEY_BYTES + point.value_bytes) as f64) as u64;
    let load = Load {
        workload: figure.workload.to_string(),
        seed: arguments.seed,
        keys: keys.max(u64::from(THREADS) * 2),
        key_bytes: SizeChoice::Fixed(KEY_BYTES),
        value_bytes: SizeChoice::Fixed(point.value_bytes),
        until: match arguments.operations {
            Some(operations) => Until::Operations(operations),
            None => Until::Seconds(arguments.seconds),
        },
        threads: THREADS,
        rate: point.rate,
        verify_every: 64,
        compressible: 0.0,
        ..Load::default()
    };
    let memory = ((data / DATA_BY_MEMORY) as u64).max(LEAST_MEMORY);
    let memory = arguments.memory.unwrap_or(memory);
    Campaign {
        contenders: measured
            .contestants
            .iter()
            .map(|one| contender(one, arguments.device.as_deref()))
            .collect(),
        loads: vec![load],
        steps: Vec::new(),
        _kept: Vec::new(),
        record: None,
        repeat: measured.repeat,
        seed: arguments.seed,
        durability: DurabilityName::Synced,
        budget_bytes: memory / 4,
        memory_limit_bytes: Some(memory),
        profile: Profile::Equal,
        cold: false,
        warm: false,
        reopen: None,
        directory: arguments.dir.clone(),
        patience: Patience {
            idle: Duration::from_secs(60),
        },
    }
}

fn contender(contestant: &Contestant, device: Option<&Path>) -> Contender {
    let options = contestant.options.iter();
    let options = options.map(|(name, value)| (name.to_string(), value.to_string()));
    let device = device.filter(|_| contestant.store == RAW);
    let device = device.map(|path| ("device".to_string(), path.display().to_string()));
    Contender {
        overrides: options.chain(device).collect(),
        variant: Some(contestant.label.to_string()),
        ..Contender::of(contestant.store)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::figures::{BERKELEY_DB, FIGURES, SQLITE};
    use super::*;

    /// A report of one round at a point, in which these stores ended so.
    fn report(ended: &[(&'static str, Status, f64)]) -> Report {
        let run = |&(label, status, rate): &(&str, Status, f64)| {
            let job = kvzone_core::job::Job {
                steps: Vec::new(),
                store: label.to_string(),
                repeat: 0,
                folder: std::path::PathBuf::new(),
                durability: DurabilityName::Synced,
                budget_bytes: 0,
                memory_limit_bytes: None,
                profile: Profile::Equal,
                overrides: Default::default(),
                cold: false,
                warm: false,
                reopen: None,
                after_kill: false,
                compact: false,
                record: None,
                variant: Some(label.to_string()),
                load: Load::default(),
            };
            let mut run = Run::blank(&job, Phase::Run);
            run.extra.insert("variant".to_string(), label.into());
            run.status = status;
            run.ops_per_second = rate;
            run
        };
        Report {
            schema: SCHEMA.to_string(),
            machine: serde_json::Value::Null,
            seed: 1,
            runs: ended.iter().map(run).collect(),
        }
    }

    #[test]
    fn a_store_without_a_peak_is_asked_for_no_part_of_it_and_that_is_told() {
        let figure = FIGURES.iter().find(|figure| figure.name == "alphard/fig3");
        let point = |label: &str| {
            let mut points = figure.unwrap().points.iter();
            points.find(|point| point.label == label).unwrap()
        };
        let (peak, part) = (point("1 KB peak"), point("1 KB 70 %"));
        let ended = report(&[
            (SQLITE, Status::Ok, 5_000.0),
            (BERKELEY_DB, Status::Hung, 0.0),
        ]);
        let named = [SQLITE, BERKELEY_DB].map(String::from);
        let measured = Measured {
            points: Vec::new(),
            contestants: chosen::contestants(CONTESTANTS, &named).unwrap(),
            cells: [SQLITE, BERKELEY_DB]
                .map(|label| cell_of(peak, label, &ended))
                .to_vec(),
            warnings: Vec::new(),
            report: ended,
            repeat: 1,
            scale: 1.0,
        };
        assert_eq!(measured.peak(peak.label, SQLITE), Some(5_000.0));
        let told = measured.without_peak(part);
        let expected = format!(
            "1 KB 70 %: berkeleydb is left out: it has no rate at \"1 KB peak\" to take a part of ({})",
            Status::Hung.name()
        );
        assert_eq!(told, [expected]);
        assert!(measured.without_peak(peak).is_empty(), "a part of nothing");
    }
}
