//! The program finds defects that engines can be told to have, and passes without them: a
//! checker that finds nothing proves nothing.

use std::path::Path;
use std::process::{Command, Output};

fn stress(engine: &str, more: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder for the stores");
    Command::new(env!("CARGO_BIN_EXE_cambium-stress"))
        .args([
            "--engine",
            engine,
            "--seed",
            "3",
            // The program ends as soon as it finds something, and needs long on a busy machine.
            "--seconds",
            "900",
            "--no-tools",
            "--dir",
        ])
        .arg(folder.path())
        .args(more)
        .output()
        .expect("the program starts")
}

fn is_found(engine: &str, bug: &str, mode: &[&str]) {
    if mode.contains(&"--power-cuts") && !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED {engine} {bug}: /dev/fuse is missing");
        return;
    }
    let output = stress(engine, &[mode, &["--seeded-bug", bug]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("VIOLATION"),
        "{engine} with {bug}: not found: {said}"
    );
}

#[test]
fn kills_find_writes_that_are_lost() {
    is_found("forest", "delete_unlogged", &["--kill"]);
    is_found(
        "zdb",
        "delete_unlogged",
        &["--kill", "--set", "keys=string"],
    );
    is_found("alphard", "no_tombstone", &["--kill"]);
    is_found("wisckey", "delete_unlogged", &["--kill"]);
}

#[test]
fn power_cuts_find_syncs_that_are_missing() {
    is_found("forest", "commit_unsynced", &["--power-cuts"]);
    is_found("wisckey", "commit_unsynced", &["--power-cuts"]);
    is_found(
        "zdb",
        "commit_log_unsynced",
        &["--power-cuts", "--set", "keys=string"],
    );
    is_found("alphard", "no_sync", &["--power-cuts"]);
}

#[test]
fn threads_find_values_that_go_back() {
    is_found("wisckey", "collection_reinserts", &["--kill"]);
    is_found("forest", "flush_drops_active", &[]);
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    for engine in ["forest", "wisckey", "zdb", "alphard"] {
        let output = stress(engine, &["--kill", "--rounds", "1"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{engine}: {said}");
    }
}
