//! What a job comes to, worked out before a store is opened: everything that
//! cannot be is refused here.

use std::sync::Arc;

use crate::adapter::{OpenRequest, store_folder};
use crate::error::{Error, Result};
use crate::job::{Job, KeySource, Load, Popularity, SizeChoice, Step, Until};
use crate::keys::{INTEGER_BYTES, KeySpace};
use crate::values::Values;
use crate::versions::Versions;
use crate::workload::{FillOrder, Mix, OperationKind, Workload, find};

use super::refusals::{check, mix};
use super::stream::SCAN_SIZES;
use super::workers::WORKERS;

/// A load that is not what is measured goes in batches of up to so many
/// entries ...
const LOAD_BATCH: u64 = 1_000;
/// ... and about so many bytes ...
const LOAD_BATCH_BYTES: u64 = 1 << 20;
/// ... of which those of all threads together have no more than so many: each is held
/// several times on its way into a store, and a run can have a limit of memory.
const LOAD_BATCHES_BYTES: u64 = 16 << 20;

#[derive(Debug)]
pub struct Plan {
    pub workload: &'static Workload,
    /// Its operations after the load, with their weights in percent.
    pub mix: Vec<(OperationKind, u32)>,
    pub popularity: Popularity,
    pub keys: KeySpace,
    pub values: Arc<Values>,
    pub versions: Arc<Versions>,
    pub load_batch: SizeChoice,
    pub run_batch: SizeChoice,
    pub scans: SizeChoice,
    /// Keys at the end of all that are never put.
    pub missing: u64,
}

impl Plan {
    /// Works a load out, or says why it cannot be run.
    pub fn new(load: &Load) -> Result<Self> {
        Plan::before(load, &[])
    }

    /// Works a load out that steps follow: where one of them asks for keys that are
    /// not there, there is room for them between those that are.
    pub fn before(load: &Load, steps: &[Step]) -> Result<Self> {
        let workload = find(&load.workload)?;
        let mix = mix(load, workload)?;
        check(load, workload, &mix)?;
        let follows = |of: OperationKind| {
            let mut loads = steps.iter().filter_map(|step| step.act.load());
            loads.any(|load| find(&load.workload).is_ok_and(|workload| workload.mix.has(of)))
        };
        let last = steps.last().and_then(|step| step.act.load());
        let by_last = match last {
            Some(last) => inserted_by(last, &super::mix(last, find(&last.workload)?)?),
            None => Some(0),
        };
        // Keys that are never put lie behind all that are.
        let read_missing = OperationKind::ReadMissing;
        let missing = if mix.has(read_missing) || follows(read_missing) {
            load.keys
        } else {
            0
        };
        let inserted = inserted_by(load, &mix).zip(by_last);
        let inserted = inserted.map(|(own, last)| own.saturating_add(last).saturating_add(missing));
        let measured_load = workload.mix.is_empty();
        let popularity = load.popularity.unwrap_or(workload.popularity);
        let keys = KeySpace::new(load, workload.fill, inserted)?;
        let in_order = workload.fill == FillOrder::Sequential
            || !measured_load && matches!(popularity, Popularity::Sequential);
        if in_order && !keys.is_ordered() {
            return Err(Error::Usage(format!(
                "{} goes in key order, which is not known of the keys of a pattern",
                workload.name
            )));
        }
        let least = u64::from(load.batch_least.unwrap_or(load.batch));
        let asked = match u64::from(load.batch) {
            most if most == least => SizeChoice::Fixed(most),
            most => SizeChoice::Uniform(least, most),
        };
        Ok(Plan {
            workload,
            mix,
            popularity,
            keys,
            values: Arc::new(Values::new(load)?),
            versions: Arc::new(Versions::new(load.keys)),
            load_batch: if measured_load {
                asked
            } else {
                SizeChoice::Fixed(u64::from(load.batch.max(load_batch(load))))
            },
            run_batch: asked,
            scans: load.scan_entries.unwrap_or(SCAN_SIZES),
            missing,
        })
    }

    /// Works a step out that goes on with the same entries. A usage error if it
    /// inserts and is not the last: steps behind it would meet keys that they do not know.
    pub fn step(&self, load: &Load, is_last: bool) -> Result<Plan> {
        let plan = Plan::new(load)?;
        if plan.mix.is_empty() || !is_last && plan.mix.has(OperationKind::Insert) {
            let words = format!("{} inserts, and can be the last step alone", load.workload);
            return Err(Error::Usage(words));
        }
        Ok(Plan {
            keys: self.keys.clone(),
            values: self.values.clone(),
            versions: self.versions.clone(),
            missing: self.missing,
            ..plan
        })
    }

    /// Bytes of keys and values of all loaded keys that should be there, and
    /// their number.
    pub fn live(&self) -> (u64, u64) {
        self.versions
            .live()
            .fold((0, 0), |(bytes, keys), (number, version)| {
                let value = self.values.value_bytes(number, version);
                let entry = self.keys.key_bytes(number) + value;
                (bytes + entry as u64, keys + 1)
            })
    }
}

/// Keys that are inserted at most; none where a time bounds them.
fn inserted_by(load: &Load, mix: &[(OperationKind, u32)]) -> Option<u64> {
    match load.until {
        _ if !mix.has(OperationKind::Insert) => Some(0),
        // Each thread may insert at every operation, in its own numbers.
        Until::Operations(count) => Some(count.saturating_add(u64::from(load.threads))),
        Until::Seconds(_) => None,
    }
}

fn load_batch(load: &Load) -> u32 {
    let entry = load.key_bytes.mean() + load.value_bytes.mean();
    let most = LOAD_BATCH_BYTES.min(LOAD_BATCHES_BYTES / u64::from(load.threads.max(1)));
    let fitting = most as f64 / entry.max(1.0);
    (fitting as u64).clamp(1, LOAD_BATCH) as u32
}

/// What the adapter of a job is asked to open.
pub fn open_request(job: &Job) -> OpenRequest {
    let load = &job.load;
    let mix = find(&load.workload).and_then(|workload| mix(load, workload));
    let inserts = mix.is_ok_and(|mix| mix.has(OperationKind::Insert));
    let inserted = match load.until {
        Until::Operations(count) if inserts => count / 20,
        _ => 0,
    };
    let (expected_keys, key_bytes, value_bytes) = match load.trace.as_ref().map(|it| &it.summary) {
        // Its keys are bytes, whatever their length.
        Some(all) => {
            let key_bytes = all.longest_key.max(INTEGER_BYTES + 1) as u32;
            (all.keys, key_bytes, all.mean_value_bytes())
        }
        None => {
            let keys = load.keys.saturating_add(inserted);
            (keys, key_bytes(load), load.value_bytes.mean())
        }
    };
    OpenRequest {
        folder: store_folder(&job.folder),
        durability: job.durability,
        budget_bytes: job.budget_bytes,
        profile: job.profile,
        overrides: job.overrides.clone(),
        expected_keys,
        key_bytes,
        expected_value_bytes: value_bytes.ceil() as u64,
        threads: job
            .steps
            .iter()
            .filter_map(|step| step.act.load())
            .map(threads)
            .fold(threads(load), u32::max),
    }
}

fn threads(load: &Load) -> u32 {
    let workers = load.queue.map_or(0, |_| load.workers.unwrap_or(WORKERS));
    load.threads + workers + load.beside.map_or(0, |beside| beside.threads)
}

/// Bytes of a key, as far as a store that may take keys for integers has to
/// know: keys of a source of their own are none.
fn key_bytes(load: &Load) -> u32 {
    let largest = match load.key_source {
        KeySource::Spread => load.key_bytes.largest(),
        _ => load.key_bytes.largest().max(INTEGER_BYTES + 1),
    };
    u32::try_from(largest).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::job::Beside;
    use crate::job::tests::load;
    use crate::key_patterns::KeyPattern;
    use crate::workload::updates;

    fn writers(threads: u32, rate: Option<f64>) -> Beside {
        let kind = OperationKind::Update;
        Beside {
            kind,
            threads,
            rate,
        }
    }

    #[test]
    fn what_cannot_be_is_refused_before_a_store_is_opened() {
        type Change = fn(&mut Load);
        #[rustfmt::skip] // a table
        let cases: &[(&str, Change, &str)] = &[
            ("overwriet", |_| {}, "overwrite"),
            ("overwrite", |it| it.threads = 0, "threads 0"),
            ("overwrite", |it| it.threads = 1_001, "a key of its own"),
            ("overwrite", |it| it.batch = 0, "batch 0"),
            ("overwrite", |it| { it.batch = 1_000_000; it.value_bytes = SizeChoice::Fixed(10_000); }, "more than 1 GiB"),
            ("ycsb-c", |it| it.batch = 2, "ycsb-c reads"),
            ("ycsb-f", |it| it.batch = 2, "what it has just read"),
            ("ycsb-d", |it| it.batch = 2, "just inserted"),
            ("ycsb-a", |it| { it.batch = 2; it.rate = Some(10.0); }, "no moment is due"),
            ("overwrite", |it| { it.batch = 2; it.batch_least = Some(3); }, "the smaller first"),
            ("overwrite", |it| it.mix = Some(updates(50)), "give it to mixed"),
            ("overwrite", |it| it.scan_entries = Some(SizeChoice::Fixed(10)), "does not scan"),
            ("scan-random", |it| it.scan_entries = Some(SizeChoice::Fixed(0)), "from 1 to"),
            ("overwrite", |it| it.beside = Some(writers(1, None)), "writes by itself"),
            ("read-random", |it| it.beside = Some(writers(0, None)), "0 writers"),
            ("read-random", |it| it.beside = Some(writers(1, Some(-1.0))), "operations a second"),
            ("read-sequential", |it| it.key_source = KeySource::Pattern(KeyPattern::Small), "key order"),
            ("overwrite", |it| it.rate = Some(0.0), "rate 0"),
            ("overwrite", |it| it.rate = Some(f64::NAN), "rate NaN"),
            ("overwrite", |it| it.until = Until::Seconds(-1.0), "-1 seconds"),
            ("overwrite", |it| it.popularity = Some(Popularity::Zipfian(0.0)), "exponent 0"),
        ];
        for (name, change, words) in cases {
            let mut load = load(name);
            change(&mut load);
            let error = Plan::new(&load).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        Plan::new(&load("overwrite")).unwrap();
    }

    #[test]
    fn a_load_that_is_not_measured_goes_in_batches() {
        let batch = |load: &Load| Plan::new(load).unwrap().load_batch;
        assert_eq!(batch(&load("read-random")), SizeChoice::Fixed(1_000));
        assert_eq!(batch(&load("fill-random")), SizeChoice::Fixed(1));
        let large = Load {
            value_bytes: crate::job::SizeChoice::Fixed(100_000),
            ..load("read-random")
        };
        assert_eq!(batch(&large), SizeChoice::Fixed(10));
        let many = Load {
            threads: 32,
            ..large
        };
        assert_eq!(batch(&many), SizeChoice::Fixed(5), "16 MiB in all");
    }
}
