//! `forest` under several threads that a seed interleaves at every lock, wait, ordered
//! atomic access and file operation, with a cache, and crashed anywhere.

use cambium_testkit::{CrashSuite, each_bug_is_found};

fn suite(test: &'static str) -> CrashSuite {
    crate::crashes::suite(test).opening("cache_bytes", "65536")
}

#[test]
fn threads_and_crashes_leave_a_prefix() {
    let test = "threads_and_crashes_leave_a_prefix";
    suite(test).states(3_000).run_threads();
    suite(test).focused().states(1_000).run_threads();
}

#[test]
fn threads_with_a_larger_buffer_and_crashes_leave_a_prefix() {
    let test = "threads_with_a_larger_buffer_and_crashes_leave_a_prefix";
    let report = suite(test)
        .opening("write_buffer_entries", "40")
        .states(2_000)
        .run_threads();
    assert!(report.states() >= 2_000, "{report:?}");
}

#[test]
fn threads_and_failing_operations_lose_nothing() {
    let test = "threads_and_failing_operations_lose_nothing";
    suite(test).states(1_000).run_threads_with_faults();
}

/// Those that need threads to be met.
const BUGS: [&str; 5] = [
    "passed_versions_found",
    "flush_drops_active",
    "commit_unsynced",
    "compaction_without_catch_up",
    "sync_takes_later_writes",
];

#[test]
fn bugs_that_need_threads_are_found() {
    let armed = |name| {
        suite("bugs_that_need_threads_are_found")
            .opening("write_buffer_entries", "40")
            .opening("seeded_bug", name)
            .states(20_000)
    };
    each_bug_is_found(BUGS, |name| armed(name).find_failure_among_threads());
    each_bug_is_found(["syncs_apart"], |name| {
        armed(name).find_failure_among_threads_with_faults()
    });
}

#[test]
fn short_programs_have_an_order() {
    let suite = suite("short_programs_have_an_order");
    assert!(suite.run_short_programs(300) > 1_000);
}
