//! `wisckey` on the simulated disk: crashed everywhere, with failing operations,
//! and with seeded bugs that the suites must find.
//!
//! The constants are tiny, so that a short run meets every path: segments of some
//! records, a write buffer of fewer, tables and levels of a few blocks, garbage
//! collected as soon as there is some.

use cambium_io::simulated::Event;
use cambium_testkit::CrashSuite;
use cambium_testkit::crash::{FAULTS, POWER_CUTS};
use cambium_testkit::seeded::{NOT_OF_DATA, each_breach_is_found, each_bug_is_found};
use cambium_wisckey::Wisckey;
use cambium_wisckey::seeded_bug::SeededBug;

fn suite(test: &'static str) -> CrashSuite {
    CrashSuite::new(&Wisckey, env!("CARGO_PKG_NAME"), test)
        .creation("block_bytes", "512")
        .opening("segment_bytes", "2048")
        .opening("replay_bytes", "1024")
        .opening("inline_bytes", "4")
        .opening("preallocate_bytes", "4096")
        .opening("table_bytes", "1024")
        .opening("table_block_bytes", "256")
        .opening("level_base_bytes", "2048")
        .opening("cache_bytes", "0")
        .opening("space_limit", "120")
}

#[test]
fn any_crash_leaves_a_prefix() {
    let report = suite("any_crash_leaves_a_prefix").states(25_000).run();
    report.met(&POWER_CUTS);
}

#[test]
fn larger_buffers_survive_crashes() {
    let report = suite("larger_buffers_survive_crashes")
        .opening("replay_bytes", "16384")
        .opening("segment_bytes", "4096")
        .opening("cache_bytes", "65536")
        .opening("inline_bytes", "0")
        .states(10_000)
        .run();
    assert!(report.states() >= 10_000);
}

#[test]
fn collection_from_the_tail_survives_crashes() {
    let report = suite("collection_from_the_tail_survives_crashes")
        .opening("collection", "tail")
        .opening("space_limit", "110")
        .opening("segment_bytes", "1024")
        .states(10_000)
        .run();
    assert!(report.states() >= 10_000);
}

/// Freed values give their space back wherever a block of them is free.
fn with_holes(test: &'static str) -> CrashSuite {
    suite(test)
        .opening("hole_bytes", "1")
        .opening("segment_bytes", "16384")
        .opening("space_limit", "300")
}

#[test]
fn holes_survive_crashes_and_failing_operations() {
    let test = "holes_survive_crashes_and_failing_operations";
    let report = with_holes(test).states(5_000).run();
    report.met(&POWER_CUTS);
    report.met(&[Event::PunchHole, Event::CrashHoles, Event::HoleHalfDone]);
    let report = with_holes(test).states(2_000).run_faults();
    assert!(report.states() >= 2_000);
}

#[test]
fn a_log_past_the_page_cache_survives_crashes_and_failing_operations() {
    let test = "a_log_past_the_page_cache_survives_crashes_and_failing_operations";
    let direct = suite(test)
        .opening("direct", "on")
        .opening("open_files", "2");
    let report = direct.clone().states(5_000).run();
    report.met(&POWER_CUTS);
    let report = direct.states(2_000).run_faults();
    assert!(report.states() >= 2_000);
}

#[test]
fn every_short_sequence_survives_every_crash() {
    let report = suite("every_short_sequence_survives_every_crash").run_exhaustive(3);
    report.met_three_actions();
}

#[test]
fn failing_operations_lose_nothing() {
    let report = suite("failing_operations_lose_nothing")
        .states(10_000)
        .run_faults();
    report.met(&FAULTS);
}

/// Numbers given twice mix nothing up where a recovery begins a segment of its
/// own: what it cut off lies in others, and the manifest says so. That they are
/// given twice is seen in `after_crashes.rs`, and so are notes that a close leaves out
/// where nobody has written. A cursor that walks on while values
/// move is in `sorting.rs`, and what a change feed shows in `changes`. Named snapshots are in
/// `named.rs`, namespaces in `names.rs`. The suites of threads below find what needs threads; what
/// needs a damaged header is in `headers.rs`, what needs a checkpoint in `checkpoints.rs`.
const FOUND_ELSEWHERE: [SeededBug; 14] = [
    SeededBug::HoleInShared,
    SeededBug::EpochReused,
    SeededBug::HoleUnderPin,
    SeededBug::NotesReversed,
    SeededBug::FailedSyncMissed,
    SeededBug::CloseOutrun,
    SeededBug::CloseUnnoted,
    SeededBug::DamagedHeaderIgnored,
    SeededBug::DeletesRest,
    SeededBug::ChangeBatchSplit,
    SeededBug::ChangesUnsynced,
    SeededBug::HistoryDroppedEarly,
    SeededBug::SnapshotSegmentDropped,
    SeededBug::NamespaceDropUnnoted,
];

#[test]
fn every_seeded_bug_is_found() {
    let asked = SeededBug::ALL
        .iter()
        .filter(|(bug, _)| !FOUND_ELSEWHERE.contains(bug));
    each_bug_is_found(asked.map(|(_, name)| *name), |name| {
        let test = "every_seeded_bug_is_found";
        match name.starts_with("hole_") {
            true => with_holes(test),
            false => suite(test),
        }
        .opening("seeded_bug", name)
        .states(10_000)
        .find_failure()
    });
}

#[test]
fn every_breach_of_the_disks_contract_is_found() {
    each_breach_is_found(&NOT_OF_DATA, |breakage| {
        suite("every_breach_of_the_disks_contract_is_found")
            .broken(breakage)
            .states(10_000)
            .find_failure()
    });
}

#[test]
fn threads_survive_crashes_anywhere() {
    let test = "threads_survive_crashes_anywhere";
    suite(test)
        .opening("cache_bytes", "65536")
        .frees_space()
        .states(4_000)
        .run_threads();
    suite(test).focused().states(1_000).run_threads();
}

#[test]
fn threads_beside_every_kind_of_collection_survive_crashes() {
    let test = "threads_beside_every_kind_of_collection_survive_crashes";
    with_holes(test).states(1_500).run_threads();
    suite(test)
        .opening("collection", "tail")
        .opening("inline_bytes", "0")
        .states(1_500)
        .run_threads();
    suite(test)
        .opening("replay_bytes", "16384")
        .opening("segment_bytes", "4096")
        .opening("cache_bytes", "65536")
        .states(1_500)
        .run_threads();
}

#[test]
fn threads_beside_failing_operations_lose_nothing() {
    let test = "threads_beside_failing_operations_lose_nothing";
    suite(test).states(2_000).run_threads_with_faults();
}

#[test]
fn every_seeded_bug_of_threads_is_found() {
    let armed = |name| suite("every_seeded_bug_of_threads_is_found").opening("seeded_bug", name);
    let names = ["close_outrun", "notes_reversed"];
    each_bug_is_found(names, |name| {
        armed(name).states(20_000).find_failure_among_threads()
    });
    each_bug_is_found(["deletes_rest"], |name| {
        let suite = armed(name).frees_space();
        suite.states(2_000).find_failure_among_threads()
    });
    each_bug_is_found(["failed_sync_missed"], |name| {
        let suite = armed(name).states(20_000);
        suite.find_failure_among_threads_with_faults()
    });
}

#[test]
fn short_programs_have_an_order() {
    let suite = suite("short_programs_have_an_order").opening("cache_bytes", "65536");
    assert!(suite.run_short_programs(300) > 1_000);
}
