//! The crash driver on the memory engine: it passes, and it finds every bug
//! that can be switched on.

use cambium_io::simulated::Event;
use cambium_testkit::crash::FAULTS;
use cambium_testkit::memory_engine::{Bug, MemoryKind};
use cambium_testkit::{Breakage, CrashSuite, each_breach_is_found, each_bug_is_found, find_bug};

fn suite(test: &'static str) -> CrashSuite {
    CrashSuite::new(&MemoryKind, env!("CARGO_PKG_NAME"), test)
}

#[test]
fn the_memory_engine_survives_crashes() {
    let report = suite("the_memory_engine_survives_crashes")
        .states(20_000)
        .run();
    for name in [
        "recovered twice",
        "crashed in recovery",
        "process crashes",
        "power cuts lived through",
        "kills lived through",
        "no store yet",
        "checked closed",
        "opened for reading alone",
        "changes followed",
        "consumers moved",
    ] {
        assert!(
            report.count(name) > 0,
            "{name} was never reached: {report:?}"
        );
    }
    for event in [Event::TornWrite, Event::WriteLost, Event::NameLost] {
        assert!(report.event(event) > 0, "{event:?} was never met");
    }
}

#[test]
fn the_memory_engine_survives_faults() {
    let report = suite("the_memory_engine_survives_faults")
        .states(20_000)
        .run_faults();
    for name in [
        "operations failed",
        "went on after a failure",
        "poisoned",
        "open failed",
    ] {
        assert!(
            report.count(name) > 0,
            "{name} was never reached: {report:?}"
        );
    }
    report.met(&FAULTS);
}

/// All but those that only transactions or readers of changes meet.
fn bugs() -> impl Iterator<Item = &'static str> {
    let names = Bug::ALL.iter().map(|(_, name)| *name);
    let elsewhere = [Bug::OF_TRANSACTIONS, Bug::OF_FEEDS].concat();
    names.filter(move |name| !elsewhere.contains(name))
}

#[test]
fn every_seeded_bug_is_found() {
    each_bug_is_found(bugs(), |name| {
        suite("every_seeded_bug_is_found")
            .opening("seeded_bug", name)
            .states(20_000)
            .find_failure()
    });
}

#[test]
fn feeds_that_show_what_a_crash_takes_back_are_found() {
    for bug in ["feed_shows_unsynced", "history_dropped"] {
        find_bug(bug, || {
            suite("feeds_that_show_what_a_crash_takes_back_are_found")
                .opening("seeded_bug", bug)
                .states(20_000)
                .find_failure()
        });
    }
}

#[test]
fn feeds_that_break_their_promises_are_found_among_threads() {
    let bugs = [
        "feed_shows_unsynced",
        "feed_splits_batches",
        "history_dropped",
    ];
    each_bug_is_found(bugs, |name| {
        suite("feeds_that_break_their_promises_are_found_among_threads")
            .opening("seeded_bug", name)
            .states(20_000)
            .find_failure_among_threads()
    });
}

#[test]
fn every_broken_file_system_is_found() {
    // A lock that is ignored hurts only with two openings, a file that is
    // not removed only takes space: both are the conformance suite's. This
    // engine reads its file once, when it opens, so no read can be stale.
    let elsewhere = [
        Breakage::LockIgnored,
        Breakage::RemoveIgnored,
        Breakage::StaleReads,
    ];
    each_breach_is_found(&elsewhere, |breakage| {
        suite("every_broken_file_system_is_found")
            .broken(breakage)
            .states(20_000)
            .find_failure()
    });
}

#[test]
fn the_memory_engine_serves_several_threads() {
    let report = suite("the_memory_engine_serves_several_threads")
        .states(10_000)
        .run_threads();
    for name in ["sessions", "recovered twice", "crashed in recovery"] {
        assert!(report.count(name) > 0, "{name}: {report:?}");
    }
    let report = suite("the_memory_engine_serves_several_threads")
        .states(10_000)
        .run_threads_with_faults();
    assert!(report.count("operations failed") > 0, "{report:?}");
}

#[test]
fn seeded_bugs_are_found_among_threads_too() {
    // A run of threads ends with its failing session; this bug shows in later ones.
    each_bug_is_found(bugs().filter(|name| *name != "cache_trusted"), |name| {
        suite("seeded_bugs_are_found_among_threads_too")
            .opening("seeded_bug", name)
            .states(10_000)
            .find_failure_among_threads()
    });
}

#[test]
fn the_memory_engine_keeps_its_promises_to_short_programs() {
    let suite = suite("the_memory_engine_keeps_its_promises_to_short_programs");
    assert!(suite.run_short_programs(300) > 1_000);
}
