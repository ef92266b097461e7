//! What `kvzone run` refuses, and what it leaves out.

use crate::harness::{folder, kvzone, run, runs, text, words};

#[test]
fn unknown_names_offer_the_nearest_and_are_wrong_usage() {
    let folder = folder();
    let cases: &[(&[&str], &str)] = &[
        (
            &["--stores", "memroy", "--workload", "fill-random"],
            "memory",
        ),
        (
            &["--stores", "memory", "--workload", "fil-random"],
            "fill-random",
        ),
        (
            &words("--stores memory --workload fill-random --set memry.a=b"),
            "memory",
        ),
        (
            &words("--stores zdb --workload fill-random --set zdb.data_file=1"),
            "data_files",
        ),
        (
            &words("--stores memory --workload fill-random --popularity zipfain"),
            "zipfian",
        ),
    ];
    for (arguments, near) in cases {
        let output = run(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains(near), "{arguments:?}: {said}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn sizes_and_mixes_that_cannot_be_are_wrong_usage() {
    let folder = folder();
    let cases: &[&[&str]] = &[
        &["--keys", "0"],
        &["--key-size", "1", "--keys", "1000"],
        &["--key-size", "64-16"],
        &["--key-size", "0"],
        &["--value-size", "many"],
        &["--threads", "0"],
        &["--batch", "0"],
        &["--rate", "0"],
        &["--rate", "nan"],
        &["--seconds", "-1"],
        &["--operations", "5", "--seconds", "5"],
        &["--verify-every", "0"],
        &["--compressible", "1.5"],
        &["--repeat", "0"],
        &["--memory", "lots"],
        &["--durability", "maybe"],
    ];
    for case in cases {
        let mut arguments = vec!["run", "--stores", "memory", "--workload", "fill-random"];
        arguments.extend(*case);
        let output = kvzone(folder.path(), &arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{case:?}: {}",
            text(&output.stderr)
        );
    }
    let batched_reads = words("run --stores memory --workload ycsb-c --batch 2");
    assert_eq!(kvzone(folder.path(), &batched_reads).status.code(), Some(2));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_disk_without_room_is_refused_before_anything_is_written() {
    let folder = folder();
    let output = kvzone(
        folder.path(),
        &words("run --stores memory --workload fill-random --keys 1G --value-size 1MiB"),
    );
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("are free"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn what_no_store_can_do_is_unsupported_and_what_one_can_is_done() {
    let folder = folder();
    let output = run(
        folder.path(),
        &["--stores", "memory", "--workload", "read-random", "--cold"],
    );
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert_eq!(runs(folder.path())[0]["status"], "unsupported");
    let stores = words("--stores memory,zdb --workload read-random --cold");
    let output = run(folder.path(), &stores);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let cold = runs(folder.path())
        .into_iter()
        .find(|run| run["store"] == "zdb" && run["phase"] == "run")
        .unwrap();
    let proof = &cold["extra"]["cold"];
    assert!(proof["files"].as_u64().unwrap() > 0, "{cold}");
    if proof["resident_bytes"].is_null() {
        println!("SKIPPED: this kernel cannot prove that a cache is cold");
    }
}

#[test]
fn a_job_file_and_the_command_line_add_up() {
    let folder = folder();
    let job = "stores = [\"memory\"]\nworkload = \"fill-random\"\nkeys = 300\nrepeat = 2\n";
    std::fs::write(folder.path().join("job.toml"), job).unwrap();
    let arguments = [
        "run", "--job", "job.toml", "--repeat", "1", "--json", "out.json",
    ];
    let output = kvzone(folder.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let runs = runs(folder.path());
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["keys"], 300);
    std::fs::write(folder.path().join("job.toml"), "keyz = 3\n").unwrap();
    let output = kvzone(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("job job.toml:1:1: there is no option \"keyz\""),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn more_keys_than_memory_has_room_for_are_refused_before_anything_is_made_of_them() {
    let folder = folder();
    let options = words("--stores zdb --workload fill-random --keys 1000G");
    let output = kvzone(folder.path(), &[&["run"], &options[..]].concat());
    assert_eq!(output.status.code(), Some(3));
    let words = text(&output.stderr);
    assert!(words.contains("find memory in this machine"), "{words}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
