//! Truncation and a flip of every byte of a small store: nothing damaged is
//! returned as data, nothing panics, `check` finds it or the state is one that
//! was.

use cambium_forest::Forest;
use cambium_testkit::DamageSuite;

fn suite() -> DamageSuite {
    DamageSuite::new(&Forest)
        .creation("node_bytes", "512")
        .creation("block_bytes", "512")
        .opening("write_buffer_entries", "4")
        .opening("preallocate_bytes", "4096")
        .opening("segment_bytes", "16KiB")
        .opening("cache_bytes", "0")
}

#[test]
fn damage_is_never_taken_for_data() {
    let report = suite().run();
    assert!(report.cases > 10_000 && report.detected > 0, "{report:?}");
}

#[test]
fn damage_behind_a_large_buffer_is_never_taken_for_data() {
    let report = suite()
        .opening("write_buffer_entries", "64")
        .stride(2)
        .run();
    assert!(report.cases > 5_000 && report.detected > 0, "{report:?}");
}

#[test]
fn reading_without_checksums_is_found() {
    let failure = suite().opening("seeded_bug", "no_checksum").find_failure();
    assert!(failure.is_some());
}

#[test]
fn nothing_synced_is_gone_without_a_finding() {
    let report = suite().strict().stride(97).run();
    assert!(report.cases > 500 && report.detected > 0, "{report:?}");
    assert!(report.mended > 0 && report.interrupted > 0, "{report:?}");
}

#[test]
fn a_repair_that_loses_an_entry_without_a_word_is_found() {
    assert!(suite().stride(97).lossy_repairs().find_failure().is_some());
}
