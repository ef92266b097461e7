//! Options and keys that make no sense are refused.
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
fn keys_and_prefixes_beyond_the_limit_are_refused() {
    let place = Place::with_store();
    let long = "k".repeat(65_536);
    place.run(["get", "s", &long]).refused(2, &["65"]);
    place
        .run(["scan", "s", "--prefix", &long])
        .refused(2, &["65"]);
    place.run(["scan", "s", "--prefix", &long[1..]]).done();
}
