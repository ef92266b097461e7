//! What follows from the runs of a report.
//!
//! For each workload one [`Summary`]: a [`Row`] a store with medians over the
//! rounds of the measured phase, and a [`Line`] for each store against the
//! first that ran. A ratio is the median of the rounds' ratios, with its
//! interval; a winner is named where [`crate::statistics::verdict`] allows it.
//!
//! Who is not ranked: a store that failed in any round (what it did not do
//! costs nothing), the calibration stores, and a store whose operation costs
//! less than twice that of `null`, which is the harness's own.

use serde_json::Value;

use crate::record::{Phase, Report, Run, Status};
use crate::report::figure::{FIGURES, Figure};
use crate::report::recovery::Recovery;
use crate::report::text;
use crate::statistics::verdict::{Comparison, ROUNDS_FOR_A_CLAIM, Verdict, compare_rounds};
use crate::statistics::{median, relative_spread};

/// The store that does nothing: what is left is the harness.
pub const NULL: &str = "null";

/// Rounds that differ by more than this share of their median are noisy.
const NOISY: f64 = 0.25;

/// The settings that all runs of a summary had in common; printed above its ratios.
pub fn conditions(run: &Run) -> String {
    let data = run.keys as f64 * (run.key_size + run.value_size);
    let mut parts = vec![
        format!("durability {}", run.durability),
        match run.memory_limit_bytes {
            Some(bytes) => format!("memory limit {}", text::bytes(bytes as f64)),
            None => "no memory limit".to_string(),
        },
        match run.budget_bytes {
            Some(bytes) => format!("memory budget {}", text::bytes(bytes as f64)),
            None => "memory budget unknown".to_string(),
        },
        format!(
            "{} keys of {} + {} bytes ({})",
            text::grouped(run.keys as f64),
            plain(run.key_size),
            plain(run.value_size),
            text::bytes(data)
        ),
        format!("profile {}", run.profile.name()),
        match run.threads {
            1 => "1 thread".to_string(),
            threads => format!("{threads} threads"),
        },
    ];
    if let Some(requests) = run.extra.get("in_flight").and_then(Value::as_u64) {
        parts.push(format!("{requests} requests in flight each"));
        match run.extra.get("workers").and_then(Value::as_u64) {
            Some(0) | None => parts.push("the store's own queue".to_string()),
            Some(workers) => parts.push(format!("{workers} workers")),
        }
    }
    if let Some(rate) = run.target_rate {
        parts.push(format!("open loop at {}/s", text::grouped(rate)));
    }
    parts.join(", ")
}

pub(super) fn plain(value: f64) -> String {
    if value.fract() == 0.0 {
        text::grouped(value)
    } else {
        format!("{value:.1}")
    }
}

/// One store: medians over the rounds that ended well.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub store: String,
    pub version: Option<String>,
    pub rounds: usize,
    pub failure: Option<(Status, String)>,
    /// Medians of all figures, in the order of [`FIGURES`].
    pub medians: Vec<Option<f64>>,
    /// Operations a second of each round that ended well.
    pub rates: Vec<(u32, f64)>,
    /// Operations in each whole second of its fastest round.
    pub over_time: Vec<f64>,
    /// How it came back, where it was opened again.
    pub recovery: Option<Recovery>,
    /// Why it is in no ranking, if it is in none.
    pub unranked: Option<&'static str>,
}

impl Row {
    pub fn ops_per_second(&self) -> Option<f64> {
        self.medians.first().copied().flatten()
    }

    pub fn named(&self) -> String {
        match &self.version {
            Some(version) if !version.is_empty() => format!("{} {version}", self.store),
            _ => self.store.clone(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub store: String,
    pub against: String,
    /// Operations a second, this by that, or why there is no ratio.
    pub comparison: Result<Comparison, &'static str>,
    /// All of it on a line.
    pub text: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub workload: String,
    /// The phase that is the point of it.
    pub phase: Phase,
    /// One of the runs; all had its conditions.
    pub conditions: Run,
    pub rows: Vec<Row>,
    pub lines: Vec<Line>,
    pub warnings: Vec<String>,
}

/// Summarizes each workload of a report, with each number of threads and size apart;
/// `stores` is the order of rows.
pub fn summarize(report: &Report, stores: &[String]) -> Vec<Summary> {
    let mut kinds: Vec<Kind<'_>> = Vec::new();
    for run in &report.runs {
        if !kinds.contains(&kind(run)) {
            kinds.push(kind(run));
        }
    }
    kinds
        .into_iter()
        .filter_map(|kind| summarize_kind(report, kind, stores))
        .collect()
}

/// The facts that runs of one summary share: workload, threads, bytes of a key and a value.
type Kind<'a> = (&'a str, u32, f64, f64);

fn kind(run: &Run) -> Kind<'_> {
    (&run.workload, run.threads, run.key_size, run.value_size)
}

impl Summary {
    /// True for a run that it summarizes.
    pub fn has(&self, run: &Run) -> bool {
        let of = &self.conditions;
        kind(run) == (&self.workload, of.threads, of.key_size, of.value_size)
    }
}

/// Summaries of one workload, which differ in threads and sizes alone.
pub fn sweeps(summaries: &[Summary]) -> impl Iterator<Item = &[Summary]> {
    summaries.chunk_by(|one, next| one.workload == next.workload)
}

fn summarize_kind(report: &Report, own: Kind<'_>, stores: &[String]) -> Option<Summary> {
    let workload = own.0;
    let runs = report.runs.iter().filter(|run| kind(run) == own);
    let runs: Vec<&Run> = runs.collect();
    let phase = match crate::workload::find(workload) {
        Ok(known) => known.measured_phase(),
        Err(_) => Phase::Run,
    };
    let of_phase = runs.iter().find(|run| run.phase == phase);
    let conditions = Run::clone(of_phase.or(runs.first())?);
    let mut rows: Vec<Row> = stores
        .iter()
        .filter_map(|store| row(store, phase, &runs))
        .collect();
    exclude(&mut rows);
    let lines = lines(&rows);
    let warnings = warnings(&rows, &lines, &runs, phase);
    Some(Summary {
        workload: workload.to_string(),
        phase,
        conditions,
        rows,
        lines,
        warnings,
    })
}

fn row(store: &str, phase: Phase, runs: &[&Run]) -> Option<Row> {
    let own: Vec<&Run> = runs
        .iter()
        .copied()
        .filter(|run| run.store == store)
        .collect();
    let failure = own.iter().find(|run| run.status != Status::Ok).map(|run| {
        let reason = run.error.clone().unwrap_or_default();
        (run.status, reason)
    });
    let version = own.iter().find_map(|run| run.version.clone());
    own.first()?;
    let good = measured(&own, phase);
    let middle = |figure: &Figure| {
        let values: Vec<f64> = good.iter().filter_map(|run| figure.value(run)).collect();
        median(&values)
    };
    Some(Row {
        store: store.to_string(),
        version,
        rounds: good.len(),
        failure,
        medians: FIGURES.iter().map(middle).collect(),
        rates: good
            .iter()
            .map(|run| (run.repeat, run.ops_per_second))
            .collect(),
        over_time: over_time(&good),
        recovery: Recovery::of(&own),
        unranked: None,
    })
}

fn over_time(runs: &[&Run]) -> Vec<f64> {
    let rate = |run: &&&Run| run.ops_per_second;
    let fastest = runs
        .iter()
        .max_by(|left, right| rate(left).total_cmp(&rate(right)));
    let Some(run) = fastest else {
        return Vec::new();
    };
    let whole = |second: u64| (second + 1) as f64 <= run.seconds;
    let points = run.timeline.iter().filter(|point| whole(point.second));
    points.map(|point| point.operations as f64).collect()
}

/// The runs of the measured phase that ended well, by round.
fn measured<'a>(runs: &[&'a Run], phase: Phase) -> Vec<&'a Run> {
    let mut good: Vec<&Run> = runs
        .iter()
        .copied()
        .filter(|run| run.phase == phase && run.status == Status::Ok)
        .collect();
    good.sort_by_key(|run| run.repeat);
    good
}

/// Says of each store why it is in no ranking.
fn exclude(rows: &mut [Row]) {
    let harness = rows
        .iter()
        .find(|row| row.store == NULL)
        .and_then(Row::ops_per_second);
    for row in rows {
        row.unranked = match (row.ops_per_second(), harness) {
            _ if row.failure.is_some() => Some("it did not end well in every round"),
            (None, _) => Some("it has no figures"),
            _ if row.store == NULL => Some("it is the harness's own cost"),
            (Some(own), Some(harness)) if own * 2.0 > harness => {
                Some("it costs less than twice the harness itself")
            }
            _ => None,
        };
    }
}

fn lines(rows: &[Row]) -> Vec<Line> {
    let Some(first) = rows.iter().find(|row| row.unranked.is_none()) else {
        return Vec::new();
    };
    rows.iter()
        .filter(|row| row.store != first.store && row.store != NULL)
        .map(|row| {
            let comparison = match row.unranked {
                Some(reason) => Err(reason),
                None => {
                    compare_rounds(&row.rates, &first.rates).ok_or("they have no round in common")
                }
            };
            let text = line_text(row, first, &comparison);
            Line {
                store: row.store.clone(),
                against: first.store.clone(),
                comparison,
                text,
            }
        })
        .collect()
}

fn line_text(row: &Row, first: &Row, comparison: &Result<Comparison, &str>) -> String {
    let head = format!("{} : {}", row.named(), first.named());
    let found = match comparison {
        Err(reason) => return format!("{head}: not ranked, {reason}"),
        Ok(found) => found,
    };
    let verdict = match found.verdict {
        Verdict::Higher => format!("{} is ahead", row.store),
        Verdict::Lower => format!("{} is ahead", first.store),
        Verdict::Equal => "no difference".to_string(),
        Verdict::Noise => "no winner: noise drowns the difference".to_string(),
        Verdict::Unknown => "no winner from fewer than five rounds".to_string(),
    };
    format!("{head} = {}: {verdict}", found.text())
}

fn warnings(rows: &[Row], lines: &[Line], runs: &[&Run], phase: Phase) -> Vec<String> {
    let mut found = Vec::new();
    let rounds = rows.iter().map(|row| row.rounds).max().unwrap_or(0);
    if rounds < ROUNDS_FOR_A_CLAIM && !lines.is_empty() {
        found.push(format!(
            "{rounds} round{}: fewer than the {ROUNDS_FOR_A_CLAIM} that a claim needs (--repeat {ROUNDS_FOR_A_CLAIM})",
            if rounds == 1 { "" } else { "s" }
        ));
    }
    for row in rows {
        let rates: Vec<f64> = row.rates.iter().map(|round| round.1).collect();
        if let Some(spread) = relative_spread(&rates).filter(|&s| s > NOISY) {
            found.push(format!(
                "{}: rounds differ by {:.0} % of their median",
                row.store,
                spread * 100.0
            ));
        }
    }
    for run in runs {
        if run
            .extra
            .get("rate_given_up")
            .is_some_and(|given| given == true)
        {
            let rate = run.target_rate.map_or_else(String::new, text::grouped);
            found.push(format!(
                "{}: {rate} operations a second were not reached, and given up",
                run.store
            ));
        }
        let confirmed = run.extra.get("latency_target").map(|of| &of["confirmed"]);
        if confirmed.is_some_and(|confirmed| confirmed == false) {
            found.push(format!(
                "{}: the rate kept was not confirmed by holding it; measure longer (--seconds)",
                run.store
            ));
        }
        let target = run.extra.get("latency_target");
        if target.is_some_and(|target| target["rate_kept"].is_null()) {
            found.push(format!(
                "{}: no rate was found at which the latency is kept",
                run.store
            ));
        }
    }
    found.dedup();
    found.extend(different_queues(runs, phase));
    if let Some(sentence) = different_answers(runs, phase) {
        found.push(sentence);
    }
    found
}

/// Where some stores take requests in flight themselves, and others through workers.
fn different_queues(runs: &[&Run], phase: Phase) -> Option<String> {
    let mut found: Vec<(bool, &str)> = Vec::new();
    for run in runs.iter().filter(|run| run.phase == phase) {
        let workers = run.extra.get("workers").and_then(Value::as_u64);
        found.extend(workers.map(|count| (count > 0, run.store.as_str())));
    }
    let mut own: Vec<&str> = found.iter().filter(|of| !of.0).map(|of| of.1).collect();
    own.sort_unstable();
    own.dedup();
    let is_mixed = !own.is_empty() && found.iter().any(|of| of.0);
    is_mixed.then(|| {
        format!(
            "requests go through {}'s own queue, and through workers to the others \
             (--workers gives all of them workers)",
            own.join(", ")
        )
    })
}

/// Stores that were asked the same must answer the same.
pub fn different_answers(runs: &[&Run], phase: Phase) -> Option<String> {
    let mut seen: Vec<(&str, &str)> = runs
        .iter()
        .filter(|run| run.phase == phase && run.status == Status::Ok && run.store != NULL)
        .filter_map(|run| Some((run.result_hash.as_deref()?, run.store.as_str())))
        .collect();
    seen.sort_unstable();
    seen.dedup();
    let (first, _) = *seen.first()?;
    if seen.iter().all(|(hash, _)| *hash == first) {
        return None;
    }
    let answers: Vec<String> = seen
        .iter()
        .map(|(hash, store)| format!("{store} {hash}"))
        .collect();
    Some(format!(
        "reads returned different things: {}; at least one store is wrong",
        answers.join(", ")
    ))
}

#[cfg(test)]
pub(super) mod tests;
