//! The conformance suite on the memory engine, and on broken ground.

use cambium_testkit::memory_engine::MemoryKind;
use cambium_testkit::{Breakage, Conformance};

#[test]
fn the_memory_engine_conforms() {
    Conformance::new(&MemoryKind).run();
}

#[test]
fn an_ignored_lock_is_found() {
    let failures = Conformance::new(&MemoryKind)
        .broken(Breakage::LockIgnored)
        .failures();
    assert!(
        failures.iter().any(|line| line.contains("one owner")),
        "{failures:?}"
    );
}
