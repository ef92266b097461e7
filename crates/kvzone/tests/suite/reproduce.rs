//! `kvzone reproduce` with so little work that the numbers mean nothing: every
//! preset runs, says what the paper claims, and fills its place in a document.

use std::collections::BTreeSet;
use std::path::Path;

use crate::harness::{folder, kvzone, printed, report, text, words};
use serde_json::Value;

/// The output of a preset, its runs, all of which end well, and its claims.
fn reproduce(folder: &Path, name: &str, more: &[&str]) -> (String, Vec<Value>, Vec<Value>) {
    let arguments = ["reproduce", name, "--json", "out.json"];
    let output = kvzone(folder, &[&arguments[..], more].concat());
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{name}: {said}{printed}");
    let report = report(folder);
    let list = |name: &str| report[name].as_array().unwrap().clone();
    let (runs, claims) = (list("runs"), list("claims"));
    assert!(runs.iter().all(|run| run["status"] == "ok"), "{name}");
    assert!(!claims.is_empty(), "{name}");
    (printed, runs, claims)
}

/// The same with little work, and a paper's claims in what is printed.
fn tiny(name: &str, more: &[&str]) -> Vec<Value> {
    let more = [&words(TINY)[..], more].concat();
    let (printed, runs, _) = reproduce(folder().path(), name, &more);
    assert!(printed.contains("The paper, and whether its direction held"));
    runs
}

const TINY: &str = "--scale 1e-6 --operations 300 --memory 512MiB --seed 3";

fn of_step<'a>(runs: &'a [Value], step: &str) -> Vec<&'a Value> {
    let runs = runs.iter();
    runs.filter(|run| run["extra"]["step"] == step).collect()
}

fn of_phase<'a>(runs: &'a [Value], phase: &str) -> Vec<&'a Value> {
    runs.iter().filter(|run| run["phase"] == phase).collect()
}

#[test]
fn every_figure_of_stores_runs_and_all_stores_answer_the_same() {
    for (figure, stores, variants) in [
        ("fig14", "forest,forest-couchstore", 2),
        ("fig15", "forest,forest-couchstore", 2),
        ("fig16", "forest,forest-couchstore", 4),
        ("fig17", "forest", 4),
        ("fig18", "forest,forest-couchstore", 2),
        ("fig19", "forest,forest-couchstore", 2),
    ] {
        let name = format!("forestdb/{figure}");
        let runs = tiny(&name, &["--stores", stores, "--all-points"]);
        let point = |run: &Value| (run["extra"]["point"].clone(), run["workload"].clone());
        let measured = of_phase(&runs, "run");
        let mut hashes = 0;
        for one in &measured {
            let of_point = measured.iter().filter(|run| point(run) == point(one));
            let found: Vec<&Value> = of_point.map(|run| &run["result_hash"]).collect();
            assert_eq!(found.len(), variants, "{name} {one}");
            assert!(found.iter().all(|hash| *hash == found[0]), "{name} {one}");
            hashes += usize::from(found[0].is_string());
        }
        assert!(hashes > 0, "{name}: some answers are compared");
    }
}

#[test]
fn every_figure_of_wisckey_that_compares_stores_runs() {
    for (figure, stores, variants) in [
        ("fig2", "wisckey,forest", 2),
        ("fig7", "wisckey,forest", 2),
        ("fig8", "wisckey", 1),
        ("fig9", "wisckey", 1),
        ("fig10", "wisckey", 1),
        ("fig11", "wisckey", 1),
        ("fig12", "wisckey,forest", 2),
        ("fig14", "wisckey", 2),
        ("fig15", "wisckey", 2),
        ("table1", "wisckey", 1),
    ] {
        let name = format!("wisckey/{figure}");
        let runs = tiny(&name, &["--stores", stores]);
        let fills = |run: &&Value| run["workload"].as_str().unwrap().starts_with("fill-");
        let measured = |run: &&Value| run["phase"] == if fills(run) { "load" } else { "run" };
        let measured: Vec<&Value> = runs.iter().filter(measured).collect();
        let points: BTreeSet<&str> = measured
            .iter()
            .map(|run| run["extra"]["point"].as_str().unwrap())
            .collect();
        assert_eq!(measured.len(), points.len() * variants, "{name}");
    }
}

#[test]
fn collection_is_measured_after_deletions_of_each_share() {
    let folder = folder();
    let (_, runs, said) = reproduce(folder.path(), "wisckey/fig13", &words(TINY));
    assert_eq!(of_step(&runs, "measured").len(), 4 * 2);
    assert!(said.iter().all(|claim| claim["here"].is_string()));
}

#[test]
fn a_figure_goes_into_its_place_in_a_document() {
    let folder = folder();
    let document = folder.path().join("doc.md");
    let markers = "a\n<!-- begin wisckey/fig8 -->\nyesterday\n<!-- end wisckey/fig8 -->\nz\n";
    std::fs::write(&document, markers).unwrap();
    let more = format!("{TINY} --stores wisckey --update doc.md");
    reproduce(folder.path(), "wisckey/fig8", &words(&more));
    let written = std::fs::read_to_string(&document).unwrap();
    let begin = &markers[..30];
    let command = "```sh ignore=takes-minutes\nkvzone reproduce wisckey/fig8 --scale";
    assert!(written.starts_with(begin), "{written}");
    for words in [command, "| not measured |"] {
        assert!(written.contains(words), "{written}");
    }
    assert!(!written.contains("yesterday"), "{written}");
}

#[test]
fn every_figure_of_compactions_times_its_phases() {
    for (figure, points, cases) in [
        ("fig2", "6 GB", 2),
        ("fig4", "3 GB", 4),
        ("fig6", "3 GB", 4),
        ("fig8", "3 GB", 6),
        ("fig9", "1,256", 2 * 4),
    ] {
        let folder = folder();
        let name = format!("p-fetch/{figure}");
        let more = ["--scale", "1e-6", "--repeat", "1", "--memory", "512MiB"];
        let more = [&more[..], &["--points", points, "--html", "out.html"]].concat();
        let (printed, runs, said) = reproduce(folder.path(), &name, &more);
        assert!(printed.contains("memory limit 512 MiB"), "{printed}");
        let measured = of_step(&runs, "measured");
        assert_eq!(measured.len(), cases, "{name}");
        for run in measured {
            let extra = &run["extra"];
            for number in ["compaction_seconds_read", "compaction_read_operations"] {
                assert!(extra[number].as_f64() > Some(0.0), "{run}");
            }
            let is_work = figure == "fig8";
            assert_eq!(run["phase"], if is_work { "run" } else { "compact" });
            assert_eq!(run["operations"].as_f64() > Some(1.0), is_work, "{run}");
        }
        let is_measured = |claim: &Value| claim["here"].is_string();
        assert!(said.iter().all(is_measured), "{said:?}");
        let page = std::fs::read_to_string(folder.path().join("out.html")).unwrap();
        let stores = page.matches("\"name\":").count();
        assert_eq!(stores, cases, "a row for each case: {page}");
    }
}

#[test]
fn what_is_not_there_offers_what_is_near() {
    let folder = folder();
    for (arguments, words) in [
        (&["forestdb/fig11"][..], "forestdb/fig1"),
        (&["forestdb/fig14", "--points", "33"], "near it: 32"),
        (&["forestdb/fig14", "--stores", "forst"], "forest"),
        (&["forestdb/fig14", "--stores", "forest,forest"], "twice"),
        (&["forestdb/fig14", "--update", "none.md"], "none.md"),
        (&["wisckey/fig9", "--points", "2 KB"], "near it: 1 KB"),
    ] {
        let mut all = vec!["reproduce"];
        all.extend(arguments);
        let output = kvzone(folder.path(), &all);
        assert!(!output.status.success(), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn every_figure_of_alphard_runs_and_all_stores_answer_the_same() {
    for (figure, points) in [
        ("table1", "peak"),
        ("fig3", "16000/s,1 KB peak"),
        ("fig4", "16000/s,256 KB peak"),
    ] {
        let name = format!("alphard/{figure}");
        let more = ["--stores", "alphard-file,forest", "--points", points];
        let runs = tiny(&name, &more);
        let measured = of_phase(&runs, "run");
        assert_eq!(measured.len(), 2 * points.split(',').count(), "{name}");
        for pair in measured.chunks(2) {
            assert_eq!(pair[0]["result_hash"], pair[1]["result_hash"], "{name}");
            assert!(pair[0]["extra"]["latency_ns_insert"].is_object(), "{name}");
            assert_eq!(pair[0]["durability"], "synced");
        }
        let has_rate = measured[0]["target_rate"].is_number();
        assert_eq!(has_rate, points.starts_with("16000"));
    }
}

#[test]
fn presets_and_data_sets_are_listed_one_a_line() {
    let folder = folder();
    let list = |what: &str| printed(&kvzone(folder.path(), &["list", what]));
    let presets = "zdb/table1 forestdb/fig19 wisckey/fig2 wisckey/fig15 wisckey/table1 \
                   alphard/table1 alphard/fig3 alphard/fig4";
    let sets = "paths-of-usr words-of-texts files-of-packages profile url";
    for (what, names) in [("presets", presets), ("datasets", sets)] {
        let printed = list(what);
        for name in words(names) {
            let is_it = |line: &&str| line.split(' ').next() == Some(name);
            assert_eq!(printed.lines().filter(is_it).count(), 1, "{printed}");
        }
    }
}
