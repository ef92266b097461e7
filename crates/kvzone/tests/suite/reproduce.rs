//! `kvzone reproduce` with so little work that the numbers mean nothing: every
//! preset runs, says what the paper claims, and fills its place in a document.

use std::collections::BTreeSet;
use std::path::Path;

use crate::harness::{folder, kvzone, report, text};
use serde_json::Value;

/// A preset with stores that need no library.
fn reproduce(folder: &Path, name: &str, more: &[&str]) -> String {
    let mut arguments = vec!["reproduce", name, "--json", "out.json"];
    arguments.extend(more);
    let output = kvzone(folder, &arguments);
    let said = text(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{name}: {said}{}",
        text(&output.stdout)
    );
    text(&output.stdout)
}

const TINY: [&str; 8] = [
    "--scale",
    "1e-6",
    "--operations",
    "300",
    "--memory",
    "512MiB",
    "--seed",
    "3",
];

fn claims(folder: &Path) -> Vec<Value> {
    report(folder)["claims"].as_array().unwrap().clone()
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
        let folder = folder();
        let name = format!("forestdb/{figure}");
        let mut more = TINY.to_vec();
        more.extend(["--stores", stores, "--all-points"]);
        let printed = reproduce(folder.path(), &name, &more);
        assert!(printed.contains("The paper, and whether its direction held"));
        let report = report(folder.path());
        let runs = report["runs"].as_array().unwrap();
        let measured: Vec<&Value> = runs.iter().filter(|run| run["phase"] == "run").collect();
        assert!(measured.iter().all(|run| run["status"] == "ok"), "{name}");
        let mut hashes = 0;
        for point in measured
            .iter()
            .map(|run| (&run["extra"]["point"], &run["workload"]))
        {
            let same = |run: &&&Value| (&run["extra"]["point"], &run["workload"]) == point;
            let of_point: Vec<&&Value> = measured.iter().filter(same).collect();
            assert_eq!(of_point.len(), variants, "{name} {point:?}");
            let first = &of_point[0]["result_hash"];
            assert!(
                of_point.iter().all(|run| &run["result_hash"] == first),
                "{name} {point:?}"
            );
            hashes += usize::from(first.is_string());
        }
        assert!(hashes > 0, "{name}: some answers are compared");
        assert!(!claims(folder.path()).is_empty());
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
        let folder = folder();
        let name = format!("wisckey/{figure}");
        let mut more = TINY.to_vec();
        more.extend(["--stores", stores]);
        let printed = reproduce(folder.path(), &name, &more);
        assert!(printed.contains("The paper, and whether its direction held"));
        let report = report(folder.path());
        let runs = report["runs"].as_array().unwrap();
        assert!(runs.iter().all(|run| run["status"] == "ok"), "{name}");
        let fills = |run: &&Value| run["workload"].as_str().unwrap().starts_with("fill-");
        let measured = |run: &&Value| run["phase"] == if fills(run) { "load" } else { "run" };
        let measured: Vec<&Value> = runs.iter().filter(measured).collect();
        let points: BTreeSet<&str> = measured
            .iter()
            .map(|run| run["extra"]["point"].as_str().unwrap())
            .collect();
        assert_eq!(measured.len(), points.len() * variants, "{name}");
        assert!(!claims(folder.path()).is_empty());
    }
}

#[test]
fn collection_is_measured_after_deletions_of_each_share() {
    let folder = folder();
    reproduce(folder.path(), "wisckey/fig13", &TINY);
    let report = report(folder.path());
    let runs = report["runs"].as_array().unwrap();
    assert!(runs.iter().all(|run| run["status"] == "ok"));
    let measured = |run: &&Value| run["extra"]["step"] == "measured";
    assert_eq!(runs.iter().filter(measured).count(), 4 * 2);
    let said = claims(folder.path());
    assert!(said.iter().all(|claim| claim["here"].is_string()));
}

#[test]
fn a_figure_goes_into_its_place_in_a_document() {
    let folder = folder();
    let document = folder.path().join("doc.md");
    let markers = "a\n<!-- begin wisckey/fig8 -->\nyesterday\n<!-- end wisckey/fig8 -->\nz\n";
    std::fs::write(&document, markers).unwrap();
    let more = [&TINY[..], &["--stores", "wisckey", "--update", "doc.md"]].concat();
    reproduce(folder.path(), "wisckey/fig8", &more);
    let written = std::fs::read_to_string(&document).unwrap();
    assert!(
        written.starts_with("a\n<!-- begin wisckey/fig8 -->\n"),
        "{written}"
    );
    assert!(
        written.contains("kvzone reproduce wisckey/fig8 --scale"),
        "{written}"
    );
    assert!(
        written.contains("| not measured |") && !written.contains("yesterday"),
        "{written}"
    );
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
        let printed = reproduce(folder.path(), &name, &more);
        assert!(printed.contains("memory limit 512 MiB"), "{printed}");
        let runs = report(folder.path())["runs"].as_array().unwrap().clone();
        assert!(runs.iter().all(|run| run["status"] == "ok"), "{name}");
        let measured = |run: &&Value| run["extra"]["step"] == "measured";
        let measured: Vec<&Value> = runs.iter().filter(measured).collect();
        assert_eq!(measured.len(), cases, "{name}");
        for run in measured {
            let extra = &run["extra"];
            assert!(
                extra["compaction_seconds_read"].as_f64() > Some(0.0),
                "{run}"
            );
            assert!(extra["compaction_read_operations"].as_f64() > Some(0.0));
            let is_work = figure == "fig8";
            assert_eq!(run["phase"], if is_work { "run" } else { "compact" });
            assert_eq!(run["operations"].as_f64() > Some(1.0), is_work, "{run}");
        }
        let said = claims(folder.path());
        assert!(
            said.iter().all(|claim| claim["here"].is_string()),
            "{said:?}"
        );
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
        let folder = folder();
        let name = format!("alphard/{figure}");
        let mut more = TINY.to_vec();
        more.extend(["--stores", "alphard-file,forest", "--points", points]);
        let printed = reproduce(folder.path(), &name, &more);
        assert!(printed.contains("The paper, and whether its direction held"));
        let report = report(folder.path());
        let runs = report["runs"].as_array().unwrap();
        assert!(runs.iter().all(|run| run["status"] == "ok"), "{name}");
        let measured: Vec<&Value> = runs.iter().filter(|run| run["phase"] == "run").collect();
        assert_eq!(measured.len(), 2 * points.split(',').count(), "{name}");
        for pair in measured.chunks(2) {
            assert_eq!(pair[0]["result_hash"], pair[1]["result_hash"], "{name}");
            assert!(pair[0]["extra"]["latency_ns_insert"].is_object(), "{name}");
            assert_eq!(pair[0]["durability"], "synced");
        }
        assert_eq!(
            measured[0]["target_rate"].is_number(),
            points.starts_with("16000")
        );
        assert!(!claims(folder.path()).is_empty());
    }
}

#[test]
fn presets_and_data_sets_are_listed_one_a_line() {
    let folder = folder();
    let list = |what: &str| {
        let output = kvzone(folder.path(), &["list", what]);
        assert!(output.status.success());
        text(&output.stdout)
    };
    let presets = list("presets");
    for name in [
        "zdb/table1",
        "forestdb/fig19",
        "wisckey/fig2 ",
        "wisckey/fig15",
        "wisckey/table1",
        "alphard/table1",
        "alphard/fig3",
        "alphard/fig4",
    ] {
        let lines = presets.lines().filter(|line| line.starts_with(name));
        assert_eq!(lines.count(), 1, "{presets}");
    }
    let sets = list("datasets");
    for name in [
        "paths-of-usr",
        "words-of-texts",
        "files-of-packages",
        "profile",
        "url",
    ] {
        let lines = sets.lines().filter(|line| line.starts_with(name));
        assert_eq!(lines.count(), 1, "{sets}");
    }
}
