//! `wisckey` through the suite that every engine passes: with the defaults and
//! with constants so small that every path is met, in memory and with background
//! tasks.

use cambium_testkit::stores::threaded;
use cambium_testkit::{Breakage, Conformance};
use cambium_wisckey::Wisckey;

fn suite() -> Conformance {
    Conformance::new(&Wisckey)
}

fn small() -> Conformance {
    suite()
        .creation("block_bytes", "512")
        .opening("segment_bytes", "2048")
        .opening("replay_bytes", "1024")
        .opening("inline_bytes", "4")
        .opening("preallocate_bytes", "4096")
        .opening("table_bytes", "1024")
        .opening("table_block_bytes", "256")
        .opening("level_base_bytes", "2048")
        .opening("read_ahead", "3")
}

#[test]
fn the_defaults_conform() {
    suite().run();
}

#[test]
fn small_constants_conform() {
    small().run();
}

#[test]
fn no_cache_no_filters_plain_reads_and_the_tail_order_conform() {
    small()
        .opening("cache_bytes", "0")
        .opening("filter_bits", "0")
        .opening("io", "sync")
        .opening("batch", "1")
        .opening("buffer_bytes", "0")
        .opening("collection", "tail")
        .opening("space_limit", "110")
        .run();
}

#[test]
fn ranges_read_by_threads_and_one_by_one_conform() {
    small().opening("range_io", "threads").run();
    small()
        .opening("range_io", "threads")
        .opening("range_width", "3")
        .environment(threaded)
        .run();
    small().opening("range_io", "sync").run();
}

#[test]
fn holes_in_segments_conform() {
    small()
        .opening("hole_bytes", "1")
        .opening("collection", "off")
        .opening("segment_bytes", "64KiB")
        .environment(threaded)
        .run();
}

#[test]
fn a_log_past_the_page_cache_and_few_open_files_conform() {
    small()
        .opening("direct", "on")
        .opening("open_files", "1")
        .environment(threaded)
        .run();
}

#[test]
fn inline_values_and_compressed_tables_conform() {
    small()
        .opening("inline_bytes", "512")
        .opening("compression", "lz4")
        .run();
}

#[test]
fn background_work_beside_readers_and_writers_conforms() {
    small().environment(threaded).run();
    suite()
        .opening("replay_bytes", "16384")
        .opening("segment_bytes", "8192")
        .environment(threaded)
        .run();
}

#[test]
fn an_ignored_lock_is_found() {
    let failures = suite().broken(Breakage::LockIgnored).failures();
    assert!(
        failures.iter().any(|line| line.contains("one owner")),
        "{failures:?}"
    );
}
