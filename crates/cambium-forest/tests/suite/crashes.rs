//! `forest` on the simulated disk: crashed everywhere, with failing operations,
//! and with seeded bugs that the suites must find.
//!
//! The constants are tiny, so that a short run meets every path: nodes and
//! blocks of 512 bytes, a write buffer of 4 entries, little preallocation.

use cambium_forest::Forest;
use cambium_forest::seeded_bug::SeededBug;
use cambium_testkit::CrashSuite;
use cambium_testkit::crash::{FAULTS, POWER_CUTS};
use cambium_testkit::seeded::{NOT_OF_DATA, each_breach_is_found, each_bug_is_found};

pub fn suite(test: &'static str) -> CrashSuite {
    CrashSuite::new(&Forest, env!("CARGO_PKG_NAME"), test)
        .creation("node_bytes", "512")
        .creation("block_bytes", "512")
        .opening("write_buffer_entries", "4")
        .opening("preallocate_bytes", "4096")
        .opening("segment_bytes", "16KiB")
        .opening("compaction_least_bytes", "8192")
        .opening("compaction_memory_bytes", "12288")
        .opening("cache_bytes", "0")
}

#[test]
fn any_crash_leaves_a_prefix() {
    let report = suite("any_crash_leaves_a_prefix").states(100_000).run();
    report.met(&POWER_CUTS);
    report.met_names();
}

#[test]
fn a_larger_buffer_and_a_cache_survive_crashes() {
    let report = suite("a_larger_buffer_and_a_cache_survive_crashes")
        .opening("write_buffer_entries", "40")
        .opening("cache_bytes", "65536")
        .states(20_000)
        .run();
    assert!(report.states() >= 20_000);
}

#[test]
fn stores_that_are_rewritten_by_themselves_survive_crashes() {
    let report = suite("stores_that_are_rewritten_by_themselves_survive_crashes")
        .opening("cleaning", "off")
        .states(20_000)
        .run();
    report.met(&POWER_CUTS);
}

#[test]
fn writes_past_the_page_cache_survive_crashes() {
    let direct = |test| {
        suite(test)
            .opening("direct", "on")
            .opening("buffer_bytes", "300")
            .opening("cache_bytes", "4096")
    };
    let test = "writes_past_the_page_cache_survive_crashes";
    let report = direct(test).states(20_000).run();
    report.met(&POWER_CUTS);
    let report = direct(test).states(10_000).run_faults();
    report.met(&FAULTS);
}

#[test]
fn documents_dealt_out_in_a_scratch_file_survive_crashes() {
    let test = "documents_dealt_out_in_a_scratch_file_survive_crashes";
    let deals = || suite(test).opening("sort", "deal");
    let report = deals().states(20_000).run();
    report.met(&POWER_CUTS);
    let report = deals().states(5_000).run_faults();
    report.met(&FAULTS);
}

#[test]
fn every_short_sequence_survives_every_crash() {
    let report = suite("every_short_sequence_survives_every_crash").run_exhaustive(3);
    report.met_three_actions();
}

#[test]
fn every_short_sequence_of_names_survives_every_crash() {
    let test = "every_short_sequence_of_names_survives_every_crash";
    let report = suite(test).run_exhaustive_names(3);
    report.met_three_actions();
    report.met_names();
}

#[test]
fn failing_operations_lose_nothing() {
    let report = suite("failing_operations_lose_nothing")
        .states(20_000)
        .run_faults();
    report.met(&FAULTS);
    report.met_names();
}

/// Crashes damage no live byte: `damage.rs` finds the first. A recovery's header
/// marks the cut, so numbers given twice mix nothing up; and without threads
/// nobody writes beside a flush: `states.rs` finds these two. Nor is there a cache for
/// addresses in most of these runs: `addresses.rs` finds what is kept of them.
const FOUND_ELSEWHERE: [SeededBug; 26] = [
    SeededBug::NoChecksum,
    SeededBug::FlushKeepsAddresses,
    SeededBug::EpochReused,
    SeededBug::FlushDropsActive,
    SeededBug::CompactionPassesSnapshot,
    // `threads.rs` finds the first three. No entry is lost by the others: `failed_flushes.rs`
    // and tests beside the code find them.
    SeededBug::PassedVersionsFound,
    SeededBug::SyncTakesLaterWrites,
    SeededBug::SyncsApart,
    SeededBug::PackedPlaceKept,
    SeededBug::FlushLeavesRuns,
    SeededBug::WritesBehindLostRun,
    SeededBug::FlushRetriesDamage,
    SeededBug::LongDelaysCut,
    SeededBug::ScanHoldsWriters,
    SeededBug::CancellationCleared,
    // `cleaning.rs` finds these: no crash loses the newest superblock, nor holds a view.
    SeededBug::CleaningNamedOnce,
    SeededBug::TailFreedBesideReaders,
    SeededBug::NodesReusedBesideReaders,
    // `changes` finds those of the change feed.
    SeededBug::ChangesHalveBatch,
    SeededBug::ChangesBeforeSync,
    SeededBug::HistoryDroppedEarly,
    SeededBug::HistoryUnsynced,
    // `beside.rs` finds those of readers beside a writer.
    SeededBug::HistoryFreedBesideReaders,
    SeededBug::ReaderPassesRollback,
    SeededBug::RefreshDropsPinned,
    // `checkpoints.rs` finds it.
    SeededBug::SharedSegmentsWritten,
];

#[test]
fn every_seeded_bug_is_found() {
    let asked = SeededBug::ALL
        .iter()
        .filter(|(bug, _)| !FOUND_ELSEWHERE.contains(bug));
    each_bug_is_found(asked.map(|(_, name)| *name), |name| {
        let cleaning = match name.starts_with("compaction") {
            true => "off",
            false => "on",
        };
        suite("every_seeded_bug_is_found")
            .opening("cleaning", cleaning)
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
