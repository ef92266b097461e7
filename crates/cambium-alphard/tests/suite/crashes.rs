//! `alphard` on the simulated disk: crashed everywhere, with failing operations,
//! and with seeded bugs that the suites must find.
//!
//! The device is small, so that extents are freed and reused all the time, and is
//! taken into use in small steps.

use cambium_alphard::Alphard;
use cambium_alphard::seeded_bug::SeededBug;
use cambium_io::simulated::Event;
use cambium_testkit::CrashSuite;
use cambium_testkit::crash::{FAULTS, POWER_CUTS};
use cambium_testkit::seeded::{NOT_OF_DATA, each_breach_is_found, each_bug_is_found};

pub fn suite(test: &'static str) -> CrashSuite {
    CrashSuite::new(&Alphard, env!("CARGO_PKG_NAME"), test)
        .creation("size", "131072")
        .creation("block_bytes", "512")
        .opening("coalesce_bytes", "4096")
        .opening("extend_bytes", "16384")
        .opening("io", "sync")
        // So that values are pushed out all the time.
        .opening("cache_bytes", "4096")
}

#[test]
fn any_crash_leaves_a_prefix() {
    let report = suite("any_crash_leaves_a_prefix").states(100_000).run();
    report.met(&POWER_CUTS);
}

#[test]
fn any_crash_leaves_a_prefix_on_blocks_of_4096_bytes() {
    let report = suite("any_crash_leaves_a_prefix_on_blocks_of_4096_bytes")
        .creation("block_bytes", "4096")
        .creation("size", "524288")
        .states(30_000)
        .run();
    report.met(&POWER_CUTS);
}

#[test]
fn any_crash_of_a_block_device_leaves_a_prefix() {
    for sector_bytes in [512, 4096] {
        let test = "any_crash_of_a_block_device_leaves_a_prefix";
        let report = CrashSuite::new(&Alphard, env!("CARGO_PKG_NAME"), test)
            .device("device", "/device", 512 << 10, sector_bytes)
            .opening("coalesce_bytes", "16384")
            .opening("extend_bytes", "65536")
            .states(15_000)
            .run();
        report.met(&POWER_CUTS);
    }
}

#[test]
fn any_crash_with_discards_leaves_a_prefix() {
    let test = "any_crash_with_discards_leaves_a_prefix";
    let report = suite(test)
        .creation("block_bytes", "4096")
        .creation("size", "524288")
        .opening("discard_bytes", "4096")
        .states(15_000)
        .run();
    report.met(&POWER_CUTS);
    report.met(&[Event::PunchHole, Event::HoleHalfDone]);
    let report = CrashSuite::new(&Alphard, env!("CARGO_PKG_NAME"), test)
        .device("device", "/device", 512 << 10, 512)
        .opening("coalesce_bytes", "16384")
        .opening("extend_bytes", "65536")
        .opening("discard_bytes", "4096")
        .states(10_000)
        .run();
    report.met(&[Event::PunchHole]);
}

/// A store with history, which readers follow; consumers keep what they have not read.
fn suite_with_history(test: &'static str) -> CrashSuite {
    suite(test)
        .creation("history", "on")
        .creation("size", "262144")
}

#[test]
fn any_crash_leaves_the_changes_that_consumers_need() {
    let test = "any_crash_leaves_the_changes_that_consumers_need";
    let report = suite_with_history(test).states(60_000).run();
    report.met(&POWER_CUTS);
    let mirrored = suite_with_history(test).creation("mirror", "mirror");
    mirrored.states(10_000).run();
    let holes = suite_with_history(test)
        .creation("block_bytes", "4096")
        .creation("size", "2MiB")
        .opening("discard_bytes", "4096");
    holes.states(10_000).run();
}

#[test]
fn failing_operations_with_history_lose_nothing() {
    suite_with_history("failing_operations_with_history_lose_nothing")
        .states(8_000)
        .run_faults();
}

#[test]
fn seeded_bugs_of_history_are_found() {
    let all = SeededBug::ALL.iter();
    let of_history = all.filter(|(bug, _)| OF_HISTORY.contains(bug));
    each_bug_is_found(of_history.map(|(_, name)| *name), |name| {
        suite_with_history("seeded_bugs_of_history_are_found")
            .opening("seeded_bug", name)
            .states(20_000)
            .find_failure()
    });
}

const OF_HISTORY: [SeededBug; 3] = [
    SeededBug::ChangesUnsynced,
    SeededBug::HistoryDroppedEarly,
    SeededBug::HistoryReused,
];

fn suite_with_holes(test: &'static str) -> CrashSuite {
    suite(test)
        .creation("block_bytes", "4096")
        .creation("size", "524288")
        .opening("discard_bytes", "4096")
        .states(8_000)
}

#[test]
fn failing_operations_with_discards_lose_nothing() {
    suite_with_holes("failing_operations_with_discards_lose_nothing").run_faults();
}

#[test]
fn every_short_sequence_survives_every_crash() {
    let report = suite("every_short_sequence_survives_every_crash").run_exhaustive(3);
    report.met_three_actions();
}

#[test]
fn failing_operations_lose_nothing() {
    let report = suite("failing_operations_lose_nothing")
        .states(20_000)
        .run_faults();
    report.met(&FAULTS);
}

/// Crashes damage no live byte: `damage.rs` finds the first. The second takes a
/// device with little room to spare: `states.rs`; zeros take two threads: `ahead.rs`; the
/// cache, lookups between few keys' writes: `kept.rs`; the next three, a disk that fails at a
/// chosen moment: `failures.rs`; the one after them, threads: `threads.rs`; the next, a discarded
/// entry: `changes.rs`; the last, cleaning beside many buffered writes: `packs.rs`.
const FOUND_ELSEWHERE: [SeededBug; 14] = [
    SeededBug::NoChecksum,
    SeededBug::ReleasedUnmarked,
    SeededBug::MembersDiffer,
    SeededBug::StaleBelieved,
    SeededBug::LossUnsaid,
    SeededBug::ZeroesFreed,
    SeededBug::CacheServesOverwritten,
    SeededBug::CacheTakesLateReads,
    SeededBug::HolesUnreserved,
    SeededBug::CacheBelieved,
    SeededBug::RepairErasesFirst,
    SeededBug::SyncsAfterClose,
    SeededBug::HistoryUnverified,
    SeededBug::CleansOldBytes,
];

#[test]
fn every_seeded_bug_is_found() {
    let asked = SeededBug::ALL
        .iter()
        .filter(|(bug, _)| !FOUND_ELSEWHERE.contains(bug) && !OF_HISTORY.contains(bug));
    each_bug_is_found(asked.map(|(_, name)| *name), |name| {
        suite("every_seeded_bug_is_found")
            .opening("seeded_bug", name)
            .states(20_000)
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
