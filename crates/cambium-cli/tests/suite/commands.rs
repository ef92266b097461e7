//! What each command answers when all is well, and the refusals of wrong usage.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::harness::{Place, sorted};
use serde_json::Value;

#[test]
fn get_writes_the_value_and_not_a_byte_more() {
    let place = Place::with_store();
    for value in [&b"Quercus"[..], b"", b"line\n", b"\xff\xfe"] {
        let value = OsStr::from_bytes(value);
        place
            .run([OsStr::new("put"), "s".as_ref(), "oak".as_ref(), value])
            .done();
        let run = place.run(["get", "s", "oak"]);
        assert_eq!(
            (run.status, run.output.as_slice()),
            (Some(0), value.as_bytes())
        );
        assert_eq!(run.talk, "");
    }
}

#[test]
fn a_key_without_a_value_is_status_1_and_no_output() {
    let place = Place::with_store();
    place.run(["get", "s", "elm"]).refused(1, &["\"elm\""]);
    place.run(["put", "s", "elm", "Ulmus"]).done();
    place.run(["delete", "s", "elm"]).done();
    place.run(["get", "s", "elm"]).refused(1, &["no value"]);
    // Deleting what is not there leaves the store as asked.
    place.run(["delete", "s", "elm"]).done();
}

#[test]
fn hexadecimal_keys_and_values_go_both_ways() {
    let place = Place::with_store();
    place.run(["put", "s", "--hex", "00ff", "6f616B"]).done();
    assert_eq!(place.run(["get", "s", "--hex", "00FF"]).done(), "6f616b");
    assert_eq!(place.run(["scan", "s"]).output, b"\\x00\xff\toak\n");
    place.run(["delete", "s", "--hex", "00ff"]).done();
    place.run(["get", "s", "--hex", "00ff"]).refused(1, &[]);
    for (key, value) in [("0", "00"), ("zz", "00"), ("00", "0x")] {
        place
            .run(["put", "s", "--hex", key, value])
            .refused(2, &["hexadecimal digits"]);
    }
}

#[test]
fn keys_and_values_that_begin_with_a_dash_stand_behind_two() {
    let place = Place::with_store();
    place.run(["put", "s", "--", "-key", "--value"]).done();
    assert_eq!(place.run(["get", "s", "--", "-key"]).done(), "--value");
    let run = place.run(["get", "s", "-key"]);
    assert_eq!(run.status, Some(2));
}

#[test]
fn an_empty_key_is_a_key() {
    let place = Place::with_store();
    place.run(["put", "s", "", "empty"]).done();
    assert_eq!(place.run(["get", "s", ""]).done(), "empty");
}

#[test]
fn scan_writes_text_json_and_hexadecimal_lines() {
    let place = Place::with_store();
    place.run(["put", "s", "a\tb", "c\\d\n"]).done();
    assert_eq!(place.run(["scan", "s"]).done(), "a\\tb\tc\\\\d\\n\n");
    let json = place.run(["scan", "s", "--format", "json"]).done();
    assert_eq!(json, "{\"key\":\"a\\tb\",\"value\":\"c\\\\d\\n\"}\n");
    let hex = place.run(["scan", "s", "--format", "hex"]).done();
    assert_eq!(hex, "610962\t635c640a\n");
    let keys = place.run(["scan", "s", "--keys-only", "--format", "json"]);
    assert_eq!(keys.done(), "{\"key\":\"a\\tb\"}\n");
}

#[test]
fn an_ordered_store_scans_between_bounds_both_ways() {
    let place = Place::with_store();
    for key in ["oak", "olive", "elm", "ash"] {
        place.run(["put", "s", key, ""]).done();
    }
    let scan = |arguments: &[&str]| {
        let all = [&["scan", "s", "--keys-only"], arguments].concat();
        place.run(all).done()
    };
    assert_eq!(scan(&[]), "ash\nelm\noak\nolive\n");
    assert_eq!(scan(&["--from", "b", "--to", "olive"]), "elm\noak\n");
    assert_eq!(scan(&["--prefix", "o", "--reverse"]), "olive\noak\n");
    assert_eq!(scan(&["--reverse", "--limit", "1"]), "olive\n");
}

#[test]
fn an_unordered_store_scans_whole_or_filtered_and_refuses_bounds() {
    let place = Place::with_unordered_store();
    for key in ["oak", "olive", "elm"] {
        place.run(["put", "s", key, ""]).done();
    }
    let all = place.run(["scan", "s", "--keys-only"]).done();
    assert_eq!(sorted(&all), ["elm", "oak", "olive"]);
    let filtered = ["scan", "s", "--keys-only", "--unordered", "--prefix", "o"];
    assert_eq!(sorted(&place.run(filtered).done()), ["oak", "olive"]);
    let limited = place.run(["scan", "s", "--limit", "2"]).done();
    assert_eq!(limited.lines().count(), 2);
    assert_eq!(place.run(["scan", "s", "--limit", "0"]).done(), "");
    for bound in [
        &["--from", "a"][..],
        &["--to", "a"],
        &["--prefix", "o"],
        &["--reverse"],
    ] {
        let arguments = [&["scan", "s"], bound].concat();
        place.run(arguments).refused(2, &["--unordered"]);
    }
    place
        .run(["scan", "s", "--unordered", "--from", "a"])
        .refused(2, &["--unordered"]);
}

#[test]
fn integer_keys_are_decimal_and_scan_in_order() {
    let place = Place::with_integer_store();
    for key in ["900", "7", "18446744073709551615", "70"] {
        place.run(["put", "s", key, "tree"]).done();
    }
    assert_eq!(place.run(["get", "s", "7"]).done(), "tree");
    let all = place.run(["scan", "s", "--keys-only"]).done();
    assert_eq!(all, "7\n70\n900\n18446744073709551615\n");
    let part = ["scan", "s", "--from", "7", "--to", "900", "--reverse"];
    assert_eq!(place.run(part).done(), "70\ttree\n7\ttree\n");
    let json = place.run(["scan", "s", "--limit", "1", "--format", "json"]);
    assert_eq!(json.done(), "{\"key\":7,\"value\":\"tree\"}\n");
    place
        .run(["scan", "s", "--prefix", "7"])
        .refused(2, &["--from and --to"]);
    // With --hex the value is digits; the key stays a number.
    assert_eq!(place.run(["get", "s", "--hex", "7"]).done(), "74726565");
}

#[test]
fn a_key_of_the_wrong_type_is_wrong_usage() {
    let place = Place::with_integer_store();
    for key in ["oak", "", "0x7", "18446744073709551616"] {
        place
            .run(["put", "s", key, "x"])
            .refused(2, &["integer keys", "decimal"]);
        place.run(["get", "s", key]).refused(2, &["integer keys"]);
    }
    place
        .run(["scan", "s", "--from", "oak"])
        .refused(2, &["integer keys"]);
    place.file("tree/oak", "x");
    place
        .run(["import", "s", "--from", "files:tree"])
        .refused(2, &["integer keys"]);
}

#[test]
fn wrong_usage_is_status_2_and_names_the_remedy() {
    let place = Place::with_store();
    for arguments in [
        &[][..],
        &["bogus"],
        &["get", "s"],
        &["scan", "s", "--limit", "many"],
        &["compact", "s", "--io", "carrier-pigeon"],
        &["import", "s", "--from", "csv:x"],
    ] {
        let run = place.run(arguments);
        assert_eq!(run.status, Some(2), "{arguments:?}: {}", run.talk);
        assert!(run.output.is_empty(), "{arguments:?}");
    }
    place
        .run(["create", "t", "--engine", "zbd"])
        .refused(2, &["did you mean zdb?"]);
    place
        .run(["create", "t", "--engine", "zdb", "--set", "kyes=integer"])
        .refused(2, &["did you mean keys?"]);
    place
        .run(["create", "t", "--set", "node_byte=512"])
        .refused(2, &["did you mean node_bytes?"]);
    place
        .run(["create", "t", "--set", "keys"])
        .refused(2, &["name=value"]);
    place.run(["options", "--engine", "x"]).refused(2, &["zdb"]);
    assert!(!place.path("t").exists());
}

#[test]
fn a_key_beyond_the_limit_is_refused() {
    let place = Place::with_store();
    let key = "k".repeat(65_536);
    place
        .run(["put", "s", &key, "x"])
        .refused(2, &["65536", "65535"]);
    let key = "k".repeat(65_535);
    place.run(["put", "s", &key, "x"]).done();
    assert_eq!(place.run(["get", "s", &key]).done(), "x");
}

#[test]
fn stats_check_and_inspect_answer_in_json() {
    let place = Place::with_store();
    place.run(["put", "s", "oak", "Quercus"]).done();
    let json = |command: &str| -> Value {
        let text = place.run([command, "s", "--json"]).done();
        serde_json::from_str(&text).unwrap()
    };
    let stats = json("stats");
    assert_eq!(stats["engine"], "forest");
    assert_eq!(stats["entries"], 1);
    assert!(stats["space_bytes"].as_u64().unwrap() > 0);
    let check = json("check");
    assert_eq!(check["sound"], true);
    assert_eq!(check["findings"], Value::Array(Vec::new()));
    assert_eq!(check["entries"], 1);
    let inspect = json("inspect");
    assert_eq!(inspect["engine"], "forest");
    assert_eq!(inspect["store_id"].as_str().unwrap().len(), 32);
    assert!(!inspect["files"].as_array().unwrap().is_empty());
    assert!(!inspect["structure"].as_array().unwrap().is_empty());
}

#[test]
fn inspect_lists_the_files_of_folders_in_a_store_too() {
    let place = Place::empty();
    place.run(["create", "s", "--engine", "wisckey"]).done();
    place.run(["put", "s", "oak", "Quercus"]).done();
    let text = place.run(["inspect", "s", "--json"]).done();
    let inspect: Value = serde_json::from_str(&text).unwrap();
    let files = inspect["files"].as_array().unwrap();
    let names: Vec<&str> = files
        .iter()
        .filter_map(|file| file["name"].as_str())
        .collect();
    assert!(
        names.iter().any(|name| name.ends_with(".values")),
        "{names:?}"
    );
    assert!(
        names.iter().any(|name| name.starts_with("keys/manifest-")),
        "{names:?}"
    );
}

#[test]
fn stats_check_and_inspect_answer_people() {
    let place = Place::with_store();
    place.run(["put", "s", "oak", "Quercus"]).done();
    let stats = place.run(["stats", "s"]).done();
    for name in ["entries ", "space_bytes ", "write_amplification "] {
        assert!(stats.lines().any(|line| line.starts_with(name)), "{name}");
    }
    let check = place.run(["check", "s"]).done();
    assert!(check.trim_end().ends_with("verified: sound"), "{check}");
    assert!(place.run(["inspect", "s"]).done().contains("engine forest"));
}

#[test]
fn compact_answers_the_json_of_the_contract_and_keeps_entries() {
    let place = Place::with_store();
    for age in 0..5 {
        place.run(["put", "s", "oak", &format!("{age}")]).done();
    }
    let report: Value =
        serde_json::from_str(&place.run(["compact", "s", "--json"]).done()).unwrap();
    for phase in ["tree_search", "sort", "read", "write", "flush_and_commit"] {
        assert!(report["phases_seconds"][phase].is_number(), "{phase}");
    }
    for field in [
        "total_seconds",
        "read_operations",
        "bytes_read",
        "bytes_written",
    ] {
        assert!(report[field].is_number(), "{field}");
    }
    assert!(report["documents"].is_number() && report["batch"].is_number());
    assert!(report["io"].is_string() && report["direct"].is_boolean());
    assert!(
        place
            .run(["compact", "s"])
            .done()
            .contains("flush and commit")
    );
    assert_eq!(place.run(["get", "s", "oak"]).done(), "4");
}

#[test]
fn a_backup_is_a_store_and_takes_no_folder_that_is_in_use() {
    let place = Place::with_store();
    place.run(["put", "s", "oak", "Quercus"]).done();
    place.run(["backup", "s", "copy"]).done();
    assert_eq!(place.run(["get", "copy", "oak"]).done(), "Quercus");
    place
        .run(["backup", "s", "copy"])
        .refused(3, &["already exists"]);
}

#[test]
fn options_prints_unit_default_and_effect_of_each() {
    let place = Place::empty();
    let text = place.run(["options"]).done();
    let each = ["forest", "wisckey", "zdb", "alphard"]
        .map(|engine| place.run(["options", "--engine", engine]).done());
    let of_all = text.strip_prefix(&each.concat()).unwrap();
    assert!(of_all.contains("\n  memory_budget\n"));
    let count = |word: &str| text.matches(word).count();
    assert!(text.contains("\n  keys\n"));
    assert!(count("unit:    ") > 10);
    assert_eq!(count("unit:    "), count("default: "));
    assert_eq!(count("unit:    "), count("effect:  "));
}

#[test]
fn completions_and_help_are_data() {
    let place = Place::empty();
    for shell in ["bash", "zsh", "fish"] {
        assert!(place.run(["completions", shell]).done().contains("import"));
    }
    for command in [
        "create",
        "put",
        "get",
        "delete",
        "scan",
        "import",
        "export",
        "namespaces",
        "snapshot",
        "rollback",
        "dump",
        "stats",
        "check",
        "inspect",
        "compact",
        "backup",
        "repair",
        "upgrade",
        "options",
        "completions",
    ] {
        let help = place.run([command, "--help"]).done();
        assert!(help.contains("Examples:\n"), "{command}: {help}");
    }
    assert!(place.run(["--version"]).done().starts_with("cambium "));
}

#[test]
fn each_command_has_a_man_page() {
    let place = Place::empty();
    fs::create_dir(place.path("man1")).unwrap();
    place.run(["man", "man1"]).done();
    for page in ["cambium.1", "cambium-import.1", "cambium-snapshot-create.1"] {
        let text = fs::read_to_string(place.path("man1").join(page)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    place.run(["man", "nowhere"]).refused(3, &["nowhere"]);
}

#[test]
fn create_needs_an_empty_folder() {
    let place = Place::with_store();
    place.run(["create", "s"]).refused(3, &["store already"]);
    place.file("full/file", "x");
    place.run(["create", "full"]).refused(3, &["not empty"]);
    fs::create_dir(place.path("empty")).unwrap();
    place.run(["create", "empty"]).done();
    place.run(["create", "missing/s"]).refused(3, &["missing"]);
}
