//! `kvzone compare` and Ctrl-C, as people and scripts meet them.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::harness::{command, folder, kvzone, report, text};
use serde_json::Value;

#[test]
fn compare_tells_by_its_exit_status_what_became_worse() {
    let folder = folder();
    let made = kvzone(
        folder.path(),
        &[
            "run",
            "--stores",
            "memory",
            "--workload",
            "fill-random",
            "--keys",
            "500",
            "--repeat",
            "5",
            "--json",
            "out.json",
        ],
    );
    assert!(made.status.success(), "{}", text(&made.stderr));
    let first = report(folder.path());
    let with_rate = |name: &str, rates: [f64; 5]| {
        let mut other = first.clone();
        for (run, rate) in other["runs"].as_array_mut().unwrap().iter_mut().zip(rates) {
            run["ops_per_second"] = rate.into();
        }
        let bytes = serde_json::to_vec(&other).unwrap();
        std::fs::write(folder.path().join(name), bytes).unwrap();
    };
    with_rate("before.json", [100.0, 101.0, 102.0, 100.5, 101.5]);
    with_rate("slower.json", [50.0, 51.0, 52.0, 50.5, 51.5]);
    let compare = |more: &[&str]| {
        let mut arguments = vec!["compare", "before.json"];
        arguments.extend(more);
        kvzone(folder.path(), &arguments)
    };
    let same = compare(&["before.json"]);
    assert!(same.status.success(), "{}", text(&same.stderr));
    let slower = compare(&["slower.json"]);
    assert_eq!(slower.status.code(), Some(1));
    let printed = text(&slower.stdout);
    assert!(
        printed.contains("worse") && printed.contains("0.50"),
        "{printed}"
    );
    assert!(
        compare(&["slower.json", "--tolerance", "60"])
            .status
            .success()
    );
    assert!(
        compare(&["slower.json", "--by", "p99,cpu"])
            .status
            .success()
    );
    let usage = [
        (compare(&["slower.json", "--by", "opss"]), "near it: ops"),
        (compare(&["none.json"]), "none.json"),
    ];
    for (output, words) in usage {
        assert!(!output.status.success());
        assert!(
            text(&output.stderr).contains(words),
            "{}",
            text(&output.stderr)
        );
    }
    std::fs::write(folder.path().join("cut.json"), "{\"schema\": \"kvz").unwrap();
    let cut = compare(&["cut.json"]);
    assert_eq!(cut.status.code(), Some(2));
    assert!(
        text(&cut.stderr).contains("line 1 column"),
        "{}",
        text(&cut.stderr)
    );
}

/// The second worker is one that never ends by itself: so the first has ended
/// when the note about it is read, whatever the machine does.
#[test]
fn ctrl_c_keeps_what_was_measured_and_leaves_nothing_behind() {
    let folder = folder();
    let arguments = [
        "run",
        "--stores",
        "crashing,hanging",
        "--workload",
        "fill-random",
        "--keys",
        "100",
        "--repeat",
        "1",
        "--patience",
        "3600",
        "--seed",
        SEED,
        "--json",
        "out.json",
    ];
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
    assert!(
        printed.contains("stopped after 1 of 2 workers"),
        "{printed}"
    );
    let stores: Vec<Value> = crate::harness::runs(folder.path());
    assert!(
        stores.iter().all(|run| run["store"] == "crashing"),
        "{stores:?}"
    );
    assert!(!stores.is_empty());
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "only out.json: {left:?}");
}

/// With it, `crashing` goes first.
const SEED: &str = "1";
