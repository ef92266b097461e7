//! What is to be run: one worker process's work, as text that crosses a pipe.
//!
//! `kvzone run` turns its arguments into one [`Job`] for each store and repeat.
//! Everything that decides which operations are issued is in [`Load`], and is
//! the same for all stores of a round; what belongs to one store is beside it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::adapter::{DurabilityName, Profile};
use crate::key_patterns::KeyPattern;
pub use crate::sizes::SizeChoice;
use crate::trace::summary::Summary;
use crate::workload::OperationKind;

/// One store, one workload, one repeat: what a worker process does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub store: String,
    pub repeat: u32,
    /// A folder of this run alone, there and empty.
    pub folder: PathBuf,
    pub durability: DurabilityName,
    /// Memory of the store's own: write buffers, filters and cache together, in bytes.
    pub budget_bytes: u64,
    /// The limit set on the worker by its parent, for the report.
    pub memory_limit_bytes: Option<u64>,
    pub profile: Profile,
    /// `--set store.option=value` with the store's name taken off.
    pub overrides: BTreeMap<String, String>,
    pub cold: bool,
    /// Read every key once before the measured phase, so that every store has
    /// in memory what it keeps there.
    pub warm: bool,
    /// Open again after the run, and measure how long it takes.
    pub reopen: Option<After>,
    /// The store was killed while it was written to (the first half of
    /// [`After::Kill`]): open it, and look at what it kept.
    pub after_kill: bool,
    /// Let the store give space back between load and run, as a phase of its
    /// own.
    pub compact: bool,
    pub record: Option<PathBuf>,
    /// Tells apart several jobs of one store in one campaign; `variant` in the
    /// report's `extra`.
    pub variant: Option<String>,
    pub load: Load,
    /// Steps that follow the load, in order, in place of the load's own mix.
    pub steps: Vec<Step>,
}

impl Job {
    /// A load on a store with its own settings, `Written`, in memory of 1 MiB.
    pub fn new(store: &str, folder: impl Into<PathBuf>, load: Load) -> Job {
        Job {
            store: store.to_string(),
            folder: folder.into(),
            budget_bytes: 1 << 20,
            load,
            ..Job::default()
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum After {
    Close,
    /// Its process was killed while it wrote; what it had acknowledged is held
    /// against what is there.
    Kill,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The workload's name: `fill-random`, `ycsb-a`.
    pub workload: String,
    pub seed: u64,
    /// Entries that the store holds after its load.
    pub keys: u64,
    pub key_source: KeySource,
    /// Bytes of a key. With a source of its own, that source's own sizes
    /// unless it can make keys of the size that is asked for here.
    pub key_bytes: SizeChoice,
    pub value_bytes: SizeChoice,
    pub until: Until,
    pub threads: u32,
    /// Entries of a batch; 1 means single puts and deletes. In a workload that
    /// reads as well, changes are gathered until they make a batch.
    pub batch: u32,
    /// Entries of the smallest batch, where each batch's number is drawn from
    /// here to `batch`; None where all batches have the same.
    pub batch_least: Option<u32>,
    /// Operations a second over all threads: an open loop, in which latency
    /// is measured from the intended start. None: as fast as it goes.
    pub rate: Option<f64>,
    /// Operations of an open loop are due as a Poisson process has arrivals, and not at equal
    /// distances.
    pub poisson: bool,
    /// An open loop ends when it is so many seconds behind: its rate is not reached.
    pub give_up: Option<f64>,
    /// Threads for each kind of operation of the mix; together they are `threads`.
    /// None: each thread issues all kinds.
    pub kind_threads: Option<Vec<(OperationKind, u32)>>,
    /// Requests that each thread has in flight; None: each call is waited for.
    pub queue: Option<u32>,
    /// Threads that take the requests from queues and call the store; None: the store's own
    /// asynchronous interface, or a few where it has none.
    pub workers: Option<u32>,
    /// In place of a rate: the highest at which a latency is kept is looked for.
    pub latency_target: Option<LatencyTarget>,
    /// Threads that do one thing alone beside those that count.
    pub beside: Option<Beside>,
    /// Operations of workload `mixed` with their weights, in place of its own.
    pub mix: Option<Vec<(OperationKind, u32)>>,
    /// How many inserts of its thread lie between a key's insertion and its
    /// deletion, where both happen; None: the oldest go first.
    pub lifetime: Option<SizeChoice>,
    /// Entries that a scan visits at most, in place of 1 to 100.
    pub scan_entries: Option<SizeChoice>,
    /// Overrides the workload's own choice of keys.
    pub popularity: Option<Popularity>,
    /// One read in so many is compared with what was written; 1 for all, 0 for
    /// none.
    pub verify_every: u32,
    /// Share of a value's bytes that compress away, 0 to 1.
    pub compressible: f64,
    /// A file with bytes that values are pieces of, in place of made-up ones.
    pub value_sample: Option<PathBuf>,
    /// What is replayed, where the workload is a trace: it decides keys, sizes and
    /// operations.
    pub trace: Option<Box<Replayed>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replayed {
    pub path: PathBuf,
    /// Another with entries that it found in its store without loading them.
    pub missing: Option<PathBuf>,
    /// How fast: 1 as it was recorded, 2 in half the time; none as fast as it goes.
    pub speed: Option<f64>,
    pub summary: Summary,
}

impl Default for Load {
    /// A million keys of 16 bytes with values of 100, read at random once.
    fn default() -> Self {
        Load {
            workload: "read-random".to_string(),
            seed: 1,
            keys: 1_000_000,
            key_source: KeySource::Spread,
            key_bytes: SizeChoice::Fixed(16),
            value_bytes: SizeChoice::Fixed(100),
            until: Until::Operations(1_000_000),
            threads: 1,
            batch: 1,
            batch_least: None,
            rate: None,
            poisson: false,
            give_up: None,
            kind_threads: None,
            queue: None,
            workers: None,
            latency_target: None,
            beside: None,
            mix: None,
            lifetime: None,
            scan_entries: None,
            popularity: None,
            verify_every: 16,
            compressible: 0.5,
            value_sample: None,
            trace: None,
        }
    }
}

/// A latency that so many of a hundred operations must keep, counted from the
/// moment at which each was due.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyTarget {
    pub nanoseconds: u64,
    /// Of a hundred operations, so many; above 0 and below 100.
    pub percentile: f64,
    pub first_rate: f64,
    /// The target is given up when the rate falls below it.
    pub least_rate: f64,
}

/// Threads that update or read loaded keys, chosen uniformly, while those that
/// count read or write. They end when these do, and are no part of the phase's
/// operations: what they did stands in `extra`, beginning with `writers_` or
/// `readers_`. Each call of writers is a batch as the load says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    /// Update, or read.
    pub kind: OperationKind,
    pub threads: u32,
    /// Operations a second over all of them, in an open loop; None: as fast as it
    /// goes.
    pub rate: Option<f64>,
}

/// A part of a job that follows the load, on the same open store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Tells it from the others; `step` in the report's `extra`.
    pub name: String,
    pub act: Act,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// The workload's mix; keys, sizes and seed are those of the job's load. The last step
    /// alone may insert.
    Work(Box<Load>),
    /// Lets the store give space back.
    Compact,
    /// Both at once; the time is that of the longer one.
    Compacting(Box<Load>),
    /// Asks nothing for so many seconds.
    Idle(f64),
    /// Closes the store and opens it again, which is timed.
    Reopen,
}

impl Act {
    pub fn load(&self) -> Option<&Load> {
        match self {
            Act::Work(load) | Act::Compacting(load) => Some(load),
            Act::Compact | Act::Idle(_) | Act::Reopen => None,
        }
    }
}

/// How keys look. Their order of insertion is the workload's business.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeySource {
    /// Spread evenly over all keys: integers up to 8 bytes, random to look at
    /// beyond (see [`crate::keys`]).
    #[default]
    Spread,
    Pattern(KeyPattern),
    /// The lines of a file, as bytes without their ends.
    File(PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    Operations(u64),
    Seconds(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Popularity {
    Uniform,
    /// The exact law P(r) = r^(-s)/H(N,s), by rejection inversion.
    Zipfian(f64),
    /// YCSB's likeness of it: constant 0.99 over 10^10 ranks, hashed.
    YcsbZipfian,
    /// Those inserted last are the most popular, zipfian by age.
    Latest,
    Sequential,
    /// A share of the keys, anywhere among them, gets a share of all choices;
    /// inside and outside of it all are alike.
    HotSet {
        /// Share of the keys, above 0 and below 1.
        keys: f64,
        /// Share of the choices, likewise.
        choices: f64,
    },
    /// Keys fall into groups at random; a group is chosen by the exact law, a
    /// key inside of it uniformly (ForestDB 2016, section 4.2.6).
    Groups {
        /// Of the law over groups; 0 makes them all alike.
        exponent: f64,
        groups: u64,
    },
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn load(workload: &str) -> Load {
        Load {
            workload: workload.to_string(),
            seed: 42,
            keys: 1_000,
            until: Until::Operations(5_000),
            verify_every: 1,
            ..Load::default()
        }
    }
}
