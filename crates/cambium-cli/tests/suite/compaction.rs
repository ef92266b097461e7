//! `cambium compact` that is told to stop.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::Place;

/// What a compaction that goes at 1 MiB a second needs many seconds for.
fn lines() -> String {
    let value = "v".repeat(4000);
    let line = |number: u32| format!("{{\"key\":\"key{number:06}\",\"value\":\"{value}\"}}\n");
    (0..8_000).map(line).collect()
}

#[test]
fn an_interrupted_compaction_leaves_the_store_as_it_was() {
    let place = Place::with_store();
    let import = place.run_with_input(["import", "s", "--from", "jsonl:-"], lines().as_bytes());
    assert_eq!(import.status, Some(0), "{}", import.talk);
    let before = place.data_files();
    assert_eq!(before.len(), 1);

    let slow = ["compact", "s", "--set", "compaction_rate_bytes=1MiB"];
    let child = place
        .command(slow)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The new file is there: it has begun.
    let patience = Instant::now() + Duration::from_secs(60);
    while place.data_files().len() < 2 {
        assert!(Instant::now() < patience, "it never began");
        std::thread::sleep(Duration::from_millis(5));
    }
    let interrupted = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(interrupted.success());
    let ended = child.wait_with_output().unwrap();
    let talk = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{talk}");
    assert!(talk.contains("cancelled"), "{talk}");
    assert_eq!(place.data_files(), before, "nothing of the new file stays");
    let check = place.run(["check", "s"]);
    assert_eq!(check.status, Some(0), "{}", check.talk);
}
