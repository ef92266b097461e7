//! Measures a figure: a campaign for each of its points.

use kvzone_core::adapter::{DurabilityName, Profile};
use kvzone_core::error::Result;
use kvzone_core::job::{Beside, KeySource, Load, SizeChoice, Until};
use kvzone_core::key_patterns::{DataSet, KeyPattern};
use kvzone_core::record::{Phase, Report, Run, SCHEMA, Status};
use kvzone_core::report::summary::different_answers;
use kvzone_core::statistics::median;
use kvzone_core::statistics::verdict::{Comparison, compare};

use super::super::{ReproduceArguments, chosen};
use super::figures::{COUCHSTORE, Column, Contestant, FOREST, Figure, KeyKind, Point};
use crate::datasets::{self, Keys};
use crate::run::Stage;
use crate::run::campaign::{Campaign, Contender};
use crate::supervisor::Patience;

/// Bytes at a scale of 1: 200 million documents of 1,024 bytes, keys of 32.
const FULL_BYTES: f64 = 200e6 * 1_056.0;

/// Data by memory, in the paper.
const DATA_BY_MEMORY: f64 = 6.0;

/// The same for its largest data set: 112 GB and 32 GB.
const URL_BY_MEMORY: f64 = 3.5;

/// What the programs need, whatever they hold.
const LEAST_MEMORY: u64 = 48 << 20;

/// Keys of a data set, at least, if it has so many.
const LEAST_KEYS: u64 = 20_000;

/// Share of the documents that are updated to measure write amplification.
const UPDATED: f64 = 0.5;

/// Entries of a batch, at least and at most.
const BATCH: (u32, u32) = (10, 100);

/// A point as it was measured.
#[derive(Clone, Debug)]
pub(super) struct PointUsed {
    pub(super) label: &'static str,
    pub(super) keys: u64,
    pub(super) key_bytes: f64,
    pub(super) value_bytes: u64,
    pub(super) memory_limit_bytes: Option<u64>,
}

impl PointUsed {
    /// Of all documents.
    pub(super) fn data_bytes(&self) -> f64 {
        self.keys as f64 * (self.key_bytes + self.value_bytes as f64)
    }
}

/// One store at one point.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) point: usize,
    pub(super) contestant: usize,
    pub(super) workload: &'static str,
    pub(super) version: Option<String>,
    /// The first thing that went wrong.
    pub(super) failure: Option<String>,
    /// Rounds that ended well.
    runs: Vec<Run>,
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
    pub(super) seed: u64,
    pub(super) scale: f64,
}

impl Cell {
    /// Median over rounds of what a column shows.
    pub(super) fn figure(&self, column: Column) -> Option<f64> {
        let of = |run: &Run| {
            let extra = |name: &str| run.extra.get(name)?.as_f64();
            match column {
                Column::Rate => Some(run.ops_per_second),
                Column::Entries => Some(extra("entries_scanned")? / run.seconds),
                Column::WriterRate => extra("writers_ops_per_second"),
                Column::WriteAmplification => run.write_amplification,
                Column::ReadsPerGet => extra("device_reads_per_lookup"),
                Column::SpaceAmplification => run.space_amplification,
                Column::Cpu => Some(run.cpu_seconds? * 1e6 / run.operations.max(1) as f64),
                Column::Ratio => None,
            }
        };
        let values: Vec<f64> = self.runs.iter().filter_map(of).collect();
        median(&values)
    }
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

    fn cell(&self, point: usize, label: &str, workload: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| {
            cell.point == point
                && cell.workload == workload
                && self.contestants[cell.contestant].label == label
        })
    }

    /// A figure of a store at a point.
    pub(super) fn figure(
        &self,
        point: usize,
        label: &str,
        workload: &str,
        column: Column,
    ) -> Option<f64> {
        self.cell(point, label, workload)?.figure(column)
    }

    /// The same by the point's label.
    pub(super) fn named(
        &self,
        point: &str,
        label: &str,
        workload: &str,
        column: Column,
    ) -> Option<f64> {
        let point = self.points.iter().position(|used| used.label == point)?;
        self.figure(point, label, workload, column)
    }

    /// Operations a second.
    pub(super) fn rate(&self, point: &str, label: &str, workload: &str) -> Option<f64> {
        self.named(point, label, workload, Column::Rate)
    }

    /// The first and the last point at which a workload was issued, if there
    /// are two.
    pub(super) fn ends(&self, workload: &str) -> Option<(usize, usize)> {
        let at = |cell: &&Cell| cell.workload == workload;
        let first = self.cells.iter().find(at)?.point;
        let last = self.cells.iter().rfind(at)?.point;
        (first != last).then_some((first, last))
    }

    /// The first store against this one, in the rounds that both ended well.
    pub(super) fn ratio(&self, cell: &Cell) -> Option<Comparison> {
        let first = self.contestants.first()?.label;
        let ours = self.cell(cell.point, first, cell.workload)?;
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
}

/// What is asked, with the defaults filled in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) arguments: &'a ReproduceArguments,
    pub(super) scale: f64,
    pub(super) repeat: u32,
}

/// Measures every point that is asked for.
pub(super) fn measure(figure: &'static Figure, asked: Asked<'_>) -> Result<Measured> {
    let arguments = asked.arguments;
    let contestants = chosen::contestants(figure.contestants, &arguments.stores)?;
    let asked_for = (arguments.points.as_slice(), arguments.all_points);
    let points = chosen::points(figure.name, figure.points, asked_for)?;
    let mut measured = Measured {
        points: Vec::new(),
        contestants,
        cells: Vec::new(),
        warnings: Vec::new(),
        report: Report {
            schema: SCHEMA.to_string(),
            machine: serde_json::Value::Null,
            seed: arguments.seed,
            runs: Vec::new(),
        },
        repeat: asked.repeat,
        seed: arguments.seed,
        scale: asked.scale,
    };
    let mut stage = Stage::new()?;
    for point in points {
        let campaign = campaign(point, &measured.contestants, asked)?;
        let outcome = campaign.run(&mut stage)?.whole()?;
        measured.take(point, &campaign, outcome.report);
        for warning in outcome.warnings {
            measured
                .warnings
                .push(format!("{}: {warning}", point.label));
        }
    }
    stage.close();
    Ok(measured)
}

impl Measured {
    fn take(&mut self, point: &Point, campaign: &Campaign, mut report: Report) {
        let place = self.points.len();
        let load = &campaign.loads[0];
        self.points.push(PointUsed {
            label: point.label,
            keys: load.keys,
            key_bytes: load.key_bytes.mean(),
            value_bytes: load.value_bytes.largest(),
            memory_limit_bytes: campaign.memory_limit_bytes,
        });
        for workload in point.workloads {
            for contestant in 0..self.contestants.len() {
                let cell = self.cell_of(place, contestant, workload, &report);
                self.cells.push(cell);
            }
            let same = |run: &&Run| run.workload == *workload;
            let runs: Vec<&Run> = report.runs.iter().filter(same).collect();
            if let Some(told) = different_answers(&runs, Phase::Run) {
                self.warnings
                    .push(format!("{}: DIFFERENT ANSWERS: {told}", point.label));
            }
        }
        for run in &mut report.runs {
            run.extra.insert("point".to_string(), point.label.into());
        }
        self.report.machine = report.machine;
        self.report.runs.extend(report.runs);
    }

    fn cell_of(
        &self,
        point: usize,
        contestant: usize,
        workload: &'static str,
        report: &Report,
    ) -> Cell {
        let label = self.contestants[contestant].label;
        let own = |run: &&Run| {
            run.workload == workload && run.extra.get("variant").is_some_and(|it| it == label)
        };
        let all: Vec<&Run> = report.runs.iter().filter(own).collect();
        let broken = all.iter().find(|run| run.status != Status::Ok);
        let good = |run: &&&Run| run.phase == Phase::Run && run.status == Status::Ok;
        Cell {
            point,
            contestant,
            workload,
            version: all.iter().find_map(|run| run.version.clone()),
            failure: broken.map(|run| run.status.name().to_string()),
            runs: all.iter().filter(good).map(|run| (*run).clone()).collect(),
        }
    }

    /// True if every store did everything, and all answered the same.
    pub(super) fn all_well(&self) -> bool {
        let different = self.warnings.iter().any(|text| text.contains("DIFFERENT"));
        !different && self.report.runs.iter().all(|run| run.status == Status::Ok)
    }
}

/// Keys of a point, how many, and the memory that goes with them.
fn sized(point: &Point, asked: Asked<'_>) -> Result<(Keys, u64, u64)> {
    let limited = |bytes: f64| (bytes as u64).max(LEAST_MEMORY);
    match point.keys {
        KeyKind::TwoLevel(bytes) => {
            let data = FULL_BYTES * asked.scale;
            let keys = Keys {
                are_default: false,
                source: KeySource::Pattern(KeyPattern::TwoLevel),
                key_bytes: SizeChoice::Fixed(bytes),
                value_bytes: SizeChoice::Fixed(point.value_bytes),
                sample: None,
                kept: None,
            };
            let count = (data / (bytes + point.value_bytes) as f64) as u64;
            Ok((keys, count.max(16), limited(data / DATA_BY_MEMORY)))
        }
        KeyKind::Set(name) => {
            let set = datasets::find(name)?;
            let url = DataSet::Url;
            let scaled = |documents: u64| (documents as f64 * asked.scale) as u64;
            let url_bytes = scaled(url.documents()) * (111 + url.document_bytes());
            // Sets of this machine take what it has, up to the size of url.
            let least = LEAST_KEYS.min(scaled(url.documents()).max(16));
            let count = match set {
                datasets::Set::Published(data) => scaled(data.documents()).max(least),
                datasets::Set::Real(real) => real.count(scaled(url.documents()).max(least))?,
            };
            let keys = set.keys(count, &asked.arguments.dir)?;
            Ok((keys, count, limited(url_bytes as f64 / URL_BY_MEMORY)))
        }
    }
}

fn campaign(point: &Point, contestants: &[Contestant], asked: Asked<'_>) -> Result<Campaign> {
    let arguments = asked.arguments;
    let (keys, count, sized_memory) = sized(point, asked)?;
    let memory = arguments.memory.unwrap_or(sized_memory);
    let load = |workload: &&str| Load {
        workload: workload.to_string(),
        seed: arguments.seed,
        keys: count,
        key_source: keys.source.clone(),
        key_bytes: keys.key_bytes,
        value_bytes: keys.value_bytes,
        until: match (arguments.operations, *workload) {
            (Some(operations), _) => Until::Operations(operations),
            (None, "overwrite") => Until::Operations(((count as f64 * UPDATED) as u64).max(1)),
            (None, _) => Until::Seconds(arguments.seconds),
        },
        threads: point.threads,
        batch: batch(point, workload).1,
        batch_least: Some(batch(point, workload).0),
        beside: point.writer_rate.map(|rate| Beside {
            kind: kvzone_core::workload::OperationKind::Update,
            threads: 1,
            rate: Some(rate),
        }),
        update_percent: point.update_percent.filter(|_| *workload == "mixed"),
        scan_entries: point.scan_entries.map(SizeChoice::Fixed),
        popularity: point.popularity(),
        verify_every: 64,
        compressible: 0.0,
        ..Load::default()
    };
    Ok(Campaign {
        steps: Vec::new(),
        contenders: contestants
            .iter()
            .map(|one| contender(one, memory))
            .collect(),
        loads: point.workloads.iter().map(load).collect(),
        _kept: keys.kept.into_iter().collect(),
        record: None,
        repeat: asked.repeat,
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
            idle: std::time::Duration::from_secs(60),
        },
    })
}

/// Entries of a batch; what only reads, without a writer, has none.
fn batch(point: &Point, workload: &str) -> (u32, u32) {
    let writes = match workload {
        "mixed" => point.update_percent != Some(0),
        "overwrite" => true,
        _ => point.writer_rate.is_some(),
    };
    if writes { BATCH } else { (1, 1) }
}

/// A store with the paper's settings: filters, threshold, and as much memory
/// for write buffers as the others have.
fn contender(contestant: &Contestant, memory: u64) -> Contender {
    let buffers = memory / 16;
    let mut options: Vec<(&str, String)> = match contestant.store {
        "leveldb" => vec![
            ("bloom_bits", "10".to_string()),
            ("write_buffer_bytes", (buffers / 2).to_string()),
        ],
        "rocksdb" | "rocksdb-blob" => vec![
            ("bloom_bits", "10".to_string()),
            ("write_buffer_bytes", (buffers / 2).to_string()),
            ("write_buffers", "2".to_string()),
        ],
        // While a flush runs there are two, and a quarter of one to work in. As the
        // others' compactions, its own gets by with what is left of the limit.
        FOREST => vec![
            ("compaction_threshold", "30".to_string()),
            ("write_buffer_bytes", (buffers / 9 * 4).to_string()),
            ("compaction_memory_bytes", (memory / 8).to_string()),
        ],
        // Its threshold is its own; it has no write buffer.
        COUCHSTORE => Vec::new(),
        _ => Vec::new(),
    };
    let own = contestant.options.iter();
    options.extend(own.map(|(name, value)| (*name, value.to_string())));
    let options = options.into_iter();
    Contender {
        overrides: options
            .map(|(name, value)| (name.to_string(), value))
            .collect(),
        compact: contestant.compact,
        variant: Some(contestant.label.to_string()),
        ..Contender::of(contestant.store)
    }
}
