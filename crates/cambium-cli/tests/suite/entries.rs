//! Values from elsewhere, entries counted and taken away by range, and what a
//! person at a terminal sees.

use std::fs;

use crate::harness::Place;

#[test]
fn a_value_comes_from_standard_input_or_a_file() {
    let place = Place::with_store();
    let bytes = b"one\ntwo\0\xff";
    place.run_with_input(["put", "s", "oak", "-"], bytes).done();
    assert_eq!(place.run(["get", "s", "oak"]).output, bytes);
    place.file("leaf", b"\xffgreen\n");
    place
        .run(["put", "s", "elm", "--value-file", "leaf"])
        .done();
    assert_eq!(place.run(["get", "s", "elm"]).output, b"\xffgreen\n");
    // Digits are of the command line alone.
    let put = ["put", "s", "--hex", "00ff", "--value-file", "leaf"];
    place.run(put).done();
    assert_eq!(
        place.run(["get", "s", "--hex", "00ff"]).output,
        b"ff677265656e0a"
    );
    place.run_with_input(["put", "s", "none", "-"], b"").done();
    assert_eq!(place.run(["get", "s", "none"]).output, b"");
}

#[test]
fn a_value_may_come_from_a_command_on_the_same_store() {
    let place = Place::with_store();
    place.run(["put", "s", "oak", "Quercus"]).done();
    let binary = env!("CARGO_BIN_EXE_cambium");
    let line = format!("'{binary}' get s oak | '{binary}' put s copy -");
    let status = std::process::Command::new("sh")
        .args(["-c", &line])
        .current_dir(place.path(""))
        .status();
    assert!(status.unwrap().success());
    assert_eq!(place.run(["get", "s", "copy"]).done(), "Quercus");
}

#[test]
fn a_value_that_is_missing_or_given_twice_is_refused() {
    let place = Place::with_store();
    place.file("leaf", "green");
    assert_eq!(place.run(["put", "s", "oak"]).status, Some(2));
    let twice = place.run(["put", "s", "oak", "x", "--value-file", "leaf"]);
    assert_eq!(twice.status, Some(2));
    place
        .run(["put", "s", "oak", "--value-file", "none"])
        .refused(3, &["none", "No such file"]);
    place
        .run(["put", "s", "oak", "--value-file", "s"])
        .refused(3, &["directory"]);
    place.run(["get", "s", "oak"]).refused(1, &[]);
}

fn with_trees(place: Place) -> Place {
    for key in ["oak", "olive", "elm", "ash"] {
        place.run(["put", "s", key, "tree"]).done();
    }
    place
}

#[test]
fn entries_are_counted_whole_by_range_and_by_prefix() {
    let place = with_trees(Place::with_store());
    let count = |arguments: &[&str]| {
        let all = [&["count", "s"], arguments].concat();
        place.run(all).done()
    };
    assert_eq!(count(&[]), "4\n");
    assert_eq!(count(&["--prefix", "o"]), "2\n");
    assert_eq!(count(&["--from", "b", "--to", "olive"]), "2\n");
    assert_eq!(count(&["--from", "x"]), "0\n");
    let put = ["put", "s", "--namespace", "people", "ada", "Lovelace"];
    place.run(put).done();
    assert_eq!(count(&["--namespace", "people"]), "1\n");
    let unordered = with_trees(Place::with_unordered_store());
    assert_eq!(unordered.run(["count", "s"]).done(), "4\n");
    let prefix = ["count", "s", "--unordered", "--prefix", "o"];
    assert_eq!(unordered.run(prefix).done(), "2\n");
    unordered
        .run(["count", "s", "--prefix", "o"])
        .refused(2, &["--unordered"]);
    let numbers = Place::with_integer_store();
    numbers.run(["put", "s", "7", ""]).done();
    numbers.run(["put", "s", "70", ""]).done();
    assert_eq!(numbers.run(["count", "s", "--to", "70"]).done(), "1\n");
}

#[test]
fn ranges_and_prefixes_are_deleted_and_counted() {
    let place = with_trees(Place::with_store());
    let delete = |arguments: &[&str]| {
        let all = [&["delete", "s"], arguments].concat();
        place.run(all)
    };
    let tried = delete(&["--prefix", "o", "--dry-run"]).done();
    assert_eq!(tried, "2 entries would be deleted\n");
    assert_eq!(place.run(["count", "s"]).done(), "4\n");
    assert_eq!(delete(&["--prefix", "o"]).done(), "2 entries deleted\n");
    assert_eq!(delete(&["--prefix", "o"]).done(), "0 entries deleted\n");
    assert_eq!(delete(&["--to", "b"]).done(), "1 entries deleted\n");
    assert_eq!(place.run(["scan", "s", "--keys-only"]).done(), "elm\n");
    // A range that is everything has to be asked for.
    assert_eq!(delete(&[]).status, Some(2));
    assert_eq!(delete(&["--unordered"]).status, Some(2));
    assert_eq!(delete(&["elm", "--prefix", "o"]).status, Some(2));
    assert_eq!(delete(&["elm", "--dry-run"]).status, Some(2));
    assert_eq!(delete(&["--from", ""]).done(), "1 entries deleted\n");
}

#[test]
fn an_unordered_store_deletes_by_prefix_in_a_full_pass() {
    for engine in ["zdb", "alphard"] {
        let place = Place::empty();
        place.run(["create", "s", "--engine", engine]).done();
        let lines: String = (0..2500)
            .map(|at| format!("{}-{at}\tleaf\n", at % 2))
            .collect();
        place
            .run_with_input(["import", "s", "--from", "tsv:-"], lines.as_bytes())
            .done();
        let delete = ["delete", "s", "--prefix", "1-"];
        place.run(delete).refused(2, &["--unordered"]);
        let deleted = place.run(["delete", "s", "--unordered", "--prefix", "1-"]);
        assert_eq!(deleted.done(), "1250 entries deleted\n", "{engine}");
        assert_eq!(place.run(["count", "s"]).done(), "1250\n", "{engine}");
        place.run(["check", "s"]).done();
    }
}

#[test]
fn a_full_store_is_emptied_by_prefix_in_a_full_pass() {
    for block_bytes in ["512", "4096"] {
        let place = Place::empty();
        let block = format!("block_bytes={block_bytes}");
        let create = ["create", "s", "--engine", "alphard", "--set", "size=1MiB"];
        place.run(create.iter().chain(&["--set", &block])).done();
        let lines: String = (0..60_000).map(|at| format!("key{at}\tleaf\n")).collect();
        let import = ["import", "s", "--from", "tsv:-"];
        place
            .run_with_input(import, lines.as_bytes())
            .refused(3, &["no space"]);
        let count = place.run(["count", "s"]).done();
        let deleted = place.run(["delete", "s", "--unordered", "--prefix", "key"]);
        let expected = format!("{} entries deleted\n", count.trim());
        assert_eq!(deleted.done(), expected, "{block_bytes}");
        assert_eq!(place.run(["count", "s"]).done(), "0\n", "{block_bytes}");
        place.run(["check", "s"]).done();
    }
}

#[test]
fn a_terminal_is_shown_text_and_no_commands() {
    let place = Place::with_store();
    let Some(seen) = place.on_terminal(&["get", "s", "none"]) else {
        eprintln!("SKIPPED: there is no `script` that makes a terminal");
        return;
    };
    assert!(seen.contains("has no value"), "{seen}");
    place.run(["put", "s", "text", "one\n\ttwo ω"]).done();
    let clear = "\x1b[2J\u{9b}31m";
    place.run(["put", "s", clear, clear]).done();
    place
        .run_with_input(["put", "s", "bytes", "-"], b"\xff\0")
        .done();
    let seen = |arguments: &[&str]| place.on_terminal(arguments).unwrap().replace('\r', "");
    assert_eq!(seen(&["get", "s", "text"]), "one\n\ttwo ω\n");
    let bytes = seen(&["get", "s", "bytes"]);
    assert!(
        bytes.contains("\\xff\\x00\n") && bytes.contains("a pipe or a file"),
        "{bytes}"
    );
    assert_eq!(seen(&["get", "s", "--hex", "6279746573"]), "ff00\n");
    let shown = "\\x1b[2J\\xc2\\x9b31m";
    for arguments in [
        &["get", "s", clear][..],
        &["scan", "s"],
        &["export", "s", "--format", "tsv"],
    ] {
        let seen = seen(arguments);
        assert!(seen.contains(shown), "{seen}");
        assert!(
            !seen
                .chars()
                .any(|one| one.is_control() && one != '\n' && one != '\t'),
            "{seen}"
        );
    }
    let json = seen(&["scan", "s", "--format", "json"]);
    assert!(json.contains("\\u001b[2J\\u009b31m"), "{json}");
    let none = place.run(["get", "none\x1b[2J", "oak"]);
    assert!(none.talk.contains("none\\u{1b}[2J"), "{}", none.talk);
    // Behind a pipe all is as it was put.
    assert_eq!(place.run(["get", "s", clear]).done(), clear);
}

#[test]
fn statistics_that_matter_come_first() {
    for engine in ["forest", "wisckey", "zdb", "alphard"] {
        let place = Place::empty();
        place.run(["create", "s", "--engine", engine]).done();
        place.run(["put", "s", "oak", "Quercus"]).done();
        let short = place.run(["stats", "s"]).done();
        let lines: Vec<&str> = short.lines().collect();
        assert_eq!(lines.len(), 12, "{short}");
        assert!(
            lines[0].starts_with("engine ") && lines[0].contains(engine),
            "{short}"
        );
        assert!(
            short.contains("write_amplification") || engine == "alphard",
            "{short}"
        );
        assert!(lines[11].ends_with("more with --all"), "{short}");
        let all = place.run(["stats", "s", "--all"]).done();
        let json = place.run(["stats", "s", "--json"]).done();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        for name in json.as_object().unwrap().keys() {
            let shown = all
                .lines()
                .filter(|line| line.split(' ').next() == Some(name))
                .count();
            assert_eq!(shown, 1, "{name} in {all}");
        }
        assert!(all.contains("\n\nwriting:\n"), "{all}");
        fs::remove_dir_all(place.path("s")).unwrap();
    }
}
