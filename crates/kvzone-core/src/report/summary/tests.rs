//! Summaries of made-up rounds.

use super::*;
use crate::record::{LatencySummary, SCHEMA};
use serde_json::json;

/// A run of `fill-random` that ended well.
pub(crate) fn run(store: &str, repeat: u32, ops_per_second: f64) -> Run {
    let text = json!({
        "store": store, "version": "1.0", "workload": "fill-random", "repeat": repeat,
        "phase": "load", "threads": 1, "keys": 1000, "key_size": 16.0, "value_size": 100.0,
        "operations": 20_000, "seconds": 1.0, "ops_per_second": ops_per_second,
        "user_bytes": 116_000, "durability": "written", "profile": "equal",
        "budget_bytes": 64 << 20, "memory_limit_bytes": null, "target_rate": null,
        "status": "ok", "error": null, "settings": {}, "latency_ns": null,
        "native_latency_ns": null, "device_write_bytes": null, "device_read_bytes": null,
        "write_amplification": 2.0, "read_amplification": null, "space_bytes": 4096,
        "space_amplification": null, "cpu_seconds": 0.5, "peak_memory_bytes": 1 << 20,
        "result_hash": null, "timeline": [], "extra": {},
    });
    let mut run: Run = serde_json::from_value(text).unwrap();
    run.latency_ns = Some(LatencySummary {
        mean: 10.0,
        stdev: 1.0,
        p50: 10,
        p90: 20,
        p99: 30,
        p999: 40,
        max: 50,
    });
    run
}

pub(crate) fn report(runs: Vec<Run>) -> Report {
    Report {
        schema: SCHEMA.to_string(),
        machine: json!({}),
        seed: 1,
        runs,
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn rounds(stores: &[(&str, &[f64])]) -> Summary {
    let runs = stores.iter().flat_map(|(store, rates)| {
        let rates = rates.iter().enumerate();
        rates.map(|(repeat, &rate)| run(store, repeat as u32, rate))
    });
    let order: Vec<&str> = stores.iter().map(|(store, _)| *store).collect();
    let found = summarize(&report(runs.collect()), &names(&order));
    found.into_iter().next().unwrap()
}

/// A median of the first store.
fn figure(found: &Summary, name: &str) -> Option<f64> {
    let place = FIGURES.iter().position(|figure| figure.name == name);
    found.rows[0].medians[place.unwrap()]
}

#[test]
fn rows_are_medians_and_ratios_are_taken_inside_rounds() {
    let found = rounds(&[
        ("zdb", &[200.0, 20.0, 2.0, 220.0, 240.0]),
        ("leveldb", &[100.0, 10.0, 1.0, 110.0, 120.0]),
    ]);
    assert_eq!(found.rows[0].ops_per_second(), Some(200.0));
    assert_eq!(figure(&found, "cpu"), Some(25.0));
    assert_eq!(figure(&found, "p999"), Some(40.0));
    assert_eq!(found.lines.len(), 1);
    let line = &found.lines[0];
    assert_eq!(line.comparison.as_ref().unwrap().ratio, 0.5);
    let expected = "leveldb 1.0 : zdb 1.0 = 0.50 [0.50, 0.50]: zdb is ahead";
    assert_eq!(line.text, expected);
    let expected = "durability written, no memory limit, memory budget 64 MiB, \
        1,000 keys of 16 + 100 bytes (113.3 KiB), profile equal, 1 thread";
    assert_eq!(conditions(&found.conditions), expected);
}

#[test]
fn no_winner_is_named_where_noise_drowns_it_or_from_few_rounds() {
    let found = rounds(&[
        ("a", &[100.0; 5]),
        ("b", &[200.0, 50.0, 100.0, 90.0, 110.0]),
    ]);
    assert!(found.lines[0].text.contains("noise drowns the difference"));
    let found = rounds(&[("a", &[100.0; 3]), ("b", &[200.0, 50.0, 100.0])]);
    assert!(
        found
            .warnings
            .iter()
            .any(|w| w.contains("fewer than the 5"))
    );
    assert!(
        found
            .warnings
            .iter()
            .any(|w| w.contains("b: rounds differ by 150 %"))
    );
    let words = "no winner from fewer than five rounds";
    assert!(found.lines[0].text.contains(words));
}

#[test]
fn a_store_near_the_harness_itself_is_not_ranked() {
    let found = rounds(&[("null", &[1000.0]), ("memory", &[600.0]), ("zdb", &[400.0])]);
    let unranked: Vec<bool> = found
        .rows
        .iter()
        .map(|row| row.unranked.is_some())
        .collect();
    assert_eq!(unranked, [true, true, false]);
    // zdb is then the first that is ranked, and memory's line says why not.
    assert_eq!(found.lines.len(), 1);
    assert!(
        found.lines[0]
            .text
            .starts_with("memory 1.0 : zdb 1.0: not ranked")
    );
}

#[test]
fn a_store_that_failed_once_is_marked_and_not_ranked() {
    let mut broken = run("b", 1, 900.0);
    broken.status = Status::Crashed;
    broken.error = Some("SIGSEGV".to_string());
    let runs = vec![run("a", 0, 1.0), run("b", 0, 9.0), run("a", 1, 1.0), broken];
    let found = &summarize(&report(runs), &names(&["a", "b"]))[0];
    assert_eq!(
        found.rows[1].failure,
        Some((Status::Crashed, "SIGSEGV".to_string()))
    );
    assert_eq!(found.rows[1].rounds, 1);
    assert!(found.lines[0].comparison.is_err());
}

#[test]
fn different_answers_to_the_same_questions_are_told() {
    let with = |store: &str, hash: &str| Run {
        result_hash: Some(hash.to_string()),
        ..run(store, 0, 1.0)
    };
    let same = [with("a", "01"), with("b", "01"), with("null", "ff")];
    let all: Vec<&Run> = same.iter().collect();
    assert_eq!(different_answers(&all, Phase::Load), None);
    let other = [with("a", "01"), with("b", "02")];
    let all: Vec<&Run> = other.iter().collect();
    let told = different_answers(&all, Phase::Load).unwrap();
    assert!(told.contains("a 01, b 02"), "{told}");
}

#[test]
fn percentiles_of_few_calls_are_left_out() {
    let mut few = run("a", 0, 1.0);
    few.extra.insert("calls_insert".to_string(), json!(100));
    let found = &summarize(&report(vec![few]), &names(&["a"]))[0];
    assert_eq!(figure(found, "p999"), None);
    assert_eq!(figure(found, "p99"), Some(30.0));
}
