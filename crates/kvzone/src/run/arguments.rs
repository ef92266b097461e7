//! What `kvzone run` is asked, and what it makes of it: a [`Campaign`].
//!
//! `--job FILE` reads a TOML file whose names are those of the options
//! (`key-size = 16`, `stores = ["zdb", "leveldb"]`, `cold = true`); what stands
//! on the command line as well wins, but for `set`, which adds up.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use kvzone_core::adapter::{DurabilityName, Profile};
use kvzone_core::error::{Error, Result};
use kvzone_core::job::{
    After, Beside, Job, KeySource, LatencyTarget, Load, Popularity, SizeChoice, Until,
};
use kvzone_core::key_patterns::KeyPattern;
use kvzone_core::names::unknown;
use kvzone_core::workload::{MIXED, OperationKind, find, is_trace, updates};

use super::campaign::{Campaign, Contender};
use super::job_file;
use super::parse::{
    Mix, PatternName, Threads, parse_amount, parse_batch, parse_budget, parse_bytes, parse_count,
    parse_latency, parse_mix, parse_pattern, parse_popularity, parse_positive, parse_share,
    parse_sizes, parse_threads, profile_word, word,
};
use super::traced::{self, Speed, parse_speed};
use crate::datasets::{self, Keys};
use crate::stores;

/// Operations a second with which a latency to keep begins.
const FIRST_RATE: f64 = 1_000.0;

/// In place of names: every store that is here.
const ALL: &str = "all";

/// Options of `kvzone run`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArguments {
    /// Stores to compare, such as zdb,leveldb, or all that are here: all;
    /// `kvzone list stores` shows them
    #[arg(long, value_name = "STORE,...", value_delimiter = ',')]
    stores: Vec<String>,
    /// What they do; `kvzone list workloads` shows all; trace:FILE replays what
    /// was recorded
    #[arg(
        long,
        value_name = "WORKLOAD,...",
        value_delimiter = ',',
        required_unless_present_any = ["job", "mix"]
    )]
    workload: Vec<String>,
    /// Entries that a store holds after its load
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = parse_count)]
    keys: u64,
    /// Bytes of a key: 16; 16-64 for uniform; normal:MEAN:DEVIATION,
    /// pareto:LOCATION:SCALE:SHAPE, each with :LEAST:MOST or :MOST at the end;
    /// histogram:FILE with SIZE WEIGHT or FROM-TO WEIGHT a line. Up to 8 bytes
    /// are integers [default: 16, or the pattern's, workload's or data set's own]
    #[arg(long, value_name = "SIZE", value_parser = parse_sizes)]
    pub(super) key_size: Option<SizeChoice>,
    /// How keys look: random, worst, small, 2-level (ForestDB 2016, table 2)
    /// [default: spread evenly]
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern, conflicts_with = "dataset")]
    pub(super) key_pattern: Option<PatternName>,
    /// Keys and value sizes of a data set; `kvzone list datasets` shows all. Or
    /// one's own, up to --keys of it: dir:PATH, jsonl:FILE?key=FIELD,
    /// sqlite:FILE?table=NAME&column=NAME&key=NAME
    #[arg(long, value_name = "NAME", conflicts_with = "key_size")]
    pub(super) dataset: Option<String>,
    /// Bytes of a value, likewise; several (100,1024) are measured one after the other
    /// [default: 100, or the workload's or data set's own]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = parse_sizes)]
    pub(super) value_size: Vec<SizeChoice>,
    /// Operations of the measured phase [default: as many as keys, or the whole
    /// trace]
    #[arg(long, value_name = "N", value_parser = parse_count, conflicts_with_all = ["seconds", "bytes"])]
    pub(super) operations: Option<u64>,
    /// As many operations as move about so many bytes of keys and values, by their
    /// mean sizes
    #[arg(long, value_name = "SIZE", value_parser = parse_amount, conflicts_with = "seconds")]
    bytes: Option<u64>,
    /// Length of the measured phase, in place of a number of operations
    #[arg(long, value_name = "S", value_parser = parse_positive)]
    pub(super) seconds: Option<f64>,
    /// How fast a trace is replayed: full, original, 2x, 0.5x [default: full]
    #[arg(long, value_name = "SPEED", value_parser = parse_speed)]
    pub(super) speed: Option<Speed>,
    /// Record what the first round asks of its one store, as a trace
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Threads that issue operations: 4; several (1,2,4) are measured one after the other;
    /// read=3,update=1 for threads that issue one kind alone
    #[arg(long, value_name = "T", default_value = "1", value_parser = parse_threads)]
    pub(super) threads: Threads,
    /// Requests that each thread keeps in flight, through queues [default: each call is
    /// waited for]
    #[arg(long, value_name = "N", conflicts_with_all = ["record", "keep_latency", "writers"])]
    pub(super) queue: Option<u32>,
    /// Threads that take requests from the queues and call the store [default: the store's
    /// own asynchronous interface, or 4 where it has none]
    #[arg(long, value_name = "W", requires = "queue")]
    workers: Option<u32>,
    /// The place of every write when it returns: in the process's memory, with the operating
    /// system, on the device
    #[arg(long, value_name = "LEVEL", default_value = "written", value_parser = word::<DurabilityName>(&["buffered", "written", "synced"]))]
    durability: DurabilityName,
    /// Writes in a batch: 100, or 10-100 for any number between, equally
    /// likely. Where the workload reads as well, updates are gathered
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_batch)]
    pub(super) batch: (u32, u32),
    /// Operations of workload mixed with their weights: read=70,update=20,
    /// insert=5,delete=5; also scan, read-missing, read-modify-write
    #[arg(long, value_name = "KIND=WEIGHT,...", value_parser = parse_mix, conflicts_with = "update_percent")]
    pub(super) mix: Option<Mix>,
    /// Inserts of its thread between a key's insertion and its deletion: 1000,
    /// or 500-2000, where a workload does both [default: the oldest go first]
    #[arg(long, value_name = "N", value_parser = parse_sizes)]
    pub(super) lifetime: Option<SizeChoice>,
    /// Share of updates in workload mixed, in percent [default: 20]
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(super) update_percent: Option<u32>,
    /// Entries that a scan visits: 100, or 1-100 [default: 1-100]
    #[arg(long, value_name = "N", value_parser = parse_sizes)]
    pub(super) scan_length: Option<SizeChoice>,
    /// Threads that update loaded keys while the others read
    #[arg(long, value_name = "T")]
    pub(super) writers: Option<u32>,
    /// Updates a second over all writers [default: as fast as it goes]
    #[arg(long, value_name = "OPS", value_parser = parse_positive, requires = "writers")]
    writer_rate: Option<f64>,
    /// Operations a second over all threads: an open loop, with latency from
    /// the intended start [default: as fast as it goes]
    #[arg(long, value_name = "OPS", value_parser = parse_positive)]
    pub(super) rate: Option<f64>,
    /// When operations are due at a rate: evenly, or as a Poisson process has arrivals
    #[arg(long, value_name = "LAW", value_enum, default_value_t = Arrivals::Even)]
    arrivals: Arrivals,
    /// The same in bytes of keys and values a second, by their mean sizes
    #[arg(long, value_name = "SIZE", value_parser = parse_amount, conflicts_with_all = ["rate", "keep_latency"])]
    throughput: Option<u64>,
    /// End a phase at a rate when it is so many seconds behind
    #[arg(long, value_name = "S", value_parser = parse_positive)]
    give_up: Option<f64>,
    /// Look for the highest rate at which 99 of 100 operations take no longer:
    /// 500us, 5ms; 99.9:5ms for another share
    #[arg(long, value_name = "LATENCY", value_parser = parse_latency, conflicts_with = "rate")]
    pub(super) keep_latency: Option<(f64, u64)>,
    /// Give up --keep-latency below so many operations a second
    #[arg(long, value_name = "OPS", default_value_t = 10.0, value_parser = parse_positive)]
    least_rate: f64,
    /// Each store's own memory: write buffers, filters and cache together; 1MiB at least
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_budget)]
    budget: u64,
    /// Limit of each worker process, its page cache included [default: none]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Drop all caches before the measured phase, and prove it
    #[arg(long)]
    cold: bool,
    /// Read every key once before the measured phase
    #[arg(long, conflicts_with = "cold")]
    pub(super) warm: bool,
    /// Let each store give space back between load and run
    #[arg(long)]
    compact: bool,
    /// Open each store again after the run, and time it: after it was closed, or after
    /// its process was killed while it wrote; what it had acknowledged must be there
    #[arg(long, value_name = "AFTER", num_args = 0..=1, default_missing_value = "close", value_parser = word::<After>(&["close", "kill"]))]
    reopen: Option<After>,
    /// Settings: as its authors ship each store; the same durability, memory and filters for
    /// all, reads verified, no compression; or set by hand for the workload
    #[arg(long, value_name = "PROFILE", default_value = "equal", value_parser = profile_word())]
    profile: Profile,
    /// A setting of one store: leveldb.write_buffer_size=8MiB; may be repeated
    #[arg(long, value_name = "STORE.OPTION=VALUE")]
    set: Vec<String>,
    /// Which keys are chosen: uniform, zipfian, zipfian:0.8, ycsb-zipfian,
    /// latest, sequential, hot-set:0.1:0.9 (a tenth of the keys gets nine in ten
    /// choices), groups:1:20000 (zipfian groups of random keys)
    /// [default: the workload's own]
    #[arg(long, value_name = "LAW", value_parser = parse_popularity)]
    pub(super) popularity: Option<Popularity>,
    /// Compare one read in so many with what was written; 1 for all
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) verify_every: u32,
    /// Share of a value's bytes that compress away, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = parse_share)]
    pub(super) compressible: f64,
    /// Rounds, in each of which every store runs once; 5 for a claim
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Everything random comes from it
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(super) seed: u64,
    /// Folder for the stores; it is left as it was
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(super) dir: PathBuf,
    /// Seconds without progress after which a store is ended
    #[arg(long, value_name = "S", default_value_t = 60.0, value_parser = parse_positive)]
    patience: f64,
    /// Read options from a TOML file; the command line wins
    #[arg(long, value_name = "FILE")]
    job: Option<PathBuf>,
    /// Write every figure of every round as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the tables, ratios and warnings as Markdown, for continuous integration
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// Write every run as a line of comma-separated values
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// When operations are due at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Arrivals {
    /// At equal distances
    Even,
    /// At distances of the exponential law
    Poisson,
}

impl RunArguments {
    pub(crate) fn with_job_file(self, typed: Vec<OsString>) -> Result<RunArguments> {
        let Some(path) = self.job.clone() else {
            return Ok(self);
        };
        job_file::with_job_file(&path, typed)
    }

    pub(crate) fn use_all_stores(&mut self) {
        if self.stores.is_empty() {
            self.stores = vec![ALL.to_string()];
        }
    }

    pub(crate) fn campaign(&self) -> Result<Campaign> {
        let mixed = vec![MIXED.to_string()];
        let workloads = match (&self.mix, self.workload.is_empty()) {
            (Some(_), true) => &mixed,
            _ => &self.workload,
        };
        for (given, what) in [(&self.stores, "stores"), (workloads, "workload")] {
            if given.iter().all(|name| name.is_empty()) {
                return Err(Error::Usage(format!(
                    "--{what} names nothing; `kvzone list` shows what there is"
                )));
            }
        }
        if self.speed.is_some() && !workloads.iter().any(|name| is_trace(name)) {
            let words = "--speed: of a trace; --workload trace:FILE replays one";
            return Err(Error::Usage(words.to_string()));
        }
        let keys = self.key_choice()?;
        let count = keys.sample.as_ref().map_or(self.keys, |sample| sample.keys);
        let until = match (self.operations, self.seconds) {
            (_, Some(seconds)) => Until::Seconds(seconds),
            (operations, None) => Until::Operations(operations.unwrap_or(count)),
        };
        let own_mix = match &self.mix {
            Some(Mix(mix)) => Some(mix.clone()),
            None => self.update_percent.map(updates),
        };
        let mut kept = Vec::from_iter(keys.kept.clone());
        let mut load = |name: &String, threads: &Threads, value_size: Option<SizeChoice>| {
            if is_trace(name) {
                let (load, folder) = traced::load(name, self, threads)?;
                kept.extend(folder.map(Arc::new));
                return Ok::<_, Error>(load);
            }
            let workload = find(name)?;
            let writers = self
                .writers
                .or(Some(workload.writers).filter(|&count| count > 0));
            let key_bytes = workload
                .key
                .filter(|_| keys.are_default)
                .unwrap_or(keys.key_bytes);
            let value_bytes = value_size.or(workload.value).unwrap_or(keys.value_bytes);
            let entry = (key_bytes.mean() + value_bytes.mean()).max(1.0);
            Ok(Load {
                workload: workload.name.to_string(),
                seed: self.seed,
                keys: count,
                key_source: keys.source.clone(),
                key_bytes,
                value_bytes,
                until: match self.bytes {
                    Some(bytes) => Until::Operations(((bytes as f64 / entry) as u64).max(1)),
                    None => until,
                },
                threads: threads.sum(),
                kind_threads: threads.kinds(),
                queue: self.queue,
                workers: self.workers,
                give_up: self.give_up,
                batch: self.batch.1,
                batch_least: Some(self.batch.0).filter(|&least| least != self.batch.1),
                rate: self
                    .rate
                    .or(self.throughput.map(|bytes| bytes as f64 / entry)),
                poisson: self.arrivals == Arrivals::Poisson,
                latency_target: self
                    .keep_latency
                    .map(|(percentile, nanoseconds)| LatencyTarget {
                        percentile,
                        nanoseconds,
                        first_rate: FIRST_RATE.max(self.least_rate),
                        least_rate: self.least_rate,
                    }),
                beside: writers.map(|threads| Beside {
                    kind: OperationKind::Update,
                    threads,
                    rate: self.writer_rate,
                }),
                mix: own_mix.clone(),
                lifetime: self.lifetime,
                scan_entries: self.scan_length.or(workload.scan),
                popularity: self.popularity,
                verify_every: self.verify_every,
                compressible: self.compressible,
                value_sample: keys.sample.as_ref().and_then(|sample| sample.path.clone()),
                trace: None,
            })
        };
        let mut sizes: Vec<Option<SizeChoice>> =
            self.value_size.iter().copied().map(Some).collect();
        if sizes.is_empty() {
            sizes.push(None);
        }
        let mut loads = Vec::new();
        for name in workloads {
            for threads in self.threads.each() {
                for &size in &sizes {
                    loads.push(load(name, &threads, size)?);
                }
            }
        }
        let stores = match self.stores.as_slice() {
            [all] if all == ALL => stores::choices(),
            _ => self.stores.clone(),
        };
        let mut contenders = contenders(&stores, &self.set)?;
        for contender in &mut contenders {
            contender.compact = self.compact;
        }
        if self.record.is_some() && (contenders.len() != 1 || loads.len() != 1) {
            let words = "--record: a trace is of one store and one workload";
            return Err(Error::Usage(words.to_string()));
        }
        Ok(Campaign {
            contenders,
            loads,
            job: Job {
                record: self.record.clone(),
                durability: self.durability,
                budget_bytes: self.budget,
                memory_limit_bytes: self.memory,
                profile: self.profile,
                cold: self.cold,
                warm: self.warm,
                reopen: self.reopen,
                ..Job::default()
            },
            _kept: kept,
            repeat: self.repeat,
            seed: self.seed,
            directory: self.dir.clone(),
            patience: Duration::from_secs_f64(self.patience),
        })
    }
}

impl RunArguments {
    fn key_choice(&self) -> Result<Keys> {
        if let Some(name) = &self.dataset {
            if let Some(own) = datasets::own::parse(name)? {
                return own.keys(self.keys, &self.dir);
            }
            return datasets::find(name)?.keys(self.keys, &self.dir);
        }
        let pattern = self.key_pattern.map(|name| name.pattern(self.key_size));
        let own = pattern.map_or(SizeChoice::Fixed(16), KeyPattern::sizes);
        Ok(Keys {
            are_default: pattern.is_none() && self.key_size.is_none(),
            source: pattern.map_or(KeySource::Spread, KeySource::Pattern),
            key_bytes: self.key_size.unwrap_or(own),
            value_bytes: SizeChoice::Fixed(100),
            sample: None,
            kept: None,
        })
    }
}

/// Stores with their settings; a setting of a store that does not run is a
/// mistake.
pub(crate) fn contenders(stores: &[String], set: &[String]) -> Result<Vec<Contender>> {
    let mut found: Vec<Contender> = Vec::new();
    for name in stores.iter().filter(|name| !name.is_empty()) {
        if found.iter().any(|contender| &contender.store == name) {
            return Err(Error::Usage(format!("--stores names {name} twice")));
        }
        found.push(Contender::of(name));
    }
    for setting in set {
        let malformed = || {
            Error::Usage(format!(
                "--set {setting}: write it as STORE.OPTION=VALUE, such as leveldb.compression=on"
            ))
        };
        let (store, rest) = setting.split_once('.').ok_or_else(malformed)?;
        let (option, value) = rest.split_once('=').ok_or_else(malformed)?;
        let contender = found.iter_mut().find(|contender| contender.store == store);
        let Some(contender) = contender else {
            let words = unknown("store", store, stores.iter().map(String::as_str));
            return Err(Error::Usage(format!(
                "--set {setting}: {words} (of --stores)"
            )));
        };
        contender
            .overrides
            .insert(option.to_string(), value.to_string());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_belong_to_stores_that_run() {
        let stores = ["zdb".to_string(), "rocksdb-blob".to_string()];
        let set = ["rocksdb-blob.min_blob_size=1=2".to_string()];
        let found = contenders(&stores, &set).unwrap();
        assert_eq!(found[1].overrides["min_blob_size"], "1=2");
        for wrong in ["leveldb.a=b", "zdb.a", "a=b", ""] {
            assert!(
                contenders(&stores, &[wrong.to_string()]).is_err(),
                "{wrong}"
            );
        }
        assert!(contenders(&["a".to_string(), "a".to_string()], &[]).is_err());
    }
}
