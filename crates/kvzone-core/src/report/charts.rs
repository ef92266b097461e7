//! The charts of a workload: what each shows, and the drawing.
//!
//! The page puts them one below the other; each can also be a file of its own
//! ([`Chart::file`]).

use serde_json::Value;

use crate::record::{LatencySummary, Phase, Report, Run, Status};
use crate::report::chart::{Across, COLOURS, DotRow, Series, dots, plot, standalone};
use crate::report::summary::{Row, Summary};
use crate::report::text::{duration, grouped, three_digits};
use crate::statistics::median;

/// A drawing with its words.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Part of a file's name.
    pub slug: &'static str,
    /// Its lines need the legend of stores.
    pub needs_legend: bool,
    /// As SVG, with colours that the page or the file defines.
    pub svg: String,
}

impl Chart {
    /// As a file of its own: with its title, and the names of stores where its lines
    /// need them.
    pub fn file(&self, summary: &Summary) -> String {
        let names = match self.needs_legend {
            true => store_names(summary),
            false => Vec::new(),
        };
        let title = format!("{}: {}", summary.workload, self.title);
        standalone(&title, &names, &self.svg)
    }
}

/// The stores in the order of their colours.
pub(super) fn store_names(summary: &Summary) -> Vec<&str> {
    summary.rows.iter().map(|row| row.store.as_str()).collect()
}

/// All charts of a workload.
pub fn charts(report: &Report, summary: &Summary) -> Vec<Chart> {
    let of = |phase: Phase| -> Vec<&Run> {
        let runs = report
            .runs
            .iter()
            .filter(|run| summary.has(run) && run.phase == phase && run.status == Status::Ok);
        runs.collect()
    };
    let runs = of(summary.phase);
    let head = ("Throughput, operations a second", "throughput");
    let throughput = figure(summary, &runs, head, short, |run| Some(run.ops_per_second));
    let mut charts = Vec::from_iter(throughput);
    charts.extend([
        Chart {
            title: "Throughput over time, operations a second".to_string(),
            slug: "throughput-over-time",
            needs_legend: true,
            svg: plot(&over_time(summary, &runs, points), Across::Seconds, short),
        },
        Chart {
            title: "Latency percentiles (logarithmic), medians of rounds".to_string(),
            slug: "latency",
            needs_legend: true,
            svg: plot(
                &percentiles(summary, &runs),
                Across::Places(&PERCENTILES),
                duration,
            ),
        },
    ]);
    let sampled = over_time(summary, &runs, written);
    if sampled.iter().any(|series| series.points.len() > 1) {
        charts.insert(
            charts.len() - 1,
            Chart {
                title: "Bytes sent to the device over time, a second: flushes and compactions"
                    .to_string(),
                slug: "written-over-time",
                needs_legend: true,
                svg: plot(&sampled, Across::Seconds, on_axis),
            },
        );
    }
    for (title, slug, unit, value) in FIGURES {
        charts.extend(figure(summary, &runs, (title, slug), *unit, *value));
    }
    let reopened = of(Phase::Reopen);
    let was_killed = |run: &&Run| run.extra.contains_key("after_kill");
    let title = match reopened.iter().any(was_killed) {
        true => "Recovery: time to open again after a kill",
        false => "Recovery: time to open again",
    };
    charts.extend(figure(
        summary,
        &reopened,
        (title, "reopen"),
        duration,
        |run| Some(run.seconds * 1e9),
    ));
    charts
}

/// Title, name, how a value is written, and the value of a run.
type FigureChart = (
    &'static str,
    &'static str,
    fn(f64) -> String,
    fn(&Run) -> Option<f64>,
);

const FIGURES: &[FigureChart] = &[
    (
        "Write amplification: device bytes for each byte written",
        "write-amplification",
        three_digits,
        |run| run.write_amplification,
    ),
    (
        "Read amplification: device bytes for each byte read",
        "read-amplification",
        three_digits,
        |run| run.read_amplification,
    ),
    (
        "Space for each byte that is live",
        "space-amplification",
        three_digits,
        |run| run.space_amplification,
    ),
    (
        "Processor time of an operation, background work included",
        "cpu",
        |nanoseconds| duration(nanoseconds),
        |run| Some(run.cpu_seconds? * 1e9 / run.operations.max(1) as f64),
    ),
    ("Most resident memory", "memory", on_axis, |run| {
        run.peak_memory_bytes.map(|bytes| bytes as f64)
    }),
    (
        "Debt: time until flushes and compactions were done",
        "debt",
        duration,
        |run| Some(run.extra.get("settle_seconds")?.as_f64()? * 1e9),
    ),
];

/// A row a store, a point a round; none where no run has the figure.
fn figure(
    summary: &Summary,
    runs: &[&Run],
    (title, slug): (&str, &'static str),
    unit: fn(f64) -> String,
    value: impl Fn(&Run) -> Option<f64>,
) -> Option<Chart> {
    let row = |row: &Row| {
        let own = runs.iter().filter(|run| run.store == row.store);
        let values: Vec<f64> = own.filter_map(|run| value(run)).collect();
        DotRow {
            name: row.store.clone(),
            colour: colour(summary, &row.store),
            median: median(&values),
            values,
        }
    };
    let rows: Vec<DotRow> = summary.rows.iter().map(row).collect();
    let has_any = rows
        .iter()
        .any(|row| row.values.iter().any(|&value| value > 0.0));
    has_any.then(|| Chart {
        title: title.to_string(),
        slug,
        needs_legend: false,
        svg: dots(&rows, false, unit),
    })
}

/// Which colour a store has in a summary.
pub(super) fn colour(summary: &Summary, store: &str) -> usize {
    let place = summary.rows.iter().position(|row| row.store == store);
    place.unwrap_or(0) % COLOURS
}

/// Where percentiles stand on the axis across: each step leaves a tenth.
const PERCENTILES: [&str; 5] = ["50 %", "90 %", "99 %", "99.9 %", "longest"];

const PICKS: [fn(&LatencySummary) -> u64; 5] = [
    |found| found.p50,
    |found| found.p90,
    |found| found.p99,
    |found| found.p999,
    |found| found.max,
];

fn percentiles(summary: &Summary, runs: &[&Run]) -> Vec<Series> {
    let series = |row: &Row| {
        let own: Vec<&LatencySummary> = runs
            .iter()
            .filter(|run| run.store == row.store)
            .filter_map(|run| run.latency_ns.as_ref())
            .collect();
        let point = |(place, pick): (usize, &fn(&LatencySummary) -> u64)| {
            // A clock cannot tell 0 from a nanosecond, and 0 has no logarithm.
            let values: Vec<f64> = own.iter().map(|found| pick(found).max(1) as f64).collect();
            Some((place as f64, median(&values)?))
        };
        Series {
            name: row.store.clone(),
            colour: colour(summary, &row.store),
            points: PICKS.iter().enumerate().filter_map(point).collect(),
        }
    };
    summary.rows.iter().map(series).collect()
}

fn over_time(summary: &Summary, runs: &[&Run], points: fn(&Run) -> Vec<(f64, f64)>) -> Vec<Series> {
    let series = |run: &&Run| Series {
        name: format!("{}, round {}", run.store, run.repeat + 1),
        colour: colour(summary, &run.store),
        points: points(run),
    };
    runs.iter().map(series).collect()
}

/// The rate in each second; the last one, which is not whole, only where it is
/// the only one: then it is the mean.
pub(super) fn points(run: &Run) -> Vec<(f64, f64)> {
    let whole = run
        .timeline
        .iter()
        .filter(|point| (point.second + 1) as f64 <= run.seconds);
    let points: Vec<(f64, f64)> = whole
        .map(|point| (point.second as f64 + 0.5, point.operations as f64))
        .collect();
    if points.is_empty() {
        return vec![(run.seconds / 2.0, run.ops_per_second)];
    }
    points
}

/// Bytes sent to the device in each second that was sampled.
fn written(run: &Run) -> Vec<(f64, f64)> {
    let samples = run.extra.get("samples").and_then(Value::as_array);
    let sample = |sample: &Value| {
        let second = sample["second"].as_f64()?;
        Some((second - 0.5, sample["write_bytes"].as_f64()?))
    };
    samples.into_iter().flatten().filter_map(sample).collect()
}

/// Bytes on an axis: its steps are round in powers of 1,000.
fn on_axis(value: f64) -> String {
    for (unit, factor) in [("GB", 1e9), ("MB", 1e6), ("KB", 1e3)] {
        if value >= factor {
            return format!("{} {unit}", three_digits(value / factor));
        }
    }
    format!("{value:.0} B")
}

fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{} M", three_digits(v / 1e6)),
        v if v >= 1e4 => format!("{} k", three_digits(v / 1e3)),
        v => grouped(v),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::TimelinePoint;
    use crate::report::chart::escape;
    use crate::report::summary::summarize;
    use crate::report::summary::tests::{report, run};
    use serde_json::json;

    #[test]
    fn the_last_second_that_is_not_whole_is_no_drop_of_throughput() {
        let mut long = run("a", 0, 100.0);
        long.seconds = 2.3;
        long.timeline = [(0, 100), (1, 110), (2, 30)]
            .map(|(second, operations)| TimelinePoint {
                second,
                operations,
                p99_ns: 1,
            })
            .to_vec();
        assert_eq!(points(&long), [(0.5, 100.0), (1.5, 110.0)]);
        long.seconds = 0.4;
        assert_eq!(points(&long), [(0.2, 100.0)]);
    }

    #[test]
    fn every_figure_that_was_measured_has_a_chart_and_can_stand_alone() {
        let mut sampled = run("a", 0, 100.0);
        let samples = json!([
            {"second": 1, "write_bytes": 1000}, {"second": 2, "write_bytes": 5000},
        ]);
        sampled.extra.insert("samples".to_string(), samples);
        let report = report(vec![sampled, run("<b>", 0, 50.0)]);
        let stores = ["a".to_string(), "<b>".to_string()];
        let summary = &summarize(&report, &stores)[0];
        let found = charts(&report, summary);
        let slugs: Vec<&str> = found.iter().map(|chart| chart.slug).collect();
        let expected = [
            "throughput",
            "throughput-over-time",
            "written-over-time",
            "latency",
            "write-amplification",
            "cpu",
            "memory",
        ];
        assert_eq!(slugs, expected);
        for chart in &found {
            let file = chart.file(summary);
            assert!(file.starts_with("<svg xmlns="), "{file}");
            assert!(
                file.ends_with("</svg></svg>") && !file.contains("<b>"),
                "{file}"
            );
            assert!(file.contains(&escape(&chart.title)));
            assert!(!file.contains("NaN") && file.contains("--c0:"), "{file}");
        }
    }
}
