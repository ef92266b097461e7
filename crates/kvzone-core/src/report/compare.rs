//! Two reports beside each other: what became better, what became worse, and
//! how sure that is.
//!
//! The two were measured at different times, so rounds are not paired: a change
//! is the ratio of medians, with an interval that draws from the rounds of each
//! by itself ([`crate::statistics::interval::interval_of_ratio`]). A change is
//! named only if the whole interval lies beyond the tolerance.
//!
//! Runs belong together if store, variant, workload, threads, keys, sizes and
//! rate are the same. Where the reports have one store each, and not the same,
//! those two are compared. What else differs (durability, cache, memory limit,
//! profile, version, machine) is said, and does not stop the comparison: it may
//! be what was to be compared.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::record::{Phase, Report, Run, SCHEMA, Status};
use crate::report::figure::Figure;
use crate::report::grid::Grid;
use crate::report::text::{bytes, grouped, or_dash, three_digits};
use crate::statistics::median;
use crate::statistics::verdict::{Comparison, ROUNDS_FOR_A_CLAIM, Verdict, compare_apart};
use crate::workload;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The whole interval lies on the better side of the tolerance.
    Better,
    /// The whole interval lies on the worse side of it.
    Worse,
    /// The whole interval lies within it.
    Same,
    /// The interval reaches across: noise drowns the difference.
    Unclear,
    /// One round, or a figure that one of them does not have.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Cell {
    /// Workload and store, and what tells them from others.
    pub what: String,
    pub figure: Figure,
    /// Medians of the first report and of the second.
    pub medians: (Option<f64>, Option<f64>),
    /// The second by the first.
    pub comparison: Option<Comparison>,
    pub change: Change,
}

#[derive(Clone, Debug, Default)]
pub struct Differences {
    /// In the order of the first report, all figures of one store together.
    pub cells: Vec<Cell>,
    /// Stores that ended well in the first report, and not in the second.
    pub broken: Vec<String>,
    pub notes: Vec<String>,
}

impl Differences {
    /// True if one of these figures became worse, or a store broke.
    pub fn is_worse(&self, by: &[&str]) -> bool {
        let worse = |cell: &Cell| cell.change == Change::Worse && by.contains(&cell.figure.name);
        !self.broken.is_empty() || self.cells.iter().any(worse)
    }
}

/// What runs must have alike to belong together, as text that tells them apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    store: String,
    rest: String,
}

type Groups<'a> = BTreeMap<Group, Vec<&'a Run>>;

/// Compares two reports; figures within `tolerance` of each other (0.02 is
/// 2 %) are the same. A usage error if they have nothing in common.
pub fn differences(before: &Report, after: &Report, tolerance: f64) -> Result<Differences> {
    for report in [before, after] {
        if report.schema != SCHEMA {
            return Err(Error::Usage(format!(
                "a report of schema {:?}: this program reads {SCHEMA:?}",
                report.schema
            )));
        }
    }
    let mut found = Differences::default();
    let (first, second) = (groups(before), groups(after));
    for (group, runs) in &first {
        let Some((other, others)) = counterpart(group, &first, &second) else {
            found
                .notes
                .push(format!("only in the first: {}", group.text()));
            continue;
        };
        let what = match other.store == group.store {
            true => group.text(),
            false => format!("{} and then {}", group.text(), other.store),
        };
        found.add(&what, runs, others, tolerance);
    }
    for group in second.keys() {
        if counterpart(group, &second, &first).is_none() {
            found
                .notes
                .push(format!("only in the second: {}", group.text()));
        }
    }
    if found.cells.is_empty() && found.broken.is_empty() {
        return Err(Error::Usage(format!(
            "the two reports have nothing in common; {}",
            found.notes.join("; ")
        )));
    }
    machines(before, after, &mut found.notes);
    Ok(found)
}

/// The same in the other report, or the only store there if this is the only
/// one here.
fn counterpart<'a, 'b>(
    group: &Group,
    own: &Groups<'_>,
    other: &'a Groups<'b>,
) -> Option<(&'a Group, &'a Vec<&'b Run>)> {
    let only_store = |groups: &Groups<'_>| {
        let first = groups.keys().next().map(|group| group.store.clone());
        first.filter(|store| groups.keys().all(|group| &group.store == store))
    };
    other.get_key_value(group).or_else(|| {
        only_store(own)?;
        let store = only_store(other)?;
        let rest = group.rest.clone();
        other.get_key_value(&Group { store, rest })
    })
}

impl Group {
    fn of(run: &Run) -> Group {
        let mut rest = format!(
            "{}, {} thread{}, {} keys of {} + {} bytes",
            run.workload,
            run.threads,
            if run.threads == 1 { "" } else { "s" },
            grouped(run.keys as f64),
            three_digits(run.key_size),
            three_digits(run.value_size),
        );
        if let Some(rate) = run.target_rate {
            rest += &format!(", {}/s", grouped(rate));
        }
        if let Some(variant) = run.extra.get("variant").and_then(|found| found.as_str()) {
            rest += &format!(", {variant}");
        }
        let store = run.store.clone();
        Group { store, rest }
    }

    fn text(&self) -> String {
        format!("{}: {}", self.store, self.rest)
    }
}

fn groups(report: &Report) -> Groups<'_> {
    let mut found = Groups::new();
    for run in &report.runs {
        let known = workload::find(&run.workload);
        let measured = known.map_or(Phase::Run, |workload| workload.measured_phase());
        let tried = !matches!(run.status, Status::Missing | Status::Unsupported);
        if tried && (run.phase == measured || run.status != Status::Ok) {
            found.entry(Group::of(run)).or_default().push(run);
        }
    }
    found
}

impl Differences {
    fn add(&mut self, what: &str, before: &[&Run], after: &[&Run], tolerance: f64) {
        if let (None, Some(run)) = (bad(before), bad(after)) {
            let reason = run.error.as_deref().unwrap_or("no reason given");
            let text = format!("{what}: {} in the second: {reason}", run.status.name());
            self.broken.push(text);
        }
        for (runs, which) in [(before, "first"), (after, "second")] {
            if bad(runs).is_some() && !(which == "second" && bad(before).is_none()) {
                let text = format!("{what}: did not end well in every round of the {which}");
                self.notes.push(text);
            }
            let rounds = runs.iter().filter(|run| run.status == Status::Ok).count();
            if rounds < ROUNDS_FOR_A_CLAIM {
                self.notes.push(format!(
                    "{what}: {rounds} of the {ROUNDS_FOR_A_CLAIM} rounds that a claim needs in the {which}"
                ));
            }
        }
        conditions(what, before, after, &mut self.notes);
        for &figure in Figure::deciding() {
            let values = |runs: &[&Run]| -> Vec<f64> {
                let good = runs.iter().filter(|run| run.status == Status::Ok);
                good.filter_map(|run| figure.value(run)).collect()
            };
            let (first, second) = (values(before), values(after));
            if first.is_empty() && second.is_empty() {
                continue;
            }
            let comparison = compare_apart(&second, &first, tolerance);
            let change = comparison
                .as_ref()
                .map_or(Change::Unknown, |found| change(found.verdict, figure));
            self.cells.push(Cell {
                what: what.to_string(),
                figure,
                medians: (median(&first), median(&second)),
                comparison,
                change,
            });
        }
    }
}

fn bad<'a>(runs: &[&'a Run]) -> Option<&'a Run> {
    runs.iter().find(|run| run.status != Status::Ok).copied()
}

fn change(verdict: Verdict, figure: Figure) -> Change {
    match (verdict, figure.more_is_better) {
        (Verdict::Higher, true) | (Verdict::Lower, false) => Change::Better,
        (Verdict::Higher, false) | (Verdict::Lower, true) => Change::Worse,
        (Verdict::Equal, _) => Change::Same,
        (Verdict::Noise, _) => Change::Unclear,
        (Verdict::Unknown, _) => Change::Unknown,
    }
}

/// Something that runs may differ in: its name, and what it is.
type Side = (&'static str, fn(&Run) -> String);

/// What differs that was not compared by.
fn conditions(what: &str, before: &[&Run], after: &[&Run], notes: &mut Vec<String>) {
    let (Some(first), Some(second)) = (before.first(), after.first()) else {
        return;
    };
    let sides: [Side; 5] = [
        ("durability", |run| run.durability.to_string()),
        ("profile", |run| run.profile.name().to_string()),
        ("memory budget", |run| {
            or_dash(run.budget_bytes.map(|budget| budget as f64), bytes)
        }),
        ("memory limit", |run| match run.memory_limit_bytes {
            Some(limit) => bytes(limit as f64),
            None => "none".to_string(),
        }),
        ("version", |run| {
            run.version.clone().unwrap_or("unknown".to_string())
        }),
    ];
    let mut differ: Vec<(String, String, String)> = sides
        .iter()
        .map(|(name, of)| (name.to_string(), of(first), of(second)))
        .collect();
    let settings = first.settings.keys().chain(second.settings.keys());
    let names: std::collections::BTreeSet<&String> = settings.collect();
    for name in names {
        let of = |run: &Run| {
            run.settings
                .get(name)
                .map_or("-".to_string(), String::clone)
        };
        differ.push((format!("setting {name}"), of(first), of(second)));
    }
    for (name, first, second) in differ {
        if first != second {
            notes.push(format!("{what}: {name} {first}, and then {second}"));
        }
    }
}

fn machines(before: &Report, after: &Report, notes: &mut Vec<String>) {
    for part in ["processor", "processors", "memory_bytes", "kernel", "disk"] {
        let (first, second) = (&before.machine[part], &after.machine[part]);
        if first != second {
            notes.push(format!(
                "another machine or state: {part} {first}, and then {second}"
            ));
        }
    }
}

pub fn render(found: &Differences) -> String {
    let mut text = String::new();
    let mut cells = found.cells.iter().peekable();
    while let Some(first) = cells.peek() {
        let what = first.what.clone();
        let mut table = Grid {
            heads: ["", "first", "second", "second : first", ""]
                .map(str::to_string)
                .to_vec(),
            words: 1,
            rows: Vec::new(),
        };
        while let Some(cell) = cells.next_if(|cell| cell.what == what) {
            table.rows.push(row(cell).to_vec());
        }
        text += &format!("{what}\n{}", table.terminal());
    }
    for broken in &found.broken {
        text += &format!("Worse: {broken}\n");
    }
    for note in &found.notes {
        text += &format!("Note: {note}\n");
    }
    text
}

fn row(cell: &Cell) -> [String; 5] {
    let comparison = cell.comparison.as_ref();
    [
        cell.figure.heading.to_string(),
        or_dash(cell.medians.0, |value| cell.figure.text(value)),
        or_dash(cell.medians.1, |value| cell.figure.text(value)),
        comparison.map_or_else(|| "-".to_string(), Comparison::text),
        match cell.change {
            Change::Better => "better",
            Change::Worse => "worse",
            Change::Same => "the same",
            Change::Unclear => "noise drowns it",
            Change::Unknown => "cannot be said",
        }
        .to_string(),
    ]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::report::summary::tests::{report, run};

    fn rounds(store: &str, rates: &[f64]) -> Report {
        let rates = rates.iter().enumerate();
        report(
            rates
                .map(|(round, &rate)| run(store, round as u32, rate))
                .collect(),
        )
    }

    fn ops(found: &Differences) -> Change {
        found.cells[0].change
    }

    const BASE: [f64; 5] = [100.0, 101.0, 99.0, 100.0, 102.0];

    #[test]
    fn a_change_is_named_only_beyond_noise_and_tolerance() {
        let times = |factor: f64| rounds("a", &BASE.map(|rate| rate * factor));
        let base = times(1.0);
        let of = |other: &Report, tolerance| differences(&base, other, tolerance).unwrap();
        assert_eq!(ops(&of(&times(1.2), 0.02)), Change::Better);
        assert_eq!(ops(&of(&times(0.8), 0.02)), Change::Worse);
        assert_eq!(ops(&of(&times(0.8), 0.5)), Change::Same);
        let noisy = rounds("a", &[50.0, 150.0, 100.0, 80.0, 130.0]);
        assert_eq!(ops(&of(&noisy, 0.02)), Change::Unclear);
        assert_eq!(ops(&of(&rounds("a", &[300.0]), 0.02)), Change::Unknown);
        assert!(of(&times(0.8), 0.02).is_worse(&["ops"]));
        assert!(!of(&times(0.8), 0.02).is_worse(&["p99"]));
        assert!(!of(&times(1.2), 0.02).is_worse(&["ops"]));
    }

    #[test]
    fn less_of_a_latency_is_better() {
        let (before, mut after) = (rounds("a", &BASE), rounds("a", &BASE));
        for run in &mut after.runs {
            run.latency_ns.as_mut().unwrap().p99 = 15;
        }
        let found = differences(&before, &after, 0.02).unwrap();
        let p99 = found.cells.iter().find(|cell| cell.figure.name == "p99");
        assert_eq!(p99.unwrap().change, Change::Better);
        let back = differences(&after, &before, 0.02).unwrap();
        assert!(back.is_worse(&["p99"]));
    }

    #[test]
    fn two_stores_alone_are_compared_and_strangers_are_not() {
        let found = differences(&rounds("a", &BASE), &rounds("b", &BASE), 0.02).unwrap();
        assert!(found.cells[0].what.contains("and then b"), "{found:?}");
        let mut two = rounds("a", &BASE);
        two.runs.extend(rounds("b", &BASE).runs);
        let error = differences(&two, &rounds("c", &BASE), 0.02).unwrap_err();
        assert!(error.to_string().contains("nothing in common"), "{error}");
    }

    #[test]
    fn a_store_that_breaks_is_worse_and_other_conditions_are_told() {
        let (before, mut after) = (rounds("a", &BASE), rounds("a", &BASE));
        after.runs[4].status = Status::Crashed;
        after.runs[4].error = Some("SIGSEGV".to_string());
        after.runs[0].budget_bytes = Some(1);
        let found = differences(&before, &after, 0.02).unwrap();
        assert!(found.is_worse(&[]));
        let text = render(&found);
        assert!(text.contains("crashed in the second: SIGSEGV"), "{text}");
        assert!(
            text.contains("memory budget 64 MiB, and then 1 B"),
            "{text}"
        );
        let mut other = before.clone();
        other.schema = "kvzone/9".to_string();
        assert!(differences(&before, &other, 0.02).is_err());
    }
}
