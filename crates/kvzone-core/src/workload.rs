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
//! `workloads.toml` has them as data, with their sources.

use std::sync::LazyLock;

use crate::error::{Error, Result};
use crate::job::{Popularity, SizeChoice};
use crate::names::unknown;
use crate::production;
use crate::record::Phase;

crate::named! {
    #[derive(PartialOrd, Ord)]
    pub enum OperationKind {
        Insert = "insert",
        Update = "update",
        Read = "read",
        ReadModifyWrite = "read-modify-write",
        Delete = "delete",
        /// Visits the entries from a key on: 1 to 100, unless the load says
        /// otherwise.
        Scan = "scan",
        /// Gets a key that was never put.
        ReadMissing = "read-missing",
        /// Reads all keys in key order, by scans where the store has them, else
        /// by gets.
        ReadInOrder = "read-in-order",
        /// Visits every entry of the store in key order, by one scan; each is an operation.
        Walk = "walk",
        /// The same from the last to the first.
        WalkBackwards = "walk-backwards",
    }
}

impl OperationKind {
    pub fn writes(self) -> bool {
        matches!(
            self,
            OperationKind::Insert
                | OperationKind::Update
                | OperationKind::ReadModifyWrite
                | OperationKind::Delete
        )
    }

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FillOrder {
    Sequential,
    #[default]
    Random,
}

/// A named workload, as `workloads.toml` has it.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// As in `--workload`.
    pub name: String,
    pub summary: String,
    /// How the store is filled: measured itself for `fill-*`, else before.
    #[serde(default)]
    pub fill: FillOrder,
    /// Operations after the load, with their weights in percent; empty for
    /// `fill-*`.
    #[serde(default)]
    pub mix: Vec<(OperationKind, u32)>,
    /// Which keys, unless the load says otherwise.
    #[serde(default = "uniform")]
    pub popularity: Popularity,
    /// Size of keys; this and the next two unless the load says otherwise.
    pub key: Option<SizeChoice>,
    pub value: Option<SizeChoice>,
    pub scan: Option<SizeChoice>,
    /// Sizes that no data of a file describe.
    laws: Option<Laws>,
    /// Threads that update beside those that read, unless the load says
    /// otherwise.
    #[serde(default)]
    pub writers: u32,
}

fn uniform() -> Popularity {
    Popularity::Uniform
}

/// Sizes that are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Laws {
    /// Of Facebook's ETC pool: [`crate::production`].
    Etc,
}

impl Workload {
    /// The phase that is the point of it: the load of `fill-*`, else the run.
    pub fn measured_phase(&self) -> Phase {
        if self.mix.is_empty() {
            Phase::Load
        } else {
            Phase::Run
        }
    }
}

/// Operations with their weights: whether one of them is so.
pub trait Mix {
    fn has(&self, kind: OperationKind) -> bool;
    fn reads(&self) -> bool;
    fn writes(&self) -> bool;
    /// True if a store without key order cannot run it.
    fn needs_order(&self) -> bool;
}

impl Mix for [(OperationKind, u32)] {
    fn has(&self, kind: OperationKind) -> bool {
        self.iter().any(|of| of.0 == kind)
    }

    fn reads(&self) -> bool {
        self.iter().any(|of| of.0.reads())
    }

    fn writes(&self) -> bool {
        self.iter().any(|of| of.0.writes())
    }

    fn needs_order(&self) -> bool {
        self.iter().any(|of| of.0.needs_order())
    }
}

/// The workload whose mix can be chosen.
pub const MIXED: &str = "mixed";

/// A mix for it of reads and so many updates, in percent.
pub fn updates(percent: u32) -> Vec<(OperationKind, u32)> {
    let reads = 100_u32.saturating_sub(percent);
    let mix = [
        (OperationKind::Read, reads),
        (OperationKind::Update, percent),
    ];
    mix.into_iter().filter(|&(_, weight)| weight > 0).collect()
}

#[derive(serde::Deserialize)]
struct File {
    workload: Vec<Workload>,
}

/// A file that cannot be read has no workloads; a test reads it.
static ALL: LazyLock<Vec<Workload>> = LazyLock::new(|| read().unwrap_or_default());

fn read() -> Result<Vec<Workload>> {
    let file: File = toml::from_str(include_str!("workloads.toml"))
        .map_err(|error| Error::Usage(format!("workloads.toml: {error}")))?;
    let with_laws = |mut workload: Workload| {
        if workload.laws == Some(Laws::Etc) {
            let (key, value) = production::etc()?;
            (workload.key, workload.value) = (Some(key), Some(value));
        }
        Ok(workload)
    };
    file.workload.into_iter().map(with_laws).collect()
}

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

/// True of the name of a workload that replays a trace.
pub fn is_trace(name: &str) -> bool {
    name.starts_with(crate::trace::PREFIX)
}

pub fn all() -> impl Iterator<Item = &'static Workload> {
    ALL.iter().filter(|workload| !is_trace(&workload.name))
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
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let sought = alias.map_or(name, |&(_, sought)| sought);
    let is_it = |of: &&Workload| of.name == sought || is_trace(name) && is_trace(&of.name);
    ALL.iter().find(is_it).ok_or_else(|| {
        let words = unknown("workload", name, all().map(|it| it.name.as_str()));
        Error::Usage(format!("{words}; `kvzone list workloads` shows all"))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_a_mix_add_up_to_a_hundred() {
        // Its paper gives a ratio.
        for workload in all().filter(|workload| workload.name != "etc") {
            let sum: u32 = workload.mix.iter().map(|(_, weight)| weight).sum();
            let expected = if workload.mix.is_empty() { 0 } else { 100 };
            assert_eq!(sum, expected, "{}", workload.name);
        }
    }

    #[test]
    fn a_mix_with_no_reads_or_no_updates_does_not_name_them() {
        assert_eq!(updates(20), find(MIXED).unwrap().mix);
        assert_eq!(updates(0), [(OperationKind::Read, 100)]);
        assert_eq!(updates(100), [(OperationKind::Update, 100)]);
    }

    #[test]
    fn names_are_unique() {
        assert!(read().is_ok_and(|all| all.len() > 30));
        let mut names: Vec<_> = all().map(|workload| &workload.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
        for (alias, name) in ALIASES {
            assert_eq!(&find(alias).unwrap().name, name);
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
