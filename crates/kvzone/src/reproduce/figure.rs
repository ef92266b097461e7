//! Figures as data: the stores compared, the points, the work at each, the columns shown and
//! the paper's claims. One file of `figures/` holds the figures of one paper.
//!
//! A figure may name another that it is `like`, and then states only the differences. A point
//! has the fields of its paper's `point`, then of its figure's, then its own.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use kvzone_core::adapter::DurabilityName;
use kvzone_core::error::{Error, Result};
use kvzone_core::size;
use kvzone_core::workload::OperationKind;
use serde::{Deserialize, Deserializer};
use toml::{Table, Value};

use super::claims::Rule;
use super::columns::{self, Column};

const FILES: [(&str, &str); 5] = [
    ("zdb", include_str!("figures/zdb.toml")),
    ("forestdb", include_str!("figures/forestdb.toml")),
    ("wisckey", include_str!("figures/wisckey.toml")),
    ("alphard", include_str!("figures/alphard.toml")),
    ("p-fetch", include_str!("figures/p-fetch.toml")),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paper {
    /// Share of the paper's data, unless asked otherwise.
    pub(super) scale: f64,
    /// Rounds, likewise.
    pub(super) rounds: u32,
    /// Sentences for the conditions.
    pub(super) conditions: String,
    pub(super) durability: DurabilityName,
    /// Each store's memory, see [`amount`].
    pub(super) cache: String,
    /// Share of a value's bytes that compress away.
    #[serde(default)]
    pub(super) compressible: f64,
    /// A worker's memory limit by its data; none: no limit.
    pub(super) memory_by_data: Option<f64>,
    /// The least memory limit.
    #[serde(default)]
    pub(super) least_memory: String,
    /// The least data.
    #[serde(default)]
    pub(super) least_bytes: f64,
    /// Puts of workload overwrite, by keys.
    #[serde(default = "one")]
    pub(super) overwrites: f64,
    /// Settings by store, see [`amount`].
    #[serde(default)]
    pub(super) settings: BTreeMap<String, BTreeMap<String, String>>,
    point: Table,
    figure: Vec<Table>,
}

fn one() -> f64 {
    1.0
}

#[derive(Debug)]
pub(super) struct Figure {
    pub(super) says: Says,
    pub(super) points: Vec<Point>,
    pub(super) columns: Vec<&'static Column>,
    pub(super) paper: &'static Paper,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Says {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) axis: String,
    #[serde(default = "store")]
    pub(super) who: String,
    /// The work, in words, for the conditions.
    pub(super) what: String,
    /// The stores: the first is compared with each of the others.
    #[serde(deserialize_with = "contestants")]
    pub(super) stores: Vec<Contestant>,
    /// Tables: the workload whose cells they show, all where it is empty, and a title.
    #[serde(default = "one_table")]
    pub(super) tables: Vec<(String, String)>,
    columns: Vec<String>,
    #[serde(default)]
    pub(super) claims: Vec<Rule>,
    points: Vec<Table>,
    #[serde(default)]
    point: Table,
}

fn store() -> String {
    "store".to_string()
}

fn one_table() -> Vec<(String, String)> {
    vec![(String::new(), String::new())]
}

/// A store as it takes part: by its name alone, or with settings of its own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Contestant {
    pub(super) label: String,
    pub(super) store: String,
    #[serde(default)]
    pub(super) options: BTreeMap<String, String>,
    /// Compacted before it is measured.
    #[serde(default)]
    pub(super) compact: bool,
    /// Left out, and said so, where it is not there and nobody asked for it.
    #[serde(default)]
    pub(super) may_miss: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Named {
    Alone(String),
    Variant(Contestant),
}

fn contestants<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Vec<Contestant>, D::Error> {
    let one = |named| match named {
        Named::Alone(name) => plain(&name),
        Named::Variant(it) => it,
    };
    Ok(Vec::deserialize(from)?.into_iter().map(one).collect())
}

pub(super) fn plain(name: &str) -> Contestant {
    Contestant {
        label: name.to_string(),
        store: name.to_string(),
        ..Contestant::default()
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default = "point", deny_unknown_fields)]
pub(super) struct Point {
    pub(super) label: String,
    /// Left out unless all points are asked for.
    pub(super) extra: bool,
    /// Workloads, each with a load of its own; the first is the point.
    pub(super) workloads: Vec<String>,
    pub(super) key_bytes: u64,
    /// Keys of the 2-level pattern, in place of keys that are spread evenly.
    pub(super) two_level: bool,
    pub(super) set: Option<String>,
    pub(super) value_bytes: u64,
    /// Bytes of data at a scale of 1.
    pub(super) full_bytes: f64,
    /// Operations at a scale of 1; none: each key once where that is the workload, else as
    /// many as a time allows.
    pub(super) operations: Option<f64>,
    pub(super) threads: u32,
    /// Entries of a batch of a workload that writes, at least and at most.
    pub(super) batch: (u32, u32),
    /// Share of updates in workload mixed.
    pub(super) update_percent: Option<u32>,
    /// Updates a second of one writer beside the threads.
    pub(super) writer_rate: Option<f64>,
    pub(super) scan_entries: Option<u64>,
    /// A scan visits the so-manieth part of all.
    pub(super) scan_part: Option<u64>,
    /// Exponent of the law over groups of keys.
    pub(super) skew: Option<f64>,
    /// Operations a second of an open loop.
    pub(super) rate: Option<f64>,
    /// An open loop at 70 % of what each store had at this point, which comes before.
    pub(super) share_of: Option<String>,
    pub(super) cold: bool,
    pub(super) warm: bool,
    pub(super) options: BTreeMap<String, String>,
    /// KiB that the kernel reads ahead; none: as it is.
    pub(super) read_ahead: Option<u32>,
    /// Steps behind the load, of which the last is measured; none: the workload's own phase.
    pub(super) steps: Vec<StepOf>,
    pub(super) published: BTreeMap<String, f64>,
}

/// One thread, values of 1 KB, as fast as it goes.
fn point() -> Point {
    Point {
        key_bytes: 16,
        value_bytes: 1 << 10,
        threads: 1,
        batch: (1, 1),
        ..Point::default()
    }
}

impl Point {
    /// Bytes of an entry of made-up keys.
    pub(super) fn entry_bytes(&self) -> f64 {
        (self.key_bytes + self.value_bytes) as f64
    }

    /// Entries of a batch; a workload that only reads, without a writer, has none.
    pub(super) fn batch_of(&self, workload: &str) -> (u32, u32) {
        let only_reads = match workload {
            "mixed" => self.update_percent == Some(0),
            "read-random" | "scan-random" => self.writer_rate.is_none(),
            _ => false,
        };
        if only_reads { (1, 1) } else { self.batch }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepOf {
    pub(super) act: StepKind,
    #[serde(default)]
    pub(super) workload: String,
    /// Operations by keys.
    #[serde(default = "one")]
    pub(super) keys: f64,
    /// Operations of workload mixed, in place of its own.
    pub(super) mix: Option<Vec<(OperationKind, u32)>>,
    pub(super) threads: Option<u32>,
    pub(super) batch: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum StepKind {
    Work,
    Reopen,
    Compact,
    Compacting,
}

/// A number of bytes: `memory/N` is a part of the memory limit, `8MiB` a size; none for other
/// text.
pub(super) fn amount(text: &str, memory: u64) -> Option<u64> {
    match text.strip_prefix("memory/") {
        Some(part) => Some(memory / part.parse::<u64>().ok().filter(|part| *part > 0)?),
        None => size::parse(text).ok().filter(|_| text.ends_with('B')),
    }
}

static FIGURES: LazyLock<std::result::Result<Vec<Figure>, String>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for (file, text) in FILES {
        let found = read(text);
        all.extend(found.map_err(|reason| format!("the figures of {file}: {reason}"))?);
    }
    Ok(all)
});

pub(super) fn all() -> Result<&'static [Figure]> {
    let read = FIGURES.as_ref();
    Ok(read.map_err(|reason| Error::Usage(reason.clone()))?)
}

fn read(text: &str) -> std::result::Result<Vec<Figure>, String> {
    let paper: Paper = toml::from_str(text).map_err(|error| error.to_string())?;
    // They are read once, and live as long as the program.
    let paper: &'static Paper = Box::leak(Box::new(paper));
    let mut tables: Vec<Table> = Vec::new();
    let mut figures = Vec::new();
    for own in &paper.figure {
        let mut own = own.clone();
        let mut table = match own.remove("like") {
            None => Table::new(),
            Some(like) => {
                let mut before = tables.iter();
                let found = before.find(|table| table.get("name") == Some(&like));
                found.cloned().ok_or(format!("no figure {like} before"))?
            }
        };
        if let (Some(Value::Table(theirs)), Some(Value::Table(point))) =
            (table.get("point"), own.get_mut("point"))
        {
            *point = over(theirs, point);
        }
        table.extend(own);
        let says: Says = table.clone().try_into().map_err(describe)?;
        let common = over(&paper.point, &says.point);
        let points = says.points.iter();
        let points = points.map(|point| over(&common, point).try_into().map_err(describe));
        let columns = says.columns.iter().map(|name| columns::find(name));
        let figure = Figure {
            points: points.collect::<std::result::Result<_, _>>()?,
            columns: columns.collect::<std::result::Result<_, _>>()?,
            paper,
            says,
        };
        let checked = figure
            .says
            .claims
            .iter()
            .try_for_each(|rule| rule.check(&figure));
        checked?;
        figures.push(figure);
        tables.push(table);
    }
    Ok(figures)
}

fn describe(error: toml::de::Error) -> String {
    error.to_string()
}

fn over(below: &Table, above: &Table) -> Table {
    let mut table = below.clone();
    table.extend(above.clone());
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_unique() {
        let unique = |labels: Vec<&str>, of: &str| {
            let mut sorted = labels.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), labels.len(), "{of}");
        };
        let names = all()
            .unwrap()
            .iter()
            .map(|figure| figure.says.name.as_str());
        unique(names.collect(), "figures");
        for figure in all().unwrap() {
            let points = figure.points.iter().map(|point| point.label.as_str());
            unique(points.collect(), &figure.says.name);
            let stores = figure.says.stores.iter().map(|one| one.label.as_str());
            unique(stores.collect(), &figure.says.name);
        }
    }

    #[test]
    fn every_figure_issues_known_workloads_and_shows_them() {
        for figure in all().unwrap() {
            let name = &figure.says.name;
            assert!(figure.points.iter().any(|point| !point.extra), "{name}");
            let issued: Vec<&String> = figure.points.iter().flat_map(|it| &it.workloads).collect();
            for workload in &issued {
                assert!(kvzone_core::workload::find(workload).is_ok());
                let shows = |(shown, _): &(String, String)| shown.is_empty() || shown == *workload;
                assert!(figure.says.tables.iter().any(shows), "{name}");
            }
            for (shown, _) in &figure.says.tables {
                assert!(
                    shown.is_empty() || issued.contains(&shown),
                    "{name}: {shown}"
                );
            }
        }
    }

    #[test]
    fn a_share_is_of_a_point_before_it_with_values_of_the_same_size() {
        for figure in all().unwrap() {
            for (number, point) in figure.points.iter().enumerate() {
                if let Some(of) = &point.share_of {
                    let peak = figure.points[..number].iter().find(|it| &it.label == of);
                    assert_eq!(peak.unwrap().value_bytes, point.value_bytes);
                }
            }
        }
    }

    #[test]
    fn amounts_are_sizes_or_parts_of_the_memory() {
        assert_eq!(amount("memory/4", 400), Some(100));
        assert_eq!(amount("8MiB", 0), Some(8 << 20));
        for other in ["10", "off", "memory/0", "memory/"] {
            assert_eq!(amount(other, 400), None);
        }
    }

    #[test]
    fn only_what_writes_has_batches() {
        let point = Point {
            batch: (10, 100),
            update_percent: Some(0),
            ..point()
        };
        assert_eq!(point.batch_of("mixed"), (1, 1));
        assert_eq!(point.batch_of("overwrite"), (10, 100));
        assert_eq!(point.batch_of("read-random"), (1, 1));
        let beside = Point {
            writer_rate: Some(1.0),
            ..point
        };
        assert_eq!(beside.batch_of("read-random"), (10, 100));
    }
}
