//! Truncation and a flip at one byte of sixty of a small store: nothing damaged is
//! returned as data, nothing panics, `check` finds it or the state is one that
//! was. Tables and manifest are damaged at every byte by the tree's own suite.

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
}

#[test]
fn damage_is_never_taken_for_data() {
    let report = suite().stride(61).run();
    assert!(report.cases > 500 && report.detected > 0, "{report:?}");
}

#[test]
fn damage_behind_a_large_buffer_is_never_taken_for_data() {
    let report = suite().opening("replay_bytes", "65536").stride(53).run();
    assert!(report.cases > 500 && report.detected > 0, "{report:?}");
}
