//! A copy has all entries of its store, whatever the engines; one that was cut
//! off is never taken for whole.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::harness::{Place, sorted};

fn scan(place: &Place, store: &str) -> String {
    let text = place.run(["scan", store, "--format", "json"]).done();
    sorted(&text).join("\n")
}

#[test]
fn a_copy_has_all_entries_whatever_the_engines() {
    let engines = ["forest", "wisckey", "zdb", "alphard"];
    for from in engines {
        let place = Place::empty();
        place.run(["create", "s", "--engine", from]).done();
        let lines: String = (0..3000)
            .map(|at| format!("key {at}\tleaf {at}\n"))
            .collect();
        let import = ["import", "s", "--from", "tsv:-"];
        place.run_with_input(import, lines.as_bytes()).done();
        for to in engines {
            let run = place.run(["copy", "s", to, "--engine", to]);
            assert!(run.talk.contains("copied 3000 entries"), "{}", run.talk);
            run.done();
            assert!(
                place.run(["stats", to]).done().contains(to),
                "{from} to {to}"
            );
            assert_eq!(scan(&place, to), scan(&place, "s"), "{from} to {to}");
            place.run(["check", to]).done();
        }
        let left: Vec<_> = fs::read_dir(place.path("")).unwrap().collect();
        assert_eq!(left.len(), 5, "{left:?}");
    }
}

#[test]
fn the_moment_at_which_an_entry_expires_goes_along() {
    let place = Place::empty();
    place.run(["create", "s"]).done();
    place.run(["put", "s", "oak", "1", "--ttl", "30d"]).done();
    place.run(["put", "s", "elm", "2"]).done();
    assert_eq!(place.run(["count", "s"]).done().trim(), "2");
    let lines = |store: &str| {
        let text = place.run(["export", store, "--format", "jsonl"]).done();
        sorted(&text).join("\n")
    };
    let whole = lines("s");
    assert!(whole.contains("expires_at"), "{whole}");
    assert_eq!(whole.lines().count(), 2, "{whole}");
    place.run(["copy", "s", "copied", "--engine", "zdb"]).done();
    assert_eq!(lines("copied"), whole);
    place.run(["export", "s", "--to", "s.dump"]).done();
    let dash = place.run(["export", "s", "--to", "-"]).output;
    assert_eq!(dash, std::fs::read(place.path("s.dump")).unwrap());
    assert!(!place.path("-").exists());
    for (store, from) in [("dumped", "dump:s.dump"), ("lined", "jsonl:-")] {
        place.run(["create", store]).done();
        let import = ["import", store, "--from", from];
        place.run_with_input(import, whole.as_bytes()).done();
        assert_eq!(lines(store), whole, "{from}");
    }
    let tabs = place.run(["export", "s", "--format", "tsv"]);
    assert!(
        tabs.talk.contains("--format jsonl or dump"),
        "{}",
        tabs.talk
    );
    let wrong = place.run(["put", "s", "oak", "1", "--ttl", "soon"]);
    assert!(wrong.talk.contains("90s, 10m"), "{}", wrong.talk);
    let never = place.run(["put", "s", "oak", "1", "--ttl", "0s"]);
    assert!(never.talk.contains("above 0"), "{}", never.talk);

    assert_eq!(place.run(["expire", "s", "elm"]).done(), "never\n");
    place.run(["expire", "s", "elm", "20h"]).done();
    place.run(["expire", "s", "oak", "--never"]).done();
    assert_eq!(place.run(["expire", "s", "oak"]).done(), "never\n");
    let moment = place.run(["expire", "s", "elm"]).done();
    assert!(
        moment.starts_with("20") && moment.ends_with("Z\n"),
        "{moment}"
    );
    for arguments in [&["expire", "s", "ash"][..], &["expire", "s", "ash", "1h"]] {
        let absent = place.run(arguments);
        assert!(
            absent.talk.contains("\"ash\" has no value"),
            "{}",
            absent.talk
        );
    }
}

#[test]
fn a_copy_keeps_the_engine_and_takes_options() {
    let place = Place::with_integer_store();
    place.run(["put", "s", "1905", "planted"]).done();
    place.run(["copy", "s", "same"]).done();
    assert_eq!(place.run(["get", "same", "1905"]).done(), "planted");
    assert!(place.run(["stats", "same"]).done().contains("zdb"));
    let run = place.run([
        "copy",
        "s",
        "bytes",
        "--engine",
        "forest",
        "--set",
        "node_bytes=8192",
    ]);
    assert!(run.talk.contains("big-endian"), "{}", run.talk);
    let get = ["get", "bytes", "--hex", "0000000000000771"];
    assert_eq!(place.run(get).done(), "706c616e746564");
    let bytes = place.run([
        "copy",
        "bytes",
        "numbers",
        "--engine",
        "zdb",
        "--set",
        "keys=integer",
    ]);
    bytes.refused(2, &["keys of bytes", "keys=integer"]);
    assert!(!place.path("numbers").exists() && !place.path("numbers.partial").exists());
    let run = place.run(["copy", "bytes", "more", "--set", "cache_bytes=1MiB"]);
    assert!(run.talk.contains("does not stay"), "{}", run.talk);
}

#[test]
fn namespaces_are_copied_or_chosen() {
    let place = Place::with_store();
    place.run(["put", "s", "oak", "Quercus"]).done();
    let put = ["put", "s", "--namespace", "people", "ada", "Lovelace"];
    place.run(put).done();
    place
        .run(["copy", "s", "all", "--engine", "wisckey"])
        .done();
    assert_eq!(place.run(["namespaces", "all"]).done(), "people\n");
    let get = ["get", "all", "--namespace", "people", "ada"];
    assert_eq!(place.run(get).done(), "Lovelace");
    assert_eq!(place.run(["get", "all", "oak"]).done(), "Quercus");
    place
        .run(["copy", "s", "none", "--engine", "zdb"])
        .refused(2, &["people", "--namespace"]);
    place
        .run([
            "copy",
            "s",
            "one",
            "--engine",
            "zdb",
            "--namespace",
            "people",
        ])
        .done();
    assert_eq!(place.run(["scan", "one"]).done(), "ada\tLovelace\n");
    place
        .run(["copy", "s", "none", "--namespace", "trees"])
        .refused(1, &["no namespace"]);
}

#[test]
fn a_place_that_is_taken_is_refused() {
    let place = Place::with_store();
    place.run(["put", "s", "oak", "Quercus"]).done();
    place.file("full/file", "x");
    place
        .run(["copy", "s", "full"])
        .refused(2, &["full", "empty"]);
    place.run(["copy", "s", "s/inner"]).refused(2, &["inside"]);
    place.run(["copy", "s", "s"]).refused(2, &["inside"]);
    place.file("file", "x");
    assert_eq!(place.run(["copy", "s", "file"]).status, Some(3));
    fs::create_dir(place.path("empty")).unwrap();
    place.run(["copy", "s", "empty"]).done();
    assert_eq!(place.run(["get", "empty", "oak"]).done(), "Quercus");
    // The name that an unfinished copy has may be somebody's.
    place.file("to.partial/file", "x");
    place.run(["copy", "s", "to"]).refused(3, &["to.partial"]);
    assert!(place.path("to.partial/file").exists());
    place
        .run(["copy", "s", "t", "--set", "nodes=1"])
        .refused(2, &["nodes"]);
}

#[test]
fn a_copy_that_was_cut_off_is_not_there_and_begins_anew() {
    let place = Place::with_store();
    let value = "x".repeat(1000);
    let lines: String = (0..30_000)
        .map(|at| format!("key {at}\t{value}\n"))
        .collect();
    let import = ["import", "s", "--from", "tsv:-"];
    place.run_with_input(import, lines.as_bytes()).done();
    let mut child = place
        .command(["copy", "s", "to"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !place.path("to.partial/COPY-UNFINISHED").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "it never began");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        !place.path("to").exists(),
        "it was done before it was cut off"
    );
    assert!(place.path("to.partial").exists());
    let run = place.run(["copy", "s", "to"]);
    assert!(run.talk.contains("beginning anew"), "{}", run.talk);
    run.done();
    assert_eq!(place.run(["count", "to"]).done(), "30000\n");
    assert!(!place.path("to.partial").exists());
    assert!(!place.path("to/COPY-UNFINISHED").exists());
}

#[test]
fn a_store_with_a_comparator_is_read_and_copied_but_not_written() {
    let place = Place::with_store();
    place.run(["put", "s", "Oak", "1"]).done();
    place.file("s/COMPARATOR", "ignoring case");
    place.file("lines", "elm\t1\n");
    for refused in [
        &["put", "s", "oak", "2"][..],
        &["put", "s", "oak", "2", "--namespace", "other"],
        &["delete", "s", "Oak"],
        &["import", "s", "--from", "tsv:lines"],
        &["snapshot", "s", "create", "then"],
        &["rollback", "s", "then"],
        &["namespaces", "s", "--drop", "other"],
    ] {
        let run = place.run(refused);
        run.refused(2, &["comparator \"ignoring case\""]);
    }
    let shell = place.run_with_input(["shell", "s"], b"put oak 2\n");
    assert!(shell.talk.contains("comparator"), "{}", shell.talk);
    assert_eq!(place.run(["get", "s", "Oak"]).done().trim(), "1");
    for read in ["scan", "stats", "check", "compact", "repair"] {
        place.run([read, "s"]).done();
    }
    place
        .run(["copy", "s", "copied", "--engine", "wisckey"])
        .done();
    place.run(["backup", "s", "backed"]).done();
    place
        .run(["backup", "s", "backups", "--incremental"])
        .done();
    place.run(["restore", "backups", "restored"]).done();
    for store in ["s", "copied", "backed", "restored"] {
        assert_eq!(scan(&place, store), scan(&place, "s"), "{store}");
        let name = fs::read_to_string(place.path(store).join("COMPARATOR")).unwrap();
        assert_eq!(name, "ignoring case", "{store}");
    }
    for engine in ["zdb", "alphard"] {
        let run = place.run(["copy", "s", "other", "--engine", engine]);
        assert!(
            run.talk.contains("comparator \"ignoring case\""),
            "{}",
            run.talk
        );
        assert!(!place.path("other").exists() && !place.path("other.partial").exists());
    }
}
