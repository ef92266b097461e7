//! `--reopen kill`: a real process is killed while it writes, and what it had
//! acknowledged is looked up.

use crate::harness::{folder, kvzone, run, runs, text};
use serde_json::Value;

fn reopened(runs: &[Value], store: &str) -> Value {
    let mut own = runs
        .iter()
        .filter(|run| run["store"] == store && run["phase"] == "reopen");
    let found = own.next().unwrap().clone();
    assert!(own.next().is_none(), "one a round");
    found
}

#[test]
fn what_survives_is_told_and_a_store_that_lies_about_it_is_marked() {
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
    assert!(printed.contains("500 survived, 0 lost"), "{printed}");
    assert!(printed.contains("BROKE ITS PROMISE: it had acknowledged them as synced"));
    let page = std::fs::read_to_string(folder.path().join("out.html")).unwrap();
    assert!(page.contains("After a kill: what was acknowledged as synced"));
    assert_eq!(page.matches("BROKE ITS PROMISE").count(), 1);
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "only what was asked for: {left:?}");
}

#[test]
fn nothing_is_killed_that_keeps_nothing_or_has_no_keys_to_write_on() {
    let folder = folder();
    let kill = ["--reopen=kill", "--workload"];
    let memory = run(
        folder.path(),
        &[&kill[..], &["ycsb-a", "--stores", "memory"]].concat(),
    );
    assert_eq!(memory.status.code(), Some(2), "{}", text(&memory.stderr));
    let trace = [
        "--workload",
        "fill-random",
        "--stores",
        "memory",
        "--record",
        "trace",
    ];
    assert!(run(folder.path(), &trace).status.success());
    let replay = [
        "run",
        "--stores",
        "zdb",
        "--workload",
        "trace:trace",
        "--reopen=kill",
    ];
    let replay = kvzone(folder.path(), &replay);
    assert_eq!(replay.status.code(), Some(2));
    assert!(
        text(&replay.stderr).contains("not of a trace"),
        "{}",
        text(&replay.stderr)
    );
}
