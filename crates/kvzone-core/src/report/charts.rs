//! The charts of a workload, as data: what each shows.

use serde_json::Value;

use crate::record::{LatencySummary, Phase, Report, Run, Status};
use crate::report::figure::{FIGURES, Figure};
use crate::report::page::{COLOURS, Chart, Row as DotRow, Series};
use crate::report::summary::{Row, Summary};
use crate::report::table::place;
use crate::report::text::Unit;
use crate::statistics::median;

pub fn charts(report: &Report, summary: &Summary) -> Vec<Chart> {
    let of = |phase: Phase| -> Vec<&Run> {
        let good = |run: &&Run| run.phase == phase && run.status == Status::Ok;
        let runs = report.runs.iter().filter(|run| summary.has(run));
        runs.filter(good).collect()
    };
    let runs = of(summary.phase);
    let of_figure = |figure: &Figure| {
        let value = |run: &Run| figure.value(run);
        rounds(summary, &runs, figure.title, figure.unit, value)
    };
    let mut figures = FIGURES.iter().filter(|figure| !figure.title.is_empty());
    let mut charts: Vec<Chart> = figures.next().map(of_figure).into_iter().collect();
    let over_time = |title, unit, points: fn(&Run) -> Vec<(f64, f64)>| {
        Chart::lines(title, unit, &[], over_time(summary, &runs, points))
    };
    charts.push(over_time(
        "Throughput over time, operations a second",
        Unit::Count,
        points,
    ));
    let title = "Bytes sent to the device over time, a second: flushes and compactions";
    let written = over_time(title, Unit::Bytes, written);
    charts.extend(Some(written).filter(|it| it.series.iter().any(|one| one.points.len() > 1)));
    charts.push(Chart::lines(
        "Latency percentiles (logarithmic), medians of rounds",
        Unit::Nanoseconds,
        &PERCENTILES,
        percentiles(summary, &runs),
    ));
    charts.extend(figures.map(of_figure));
    let reopened = of(Phase::Reopen);
    let was_killed = |run: &&Run| run.extra.contains_key("after_kill");
    let title = match reopened.iter().any(was_killed) {
        true => "Recovery: time to open again after a kill",
        false => "Recovery: time to open again",
    };
    let seconds = |run: &Run| Some(run.seconds * 1e9);
    charts.push(rounds(
        summary,
        &reopened,
        title,
        Unit::Nanoseconds,
        seconds,
    ));
    charts.retain(Chart::has_any);
    charts
}

/// Throughput of each store over the summaries of a sweep; without points where there is one.
pub fn over_sweep(sweep: &[Summary]) -> Chart {
    let places: Vec<String> = sweep.iter().map(|summary| place(sweep, summary)).collect();
    let names: Vec<&str> = places.iter().map(String::as_str).collect();
    let series = |row: &Row| {
        let of_store = |summary: &Summary| {
            let own = summary.rows.iter().find(|other| other.store == row.store);
            own?.ops_per_second()
        };
        let point = |(at, summary): (usize, &Summary)| Some((at as f64, of_store(summary)?));
        Series {
            name: row.store.clone(),
            colour: colour(&sweep[0], &row.store),
            points: sweep.iter().enumerate().filter_map(point).collect(),
        }
    };
    let all = sweep[0].rows.iter().filter(|_| sweep.len() > 1);
    let title = "Throughput over the sweep (logarithmic), operations a second";
    Chart::lines(title, Unit::Count, &names, all.map(series).collect())
}

/// A row a store, a point a round.
fn rounds(
    summary: &Summary,
    runs: &[&Run],
    title: &str,
    unit: Unit,
    value: impl Fn(&Run) -> Option<f64>,
) -> Chart {
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
    let rows = summary.rows.iter().map(row).collect();
    Chart::rows(title.to_string(), unit, false, rows)
}

fn colour(summary: &Summary, store: &str) -> usize {
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
fn points(run: &Run) -> Vec<(f64, f64)> {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::TimelinePoint;
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
    fn every_figure_that_was_measured_has_a_chart() {
        let mut sampled = run("a", 0, 100.0);
        let samples = json!([
            {"second": 1, "write_bytes": 1000}, {"second": 2, "write_bytes": 5000},
        ]);
        sampled.extra.insert("samples".to_string(), samples);
        let report = report(vec![sampled, run("b", 0, 50.0)]);
        let stores = ["a".to_string(), "b".to_string()];
        let summary = &summarize(&report, &stores)[0];
        let found = charts(&report, summary);
        let begins = [
            "Throughput, ",
            "Throughput over",
            "Bytes sent",
            "Latency",
            "Processor",
            "Write amplification",
            "Most resident",
        ];
        assert_eq!(found.len(), begins.len());
        for (chart, begin) in found.iter().zip(begins) {
            assert!(chart.title.starts_with(begin), "{chart:?}");
        }
        // A round each, of two stores.
        assert!(found[0].series.iter().all(|one| one.points.len() == 1));
        assert_eq!(found[3].series[1].points.len(), PERCENTILES.len());
    }
}
