//! `alphard` through the suite that every engine passes: with the defaults and
//! with constants so small that every path is met, on blocks of both sizes, in
//! memory and with a background task.

use cambium_alphard::Alphard;
use cambium_testkit::stores::threaded;
use cambium_testkit::{Breakage, Conformance};

fn suite() -> Conformance {
    Conformance::new(&Alphard).creation("size", "64MiB")
}

fn small() -> Conformance {
    suite()
        .opening("coalesce_bytes", "4096")
        .opening("extend_bytes", "65536")
        .opening("batch", "2")
        // So that values are pushed out all the time.
        .opening("cache_bytes", "16384")
        .opening("io", "sync")
}

#[test]
fn the_defaults_conform() {
    Conformance::new(&Alphard).run();
}

#[test]
fn small_constants_conform() {
    small().run();
}

#[test]
fn blocks_of_4096_bytes_and_buffered_files_conform() {
    small()
        .creation("block_bytes", "4096")
        .opening("direct", "off")
        .run();
}

#[test]
fn discarding_at_once_conforms() {
    small()
        .creation("block_bytes", "4096")
        .opening("discard_bytes", "1")
        .run();
}

#[test]
fn background_work_beside_readers_and_writers_conforms() {
    small().environment(threaded).run();
}

#[test]
fn zeros_ahead_beside_readers_and_writers_conform() {
    let ahead = || small().opening("extend_bytes", "131072");
    ahead().run();
    ahead().environment(threaded).run();
}

#[test]
fn stores_with_history_conform() {
    Conformance::new(&Alphard).creation("history", "on").run();
    let history = || small().creation("history", "on");
    history().run();
    history().environment(threaded).run();
    history()
        .creation("block_bytes", "4096")
        .creation("mirror", "mirror")
        .opening("direct", "off")
        .opening("discard_bytes", "1")
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
