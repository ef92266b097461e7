//! The conformance suite on the memory engine, and on broken ground.

use cambium_testkit::memory_engine::{Bug, MemoryKind};
use cambium_testkit::{Breakage, Conformance};

#[test]
fn the_memory_engine_conforms() {
    Conformance::new(&MemoryKind).run();
}

#[test]
fn an_ignored_lock_is_found() {
    let failures = Conformance::new(&MemoryKind)
        .broken(Breakage::LockIgnored)
        .failures();
    assert!(
        failures.iter().any(|line| line.contains("one owner")),
        "{failures:?}"
    );
}

#[test]
fn a_reader_that_writes_is_found() {
    let failures = Conformance::new(&MemoryKind)
        .opening("seeded_bug", "reader_cuts")
        .failures();
    let of_readers = |line: &String| line.contains("a reader finds what a crash left");
    assert!(failures.iter().any(of_readers), "{failures:?}");
}

#[test]
fn transactions_that_are_not_serializable_are_found() {
    for bug in Bug::OF_TRANSACTIONS {
        let failures = Conformance::new(&MemoryKind)
            .opening("seeded_bug", bug)
            .failures();
        let of_histories = |line: &String| line.contains("serializable");
        assert!(failures.iter().any(of_histories), "{bug}: {failures:?}");
    }
}

#[test]
fn feeds_that_break_their_promises_are_found() {
    let cases = [
        "followers see whole batches",
        "left out where asked",
        "a consumer keeps history",
    ];
    for (bug, case) in Bug::OF_FEEDS.into_iter().zip(cases) {
        let failures = Conformance::new(&MemoryKind)
            .opening("seeded_bug", bug)
            .failures();
        let is_found = failures.iter().any(|line| line.contains(case));
        assert!(is_found, "{bug}: {failures:?}");
    }
}
