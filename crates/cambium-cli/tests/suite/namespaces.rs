//! Namespaces and named snapshots from the command line: every one is reached,
//! carried over and listed.

use crate::harness::Place;

fn with_people() -> Place {
    let place = Place::with_store();
    place.run(["put", "s", "oak", "Quercus"]).done();
    let put = ["put", "s", "--namespace", "people", "ada", "Lovelace"];
    place.run(put).done();
    place
}

#[test]
fn keys_are_put_read_scanned_and_deleted_in_a_namespace() {
    let place = with_people();
    assert_eq!(place.run(["namespaces", "s"]).done(), "people\n");
    place.run(["get", "s", "ada"]).refused(1, &["no value"]);
    let people = |command: &'static str, rest: &'static [&'static str]| {
        let all = [&[command, "s", "--namespace", "people"], rest].concat();
        place.run(all)
    };
    assert_eq!(people("get", &["ada"]).done(), "Lovelace");
    assert_eq!(people("scan", &[]).done(), "ada\tLovelace\n");
    people("delete", &["ada"]).done();
    people("get", &["ada"]).refused(1, &["no value"]);
    assert_eq!(place.run(["scan", "s"]).done(), "oak\tQuercus\n");
}

#[test]
fn reading_a_namespace_that_is_not_there_makes_none() {
    let place = with_people();
    for arguments in [
        &["get", "s", "--namespace", "trees", "oak"][..],
        &["delete", "s", "--namespace", "trees", "oak"],
        &["scan", "s", "--namespace", "trees"],
        &["export", "s", "--namespace", "trees"],
    ] {
        place.run(arguments).refused(1, &["no namespace \"trees\""]);
    }
    assert_eq!(place.run(["namespaces", "s"]).done(), "people\n");
    let unordered = Place::with_unordered_store();
    unordered
        .run(["get", "s", "--namespace", "trees", "oak"])
        .refused(2, &["namespaces"]);
}

#[test]
fn a_namespace_is_dropped_with_all_its_entries() {
    let place = with_people();
    let drop = |name: &'static str| place.run(["namespaces", "s", "--drop", name]);
    drop("trees").refused(1, &["no namespace \"trees\""]);
    drop("").refused(2, &["default"]);
    place.run(["snapshot", "s", "create", "before"]).done();
    assert_eq!(drop("people").done(), "");
    assert_eq!(place.run(["namespaces", "s"]).done(), "");
    place
        .run(["get", "s", "--namespace", "people", "ada"])
        .refused(1, &["no namespace \"people\""]);
    assert_eq!(place.run(["scan", "s"]).done(), "oak\tQuercus\n");
    place.run(["compact", "s"]).done();
    place.run(["check", "s"]).done();
    place.run(["backup", "s", "copy"]).done();
    for store in ["s", "copy"] {
        place.run(["rollback", store, "before"]).done();
        let get = ["get", store, "--namespace", "people", "ada"];
        assert_eq!(place.run(get).done(), "Lovelace");
    }
    let unable = Place::with_unordered_store();
    let dropped = unable.run(["namespaces", "s", "--drop", "people"]);
    dropped.refused(2, &["namespace"]);
}

#[test]
fn an_export_carries_every_namespace_over() {
    for engine in ["forest", "wisckey"] {
        let place = Place::empty();
        place.run(["create", "s", "--engine", engine]).done();
        place.run(["put", "s", "oak", "Quercus"]).done();
        for name in ["people", "ship\ts"] {
            let put = ["put", "s", "--namespace", name, "ada", name];
            place.run(put).done();
        }
        let lines = place.run(["export", "s", "--format", "jsonl"]).done();
        assert_eq!(
            lines,
            "{\"key\":\"oak\",\"value\":\"Quercus\"}\n\
             {\"namespace\":\"people\",\"key\":\"ada\",\"value\":\"people\"}\n\
             {\"namespace\":\"ship\\ts\",\"key\":\"ada\",\"value\":\"ship\\ts\"}\n"
        );
        let run = place.run(["export", "s", "--to", "all.dump"]);
        assert!(run.talk.contains("exported 3 entries"), "{}", run.talk);
        place.file("all.jsonl", &lines);
        for source in ["dump:all.dump", "jsonl:all.jsonl"] {
            let copy = &source[..4];
            place.run(["create", copy]).done();
            place.run(["import", copy, "--from", source]).done();
            let again = place.run(["export", copy, "--format", "jsonl"]).done();
            assert_eq!(again, lines, "{engine}, {source}");
        }
    }
}

#[test]
fn one_namespace_is_exported_without_its_name_and_imported_into_another() {
    let place = with_people();
    let export = ["export", "s", "--namespace", "people", "--format", "tsv"];
    let lines = place.run(export).done();
    assert_eq!(lines, "ada\tLovelace\n");
    let import = ["import", "s", "--namespace", "poets", "--from", "tsv:-"];
    place.run_with_input(import, lines.as_bytes()).done();
    let get = ["get", "s", "--namespace", "poets", "ada"];
    assert_eq!(place.run(get).done(), "Lovelace");
}

#[test]
fn what_cannot_carry_namespaces_refuses_them() {
    let place = with_people();
    place
        .run(["export", "s", "--format", "tsv"])
        .refused(2, &["people", "--namespace", "jsonl"]);
    place.run(["export", "s", "--to", "all.dump"]).done();
    place.run(["create", "t", "--engine", "zdb"]).done();
    let run = place.run(["import", "t", "--from", "dump:all.dump"]);
    assert_eq!(run.status, Some(2), "{}", run.talk);
    assert!(run.talk.contains("no namespaces"), "{}", run.talk);
    // What came before is in, as the message says.
    assert_eq!(place.run(["scan", "t"]).done(), "oak\tQuercus\n");
    place
        .run(["import", "t", "--namespace", "a", "--from", "tsv:-"])
        .refused(2, &["namespaces"]);
}

#[test]
fn a_store_goes_back_to_a_named_snapshot() {
    let place = with_people();
    place.run(["snapshot", "s", "create", "before"]).done();
    place.run(["put", "s", "oak", "chopped"]).done();
    let delete = ["delete", "s", "--namespace", "people", "ada"];
    place.run(delete).done();
    let list = place.run(["snapshot", "s", "list"]).done();
    let (name, sequence) = list.trim_end().split_once('\t').unwrap();
    assert_eq!(name, "before");
    assert!(sequence.parse::<u64>().unwrap() >= 3, "{list}");
    place.run(["rollback", "s", "after"]).refused(1, &["after"]);
    place.run(["rollback", "s", "before"]).done();
    assert_eq!(place.run(["get", "s", "oak"]).done(), "Quercus");
    let get = ["get", "s", "--namespace", "people", "ada"];
    assert_eq!(place.run(get).done(), "Lovelace");
    place
        .run(["snapshot", "s", "create", "before"])
        .refused(3, &["\"before\"", "delete it first"]);
    place.run(["snapshot", "s", "delete", "before"]).done();
    assert_eq!(place.run(["snapshot", "s", "list"]).done(), "");
    place
        .run(["snapshot", "s", "delete", "before"])
        .refused(1, &["before"]);
    let unordered = Place::with_unordered_store();
    unordered
        .run(["snapshot", "s", "create", "before"])
        .refused(2, &["snapshots"]);
}

#[test]
fn a_dump_draws_the_index_with_places_and_lengths() {
    let place = with_people();
    // What was written since the last flush is in no index yet.
    place.run(["snapshot", "s", "create", "now"]).done();
    let text = place.run(["dump", "s"]).done();
    assert!(text.contains("snapshot \"now\""), "{text}");
    assert!(text.contains("\"people\": 1 documents"), "{text}");
    let oak = text.lines().find(|line| line.contains("\"oak\"")).unwrap();
    let words: Vec<&str> = oak.split_whitespace().collect();
    // "oak" = document at OFFSET, at most BYTES bytes
    let at = words.iter().position(|&word| word == "at").unwrap();
    let offset: u64 = words[at + 1].trim_end_matches(',').parse().unwrap();
    let bytes: u64 = words[at + 4].parse().unwrap();
    let file = std::fs::read(&place.data_files()[0]).unwrap();
    let document = &file[offset as usize..(offset + bytes) as usize];
    assert!(document.windows(10).any(|bytes| bytes == b"oakQuercus"));
}
