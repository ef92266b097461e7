//! The workloads that have names.
//!
//! A workload is a mix of operations with weights, a choice of keys, and what
//! has to be in the store before. Sizes, threads, rate and length are not its
//! business: they are in [`Load`](crate::job::Load), the same for all of them.
//!
//! `fill-*` are their own load: each key is put exactly once, in key order or
//! in a seeded random order, and that is what is measured. All others but
//! `scan-sorted` begin with a load in random order, as stores in use were filled.
//!
//! `ycsb-a` to `ycsb-f` are the core workloads of Cooper et al., "Benchmarking
//! Cloud Serving Systems with YCSB", SoCC 2010, section 4, with a value in
//! place of their ten fields: an update puts the whole value. Their keys are
//! chosen by YCSB's likeness of a zipfian law unless the load says otherwise.

use crate::error::{Error, Result};
use crate::job::{Popularity, SizeChoice};
use crate::names::nearest;
use crate::record::Phase;

/// One kind of operation.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum OperationKind {
    /// Puts a key that is not there.
    Insert,
    /// Puts a key that was loaded.
    Update,
    /// Gets a key.
    Read,
    /// Gets a key, and puts it.
    ReadModifyWrite,
    /// Deletes a key.
    Delete,
    /// Visits the entries from a key on: 1 to 100, unless the load says
    /// otherwise.
    Scan,
    /// Gets a key that was never put.
    ReadMissing,
    /// Reads all keys in key order, by scans where the store has them, else
    /// by gets.
    ReadInOrder,
    /// Visits every entry of the store in key order, by one scan; each is an operation.
    Walk,
    /// The same from the last to the first.
    WalkBackwards,
}

impl OperationKind {
    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            OperationKind::Insert => "insert",
            OperationKind::Update => "update",
            OperationKind::Read => "read",
            OperationKind::ReadModifyWrite => "read-modify-write",
            OperationKind::Delete => "delete",
            OperationKind::Scan => "scan",
            OperationKind::ReadMissing => "read-missing",
            OperationKind::ReadInOrder => "read-in-order",
            OperationKind::Walk => "walk",
            OperationKind::WalkBackwards => "walk-backwards",
        }
    }

    /// True if the store is changed.
    pub fn writes(self) -> bool {
        matches!(
            self,
            OperationKind::Insert
                | OperationKind::Update
                | OperationKind::ReadModifyWrite
                | OperationKind::Delete
        )
    }

    /// True if something is read.
    pub fn reads(self) -> bool {
        matches!(
            self,
            OperationKind::Read
                | OperationKind::ReadModifyWrite
                | OperationKind::Scan
                | OperationKind::ReadMissing
                | OperationKind::ReadInOrder
        ) || self.walks()
    }

    /// True if every entry is visited.
    pub fn walks(self) -> bool {
        matches!(self, OperationKind::Walk | OperationKind::WalkBackwards)
    }

    /// True if a store without key order cannot do it.
    pub fn needs_order(self) -> bool {
        self == OperationKind::Scan || self.walks()
    }
}

/// In which order keys are put for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillOrder {
    /// In key order.
    Sequential,
    /// In a seeded random order.
    Random,
}

/// A named workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// As in `--workload`.
    pub name: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// How the store is filled: measured itself for `fill-*`, else before.
    pub fill: FillOrder,
    /// Operations after the load, with their weights in percent; empty for
    /// `fill-*`.
    pub mix: &'static [(OperationKind, u32)],
    /// Which keys, unless the load says otherwise.
    pub popularity: Popularity,
    /// Sizes that belong to it, unless the load says otherwise.
    pub sizes: Option<fn() -> Result<Sizes>>,
    /// Threads that update beside those that read, unless the load says
    /// otherwise.
    pub writers: u32,
}

/// Sizes that belong to a workload; what is None is the load's business.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    /// Of keys.
    pub key: Option<SizeChoice>,
    /// Of values.
    pub value: Option<SizeChoice>,
    /// Entries that a scan visits.
    pub scan: Option<SizeChoice>,
}

/// What most workloads have in common.
const PLAIN: Workload = Workload {
    name: "",
    summary: "",
    fill: FillOrder::Random,
    mix: &[],
    popularity: Popularity::Uniform,
    sizes: None,
    writers: 0,
};

impl Workload {
    /// The phase that is the point of it: the load of `fill-*`, else the run.
    pub fn measured_phase(&self) -> Phase {
        if self.mix.is_empty() {
            Phase::Load
        } else {
            Phase::Run
        }
    }

    /// True if its mix has an operation of this kind.
    pub fn has(&self, kind: OperationKind) -> bool {
        self.mix.iter().any(|&(of_mix, _)| of_mix == kind)
    }

    /// True if nothing after the load changes the store.
    pub fn only_reads(&self) -> bool {
        self.mix.iter().all(|(kind, _)| !kind.writes())
    }

    /// The mix with another share of updates; None if it is not a mix of reads
    /// and updates alone, which `mixed` is, or the share is above 100.
    pub fn with_updates(&self, percent: u32) -> Option<Vec<(OperationKind, u32)>> {
        let reads = 100_u32.checked_sub(percent)?;
        (self.name == MIXED).then(|| {
            let mix = [(Read, reads), (Update, percent)];
            mix.into_iter().filter(|&(_, weight)| weight > 0).collect()
        })
    }

    /// True if nothing is read.
    pub fn only_writes(&self) -> bool {
        self.mix.iter().all(|(kind, _)| !kind.reads())
    }

    /// True if a store without key order cannot run it.
    pub fn needs_order(&self) -> bool {
        self.mix.iter().any(|(kind, _)| kind.needs_order())
    }
}

use OperationKind::{
    Delete, Insert, Read, ReadInOrder, ReadMissing, ReadModifyWrite, Scan, Update, Walk,
    WalkBackwards,
};

/// The workload whose share of updates can be chosen.
pub const MIXED: &str = "mixed";

/// Those that come from no production system.
const GENERAL: &[Workload] = &[
    Workload {
        name: "fill-sequential",
        summary: "put every key once, in key order",
        fill: FillOrder::Sequential,
        popularity: Popularity::Sequential,
        ..PLAIN
    },
    Workload {
        name: "fill-random",
        summary: "put every key once, in random order",
        ..PLAIN
    },
    Workload {
        name: "overwrite",
        summary: "put loaded keys again, chosen at random",
        mix: &[(Update, 100)],
        ..PLAIN
    },
    Workload {
        name: "read-random",
        summary: "get loaded keys, chosen at random",
        mix: &[(Read, 100)],
        ..PLAIN
    },
    Workload {
        name: "read-sequential",
        summary: "read all keys in key order, by scans of 100 where the store has them, else by gets",
        mix: &[(ReadInOrder, 100)],
        popularity: Popularity::Sequential,
        ..PLAIN
    },
    Workload {
        name: "walk",
        summary: "visit every entry in key order, by one scan of the whole store",
        mix: &[(Walk, 100)],
        ..PLAIN
    },
    Workload {
        name: "walk-backwards",
        summary: "visit every entry from the last to the first, by one scan (db_bench readreverse)",
        mix: &[(WalkBackwards, 100)],
        ..PLAIN
    },
    Workload {
        name: MIXED,
        summary: "get and put loaded keys, chosen at random; 20 % are updates, or --update-percent; with --batch, updates are gathered",
        mix: &[(Read, 80), (Update, 20)],
        ..PLAIN
    },
    Workload {
        name: "scan-random",
        summary: "visit 1 to 100 entries, or --scan-length, from a loaded key on, chosen at random",
        mix: &[(Scan, 100)],
        ..PLAIN
    },
    Workload {
        name: "scan-sorted",
        summary: "scan-random, on what was loaded in key order",
        fill: FillOrder::Sequential,
        mix: &[(Scan, 100)],
        ..PLAIN
    },
    Workload {
        name: "delete-random",
        summary: "delete loaded keys, each once, in random order",
        mix: &[(Delete, 100)],
        ..PLAIN
    },
    Workload {
        name: "churn",
        summary: "50 % inserts and 50 % deletes of the oldest: loaded keys first, then those inserted (KVZone, section 4.2.2)",
        mix: &[(Insert, 50), (Delete, 50)],
        ..PLAIN
    },
    Workload {
        name: "churn-read",
        summary: "50 % reads, 25 % inserts and 25 % deletes, each thread of its own keys (KVZone, section 4.2.3)",
        mix: &[(Read, 50), (Insert, 25), (Delete, 25)],
        ..PLAIN
    },
    Workload {
        name: "ycsb-a",
        summary: "YCSB A: 50 % reads, 50 % updates, zipfian",
        mix: &[(Read, 50), (Update, 50)],
        popularity: Popularity::YcsbZipfian,
        ..PLAIN
    },
    Workload {
        name: "ycsb-b",
        summary: "YCSB B: 95 % reads, 5 % updates, zipfian",
        mix: &[(Read, 95), (Update, 5)],
        popularity: Popularity::YcsbZipfian,
        ..PLAIN
    },
    Workload {
        name: "ycsb-c",
        summary: "YCSB C: reads, zipfian",
        mix: &[(Read, 100)],
        popularity: Popularity::YcsbZipfian,
        ..PLAIN
    },
    Workload {
        name: "ycsb-d",
        summary: "YCSB D: 95 % reads of the latest, 5 % inserts",
        mix: &[(Read, 95), (Insert, 5)],
        popularity: Popularity::Latest,
        ..PLAIN
    },
    Workload {
        name: "ycsb-e",
        summary: "YCSB E: 95 % scans of 1 to 100 entries, 5 % inserts, zipfian",
        mix: &[(Scan, 95), (Insert, 5)],
        popularity: Popularity::YcsbZipfian,
        ..PLAIN
    },
    Workload {
        name: "ycsb-f",
        summary: "YCSB F: 50 % reads, 50 % read-modify-writes, zipfian",
        mix: &[(Read, 50), (ReadModifyWrite, 50)],
        popularity: Popularity::YcsbZipfian,
        ..PLAIN
    },
    Workload {
        name: "read-missing",
        summary: "get keys that are not there, among those that are (db_bench readmissing)",
        mix: &[(ReadMissing, 100)],
        ..PLAIN
    },
    Workload {
        name: "read-hot",
        summary: "get keys of the same hundredth of all (db_bench readhot)",
        mix: &[(Read, 100)],
        popularity: Popularity::HotSet {
            keys: 0.01,
            choices: 1.0,
        },
        ..PLAIN
    },
    Workload {
        name: "seek-random",
        summary: "find the entry at or after a key, chosen at random (db_bench seekrandom)",
        mix: &[(Scan, 100)],
        sizes: Some(|| {
            let scan = Some(SizeChoice::Fixed(1));
            Ok(Sizes {
                scan,
                ..Sizes::default()
            })
        }),
        ..PLAIN
    },
    Workload {
        name: "delete-sequential",
        summary: "delete loaded keys in key order (db_bench deleteseq)",
        mix: &[(Delete, 100)],
        popularity: Popularity::Sequential,
        ..PLAIN
    },
    Workload {
        name: "fill-large",
        summary: "put every key once, in random order, with values of 100,000 bytes (db_bench fill100K)",
        sizes: Some(|| {
            let value = Some(SizeChoice::Fixed(100_000));
            Ok(Sizes {
                value,
                ..Sizes::default()
            })
        }),
        ..PLAIN
    },
    Workload {
        name: "read-while-writing",
        summary: "get loaded keys, while one thread updates, or --writers (db_bench readwhilewriting)",
        mix: &[(Read, 100)],
        writers: 1,
        ..PLAIN
    },
];

/// Names that LevelDB's and RocksDB's db_bench have for the same.
pub const ALIASES: &[(&str, &str)] = &[
    ("fillseq", "fill-sequential"),
    ("fillrandom", "fill-random"),
    ("fill100K", "fill-large"),
    ("overwrite", "overwrite"),
    ("readrandom", "read-random"),
    ("readseq", "read-sequential"),
    ("readreverse", "walk-backwards"),
    ("readmissing", "read-missing"),
    ("readhot", "read-hot"),
    ("seekrandom", "seek-random"),
    ("deleteseq", "delete-sequential"),
    ("deleterandom", "delete-random"),
    ("readwhilewriting", "read-while-writing"),
    ("readrandomwriterandom", "mixed"),
];

/// What was traced of some program; its operations are the trace's.
static TRACE: Workload = Workload {
    name: "trace:FILE",
    summary: "what a program was recorded asking of its store (`kvzone run --record`, `kvzone trace`)",
    mix: &[(Read, 50), (Update, 50)],
    ..PLAIN
};

/// True of the name of a workload that replays a trace.
pub fn is_trace(name: &str) -> bool {
    name.starts_with(crate::trace::PREFIX)
}

/// All of them, in the order of lists.
pub fn all() -> impl Iterator<Item = &'static Workload> {
    GENERAL.iter().chain(crate::production::PRODUCTION)
}

/// Finds a workload; where there is none of that name, the usage error names
/// the nearest.
///
/// ```
/// use kvzone_core::workload;
/// assert_eq!(workload::find("ycsb-a").unwrap().mix.len(), 2);
/// let error = workload::find("fill-rnadom").unwrap_err();
/// assert!(error.to_string().contains("fill-random"));
/// ```
pub fn find(name: &str) -> Result<&'static Workload> {
    if is_trace(name) {
        return Ok(&TRACE);
    }
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let sought = alias.map_or(name, |&(_, sought)| sought);
    all()
        .find(|workload| workload.name == sought)
        .ok_or_else(|| {
            let near = nearest(name, all().map(|workload| workload.name));
            Error::Usage(format!(
                "there is no workload {name:?}; near it: {}; `kvzone list workloads` shows all",
                near.join(", ")
            ))
        })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_a_mix_add_up_to_a_hundred() {
        for workload in GENERAL {
            let sum: u32 = workload.mix.iter().map(|(_, weight)| weight).sum();
            let expected = if workload.mix.is_empty() { 0 } else { 100 };
            assert_eq!(sum, expected, "{}", workload.name);
        }
    }

    #[test]
    fn only_mixed_has_a_share_of_updates_to_choose() {
        let mixed = find(MIXED).unwrap();
        assert_eq!(mixed.with_updates(20).as_deref(), Some(mixed.mix));
        assert_eq!(mixed.with_updates(0), Some(vec![(Read, 100)]));
        assert_eq!(mixed.with_updates(100), Some(vec![(Update, 100)]));
        assert_eq!(mixed.with_updates(101), None);
        assert_eq!(find("ycsb-a").unwrap().with_updates(20), None);
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = all().map(|workload| workload.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
        for (alias, name) in ALIASES {
            assert_eq!(find(alias).unwrap().name, *name);
        }
    }

    #[test]
    fn the_measured_phase_of_fills_is_the_load() {
        for workload in all() {
            let fills = workload.name.starts_with("fill-");
            let load = workload.measured_phase() == Phase::Load;
            assert_eq!(fills, load, "{}", workload.name);
        }
    }
}
