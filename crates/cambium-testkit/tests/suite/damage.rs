//! Damage to the memory engine's files.

use cambium_testkit::memory_engine::MemoryKind;
use cambium_testkit::{CrashSuite, DamageSuite};

#[test]
fn damage_is_never_taken_for_data() {
    let report = DamageSuite::new(&MemoryKind).run();
    assert!(report.detected > 0 && report.prefix > 0, "{report:?}");
}

#[test]
fn a_device_that_betrays_never_makes_values_up() {
    let report = DamageSuite::new(&MemoryKind).run_betrayed(2_000);
    assert!(report.prefix > 0 && report.harmless > 0, "{report:?}");
}

#[test]
fn a_missing_checksum_is_found() {
    let failure = DamageSuite::new(&MemoryKind)
        .opening("seeded_bug", "no_checksum")
        .find_failure();
    assert!(failure.is_some());
}

#[test]
fn every_short_sequence_survives_every_crash() {
    let suite = CrashSuite::new(
        &MemoryKind,
        env!("CARGO_PKG_NAME"),
        "every_short_sequence_survives_every_crash",
    );
    let report = suite.run_exhaustive(3);
    report.met_three_actions();
}
