//! Measures a figure that compares stores: a campaign for each of its points.

use std::time::Duration;

use kvzone_core::adapter::{Availability, Profile};
use kvzone_core::error::{Error, Result};
use kvzone_core::job::{Beside, KeySource, Load, SizeChoice, Until};
use kvzone_core::key_patterns::KeyPattern;
use kvzone_core::record::{Phase, Report, Run, SCHEMA, Status};
use kvzone_core::report::summary::different_answers;
use kvzone_core::report::text::{bytes, grouped, three_digits};
use kvzone_core::workload;
use serde_json::Value;

use super::columns::{OF_FILE, RATE};
use super::figure::{
    Contestant, Defaults, Figure, KeyKind, PageCache, Paper, Point, Rate, Scan, Setting,
};
use super::measured::{Cell, Measured, PointUsed, Round};
use super::p_fetch::ReadAhead;
use super::{ReproduceArguments, chosen, device};
use crate::datasets::Keys;
use crate::place;
use crate::run::Stage;
use crate::run::campaign::{Campaign, Contender};
use crate::supervisor::Patience;

/// The request, with the defaults filled in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) arguments: &'a ReproduceArguments,
    pub(super) scale: f64,
    pub(super) repeat: u32,
}

impl<'a> Asked<'a> {
    /// The command line, and what it does not say.
    pub(super) fn of(arguments: &'a ReproduceArguments, defaults: Defaults) -> Asked<'a> {
        Asked {
            arguments,
            scale: arguments.scale.unwrap_or(defaults.scale),
            repeat: arguments.repeat.unwrap_or(defaults.rounds),
        }
    }

    /// Nothing measured yet.
    pub(super) fn nothing(&self, stores: Vec<Contestant>) -> Measured {
        Measured {
            stores,
            repeat: self.repeat,
            seed: self.arguments.seed,
            scale: self.scale,
            ..Measured::default()
        }
    }
}

/// Name of the step whose figures a figure shows, where a load is followed by steps.
pub(super) const MEASURED: &str = "measured";

/// How much there is at a point.
#[derive(Debug)]
pub(super) struct Size {
    /// The source of keys, and the size of entries.
    pub(super) keys: Keys,
    /// How many.
    pub(super) count: u64,
    /// A worker's limit of memory unless asked otherwise; none: unlimited.
    pub(super) memory: Option<u64>,
}

impl Size {
    /// So many made-up keys.
    pub(super) fn made_up(point: &Point, count: u64, memory: Option<u64>) -> Size {
        let source = match point.keys {
            KeyKind::TwoLevel(_) => KeySource::Pattern(KeyPattern::TwoLevel),
            KeyKind::Spread(_) | KeyKind::Set(_) => KeySource::Spread,
        };
        Size {
            keys: Keys {
                are_default: false,
                source,
                key_bytes: SizeChoice::Fixed(key_bytes(point)),
                value_bytes: SizeChoice::Fixed(point.value_bytes),
                sample: None,
                kept: None,
            },
            count,
            memory,
        }
    }
}

/// Bytes of a made-up key.
pub(super) fn key_bytes(point: &Point) -> u64 {
    match point.keys {
        KeyKind::TwoLevel(bytes) | KeyKind::Spread(bytes) => bytes,
        KeyKind::Set(_) => 0,
    }
}

/// Bytes of an entry of made-up keys.
pub(super) fn entry_bytes(point: &Point) -> f64 {
    (key_bytes(point) + point.value_bytes) as f64
}

/// A figure under way.
struct Runner<'a> {
    figure: &'static Figure,
    paper: &'static Paper,
    asked: Asked<'a>,
    measured: Measured,
    report: Report,
}

/// Measures every point that is asked for; the JSON is the report of all runs.
pub(super) fn measure(
    figure: &'static Figure,
    paper: &'static Paper,
    asked: Asked<'_>,
) -> Result<(Measured, Value)> {
    let arguments = asked.arguments;
    let stores = chosen::contestants(figure.stores, &arguments.stores)?;
    let asked_for = (arguments.points.as_slice(), arguments.all_points);
    let points = chosen::points(figure.name, figure.points, asked_for)?;
    let mut runner = Runner {
        figure,
        paper,
        asked,
        measured: asked.nothing(stores),
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
            let found = one.may_miss.then(|| crate::stores::find(one.store));
            let probed = found.transpose()?.map(|adapter| adapter.probe());
            if let Some(Availability::Missing { what, remedy }) = probed {
                let label = one.label;
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
        let Rate::Share(of, part) = point.rate else {
            return Ok(vec![common]);
        };
        let Some(place) = self.measured.place(of) else {
            return Err(Error::Usage(format!(
                "point {:?} is a part of what each store has at {of:?}: name that one too",
                point.label
            )));
        };
        let left_out = without_peak(&self.measured, point.label, (of, place));
        self.warn(left_out);
        let own = |one: &Contestant| {
            // A store without a peak is not asked for a part of it: `without_peak` tells so.
            let peak = peak(&self.measured, place, one.label)?;
            let mut own = common.clone();
            own.contenders
                .retain(|contender| contender.variant.as_deref() == Some(one.label));
            own.loads
                .iter_mut()
                .for_each(|load| load.rate = Some((peak * part).max(1.0)));
            Some(own)
        };
        Ok(self.measured.stores.iter().filter_map(own).collect())
    }

    fn campaign(&self, point: &Point) -> Result<Campaign> {
        let arguments = self.asked.arguments;
        let size = (self.paper.size)(point, self.asked)?;
        let memory_limit_bytes = arguments.memory.or(size.memory);
        let memory = memory_limit_bytes.unwrap_or(0);
        let contenders = self.measured.stores.iter();
        let contender = |one| self.contender(one, point, memory);
        let loads = point.workloads.iter();
        let loads = loads.map(|workload| self.load(point, workload, &size));
        let loads: Vec<Load> = loads.collect();
        Ok(Campaign {
            steps: loads.first().map(self.paper.steps).unwrap_or_default(),
            contenders: contenders.map(contender).collect(),
            loads,
            _kept: size.keys.kept.into_iter().collect(),
            record: None,
            repeat: self.asked.repeat,
            seed: arguments.seed,
            durability: self.paper.durability,
            budget_bytes: self.paper.cache.bytes(memory),
            memory_limit_bytes,
            profile: Profile::Equal,
            cold: point.cache == PageCache::Cold,
            warm: point.cache == PageCache::Warm,
            reopen: None,
            directory: arguments.dir.clone(),
            patience: Patience {
                idle: Duration::from_secs(60),
            },
        })
    }

    fn load(&self, point: &Point, workload: &str, size: &Size) -> Load {
        let arguments = self.asked.arguments;
        let own = (self.paper.operations)(point, workload, size.count, self.asked.scale);
        let (least, most) = batch(point, workload);
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
            rate: match point.rate {
                Rate::Of(rate) => Some(rate),
                Rate::Peak | Rate::Share(..) => None,
            },
            beside: point.writer_rate.map(|rate| Beside {
                kind: kvzone_core::workload::OperationKind::Update,
                threads: 1,
                rate: Some(rate),
            }),
            update_percent: point.update_percent.filter(|_| workload == "mixed"),
            scan_entries: point.scan.map(|scan| match scan {
                Scan::Entries(entries) => SizeChoice::Fixed(entries),
                Scan::Part(part) => SizeChoice::Fixed((size.count / part).max(1)),
            }),
            popularity: point.popularity(),
            verify_every: 64,
            compressible: self.paper.compressible,
            ..Load::default()
        }
    }

    /// A store with the paper's settings, and then its own.
    fn contender(&self, one: &Contestant, point: &Point, memory: u64) -> Contender {
        let papers = self.paper.settings.iter();
        let papers = papers
            .filter(|(stores, _)| stores.contains(&one.store))
            .flat_map(|(_, settings)| settings.iter().copied());
        let own = one.options.iter().chain(point.options);
        let own = own.map(|(name, value)| (*name, Setting::Is(value)));
        let device = self.asked.arguments.device.as_ref();
        let device = device.filter(|_| one.store == super::alphard::RAW);
        let device = device.map(|path| ("device".to_string(), path.display().to_string()));
        let options = papers
            .chain(own)
            .map(|(name, value)| (name.to_string(), value.text(memory)));
        Contender {
            overrides: options.chain(device).collect(),
            compact: one.compact,
            variant: Some(one.label.to_string()),
            ..Contender::of(one.store)
        }
    }

    fn take(&mut self, point: &Point, campaign: &Campaign, mut report: Report) -> Result<()> {
        // Stores with rates of their own come one after the other.
        let again = self.measured.points.last();
        if again.is_none_or(|last| last.label != point.label) {
            self.measured.points.push(point_used(point, campaign));
        }
        let place = self.measured.points.len() - 1;
        for workload in point.workloads {
            let runs = report.runs.iter().filter(|run| run.workload == *workload);
            let runs: Vec<&Run> = runs.collect();
            for contender in &campaign.contenders {
                let one = self.measured.stores.iter();
                let mut one = one.filter(|one| contender.variant.as_deref() == Some(one.label));
                if let Some(one) = one.next() {
                    let has_steps = !campaign.steps.is_empty();
                    let cell = cell_of((place, workload), one.label, &runs, has_steps);
                    self.measured.cells.push(cell);
                }
            }
            if let Some(told) = different_answers(&runs, Phase::Run) {
                self.measured.is_contradicted = true;
                self.warn([format!("{}: DIFFERENT ANSWERS: {told}", point.label)]);
            }
        }
        for run in &mut report.runs {
            run.extra.insert("point".to_string(), point.label.into());
        }
        self.report.machine = report.machine;
        self.report.runs.extend(report.runs);
        if self.figure.columns.iter().any(|it| it.head == OF_FILE.head) {
            self.measure_file(point, place, &campaign.loads[0])?;
        }
        Ok(())
    }

    /// Measures one thread that writes as many bytes to one file.
    fn measure_file(&mut self, point: &Point, place: usize, load: &Load) -> Result<()> {
        let data = load.keys * entry_bytes(point) as u64;
        let Some(rate) = device::file_rate(self.asked.arguments, data)? else {
            return Ok(());
        };
        self.measured.points[place].conditions += &format!(
            "{}: one thread writes as many bytes to one file, in writes of 1 MiB, at {} MB/s.\n",
            point.label,
            three_digits(rate / 1e6)
        );
        let cells = self.measured.cells.iter_mut();
        for cell in cells.filter(|cell| cell.point == place) {
            for round in cell.rounds.iter_mut().filter(|it| it.found.is_object()) {
                round.found["file_bytes_per_second"] = rate.into();
            }
        }
        Ok(())
    }
}

/// The settings at a point, as measured.
fn point_used(point: &Point, campaign: &Campaign) -> PointUsed {
    let load = &campaign.loads[0];
    let (key_bytes, value_bytes) = (load.key_bytes.mean(), load.value_bytes.mean());
    let memory = match campaign.memory_limit_bytes {
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
        published: point.published,
    }
}

/// Entries of a batch; what only reads, without a writer, has none.
fn batch(point: &Point, workload: &str) -> (u32, u32) {
    let only_reads = match workload {
        "mixed" => point.update_percent == Some(0),
        "read-random" | "scan-random" => point.writer_rate.is_none(),
        _ => false,
    };
    if only_reads { (1, 1) } else { point.batch }
}

fn cell_of(
    (point, workload): (usize, &'static str),
    label: &'static str,
    runs: &[&Run],
    has_steps: bool,
) -> Cell {
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
        label: label.into(),
        workload,
        version: all.iter().find_map(|run| run.version.clone()),
        failure: broken.map(|run| run.status.name().to_string()),
        rounds: repeats.into_iter().map(round).collect(),
    }
}

/// A store's operations a second at a point.
fn peak(measured: &Measured, point: usize, label: &str) -> Option<f64> {
    measured.value(measured.cell(point, label)?, RATE)
}

/// One line for each store that has no rate at a point to take a part of.
fn without_peak(measured: &Measured, point: &str, (of, place): (&str, usize)) -> Vec<String> {
    let has_none = |one: &&Contestant| peak(measured, place, one.label).is_none();
    let told = |one: &Contestant| {
        let why = measured.cell(place, one.label);
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
    use super::super::figure::store;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_store_without_a_peak_is_asked_for_no_part_of_it_and_that_is_told() {
        let cell = |label, found| Cell::once(0, label, found);
        let measured = Measured {
            stores: vec![store("sqlite"), store("berkeleydb")],
            cells: vec![
                cell("sqlite", json!({"ops_per_second": 5_000.0})),
                Cell {
                    failure: Some("hung".to_string()),
                    ..cell("berkeleydb", Value::Null)
                },
            ],
            ..Measured::default()
        };
        assert_eq!(peak(&measured, 0, "sqlite"), Some(5_000.0));
        let told = without_peak(&measured, "1 KB 70 %", ("1 KB peak", 0));
        let expected = "1 KB 70 %: berkeleydb is left out: it has no rate at \"1 KB peak\" to take a part of (hung)";
        assert_eq!(told, [expected]);
    }

    #[test]
    fn only_what_writes_has_batches() {
        let point = Point {
            batch: (10, 100),
            update_percent: Some(0),
            ..Point::PLAIN
        };
        assert_eq!(batch(&point, "mixed"), (1, 1));
        assert_eq!(batch(&point, "overwrite"), (10, 100));
        assert_eq!(batch(&point, "read-random"), (1, 1));
        let beside = Point {
            writer_rate: Some(1.0),
            ..point
        };
        assert_eq!(batch(&beside, "read-random"), (10, 100));
    }
}
