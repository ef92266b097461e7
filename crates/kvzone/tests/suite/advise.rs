//! `kvzone advise` from options, from a job file and from a trace: what it says, not
//! which store is faster.

use std::path::Path;

use crate::harness::{assert_has, folder, kvzone, printed, report, run, said, text, words};

/// Asks for advice among three of our own stores; what it printed.
fn advise(folder: &Path, more: &[&str]) -> String {
    let mut words = vec!["advise", "--stores", "zdb,forest,wisckey", "--repeat", "1"];
    words.extend(["--shortlist", "2", "--screening-seconds", "0.05"]);
    words.extend(more);
    printed(&kvzone(folder, &words))
}

/// What any advice has: a ranking of the stores, and the command that measures again.
fn is_advice(said: &str) {
    let ranked = ["zdb", "forest", "wisckey"].iter();
    assert!(
        ranked.filter(|store| said.contains(**store)).count() >= 2,
        "{said}"
    );
    assert!(said.contains("Measure it again: kvzone run"), "{said}");
}

#[test]
fn a_workload_that_no_store_can_do_is_wrong_usage() {
    let folder = folder();
    let asked = "advise --stores zdb,alphard --mix scan=1 --keys 100 --seconds 0.05";
    let output = kvzone(folder.path(), &words(asked));
    let expected = "none of these stores can do this workload: zdb";
    assert_has(&said(&output, 2), expected);
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn advice_from_a_description_a_job_file_and_a_trace() {
    let folder = folder();
    let folder = folder.path();
    let mix = "--mix=read=80,update=15,delete=3,insert=2";
    let said = advise(
        folder,
        &[mix, "--keys", "500", "--goal", "p99", "--json", "out.json"],
    );
    is_advice(&said);
    assert!(said.contains(mix), "the command has the same words: {said}");
    let runs = report(folder)["runs"].as_array().unwrap().clone();
    assert!(runs.iter().all(|run| run["status"] == "ok"));
    assert!(runs.len() >= 4, "load and run of two stores at least");

    let job = "workload = \"ycsb-a\"\nkeys = 500\nvalue-size = 64\n";
    std::fs::write(folder.join("job.toml"), job).unwrap();
    let said = advise(folder, &["--job", "job.toml"]);
    is_advice(&said);
    assert!(said.contains("--job job.toml"), "{said}");

    let recorded = words("--stores memory --workload ycsb-b --record t");
    printed(&run(folder, &recorded));
    let said = advise(folder, &["--workload", "trace:t"]);
    is_advice(&said);
    assert!(said.contains("trace:t"), "{said}");
}
