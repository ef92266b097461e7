//! `zdb` on the simulated disk: crashed everywhere, with failing operations,
//! and with seeded bugs that the suites must find.
//!
//! The constants are tiny, so that a short run meets every path: tables of 64
//! keys, pieces of 256 bytes, blocks of 256 bytes, commit logs of 1 KiB,
//! checkpoints of the index every 2 KiB or 16 KiB.

use cambium_io::simulated::Event;
use cambium_testkit::CrashSuite;
use cambium_testkit::crash::{FAULTS, POWER_CUTS};
use cambium_testkit::seeded::{NOT_OF_DATA, each_breach_is_found, each_bug_is_found};
use cambium_zdb::Zdb;
use cambium_zdb::seeded_bug::SeededBug;

fn suite(keys: &str, test: &'static str) -> CrashSuite {
    CrashSuite::new(&Zdb, env!("CARGO_PKG_NAME"), test)
        .creation("keys", keys)
        .creation("keys_per_table", "64")
        .creation("piece_bytes", "256")
        .creation("block_bytes", "256")
        .creation("data_files", "3")
        .creation("commit_log_bytes", "1024")
        .creation("buckets", "4")
        .opening("open_tables", "2")
        .opening("sparse_tables", "1000")
        .opening("compaction_least_bytes", "0")
        .any_opening("checkpoint_bytes", &["2048", "16384"])
        .opening("commit_group_bytes", "300")
}

#[test]
fn integer_keys_survive_crashes() {
    let report = suite("integer", "integer_keys_survive_crashes")
        .states(30_000)
        .run();
    report.met(&POWER_CUTS);
    report.met(&[Event::WindowStore]);
}

#[test]
fn string_keys_survive_crashes() {
    let report = suite("string", "string_keys_survive_crashes")
        .states(20_000)
        .run();
    assert!(report.states() >= 1);
}

#[test]
fn every_short_sequence_survives_every_crash() {
    for keys in ["integer", "string"] {
        let report = suite(keys, "every_short_sequence_survives_every_crash").run_exhaustive(3);
        report.met_three_actions();
    }
}

#[test]
fn failing_operations_lose_nothing() {
    for keys in ["integer", "string"] {
        let report = suite(keys, "failing_operations_lose_nothing")
            .states(8_000)
            .run_faults();
        report.met(&FAULTS);
    }
}

/// Draws the options that decide on which paths threads meet: tables that are closed while
/// others use them, a checkpoint after nearly every write, caches that are off or warm.
fn threads(keys: &str, test: &'static str) -> CrashSuite {
    suite(keys, test)
        .any_creation("keys_per_table", &["4", "64"])
        .any_creation("data_files", &["1", "3"])
        .any_opening("open_tables", &["1", "2", "8"])
        .any_opening("checkpoint_bytes", &["1024", "2048", "8192"])
        .any_opening("cache_bytes", &["0", "4096", "1MiB"])
        .any_opening("commit_group_bytes", &["0", "300", "64KiB"])
        .focused()
}

#[test]
fn several_threads_survive_crashes() {
    for keys in ["integer", "string"] {
        let report = threads(keys, "several_threads_survive_crashes")
            .states(4_000)
            .run_threads();
        assert!(report.states() > 1_000, "{report:?}");
    }
}

#[test]
fn several_threads_meet_failing_operations() {
    for keys in ["integer", "string"] {
        threads(keys, "several_threads_meet_failing_operations")
            .states(2_000)
            .run_threads_with_faults();
    }
}

#[test]
fn short_programs_see_one_order_of_all_calls() {
    for keys in ["integer", "string"] {
        let suite = suite(keys, "short_programs_see_one_order_of_all_calls");
        let suite = suite.opening("open_tables", "1");
        assert!(suite.run_short_programs(INTERLEAVINGS) > 10_000);
    }
}

/// Interleavings of each short program.
const INTERLEAVINGS: u64 = 1_000;

#[test]
fn seeded_bugs_are_found_among_threads() {
    let armed = |name| {
        // String keys have counts.
        let keys = match name {
            "counts_of_later" => "string",
            _ => "integer",
        };
        threads(keys, "seeded_bugs_are_found_among_threads").opening("seeded_bug", name)
    };
    each_bug_is_found(AMONG_THREADS, |name| {
        armed(name).states(60_000).find_failure_among_threads()
    });
    each_bug_is_found(BESIDE_FAULTS, |name| {
        let suite = armed(name).states(200_000);
        suite.find_failure_among_threads_with_faults()
    });
    each_bug_is_found(IN_SHORT_PROGRAMS, |name| {
        armed(name).find_failure_in_short_programs(INTERLEAVINGS)
    });
}

const AMONG_THREADS: [&str; 3] = ["table_closed_in_use", "counts_of_later", "seek_unbounded"];
const BESIDE_FAULTS: [&str; 2] = ["sync_error_taken", "successor_forgotten"];
const IN_SHORT_PROGRAMS: [&str; 2] = ["load_race_is_damage", "cache_outside_locks"];
/// Those that the suites of damage.rs find, and one that takes a recovery of damage which
/// is killed (repairs/).
const WITH_DAMAGE: [&str; 5] = [
    "no_checksum",
    "sync_unpromised",
    "table_in_one_copy",
    "empty_index_named",
    "hole_overwritten",
];
/// Those of the change feed, which changes.rs finds.
const OF_CHANGES: [&str; 4] = [
    "changes_split",
    "unsynced_changes_shown",
    "consumers_forgotten",
    "cut_changes_shown",
];

#[test]
fn every_seeded_bug_is_found() {
    let elsewhere = [
        &AMONG_THREADS[..],
        &BESIDE_FAULTS,
        &IN_SHORT_PROGRAMS,
        &WITH_DAMAGE,
        &OF_CHANGES,
        // ranges.rs finds it.
        &["compaction_without_ranges"],
    ]
    .concat();
    let names = SeededBug::ALL.iter().map(|(_, name)| *name);
    each_bug_is_found(names.filter(|name| !elsewhere.contains(name)), |name| {
        // Remains that look like what follows must lie just at its end: rare.
        let states = match name {
            "epoch_reused" => 80_000,
            _ => 10_000,
        };
        ["string", "integer"].iter().find_map(|keys| {
            suite(keys, "every_seeded_bug_is_found")
                .opening("seeded_bug", name)
                .states(states)
                .find_failure()
        })
    });
}

#[test]
fn every_breach_of_the_disks_contract_is_found() {
    each_breach_is_found(&NOT_OF_DATA, |breakage| {
        ["integer", "string"].iter().find_map(|keys| {
            suite(keys, "every_breach_of_the_disks_contract_is_found")
                .broken(breakage)
                .states(10_000)
                .find_failure()
        })
    });
}
