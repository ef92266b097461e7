//! `alphard` under several threads that a seed interleaves at every lock and file
//! operation, crashed anywhere; and seeded bugs among them.

use cambium_testkit::{CrashSuite, each_bug_is_found};

use crate::crashes::suite;

/// Long runs on few blocks, so that each of them is freed and taken again many times.
fn crowded(test: &'static str) -> CrashSuite {
    suite(test)
        .creation("size", "262144")
        .creation("block_bytes", "4096")
        .actions(100)
}

fn with_zeros(test: &'static str) -> CrashSuite {
    crowded(test).opening("extend_bytes", "8192")
}

fn with_discards(test: &'static str) -> CrashSuite {
    crowded(test).opening("discard_bytes", "4096")
}

#[test]
fn threads_and_crashes_leave_a_prefix() {
    let test = "threads_and_crashes_leave_a_prefix";
    suite(test).states(8_000).run_threads();
    suite(test).focused().states(1_000).run_threads();
    // All versions that are replaced while a snapshot is open stay; more fill the device.
    let bounded = |suite: CrashSuite| suite.opening("snapshot_limit", "12").states(4_000);
    bounded(crowded(test))
        .opening("cache_bytes", "1MiB")
        .run_threads();
    bounded(with_zeros(test)).run_threads();
    bounded(with_discards(test)).run_threads();
}

#[test]
fn threads_that_follow_changes_see_whole_batches_in_order() {
    let test = "threads_that_follow_changes_see_whole_batches_in_order";
    let history = |suite: CrashSuite| suite.creation("history", "on");
    history(suite(test))
        .creation("size", "262144")
        .states(4_000)
        .run_threads();
    history(suite(test))
        .creation("size", "262144")
        .states(1_000)
        .run_threads_with_faults();
    history(with_discards(test))
        .creation("size", "2MiB")
        .states(1_500)
        .run_threads();
}

#[test]
fn threads_and_crashes_of_two_members_leave_a_prefix() {
    suite("threads_and_crashes_of_two_members_leave_a_prefix")
        .creation("mirror", "mirror")
        .states(3_000)
        .run_threads();
}

#[test]
fn threads_and_crashes_of_cached_files_leave_a_prefix() {
    suite("threads_and_crashes_of_cached_files_leave_a_prefix")
        .opening("direct", "off")
        .states(3_000)
        .run_threads();
}

#[test]
fn threads_and_failing_operations_lose_nothing() {
    let test = "threads_and_failing_operations_lose_nothing";
    suite(test).states(2_000).run_threads_with_faults();
    suite(test)
        .opening("direct", "off")
        .states(2_000)
        .run_threads_with_faults();
    with_discards(test).states(1_000).run_threads_with_faults();
}

#[test]
fn short_programs_see_one_order_of_all_calls() {
    let suite = suite("short_programs_see_one_order_of_all_calls");
    assert!(suite.run_short_programs(150) > 1_000);
}

#[test]
fn seeded_bugs_are_found_among_threads() {
    let found_by = |of: fn(&'static str) -> CrashSuite, names: &[&'static str]| {
        each_bug_is_found(names.iter().copied(), |name| {
            of("seeded_bugs_are_found_among_threads")
                .opening("seeded_bug", name)
                .states(20_000)
                .find_failure_among_threads()
        });
    };
    found_by(
        suite,
        &[
            "torn_tail_kept",
            "batch_split",
            "no_sync",
            "synced_for_others",
            "sync_retried",
            "freed_too_early",
            "no_tombstone",
            "tombstone_too_early",
            "cut_not_erased",
            "high_water_late",
            "stale_image",
            "full_write_forgiven",
        ],
    );
    found_by(with_zeros, &["released_unmarked", "zeroes_freed"]);
    found_by(
        with_discards,
        &[
            "cache_serves_overwritten",
            "holes_unreserved",
            "syncs_after_close",
        ],
    );
}
