//! `cambium stats`: counters and sizes, those that matter first.

use std::fmt::Write as _;
use std::path::PathBuf;

use cambium::{Statistic, StatisticValue, Statistics, Store};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::failure::{Failure, Status};
use crate::output::{print, print_json};
use crate::reports::human_bytes;

/// Lines of the first group.
const FIRST_LINES: usize = 10;

/// What a person asks first, in this order; of those that a store has, the first
/// [`FIRST_LINES`] are shown.
const FIRST: &[&str] = &[
    "engine",
    "keys",
    "entries",
    "namespaces",
    "space_bytes",
    "size_bytes",
    "free_bytes",
    "value_log_bytes",
    "tree_bytes",
    "tree_entries",
    "space_amplification",
    "stale_share",
    "value_log_live_bytes",
    "value_log_garbage_bytes",
    "user_bytes_written",
    "write_amplification",
    "index_memory_bytes",
    "cache_bytes",
    "node_cache_hit_share",
    "value_reads",
    "members",
    "members_current",
    "syncs",
];

/// The groups of the rest: a statistic belongs to the first that has a word of its
/// name. Engines name alike what is alike, so no engine is named here.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "memory",
        &["limit_bytes", "reserved_bytes", "environment_memory"],
    ),
    ("cache", &["cache", "address", "lookups_by"]),
    ("snapshots", &["snapshot", "held", "old_versions"]),
    (
        "compaction and collection",
        &[
            "compact",
            "collect",
            "stale",
            "hole",
            "garbage",
            "moved",
            "erased",
            "discarded",
            "tombstone",
            "reserve",
        ],
    ),
    ("recovery", &["replayed", "rebuilt", "epoch"]),
    ("reading", &["_reads", "lookups", "read"]),
    (
        "writing",
        &[
            "written",
            "write",
            "writer",
            "sync",
            "flush",
            "packed",
            "sequence",
            "checkpoint",
            "pending",
            "ahead",
            "waiting",
        ],
    ),
    (
        "index",
        &[
            "index", "node", "trie", "tree", "leaf", "bucket", "table", "slot",
        ],
    ),
    ("space", &["bytes", "segment", "entries", "free"]),
];

#[derive(Debug, Args)]
pub struct StatsArguments {
    /// The store
    pub path: PathBuf,
    /// Every line, in groups
    #[arg(long)]
    pub all: bool,
    /// Answer in JSON: every line
    #[arg(long)]
    pub json: bool,
}

/// Writes the statistics.
pub fn run(store: &Store, arguments: &StatsArguments) -> Result<Status, Failure> {
    let mut statistics = store.stats()?;
    if !statistics.entries.iter().any(|one| one.name == "engine") {
        let mut named = Statistics::default();
        named.text(
            "engine",
            store.capabilities().engine,
            "the engine of this store",
        );
        named.entries.append(&mut statistics.entries);
        statistics = named;
    }
    if arguments.json {
        print_json(&as_json(&statistics))?;
    } else {
        print(&as_text(&statistics, arguments.all))?;
    }
    Ok(Status::Done)
}

fn as_json(statistics: &Statistics) -> Value {
    let fields = statistics.entries.iter().map(|statistic| {
        let value = match &statistic.value {
            StatisticValue::Count(number) | StatisticValue::Bytes(number) => json!(number),
            StatisticValue::Ratio(ratio) => json!(ratio),
            StatisticValue::Text(text) => json!(text),
        };
        (statistic.name.to_string(), value)
    });
    Value::Object(fields.collect::<Map<_, _>>())
}

fn as_text(statistics: &Statistics, all: bool) -> String {
    let groups = groups(statistics);
    let shown = if all { groups.len() } else { 1 };
    let rows = || groups[..shown].iter().flat_map(|(_, group)| group);
    let width = |of: fn(&Row) -> &str| rows().map(|row| of(row).len()).max().unwrap_or(0);
    let (names, values) = (width(|row| row.name), width(|row| &row.value));
    let mut text = String::new();
    for (heading, group) in &groups[..shown] {
        if !heading.is_empty() {
            _ = writeln!(text, "\n{heading}:");
        }
        for Row {
            name,
            value,
            meaning,
        } in group
        {
            _ = writeln!(text, "{name:<names$}  {value:>values$}  {meaning}");
        }
    }
    if !all && groups.len() > 1 {
        let more: usize = groups[1..].iter().map(|(_, group)| group.len()).sum();
        _ = writeln!(text, "\n{more} more with --all");
    }
    text
}

/// A line for people.
struct Row {
    name: &'static str,
    value: String,
    meaning: &'static str,
}

impl Row {
    fn of(statistic: &Statistic) -> Self {
        Row {
            name: statistic.name,
            value: match &statistic.value {
                StatisticValue::Count(number) => number.to_string(),
                StatisticValue::Bytes(bytes) => human_bytes(*bytes),
                StatisticValue::Ratio(ratio) => format!("{ratio:.3}"),
                StatisticValue::Text(text) => text.clone(),
            },
            meaning: statistic.meaning,
        }
    }
}

/// The first group without a heading, then the others that are not empty.
fn groups(statistics: &Statistics) -> Vec<(&'static str, Vec<Row>)> {
    let find = |name: &&str| statistics.entries.iter().find(|one| one.name == *name);
    let first: Vec<&Statistic> = FIRST.iter().filter_map(find).take(FIRST_LINES).collect();
    let mut groups = vec![("", first.iter().map(|one| Row::of(one)).collect())];
    let headings = GROUPS.iter().map(|(heading, _)| *heading).chain(["more"]);
    groups.extend(headings.map(|heading| (heading, Vec::new())));
    let rest = statistics.entries.iter();
    for statistic in rest.filter(|one| !first.iter().any(|other| other.name == one.name)) {
        let has_word =
            |(_, words): &(&str, &[&str])| words.iter().any(|word| statistic.name.contains(word));
        let group = GROUPS.iter().position(has_word).unwrap_or(GROUPS.len());
        groups[group + 1].1.push(Row::of(statistic));
    }
    groups.retain(|(_, group)| !group.is_empty());
    groups
}
