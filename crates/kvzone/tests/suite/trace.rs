//! Traces as people and scripts use them: recorded, looked at, imported, replayed.

use std::path::Path;

use crate::harness::{assert_has, folder, kvzone, printed, run, runs, said, text, words};
use serde_json::Value;

fn record(folder: &Path, workload: &str, more: &[&str]) {
    let mut words = vec!["--stores", "memory", "--workload", workload];
    words.extend(["--record", "t", "--seed", "5"]);
    words.extend(more);
    printed(&run(folder, &words));
}

fn shown(folder: &Path) -> Value {
    let shown = printed(&kvzone(folder, &["trace", "show", "--json", "t"]));
    serde_json::from_str(&shown).unwrap()
}

/// Replays it; the runs of the measured phase.
fn replay(folder: &Path, stores: &str, more: &[&str]) -> Vec<Value> {
    let mut words = vec!["--stores", stores, "--workload", "trace:t"];
    words.extend(["--verify-every", "1"]);
    words.extend(more);
    printed(&run(folder, &words));
    let all = runs(folder).into_iter();
    all.filter(|run| run["phase"] == "run").collect()
}

#[test]
fn what_was_recorded_is_replayed_by_other_stores_with_the_same_answers() {
    let folder = folder();
    let folder = folder.path();
    record(folder, "ycsb-a", &["--operations", "3000"]);
    let summary = shown(folder);
    assert_eq!(summary["operations"], 3_000);
    assert_eq!(summary["loaded"]["entries"], 500);
    assert_eq!(summary["found_first"]["entries"], 0);
    for threads in ["1", "3"] {
        let found = replay(folder, "memory,zdb,wisckey", &["--threads", threads]);
        assert_eq!(found.len(), 3);
        for run in &found {
            assert_eq!(run["operations"], 3_000, "{run}");
            assert_eq!(run["extra"]["calls_read"], summary["gets"]);
            assert_eq!(run["extra"]["reads_verified"], summary["gets"]);
            assert_eq!(run["extra"]["trace_speed"], "full");
            assert_eq!(run["result_hash"], found[0]["result_hash"]);
            assert!(run["result_hash"].is_string());
            let space = run["space_amplification"].as_f64().unwrap();
            assert_eq!(space > 0.0, run["store"] != "memory", "{run}");
        }
    }
    let part = replay(folder, "memory", &["--operations", "100"]);
    assert_eq!(part[0]["operations"], 100);
}

#[test]
fn scans_batches_and_deletions_are_replayed_too() {
    let folder = folder();
    let folder = folder.path();
    record(folder, "ycsb-e", &["--operations", "300"]);
    let found = replay(folder, "memory,forest", &[]);
    assert!(found[0]["extra"]["entries_scanned"].as_u64() > Some(300));
    assert_eq!(
        found[0]["extra"]["entries_scanned"],
        found[1]["extra"]["entries_scanned"]
    );
    record(folder, "overwrite", &["--batch", "7"]);
    let summary = shown(folder);
    assert_eq!(summary["batched_changes"], 500);
    assert_eq!(replay(folder, "memory", &[])[0]["operations"], 500);
    record(folder, "churn", &["--operations", "1000"]);
    let deleted = shown(folder)["deletes"].as_u64().unwrap();
    let found = replay(folder, "memory", &[]);
    assert_eq!(found[0]["extra"]["calls_delete"], deleted);
}

#[test]
fn a_fill_is_recorded_as_the_puts_that_it_is() {
    let folder = folder();
    record(folder.path(), "fill-random", &[]);
    let summary = shown(folder.path());
    assert_eq!(
        (&summary["puts"], &summary["loaded"]["entries"]),
        (&500.into(), &0.into())
    );
}

#[test]
fn at_a_speed_latency_counts_from_the_recorded_moment() {
    let folder = folder();
    let folder = folder.path();
    // Two operations that are due at once, and one ten milliseconds later.
    std::fs::write(
        folder.join("text"),
        "put,a,10,0\nget,a,10,0\nget,a,10,10000000\n",
    )
    .unwrap();
    printed(&kvzone(folder, &["trace", "import", "text", "t"]));
    for (speed, at_least) in [("original", 0.01), ("0.5x", 0.02)] {
        let found = replay(folder, "memory", &["--speed", speed]);
        assert!(found[0]["seconds"].as_f64().unwrap() >= at_least, "{speed}");
        assert!(found[0]["extra"]["most_seconds_behind"].is_number());
        assert!(
            found[0]["latency_ns"]["max"].as_u64() >= found[0]["native_latency_ns"]["p50"].as_u64()
        );
    }
}

#[test]
fn text_of_others_is_imported_and_what_was_read_first_is_there() {
    let folder = folder();
    let folder = folder.path();
    std::fs::write(
        folder.join("text"),
        "1,k1,2,50,7,get,0\n1,k2,2,60,7,set,9\n2,k2,2,60,8,get,0\n",
    )
    .unwrap();
    let words = ["trace", "import", "--format", "twitter", "text", "t"];
    printed(&kvzone(folder, &words));
    let summary = shown(folder);
    assert_eq!(summary["found_first"]["entries"], 1);
    assert_eq!(summary["threads"], 2);
    let found = replay(folder, "memory", &[]);
    assert_eq!(found[0]["extra"]["reads_verified"], 2);
    assert_eq!(found[0]["keys"], 1);
    // The folder with what was found is gone.
    let left = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(left, 3, "text, t, out.json");

    std::fs::write(folder.join("text"), "put,a,1\nput,a\n").unwrap();
    let output = kvzone(folder, &["trace", "import", "text", "t"]);
    assert_has(&said(&output, 2), "text: line 2");
}

#[test]
fn a_damaged_trace_is_an_error_with_its_offset_and_can_be_rescued() {
    let folder = folder();
    let folder = folder.path();
    record(folder, "ycsb-a", &["--operations", "30000"]);
    let mut bytes = std::fs::read(folder.join("t")).unwrap();
    let at = bytes.len() * 2 / 3;
    bytes[at] ^= 1;
    std::fs::write(folder.join("t"), &bytes).unwrap();
    let output = run(folder, &["--stores", "memory", "--workload", "trace:t"]);
    let words = said(&output, 3);
    assert_has(&words, "checksum");
    assert_has(&words, "offset");
    assert!(words.contains("kvzone trace rescue"), "{words}");
    let trace = |words: &[&str]| kvzone(folder, &[&["trace"], words].concat()).status.code();
    assert_eq!(trace(&["rescue", "t", "r"]), Some(0));
    assert_eq!(trace(&["show", "r"]), Some(0));
    assert_eq!(trace(&["rescue", "t", "./t"]), Some(2));
    // Nothing behind the header is whole.
    std::fs::write(folder.join("t"), &bytes[..64]).unwrap();
    let output = kvzone(folder, &["trace", "rescue", "t", "r"]);
    assert_has(&said(&output, 3), "no record is whole");
}

#[test]
fn what_cannot_be_is_refused() {
    let folder = folder();
    let folder = folder.path();
    record(folder, "ycsb-a", &[]);
    for (asked, expected) in [
        ("trace:t --value-size 5", "--value-size"),
        ("trace:t --rate 5", "--rate"),
        ("trace:nowhere", "nowhere"),
        ("trace:out.json", "no trace"),
        ("ycsb-a --speed 2x", "--speed"),
        ("ycsb-a,ycsb-b --record x", "--record"),
    ] {
        let all = format!("run --keys 500 --repeat 1 --stores memory --workload {asked}");
        let output = kvzone(folder, &words(&all));
        assert!(matches!(output.status.code(), Some(2 | 3)), "{asked:?}");
        assert_has(&text(&output.stderr), expected);
    }
}
