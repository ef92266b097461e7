//! `kvzone device` as people and scripts run it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::harness::{assert_has, text};
use serde_json::Value;

fn kvzone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvzone"))
        .args(arguments)
        .output()
        .unwrap()
}

/// A test file and a time so small that the numbers mean nothing.
fn tiny(directory: &Path) -> Vec<&str> {
    let directory = directory.to_str().unwrap();
    let words = ["device", "--dir", directory, "--size", "4MiB", "--seconds"];
    words.into_iter().chain(["0.005"]).collect()
}

#[test]
fn every_back_end_depth_and_mode_is_measured_and_the_folder_is_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let json = tempfile::NamedTempFile::new().unwrap();
    let mut arguments = tiny(folder.path());
    arguments.extend(["--json", json.path().to_str().unwrap()]);
    let output = kvzone(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress but on a terminal");
    assert!(text(&output.stdout).contains("io_uring"));
    let report: Value = serde_json::from_slice(&std::fs::read(json.path()).unwrap()).unwrap();
    assert_eq!(report["schema"], "kvzone-device/1");
    let direct = report["notes"].as_array().unwrap().is_empty();
    if !direct {
        println!("SKIPPED: direct points: {}", report["notes"]);
    }
    let random = report["random_reads"].as_array().unwrap();
    assert_eq!(random.len(), if direct { 30 } else { 15 });
    for point in random {
        assert!(point["reads"].as_u64().unwrap() > 0, "{point}");
        assert!(point["reads_per_second"].as_f64().unwrap() > 0.0, "{point}");
    }
    let count = |part: &str| report[part].as_array().unwrap().len();
    let expected = if direct { (4, 6) } else { (2, 4) };
    assert_eq!((count("sequential"), count("synced_writes")), expected);
    assert_eq!(report["file_bytes"], 4 << 20);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn requests_have_the_size_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    for (request, sequential, random) in [("64", 64, 4096), ("256KiB", 262_144, 262_144)] {
        let json = tempfile::NamedTempFile::new().unwrap();
        let mut arguments = tiny(folder.path());
        arguments.extend(["--request", request, "--only", "sequential,random"]);
        arguments.extend(["--json", json.path().to_str().unwrap()]);
        let output = kvzone(&arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&std::fs::read(json.path()).unwrap()).unwrap();
        for (part, bytes) in [("sequential", sequential), ("random_reads", random)] {
            let found = report[part].as_array().unwrap();
            assert!(found.iter().all(|it| it["block_bytes"] == bytes), "{part}");
        }
    }
}

#[test]
fn a_folder_that_is_missing_and_one_without_room_are_named_with_status_3() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let output = kvzone(&tiny(&missing));
    assert_eq!(output.status.code(), Some(3));
    let message = text(&output.stderr);
    assert_has(&message, "missing");
    assert_has(&message, "no such folder");
    let mut arguments = tiny(folder.path());
    arguments[4] = "1000TiB";
    let output = kvzone(&arguments);
    assert_eq!(output.status.code(), Some(3));
    assert_has(&text(&output.stderr), "--size");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_json_file_that_cannot_be_made_is_noticed_before_measuring() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = tiny(folder.path());
    arguments.extend(["--json", "/no/such/folder/a.json"]);
    let output = kvzone(&arguments);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stdout), "");
    assert!(text(&output.stderr).contains("/no/such/folder/a.json"));
}

#[test]
fn wrong_usage_has_status_2() {
    for arguments in [
        vec!["device"],
        vec!["device", "--dir", "/tmp", "--size", "2 apples"],
        vec!["device", "--dir", "/tmp", "--seconds", "-1"],
        vec!["device", "--dir", "/tmp", "--request", "3KiB"],
        vec!["device", "--dir", "/tmp", "--only", "nonsense"],
        vec!["nonsense"],
    ] {
        let output = kvzone(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_a_quiet_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = tiny(folder.path());
    arguments.extend(["--only", "sequential"]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_kvzone"))
        .args(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_kernel_that_refuses_a_ring_is_answered_with_aio_and_a_note() {
    let folder = tempfile::tempdir().unwrap();
    // Five descriptors: the three standard ones and two of the test file. A
    // ring needs a sixth; an AIO context needs none.
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 5; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_kvzone"))
        .args(tiny(folder.path()))
        .args(["--only", "random"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    if said.contains("direct I/O was not measured") {
        println!("SKIPPED: without a direct handle a descriptor is left for the ring");
        return;
    }
    assert_has(&said, "io_uring refused: Too many open files");
    assert!(said.contains("aio serves"), "{said}");
}
