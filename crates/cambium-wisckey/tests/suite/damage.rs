//! Flips, cuts, zeroed and unreadable sectors of small stores: nothing damaged is
//! returned as data, nothing synced is gone without a finding, and a repair that is
//! interrupted anywhere has the result of one that is not. Tables and manifest are damaged
//! at every byte by the tree's own suite.

use cambium_testkit::DamageSuite;
use cambium_wisckey::Wisckey;

fn suite() -> DamageSuite {
    DamageSuite::new(&Wisckey)
        .creation("block_bytes", "512")
        .opening("segment_bytes", "2048")
        .opening("replay_bytes", "1024")
        .opening("inline_bytes", "4")
        .opening("preallocate_bytes", "1024")
        .opening("table_bytes", "1024")
        .opening("table_block_bytes", "256")
        .opening("cache_bytes", "0")
        .strict()
}

#[test]
fn damage_is_never_taken_for_data() {
    let report = suite().stride(131).run();
    assert!(report.cases > 500 && report.detected > 0, "{report:?}");
    assert!(report.mended > 0 && report.interrupted > 0, "{report:?}");
}

#[test]
fn damage_behind_a_large_buffer_is_never_taken_for_data() {
    let report = suite().opening("replay_bytes", "65536").stride(89).run();
    assert!(report.cases > 500 && report.detected > 0, "{report:?}");
}

#[test]
fn a_repair_that_loses_an_entry_without_a_word_is_found() {
    assert!(suite().stride(97).lossy_repairs().find_failure().is_some());
}
