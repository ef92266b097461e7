//! Entries go in and out whole; an import that is broken off keeps what it
//! told, says where, and goes on there.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use crate::harness::{Place, Run, sorted};

fn tsv(range: std::ops::Range<u64>) -> String {
    range
        .map(|number| format!("{number}\tleaf {number}\n"))
        .collect()
}

fn import(place: &Place, source: &str) -> Run {
    place.run(["import", "s", "--from", source])
}

/// All entries, sorted, in a notation that is text whatever they are.
fn scan(place: &Place) -> String {
    let text = place.run(["scan", "s", "--format", "json"]).done();
    let mut lines = sorted(&text).join("\n");
    lines.push('\n');
    lines
}

#[test]
fn a_tree_of_files_becomes_paths_and_contents() {
    let place = Place::with_store();
    place.file("tree/b/leaf", "green");
    place.file("tree/a", b"\x00\xff");
    place.file("tree/empty", "");
    place.file(OsStr::from_bytes(b"tree/\xff\xfe"), "not text");
    symlink("a", place.path("tree/link")).unwrap();
    symlink("b", place.path("tree/folder-link")).unwrap();
    let fifo = place.path("tree/fifo");
    assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
    import(&place, "files:tree").done();
    assert_eq!(place.run(["get", "s", "b/leaf"]).done(), "green");
    assert_eq!(place.run(["get", "s", "a"]).output, b"\x00\xff");
    assert_eq!(place.run(["get", "s", "empty"]).done(), "");
    assert_eq!(
        place.run(["get", "s", "--hex", "fffe"]).done(),
        "6e6f742074657874"
    );
    assert_eq!(
        place
            .run(["scan", "s"])
            .output
            .split(|&byte| byte == b'\n')
            .count(),
        5
    );
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_goes_on() {
    let place = Place::with_store();
    place.file("tree/a", "a");
    place.file("tree/c", "c");
    // Root reads everything, but nobody a file of more than 1 GiB as a value.
    File::create(place.path("tree/b"))
        .and_then(|file| file.set_len((1 << 30) + 1))
        .unwrap();
    place.file("tree/locked/x", "x");
    let none = fs::Permissions::from_mode(0o000);
    fs::set_permissions(place.path("tree/locked"), none).unwrap();
    let run = import(&place, "files:tree");
    let open = fs::Permissions::from_mode(0o700);
    fs::set_permissions(place.path("tree/locked"), open).unwrap();
    assert_eq!(run.status, Some(3));
    let named = run.talk.lines().any(|line| {
        line.contains("tree/b") && line.contains("1073741824") && line.contains("left out")
    });
    assert!(named, "{}", run.talk);
    assert_eq!(place.run(["get", "s", "a"]).done(), "a");
    assert_eq!(place.run(["get", "s", "c"]).done(), "c");
    place.run(["get", "s", "b"]).refused(1, &[]);
}

#[test]
fn a_tree_that_holds_the_store_leaves_it_out() {
    let place = Place::with_store();
    place.file("a", "a");
    let run = import(&place, "files:.");
    assert!(run.talk.contains("it is the store"), "{}", run.talk);
    assert_eq!(run.status, Some(0), "{}", run.talk);
    assert_eq!(place.run(["scan", "s"]).done(), "a\ta\n");
}

#[test]
fn limits_stop_an_import_at_the_same_place_each_time() {
    let place = Place::with_store();
    for name in ["a", "b", "c", "d"] {
        place.file(format!("tree/{name}"), [b'x'; 99]);
    }
    let arguments = ["import", "s", "--from", "files:tree"];
    place
        .run([&arguments[..], &["--limit", "3"]].concat())
        .done();
    assert_eq!(
        sorted(&place.run(["scan", "s", "--keys-only"]).done()),
        ["a", "b", "c"]
    );
    place.run(["create", "t"]).done();
    let arguments = [
        "import",
        "t",
        "--from",
        "files:tree",
        "--limit-bytes",
        "299",
    ];
    place.run(arguments).done();
    assert_eq!(
        sorted(&place.run(["scan", "t", "--keys-only"]).done()),
        ["a", "b"]
    );
}

#[test]
fn json_lines_go_in_as_they_came_out() {
    let place = Place::with_store();
    let lines = concat!(
        "{\"key\":\"elm\",\"value\":\"a\\tb\\u0000\"}\n",
        "\n",
        "{\"value_hex\":\"FF00\",\"key_hex\":\"00\"}\n",
        "{\"key\":\"ω\",\"value\":\"\"}",
    );
    place.file("in.jsonl", lines);
    import(&place, "jsonl:in.jsonl").done();
    assert_eq!(place.run(["get", "s", "elm"]).done(), "a\tb\0");
    assert_eq!(place.run(["get", "s", "--hex", "00"]).done(), "ff00");
    let exported = place.run(["export", "s", "--format", "jsonl"]).done();
    let again = Place::with_store();
    again
        .run_with_input(["import", "s", "--from", "jsonl:-"], exported.as_bytes())
        .done();
    assert_eq!(scan(&again), scan(&place));
}

#[test]
fn tabbed_lines_go_in_as_they_came_out() {
    let place = Place::with_store();
    place.file(
        "in.tsv",
        "a\\tb\tc\\\\d\\n\n\\x00\t\n\tempty key\nlast\tline",
    );
    import(&place, "tsv:in.tsv").done();
    assert_eq!(place.run(["get", "s", "a\tb"]).done(), "c\\d\n");
    assert_eq!(place.run(["get", "s", ""]).done(), "empty key");
    assert_eq!(place.run(["get", "s", "last"]).done(), "line");
    let exported = place.run(["export", "s", "--format", "tsv"]).done();
    let again = Place::with_store();
    again
        .run_with_input(["import", "s", "--from", "tsv:-"], exported.as_bytes())
        .done();
    assert_eq!(scan(&again), scan(&place));
}

#[test]
fn integer_keys_are_decimal_in_lines() {
    let place = Place::with_integer_store();
    place.file(
        "in.jsonl",
        "{\"key\":7,\"value\":\"a\"}\n{\"key\":\"8\",\"value\":\"b\"}\n",
    );
    import(&place, "jsonl:in.jsonl").done();
    place.file("in.tsv", "9\tc\n");
    import(&place, "tsv:in.tsv").done();
    assert_eq!(place.run(["scan", "s"]).done(), "7\ta\n8\tb\n9\tc\n");
    place.file("bad.tsv", "10\td\noak\te\n");
    import(&place, "tsv:bad.tsv").refused(3, &["bad.tsv, line 2", "decimal"]);
    assert_eq!(place.run(["get", "s", "10"]).done(), "d");
}

#[test]
fn a_key_far_from_all_others_is_named_and_what_came_before_is_in() {
    let place = Place::with_integer_store();
    let lines: String = (0..40u64)
        .map(|number| format!("{}\tx\n", number * 1_000_000_000_000))
        .collect();
    place.file("in.tsv", lines);
    import(&place, "tsv:in.tsv").refused(3, &["the entry of key", "refused"]);
    let kept = place.run(["scan", "s"]).done().lines().count();
    assert!((1..40).contains(&kept), "{kept}");
}

#[test]
fn a_dump_carries_a_store_over() {
    let place = Place::with_store();
    place.file("in.tsv", tsv(0..3000));
    import(&place, "tsv:in.tsv").done();
    place.run(["export", "s", "--to", "all.dump"]).done();
    assert!(!place.path("all.dump.partial").exists());
    let dump = fs::read(place.path("all.dump")).unwrap();
    assert!(place.run(["export", "s"]).output == dump);
    place.run(["create", "t"]).done();
    place.run(["import", "t", "--from", "dump:all.dump"]).done();
    let other = place.run(["scan", "t", "--format", "json"]).done();
    assert_eq!(sorted(&other).join("\n") + "\n", scan(&place));
}

#[test]
fn a_dump_of_other_keys_is_taken_where_the_store_can_have_them() {
    let place = Place::with_integer_store();
    place.file("in.tsv", "7\ta\n");
    import(&place, "tsv:in.tsv").done();
    place.run(["export", "s", "--to", "integers.dump"]).done();
    place.run(["create", "t"]).done();
    place
        .run(["import", "t", "--from", "dump:integers.dump"])
        .done();
    assert_eq!(
        place.run(["get", "t", "--hex", "0000000000000007"]).done(),
        "61"
    );
    place.run(["export", "t", "--to", "strings.dump"]).done();
    import(&place, "dump:strings.dump").refused(2, &["integer keys"]);
}

#[test]
fn a_truncated_dump_says_where_and_what_came_before_is_in() {
    let place = Place::with_store();
    place.file("in.tsv", tsv(0..100));
    import(&place, "tsv:in.tsv").done();
    place.run(["export", "s", "--to", "all.dump"]).done();
    let dump = fs::read(place.path("all.dump")).unwrap();
    place.file("cut.dump", &dump[..dump.len() / 2]);
    place.run(["create", "t"]).done();
    place
        .run(["import", "t", "--from", "dump:cut.dump"])
        .talk
        .find("cut.dump: at offset")
        .expect("the file and the offset are named");
    let kept = place.run(["scan", "t"]).done().lines().count();
    assert!((40..60).contains(&kept), "{kept}");
    let mut damaged = dump;
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    place.file("damaged.dump", damaged);
    import(&place, "dump:damaged.dump").refused(3, &["damaged.dump", "offset"]);
    place.file("no.dump", "something else");
    import(&place, "dump:no.dump").refused(3, &["no dump"]);
    place.file("newer.dump", b"CAMBDUMP\x04\0\0\0\x01\x03zdb....");
    import(&place, "dump:newer.dump").refused(3, &["version 4", "up to 3"]);
}

#[test]
fn a_broken_line_names_file_line_and_what_was_expected() {
    let place = Place::with_store();
    place.file(
        "in.jsonl",
        "{\"key\":\"a\",\"value\":\"b\"}\n{\"key\":\"c\"\n{\"key\":\"d\",\"value\":\"e\"}\n",
    );
    import(&place, "jsonl:in.jsonl").refused(3, &["in.jsonl, line 2", "expected {\"key\""]);
    assert_eq!(place.run(["scan", "s"]).done(), "a\tb\n");
    place.file("in.tsv", "x\ty\nno tab\n");
    import(&place, "tsv:in.tsv").refused(3, &["in.tsv, line 2", "expected KEY TAB VALUE"]);
    assert_eq!(place.run(["get", "s", "x"]).done(), "y");
    let long = format!("{}\tv\n", "k".repeat(65_536));
    place.file("long.tsv", long);
    import(&place, "tsv:long.tsv").refused(3, &["long.tsv, line 1", "65535"]);
}

#[test]
fn an_import_done_twice_ends_in_the_same_store() {
    let place = Place::with_store();
    place.file("in.tsv", tsv(0..2000));
    import(&place, "tsv:in.tsv").done();
    let once = scan(&place);
    import(&place, "tsv:in.tsv").done();
    assert_eq!(scan(&place), once);
    place.run(["check", "s"]).done();
}

#[test]
fn a_mended_import_goes_on_behind_the_last_synced_line() {
    let place = Place::with_store();
    let broken = format!("{}broken\n{}", tsv(0..12_000), tsv(12_000..15_000));
    place.file("in.tsv", broken);
    let run = import(&place, "tsv:in.tsv");
    assert_eq!(run.status, Some(3));
    assert!(run.talk.contains("synced 10000 entries"), "{}", run.talk);
    assert!(run.talk.contains("through line 12000"), "{}", run.talk);
    assert!(run.talk.contains("in.tsv, line 12001"), "{}", run.talk);
    // What was imported is changed, to show that it is not read again.
    let mended = tsv(0..15_000).replacen("leaf 0", "LEAF 0", 1);
    place.file("in.tsv", mended);
    let run = place.run(["import", "s", "--from", "tsv:in.tsv", "--resume"]);
    assert!(
        run.talk.contains("going on behind line 12000"),
        "{}",
        run.talk
    );
    run.done();
    assert_eq!(scan(&place).lines().count(), 15_000);
    assert_eq!(place.run(["get", "s", "0"]).done(), "leaf 0");
    // Done: there is nothing to go on with, and nothing left behind.
    let run = place.run(["import", "s", "--from", "tsv:in.tsv", "--resume"]);
    assert!(run.talk.contains("beginning at its start"), "{}", run.talk);
    run.done();
    assert_eq!(place.run(["get", "s", "0"]).done(), "LEAF 0");
    let left = fs::read_dir(place.path("s")).unwrap();
    let left = left.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("IMPORT")
    });
    assert_eq!(left.count(), 0);
}

#[test]
fn an_input_shorter_than_its_kept_place_is_not_gone_on_with() {
    let place = Place::with_store();
    place.file("in.tsv", format!("{}broken\n", tsv(0..100)));
    assert_eq!(import(&place, "tsv:in.tsv").status, Some(3));
    place.file("in.tsv", tsv(0..10));
    place
        .run(["import", "s", "--from", "tsv:in.tsv", "--resume"])
        .refused(3, &["shorter", "without --resume"]);
}

#[test]
fn a_dump_that_was_cut_goes_on_when_it_is_whole() {
    let place = Place::with_store();
    place.file("in.tsv", tsv(0..500));
    import(&place, "tsv:in.tsv").done();
    let dump = place.run(["export", "s"]).output;
    place.run(["create", "t"]).done();
    place.file("all.dump", &dump[..dump.len() / 2]);
    let arguments = ["import", "t", "--from", "dump:all.dump", "--resume"];
    assert_eq!(place.run(arguments).status, Some(3));
    place.file("all.dump", &dump);
    let run = place.run(arguments);
    assert!(run.talk.contains("going on behind entry 2"), "{}", run.talk);
    run.done();
    assert_eq!(place.run(["scan", "t"]).done().lines().count(), 500);
}

/// Kills an import of lines from standard input right after it told that
/// 10,000 entries are synced.
fn killed_import(place: &Place) {
    let mut child = place
        .command(["import", "s", "--from", "tsv:-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // The last of these are taken but not yet synced when the kill comes.
    stdin.write_all(tsv(0..11_500).as_bytes()).unwrap();
    let mut talk = BufReader::new(child.stderr.take().unwrap()).lines();
    let told = talk.next().unwrap().unwrap();
    assert!(told.contains("synced 10000 entries"), "{told}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn what_an_import_told_survives_its_kill_and_the_rest_goes_on() {
    let place = Place::with_store();
    killed_import(&place);
    // What recovery will drop is no damage.
    let check = place.run(["check", "s"]);
    assert_eq!(
        check.status,
        Some(0),
        "{:?}",
        String::from_utf8(check.output)
    );
    let found = place.run(["scan", "s"]).done();
    let kept = found.lines().count() as u64;
    assert!((10_000..=11_500).contains(&kept), "{kept}");
    // A prefix of what was sent, and nothing else.
    let sent = tsv(0..kept);
    assert_eq!(sorted(&found), sorted(&sent));
    let all = tsv(0..12_000);
    let run = place.run_with_input(
        ["import", "s", "--from", "tsv:-", "--resume"],
        all.as_bytes(),
    );
    assert!(
        run.talk.contains("going on behind line 10000"),
        "{}",
        run.talk
    );
    run.done();
    let found = place.run(["scan", "s"]).done();
    assert_eq!(sorted(&found), sorted(&all));
}

#[test]
fn an_import_tells_every_ten_thousand_entries_and_64_mebibytes() {
    let place = Place::with_store();
    let run = place.run_with_input(
        ["import", "s", "--from", "tsv:-"],
        tsv(0..20_001).as_bytes(),
    );
    let told: Vec<&str> = run
        .talk
        .lines()
        .filter_map(|line| line.strip_prefix("cambium: synced "))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(told, ["10000", "20000", "20001"], "{}", run.talk);
    for name in ["a", "b", "c"] {
        place.file(format!("tree/{name}"), vec![0; 40 << 20]);
    }
    let run = import(&place, "files:tree");
    let told = run.talk.lines().filter(|line| line.contains("synced"));
    assert_eq!(told.count(), 2, "{}", run.talk);
    run.done();
}

#[test]
fn a_missing_input_is_named() {
    let place = Place::with_store();
    for source in [
        "files:missing",
        "tsv:missing",
        "jsonl:missing",
        "dump:missing",
    ] {
        import(&place, source).refused(3, &["missing", "No such file"]);
    }
    place.file("file", "x");
    import(&place, "files:file").refused(3, &["file", "folder"]);
    fs::create_dir(place.path("folder")).unwrap();
    import(&place, "tsv:folder").refused(3, &["folder", "files:DIR"]);
}

#[test]
fn an_import_that_finds_a_store_full_says_what_is_in() {
    let place = Place::empty();
    let create = ["create", "s", "--engine", "alphard", "--set", "size=1MiB"];
    place.run(create).done();
    let lines: String = (0..9000)
        .map(|number| format!("{number}\t{}\n", "x".repeat(400)))
        .collect();
    std::fs::write(place.path("all.tsv"), lines).unwrap();
    let import = ["import", "s", "--from", "tsv:all.tsv"];
    let run = place.run(import);
    assert_eq!(run.status, Some(3), "{}", run.talk);
    let said = run.talk.lines().last().unwrap_or_default();
    let stats = place.run(["stats", "s", "--json"]).done();
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    let entries = stats["entries"].as_u64().unwrap();
    assert!(entries > 0, "{stats}");
    let expected = format!("{entries} entries are in");
    assert!(
        said.contains("no space") && said.contains(&expected),
        "{said}"
    );
}
