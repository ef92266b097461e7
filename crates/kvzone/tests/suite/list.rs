//! `kvzone list stores`, as a user calls it.

use std::process::{Command, Output};

use crate::harness::words;
use serde_json::Value;

fn kvzone(arguments: &[&str], folders: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvzone"));
    command.args(arguments).env_remove("KVZONE_PEER_LIBS");
    if let Some(folders) = folders {
        command.env("KVZONE_PEER_LIBS", folders);
    }
    command.output().unwrap()
}

fn rows(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    rows.as_array().unwrap().clone()
}

#[test]
fn every_store_is_found_with_a_version_or_missing_with_a_remedy() {
    let rows = rows(&kvzone(&["list", "stores", "--json"], None));
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    for name in words(
        "zdb leveldb rocksdb rocksdb-blob berkeleydb kyotocabinet tokyocabinet lmdb \
         sqlite fjall",
    ) {
        assert!(names.contains(&name), "{name} is listed");
    }
    for row in &rows {
        assert!(!row["summary"].as_str().unwrap().is_empty());
        let (present, absent) = if row["found"].as_bool().unwrap() {
            ("version", "remedy")
        } else {
            ("remedy", "version")
        };
        assert!(
            row[present].as_str().is_some_and(|text| !text.is_empty()),
            "{row}"
        );
        assert!(row[absent].is_null(), "{row}");
    }
}

#[test]
fn our_own_engines_are_always_there() {
    let rows = rows(&kvzone(&["list", "stores", "zdb", "--json"], None));
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["found"], Value::Bool(true));
}

#[test]
fn an_unknown_store_is_wrong_usage_and_the_nearest_is_offered() {
    let output = kvzone(&["list", "stores", "rockdb"], None);
    assert_eq!(output.status.code(), Some(2));
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("near it: rocksdb"), "{words}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_file_that_is_no_library_is_passed_over_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libleveldb.so.1d");
    std::fs::write(&file, "not a library").unwrap();
    let output = kvzone(
        &["list", "stores", "leveldb", "--json"],
        folder.path().to_str(),
    );
    let row = &rows(&output)[0];
    match row["found"].as_bool().unwrap() {
        // Another one was found: never this.
        true => assert_ne!(row["path"].as_str(), file.to_str()),
        false => {
            let missing = row["missing"].as_str().unwrap();
            assert!(missing.contains("libleveldb.so.1d"), "{missing}");
        }
    }
}

#[test]
fn the_table_names_every_store() {
    let output = kvzone(&["list", "stores"], None);
    assert!(output.status.success());
    let table = String::from_utf8(output.stdout).unwrap();
    for name in ["zdb", "leveldb", "rocksdb-blob", "sqlite"] {
        assert!(table.contains(name), "{table}");
    }
}
