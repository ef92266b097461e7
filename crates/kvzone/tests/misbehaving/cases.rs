//! Stores that crash, hang or forget, and how `kvzone` tells of them.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::harness::{
    assert_has, command, folder, kvzone, matrix, read, report, run, runs, said, text, units, words,
};
use serde_json::Value;

/// Facts that design and readers of the JSON agree on.
const FIELDS: &str = "store version workload repeat phase threads keys key_size value_size operations seconds \
    ops_per_second user_bytes durability profile budget_bytes memory_limit_bytes target_rate \
    status error settings latency_ns native_latency_ns device_write_bytes device_read_bytes \
    write_amplification read_amplification space_bytes space_amplification cpu_seconds \
    peak_memory_bytes result_hash timeline extra";

fn reopened(runs: &[Value], store: &str) -> Value {
    let mut own = runs
        .iter()
        .filter(|run| run["store"] == store && run["phase"] == "reopen");
    let found = own.next().unwrap().clone();
    assert!(own.next().is_none(), "one a round");
    found
}

pub fn every_field_of_the_json_is_there_for_good_and_for_broken_runs() {
    let folder = folder();
    let output = run(
        folder.path(),
        &words("--stores memory,null,crashing --workload read-random"),
    );
    said(&output, 3);
    let report = report(folder.path());
    assert_eq!(report["schema"], "kvzone/1");
    assert_eq!(report["seed"], 1);
    assert!(report["machine"]["disk"].is_object());
    let runs = runs(folder.path());
    for run in &runs {
        let run = run.as_object().unwrap();
        for field in words(FIELDS) {
            assert!(run.contains_key(field), "{field} is missing in {run:?}");
        }
        assert_eq!(run.len(), words(FIELDS).len(), "no other field");
    }
    let measured: Vec<&Value> = runs
        .iter()
        .filter(|run| run["store"] == "memory" && run["phase"] == "run")
        .collect();
    let [memory] = measured[..] else {
        panic!("one run a round: {runs:?}");
    };
    assert_eq!(memory["status"], "ok");
    assert_eq!(memory["operations"], 500);
    assert_eq!(memory["key_size"], 16.0);
    assert!(memory["ops_per_second"].as_f64().unwrap() > 0.0);
    for part in ["mean", "stdev", "p50", "p90", "p99", "p999", "max"] {
        assert!(memory["latency_ns"][part].is_number(), "{part}");
    }
    assert!(memory["cpu_seconds"].as_f64().unwrap() > 0.0);
    assert!(memory["result_hash"].is_string());
    assert!(memory["target_rate"].is_null());
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "all folders are gone"
    );
}

pub fn a_crash_is_named_with_its_signal_and_the_others_go_on() {
    let folder = folder();
    let output = run(
        folder.path(),
        &["--stores", "crashing,memory", "--workload", "fill-random"],
    );
    let told = said(&output, 3);
    assert_has(&told, "crashing crashed");
    assert_has(&told, "SIGABRT");
    let of = |store: &str| {
        let all = runs(folder.path());
        all.into_iter().find(|run| run["store"] == store).unwrap()
    };
    assert_eq!(of("crashing")["status"], "crashed");
    assert_eq!(of("crashing")["phase"], "load");
    assert!(of("crashing")["ops_per_second"].as_f64() == Some(0.0));
    assert_eq!(of("memory")["status"], "ok");
}

pub fn a_hang_is_ended_and_named_and_the_others_go_on() {
    let folder = folder();
    let output = run(
        folder.path(),
        &words("--stores hanging,memory --workload fill-random --patience 0.5"),
    );
    assert_has(&said(&output, 3), "hanging hung");
    let runs = runs(folder.path());
    for (store, status) in [("hanging", "hung"), ("memory", "ok")] {
        let is_told = |run: &Value| run["store"] == store && run["status"] == status;
        assert!(runs.iter().any(is_told), "{store}: {runs:?}");
    }
}

/// With this seed `crashing` goes first. The second worker is one that never ends by itself: so the first has ended
/// when the note about it is read, whatever the machine does.
pub fn ctrl_c_keeps_what_was_measured_and_leaves_nothing_behind() {
    let folder = folder();
    let arguments = words(
        "run --stores crashing,hanging --workload fill-random --keys 100 --repeat 1 \
         --patience 3600 --seed 1 --json out.json",
    );
    let mut child = command(folder.path(), &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("crashing") {
        line.clear();
        assert!(
            errors.read_line(&mut line).unwrap() > 0,
            "it ended by itself"
        );
    }
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(killed.unwrap().success());
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{rest}");
    let printed = text(&output.stdout);
    let is_told = printed.contains("stopped after 1 of 2 workers");
    assert!(is_told, "{printed}");
    let runs = runs(folder.path());
    let is_first = |run: &Value| run["store"] == "crashing";
    assert!(!runs.is_empty() && runs.iter().all(is_first), "{runs:?}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "only out.json: {left:?}");
}

pub fn a_file_that_cannot_be_written_is_told_before_anything_is_measured() {
    let folder = folder();
    let arguments = words("run --stores hanging --workload fill-random --json no/such/out.json");
    let output = kvzone(folder.path(), &arguments);
    assert_has(&said(&output, 3), "no/such/out.json");
}

pub fn what_survives_is_told_and_a_store_that_lies_about_it_is_marked() {
    let folder = folder();
    let options = ["--workload", "overwrite", "--reopen", "kill"];
    let more = ["--durability", "synced", "--html", "out.html"];
    let stores = ["--stores", "forest,wisckey,zdb,alphard,forgetful"];
    let output = run(folder.path(), &[&options[..], &more, &stores].concat());
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    let runs = runs(folder.path());
    for store in ["forest", "wisckey", "zdb", "alphard"] {
        let run = reopened(&runs, store);
        assert_eq!(run["status"], "ok", "{run}");
        assert_eq!(run["operations"], 1);
        let found = &run["extra"]["after_kill"];
        assert_eq!(found["acknowledged"], 500, "{run}");
        assert_eq!(found["survived"], 500, "{run}");
        assert_eq!(found["lost"], 0, "{run}");
    }
    let forgetful = reopened(&runs, "forgetful");
    assert_eq!(forgetful["status"], "wrong");
    assert!(forgetful["extra"]["after_kill"]["lost"].as_u64() > Some(0));
    let whole = printed.matches("kept all that it acknowledged").count();
    assert_eq!(whole, 4, "{printed}");
    assert!(printed.contains("BROKE ITS PROMISE: it had acknowledged them as synced"));
    let page = std::fs::read_to_string(folder.path().join("out.html")).unwrap();
    assert!(page.contains("After a kill: what was acknowledged as synced"));
    assert_eq!(page.matches("BROKE ITS PROMISE").count(), 1);
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "only what was asked for: {left:?}");
}

pub fn every_cell_of_every_store_is_on_the_page_and_a_failed_store_is_shown_as_failed() {
    let folder = folder();
    let stores = words("--stores forest,wisckey,zdb,memory,crashing --repeat 1");
    let done = matrix(folder.path(), &stores);
    assert_eq!(done.status.code(), Some(3), "a store crashed");
    let (printed, page) = (text(&done.stdout), read(folder.path(), "matrix.html"));
    let markdown = read(folder.path(), "matrix.md");
    for cell in [
        "fill, random order",
        "read at random",
        "scan 100, a quarter overwritten",
        "whole store backwards",
        "sustained, slowest second : mean",
        "sustained, greatest space : live",
        "open after a close",
    ] {
        for (text, what) in [(&printed, "text"), (&page, "page"), (&markdown, "Markdown")] {
            assert!(text.contains(cell), "{cell} in the {what}:\n{text}");
        }
    }
    let line = |cell: &str| {
        let found = markdown
            .lines()
            .find(|line| line.starts_with(&format!("| {cell} |")));
        found
            .unwrap_or_else(|| panic!("{cell} in {markdown}"))
            .to_string()
    };
    // forest, wisckey, zdb, memory, crashing, null.
    let scan = line("scan 10");
    let entries: Vec<&str> = scan.trim_matches('|').split(" | ").map(str::trim).collect();
    let entries = &entries[4..];
    assert!(
        entries[0].ends_with("/s") && entries[1].ends_with("/s"),
        "{scan}"
    );
    assert_eq!((entries[2], entries[4]), ("n/a", "crashed"), "{scan}");
    assert!(entries[3].ends_with("/s"), "{scan}");
    assert!(read(folder.path(), "matrix.svg").starts_with("<svg"));
    // One round allows no verdict.
    assert!(
        !markdown.contains("| ahead |") && !markdown.contains("| behind |"),
        "{markdown}"
    );
    assert_has(&markdown, "crashing, fill, random order");
    let crashed = units(folder.path())
        .iter()
        .filter(|unit| unit["store"] == "crashing")
        .count();
    let again = matrix(folder.path(), &[&stores[..], &["--resume"]].concat());
    let told = text(&again.stderr);
    assert_eq!((crashed, again.status.code()), (1, Some(3)), "{told}");
    assert_eq!(
        told.matches("crashing crashed").count(),
        1,
        "tried again: {told}"
    );
    assert!(!told.contains("forest"), "{told}");
}
