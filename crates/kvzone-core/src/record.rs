//! What is reported of a run: the JSON that `--json` writes and that checks
//! from outside read. A field that a store cannot give is null, never missing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::adapter::{DurabilityName, Profile};
use crate::job::Job;

pub const SCHEMA: &str = "kvzone/1";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub schema: String,
    /// The machine, its disk, and what else it was doing.
    pub machine: Value,
    pub seed: u64,
    /// In the order in which they ended.
    pub runs: Vec<Run>,
}

/// Fields of a run in [`Report::csv`]; lists and settings are in the JSON alone.
const CSV: &str = "store version workload repeat phase threads keys key_size value_size operations \
    seconds ops_per_second user_bytes durability profile budget_bytes memory_limit_bytes \
    target_rate status error latency_ns/mean latency_ns/stdev latency_ns/p50 latency_ns/p90 \
    latency_ns/p99 latency_ns/p999 latency_ns/max device_write_bytes device_read_bytes \
    write_amplification read_amplification space_bytes space_amplification cpu_seconds \
    peak_memory_bytes result_hash";

impl Report {
    pub fn csv(&self) -> String {
        let names: Vec<&str> = CSV.split_whitespace().collect();
        let mut text = names.join(",").replace('/', "_") + "\n";
        for run in &self.runs {
            let run = serde_json::to_value(run).unwrap_or_default();
            let cell = |name: &&str| match run.pointer(&format!("/{name}")) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => quoted(text),
                Some(value) => value.to_string(),
            };
            let cells: Vec<String> = names.iter().map(cell).collect();
            text += &(cells.join(",") + "\n");
        }
        text
    }
}

/// A field of comma-separated values (RFC 4180).
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub store: String,
    pub version: Option<String>,
    pub workload: String,
    pub repeat: u32,
    pub phase: Phase,
    pub threads: u32,
    /// Entries after the load.
    pub keys: u64,
    pub key_size: f64,
    pub value_size: f64,
    pub operations: u64,
    /// Seconds that they took, from the first start to the last end.
    pub seconds: f64,
    /// Foreground work alone.
    pub ops_per_second: f64,
    /// Bytes of keys and values that the operations moved.
    pub user_bytes: u64,
    pub durability: DurabilityName,
    pub profile: Profile,
    /// The store's own cache.
    pub budget_bytes: Option<u64>,
    /// The limit of the worker, page cache included.
    pub memory_limit_bytes: Option<u64>,
    /// Operations a second asked for, in an open loop.
    pub target_rate: Option<f64>,
    pub status: Status,
    /// Why, where it did not end well.
    pub error: Option<String>,
    pub settings: BTreeMap<String, String>,
    /// From the intended start in an open loop, else from the call.
    pub latency_ns: Option<LatencySummary>,
    /// From the call, always.
    pub native_latency_ns: Option<LatencySummary>,
    pub device_write_bytes: Option<u64>,
    pub device_read_bytes: Option<u64>,
    /// Device bytes written for each user byte written.
    pub write_amplification: Option<f64>,
    /// Device bytes read for each user byte read.
    pub read_amplification: Option<f64>,
    /// Bytes allocated on disk at the end.
    pub space_bytes: Option<u64>,
    /// Those for each live user byte.
    pub space_amplification: Option<f64>,
    /// User and system time of the process in this phase.
    pub cpu_seconds: Option<f64>,
    /// Peak resident memory of the process.
    pub peak_memory_bytes: Option<u64>,
    /// Over what reads returned; null where that depends on timing.
    pub result_hash: Option<String>,
    pub timeline: Vec<TimelinePoint>,
    pub extra: BTreeMap<String, Value>,
}

impl Run {
    /// Puts a further figure beside the others.
    pub fn tell(&mut self, name: &str, value: impl Serialize) {
        self.extra.insert(name.to_string(), json!(value));
    }

    /// A run of which nothing is known but what was asked for: no figures, not
    /// a version, no settings. Its status is ok until somebody says otherwise.
    pub fn blank(job: &Job, phase: Phase) -> Run {
        Run {
            store: job.store.clone(),
            workload: job.load.workload.clone(),
            repeat: job.repeat,
            phase,
            threads: job.load.threads,
            keys: job.load.keys,
            key_size: job.load.key_bytes.mean(),
            value_size: job.load.value_bytes.mean(),
            durability: job.durability,
            profile: job.profile,
            budget_bytes: Some(job.budget_bytes),
            memory_limit_bytes: job.memory_limit_bytes,
            target_rate: job.load.rate,
            ..Run::default()
        }
    }
}

crate::named! {
    #[derive(Default)]
    pub enum Phase {
        /// Filling; the measured phase of `fill-*`.
        #[default]
        Load = "load",
        /// The measured phase of all other workloads.
        Run = "run",
        Reopen = "reopen",
        Compact = "compact",
        Idle = "idle",
    }
}

crate::named! {
    #[derive(Default)]
    pub enum Status {
        #[default]
        Ok = "ok",
        /// The store answered an error, or the disk filled up.
        Failed = "failed",
        /// The store returned something else than what was written.
        Wrong = "wrong",
        Crashed = "crashed",
        /// Its process made no progress for too long, and was ended.
        Hung = "hung",
        /// Its library is not here.
        Missing = "missing",
        /// The store cannot do what the workload needs.
        Unsupported = "unsupported",
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    pub mean: f64,
    pub stdev: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

/// Writes after a kill: of each key the last that was acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AfterKill {
    /// Keys of which a write was acknowledged: the last one counts.
    pub acknowledged: u64,
    /// The number of those that are as that write, or the one after it, left them.
    pub survived: u64,
    pub lost: u64,
    /// Keys that hold what nobody wrote.
    pub damaged: u64,
    /// Keys with a write that was asked for and not answered: either is right.
    pub unanswered: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// From the phase's start, from 0.
    pub second: u64,
    /// Operations that ended in it.
    pub operations: u64,
    /// 99 in a hundred of them took no longer.
    pub p99_ns: u64,
}
