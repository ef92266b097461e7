//! Options, keys and places that make no sense are refused.
#![allow(clippy::unwrap_used)]

mod harness;

use harness::Place;

#[test]
fn options_for_tests_alone_are_refused_and_those_that_are_forgotten_named() {
    let place = Place::empty();
    place
        .run(["create", "s", "--set", "seeded_bug=no_checksum"])
        .refused(2, &["seeded_bug"]);
    place.run(["create", "s"]).done();
    let import = ["import", "s", "--from", "tsv:-", "--set", "seeded_bug=x"];
    place.run(import).refused(2, &["seeded_bug"]);
    let run = place.run(["create", "t", "--set", "cache_bytes=1MiB"]);
    assert!(run.talk.contains("cache_bytes"), "{}", run.talk);
    assert!(run.talk.contains("does not stay"), "{}", run.talk);
    run.done();
    for kept in ["node_bytes=512", "compaction_threshold=50"] {
        let folder = kept.split('=').next().unwrap();
        let run = place.run(["create", folder, "--set", kept]);
        assert_eq!(run.talk, "", "{kept}");
    }
}

#[test]
fn a_backup_into_the_store_itself_is_refused() {
    let place = Place::with_store();
    place.run(["put", "s", "oak", "Quercus"]).done();
    std::os::unix::fs::symlink("s", place.path("link")).unwrap();
    for inside in ["s", "s/inner", "s/../s/inner", "link/inner"] {
        place
            .run(["backup", "s", inside])
            .refused(2, &["inside the store"]);
    }
    place.run(["backup", "s", "s-copy"]).done();
    assert_eq!(place.run(["get", "s-copy", "oak"]).done(), "Quercus");
}

#[test]
fn keys_and_prefixes_beyond_the_limit_are_refused() {
    let place = Place::with_store();
    let long = "k".repeat(65_536);
    place.run(["get", "s", &long]).refused(2, &["65"]);
    place
        .run(["scan", "s", "--prefix", &long])
        .refused(2, &["65"]);
    place.run(["scan", "s", "--prefix", &long[1..]]).done();
}

#[test]
fn a_backup_carries_named_snapshots() {
    let place = Place::with_store();
    place.run(["put", "s", "oak", "Quercus"]).done();
    place.run(["snapshot", "s", "create", "before"]).done();
    place.run(["delete", "s", "oak"]).done();
    place.run(["backup", "s", "copy"]).done();
    place.run(["get", "copy", "oak"]).refused(1, &[]);
    place.run(["rollback", "copy", "before"]).done();
    assert_eq!(place.run(["get", "copy", "oak"]).done(), "Quercus");
}
