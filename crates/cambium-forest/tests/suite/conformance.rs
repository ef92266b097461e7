//! `forest` through the suite that every engine passes: with the defaults and
//! with constants so small that every path is met, in memory and with a
//! background task, with each shape of the index.

use cambium_forest::Forest;
use cambium_testkit::stores::threaded;
use cambium_testkit::{Breakage, Conformance};

fn suite() -> Conformance {
    Conformance::new(&Forest)
}

fn small() -> Conformance {
    suite()
        .creation("node_bytes", "512")
        .creation("block_bytes", "512")
        .opening("write_buffer_entries", "4")
        .opening("preallocate_bytes", "4096")
        .opening("segment_bytes", "16KiB")
        .opening("compaction_least_bytes", "0")
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
fn caches_of_nothing_and_plain_reads_conform() {
    small()
        .opening("cache_bytes", "0")
        .opening("io", "sync")
        .opening("batch", "1")
        .opening("buffer_bytes", "0")
        .opening("compaction_threshold", "10")
        .run();
}

#[test]
fn reads_and_writes_past_the_page_cache_conform() {
    for (node_bytes, block_bytes) in [("512", "512"), ("512", "4096"), ("4096", "512")] {
        small()
            .creation("node_bytes", node_bytes)
            .creation("block_bytes", block_bytes)
            .opening("direct", "on")
            .opening("cache_bytes", "4096")
            .opening("compaction_threshold", "20")
            .run();
    }
}

#[test]
fn every_shape_of_the_index_conforms() {
    for (index, extension) in [
        ("hbtrie", Some("paper")),
        ("hbtrie", Some("off")),
        ("prefix_btree", None),
        ("btree", None),
    ] {
        let mut suite = small()
            .creation("index", index)
            .creation("chunk_bytes", "3");
        if let Some(extension) = extension {
            suite = suite.creation("leaf_extension", extension);
        }
        suite.run();
    }
}

#[test]
fn background_work_beside_readers_and_writers_conforms() {
    small().environment(threaded).run();
    suite()
        .opening("write_buffer_entries", "50")
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
