//! `kvzone list stores`, as a user calls it.

use std::process::Output;

use crate::harness::{assert_has, command, folder, printed, said, words};
use serde_json::Value;

/// `list`, which looks for libraries where they are installed.
fn list(arguments: &[&str]) -> Output {
    let folder = folder();
    let mut command = command(folder.path(), &[&["list"], arguments].concat());
    command.env_remove("KVZONE_PEER_LIBS").output().unwrap()
}

fn rows(output: &Output) -> Vec<Value> {
    let rows: Value = serde_json::from_str(&printed(output)).unwrap();
    rows.as_array().unwrap().clone()
}

#[test]
fn every_store_is_found_with_a_version_or_missing_with_a_remedy() {
    let rows = rows(&list(&["stores", "--json"]));
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
    let rows = rows(&list(&["stores", "zdb", "--json"]));
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["found"], Value::Bool(true));
}

#[test]
fn an_unknown_store_is_wrong_usage_and_the_nearest_is_offered() {
    let output = list(&["stores", "rockdb"]);
    assert_has(&said(&output, 2), "near it: rocksdb");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_file_that_is_no_library_is_passed_over_and_named() {
    let folder = folder();
    let file = folder.path().join("libleveldb.so.1d");
    std::fs::write(&file, "not a library").unwrap();
    let mut command = command(folder.path(), &["list", "stores", "leveldb", "--json"]);
    let output = command.env("KVZONE_PEER_LIBS", folder.path()).output();
    let row = &rows(&output.unwrap())[0];
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
    let table = printed(&list(&["stores"]));
    for name in ["zdb", "leveldb", "rocksdb-blob", "sqlite"] {
        assert!(table.contains(name), "{table}");
    }
}
