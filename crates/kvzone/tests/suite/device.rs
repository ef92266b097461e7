//! `kvzone device` as people and scripts run it.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{assert_has, command, folder, kvzone, printed, said, text};
use serde_json::Value;

/// A test file and a time so small that the numbers mean nothing.
fn tiny(directory: &Path) -> Vec<&str> {
    let directory = directory.to_str().unwrap();
    let words = ["device", "--dir", directory, "--size", "4MiB", "--seconds"];
    words.into_iter().chain(["0.005"]).collect()
}

#[test]
fn every_back_end_depth_and_mode_is_measured_and_the_folder_is_left_as_it_was() {
    let folder = folder();
    let json = tempfile::NamedTempFile::new().unwrap();
    let mut arguments = tiny(folder.path());
    arguments.extend(["--json", json.path().to_str().unwrap()]);
    let output = kvzone(folder.path(), &arguments);
    assert_has(&printed(&output), "io_uring");
    assert_eq!(text(&output.stderr), "", "no progress but on a terminal");
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
    let folder = folder();
    for (request, sequential, random) in [("64", 64, 4096), ("256KiB", 262_144, 262_144)] {
        let json = tempfile::NamedTempFile::new().unwrap();
        let mut arguments = tiny(folder.path());
        arguments.extend(["--request", request, "--only", "sequential,random"]);
        arguments.extend(["--json", json.path().to_str().unwrap()]);
        printed(&kvzone(folder.path(), &arguments));
        let report: Value = serde_json::from_slice(&std::fs::read(json.path()).unwrap()).unwrap();
        for (part, bytes) in [("sequential", sequential), ("random_reads", random)] {
            let found = report[part].as_array().unwrap();
            assert!(found.iter().all(|it| it["block_bytes"] == bytes), "{part}");
        }
    }
}

#[test]
fn a_folder_that_is_missing_and_one_without_room_are_named_with_status_3() {
    let folder = folder();
    let missing = folder.path().join("missing");
    let message = said(&kvzone(folder.path(), &tiny(&missing)), 3);
    assert_has(&message, "missing");
    assert_has(&message, "no such folder");
    let mut arguments = tiny(folder.path());
    arguments[4] = "1000TiB";
    let output = kvzone(folder.path(), &arguments);
    assert_has(&said(&output, 3), "--size");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_json_file_that_cannot_be_made_is_noticed_before_measuring() {
    let folder = folder();
    let mut arguments = tiny(folder.path());
    arguments.extend(["--json", "/no/such/folder/a.json"]);
    let output = kvzone(folder.path(), &arguments);
    assert_has(&said(&output, 3), "/no/such/folder/a.json");
    assert_eq!(text(&output.stdout), "");
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
        let output = kvzone(folder().path(), &arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_a_quiet_end() {
    let folder = folder();
    let mut arguments = tiny(folder.path());
    arguments.extend(["--only", "sequential"]);
    let mut child = command(folder.path(), &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(said(&output, 0), "");
}

#[test]
fn a_kernel_that_refuses_a_ring_is_answered_with_aio_and_a_note() {
    let folder = folder();
    // Five descriptors: the three standard ones and two of the test file. A
    // ring needs a sixth; an AIO context needs none.
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 5; exec \"$0\" \"$@\""])
        .arg(crate::program())
        .args(tiny(folder.path()))
        .args(["--only", "random"])
        .output()
        .unwrap();
    let printed = printed(&output);
    if printed.contains("direct I/O was not measured") {
        println!("SKIPPED: without a direct handle a descriptor is left for the ring");
        return;
    }
    assert_has(&printed, "io_uring refused: Too many open files");
    assert_has(&printed, "aio serves");
}
