//! The value layer above each engine on the simulated disk: crashed everywhere, with failing
//! operations, among threads, and with seeded bugs that the suites must find.
//!
//! The constants are tiny, as in the suites of the engines.

use cambium::EngineKind;
use cambium_testkit::CrashSuite;
use cambium_testkit::crash::{FAULTS, POWER_CUTS};
use cambium_testkit::seeded::each_bug_is_found;

use super::values_conformance::{ENGINES, with_layer};

fn suite(engine: &'static dyn EngineKind, test: &'static str) -> CrashSuite {
    let suite = CrashSuite::new(with_layer(engine), env!("CARGO_PKG_NAME"), test);
    let suite = suite.layer_above(engine).opening("compression", "lz4");
    match engine.name() {
        "forest" => suite
            .creation("node_bytes", "512")
            .creation("block_bytes", "512")
            .opening("write_buffer_entries", "4")
            .opening("preallocate_bytes", "4096")
            .opening("segment_bytes", "16KiB")
            .opening("compaction_least_bytes", "8192")
            .opening("compaction_memory_bytes", "12288")
            .opening("cache_bytes", "0"),
        "wisckey" => suite
            .creation("block_bytes", "512")
            .opening("segment_bytes", "2048")
            .opening("replay_bytes", "1024")
            .opening("inline_bytes", "4")
            .opening("preallocate_bytes", "4096")
            .opening("table_bytes", "1024")
            .opening("table_block_bytes", "256")
            .opening("level_base_bytes", "2048")
            .opening("cache_bytes", "0"),
        "zdb" => suite
            .creation("keys", "string")
            .creation("keys_per_table", "64")
            .creation("piece_bytes", "256")
            .creation("block_bytes", "256")
            .creation("data_files", "3")
            .creation("commit_log_bytes", "1024")
            .creation("buckets", "4")
            .opening("open_tables", "2")
            .opening("compaction_least_bytes", "0"),
        _ => suite
            .creation("size", "1048576")
            .creation("block_bytes", "512")
            .opening("coalesce_bytes", "4096")
            .opening("extend_bytes", "16384")
            .opening("io", "sync")
            .opening("cache_bytes", "4096"),
    }
}

#[test]
fn any_crash_leaves_a_prefix_of_values() {
    for engine in ENGINES {
        let suite = suite(engine, "any_crash_leaves_a_prefix_of_values");
        let report = suite.states(20_000).run();
        report.met(&POWER_CUTS);
    }
}

#[test]
fn failing_operations_lose_no_value() {
    for engine in ENGINES {
        let suite = suite(engine, "failing_operations_lose_no_value");
        let report = suite.states(15_000).run_faults();
        report.met(&FAULTS);
    }
}

#[test]
fn threads_above_the_value_layer_survive_crashes() {
    for engine in ENGINES {
        let test = "threads_above_the_value_layer_survive_crashes";
        let suite = suite(engine, test).any_opening("compression", &["none", "lz4"]);
        suite.states(4_000).run_threads();
    }
}

/// Defects that crashes, or the background work between them, show.
const AMONG_CRASHES: [&str; 3] = ["merge_reads_store", "expiry_unmarked", "sweep_takes_all"];

#[test]
fn seeded_bugs_of_the_value_layer_are_found_among_crashes() {
    let test = "seeded_bugs_of_the_value_layer_are_found_among_crashes";
    each_bug_is_found(AMONG_CRASHES, |name| {
        let suite = suite(&cambium_forest::Forest, test).opening("seeded_bug", name);
        suite
            .opening("compression", "none")
            .states(4_000)
            .find_failure()
    });
}
