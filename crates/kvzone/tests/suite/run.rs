//! `kvzone run` as people and scripts run it, with stores that need no library.

use std::process::Stdio;

use crate::harness::{
    assert_has, command, folder, kvzone, printed, read, run, runs, said, text, words,
};
use serde_json::Value;

#[test]
fn stores_take_turns_in_an_order_that_the_seed_decides() {
    let folder = folder();
    let order = |seed: &str| {
        let all = "run --stores memory,null --workload fill-sequential --keys 100 --repeat 6 \
            --json out.json --seed";
        printed(&kvzone(folder.path(), &[&words(all)[..], &[seed]].concat()));
        let of = |run: &Value| (run["repeat"].as_u64().unwrap(), run["store"].to_string());
        runs(folder.path()).iter().map(of).collect::<Vec<_>>()
    };
    let first = order("1");
    assert_eq!(first.len(), 12);
    for (turn, (repeat, _)) in first.iter().enumerate() {
        assert_eq!(*repeat, turn as u64 / 2, "both stores in each round");
    }
    let leaders: Vec<&String> = first.iter().step_by(2).map(|(_, store)| store).collect();
    assert!(
        leaders.iter().any(|store| *store != leaders[0]),
        "{leaders:?}"
    );
    assert_eq!(first, order("1"));
    assert_ne!(first, order("3"));
}

#[test]
fn a_reader_that_goes_away_is_a_quiet_end() {
    let folder = folder();
    let arguments = words("run --stores memory,null --workload fill-random --keys 100");
    let mut child = command(folder.path(), &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let said = said(&child.wait_with_output().unwrap(), 0);
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn a_memory_limit_holds_or_the_run_says_that_it_does_not() {
    let folder = folder();
    let limited = words("--stores zdb --workload fill-random --memory 128MiB");
    let output = run(folder.path(), &limited);
    printed(&output);
    let run_of = &runs(folder.path())[0];
    if run_of["memory_limit_bytes"].is_null() {
        let said = text(&output.stderr);
        assert!(said.contains("NOT limited"), "{said}");
        println!("SKIPPED: no memory limit can be set here: {said}");
        return;
    }
    assert_eq!(run_of["memory_limit_bytes"], 128 << 20);
    let peak = run_of["extra"]["memory_group_peak_bytes"].as_u64().unwrap();
    assert!((1..=128 << 20).contains(&peak), "{peak}");
    // Keys of 64 MiB in memory do not fit: the kernel ends the worker.
    let too_large = words(
        "run --stores memory --workload fill-random --memory 32MiB --keys 1000 \
        --value-size 64KiB --repeat 1 --json out.json",
    );
    let output = kvzone(folder.path(), &too_large);
    assert_has(&said(&output, 3), "more than the memory limit of 32 MiB");
    assert_eq!(runs(folder.path())[0]["status"], "crashed");
}

#[test]
fn the_page_is_one_file_that_links_to_nothing() {
    let folder = folder();
    let output = run(
        folder.path(),
        &words("--stores memory,zdb --workload fill-random,ycsb-a --html out.html"),
    );
    let printed = printed(&output);
    let page = read(folder.path(), "out.html");
    for part in [
        "class=\"chart\"",
        "fill-random",
        "ycsb-a",
        "durability written",
        "Settings of each store",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for outside in ["src=", "<link", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    for part in [
        "write amp",
        "p99.9",
        "profile equal",
        "zdb 0.",
        "fewer than the 5",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
}

#[test]
fn workloads_and_stores_can_be_listed() {
    let folder = folder();
    let output = kvzone(folder.path(), &["list", "workloads"]);
    assert!(text(&output.stdout).contains("ycsb-f"));
    let all = text(&kvzone(folder.path(), &["list"]).stdout);
    assert!(all.contains("ycsb-f") && all.contains("zdb") && all.contains("null"));
    assert!(
        !all.contains("crashing"),
        "stores for tests are not for users"
    );
}

#[test]
fn several_threads_and_sizes_are_measured_apart_and_written_as_lines() {
    let folder = folder();
    let sweep = words("--threads 1,2 --value-size 10,20-30 --csv out.csv");
    let what = words("--stores memory --workload read-random --markdown out.md");
    let printed = printed(&run(folder.path(), &[&what[..], &sweep].concat()));
    for part in [
        "16 + 10 bytes",
        "16 + 25 bytes",
        ", 1 thread\n",
        ", 2 threads\n",
    ] {
        assert_eq!(printed.matches(part).count(), 2, "{part}: {printed}");
    }
    // One table has all of them.
    let head = printed
        .lines()
        .filter(|line| line.contains("┆ value bytes ┆"));
    assert_eq!(head.count(), 1, "{printed}");
    let csv = read(folder.path(), "out.csv");
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let at = |name: &str| names.iter().position(|it| *it == name).unwrap();
    let runs = runs(folder.path());
    assert_eq!(
        (lines.clone().count(), runs.len()),
        (8, 8),
        "a load and a run each"
    );
    for (line, run) in lines.zip(&runs) {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.len(), names.len(), "{line}");
        assert_eq!(
            cells[at("ops_per_second")],
            run["ops_per_second"].to_string()
        );
        assert_eq!(
            cells[at("latency_ns_p99")],
            run["latency_ns"]["p99"].to_string()
        );
    }
    let summary = read(folder.path(), "out.md");
    let title = |title: &str| summary.matches(title).count();
    assert_eq!(title("\n## read-random\n"), 1, "{summary}");
    assert_eq!(title("\n**threads 2, value bytes 25**\n"), 1, "{summary}");
    assert_has(&summary, "\n| store | threads | value bytes | ops/s |");
    let command = "\n```sh\nkvzone run ";
    assert!(summary.contains(command), "{summary}");
}
