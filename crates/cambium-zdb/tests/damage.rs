//! Truncation and a flip of every byte of a small store: nothing damaged is
//! returned as data, nothing panics, `check` finds it or the state is one that
//! was.

use cambium_testkit::DamageSuite;
use cambium_zdb::Zdb;

fn suite(keys: &str) -> DamageSuite {
    DamageSuite::new(&Zdb)
        .creation("keys", keys)
        .creation("keys_per_table", "64")
        .creation("piece_bytes", "256")
        .creation("block_bytes", "256")
        .creation("data_files", "2")
        .creation("commit_log_bytes", "2048")
        .creation("buckets", "4")
        .opening("sparse_tables", "1000")
        .opening("cache_bytes", "0")
}

#[test]
fn damage_to_integer_stores_is_never_taken_for_data() {
    let report = suite("integer").run();
    assert!(report.cases > 10_000 && report.detected > 0, "{report:?}");
}

#[test]
fn damage_to_string_stores_is_never_taken_for_data() {
    let report = suite("string").run();
    assert!(report.cases > 10_000 && report.detected > 0, "{report:?}");
}

/// A smaller stride also cuts the unclosed store's data file within a record that the
/// commit log holds too. The entries behind it, of the last sync, then look like a
/// torn tail: no durable record promises them yet, and `check` finds no damage.
const INTEGER_STRIDE: usize = 397;

#[test]
fn damage_to_integer_stores_loses_nothing_without_a_word() {
    let report = suite("integer").strict().stride(INTEGER_STRIDE).run();
    assert!(report.mended > 0 && report.interrupted > 0, "{report:?}");
}

#[test]
fn damage_to_string_stores_loses_nothing_without_a_word() {
    let report = suite("string").strict().stride(61).run();
    assert!(report.mended > 0 && report.interrupted > 0, "{report:?}");
}

#[test]
fn reading_without_checksums_is_found() {
    let failure = suite("integer")
        .opening("seeded_bug", "no_checksum")
        .find_failure();
    assert!(failure.is_some());
}
