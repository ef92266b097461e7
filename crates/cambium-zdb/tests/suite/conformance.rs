//! `zdb` through the suite that every engine passes: both kinds of keys, with
//! the defaults and with constants so small that every path is met, in memory
//! and on real files with a background task.

use cambium_testkit::stores::threaded;
use cambium_testkit::{Breakage, Conformance};
use cambium_zdb::Zdb;

fn suite(keys: &str) -> Conformance {
    Conformance::new(&Zdb)
        .creation("keys", keys)
        .opening("sparse_tables", "100000")
}

fn small(keys: &str) -> Conformance {
    suite(keys)
        .creation("keys_per_table", "64")
        .creation("piece_bytes", "256")
        .creation("block_bytes", "256")
        .creation("data_files", "3")
        .creation("commit_log_bytes", "2048")
        .creation("buckets", "2")
        .opening("open_tables", "2")
        .opening("compaction_least_bytes", "0")
        .opening("checkpoint_bytes", "4096")
        .opening("commit_group_bytes", "300")
}

#[test]
fn integer_keys_conform() {
    suite("integer").run();
    small("integer").run();
}

#[test]
fn string_keys_conform() {
    suite("string").run();
    small("string").run();
}

#[test]
fn slots_of_four_bytes_and_no_cache_conform() {
    suite("integer")
        .creation("slot_bytes", "4")
        .opening("cache_bytes", "0")
        .opening("io", "sync")
        .opening("read_guess_bytes", "64")
        .run();
}

#[test]
fn background_work_beside_readers_and_writers_conforms() {
    for keys in ["integer", "string"] {
        small(keys).environment(threaded).run();
    }
}

#[test]
fn an_ignored_lock_is_found() {
    let failures = suite("integer").broken(Breakage::LockIgnored).failures();
    assert!(
        failures.iter().any(|line| line.contains("one owner")),
        "{failures:?}"
    );
}
