//! Measures a figure: a campaign for each of its points.

use std::time::Duration;

use kvzone_core::adapter::Availability;
use kvzone_core::error::{Error, Result};
use kvzone_core::job::{Act, Beside, Job, KeySource, Load, Popularity, SizeChoice, Step, Until};
use kvzone_core::key_patterns::{DataSet, KeyPattern};
use kvzone_core::record::{Phase, Report, Run, SCHEMA, Status};
use kvzone_core::report::summary::different_answers;
use kvzone_core::report::text::{bytes, grouped, three_digits};
use kvzone_core::workload::{self, MIXED, OperationKind, updates};
use serde_json::Value;

use super::columns::RATE_OF;
use super::figure::{Contestant, Figure, Point, StepKind, amount};
use super::measured::{Cell, Measured, PointUsed, Round};
use super::read_ahead::ReadAhead;
use super::{ReproduceArguments, chosen};
use crate::datasets::{self, Keys};
use crate::place;
use crate::run::Stage;
use crate::run::campaign::{Campaign, Contender};

/// Name of the step whose figures a figure shows, where a load is followed by steps.
const MEASURED: &str = "measured";
const RAW: &str = "alphard-raw";
/// The part of its own peak that a store is asked for.
const SHARE: f64 = 0.7;
/// Keys of a data set, at least, if it has so many.
const LEAST_KEYS: u64 = 20_000;
/// Data by memory of the ForestDB paper's largest data set: 112 GB and 32 GB.
const URL_BY_MEMORY: f64 = 3.5;

struct Size {
    /// The source of keys, and the size of entries.
    keys: Keys,
    count: u64,
    /// A worker's limit of memory unless asked otherwise; none: unlimited.
    memory: Option<u64>,
}

fn made_up(point: &Point) -> Keys {
    Keys {
        are_default: false,
        source: match point.two_level {
            true => KeySource::Pattern(KeyPattern::TwoLevel),
            false => KeySource::Spread,
        },
        key_bytes: SizeChoice::Fixed(point.key_bytes),
        value_bytes: SizeChoice::Fixed(point.value_bytes),
        sample: None,
        kept: None,
    }
}

fn steps(point: &Point, load: &Load) -> Vec<Step> {
    let step = |(number, step): (usize, &super::figure::StepOf)| {
        let work = || {
            let operations = (load.keys as f64 * step.keys) as u64;
            Box::new(Load {
                workload: step.workload.clone(),
                until: Until::Operations(operations.max(1)),
                mix: step.mix.clone(),
                threads: step.threads.unwrap_or(load.threads),
                batch: step.batch.unwrap_or(load.batch),
                ..load.clone()
            })
        };
        let act = match step.act {
            StepKind::Work => Act::Work(work()),
            StepKind::Reopen => Act::Reopen,
            StepKind::Compact => Act::Compact,
            StepKind::Compacting => Act::Compacting(work()),
        };
        let name = match number + 1 == point.steps.len() {
            true => MEASURED.to_string(),
            false => format!("step-{number}"),
        };
        Step { name, act }
    };
    point.steps.iter().enumerate().map(step).collect()
}

struct Runner<'a> {
    arguments: &'a ReproduceArguments,
    measured: Measured,
    report: Report,
}

/// Measures every point that is asked for; the JSON is the report of all runs.
pub(super) fn measure(
    figure: &'static Figure,
    arguments: &ReproduceArguments,
) -> Result<(Measured, Value)> {
    let points = chosen::points(figure, &arguments.points, arguments.all_points)?;
    let mut runner = Runner {
        arguments,
        measured: Measured {
            figure,
            points: Vec::new(),
            stores: chosen::contestants(figure, &arguments.stores)?,
            cells: Vec::new(),
            warnings: Vec::new(),
            is_contradicted: false,
            repeat: arguments.repeat.unwrap_or(figure.paper.rounds),
            seed: arguments.seed,
            scale: arguments.scale.unwrap_or(figure.paper.scale),
        },
        report: Report {
            schema: SCHEMA.to_string(),
            machine: Value::Null,
            seed: arguments.seed,
            runs: Vec::new(),
        },
    };
    if arguments.stores.is_empty() && arguments.device.is_none() {
        runner.leave_out_missing()?;
    }
    let mut stage = Stage::new()?;
    for point in points {
        let ahead = |kibibytes| ReadAhead::set(&place::prepare(&arguments.dir)?, kibibytes);
        let _ahead = point.read_ahead.map(ahead).transpose()?;
        for campaign in runner.campaigns(point)? {
            let outcome = campaign.run(&mut stage)?.whole()?;
            runner.take(point, &campaign, outcome.report)?;
            let warnings = outcome.warnings.into_iter();
            runner.warn(warnings.map(|warning| format!("{}: {warning}", point.label)));
        }
    }
    stage.close();
    let report = serde_json::to_value(&runner.report);
    let report = report.map_err(|error| Error::Usage(format!("a report: {error}")))?;
    Ok((runner.measured, report))
}

impl Runner<'_> {
    fn warn(&mut self, warnings: impl IntoIterator<Item = String>) {
        self.measured.warnings.extend(warnings);
    }

    /// A device is given to be written over, or there is none: nothing is missing
    /// then that should be there.
    fn leave_out_missing(&mut self) -> Result<()> {
        for one in std::mem::take(&mut self.measured.stores) {
            let found = one.may_miss.then(|| crate::stores::find(&one.store));
            let probed = found.transpose()?.map(|adapter| adapter.probe());
            if let Some(Availability::Missing { what, remedy }) = probed {
                let label = &one.label;
                self.warn([format!("{label} is left out: {what}; to get it: {remedy}")]);
            } else {
                self.measured.stores.push(one);
            }
        }
        Ok(())
    }

    /// One for all stores, or one for each where each has a rate of its own.
    fn campaigns(&mut self, point: &'static Point) -> Result<Vec<Campaign>> {
        let common = self.campaign(point)?;
        let Some(of) = &point.share_of else {
            return Ok(vec![common]);
        };
        let Some(place) = self.measured.place(of) else {
            return Err(Error::Usage(format!(
                "point {:?} is a part of what each store has at {of:?}: name that one too",
                point.label
            )));
        };
        let left_out = without_peak(&self.measured, &point.label, (of, place));
        self.warn(left_out);
        let own = |one: &Contestant| {
            // A store without a peak is not asked for a part of it: `without_peak` tells so.
            let peak = peak(&self.measured, place, &one.label)?;
            let mut own = common.clone();
            own.contenders
                .retain(|contender| contender.variant.as_ref() == Some(&one.label));
            own.loads
                .iter_mut()
                .for_each(|load| load.rate = Some((peak * SHARE).max(1.0)));
            Some(own)
        };
        Ok(self.measured.stores.iter().filter_map(own).collect())
    }

    fn campaign(&self, point: &Point) -> Result<Campaign> {
        let (arguments, paper) = (self.arguments, self.measured.figure.paper);
        let size = self.size(point)?;
        let memory_limit_bytes = arguments.memory.or(size.memory);
        let memory = memory_limit_bytes.unwrap_or(0);
        let contenders = self.measured.stores.iter();
        let contender = |one| self.contender(one, point, memory);
        let loads = point.workloads.iter();
        let loads = loads.map(|workload| self.load(point, workload, &size));
        let loads: Vec<Load> = loads.collect();
        Ok(Campaign {
            job: Job {
                steps: loads.first().map_or(Vec::new(), |load| steps(point, load)),
                durability: paper.durability,
                budget_bytes: amount(&paper.cache, memory).unwrap_or(0),
                memory_limit_bytes,
                cold: point.cold,
                warm: point.warm,
                ..Job::default()
            },
            contenders: contenders.map(contender).collect(),
            loads,
            _kept: size.keys.kept.into_iter().collect(),
            repeat: self.measured.repeat,
            seed: arguments.seed,
            directory: arguments.dir.clone(),
            patience: Duration::from_secs(60),
        })
    }

    /// How much there is at a point, and how much memory.
    fn size(&self, point: &Point) -> Result<Size> {
        let paper = self.measured.figure.paper;
        let scale = self.measured.scale;
        let least = amount(&paper.least_memory, 0).unwrap_or(0);
        let limited = |bytes: f64| Some((bytes as u64).max(least));
        let Some(name) = &point.set else {
            let data = (point.full_bytes * scale).max(paper.least_bytes);
            let keys = (data / point.entry_bytes()) as u64;
            return Ok(Size {
                keys: made_up(point),
                count: keys.max(u64::from(point.threads) * 2).max(16),
                memory: paper.memory_by_data.and_then(|part| limited(data * part)),
            });
        };
        let set = datasets::find(name)?;
        let scaled = |documents: u64| (documents as f64 * scale) as u64;
        let most = scaled(DataSet::Url.documents());
        // Sets of this machine take what it has, up to the size of url.
        let least_keys = LEAST_KEYS.min(most.max(16));
        let count = match set {
            datasets::Set::Published(data) => scaled(data.documents()).max(least_keys),
            datasets::Set::Real(real) => real.count(most.max(least_keys))?,
        };
        let url_bytes = most * (111 + DataSet::Url.document_bytes());
        Ok(Size {
            keys: set.keys(count, &self.arguments.dir)?,
            count,
            memory: limited(url_bytes as f64 / URL_BY_MEMORY),
        })
    }

    fn load(&self, point: &Point, workload: &str, size: &Size) -> Load {
        let arguments = self.arguments;
        let paper = self.measured.figure.paper;
        let by_keys = |part: f64| ((size.count as f64 * part) as u64).max(1);
        let own = match (point.operations, workload) {
            (Some(full), _) => Some(((full * self.measured.scale) as u64).max(1)),
            (None, "overwrite") => Some(by_keys(paper.overwrites)),
            (None, fill) => fill.starts_with("fill-").then_some(size.count),
        };
        let (least, most) = point.batch_of(workload);
        let part = point.scan_part.map(|part| (size.count / part).max(1));
        Load {
            workload: workload.to_string(),
            seed: arguments.seed,
            keys: size.count,
            key_source: size.keys.source.clone(),
            key_bytes: size.keys.key_bytes,
            value_bytes: size.keys.value_bytes,
            until: match arguments.operations.or(own) {
                Some(operations) => Until::Operations(operations),
                None => Until::Seconds(arguments.seconds),
            },
            threads: point.threads,
            batch: most,
            batch_least: (least < most).then_some(least),
            rate: point.rate,
            beside: point.writer_rate.map(|rate| Beside {
                kind: OperationKind::Update,
                threads: 1,
                rate: Some(rate),
            }),
            mix: point
                .update_percent
                .filter(|_| workload == MIXED)
                .map(updates),
            scan_entries: point.scan_entries.or(part).map(SizeChoice::Fixed),
            popularity: point.skew.map(|exponent| Popularity::Groups {
                exponent,
                groups: 20_000,
            }),
            verify_every: 64,
            compressible: paper.compressible,
            ..Load::default()
        }
    }

    fn contender(&self, one: &Contestant, point: &Point, memory: u64) -> Contender {
        let papers = self.measured.figure.paper.settings.get(&one.store);
        let all = papers.into_iter().flatten().chain(&one.options);
        let all = all.chain(&point.options).map(|(name, value)| {
            let value = amount(value, memory).map_or(value.clone(), |bytes| bytes.to_string());
            (name.clone(), value)
        });
        let device = self.arguments.device.as_ref();
        let device = device.filter(|_| one.store == RAW);
        let device = device.map(|path| ("device".to_string(), path.display().to_string()));
        Contender {
            overrides: all.chain(device).collect(),
            compact: one.compact,
            variant: Some(one.label.clone()),
            ..Contender::of(&one.store)
        }
    }

    fn take(&mut self, point: &Point, campaign: &Campaign, mut report: Report) -> Result<()> {
        // Stores with rates of their own come one after the other.
        let again = self.measured.points.last();
        if again.is_none_or(|last| last.label != point.label) {
            self.measured.points.push(point_used(point, campaign));
        }
        let place = self.measured.points.len() - 1;
        for workload in &point.workloads {
            let runs = report.runs.iter().filter(|run| run.workload == *workload);
            let runs: Vec<&Run> = runs.collect();
            for contender in &campaign.contenders {
                let one = self.measured.stores.iter();
                let mut one = one.filter(|one| contender.variant.as_ref() == Some(&one.label));
                if let Some(one) = one.next() {
                    let has_steps = !campaign.job.steps.is_empty();
                    let cell = cell_of((place, workload.as_str()), &one.label, &runs, has_steps);
                    self.measured.cells.push(cell);
                }
            }
            if let Some(told) = different_answers(&runs, Phase::Run) {
                self.measured.is_contradicted = true;
                self.warn([format!("{}: DIFFERENT ANSWERS: {told}", point.label)]);
            }
        }
        for run in &mut report.runs {
            run.tell("point", &point.label);
        }
        self.report.machine = report.machine;
        self.report.runs.extend(report.runs);
        Ok(())
    }
}

fn point_used(point: &Point, campaign: &Campaign) -> PointUsed {
    let load = &campaign.loads[0];
    let (key_bytes, value_bytes) = (load.key_bytes.mean(), load.value_bytes.mean());
    let memory = match campaign.job.memory_limit_bytes {
        Some(limit) => format!("memory limit {}", bytes(limit as f64)),
        None => "no memory limit".to_string(),
    };
    let operations = match load.until {
        Until::Operations(count) => format!(", {} operations", grouped(count as f64)),
        Until::Seconds(_) => String::new(),
    };
    // Those of a data set have a mean.
    let write = if key_bytes.fract() == 0.0 {
        grouped
    } else {
        three_digits
    };
    PointUsed {
        label: point.label.to_string(),
        conditions: format!(
            "{}: {} keys of {} + {} bytes ({}), {memory}{operations}.\n",
            point.label,
            grouped(load.keys as f64),
            write(key_bytes),
            grouped(value_bytes),
            bytes(load.keys as f64 * (key_bytes + value_bytes)),
        ),
    }
}

fn cell_of((point, workload): (usize, &str), label: &str, runs: &[&Run], has_steps: bool) -> Cell {
    let own = |run: &&&Run| run.extra.get("variant").is_some_and(|it| it == label);
    let all: Vec<&Run> = runs.iter().filter(own).copied().collect();
    let broken = all.iter().find(|run| run.status != Status::Ok);
    let measured = workload::find(workload).map_or(Phase::Run, |found| found.measured_phase());
    let mut repeats: Vec<u32> = all.iter().map(|run| run.repeat).collect();
    repeats.sort_unstable();
    repeats.dedup();
    let round = |repeat: u32| {
        let of = |is_it: &dyn Fn(&Run) -> bool| {
            let good = |run: &&&Run| run.repeat == repeat && run.status == Status::Ok && is_it(run);
            let run = all.iter().find(good);
            run.and_then(|run| serde_json::to_value(run).ok())
                .unwrap_or_default()
        };
        Round {
            repeat,
            found: of(&|run| match has_steps {
                true => run.extra.get("step").is_some_and(|step| step == MEASURED),
                false => run.phase == measured,
            }),
            load: of(&|run| run.phase == Phase::Load),
        }
    };
    Cell {
        point,
        label: label.to_string(),
        workload: workload.to_string(),
        version: all.iter().find_map(|run| run.version.clone()),
        failure: broken.map(|run| run.status.name().to_string()),
        rounds: repeats.into_iter().map(round).collect(),
    }
}

fn peak(measured: &Measured, point: usize, label: &str) -> Option<f64> {
    measured.cell("", point, label)?.median(RATE_OF)
}

/// One line for each store that has no rate at a point to take a part of.
fn without_peak(measured: &Measured, point: &str, (of, place): (&str, usize)) -> Vec<String> {
    let has_none = |one: &&Contestant| peak(measured, place, &one.label).is_none();
    let told = |one: &Contestant| {
        let why = measured.cell("", place, &one.label);
        let why = why.and_then(|cell| cell.failure.as_deref());
        format!(
            "{point}: {} is left out: it has no rate at {of:?} to take a part of ({})",
            one.label,
            why.unwrap_or("not measured")
        )
    };
    measured.stores.iter().filter(has_none).map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::super::figure;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_store_without_a_peak_is_asked_for_no_part_of_it_and_that_is_told() {
        let cell = |label: &str, failure: Option<&str>, found| Cell {
            point: 0,
            label: label.to_string(),
            workload: String::new(),
            version: None,
            failure: failure.map(str::to_string),
            rounds: vec![Round {
                found,
                ..Round::default()
            }],
        };
        let measured = Measured {
            figure: &figure::all().unwrap()[0],
            points: Vec::new(),
            stores: vec![figure::plain("sqlite"), figure::plain("berkeleydb")],
            cells: vec![
                cell("sqlite", None, json!({"ops_per_second": 5_000.0})),
                cell("berkeleydb", Some("hung"), Value::Null),
            ],
            warnings: Vec::new(),
            is_contradicted: false,
            repeat: 1,
            seed: 1,
            scale: 1.0,
        };
        assert_eq!(peak(&measured, 0, "sqlite"), Some(5_000.0));
        let told = without_peak(&measured, "1 KB 70 %", ("1 KB peak", 0));
        let expected = "1 KB 70 %: berkeleydb is left out: it has no rate at \"1 KB peak\" to take a part of (hung)";
        assert_eq!(told, [expected]);
    }
}
